//! Plans of statements, also of those with names or joins that DataFusion has no plan for as they are written: a module for each kind of
//! words that are put otherwise.

pub mod alias_reuse;
pub mod as_of;
pub mod branch_names;
pub mod cast_arguments;
mod clickhouse;
pub mod distinct_from;
pub mod ignored;
pub mod interval_products;
pub mod interval_texts;
pub mod lag_defaults;
pub mod named_windows;
pub mod null_safe_joins;
pub mod numbers;
pub mod order_keys;
pub mod other_dialects;
pub mod outer_aggregates;
pub mod output_names;
pub mod patterns;
pub mod pivots;
mod replaced;
pub mod row_lists;
pub mod row_subqueries;
pub mod rows;
pub mod same_names;
pub mod series_columns;
pub mod synonyms;
mod syntax;
pub mod ties;
pub mod time_constants;
pub mod time_formats;
pub mod unnest_names;
pub mod using_joins;
pub mod with_names;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::config::Dialect;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Expr, Statement, visit_expressions};

use crate::interval_product::interval_product;
use crate::regexp_split::regexp_split;
use crate::{age, ordered_set};

/// Most changes of one statement: each is for another name.
const MOST_CHANGES: usize = 32;

/// The plan of a statement, in other words where DataFusion lacks some.
///
/// Changed before it is planned, since DataFusion would answer what SQL does not say, or fail later:
///
/// | what is written | what is planned |
/// |---|---|
/// | comparisons with `IS DISTINCT FROM`, before AND and OR | as SQL reads them ([`distinct_from`]) |
/// | clauses that DataFusion leaves out | others, or none: it is refused ([`ignored`]) |
/// | `WITH TIES`, percents of rows | conditions of places in the order ([`ties`]) |
/// | series and lists of the rows beside them, and their places | lateral subqueries ([`row_lists`]) |
/// | windows that build on others | whole windows ([`named_windows`]) |
/// | comparisons of rows | those of their values ([`rows`]) |
/// | defaults of `lag` that are no constants | CASE ([`lag_defaults`]) |
/// | intervals with times of day | intervals in words ([`interval_texts`]) |
/// | clauses and types of other dialects | their own ([`other_dialects`]) |
/// | pivots | groups, and lists taken apart ([`pivots`]) |
/// | tables of one name in several schemas | their paths ([`same_names`]) |
/// | joins `USING` columns, and with NULL as a value | conditions ([`using_joins`], [`null_safe_joins`]) |
/// | patterns and formats | DataFusion's ([`patterns`], [`time_formats`]) |
/// | digits in groups (`1_000`) | numbers ([`numbers`]) |
/// | aggregates of the query around a subquery | none: it is refused ([`outer_aggregates`]) |
/// | sort keys that are aggregates | outputs by their numbers ([`order_keys`]) |
///
/// Changed where planning fails:
///
/// | what DataFusion does not find a plan for | what is planned then |
/// |---|---|
/// | names that are ambiguous | sort keys ([`order_keys`]), outputs of set operations ([`branch_names`]) or those beside lists ([`unnest_names`]) with names of their own |
/// | tables in WITH that are called as one around | names of their own ([`with_names`]) |
/// | functions that it lacks, or has for other arguments alone | those that it has ([`synonyms`]); table functions in small letters, files by their names ([`other_dialects`]) |
/// | output columns of one name; aggregates that differ in casts alone | names of their own ([`output_names`], [`cast_arguments`]) |
/// | columns that are not there | a series' by the name of its table ([`series_columns`]); what an output of the name is ([`alias_reuse`]) |
/// | joins with the nearest row; rows that are sought in subqueries | lateral joins ([`as_of`]); EXISTS ([`row_subqueries`]) |
/// | times of day that count in other units | constants in these ([`time_constants`]) |
/// | products of intervals | durations, or a function of ours ([`interval_products`]) |
///
/// # Errors
/// What DataFusion reports.
pub async fn plan(state: &SessionState, statement: DfStatement) -> Result<LogicalPlan> {
    planned(state, statement).await.map(|(plan, _)| plan)
}

