//! Aggregates in subqueries of columns of the query around them alone: `SELECT (SELECT sum(t.x) FROM s) FROM t`.
//!
//! In SQL such an aggregate is one of the query around, over its rows. DataFusion computes it in the subquery, over the rows of that, so it is
//! refused.

use datafusion::common::not_impl_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// # Errors
/// When a plan has such an aggregate.
pub(crate) fn refuse(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            let outer = aggregate.aggr_expr.iter().find(|call| is_outer(call));
            if let Some(call) = outer {
                return not_impl_err!(
                    "{call} in a subquery is an aggregate of the query around it: compute it in a query of its own, and name it"
                );
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether all columns of a call are those of a query around.
fn is_outer(call: &Expr) -> bool {
    let (mut own, mut outer) = (false, false);
    // A search that ends early has nothing to report.
    let _ = call.exists(|part| {
        own |= matches!(part, Expr::Column(_));
        outer |= matches!(part, Expr::OuterReferenceColumn(..));
        Ok(own)
    });
    outer && !own
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::plan_text;

    #[tokio::test]
    async fn aggregates_of_the_query_around() {
        let context = SessionContext::new();
        for (sql, refused) in [
            (
                "SELECT (SELECT sum(a) FROM (VALUES (1)) s(b)) FROM (VALUES (1), (2)) t(a)",
                true,
            ),
            (
                "SELECT a FROM (VALUES (1), (2)) t(a) WHERE EXISTS (SELECT max(t.a) FROM (VALUES (1)) s(b))",
                true,
            ),
            (
                "SELECT (SELECT sum(a + b) FROM (VALUES (1)) s(b)) FROM (VALUES (1), (2)) t(a)",
                false,
            ),
            (
                "SELECT (SELECT count(*) FROM (VALUES (1)) s(b) WHERE b < a) FROM (VALUES (1), (2)) t(a)",
                false,
            ),
            (
                "SELECT (SELECT a + sum(b) FROM (VALUES (1)) s(b)) FROM (VALUES (1), (2)) t(a)",
                false,
            ),
        ] {
            let plan = plan_text(&context.state(), sql).await;
            assert_eq!(plan.is_err(), refused, "{sql}: {:?}", plan.err());
        }
    }
}
