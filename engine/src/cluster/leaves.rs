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
/// or their order counts. What a task reads of a part of a file stays on its CPU.
pub(super) fn whole_files(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<datafusion::error::Result<ScaleUpLeafNodeEventResponse>> {
    let source = event.plan.downcast_ref::<DataSourceExec>()?;
    let scan = source.data_source().downcast_ref::<FileScanConfig>()?;
    if scan.output_partitioning.is_some() || !scan.output_ordering.is_empty() {
        return None;
    }
    let files = joined(scan.file_groups.iter().flat_map(|group| group.iter()))?;
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

/// The files by path, their parts joined; `None` if a part of one is missing.
fn joined<'a>(parts: impl Iterator<Item = &'a PartitionedFile>) -> Option<Vec<PartitionedFile>> {
    let size = |file: &PartitionedFile| file.object_meta.size as i64;
    let range = |file: &PartitionedFile| match &file.range {
        Some(range) => (range.start, range.end),
        None => (0, size(file)),
    };
    let mut parts: Vec<&PartitionedFile> = parts.collect();
    parts.sort_by(|a, b| (a.path(), range(a).0).cmp(&(b.path(), range(b).0)));
    let mut files = Vec::new();
    for own in parts.chunk_by(|a, b| a.path() == b.path()) {
        let mut end = 0;
        for part in own {
            let (start, stop) = range(part);
            if start != end {
                return None;
            }
            end = stop;
        }
        if end != size(own[0]) {
            return None;
        }
        let mut file = own[0].clone();
        file.range = None;
        files.push(file);
    }
    Some(files)
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
    fn parts_of_files_are_joined() {
        let parts = [
            file("b", 10).with_range(4, 10),
            file("a", 7),
            file("b", 10).with_range(0, 4),
        ];
        let files = joined(parts.iter());
        let files = files.as_deref().unwrap_or_default();
        assert_eq!(names(files), ["a", "b"]);
        assert!(files.iter().all(|file| file.range.is_none()));
        assert!(joined(parts[..1].iter()).is_none());
        assert!(joined(parts[2..].iter()).is_none());
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
