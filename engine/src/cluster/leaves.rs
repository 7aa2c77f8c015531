//! Which task reads which files: whole ones, as far as there are enough, since devices keep the columns of whole files.

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DistributedLeafExec, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};

/// Gives each task whole files. `None` leaves the scan to whoever cuts files by bytes: where there are fewer files than tasks,
/// their order counts, or something chooses among their rows. What a task reads of a part of a file stays on its CPU.
pub(super) fn whole_files(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<datafusion::error::Result<ScaleUpLeafNodeEventResponse>> {
    let source = event.plan.downcast_ref::<DataSourceExec>()?;
    let scan = source.data_source().downcast_ref::<FileScanConfig>()?;
    if scan.output_partitioning.is_some() || !scan.output_ordering.is_empty() {
        return None;
    }
    let files = warpline_gpu::tables::whole_files(&scan.file_groups).ok()?;
    let shares = shares(files, event.task_count)?;
    let groups = event.plan.output_partitioning().partition_count().max(1);
    let scans = shares.into_iter().map(|files| {
        let mut of_task = vec![Vec::new(); groups];
        for (at, file) in files.into_iter().enumerate() {
            of_task[at % groups].push(file);
        }
        let groups = of_task.into_iter().map(FileGroup::new).collect();
        let scan = FileScanConfigBuilder::from(scan.clone()).with_file_groups(groups);
        DataSourceExec::from_data_source(scan.build()) as Arc<dyn ExecutionPlan>
    });
    let leaf = DistributedLeafExec::try_new(Arc::clone(event.plan), scans);
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// The files of each task, about as many bytes for each; `None` where there are fewer files than tasks.
fn shares(mut files: Vec<PartitionedFile>, tasks: usize) -> Option<Vec<Vec<PartitionedFile>>> {
    if tasks == 0 || files.len() < tasks {
        return None;
    }
    // The largest first, each to who has least: the same files go to the same task in the next query.
    files.sort_by(|a, b| {
        let key = |file: &PartitionedFile| (Reverse(file.object_meta.size), file.path().clone());
        key(a).cmp(&key(b))
    });
    let mut shares = vec![Vec::new(); tasks];
    let mut bytes = vec![0; tasks];
    for file in files {
        let least = (0..tasks).min_by_key(|task| bytes[*task])?;
        bytes[least] += file.object_meta.size.max(1);
        shares[least].push(file);
    }
    Some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size: u64) -> PartitionedFile {
        PartitionedFile::new(name, size)
    }

    fn names(files: &[PartitionedFile]) -> Vec<&str> {
        files.iter().map(|file| file.path().as_ref()).collect()
    }

    #[test]
    fn tasks_have_whole_files_of_about_the_same_size() {
        let files = || vec![file("a", 5), file("b", 9), file("c", 3), file("d", 0)];
        assert!(shares(files(), 5).is_none());
        let shares = shares(files(), 2).unwrap_or_default();
        let found: Vec<Vec<&str>> = shares.iter().map(|share| names(share)).collect();
        assert_eq!(found, [vec!["b"], vec!["a", "c", "d"]]);
    }
}
