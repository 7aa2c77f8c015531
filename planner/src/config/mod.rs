//! The settings under `warpline.`: what they are called, may hold and default to.

mod failures;
mod kinds;
mod travel;

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use warpline_gpu::GpuError;
use warpline_gpu::algorithm::{JoinAlgorithm, Materialization, PipelineShape};
use warpline_gpu::exec::TimeLimit;
use warpline_gpu::graph::TreeOptions;
use warpline_gpu::memory::SpillDirectory;

pub use failures::Failures;
use kinds::pipeline_shape;
pub use kinds::{DeviceSetting, GroupSetting, IndexJoins, JoinSetting, LoadBalance, Setting};

use crate::error::PlannerError;
use crate::size::ByteSize;

/// How often a session's `warpline.device` was set.
static DEVICE_SET: AtomicU64 = AtomicU64::new(0);

/// The value of `warpline.join` for joins of sides that device memory does not hold.
const TRITON: &str = "triton";

/// Warpline's settings; `SET warpline.require_gpu = true` changes one, `SHOW warpline.min_rows` shows one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarplineConfig {
    /// `warpline.device`: which device runs fragments; another one is opened with the next query.
    pub device: DeviceSetting,
    /// `warpline.require_gpu`: any fallback to the CPU is an error.
    pub require_gpu: bool,
    /// `warpline.min_rows`: tables of fewer rows stay on the CPU ([`DEFAULT_MIN_ROWS`] unless set); none do under `require_gpu`.
    pub min_rows: usize,
    /// How often `warpline.device` was set, in all sessions together: a lost device is opened again when it was set anew.
    pub device_set: u64,
    /// `warpline.device_memory`: budget in bytes, 0 for all but a reserve.
    pub device_memory: usize,
    /// `warpline.host_memory`: bytes of page-locked host memory, 0 for half of the host's.
    pub host_memory: usize,
    /// `warpline.time_limit`: how long a query may run.
    pub time_limit: TimeLimit,
    /// `warpline.inject_failures`: which calls of the device are to fail.
    pub inject_failures: Failures,
    /// `warpline.group_by`: how grouped aggregations are done.
    pub group_by: GroupSetting,
    /// `warpline.plan_cache`: plans of earlier queries are used again.
    pub plan_cache: bool,
    /// `warpline.plan_cache_size`: most texts whose plans a session keeps.
    pub plan_cache_size: usize,
    /// `warpline.spill_directory`: where rows go for which host memory has no room; empty for nowhere.
    pub spill_directory: String,
    /// `warpline.join`: how joins are done.
    pub join: JoinSetting,
    /// `warpline.join = triton`: both sides are partitioned in host memory first, then joined pair by pair.
    pub triton: bool,
    /// `warpline.pipeline`: the shape of kernels.
    pub pipeline: PipelineShape,
    /// `warpline.load_balance`: how the warps of tree-shaped pipelines share work.
    pub load_balance: LoadBalance,
    /// `warpline.fws_threshold`: nodes of a piece that warps share at a fixed granularity.
    pub fws_threshold: u32,
    /// `warpline.materialization`: nodes of trees carry the numbers of rows, or values.
    pub materialization: Materialization,
    /// `warpline.index_joins`: whether indexes over whole tables are kept and joined with.
    pub index_joins: IndexJoins,
    /// `warpline.overlap_load`: kernels begin while the table that they go over is read from files.
    pub overlap_load: bool,
    /// `warpline.metrics`: tree-shaped pipelines count idle lanes and busy cycles.
    pub metrics: bool,
    /// `warpline.group_slots`: slots that hash tables of groups in device memory begin with, 0 by the sizing rules.
    pub group_slots: usize,
    /// `warpline.blocks`: blocks of a kernel a multiprocessor at most, 0 for as many as it holds.
    pub blocks: usize,
}

impl Default for WarplineConfig {
    fn default() -> Self {
        Self {
            device: DeviceSetting::default(),
            require_gpu: false,
            min_rows: DEFAULT_MIN_ROWS,
            device_set: 0,
            device_memory: 0,
            host_memory: 0,
            spill_directory: String::new(),
            time_limit: TimeLimit::default(),
            inject_failures: Failures::default(),
            group_by: GroupSetting::Auto,
            plan_cache: true,
            plan_cache_size: DEFAULT_PLAN_CACHE_SIZE,
            join: JoinSetting::Auto,
            triton: false,
            pipeline: PipelineShape::Auto,
            load_balance: LoadBalance::Auto,
            fws_threshold: TreeOptions::default().fws_threshold,
            materialization: Materialization::default(),
            index_joins: IndexJoins::Auto,
            overlap_load: true,
            metrics: false,
            group_slots: 0,
            blocks: 0,
        }
    }
}

/// A launch, the copy of its answer and the stream's synchronisation take about a tenth of a
/// millisecond together, in which DataFusion aggregates some ten thousand rows on a few cores.
pub const DEFAULT_MIN_ROWS: usize = 10_000;

/// A prepared plan takes some hundred kilobytes, with its kernels and their tables on the device.
pub const DEFAULT_PLAN_CACHE_SIZE: usize = 256;

