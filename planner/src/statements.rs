//! Plans of statements, also of those with names or joins that DataFusion has no plan for as they are written.

use std::borrow::Cow;

use datafusion::config::Dialect;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;

use crate::interval_product::interval_product;
use crate::{
    alias_reuse, as_of, branch_names, cast_arguments, distinct_from, interval_products,
    interval_texts, lag_defaults, null_safe_joins, order_keys, other_dialects, output_names,
    patterns, pivots, row_subqueries, series_columns, synonyms, time_formats, unnest_names,
    using_joins,
};

/// Most changes of one statement: each is for another name.
const MOST_CHANGES: usize = 32;

/// The plan of a statement, in other words where DataFusion lacks some.
///
/// Changed before it is planned, since DataFusion would answer what SQL does not say, or fail later: comparisons with `IS DISTINCT FROM`
/// ([`distinct_from`]), defaults of `lag` that are no constants ([`lag_defaults`]), intervals with times of day ([`interval_texts`]), clauses
/// and types of other dialects ([`other_dialects`]), pivots ([`pivots`]), joins `USING` columns ([`using_joins`]), patterns ([`patterns`]), joins
/// with NULL as a value ([`null_safe_joins`]), sort keys that are aggregates ([`order_keys`]) and formats of times ([`time_formats`]).
///
/// Changed where planning fails:
///
/// | what DataFusion does not find a plan for | what is planned then |
/// |---|---|
/// | names that are ambiguous | sort keys ([`order_keys`]), outputs of set operations ([`branch_names`]) or those beside lists ([`unnest_names`]) with names of their own |
/// | functions that it lacks | those that it has ([`synonyms`]); table functions in small letters ([`other_dialects`]) |
/// | output columns of one name; aggregates that differ in casts alone | names of their own ([`output_names`], [`cast_arguments`]) |
/// | columns that are not there | a series' by the name of its table ([`series_columns`]); what an output of the name is ([`alias_reuse`]) |
/// | joins with the nearest row; rows that are sought in subqueries | lateral joins ([`as_of`]); EXISTS ([`row_subqueries`]) |
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
    for change in [
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
    let mut durations = false;
    for _ in 0..MOST_CHANGES {
        let mut again = statement.clone();
        let error = match state.statement_to_plan(statement).await {
            Err(error) => error,
            Ok(plan) => match durations.then(|| refused(&state, &plan)).flatten() {
                Some(error) => error,
                None => return Ok((plan, again)),
            },
        };
        if interval_products::is_unsupported(&error)
            && changed(&mut again, &interval_products::as_durations)
        {
            durations = true;
        } else if interval_products::is_no_duration(&error)
            && changed(&mut again, &interval_products::as_intervals)
        {
            // No other statement knows the function.
            state.to_mut().register_udf(interval_product())?;
        } else if !put_otherwise(&mut again, &error) {
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
        || synonyms::unknown(error)
            .is_some_and(|name| change(&|inner| synonyms::replace(inner, &name)))
        || output_names::repeated(error)
            .is_some_and(|name| change(&|inner| output_names::set_apart(inner, &name)))
        || cast_arguments::is_repeated(error) && change(&cast_arguments::set_apart)
        || series_columns::missing(error).is_some_and(|name| {
            change(&|inner| series_columns::called(inner, &name))
                || change(&|inner| alias_reuse::spelled_out(inner, &name))
                || change(&|inner| synonyms::replace_name(inner, &name))
        })
        || other_dialects::missing(error)
            .is_some_and(|name| change(&|inner| other_dialects::in_small_letters(inner, &name)))
        || as_of::is_unsupported(error) && change(&as_of::as_lateral)
        || row_subqueries::is_unsupported(error) && change(&row_subqueries::as_exists)
}

/// Why types do not fit in a plan with durations that stand for intervals: that is found out when it is analysed.
fn refused(state: &SessionState, plan: &LogicalPlan) -> Option<DataFusionError> {
    let analyzer = state.analyzer();
    let analysed = analyzer.execute_and_check(plan.clone(), state.config_options(), |_, _| {});
    analysed.err().filter(interval_products::is_no_duration)
}

/// What a text says. What DataFusion's own dialect does not know (`WITH x AS MATERIALIZED (…)`, `a # b`) may be PostgreSQL's or DuckDB's,
/// which mean the same by what all of them know.
///
/// # Errors
/// What the parser of the session's dialect reports.
pub fn parsed(state: &SessionState, sql: &str) -> Result<DfStatement> {
    let dialect = state.config_options().sql_parser.dialect;
    let own = state.sql_to_statement(sql, &dialect);
    if own.is_ok() || dialect != Dialect::Generic {
        return own;
    }
    [Dialect::PostgreSQL, Dialect::DuckDB]
        .iter()
        .find_map(|dialect| state.sql_to_statement(sql, dialect).ok())
        .map_or(own, Ok)
}

/// As [`plan`], of a text.
///
/// # Errors
/// What DataFusion reports.
pub async fn plan_text(state: &SessionState, sql: &str) -> Result<LogicalPlan> {
    plan(state, parsed(state, sql)?).await
}

/// A text as DataFusion itself has a plan for it.
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

fn changed(statement: &mut DfStatement, change: &dyn Fn(&mut Statement) -> bool) -> bool {
    match statement {
        DfStatement::Statement(statement) => change(statement),
        DfStatement::Explain(explain) => changed(&mut explain.statement, change),
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
