//! The planner of sessions: DataFusion's, for plans whose conditions keep others from failing.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use warpline_planner::guards::guarded_plan;

/// Plans as DataFusion does, and asks what can fail of the rows alone for which the rest of a condition holds ([`guarded_plan`]).
#[derive(Debug, Default)]
pub(crate) struct GuardedPlanner;

#[async_trait]
impl QueryPlanner for GuardedPlanner {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let guarded = guarded_plan(logical.clone())?;
        let planner = DefaultPhysicalPlanner::default();
        planner.create_physical_plan(&guarded, session).await
    }
}
