//! Operators that rely on all rows of their input being in one partition, without an exchange that brings them there.
//!
//! DataFusion plans no exchange where there is one partition anyway: a grouping is then done in one step, a join compares what is
//! there, a limit counts. `datafusion-distributed` cuts plans at exchanges, and would run such an operator once for each part of a
//! table. Here they ask for a single task.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{Distribution, ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{DesiredTaskCountEvent, DesiredTaskCountEventResponse};

/// One task for an operator that needs its input whole; `None` for all others.
pub(super) fn in_one_task(
    event: DesiredTaskCountEvent<'_>,
) -> Option<Result<DesiredTaskCountEventResponse>> {
    needs_all(event.plan).then(|| Ok(DesiredTaskCountEventResponse::maximum(1)))
}

fn needs_all(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let single = |plan: &Arc<dyn ExecutionPlan>| {
        plan.output_partitioning().partition_count() == 1 && !gathers(plan)
    };
    if plan.children().is_empty() || gathers(plan) {
        return false;
    }
    let required = plan.input_distribution_requirements().into_per_child();
    let relies = plan
        .children()
        .into_iter()
        .zip(required)
        .any(|(child, required)| {
            !matches!(required, Distribution::UnspecifiedDistribution) && single(child)
        });
    relies || (plan.fetch().is_some() && single(plan))
}

/// Whether it brings all rows together itself: plans are cut below it.
fn gathers(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>()
}
