//! What a fragment may do, and what its last run did.

use std::fmt;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use parking_lot::Mutex;

use crate::counters::{Counter, counters};
use crate::memory::{LadderCounts, SpillDirectory};
use crate::parquet::{ChunkCounts, ParquetReader};

/// What a fragment does while its columns are loaded and its kernels compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColdStart {
    /// The CPU's plan runs beside it where estimates say that it may be first.
    #[default]
    Auto,
    /// It runs beside it wherever something is to be loaded or compiled.
    Race,
    /// The device is waited for.
    Wait,
}

impl ColdStart {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Race, Self::Wait];
}

impl fmt::Display for ColdStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Race => "race",
            Self::Wait => "wait",
        })
    }
}

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
    /// What it does while its columns are loaded and its kernels compiled.
    pub cold: ColdStart,
    /// Who decodes the columns of parquet files.
    pub parquet: ParquetReader,
    /// Names and values of the settings that it was planned with, for other sessions that it is sent to.
    pub settings: Arc<[(String, String)]>,
    /// Kernels begin while the table that they go over is still read from files.
    pub overlap_load: bool,
    /// Takes the rows of joins for which host memory has no room.
    pub spill: Option<Arc<SpillDirectory>>,
    /// Most queries that run on the device at once; 0: as many as suit host and device.
    pub concurrency: usize,
    /// Equal fragments that run at the same time share one run.
    pub share: bool,
    /// The plan in smaller parts, for what turns out to be no work for a device once its columns are known.
    pub second: Option<SecondPlan>,
}

/// Another plan for what a fragment computes.
#[derive(Debug, Clone)]
pub struct SecondPlan {
    /// The plan; parts of it are fragments.
    pub plan: Arc<dyn ExecutionPlan>,
    /// What of it runs on the CPU, if that counts as a fallback.
    pub fallback: Option<String>,
}

counters! {
    /// What the last run of a fragment did.
    #[derive(Debug, Clone, Default)]
    pub struct FragmentReport {
        /// Rows that left the device.
        output_rows: usize = "output_rows", "rows", sum;
        /// Making columns resident.
        load_ms: f64 = "load_us", "µs", sum, json "load_ms";
        /// Columns that were not resident, and were read whole.
        columns_loaded: u64 = "columns_loaded", "columns", sum, json "columns_loaded";
        /// Columns that were resident but for the rows of files that were added since: those rows alone were read.
        columns_grown: u64 = "columns_grown", "columns", sum, json "columns_grown";
        /// Generating and compiling kernels.
        compile_ms: f64 = "compile_us", "µs", sum, json "compile_ms";
        /// Waiting for a place on the device among queries that run at the same time (warpline.concurrency).
        queue_ms: f64 = "queue_us", "µs", sum;
        /// Runs that were those of equal queries at the same time (warpline.share_queries); what else is told is theirs.
        shared_runs: u64 = "shared_runs", "runs", sum;
        /// Column chunks of parquet files that the device decoded.
        parquet_chunks_device: u64 = "parquet_chunks_device", "chunks", sum, json "parquet_chunks_device";
        /// Column chunks of parquet files that the CPU decoded because the device could not, or not as soon (warpline.parquet).
        parquet_chunks_cpu: u64 = "parquet_chunks_cpu", "chunks", sum, json "parquet_chunks_cpu";
        /// Between device events around the kernels, less waits for rows that were still being read.
        kernel_ms: f64 = "kernel_us", "µs", sum, json "kernel_ms";
        /// Kernels launched.
        kernels: usize = "kernels", "launches", sum, json "kernels";
        /// Bytes of the columns that the kernels read, as they are encoded on the device.
        bytes: usize = "bytes_read", "bytes", sum, json "bytes";
        /// Bytes of columns that came from host memory in strides.
        streamed_bytes: u64 = "bytes_streamed", "bytes", sum, json "bytes_streamed";
        /// Bytes of results that were in host memory because device memory was full.
        spilled_bytes: u64 = "bytes_spilled", "bytes", sum, json "bytes_spilled";
        /// Bytes of rows that were in the memory of other devices because that of the query's own was full.
        peer_bytes: u64 = "bytes_on_peers", "bytes", sum;
        /// Parts that joins were done in: pairs of partitions, and strides of probe sides.
        join_parts: u64 = "join_parts", "parts", sum;
        /// Sides of joins partitioned without counting first, since an earlier run found the sizes of partitions.
        sides_apart: u64 = "sides_apart", "sides", sum;
        /// Parts that group-bys were done in, each with all rows of its groups.
        group_parts: u64 = "group_parts", "parts", sum;
        /// Parts that sorts were done in: ranges of keys, and pieces of which only the first rows were kept.
        sort_parts: u64 = "sort_parts", "parts", sum;
        /// Launches over rows of a table while later ones were still being read.
        early_strides: u64 = "early_strides", "launches", sum;
        /// Whether sizes were read between the steps, as in a first run over the resident columns.
        sizes_read: bool = "sizes_read", "0 or 1", sum;
        /// First runs beside which the CPU's plan ran.
        races: u64 = "races", "runs", sum, json "races";
        /// Those of them that the CPU's plan answered.
        cpu_answers: u64 = "cpu_answers", "runs", sum, json "cpu_answers";
        /// Peak device memory of a run: the columns that it read and all that it made.
        peak_bytes: usize = "peak_device_bytes", "bytes", max, json "peak_device_bytes";
    }
    and {
        /// What was done for want of memory.
        pub ladder: LadderCounts,
        /// Why the CPU answered, wholly or in part.
        pub fallback: Option<String>,
        /// Who was first, where the CPU's plan ran beside the device.
        pub race: Option<String>,
        /// Who decoded the chunks of parquet files, and why the CPU did, where the device was asked to.
        pub chunks: Option<ChunkCounts>,
        /// The chosen algorithms, each with its reason.
        pub choices: Vec<String>,
        /// What came in portions, by step: which portions, and how many.
        pub portions: Vec<(usize, String)>,
        /// What each step did, when profiling was asked for.
        pub steps: Vec<StepReport>,
        /// Milliseconds by kind of work, when profiling was asked for.
        pub phases: Vec<(&'static str, f64)>,
    }
}

/// Counters that follow from others.
pub const DERIVED: &[Counter<FragmentReport>] = &[Counter {
    name: "gigabytes_per_second",
    unit: "GB/s",
    about: "bytes_read over kernel_us.",
    json: None,
    read: |report| {
        let rate = report.bytes as f64 / report.kernel_ms / 1e6;
        (report.kernel_ms > 0.0).then_some(rate as u64)
    },
}];

/// Counters of a step of a profiled run, whose names follow `step NUMBER (LABEL)`.
pub const STEP_COUNTERS: &[Counter<StepReport>] = &[
    Counter {
        name: "us",
        unit: "µs",
        about: "Between device events before and after the step; includes waits of the host when sizes are read between steps.",
        json: None,
        read: |step| Some((step.milliseconds * 1e3) as u64),
    },
    Counter {
        name: "rows",
        unit: "rows",
        about: "Rows, entries or pairs in the step's result; not of groups and marks.",
        json: None,
        read: |step| step.rows,
    },
    Counter {
        name: "warp_iterations",
        unit: "iterations",
        about: "Warp iterations of a tree-shaped pipeline, of all warps; this and what follows with warpline.metrics.",
        json: None,
        read: |step| Some(step.tree?.visits),
    },
    Counter {
        name: "most_warp_iterations",
        unit: "iterations",
        about: "Those of the warp that had most.",
        json: None,
        read: |step| Some(step.tree?.most_visits),
    },
    Counter {
        name: "iir_per_mille",
        unit: "1/1000",
        about: "Intra-warp idle ratio: idle lanes of a warp iteration over 32.",
        json: None,
        read: |step| Some((step.tree?.iir() * 1e3).round() as u64),
    },
    Counter {
        name: "ilif_per_mille",
        unit: "1/1000",
        about: "Inter-warp load imbalance factor: busy cycles of the busiest warp over the mean.",
        json: None,
        read: |step| Some((step.tree?.ilif() * 1e3).round() as u64),
    },
];

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

/// The counters of a node, over all of its runs. They become DataFusion's metrics when somebody asks for those.
#[derive(Debug, Default)]
pub(in crate::exec) struct Counters(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    /// In the order of [`names`]; `None` where nothing was told.
    counts: Vec<Option<u64>>,
    steps: Vec<(String, u64)>,
}

/// The counters of a fragment, then those of the ladder.
fn names() -> impl Iterator<Item = &'static str> {
    let fragment = FragmentReport::COUNTERS.iter().chain(DERIVED);
    let ladder = LadderCounts::COUNTERS.iter();
    fragment.map(|c| c.name).chain(ladder.map(|c| c.name))
}

