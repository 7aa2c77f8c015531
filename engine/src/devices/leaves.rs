//! Which device reads what of a table: whole files, or batches of a table in memory, since these are what devices keep columns of.

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DistributedLeafExec, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};

/// A table that can be shared out.
pub(super) enum Shareable<'a> {
    Files(&'a FileScanConfig, Vec<PartitionedFile>),
    Batches(&'a MemorySourceConfig),
}

impl<'a> Shareable<'a> {
    /// The table of a leaf; `None` where its order counts, something chooses among its rows, or it is none.
    pub(super) fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let source = plan.downcast_ref::<DataSourceExec>()?;
        if plan.fetch().is_some() || plan.output_ordering().is_some() {
            return None;
        }
        if let Some(scan) = source.data_source().downcast_ref::<FileScanConfig>() {
            let plain = scan.output_partitioning.is_none() && scan.output_ordering.is_empty();
            let files = warpline_gpu::tables::whole_files(&scan.file_groups).ok()?;
            return plain.then_some(Self::Files(scan, files));
        }
        let memory = source.data_source().downcast_ref::<MemorySourceConfig>()?;
        Some(Self::Batches(memory))
    }

    /// How many parts it has.
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::Files(_, files) => files.len(),
            Self::Batches(memory) => memory.partitions().iter().map(Vec::len).sum(),
        }
    }
}

/// Gives each task its part of a table; what there are too few parts of for all is empty for some.
pub(super) fn shared(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let table = Shareable::of(event.plan)?;
    let partitions = event.plan.output_partitioning().partition_count().max(1);
    let parts = match table {
        Shareable::Files(scan, files) => {
            Ok(parts_of_files(scan, files, event.task_count, partitions))
        }
        Shareable::Batches(memory) => parts_of_batches(memory, event.task_count, partitions),
    };
    let leaf = parts.and_then(|parts| DistributedLeafExec::try_new(Arc::clone(event.plan), parts));
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

fn parts_of_files(
    scan: &FileScanConfig,
    mut files: Vec<PartitionedFile>,
    tasks: usize,
    partitions: usize,
) -> Vec<Arc<dyn ExecutionPlan>> {
    // The largest first: the same files go to the same device in the next query.
    files.sort_by(|a, b| {
        let key = |file: &PartitionedFile| (Reverse(file.object_meta.size), file.path().clone());
        key(a).cmp(&key(b))
    });
    let sizes = files.iter().map(|file| file.object_meta.size);
    let task_of = least_loaded(sizes, tasks);
    let mut groups = vec![vec![Vec::new(); partitions]; tasks];
    let mut taken = vec![0; tasks];
    for (file, task) in files.into_iter().zip(task_of) {
        groups[task][taken[task] % partitions].push(file);
        taken[task] += 1;
    }
    let scans = groups.into_iter().map(|groups| {
        let groups = groups.into_iter().map(FileGroup::new).collect();
        let scan = FileScanConfigBuilder::from(scan.clone()).with_file_groups(groups);
        DataSourceExec::from_data_source(scan.build()) as Arc<dyn ExecutionPlan>
    });
    scans.collect()
}

fn parts_of_batches(
    memory: &MemorySourceConfig,
    tasks: usize,
    partitions: usize,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let batches: Vec<&RecordBatch> = memory.partitions().iter().flatten().collect();
    let rows = batches.iter().map(|batch| batch.num_rows() as u64);
    let task_of = least_loaded(rows, tasks);
    let mut parts = vec![vec![Vec::new(); partitions]; tasks];
    let mut taken = vec![0; tasks];
    for (batch, task) in batches.into_iter().zip(task_of) {
        parts[task][taken[task] % partitions].push(batch.clone());
        taken[task] += 1;
    }
    let scans = parts.into_iter().map(|part| {
        let schema = memory.original_schema();
        let projection = memory.projection().clone();
        let scan = MemorySourceConfig::try_new_exec(&part, schema, projection)?;
        Ok(scan as Arc<dyn ExecutionPlan>)
    });
    scans.collect()
}

/// The task of each part, which goes to who has least.
fn least_loaded(sizes: impl Iterator<Item = u64>, tasks: usize) -> Vec<usize> {
    let mut load = vec![0; tasks.max(1)];
    let task_of = sizes.map(|size| {
        // Of equal ones the first.
        let least = (0..load.len()).min_by_key(|task| load[*task]).unwrap_or(0);
        load[least] += size.max(1);
        least
    });
    task_of.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_go_to_who_has_least() {
        let tasks = |sizes: &[u64], tasks| least_loaded(sizes.iter().copied(), tasks);
        assert_eq!(tasks(&[9, 5, 3, 0], 2), [0, 1, 1, 1]);
        assert_eq!(tasks(&[0, 0, 0], 2), [0, 1, 0]);
        assert_eq!(tasks(&[7], 3), [0]);
        assert!(tasks(&[], 2).is_empty());
    }
}
