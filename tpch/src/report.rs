//! The report of a benchmark run: one JSON object for tools, an aligned table for people.

use std::fmt::Write as _;

use serde::Serialize;

use crate::engine::{DeviceWork, MemoryLadder, QueryMetrics, WorkBalance};
use crate::environment::Environment;
use crate::task::{QueryName, Subject};

/// All queries of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The name of the benchmark's command: tpch, jcch or queries.
    pub benchmark: &'static str,
    /// For JCC-H, which values its queries ask for: skewed or normal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bindings: Option<&'static str>,
    /// For JCC-H, the seed of its queries' parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// What people call it.
    pub title: String,
    /// The device that answered.
    pub device: String,
    /// What it ran on, as far as whoever ran it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// Scale factor of the data, where there is such a thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Sum of the hot medians of the queries that succeeded, in milliseconds.
    pub total_hot_ms: f64,
    /// One entry for each query, in the order in which they ran.
    pub queries: Vec<QueryReport>,
}

/// One query. Times are milliseconds; what was not measured is null.
#[derive(Debug, Clone, Default, Serialize)]
pub struct QueryReport {
    /// Its number in the benchmark's specification, or its name.
    pub query: QueryName,
    /// Rows of the answer.
    pub rows: Option<usize>,
    /// Whether every answer equalled the reference; null when that was not checked.
    pub verified: Option<bool>,
    /// Parts of the plan that stayed on the CPU although a device is in use.
    pub fallbacks: Vec<String>,
    /// Runs of plain DataFusion on the CPU: the one that answers are compared with, or those that were asked for.
    pub cpu_ms: Vec<f64>,
    /// Their median.
    pub cpu_median_ms: Option<f64>,
    /// Time to make columns resident, in the cold run.
    pub load_ms: Option<f64>,
    /// Columns made resident, in the cold run.
    pub columns_loaded: u64,
    /// Columns to which the rows of files were added that came since they were loaded.
    pub columns_grown: u64,
    /// Column chunks of parquet files that the device decoded, in the cold run.
    pub parquet_chunks_device: u64,
    /// Column chunks of parquet files that the CPU decoded because the device could not, in the cold run; counted where the
    /// device was asked to.
    pub parquet_chunks_cpu: u64,
    /// Time from SQL text to the physical plan, in the cold run.
    pub plan_ms: Option<f64>,
    /// The same in the last hot run.
    pub hot_plan_ms: Option<f64>,
    /// Whether the last hot run used the plan of an earlier one.
    pub plan_cached: Option<bool>,
    /// Time to generate and compile kernels, in the cold run.
    pub compile_ms: Option<f64>,
    /// The first run, from SQL text to the last Arrow batch on the host.
    pub cold_ms: Option<f64>,
    /// The later runs, measured the same way.
    pub hot_ms: Vec<f64>,
    /// Their median.
    pub hot_median_ms: Option<f64>,
    /// Time in kernels in the last hot run.
    pub kernel_ms: Option<f64>,
    /// Kernels launched in the last hot run.
    pub kernels: Option<u64>,
    /// Bytes that the device must read for the query.
    pub bytes: Option<u64>,
    /// `bytes` divided by the bandwidth of a plain copy on the device: what no kernel can undercut.
    pub floor_ms: Option<f64>,
    /// Device memory at its height, in bytes, of the run that needed most.
    pub peak_device_bytes: Option<u64>,
    /// Bytes of columns and of partitions that came over the link from host memory in the last hot run, because device
    /// memory did not hold them; null when no part of the query ran on a device.
    pub bytes_streamed: Option<u64>,
    /// Bytes of results that lay in host memory in the last hot run, because device memory did not hold them; null when no
    /// part of the query ran on a device.
    pub bytes_spilled: Option<u64>,
    /// Parts of the query beside which the CPU's plan ran in some run, since columns were to be loaded or kernels compiled.
    pub races: u64,
    /// Those of them that the CPU's plan answered.
    pub cpu_answers: u64,
    /// What was done for want of device memory, in all runs together.
    pub ladder: MemoryLadder,
    /// What each device did in the last hot run, where several shared the query.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceWork>,
    /// How evenly the work of pipelines was spread in the last run; null unless that was counted.
    pub balance: Option<WorkBalance>,
    /// Why the query failed or its answer is wrong.
    pub error: Option<String>,
}