impl Counters {
    /// Add a run.
    pub(in crate::exec) fn add(&self, report: &FragmentReport) {
        let fragment = FragmentReport::COUNTERS.iter().chain(DERIVED);
        let fragment = fragment.map(|counter| (counter.read)(report));
        let ladder = LadderCounts::COUNTERS.iter();
        let ladder = ladder.map(|c| (c.read)(&report.ladder).filter(|value| *value > 0));
        let mut sums = self.0.lock();
        for (at, value) in fragment.chain(ladder).enumerate() {
            if sums.counts.len() == at {
                sums.counts.push(None);
            }
            if let Some(value) = value {
                let sum = sums.counts[at].unwrap_or(0);
                sums.counts[at] = Some(sum.saturating_add(value));
            }
        }
        for (number, step) in report.steps.iter().enumerate() {
            for counter in STEP_COUNTERS {
                let Some(value) = (counter.read)(step) else {
                    continue;
                };
                let name = format!("step {number} ({}) {}", step.label, counter.name);
                match sums.steps.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum = sum.saturating_add(value),
                    None => sums.steps.push((name, value)),
                }
            }
        }
    }

    /// As EXPLAIN ANALYZE shows them.
    pub(in crate::exec) fn metrics(&self) -> MetricsSet {
        let metrics = ExecutionPlanMetricsSet::new();
        let add = |name: String, value: u64| {
            let builder = MetricBuilder::new(&metrics);
            let count = match name.as_str() {
                "output_rows" => builder.output_rows(0),
                _ => builder.global_counter(name),
            };
            count.add(usize::try_from(value).unwrap_or(usize::MAX));
        };
        let sums = self.0.lock();
        for (name, value) in names().zip(&sums.counts) {
            if let Some(value) = value {
                add(name.to_string(), *value);
            }
        }
        for (name, value) in &sums.steps {
            add(name.clone(), *value);
        }
        metrics.clone_inner()
    }
}
