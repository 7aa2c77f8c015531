//! Statements: those that are no queries are run at once; values of parameters, and where they go.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PyArray;
use warpline::{QueryMetrics, WarplineSession, statements};

use crate::error::{raised_by_plan, refused};
use crate::scope;
use crate::spec::{Spec, Text};

/// What a statement other than a query answers.
pub(crate) type Answer = (SchemaRef, Vec<RecordBatch>, QueryMetrics);

/// Runs a statement other than a query.
///
/// # Errors
/// What it reports, and a change of a variable.
pub(crate) async fn executed(
    session: &WarplineSession,
    spec: Spec,
) -> Result<Answer, warpline::Error> {
    let Spec {
        sql,
        text,
        variables,
        ..
    } = spec;
    if variables.is_empty()
        && let Text::Sql = text
    {
        let run = session.query(&sql).await?;
        return Ok((run.schema, run.batches, run.metrics));
    }
    let ran = async {
        let context = session.context();
        let names = Arc::clone(&variables);
        let state = context.state();
        let plan = scope::with(variables, statements::plan_text(&state, &sql)).await?;
        let plan = match text {
            Text::Bound(values) => {
                let values = match &plan {
                    LogicalPlan::Dml(_) => of_columns(&plan, values)?,
                    _ => values,
                };
                plan.with_param_values(values)?
            }
            _ => plan,
        };
        if let LogicalPlan::Dml(change) = &plan
            && names.contains_key(change.table_name.table())
        {
            let name = change.table_name.table();
            return Err(DataFusionError::Plan(format!(
                "'{name}' is a variable, which SQL does not change; CREATE TABLE {name} AS SELECT * FROM {name} makes a table of it"
            )));
        }
        // Outside of their scope, so that a table may take the name of a variable.
        let frame = context.execute_logical_plan(plan).await?;
        let schema = Arc::clone(frame.schema().inner());
        Ok((schema, frame.collect().await?, QueryMetrics::default()))
    };
    let answer = session.guard(&sql, ran).await;
    // It may have changed what plans of earlier queries read.
    session.clear_plan_cache();
    answer
}

/// Values of the types of the columns that they are written to: the plan counts on these.
///
/// # Errors
/// When a value cannot be converted.
fn of_columns(plan: &LogicalPlan, values: ParamValues) -> Result<ParamValues, DataFusionError> {
    let types = plan.get_parameter_types()?;
    let cast = |name: String, mut given: ScalarAndMetadata| {
        if let Some(Some(wanted)) = types.get(&format!("${name}")) {
            given.value = given.value.cast_to(wanted)?;
        }
        Ok::<_, DataFusionError>((name, given))
    };
    Ok(match values {
        ParamValues::List(values) => {
            let values = values.into_iter().enumerate();
            let values = values.map(|(at, given)| Ok(cast((at + 1).to_string(), given)?.1));
            ParamValues::List(values.collect::<Result<_, DataFusionError>>()?)
        }
        ParamValues::Map(values) => {
            let values = values.into_iter().map(|(name, given)| cast(name, given));
            ParamValues::Map(values.collect::<Result<_, _>>()?)
        }
    })
}

/// The values of parameters: a list, or a dict by name, of arrays of one value.
///
/// # Errors
/// When one of them is no array.
pub(crate) fn values(params: &Bound<'_, PyAny>) -> PyResult<ParamValues> {
    let py = params.py();
    let value = |array: &Bound<'_, PyAny>| {
        let array = array.extract::<PyArray>()?;
        let array: &dyn Array = array.array().as_ref();
        ScalarValue::try_from_array(array, 0).map_err(|error| raised_by_plan(py, error))
    };
    if let Ok(named) = params.cast::<PyDict>() {
        let values = named
            .iter()
            .map(|(name, array)| Ok((name.extract::<String>()?, value(&array)?)));
        let values = values.collect::<PyResult<HashMap<String, ScalarValue>>>()?;
        return Ok(values.into());
    }
    let values = params.try_iter()?.map(|array| value(&array?));
    Ok(values.collect::<PyResult<Vec<_>>>()?.into())
}

/// The text with `$1`, `$2`, … where it has question marks.
///
/// # Errors
/// When there are more marks than values, or fewer.
pub(crate) fn numbered(sql: &str, given: usize) -> PyResult<String> {
    let marks = places(sql, &Token::Placeholder("?".into()));
    if marks.is_empty() {
        return Ok(sql.to_string());
    }
    if marks.len() != given {
        return Err(refused(format!(
            "the statement has {} parameters (?), and {given} values were given",
            marks.len()
        )));
    }
    let mut text = String::with_capacity(sql.len() + marks.len());
    let mut begin = 0;
    for (number, mark) in marks.into_iter().enumerate() {
        text.push_str(&sql[begin..mark]);
        text.push_str(&format!("${}", number + 1));
        begin = mark + 1;
    }
    text.push_str(&sql[begin..]);
    Ok(text)
}

/// The statements of a text, which semicolons part.
pub(crate) fn parted(sql: &str) -> Vec<&str> {
    let mut begin = 0;
    let mut statements = Vec::new();
    for end in places(sql, &Token::SemiColon) {
        statements.push(&sql[begin..end]);
        begin = end + 1;
    }
    statements.push(&sql[begin..]);
    statements.retain(|statement| !is_empty(statement));
    statements
}

/// White space and comments alone.
fn is_empty(sql: &str) -> bool {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
    tokens.is_ok_and(|tokens| {
        tokens
            .iter()
            .all(|token| matches!(token, Token::Whitespace(_)))
    })
}

/// Where a text has a token of one character, outside of strings and comments, in bytes. Nowhere, if it cannot be read: that is
/// the parser's to tell.
fn places(sql: &str, wanted: &Token) -> Vec<usize> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
    let Ok(tokens) = tokens else {
        return vec![];
    };
    let tokens = tokens.iter().filter(|token| token.token == *wanted);
    let mut starts = tokens
        .map(|token| (token.span.start.line, token.span.start.column))
        .peekable();
    let mut found = Vec::new();
    let (mut line, mut column) = (1, 1);
    for (at, character) in sql.char_indices() {
        if starts.next_if_eq(&(line, column)).is_some() {
            found.push(at);
        }
        match character {
            '\n' => (line, column) = (line + 1, 1),
            _ => column += 1,
        }
    }
    found
}
