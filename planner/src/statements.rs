//! Plans of statements, also of those with names or joins that DataFusion has no plan for as they are written.

use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;

use crate::{
    as_of, cast_arguments, distinct_from, interval_products, lag_defaults, null_safe_joins,
    order_keys, output_names, patterns, row_subqueries, series_columns, synonyms, time_formats,
    using_joins,
};

/// Most changes of one statement: each is for another name.
const MOST_CHANGES: usize = 32;

/// The plan of a statement. Where names in it are ambiguous, that of the same with its sort keys apart ([`order_keys`]); where output
/// columns bear one name, or aggregates differ in casts alone, with names of their own ([`output_names`], [`cast_arguments`]); where a
/// series is called as its table, by that ([`series_columns`]); where functions are called as other systems call them, with those that
/// DataFusion has ([`synonyms`]); of joins with the nearest row ([`as_of`]), that with lateral ones; of rows that are sought in
/// subqueries ([`row_subqueries`]), that with EXISTS; of products of intervals ([`interval_products`]), that with durations. What
/// the parser or DataFusion reads otherwise than SQL says ([`distinct_from`], [`using_joins`], [`patterns`], [`time_formats`]), joins with
/// NULL as a value ([`null_safe_joins`]), and defaults of `lag` that are no constants ([`lag_defaults`]), are changed before.
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
    if changed(&mut statement, &distinct_from::end_before_and) {
        let dialect = state.config_options().sql_parser.dialect;
        statement = state.sql_to_statement(&statement.to_string(), &dialect)?;
    }
    for change in [
        lag_defaults::as_cases,
        using_joins::by_tables,
        patterns::in_known_words,
        null_safe_joins::as_comparisons,
        time_formats::in_known_words,
    ] {
        changed(&mut statement, &change);
    }
    for _ in 0..MOST_CHANGES {
        let mut again = statement.clone();
        let error = match state.statement_to_plan(statement).await {
            Err(error) => error,
            Ok(plan) => return Ok((plan, again)),
        };
        let is_other = order_keys::is_ambiguous(&error)
            && changed(&mut again, &order_keys::set_apart)
            || synonyms::unknown(&error)
                .is_some_and(|name| changed(&mut again, &|inner| synonyms::replace(inner, &name)))
            || output_names::repeated(&error).is_some_and(|name| {
                changed(&mut again, &|inner| output_names::set_apart(inner, &name))
            })
            || cast_arguments::is_repeated(&error)
                && changed(&mut again, &cast_arguments::set_apart)
            || series_columns::missing(&error).is_some_and(|name| {
                changed(&mut again, &|inner| series_columns::called(inner, &name))
            })
            || as_of::is_unsupported(&error) && changed(&mut again, &as_of::as_lateral)
            || row_subqueries::is_unsupported(&error)
                && changed(&mut again, &row_subqueries::as_exists)
            || interval_products::is_unsupported(&error)
                && changed(&mut again, &interval_products::as_durations);
        if !is_other {
            return Err(error);
        }
        statement = again;
    }
    let plan = state.statement_to_plan(statement.clone()).await?;
    Ok((plan, statement))
}

/// As [`plan`], of a text.
///
/// # Errors
/// What DataFusion reports.
pub async fn plan_text(state: &SessionState, sql: &str) -> Result<LogicalPlan> {
    let dialect = state.config_options().sql_parser.dialect;
    plan(state, state.sql_to_statement(sql, &dialect)?).await
}

/// A text as DataFusion itself has a plan for it.
///
/// # Errors
/// As [`plan`].
pub async fn plain_text(state: &SessionState, sql: &str) -> Result<String> {
    let dialect = state.config_options().sql_parser.dialect;
    let statement = state.sql_to_statement(sql, &dialect)?;
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