/// Rounds milliseconds to microseconds, which is finer than what the clock repeats.
pub(crate) fn millis(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn median(times: &[f64]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(millis(f64::midpoint(sorted[middle - 1], sorted[middle]))),
    }
}

impl QueryReport {
    pub(crate) fn new(query: QueryName) -> Self {
        Self {
            query,
            ..Self::default()
        }
    }

    /// Sets the bytes and the floor that follows from them; `bandwidth` is in bytes per second.
    pub(crate) fn set_bytes(&mut self, bytes: Option<u64>, bandwidth: Option<f64>) {
        self.bytes = bytes;
        self.floor_ms = bytes
            .zip(bandwidth)
            .filter(|(_, bandwidth)| *bandwidth > 0.0)
            .map(|(bytes, bandwidth)| {
                // A nanosecond grain: the floor of a small table is microseconds.
                (bytes as f64 / bandwidth * 1e9).round() / 1e6
            });
    }

    /// Adds what a run did for want of memory, and its peak if it is the highest; what it streamed and spilled takes the
    /// place of what the run before did.
    pub(crate) fn note_memory(&mut self, metrics: &QueryMetrics) {
        self.bytes_streamed = metrics.bytes.map(|_| metrics.streamed_bytes);
        self.bytes_spilled = metrics.bytes.map(|_| metrics.spilled_bytes);
        self.peak_device_bytes = self.peak_device_bytes.max(metrics.peak_device_bytes);
        self.devices.clone_from(&metrics.devices);
        self.ladder = self.ladder.plus(metrics.ladder);
        self.races += metrics.races;
        self.cpu_answers += metrics.cpu_answers;
    }

    pub(crate) fn set_medians(&mut self) {
        self.hot_median_ms = median(&self.hot_ms);
        self.cpu_median_ms = median(&self.cpu_ms);
    }

    /// How many times as fast as plain DataFusion on the CPU; `None` when either was not measured.
    pub fn speedup(&self) -> Option<f64> {
        let both = self.cpu_median_ms.zip(self.hot_median_ms);
        both.filter(|(_, hot)| *hot > 0.0 && self.succeeded())
            .map(|(cpu, hot)| cpu / hot)
    }

    /// The hot median over the floor; `None` when either is not known.
    pub fn over_floor(&self) -> Option<f64> {
        let both = self.hot_median_ms.zip(self.floor_ms);
        both.filter(|(_, floor)| *floor > 0.0)
            .map(|(hot, floor)| hot / floor)
    }

    /// Whether the answer is right, in a word for tables.
    pub fn outcome(&self) -> &'static str {
        match (self.verified, &self.error) {
            (Some(true), _) => "yes",
            (Some(false), _) => "WRONG",
            (None, Some(_)) => "FAILED",
            (None, None) => "-",
        }
    }

    /// True when the query ran and its answer is not known to be wrong.
    pub fn succeeded(&self) -> bool {
        self.error.is_none() && self.verified != Some(false)
    }
}

impl Report {
    pub(crate) fn new(device: String, subject: &Subject) -> Self {
        Self {
            benchmark: subject.command,
            bindings: subject.bindings.map(|(bindings, _)| bindings),
            seed: subject.bindings.map(|(_, seed)| seed),
            title: subject.title.clone(),
            device,
            environment: None,
            scale: subject.scale,
            total_hot_ms: 0.0,
            queries: Vec::new(),
        }
    }

    /// A report of queries that were run elsewhere.
    pub fn of(device: impl Into<String>, subject: &Subject, queries: Vec<QueryReport>) -> Self {
        let mut report = Self::new(device.into(), subject);
        queries.into_iter().for_each(|query| report.push(query));
        report
    }

    /// The title with the scale of the data.
    pub fn heading(&self, between: &str) -> String {
        match self.scale {
            Some(scale) => format!("{}{between}scale {scale}", self.title),
            None => self.title.clone(),
        }
    }

    pub(crate) fn push(&mut self, query: QueryReport) {
        if query.succeeded() {
            self.total_hot_ms = millis(self.total_hot_ms + query.hot_median_ms.unwrap_or(0.0));
        }
        self.queries.push(query);
    }

    /// True when every query succeeded and, with `require_gpu`, no part of one stayed on the CPU.
    pub fn passed(&self, require_gpu: bool) -> bool {
        self.queries
            .iter()
            .all(|query| query.succeeded() && (!require_gpu || query.fallbacks.is_empty()))
    }

