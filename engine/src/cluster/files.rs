//! What a plan from elsewhere may do on a worker: read files of the worker's folders, and write nothing.
//!
//! The worker's object store is the first wall. This is the second, since devices read local files by themselves.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::ExecutionPlan;
use warpline_serve::FolderStore;

/// Refuses a plan that reads or writes what is not the worker's to give.
pub(super) fn check(plan: &Arc<dyn ExecutionPlan>, folders: &FolderStore) -> Result<()> {
    plan.apply(|node| {
        check_node(node, folders)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn check_node(node: &Arc<dyn ExecutionPlan>, folders: &FolderStore) -> Result<()> {
    if node.is::<DataSinkExec>() {
        return Err(refused("a worker writes no files"));
    }
    let Some(source) = node.downcast_ref::<DataSourceExec>() else {
        return Ok(());
    };
    let source = source.data_source();
    if source.downcast_ref::<MemorySourceConfig>().is_some() {
        return Ok(());
    }
    let Some(scan) = source.downcast_ref::<FileScanConfig>() else {
        return Err(refused(
            "a worker reads files and rows that come with a plan",
        ));
    };
    let store = &scan.object_store_url;
    if *store != ObjectStoreUrl::local_filesystem() {
        return Err(refused(&format!("the worker was not given {store}")));
    }
    for file in scan.file_groups.iter().flat_map(|group| group.iter()) {
        let location = &file.object_meta.location;
        folders.check(location).map_err(|_| {
            refused(&format!(
                "/{location} does not lie in a folder of the worker (--data)"
            ))
        })?;
    }
    Ok(())
}

fn refused(cause: &str) -> DataFusionError {
    DataFusionError::Execution(cause.to_string())
}