/// A plan, and the statement that it is of.
async fn planned(
    state: &SessionState,
    statement: DfStatement,
) -> Result<(LogicalPlan, DfStatement)> {
    let mut statement = statement;
    let mut state = Cow::Borrowed(state);
    if changed(&mut statement, &distinct_from::end_before_and) {
        statement = parsed(&state, &statement.to_string())?;
    }
    let schema = state.config_options().catalog.default_schema.clone();
    changed(&mut statement, &|inner| {
        same_names::with_schemas(inner, &schema)
    });
    for change in [
        ignored::heeded,
        ties::by_places,
        row_lists::as_subqueries,
        named_windows::spelled_out,
        named_windows::of_moving_frames,
        rows::as_comparisons,
        lag_defaults::as_cases,
        interval_texts::in_words,
        other_dialects::in_known_words,
        pivots::as_queries,
        using_joins::by_tables,
        patterns::in_known_words,
        null_safe_joins::as_comparisons,
        order_keys::aggregates_apart,
        time_formats::in_known_words,
    ] {
        changed(&mut statement, &change);
    }
    ignored::refuse(&state, &statement)?;
    let mut durations = false;
    for _ in 0..MOST_CHANGES {
        let mut again = statement.clone();
        let error = match state.statement_to_plan(statement).await {
            Err(error) => error,
            Ok(plan) => {
                // What types do not fit in conditions is found out when the plan is analysed.
                let doubtful = durations
                    || some_expr(&again, &|expr| {
                        interval_products::is_one(expr) || time_constants::is_one(expr)
                    });
                match doubtful.then(|| refused(&state, &plan)).flatten() {
                    Some(error) => error,
                    None => {
                        outer_aggregates::refuse(&plan)?;
                        return Ok((plan, again));
                    }
                }
            }
        };
        if interval_products::is_unsupported(&error)
            && changed(&mut again, &interval_products::as_durations)
        {
            durations = true;
        } else if interval_products::is_no_duration(&error)
            && changed(&mut again, &interval_products::as_intervals)
        {
            state.to_mut().register_udf(interval_product())?;
        } else if !put_otherwise(&mut again, &error) && !registered(&mut state, &error)? {
            return Err(error);
        }
        statement = again;
    }
    let plan = state.statement_to_plan(statement.clone()).await?;
    Ok((plan, statement))
}

/// Puts what DataFusion has no plan for, with this error, as it has one; whether there was anything to put otherwise.
fn put_otherwise(statement: &mut DfStatement, error: &DataFusionError) -> bool {
    let mut change = |change: &dyn Fn(&mut Statement) -> bool| changed(statement, change);
    order_keys::is_ambiguous(error)
        && (change(&order_keys::set_apart)
            || change(&branch_names::as_the_first)
            || change(&unnest_names::set_apart))
        || synonyms::unknown(error).is_some_and(|name| {
            name == age::NAME && change(&synonyms::parts_of_ages)
                || change(&|inner| synonyms::replace(inner, &name))
        })
        || synonyms::mismatched(error)
            .is_some_and(|name| change(&|inner| synonyms::replace(inner, &name)))
        || output_names::repeated(error)
            .is_some_and(|name| change(&|inner| output_names::set_apart(inner, &name)))
        || cast_arguments::is_repeated(error) && change(&cast_arguments::set_apart)
        || series_columns::missing(error).is_some_and(|name| {
            change(&|inner| series_columns::called(inner, &name))
                || change(&|inner| alias_reuse::spelled_out(inner, &name))
                || change(&|inner| synonyms::replace_name(inner, &name))
        })
        || other_dialects::missing(error).is_some_and(|name| {
            change(&|inner| other_dialects::in_small_letters(inner, &name))
                || change(&|inner| other_dialects::as_files(inner, &name))
        })
        || time_constants::coarser(error)
            .is_some_and(|unit| change(&|inner| time_constants::in_units(inner, unit)))
        || with_names::repeated(error)
            .is_some_and(|name| change(&|inner| with_names::set_apart(inner, &name)))
        || as_of::is_unsupported(error) && change(&as_of::as_lateral)
        || row_subqueries::is_unsupported(error) && change(&row_subqueries::as_exists)
}

