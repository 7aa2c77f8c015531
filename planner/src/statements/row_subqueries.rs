//! `(a, b) IN (SELECT x, y …)`: rows that are among those of a subquery, which DataFusion has for one column alone.
//!
//! As a condition that rows have to meet it is `EXISTS (SELECT 1 FROM (SELECT x, y …) AS r(c1, c2) WHERE a = r.c1 AND b = r.c2)`: where SQL does
//! not know whether a row is among them the condition is not met either. `NOT IN` and values that are shown would differ, and stay
//! as they are.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, Statement, VisitMut, VisitorMut,
};

use crate::statements::syntax::expression;

/// Whether planning failed for such a condition.
pub(crate) fn is_unsupported(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::Plan(message)
        if message.starts_with("Too many columns! The subquery should only return one column"))
}

/// Puts EXISTS in the place of such conditions of WHERE and HAVING; whether there was one.
pub(crate) fn as_exists(statement: &mut Statement) -> bool {
    let mut conditions = Conditions { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut conditions);
    conditions.changed
}

struct Conditions {
    changed: bool,
}

impl VisitorMut for Conditions {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let conditions = [&mut select.selection, &mut select.having];
        for condition in conditions.into_iter().flatten() {
            self.changed |= rewritten(condition);
        }
        ControlFlow::Continue(())
    }
}

/// Whether something below AND and OR of a condition changed.
fn rewritten(condition: &mut Expr) -> bool {
    match condition {
        Expr::Nested(inner) => rewritten(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And | BinaryOperator::Or,
            right,
        } => rewritten(left) | rewritten(right),
        Expr::InSubquery {
            expr,
            subquery,
            negated: false,
        } => {
            let Expr::Tuple(values) = expr.as_ref() else {
                return false;
            };
            let exists = exists(values, subquery);
            let found = exists.is_some();
            if let Some(exists) = exists {
                *condition = exists;
            }
            found
        }
        _ => false,
    }
}

fn exists(values: &[Expr], subquery: &Query) -> Option<Expr> {
    let columns: Vec<String> = (1..=values.len())
        .map(|number| format!("__column_{number}"))
        .collect();
    let equal: Vec<String> = values
        .iter()
        .zip(&columns)
        .map(|(value, column)| format!("({value}) = __row.{column}"))
        .collect();
    let text = format!(
        "EXISTS (SELECT 1 FROM ({subquery}) AS __row({}) WHERE {})",
        columns.join(", "),
        equal.join(" AND ")
    );
    expression(&text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use crate::statements::tests::answer;
    use datafusion::prelude::SessionContext;

    #[tokio::test]
    async fn rows_are_found_among_those_of_a_subquery() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS a, column2 AS b FROM (VALUES (1, 'x'), (1, 'y'), (2, 'x'), (NULL, 'x'), (2, NULL))";
        answer(&context, create).await;
        let create = "CREATE TABLE u AS SELECT column1 AS a, column2 AS b FROM (VALUES (1, 'x'), (2, 'x'), (NULL, 'x'), (2, NULL))";
        answer(&context, create).await;
        for (condition, rows) in [
            ("(a, b) IN (SELECT a, b FROM u)", 2),
            ("(a + 1, b) IN (SELECT u.a, u.b FROM u WHERE u.a > 1)", 1),
            (
                "a = 2 OR ((a, b) IN (SELECT a, max(b) FROM u GROUP BY a))",
                3,
            ),
        ] {
            let sql = format!("SELECT count(*) AS n FROM t WHERE {condition}");
            let expected = format!("SELECT CAST({rows} AS BIGINT) AS n");
            let (found, expected) = (
                answer(&context, &sql).await,
                answer(&context, &expected).await,
            );
            assert_eq!(found, expected, "{condition}");
        }
    }
}
