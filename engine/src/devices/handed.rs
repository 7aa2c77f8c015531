//! The plan of a task within the process: the same operators again, since those of one stage must not share what they keep of a run.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::NetworkBoundaryExt;

/// The plan with operators of its own.
///
/// DataFusion's resets what an operator keeps of a run, and lets joins forget the filters that they would hand to scans. Readers
/// of exchanges have connections, which each task makes for itself.
pub(super) fn own(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let own = plan.transform_up(|node| {
        let own: Arc<dyn ExecutionPlan> = match node.as_network_boundary() {
            Some(boundary) => boundary.with_input_stage(boundary.input_stage().clone())?,
            None => node.reset_state()?,
        };
        Ok(Transformed::yes(own))
    })?;
    Ok(own.data)
}
