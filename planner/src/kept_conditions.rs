//! Conditions of joins outlive the order of their tables.
//!
//! DataFusion's rule against cross joins takes inner joins apart and joins their tables anew, by those of their keys that have one table on each
//! side then. A key that is computed of several tables can fit nowhere: in `a CROSS JOIN b JOIN c ON a.k = c.k AND a.x + b.y = c.z` it is
//! lost once `c` comes second. Here it is asked above the joins. The rule also takes all keys to treat NULL as those of the outermost join
//! do; joins that differ in that stay as they are.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinType, LogicalPlan, Operator, binary_expr, utils::conjunction,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::applied::Rule;

/// The rule, where no condition is lost.
#[derive(Debug)]
pub(crate) struct KeptConditions {
    /// `eliminate_cross_join`.
    pub(crate) rule: Rule,
}

impl OptimizerRule for KeptConditions {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let root = match &plan {
            LogicalPlan::Filter(filter) => filter.input.as_ref(),
            other => other,
        };
        let mut joins = Joins::default();
        joins.add(root);
        let Some(nulls) = joins.nulls else {
            return self.children(plan, config);
        };
        // What is below has no part in the order, and is put in another one first: the rule goes down there, too.
        let below = self.children(plan, config)?;
        if joins.differ {
            return Ok(below);
        }
        let rewritten = self.rule.rewrite(below.data, config)?;
        let mut plan = rewritten.data;
        let mut kept = Joins::default();
        kept.add(below_conditions(&plan));
        let lost = joins.keys.into_iter().filter(|key| !kept.has(key));
        let op = match nulls {
            NullEquality::NullEqualsNothing => Operator::Eq,
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        };
        let lost = lost.map(|(left, right)| binary_expr(left, op, right));
        if let Some(condition) = conjunction(lost) {
            plan = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?);
        }
        Ok(Transformed::new_transformed(
            plan,
            below.transformed || rewritten.transformed,
        ))
    }
}

impl KeptConditions {
    /// Rewrites what is below a node and its inner joins, and subqueries in expressions.
    fn children(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let joined = as_inner_join(&plan).is_some() || matches!(plan, LogicalPlan::Filter(_));
        let rewritten = plan
            .map_uncorrelated_subqueries(|subquery| self.rewrite(subquery, config))?
            .transform_sibling(|plan| {
                plan.map_children(|child| match as_inner_join(&child) {
                    Some(_) if joined => self.children(child, config),
                    _ => self.rewrite(child, config),
                })
            })?;
        match rewritten.transformed {
            true => rewritten.map_data(LogicalPlan::recompute_schema),
            false => Ok(rewritten),
        }
    }
}

/// The keys of inner joins that are right above each other.
#[derive(Default)]
struct Joins {
    keys: Vec<(Expr, Expr)>,
    /// How the first of them treats NULL.
    nulls: Option<NullEquality>,
    /// Whether another does so differently.
    differ: bool,
}

impl Joins {
    fn add(&mut self, plan: &LogicalPlan) {
        let Some(join) = as_inner_join(plan) else {
            return;
        };
        let nulls = *self.nulls.get_or_insert(join.null_equality);
        self.differ |= nulls != join.null_equality;
        self.keys.extend(join.on.iter().cloned());
        self.add(&join.left);
        self.add(&join.right);
    }

    fn has(&self, (left, right): &(Expr, Expr)) -> bool {
        let same = |(l, r): &(Expr, Expr)| l == left && r == right || l == right && r == left;
        self.keys.iter().any(same)
    }
}

fn as_inner_join(plan: &LogicalPlan) -> Option<&Join> {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Some(join),
        _ => None,
    }
}

/// What is below the filter and the projection that the rule puts above its joins.
fn below_conditions(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Filter(filter) => below_conditions(&filter.input),
        LogicalPlan::Projection(projection) => below_conditions(&projection.input),
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use crate::logical_rules::optimizer_rules;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn no_condition_is_lost() {
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_optimizer_rules(optimizer_rules());
        let context = SessionContext::new_with_state(state.build());
        for table in [
            "CREATE TABLE a AS SELECT * FROM (VALUES (1, 10), (1, 11), (2, 20), (3, NULL), (NULL, 5)) v(k, x)",
            "CREATE TABLE b AS SELECT * FROM (VALUES (10, 1), (20, 2), (30, NULL)) v(y, n)",
            "CREATE TABLE c AS SELECT * FROM (VALUES (1, 20), (1, 21), (2, 40), (NULL, 15)) v(k, z)",
        ] {
            context.sql(table).await.unwrap().collect().await.unwrap();
        }
        for (written, meant) in [
            (
                "SELECT a.x, y, z FROM a CROSS JOIN b JOIN c ON a.k = c.k AND a.x + b.y = c.z ORDER BY 1, 2, 3",
                "VALUES (10, 10, 20), (11, 10, 21), (20, 20, 40)",
            ),
            (
                "SELECT a.x, y, z FROM (a CROSS JOIN b) JOIN c ON a.k = c.k AND b.n = c.k AND CASE WHEN a.x > 10 THEN b.y END = c.z - 11 ORDER BY 1, 2, 3",
                "VALUES (11, 10, 21)",
            ),
            (
                "SELECT count(*) AS n FROM (SELECT a.x, c.z FROM a CROSS JOIN b JOIN c ON a.k = c.k AND a.x + b.y = c.z LIMIT 9) q, a",
                "SELECT 15 AS n",
            ),
            (
                "SELECT a.x, z, y FROM a JOIN c ON a.k IS NOT DISTINCT FROM c.k JOIN b ON c.z = b.y + 5 ORDER BY 1",
                "VALUES (5, 15, 10)",
            ),
            (
                "SELECT a.x, y FROM a, b, c WHERE a.k = c.k AND a.x + b.y = c.z AND y < 20 ORDER BY 1",
                "VALUES (10, 10), (11, 10)",
            ),
        ] {
            let cells = |table: &str| -> Vec<Vec<String>> {
                let rows = table.lines().skip(3).filter(|line| line.starts_with('|'));
                let cells =
                    |row: &str| row.split('|').map(|cell| cell.trim().to_string()).collect();
                rows.map(cells).collect()
            };
            let found = answer(&context, written).await;
            let expected = answer(&context, meant).await;
            assert_eq!(cells(&found), cells(&expected), "{written}");
        }
    }
}
