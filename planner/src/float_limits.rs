//! DataFusion's aggregation of the first groups in an order, where no float is involved.
//!
//! DataFusion 55.2 keeps such groups in a heap whose comparison puts NaN nowhere: of a column of floats with NaN it answers some groups
//! many times, or panics. There all groups are made, and the order above takes the first of them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// The rule that lets aggregations make the first groups alone, but for those of floats.
#[derive(Debug)]
pub(crate) struct WithoutFloats {
    pub(crate) rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl WithoutFloats {
    /// The name of DataFusion's rule.
    pub(crate) const NAME: &'static str = "LimitAggregation";
}

impl PhysicalOptimizerRule for WithoutFloats {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.rule.optimize(plan, options)?;
        let all = plan.transform_up(|node| {
            let Some(groups) = node.downcast_ref::<AggregateExec>() else {
                return Ok(Transformed::no(node));
            };
            let ordered = groups
                .limit_options()
                .is_some_and(|l| l.descending().is_some());
            let schema = node.schema();
            let mut types = schema.fields().iter().map(|field| field.data_type());
            if !ordered || !types.any(DataType::is_floating) {
                return Ok(Transformed::no(node));
            }
            let all = groups.with_new_limit_options(None);
            Ok(Transformed::yes(Arc::new(all)))
        })?;
        Ok(all.data)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use crate::filter_pushdown::physical_rules;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn the_first_of_groups_with_nan() {
        let builder = SessionStateBuilder::new().with_default_features();
        let state = builder.with_physical_optimizer_rules(physical_rules());
        let context = SessionContext::new_with_state(state.build());
        let table = "CREATE TABLE t AS SELECT CASE WHEN value % 3 = 0 THEN CAST('NaN' AS DOUBLE) \
                     ELSE CAST(value % 50 AS DOUBLE) END AS f, value % 40 AS k FROM generate_series(1, 5000)";
        context.sql(table).await.unwrap().collect().await.unwrap();
        for (sql, rows) in [
            (
                "SELECT DISTINCT f FROM t ORDER BY f DESC NULLS LAST LIMIT 3",
                "('NaN'), ('49'), ('48')",
            ),
            (
                "SELECT DISTINCT f FROM t ORDER BY f LIMIT 2",
                "('0'), ('1')",
            ),
            (
                "SELECT f FROM (SELECT k, max(f) AS f FROM t GROUP BY k ORDER BY f DESC LIMIT 1)",
                "('NaN')",
            ),
        ] {
            let found = answer(&context, sql).await;
            let expected = format!("SELECT CAST(f AS DOUBLE) AS f FROM (VALUES {rows}) v(f)");
            assert_eq!(found, answer(&context, &expected).await, "{sql}");
        }
        let whole = answer(
            &context,
            "EXPLAIN SELECT DISTINCT k FROM t ORDER BY k LIMIT 3",
        )
        .await;
        assert!(whole.contains("lim=[3]"), "{whole}");
    }
}
