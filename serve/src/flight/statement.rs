//! From text to a statement with the schema of its stream and the types of its parameters.

use std::sync::Arc;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::PeekableFlightDataStream;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tonic::Status;

use crate::client::Client;
use crate::error::{Result, ServeError, state};
use crate::parameters::parameter_types;
use crate::policy;
use crate::query::Work;

/// Most rows of parameters of a statement.
const MOST_ROWS: usize = 100_000;

/// A statement that is known to be allowed.
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) ast: ast::Statement,
    /// `None` for `SET`.
    pub(super) plan: Option<LogicalPlan>,
    /// The schema of its stream.
    pub(super) schema: SchemaRef,
    pub(super) parameters: SchemaRef,
    /// The values of the parameters, a list for each row that the client sent.
    pub(super) bound: Mutex<Vec<Vec<ScalarValue>>>,
}

impl Statement {
    pub(super) async fn new(client: &Arc<Client>, sql: &str) -> Result<Self> {
        let text = numbered(sql)?;
        let mut parsed = Parser::parse_sql(&GenericDialect {}, &text)?;
        let (Some(ast), true) = (parsed.pop(), parsed.is_empty()) else {
            return Err(ServeError::new(
                state::SYNTAX_ERROR,
                "give one statement at a time",
            ));
        };
        policy::check(&ast)?;
        let plan = match &ast {
            ast::Statement::Set(_) => None,
            ast::Statement::StartTransaction { .. }
            | ast::Statement::Commit { .. }
            | ast::Statement::Rollback { .. }
            | ast::Statement::Copy { .. }
            | ast::Statement::Declare { .. }
            | ast::Statement::Fetch { .. }
            | ast::Statement::Close { .. } => return Err(ServeError::unsupported(&text)),
            _ => Some(policy::planned(client, &ast).await?),
        };
        let (schema, types) = match &plan {
            Some(plan) => (
                wire_schema(plan.schema().as_arrow()),
                parameter_types(plan)?,
            ),
            None => (Arc::new(Schema::empty()), vec![]),
        };
        let parameters = types.into_iter().enumerate().map(|(at, inferred)| {
            let inferred = inferred.unwrap_or(DataType::Utf8);
            Field::new(format!("${}", at + 1), wire_type(&inferred), true)
        });
        Ok(Self {
            sql: text,
            ast,
            plan,
            schema,
            parameters: Arc::new(Schema::new(parameters.collect::<Vec<_>>())),
            bound: Mutex::default(),
        })
    }

    /// What is to run: once, or once for each row of parameters.
    pub(super) fn works(&self) -> Result<Vec<Work>> {
        let Some(plan) = &self.plan else {
            return Ok(vec![]);
        };
        let wanted = self.parameters.fields().len();
        if wanted == 0 {
            let work = match &self.ast {
                ast::Statement::Query(_) | ast::Statement::Explain { .. } => {
                    Work::Text(self.sql.clone(), Box::new(plan.clone()))
                }
                _ => Work::Plan(Box::new(plan.clone())),
            };
            return Ok(vec![work]);
        }
        let bound = self.bound.lock().clone();
        if bound.is_empty() {
            return Err(ServeError::new(
                state::INVALID_PARAMETER_VALUE,
                format!("the statement has {wanted} parameters, and no values were given"),
            ));
        }
        let fill = |values: Vec<ScalarValue>| {
            if values.len() < wanted {
                return Err(ServeError::new(
                    state::INVALID_PARAMETER_VALUE,
                    format!(
                        "the statement has {wanted} parameters, and {} values were given",
                        values.len()
                    ),
                ));
            }
            let plan = plan.clone();
            let plan = plan.replace_params_with_values(&ParamValues::from(values))?;
            Ok(Work::Plan(Box::new(plan)))
        };
        bound.into_iter().map(fill).collect()
    }

    /// Takes the parameters that a client sends.
    pub(super) async fn bind(&self, stream: PeekableFlightDataStream) -> Result<(), Status> {
        // The first message may be the command alone.
        let data = stream
            .try_filter(|data| std::future::ready(!data.data_header.is_empty()))
            .map_err(|status| FlightError::Tonic(Box::new(status)));
        let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
        let mut rows = Vec::new();
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(|error| Status::invalid_argument(error.to_string()))?;
            if rows.len() + batch.num_rows() > MOST_ROWS {
                return Err(Status::resource_exhausted(format!(
                    "a statement takes at most {MOST_ROWS} rows of parameters"
                )));
            }
            for row in 0..batch.num_rows() {
                let values = batch
                    .columns()
                    .iter()
                    .map(|column| ScalarValue::try_from_array(column, row))
                    .collect::<Result<Vec<_>, _>>();
                rows.push(values.map_err(ServeError::from)?);
            }
        }
        // A call without rows keeps those that came before.
        if !rows.is_empty() {
            *self.bound.lock() = rows;
        }
        Ok(())
    }
}

/// `?` as `$1`, `$2` and so on.
fn numbered(sql: &str) -> Result<String> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
    let mut tokens =
        tokens.map_err(|error| ServeError::new(state::SYNTAX_ERROR, error.to_string()))?;
    let mut count = 0;
    for token in &mut tokens {
        if let Token::Placeholder(name) = token
            && name == "?"
        {
            count += 1;
            *name = format!("${count}");
        }
    }
    match count {
        0 => Ok(sql.to_string()),
        _ => Ok(tokens.iter().map(ToString::to_string).collect()),
    }
}

/// The type in which values go out: without dictionaries and views, which some clients cannot read.
fn wire_type(data_type: &DataType) -> DataType {
    let field = |field: &Arc<Field>| Arc::new(wire_field(field));
    match data_type {
        DataType::Dictionary(_, values) => wire_type(values),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(field(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

fn wire_field(field: &Field) -> Field {
    field.clone().with_data_type(wire_type(field.data_type()))
}

/// The schema of a stream.
pub(super) fn wire_schema(schema: &Schema) -> SchemaRef {
    let fields: Fields = schema
        .fields()
        .iter()
        .map(|field| wire_field(field))
        .collect();
    Arc::new(Schema::new(fields))
}

/// A batch in the schema that its reader was told, to the nullability.
pub(super) fn to_wire(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.num_columns() != schema.fields().len() {
        return Err(ServeError::new(
            state::INTERNAL_ERROR,
            "the answer has other columns than were announced",
        ));
    }
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(
        |(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        },
    );
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_are_numbered() {
        assert_eq!(
            numbered("SELECT '?' , a FROM t WHERE a > ? AND b = ? -- ?").unwrap(),
            "SELECT '?' , a FROM t WHERE a > $1 AND b = $2 -- ?"
        );
        assert_eq!(numbered("SELECT $1").unwrap(), "SELECT $1");
        assert!(numbered("SELECT 'open").is_err());
    }
}
