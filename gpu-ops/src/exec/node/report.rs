//! What a fragment may do, and what its last run did.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use parking_lot::Mutex;

use crate::memory::{LadderCounts, SpillDirectory};

/// How a fragment behaves when it meets a limit.
#[derive(Debug, Clone, Default)]
pub struct FragmentOptions {
    /// Any fallback to the CPU is an error.
    pub require_gpu: bool,
    /// Operators above the fragment run on the CPU; more rows than this out of the fragment count
    /// as a fallback of theirs. `None`: nothing but the output is above.
    pub max_tail_rows: Option<usize>,
    /// Names of those operators, for the report.
    pub tail: Option<String>,
    /// Measure every step of every run, at the cost of a few microseconds a step.
    pub profile: bool,
    /// Blocks of a kernel a multiprocessor at most; 0: as many as it holds.
    pub blocks: u64,
    /// Names and values of the settings that it was planned with, for other sessions that it is sent to.
    pub settings: Arc<[(String, String)]>,
    /// Kernels begin while the table that they go over is still read from files.
    pub overlap_load: bool,
    /// Takes the rows of joins for which host memory has no room.
    pub spill: Option<Arc<SpillDirectory>>,
}

/// What the last run of a fragment did.
#[derive(Debug, Clone, Default)]
pub struct FragmentReport {
    /// Making columns resident, in milliseconds.
    pub load_ms: f64,
    /// Generating and compiling kernels, in milliseconds.
    pub compile_ms: f64,
    /// Time between device events around the kernels, in milliseconds, less waits for rows that were still being read.
    pub kernel_ms: f64,
    /// Kernels launched.
    pub kernels: usize,
    /// Bytes of the columns that the kernels read, as they lie on the device.
    pub bytes: usize,
    /// Bytes of columns that came from host memory in strides.
    pub streamed_bytes: u64,
    /// Bytes of results that lay in host memory for want of room.
    pub spilled_bytes: u64,
    /// Parts that joins were done in: pairs of partitions, and strides of probing sides.
    pub join_parts: u64,
    /// Sides of joins that were partitioned without counting first: an earlier run found out how large partitions are.
    pub sides_apart: u64,
    /// Parts that group-bys were done in, each with all rows of its groups.
    pub group_parts: u64,
    /// Parts that sorts were done in: ranges of keys, and pieces of which only the first rows were kept.
    pub sort_parts: u64,
    /// Launches over rows of a table while later ones were still being read.
    pub early_strides: u64,
    /// Rows that left the device.
    pub output_rows: usize,
    /// Device memory that the run held at its height, in bytes: the columns that it read and all that it made.
    pub peak_bytes: usize,
    /// What was done for want of memory.
    pub ladder: LadderCounts,
    /// Why the CPU answered, wholly or in part.
    pub fallback: Option<String>,
    /// The chosen algorithms, each with its reason.
    pub choices: Vec<String>,
    /// Sizes were read between the steps, as in a first run over the resident columns.
    pub sizes_read: bool,
    /// What each step did, when profiling was asked for.
    pub steps: Vec<StepReport>,
    /// Milliseconds by kind of work, when profiling was asked for.
    pub phases: Vec<(&'static str, f64)>,
}

/// One step of a profiled run.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// Short text, e.g. `index orders`.
    pub label: String,
    /// Between device events before and after the step, in milliseconds; includes waits of the host when sizes are
    /// read between the steps.
    pub milliseconds: f64,
    /// Rows, entries or pairs in the step's result; `None` for groups and marks.
    pub rows: Option<u64>,
    /// Of tree-shaped pipelines that count.
    pub tree: Option<TreeMetrics>,
}

/// How evenly the work of a tree-shaped pipeline was spread (Themis, section 8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeMetrics {
    /// Warps of the launch.
    pub warps: u64,
    /// Warp iterations, of all warps.
    pub visits: u64,
    /// Lanes without a node in them.
    pub idle_lanes: u64,
    /// Cycles that warps had work, of all warps.
    pub busy_cycles: u64,
    /// Cycles of the warp that had most.
    pub most_busy_cycles: u64,
    /// Warp iterations of the warp that had most.
    pub most_visits: u64,
}

