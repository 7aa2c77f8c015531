//! The partitions that operators around a fragment count on, made of those that there are.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// The rows of `plan` in one partition, in the order that it promises: what a fragment in its place yields.
pub fn in_one_partition(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.output_partitioning().partition_count() == 1 {
        plan
    } else if let Some(order) = plan.output_ordering().cloned() {
        Arc::new(SortPreservingMergeExec::new(order, plan))
    } else {
        Arc::new(CoalescePartitionsExec::new(plan))
    }
}

/// The rows of `plan`, which has one partition, partitioned in a way that serves whoever counts on `partitioning`; the order is
/// kept.
///
/// # Errors
/// What DataFusion refuses.
pub fn in_partitions_of(
    plan: Arc<dyn ExecutionPlan>,
    partitioning: &Partitioning,
) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = partitioning.partition_count();
    if partitions <= 1 {
        return Ok(plan);
    }
    let partitioning = match partitioning {
        hash @ Partitioning::Hash(keys, _) if keys.iter().all(is_computable) => hash.clone(),
        range @ Partitioning::Range(_) => range.clone(),
        // Nobody relies on which rows are together where what told them apart is gone.
        _ => Partitioning::RoundRobinBatch(partitions),
    };
    Ok(Arc::new(RepartitionExec::try_new(plan, partitioning)?))
}

/// Can the key still be computed? DataFusion leaves an [`UnKnownColumn`] where a projection dropped a column: it
/// describes the partitioning, but has no value.
pub fn is_computable(key: &Arc<dyn PhysicalExpr>) -> bool {
    key.downcast_ref::<UnKnownColumn>().is_none() && key.children().into_iter().all(is_computable)
}
