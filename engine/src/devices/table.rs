//! Tables that can be shared out, as whole files or as batches of a table in memory, since these are what devices keep columns of.

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::pieces::Pieces;

/// A table that can be shared out.
pub(super) enum Shareable<'a> {
    Files(&'a FileScanConfig, Vec<PartitionedFile>),
    Batches(&'a MemorySourceConfig),
}

impl<'a> Shareable<'a> {
    /// The table of a leaf; `None` where its order counts, something chooses among its rows, or it is none.
    pub(super) fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        Self::in_any_order(plan).filter(|_| plan.output_ordering().is_none())
    }

    /// The same of a leaf in an order as well: of a share, whoever takes it compares the order.
    pub(super) fn in_any_order(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let source = plan.downcast_ref::<DataSourceExec>()?;
        if plan.fetch().is_some() {
            return None;
        }
        if let Some(scan) = source.data_source().downcast_ref::<FileScanConfig>() {
            let files = warpline_gpu::tables::whole_files(&scan.file_groups).ok()?;
            let plain = scan.output_partitioning.is_none();
            return plain.then_some(Self::Files(scan, files));
        }
        let memory = source.data_source().downcast_ref::<MemorySourceConfig>()?;
        Some(Self::Batches(memory))
    }

    /// The same text for two leaves that read one table.
    pub(super) fn identity(&self) -> String {
        match self {
            Self::Files(scan, files) => {
                let first = files.first().map(|file| file.path().to_string());
                let count = files.len();
                format!(
                    "{}{} and {count}",
                    scan.object_store_url.as_str(),
                    first.unwrap_or_default()
                )
            }
            Self::Batches(memory) => {
                let batches = memory.partitions().iter().flatten();
                let mut columns = batches.flat_map(|batch| batch.columns().first());
                columns
                    .next()
                    .map_or_else(String::new, |column| format!("{:p}", Arc::as_ptr(column)))
            }
        }
    }

    /// How many parts it has.
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::Files(_, files) => files.len(),
            Self::Batches(memory) => memory.partitions().iter().map(Vec::len).sum(),
        }
    }
}

/// The shares of a table.
///
/// # Errors
/// When the leaf is no table that can be shared.
pub(super) fn parts(
    leaf: &Arc<dyn ExecutionPlan>,
    count: usize,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let partitions = partitions(leaf);
    match Shareable::in_any_order(leaf) {
        Some(Shareable::Files(scan, files)) => {
            let pieces = Pieces::of(files, count).files.into_iter();
            Ok(pieces
                .map(|files| scan_of(scan, files, partitions))
                .collect())
        }
        Some(Shareable::Batches(memory)) => parts_of_batches(memory, count, partitions),
        None => Err(DataFusionError::Internal(
            "what is no table cannot be dealt out".to_string(),
        )),
    }
}

/// A scan of these files alone, in so many partitions.
pub(super) fn scan_of(
    scan: &FileScanConfig,
    files: Vec<PartitionedFile>,
    partitions: usize,
) -> Arc<dyn ExecutionPlan> {
    // Neighbours stay together, in their order.
    let mut groups = vec![Vec::new(); partitions];
    let count = files.len().max(1);
    for (number, file) in files.into_iter().enumerate() {
        groups[number * partitions / count].push(file);
    }
    let groups = groups.into_iter().map(FileGroup::new).collect();
    let scan = FileScanConfigBuilder::from(scan.clone()).with_file_groups(groups);
    DataSourceExec::from_data_source(scan.build())
}

/// How many partitions a leaf has; those of its shares are as many.
pub(super) fn partitions(leaf: &Arc<dyn ExecutionPlan>) -> usize {
    leaf.output_partitioning().partition_count().max(1)
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