impl TreeMetrics {
    /// Intra-warp idle ratio: the share of idle lanes in a warp iteration.
    pub fn iir(&self) -> f64 {
        if self.visits == 0 {
            return 0.0;
        }
        self.idle_lanes as f64 / (self.visits as f64 * 32.0)
    }

    /// Inter-warp load imbalance factor: most busy cycles of a warp over the mean.
    ///
    /// The mean is that of the warps that could have had work, no more than there were warp iterations: the grid is as
    /// large as the device holds, before anybody knows how many matches a row has. The authors' own mean is that of the
    /// warps that had work, which is never less, so that this factor is never below theirs; a single warp that does
    /// everything alone would be balanced by theirs.
    pub fn ilif(&self) -> f64 {
        if self.busy_cycles == 0 {
            return 1.0;
        }
        let able = self.warps.min(self.visits).max(1);
        self.most_busy_cycles as f64 * able as f64 / self.busy_cycles as f64
    }
}

/// The counters of a node, each registered once however often the node runs.
#[derive(Default)]
pub(in crate::exec) struct Counters {
    pub(in crate::exec) metrics: ExecutionPlanMetricsSet,
    counts: Mutex<HashMap<String, Count>>,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}

impl Counters {
    fn add(&self, name: &str, value: usize) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get(name) {
            count.add(value);
            return;
        }
        let builder = MetricBuilder::new(&self.metrics);
        let count = if name == "output_rows" {
            builder.output_rows(0)
        } else {
            builder.global_counter(name.to_string())
        };
        count.add(value);
        counts.insert(name.into(), count);
    }

    /// Put a report where EXPLAIN ANALYZE shows it.
    pub(in crate::exec) fn publish(&self, report: &FragmentReport) {
        self.add("output_rows", report.output_rows);
        self.add("load_us", (report.load_ms * 1e3) as usize);
        self.add("compile_us", (report.compile_ms * 1e3) as usize);
        self.add("kernel_us", (report.kernel_ms * 1e3) as usize);
        self.add("kernels", report.kernels);
        self.add("bytes_read", report.bytes);
        self.add("bytes_streamed", report.streamed_bytes as usize);
        self.add("bytes_spilled", report.spilled_bytes as usize);
        self.add("join_parts", report.join_parts as usize);
        self.add("sides_apart", report.sides_apart as usize);
        self.add("group_parts", report.group_parts as usize);
        self.add("sort_parts", report.sort_parts as usize);
        self.add("early_strides", report.early_strides as usize);
        if report.kernel_ms > 0.0 {
            self.add(
                "gigabytes_per_second",
                (report.bytes as f64 / report.kernel_ms / 1e6) as usize,
            );
        }
        self.add("sizes_read", usize::from(report.sizes_read));
        self.add("peak_device_bytes", report.peak_bytes);
        for (name, count) in report.ladder.named() {
            if count > 0 {
                self.add(name, usize::try_from(count).unwrap_or(usize::MAX));
            }
        }
        for (number, step) in report.steps.iter().enumerate() {
            let name = |unit: &str| format!("step {number} ({}) {unit}", step.label);
            self.add(&name("us"), (step.milliseconds * 1e3) as usize);
            if let Some(rows) = step.rows {
                self.add(&name("rows"), rows as usize);
            }
            if let Some(tree) = &step.tree {
                self.add(&name("warp_iterations"), tree.visits as usize);
                self.add(&name("most_warp_iterations"), tree.most_visits as usize);
                self.add(&name("iir_per_mille"), (tree.iir() * 1e3).round() as usize);
                self.add(
                    &name("ilif_per_mille"),
                    (tree.ilif() * 1e3).round() as usize,
                );
            }
        }
    }
}
