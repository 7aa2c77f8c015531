//! `ON a = b OR (a IS NULL AND b IS NULL)`, as BI tools write it: joins with NULL as a value like any other.
//!
//! In a condition that rows have to meet that is `a IS NOT DISTINCT FROM b`, by which DataFusion joins without a look at all pairs.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, Select, Statement, VisitMut, VisitorMut,
};

use crate::statements::using_joins::constraint;

/// Puts IS NOT DISTINCT FROM in the place of such comparisons in conditions of joins; whether there was one.
pub(crate) fn as_comparisons(statement: &mut Statement) -> bool {
    let mut joins = Joins { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut joins);
    joins.changed
}

struct Joins {
    changed: bool,
}

impl VisitorMut for Joins {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            if let Some(JoinConstraint::On(on)) = constraint(join) {
                self.changed |= rewritten(on);
            }
        }
        // Products whose condition is among those of all rows.
        if let Some(selection) = &mut select.selection {
            self.changed |= rewritten(selection);
        }
        ControlFlow::Continue(())
    }
}

/// Whether something below the ANDs of a condition changed.
fn rewritten(condition: &mut Expr) -> bool {
    if let Some((left, right)) = compared(condition) {
        let compared = Expr::IsNotDistinctFrom(Box::new(left), Box::new(right));
        *condition = Expr::Nested(Box::new(compared));
        return true;
    }
    match condition {
        Expr::Nested(inner) => rewritten(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => rewritten(left) | rewritten(right),
        _ => false,
    }
}

/// The sides of `a = b OR (a IS NULL AND b IS NULL)`, in any order.
fn compared(condition: &Expr) -> Option<(Expr, Expr)> {
    let (one, other) = operands(condition, &BinaryOperator::Or)?;
    let sides = |equal: &Expr, both: &Expr| {
        let (a, b) = operands(equal, &BinaryOperator::Eq)?;
        let (c, d) = operands(both, &BinaryOperator::And)?;
        let (c, d) = (tested(c)?, tested(d)?);
        let (a, b) = (plain(a), plain(b));
        (a == c && b == d || a == d && b == c).then(|| (a.clone(), b.clone()))
    };
    sides(one, other).or_else(|| sides(other, one))
}

fn operands<'e>(expr: &'e Expr, wanted: &BinaryOperator) -> Option<(&'e Expr, &'e Expr)> {
    match plain(expr) {
        Expr::BinaryOp { left, op, right } if op == wanted => Some((left, right)),
        _ => None,
    }
}

/// What is tested for NULL.
fn tested(expr: &Expr) -> Option<&Expr> {
    match plain(expr) {
        Expr::IsNull(of) => Some(plain(of)),
        _ => None,
    }
}

/// Without parentheses around it.
fn plain(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => plain(inner),
        _ => expr,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::{plan_text, tests::answer};

    #[tokio::test]
    async fn tables_are_joined_by_values_and_null() {
        let context = SessionContext::new();
        for table in [
            "CREATE TABLE a AS VALUES (1, 10), (NULL, 20), (3, NULL), (NULL, NULL)",
            "CREATE TABLE b AS VALUES (1, 10), (NULL, 20), (2, NULL), (NULL, NULL), (NULL, 7)",
        ] {
            context.sql(table).await.unwrap().collect().await.unwrap();
        }
        for (condition, is_hashed) in [
            (
                "(a.column1 = b.column1) OR ((a.column1 IS NULL) AND (b.column1 IS NULL))",
                true,
            ),
            (
                "((b.column1 IS NULL AND a.column1 IS NULL) OR (a.column1 = b.column1)) AND (a.column2 = b.column2 OR (a.column2 IS NULL AND b.column2 IS NULL))",
                true,
            ),
            (
                "a.column1 = b.column1 OR (a.column1 IS NULL AND b.column2 IS NULL)",
                false,
            ),
            (
                "NOT (a.column1 = b.column1 OR (a.column1 IS NULL AND b.column1 IS NULL))",
                false,
            ),
        ] {
            for kind in ["JOIN", "LEFT JOIN", "FULL JOIN"] {
                let sql =
                    format!("SELECT a.*, b.* FROM a {kind} b ON {condition} ORDER BY 1, 2, 3, 4");
                let plain = context.sql(&sql).await.unwrap().collect().await.unwrap();
                let plain = arrow::util::pretty::pretty_format_batches(&plain).unwrap();
                assert_eq!(answer(&context, &sql).await, plain.to_string(), "{sql}");
            }
            let sql = format!("SELECT count(*) FROM a JOIN b ON {condition}");
            let plan = plan_text(&context.state(), &sql).await.unwrap();
            let plan = context.state().create_physical_plan(&plan).await.unwrap();
            let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(true);
            let hashed = shown.to_string().contains("HashJoinExec");
            assert_eq!(hashed, is_hashed, "{condition}\n{shown}");
        }
    }
}
