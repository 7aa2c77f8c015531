//! Which worker runs which task: the one that ran it for the same files before, since their columns may lie on its device.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{
    DistributedLeafExec, NetworkBoundaryExt, RouteTasksEvent, RouteTasksEventResponse,
    RouteTasksHandler,
};

use super::workers::Workers;

/// Sends tasks to workers.
pub(super) struct Router(pub(super) Arc<Workers>);

impl RouteTasksHandler for Router {
    fn handle(&self, event: RouteTasksEvent) -> Option<Result<RouteTasksEventResponse>> {
        let first = first_file(event.plan);
        // A single task without files goes where its input is.
        if event.task_count == 1 && first.is_none() {
            return None;
        }
        let workers = self.0.up();
        if workers.is_empty() {
            let lost = "all workers of the cluster are lost".to_string();
            return Some(Err(DataFusionError::Execution(lost)));
        }
        // Small tables of one task each are spread by their names.
        let first = first.map_or(0, |first| first as usize % workers.len());
        let of_task = |task: usize| workers[(first + task) % workers.len()].0.clone();
        let urls = (0..event.task_count).map(of_task).collect();
        Some(Ok(RouteTasksEventResponse::new(urls)))
    }
}

/// A number for the first file that a stage reads.
fn first_file(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let mut found = None;
    // The visit itself cannot fail.
    let _ = plan.apply(|node| {
        if node.is_network_boundary() {
            return Ok(TreeNodeRecursion::Jump);
        }
        let leaf = node.downcast_ref::<DistributedLeafExec>();
        let node = leaf.map_or(node, DistributedLeafExec::original);
        if let Some(source) = node.downcast_ref::<DataSourceExec>()
            && let Some(scan) = source.data_source().downcast_ref::<FileScanConfig>()
            && let Some(file) = scan
                .file_groups
                .iter()
                .flat_map(|group| group.iter())
                .next()
        {
            let mut hasher = DefaultHasher::new();
            file.object_meta.location.as_ref().hash(&mut hasher);
            found = Some(hasher.finish());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}
