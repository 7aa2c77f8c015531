//! What the fragments of a plan learned, for the next plan of the same text.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use crate::fragments;

/// The fragments of a plan, in its order; of a plan that several devices share, what stands for those of its last run.
pub(super) fn left_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    #[cfg(feature = "cluster")]
    if let Some(left) = crate::devices::left_of(plan) {
        return vec![left];
    }
    fragments::fragments(plan)
}

/// Moves kernels and result sizes from what an earlier plan of the same query left to the fragments of `plan`.
pub(super) fn take_over(plan: &Arc<dyn ExecutionPlan>, earlier: &[Arc<dyn ExecutionPlan>]) {
    #[cfg(feature = "cluster")]
    if let [earlier] = earlier
        && crate::devices::take_over(plan, earlier)
    {
        return;
    }
    fragments::take_over(plan, earlier);
}