impl ConfigExtension for WarplineConfig {
    const PREFIX: &'static str = "warpline";
}

impl WarplineConfig {
    /// The settings of a session; the defaults when it was built without them.
    pub fn of(options: &ConfigOptions) -> Self {
        options
            .extensions
            .get::<Self>()
            .cloned()
            .unwrap_or_default()
    }

    /// The directory for spilled rows, when one is named.
    ///
    /// # Errors
    /// [`GpuError::Spill`] when it cannot be made or read.
    pub fn spill(&self) -> Result<Option<Arc<SpillDirectory>>, GpuError> {
        match self.spill_directory.as_str() {
            "" => Ok(None),
            path => SpillDirectory::open(Path::new(path)).map(Some),
        }
    }

    /// Rows below which a table stays on the CPU; none are too few when the GPU is required.
    pub fn effective_min_rows(&self) -> usize {
        if self.require_gpu { 0 } else { self.min_rows }
    }
}

impl ExtensionOptions for WarplineConfig {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "device" => {
                self.device = value.parse().map_err(DataFusionError::from)?;
                self.device_set = DEVICE_SET.fetch_add(1, Ordering::Relaxed) + 1;
            }
            "require_gpu" => self.require_gpu = boolean("warpline.require_gpu", value)?,
            "plan_cache" => self.plan_cache = boolean("warpline.plan_cache", value)?,
            "plan_cache_size" => {
                self.plan_cache_size = whole_number("warpline.plan_cache_size", value)?;
            }
            "min_rows" => self.min_rows = whole_number("warpline.min_rows", value)?,
            "device_memory" => {
                self.device_memory = match value.trim() {
                    "0" => 0,
                    size => size.parse::<ByteSize>()?.0,
                };
            }
            "time_limit" => self.time_limit = value.parse().map_err(DataFusionError::from)?,
            "inject_failures" => {
                self.inject_failures = value.parse().map_err(DataFusionError::from)?;
            }
            "group_by" => self.group_by = value.parse().map_err(DataFusionError::from)?,
            "host_memory" => {
                self.host_memory = match value.trim() {
                    "0" => 0,
                    size => size.parse::<ByteSize>()?.0,
                };
            }
            "spill_directory" => self.spill_directory = value.trim().to_string(),
            "join" => {
                self.triton = value.trim().eq_ignore_ascii_case(TRITON);
                self.join = match self.triton {
                    true => JoinSetting::Force(JoinAlgorithm::PhjTr),
                    false => value.parse().map_err(DataFusionError::from)?,
                };
            }
            "pipeline" => self.pipeline = pipeline_shape(value)?,
            "load_balance" => {
                self.load_balance = value.parse().map_err(DataFusionError::from)?;
            }
            "fws_threshold" => self.fws_threshold = threshold(value)?,
            "materialization" => {
                self.materialization = value.parse().map_err(DataFusionError::from)?;
            }
            "index_joins" => self.index_joins = value.parse().map_err(DataFusionError::from)?,
            "overlap_load" => self.overlap_load = boolean("warpline.overlap_load", value)?,
            "metrics" => self.metrics = boolean("warpline.metrics", value)?,
            "group_slots" => self.group_slots = whole_number("warpline.group_slots", value)?,
            "blocks" => self.blocks = whole_number("warpline.blocks", value)?,
            _ => {
                let names: Vec<_> = self.entries().into_iter().map(|entry| entry.key).collect();
                return Err(DataFusionError::Configuration(format!(
                    "there is no setting warpline.{key}; the settings are {}",
                    names.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Keys bear the prefix: SHOW looks settings up by these names.
    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |name: &str, value: String, description| ConfigEntry {
            key: format!("{}.{name}", Self::PREFIX),
            value: Some(value),
            description,
        };
        vec![
            entry(
                "device",
                self.device.to_string(),
                "Device that runs fragments: auto (the first usable GPU, else the CPU), cpu, emulator, cuda or \
                 cuda:N. A lost device is opened again when this is set, also to what it was.",
            ),
            entry(
                "require_gpu",
                self.require_gpu.to_string(),
                "When true, a query of which any part would fall back to the CPU is an error; \
                 warpline.min_rows does not apply then.",
            ),
            entry(
                "min_rows",
                self.min_rows.to_string(),
                "Tables with fewer rows stay on the CPU, which is done with them before a kernel is launched and \
                 its answer fetched.",
            ),
            entry(
                "device_memory",
                self.device_memory.to_string(),
                "Device memory that Warpline may use, e.g. 512MiB or 16GB; 0 means all but a reserve. What is kept \
                 beyond a smaller one is let go of with the next query.",
            ),
            entry(
                "time_limit",
                self.time_limit.to_string(),
                "How long a query may run, e.g. 500ms, 10s or 5min, before it is stopped and its memory freed; 0 means \
                 no limit.",
            ),
            entry(
                "inject_failures",
                self.inject_failures.to_string(),
                "For tests: calls of the device that fail, as rules separated by commas: allocate, device_allocate, copy, \
                 upload, download, fill, launch, compile, cubin, synchronize, stream, stop or lost, and after a colon N (the \
                 N-th call from now), N:COUNT, random:SEED:P, or nothing (every call). Empty for none.",
            ),
            entry(
                "host_memory",
                self.host_memory.to_string(),
                "Page-locked host memory, e.g. 64GiB, that columns and results may take where device memory has no room for \
                 them; 0 means half of the host's.",
            ),
            entry(
                "spill_directory",
                self.spill_directory.clone(),
                "A directory, made if need be, for files of the rows of joins, group-bys and sorts that neither device \
                 memory nor warpline.host_memory has room for; they go with the query. Empty for none: such a query is answered by the \
                 CPU or ends in an error.",
            ),
            entry(
                "group_by",
                self.group_by.to_string(),
                "How grouped aggregations are done: auto (by price), private (states in registers), shared (in \
                 shared memory), global (in device memory), hgb (numbered by a hash table), sgb_ur, sgb_tr or \
                 sgb_de_tr (sorted; payload gathered, sorted along, keys replaced by numbers), pgb_ur or pgb_tr \
                 (partitioned). Where a query makes the algorithm impossible, auto applies and EXPLAIN says why.",
            ),
            entry(
                "plan_cache",
                self.plan_cache.to_string(),
                "When true, a query whose text, tables, data and settings are those of an earlier one runs that \
                 one's plan.",
            ),
            entry(
                "plan_cache_size",
                self.plan_cache_size.to_string(),
                "Most queries whose plans a session keeps; the least recently used go first.",
            ),
            entry(
                "join",
                match self.triton {
                    true => TRITON.to_string(),
                    false => self.join.to_string(),
                },
                "How joins are done: auto (by price), perfect (an array over all possible keys), nphj (a hash \
                 table in device memory), phj_ur or phj_tr (partitioned hash join; payload gathered or partitioned \
                 along), smj_ur or smj_tr (sort-merge join; payload gathered or sorted along), triton (phj_tr after a \
                 pass that partitions both sides into host memory). Where a query makes \
                 the algorithm impossible, auto applies and EXPLAIN says why.",
            ),
            entry(
                "pipeline",
                self.pipeline.to_string(),
                "The shape of pipelines in which rows have many matches in an index: auto (by price), tile (the matches \
                 are counted, then a second pipeline goes over the pairs) or tree (warps follow the matches and share \
                 the work).",
            ),
            entry(
                "load_balance",
                self.load_balance.to_string(),
                "How the warps of tree-shaped pipelines share work: auto, none (each lane follows its own rows), fws \
                 (pieces of a fixed size), nifs (the lanes of a warp share) or nifs_aws (warps share as well). Any \
                 but auto makes trees of all pipelines that can be one, unless warpline.pipeline is tile.",
            ),
            entry(
                "fws_threshold",
                self.fws_threshold.to_string(),
                "Matches in a piece of work with warpline.load_balance = fws, e.g. 1024 to 16384.",
            ),
            entry(
                "materialization",
                self.materialization.to_string(),
                "When tree-shaped pipelines read column values: lazy (when an operator needs them) or eager (when a \
                 row is visited first).",
            ),
            entry(
                "group_slots",
                self.group_slots.to_string(),
                "Slots, a power of two or rounded up to one, that hash tables of groups in device memory begin with; they \
                 grow when that is too few. 0 sizes them by the groups to expect and the device's caches.",
            ),
            entry(
                "blocks",
                self.blocks.to_string(),
                "Blocks of a kernel that run on a multiprocessor at most; 0 means as many as it holds. For measuring.",
            ),
            entry(
                "index_joins",
                self.index_joins.to_string(),
                "Whether indexes over all rows of a table stay on the device for later queries, and are joined with: \
                 auto (where that is cheaper), on (wherever a table is joined by its columns) or off.",
            ),
            entry(
                "overlap_load",
                self.overlap_load.to_string(),
                "When true, the kernels of a query begin while later row groups of its largest parquet table are still decoded, \
                 if the table's metadata tells how its columns are going to lie.",
            ),
            entry(
                "metrics",
                self.metrics.to_string(),
                "When true, tree-shaped pipelines count idle lanes and busy cycles for EXPLAIN ANALYZE and reports, \
                 which costs a little time.",
            ),
        ]
    }
}

fn boolean(setting: &'static str, value: &str) -> Result<bool, PlannerError> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(PlannerError::Setting {
            setting,
            value: value.to_string(),
            valid: "true, false",
        }),
    }
}

fn threshold(value: &str) -> Result<u32, PlannerError> {
    match value.trim().parse() {
        Ok(threshold) if threshold > 0 => Ok(threshold),
        _ => Err(PlannerError::Setting {
            setting: "warpline.fws_threshold",
            value: value.to_string(),
            valid: "positive whole numbers below 2^32",
        }),
    }
}

fn whole_number(setting: &'static str, value: &str) -> Result<usize, PlannerError> {
    value.trim().parse().map_err(|_| PlannerError::Setting {
        setting,
        value: value.to_string(),
        valid: "0 and positive whole numbers",
    })
}
