//! Aggregates that differ in the casts of their argument alone: `count(TRY_CAST(x AS INT)), count(TRY_CAST(x AS DATE))`.
//!
//! DataFusion's names of expressions leave casts out, and it has no plan for two aggregates of one name. The second one is of
//! `CASE WHEN 2 = 2 THEN … END`, which is the same and is called otherwise.

use std::ops::ControlFlow;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Statement, visit_expressions,
};

use crate::statements::output_names::bare;
use crate::statements::replaced::replace_named;
use crate::statements::syntax::{expression, is_aggregate, schema_error};

/// Whether planning failed with two columns of one name.
pub(crate) fn is_repeated(error: &DataFusionError) -> bool {
    matches!(
        schema_error(error),
        Some(SchemaError::DuplicateUnqualifiedField { .. })
    )
}

/// Gives names of their own to all but the first of aggregates that differ in casts alone; whether there were any. Output columns
/// are called as before.
pub(crate) fn set_apart(statement: &mut Statement) -> bool {
    let known = aggregates(statement);
    replace_named(statement, |expr| {
        let at = known.iter().position(|(call, _)| call == expr)?;
        let (_, name) = &known[at];
        let before = known[..at].iter().filter(|(_, other)| other == name);
        match before.count() {
            0 => None,
            number => numbered(expr, number + 1),
        }
    })
}

/// The aggregates of a statement, each once, beside what its name tells of it.
fn aggregates(statement: &Statement) -> Vec<(Expr, Expr)> {
    let mut known: Vec<(Expr, Expr)> = Vec::new();
    let _: ControlFlow<()> = visit_expressions(statement, |expr| {
        if is_aggregate(expr) && known.iter().all(|(call, _)| call != expr) {
            known.push((expr.clone(), bare(expr)));
        }
        ControlFlow::Continue(())
    });
    known
}

/// The aggregate of the same argument, by another name.
fn numbered(expr: &Expr, number: usize) -> Option<Expr> {
    let Expr::Function(call) = expr else {
        return None;
    };
    let mut call: Function = call.clone();
    let FunctionArguments::List(list) = &mut call.args else {
        return None;
    };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.first_mut() else {
        return None;
    };
    *argument = expression(&format!(
        "CASE WHEN {number} = {number} THEN {argument} END"
    ))?;
    Some(Expr::Function(call))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn aggregates_of_casts_have_names_of_their_own() {
        let context = SessionContext::new();
        answer(
            &context,
            "CREATE TABLE t AS SELECT column1 AS k, column2 AS s FROM (VALUES (1, '12'), (1, '1.5'), (2, '2024-02-03'), (2, NULL))",
        )
        .await;
        for (sql, rows) in [
            (
                "SELECT count(TRY_CAST(s AS INT)) AS i, count(TRY_CAST(s AS DOUBLE)) AS d, count(TRY_CAST(s AS DATE)) AS t, count(s) AS n FROM t",
                "(1, 2, 1, 3)",
            ),
            (
                "SELECT sum(k) AS a, sum(CAST(k AS DOUBLE)) / 2 AS b, max(TRY_CAST(s AS INT)) AS c, max(s) AS d FROM t HAVING sum(CAST(k AS DOUBLE)) > 1",
                "(6, 3.0, 12, '2024-02-03')",
            ),
        ] {
            let found = answer(&context, sql).await;
            let shown = format!("SELECT * FROM (VALUES {rows}) v(i, d, t, n)");
            let shown = answer(&context, &shown).await;
            let values = |table: &str| -> Vec<String> {
                let row = table.lines().nth(3).unwrap();
                row.split('|').map(|v| v.trim().to_string()).collect()
            };
            assert_eq!(values(&found), values(&shown), "{sql}");
        }
        let grouped = "SELECT k, count(TRY_CAST(s AS INT)) AS i, count(TRY_CAST(s AS DATE)) AS d FROM t GROUP BY k ORDER BY count(TRY_CAST(s AS DATE)), k";
        let expected = "SELECT column1 AS k, column2 AS i, column3 AS d FROM (VALUES (1, 1, 0), (2, 0, 1)) ORDER BY 1";
        assert_eq!(
            answer(&context, grouped).await,
            answer(&context, expected).await
        );
    }
}