/// Whether a function that is missing is one of ours, which no other statement knows then.
fn registered(state: &mut Cow<'_, SessionState>, error: &DataFusionError) -> Result<bool> {
    let Some(name) = synonyms::unknown(error) else {
        return Ok(false);
    };
    if let Some(function) = scalar_function(&name) {
        state.to_mut().register_udf(function)?;
    } else if let Some(function) = ordered_set::function(&name) {
        state.to_mut().register_udaf(function)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Functions of ours that statements call by their names.
fn scalar_functions() -> [Arc<ScalarUDF>; 2] {
    [age::age(), regexp_split()]
}

/// The one of them that is called so.
pub fn scalar_function(name: &str) -> Option<Arc<ScalarUDF>> {
    scalar_functions()
        .into_iter()
        .find(|function| function.name() == name)
}

/// Why types do not fit in a plan with intervals or times of day.
fn refused(state: &SessionState, plan: &LogicalPlan) -> Option<DataFusionError> {
    let analyzer = state.analyzer();
    let analysed = analyzer.execute_and_check(plan.clone(), state.config_options(), |_, _| {});
    analysed.err().filter(|error| {
        interval_products::is_no_duration(error) || time_constants::coarser(error).is_some()
    })
}

/// What a text says. What DataFusion's own dialect does not know (`WITH x AS MATERIALIZED (…)`, `a # b`) may be PostgreSQL's or DuckDB's,
/// which mean the same by what all of them know.
///
/// # Errors
/// What the parser of the session's dialect reports.
pub fn parsed(state: &SessionState, sql: &str) -> Result<DfStatement> {
    let numbers = numbers::in_one_group(sql);
    let sql = numbers.as_deref().unwrap_or(sql);
    let dialect = state.config_options().sql_parser.dialect;
    let own = state.sql_to_statement(sql, &dialect);
    if own.is_ok() || dialect != Dialect::Generic {
        return own;
    }
    let others = [Dialect::PostgreSQL, Dialect::DuckDB].iter();
    let mut others = others.filter_map(|dialect| state.sql_to_statement(sql, dialect).ok());
    if let Some(other) = others.next() {
        return Ok(other);
    }
    // DuckDB's joins with the nearest row are no part of what is read as its own.
    if let Some(marked) = as_of::marked(sql)
        && let Ok(mut statement) = state.sql_to_statement(&marked, &dialect)
        && changed(&mut statement, &as_of::by_marks)
    {
        return Ok(statement);
    }
    own
}

/// As [`plan`], of a text.
///
/// # Errors
/// What DataFusion reports.
pub async fn plan_text(state: &SessionState, sql: &str) -> Result<LogicalPlan> {
    plan(state, parsed(state, sql)?).await
}

/// Makes the functions known that statements may be put in: what [`plain_text`] gives may need them.
pub fn register_functions(context: &SessionContext) {
    for function in scalar_functions().into_iter().chain([interval_product()]) {
        context.register_udf(function.as_ref().clone());
    }
    for function in ordered_set::functions() {
        context.register_udaf(function.as_ref().clone());
    }
}

/// A text as DataFusion itself has a plan for it, with the functions of [`register_functions`].
///
/// # Errors
/// As [`plan`].
pub async fn plain_text(state: &SessionState, sql: &str) -> Result<String> {
    let statement = parsed(state, sql)?;
    let (_, settled) = planned(state, statement.clone()).await?;
    Ok(match settled == statement {
        true => sql.to_string(),
        false => settled.to_string(),
    })
}

/// Whether `found` holds for some part of an expression of a statement.
fn some_expr(statement: &DfStatement, found: &dyn Fn(&Expr) -> bool) -> bool {
    let ends = |expr: &Expr| match found(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    match statement {
        DfStatement::Statement(statement) => visit_expressions(statement.as_ref(), ends).is_break(),
        DfStatement::Explain(explain) => some_expr(&explain.statement, found),
        DfStatement::CopyTo(CopyToStatement {
            source: CopyToSource::Query(query),
            ..
        }) => visit_expressions(query.as_ref(), ends).is_break(),
        _ => false,
    }
}

fn changed(statement: &mut DfStatement, change: &dyn Fn(&mut Statement) -> bool) -> bool {
    match statement {
        DfStatement::Statement(statement) => change(statement),
        DfStatement::Explain(explain) => changed(&mut explain.statement, change),
        DfStatement::CopyTo(CopyToStatement {
            source: CopyToSource::Query(query),
            ..
        }) => {
            let mut inner = Statement::Query(query.clone());
            let changes = change(&mut inner);
            if let Statement::Query(inner) = inner {
                *query = inner;
            }
            changes
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;

    /// The answer to a text, as a table.
    pub(crate) async fn answer(context: &SessionContext, sql: &str) -> String {
        let plan = super::plan_text(&context.state(), sql).await;
        let plan = plan.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let frame = context.execute_logical_plan(plan).await.unwrap();
        let batches = frame.collect().await.unwrap();
        pretty_format_batches(&batches).unwrap().to_string()
    }
}
