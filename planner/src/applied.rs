//! Rules of DataFusion's optimizer that are applied in another way than they are.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// A rule of the optimizer.
pub(crate) type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// One of DataFusion's rules, and when or to what it is applied.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) rule: Rule,
    pub(crate) by: fn(&Rule, LogicalPlan, &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>>,
}

impl OptimizerRule for Applied {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        (self.by)(&self.rule, plan, config)
    }
}
