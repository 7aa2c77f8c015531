//! The fragments of a plan: which they are, what they learned, and what each device did of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::ExecutionPlan;
use warpline_gpu::exec::GpuFragmentExec;
use warpline_planner::metrics;
use warpline_tpch::DeviceWork;

/// Whether a plan node is a fragment on the device.
pub(crate) fn is_fragment(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<GpuFragmentExec>()
}

/// The fragments of a plan, in its order.
pub(crate) fn fragments(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut fragments = Vec::new();
    // The visit itself cannot fail.
    let _ = plan.apply(|node| {
        if is_fragment(node) {
            fragments.push(Arc::clone(node));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    fragments
}

/// Whoever keeps the plan looks at files before each run of it: at local ones, as they were listed, of which `looked_at` is true.
pub(crate) fn note_looks(plan: &Arc<dyn ExecutionPlan>, looked_at: &dyn Fn(&ObjectMeta) -> bool) {
    for node in fragments(plan) {
        if let Some(fragment) = node.downcast_ref::<GpuFragmentExec>() {
            fragment.note_looks(looked_at);
        }
    }
}

/// The files that are looked at are as they were listed, for the run of the plan that begins now.
pub(crate) fn note_unchanged(plan: &Arc<dyn ExecutionPlan>) {
    for node in fragments(plan) {
        if let Some(fragment) = node.downcast_ref::<GpuFragmentExec>() {
            fragment.note_unchanged();
        }
    }
}

/// Moves kernels and result sizes from the fragments of an earlier plan of the same query to those of `plan`.
pub(crate) fn take_over(plan: &Arc<dyn ExecutionPlan>, earlier: &[Arc<dyn ExecutionPlan>]) {
    let fragments = fragments(plan);
    if fragments.len() != earlier.len() {
        return;
    }
    for (node, earlier) in fragments.iter().zip(earlier) {
        let node = node.downcast_ref::<GpuFragmentExec>();
        let earlier = earlier.downcast_ref::<GpuFragmentExec>();
        if let (Some(node), Some(earlier)) = (node, earlier) {
            node.take_over(earlier);
        }
    }
}

/// A part of a query that several devices shared, as it was placed on one of them.
#[derive(Debug, Clone)]
pub(crate) struct StageOnDevice {
    /// `cuda:0`, `emulator:1`.
    pub(crate) device: String,
    /// The number of the stage, and of the task in it.
    pub(crate) task: (usize, usize),
    pub(crate) plan: Arc<dyn ExecutionPlan>,
}

/// What each device did of a query that several shared, by their names.
pub(crate) fn devices_of(stages: &[StageOnDevice]) -> Vec<DeviceWork> {
    let mut devices: BTreeMap<&str, DeviceWork> = BTreeMap::new();
    for stage in stages {
        let totals = metrics::collect([&stage.plan]);
        let work = devices.entry(&stage.device).or_default();
        work.device.clone_from(&stage.device);
        work.fragments += totals.fragments as u64;
        work.kernels += totals.counts.kernels as u64;
        work.kernel_ms += totals.counts.kernel_ms;
        work.bytes += totals.counts.bytes as u64;
        work.fallbacks += totals.fallbacks.len() as u64;
    }
    devices.into_values().collect()
}
