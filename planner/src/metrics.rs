//! What a finished plan did on the device and what it left to the CPU.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use warpline_gpu::exec::{GpuFragmentExec, TreeMetrics};
use warpline_gpu::memory::LadderCounts;

use crate::placement::PlacementReportExec;

/// Sums over the fragments of one plan, of its last run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FragmentTotals {
    /// Making columns resident, in milliseconds.
    pub load_ms: f64,
    /// Generating and compiling kernels, in milliseconds.
    pub compile_ms: f64,
    /// Time in kernels, in milliseconds.
    pub kernel_ms: f64,
    /// Kernels launched.
    pub kernels: usize,
    /// Bytes of columns that kernels read.
    pub bytes: usize,
    /// Bytes of columns that came from host memory.
    pub streamed_bytes: u64,
    /// Bytes of results that lay in host memory for want of room.
    pub spilled_bytes: u64,
    /// Parts that group-bys were done in.
    pub group_parts: u64,
    /// Parts that sorts were done in.
    pub sort_parts: u64,
    /// Rows that left the device.
    pub output_rows: usize,
    /// Device memory at its height, in bytes, of the fragment that needed most.
    pub peak_bytes: usize,
    /// What was done for want of memory.
    pub ladder: LadderCounts,
    /// Fragments in the plan.
    pub fragments: usize,
    /// Why the CPU did some of the work: decided while planning, then met at run time.
    pub fallbacks: Vec<String>,
    /// The algorithms that fragments chose, each with its reason.
    pub choices: Vec<String>,
    /// Tree-shaped pipelines that counted, by their label.
    pub trees: Vec<(String, TreeMetrics)>,
}

/// Walk a plan after its execution.
pub fn collect(plan: &Arc<dyn ExecutionPlan>) -> FragmentTotals {
    let mut totals = FragmentTotals::default();
    add(plan, &mut totals);
    totals
}

/// How evenly the lanes and warps of pipelines worked (Themis, PVLDB 2024, section 8.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadBalance {
    /// Pipelines that counted.
    pub pipelines: usize,
    /// Intra-warp idle ratio, of all pipelines together.
    pub iir: f64,
    /// Inter-warp load imbalance factor: the pipelines' mean, weighted by busy cycles.
    pub ilif: f64,
}

/// The balance of tree-shaped pipelines; `None` when none counted.
pub fn balance_of(trees: &[(String, TreeMetrics)]) -> Option<LoadBalance> {
    let sum = |of: fn(&TreeMetrics) -> u64| trees.iter().map(|(_, t)| of(t) as f64).sum::<f64>();
    let busy = sum(|t| t.busy_cycles);
    let weighted: f64 = trees
        .iter()
        .map(|(_, t)| t.ilif() * t.busy_cycles as f64)
        .sum();
    (!trees.is_empty()).then(|| LoadBalance {
        pipelines: trees.len(),
        iir: sum(|t| t.idle_lanes) / (32.0 * sum(|t| t.visits)).max(1.0),
        ilif: if busy > 0.0 { weighted / busy } else { 1.0 },
    })
}

fn add(plan: &Arc<dyn ExecutionPlan>, totals: &mut FragmentTotals) {
    if let Some(placement) = plan.downcast_ref::<PlacementReportExec>() {
        let operators = placement.cpu_operators().iter().filter(|o| o.fallback);
        totals.fallbacks.extend(operators.map(ToString::to_string));
    }
    if let Some(fragment) = plan.downcast_ref::<GpuFragmentExec>() {
        let report = fragment.report();
        totals.load_ms += report.load_ms;
        totals.compile_ms += report.compile_ms;
        totals.kernel_ms += report.kernel_ms;
        totals.kernels += report.kernels;
        totals.bytes += report.bytes;
        totals.streamed_bytes += report.streamed_bytes;
        totals.spilled_bytes += report.spilled_bytes;
        totals.group_parts += report.group_parts;
        totals.sort_parts += report.sort_parts;
        totals.output_rows += report.output_rows;
        totals.peak_bytes = totals.peak_bytes.max(report.peak_bytes);
        totals.ladder = totals.ladder.plus(report.ladder);
        totals.fragments += 1;
        totals.fallbacks.extend(report.fallback);
        totals.choices.extend(report.choices);
        let counted = report.steps.into_iter();
        totals
            .trees
            .extend(counted.filter_map(|step| Some((step.label, step.tree?))));
    }
    for child in plan.children() {
        add(child, totals);
    }
}
