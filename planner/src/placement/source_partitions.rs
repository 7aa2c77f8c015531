//! Rows that keep the partitions of their files.

use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;
use warpline_gpu::exec::is_computable;

/// Do the rows keep the partitions of their files? DataFusion treats directories by column value as hash partitions
/// (`datafusion.optimizer.preserve_file_partitions`): rows of one key are in one partition, but not in the one that
/// the hash says.
pub(super) fn is_partitioned_by_source(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    // Nobody relies on keys that are gone.
    let hash = matches!(plan.output_partitioning(), Partitioning::Hash(keys, partitions)
        if *partitions > 1 && keys.iter().all(is_computable));
    hash && !plan.is::<RepartitionExec>()
        && (children.is_empty() || children.into_iter().any(is_partitioned_by_source))
}