    /// The report as one JSON object.
    ///
    /// # Errors
    /// Never for the values a run makes; JSON has no NaN, and serde says so.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The report as text with aligned columns, then the fallbacks and errors in full.
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        text.push_str(&self.heading(" "));
        if let Some((bindings, seed)) = self.bindings.zip(self.seed) {
            let _ = write!(text, ", {bindings} bindings of seed {seed},");
        }
        let _ = writeln!(text, " on {}; times in ms\n", self.device);
        let header = [
            "query",
            "rows",
            "verified",
            "load",
            "plan",
            "hot plan",
            "compile",
            "cold",
            "hot",
            "kernels",
            "in kernels",
            "MB read",
            "floor",
            "hot/floor",
            "CPU",
            "peak MB",
            "fallbacks",
        ];
        let mut rows: Vec<Vec<String>> = vec![header.map(String::from).to_vec()];
        rows.extend(self.queries.iter().map(QueryReport::table_row));
        text.push_str(&aligned(&rows));
        let good = self
            .queries
            .iter()
            .filter(|query| query.succeeded())
            .count();
        let verified = self
            .queries
            .iter()
            .filter(|query| query.verified == Some(true))
            .count();
        let _ = writeln!(
            text,
            "\n{good} of {} queries succeeded, {verified} verified; hot total {:.1} ms",
            self.queries.len(),
            self.total_hot_ms
        );
        for query in &self.queries {
            if !query.fallbacks.is_empty() {
                let fallbacks = query.fallbacks.join("; ");
                let _ = writeln!(text, "{} on the CPU: {fallbacks}", query.query);
            }
            if query.ladder != MemoryLadder::default() {
                let ladder = &query.ladder;
                let _ = writeln!(
                    text,
                    "{} was short of device memory: {} evictions, {} waits, {} repeated runs, {} out of core, {} on the CPU",
                    query.query,
                    ladder.evictions,
                    ladder.memory_waits,
                    ladder.repeats,
                    ladder.out_of_core,
                    ladder.cpu_fallbacks
                );
            }
            let (streamed, spilled) = (query.bytes_streamed, query.bytes_spilled);
            if let Some((streamed, spilled)) = streamed.zip(spilled)
                && streamed + spilled > 0
            {
                let _ = writeln!(
                    text,
                    "{}: {:.1} MB came over the link, {:.1} MB of results lay in host memory",
                    query.query,
                    streamed as f64 / 1e6,
                    spilled as f64 / 1e6
                );
            }
            if let Some(balance) = &query.balance {
                let _ = writeln!(
                    text,
                    "{}: {} tree-shaped, idle lanes (IIR) {:.1} %, busiest warp over mean (ILIF) {:.2}",
                    query.query,
                    balance.pipelines,
                    balance.iir * 100.0,
                    balance.ilif
                );
            }
            if let Some(error) = &query.error {
                let _ = writeln!(text, "{} failed: {error}", query.query);
            }
        }
        text
    }
}

/// Columns side by side, all to the right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.len()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}

impl QueryReport {
    fn table_row(&self) -> Vec<String> {
        const UNKNOWN: &str = "-";
        let time = |value: Option<f64>| {
            value.map_or_else(|| UNKNOWN.to_string(), |value| format!("{value:.1}"))
        };
        let fine = |value: Option<f64>| {
            value.map_or_else(|| UNKNOWN.to_string(), |value| format!("{value:.3}"))
        };
        let count = |value: Option<u64>| {
            value.map_or_else(|| UNKNOWN.to_string(), |value| value.to_string())
        };
        vec![
            self.query.to_string(),
            count(self.rows.map(|rows| rows as u64)),
            self.outcome().to_string(),
            time(self.load_ms),
            time(self.plan_ms),
            fine(self.hot_plan_ms),
            time(self.compile_ms),
            time(self.cold_ms),
            time(self.hot_median_ms),
            count(self.kernels),
            fine(self.kernel_ms),
            time(self.bytes.map(|bytes| bytes as f64 / 1e6)),
            fine(self.floor_ms),
            time(self.over_floor()),
            time(self.cpu_median_ms),
            time(self.peak_device_bytes.map(|bytes| bytes as f64 / 1e6)),
            self.fallbacks.len().to_string(),
        ]
    }
}
