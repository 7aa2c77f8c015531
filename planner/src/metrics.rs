//! What a finished plan did on the device and what it left to the CPU.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use warpline_gpu::exec::{FragmentReport, GpuFragmentExec, TreeMetrics};

use crate::placement::PlacementReportExec;

/// Sums over the fragments of one plan, of its last run.
#[derive(Debug, Clone, Default)]
pub struct FragmentTotals {
    /// The counters of all fragments together; of heights, that of the fragment that needed most.
    pub counts: FragmentReport,
    /// Fragments in the plan.
    pub fragments: usize,
    /// Why the CPU did some of the work: decided while planning, then met at run time.
    pub fallbacks: Vec<String>,
    /// Tree-shaped pipelines that counted, by their label.
    pub trees: Vec<(String, TreeMetrics)>,
}

/// Walk plans after their execution.
pub fn collect<'a>(plans: impl IntoIterator<Item = &'a Arc<dyn ExecutionPlan>>) -> FragmentTotals {
    let mut totals = FragmentTotals::default();
    for plan in plans {
        add(plan, &mut totals);
    }
    totals
}

/// How evenly the lanes and warps of pipelines worked (Themis, PVLDB 2024, section 8.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TreeBalance {
    /// Pipelines that counted.
    pub pipelines: usize,
    /// Intra-warp idle ratio, of all pipelines together.
    pub iir: f64,
    /// Inter-warp load imbalance factor: the pipelines' mean, weighted by busy cycles.
    pub ilif: f64,
}

/// The balance of tree-shaped pipelines; `None` when none counted.
pub fn balance_of(trees: &[(String, TreeMetrics)]) -> Option<TreeBalance> {
    let sum = |of: fn(&TreeMetrics) -> u64| trees.iter().map(|(_, t)| of(t) as f64).sum::<f64>();
    let busy = sum(|t| t.busy_cycles);
    let weighted: f64 = trees
        .iter()
        .map(|(_, t)| t.ilif() * t.busy_cycles as f64)
        .sum();
    (!trees.is_empty()).then(|| TreeBalance {
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
        totals.fragments += 1;
        fragment.with_report(|report| {
            let ladder = totals.counts.ladder.plus(&report.ladder);
            totals.counts = std::mem::take(&mut totals.counts).plus(report);
            totals.counts.ladder = ladder;
            totals.fallbacks.extend(report.fallback.clone());
            let counted = report.steps.iter();
            totals
                .trees
                .extend(counted.filter_map(|step| Some((step.label.clone(), step.tree?))));
        });
        if let Some(parts) = fragment.parts() {
            add(&parts, totals);
        }
    }
    for child in plan.children() {
        add(child, totals);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use warpline_gpu::counters::Counter;
    use warpline_gpu::exec::{DERIVED, STEP_COUNTERS, StepReport};
    use warpline_gpu::memory::LadderCounts;

    use super::*;

    fn table<T>(page: &mut String, counters: &[Counter<T>]) {
        page.push_str("| counter | unit | in JSON | |\n|---|---|---|---|\n");
        for counter in counters {
            let Counter {
                name, unit, about, ..
            } = counter;
            let json = counter.json.map(|json| format!("`{json}`"));
            let json = json.unwrap_or_default();
            writeln!(page, "| `{name}` | {unit} | {json} | {about} |").unwrap();
        }
    }

    #[test]
    fn the_page_of_counters_says_what_is_declared() {
        let mut page = "\
# Counters

`EXPLAIN ANALYZE` shows what each fragment did, and `metrics()` of its plan node has the same. *In JSON* is the name in reports of
`warpline tpch` and `warpline jcch` (`--format json`), whose times are milliseconds.

"
        .to_string();
        table(&mut page, FragmentReport::COUNTERS);
        page.push_str("\nThat follows from others:\n\n");
        table(&mut page, DERIVED);
        page.push_str("\nWhen device memory was short (under `ladder` in JSON; `EXPLAIN ANALYZE` shows those that are not 0):\n\n");
        table(&mut page, LadderCounts::COUNTERS);
        page.push_str(
            "\nOf each step, when steps are measured (`step NUMBER (LABEL) COUNTER`):\n\n",
        );
        table::<StepReport>(&mut page, STEP_COUNTERS);
        crate::golden::check(&Path::new("docs").join("COUNTERS.md"), &page);
    }
}
