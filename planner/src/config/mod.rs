//! The settings under `warpline.`: each declared once, with its type, default and description.
//!
//! `SET`, `SHOW`, plans for other machines, reports and `docs/SETTINGS.md` read [`SETTINGS`], which the declaration makes. To
//! add a setting, add it there and rewrite the page (`WARPLINE_BLESS=1` with this crate's tests).

mod declare;
mod failures;
mod kinds;
mod names;
mod travel;

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use warpline_gpu::GpuError;
use warpline_gpu::algorithm::{Materialization, PipelineShape};
use warpline_gpu::exec::{ColdStart, TimeLimit};
use warpline_gpu::graph::TreeOptions;
use warpline_gpu::memory::SpillDirectory;
use warpline_gpu::parquet::ParquetReader;

pub use declare::{Scope, SettingInfo};
pub use failures::Failures;
use kinds::{Bytes, Count, Flag, OneOf, Parsed, Positive, Text};
pub use names::{
    ComputedColumns, DeviceSetting, GroupSetting, IndexJoins, JoinMode, JoinSetting, LaneRefill,
    LateColumns, LoadBalance, Named, RangeJoins, Reentry, Setting, ShardPlan, Shards, Switch,
    named,
};

declare::settings! {
    /// Device that runs fragments: auto (the first usable GPU, else the CPU), cpu, emulator, cuda or cuda:N; or several that
    /// answer queries together, in a session that was opened with several: cuda:0,1, cuda:all or emulator:N. A lost device
    /// is opened again when this is set, also to what it was.
    device: DeviceSetting as Parsed = DeviceSetting::default(), session;

    /// Device memory that Warpline may use, e.g. 512MiB or 16GB, on each device; 0 means all but a reserve. After a
    /// smaller value, the next query evicts cached columns beyond it.
    device_memory: usize as Bytes = 0, session;

    /// Page-locked host memory, e.g. 64GiB, for columns and results that do not fit in device memory; 0 means half of
    /// the host's. Several devices have equal parts of it.
    host_memory: usize as Bytes = 0, session;

    /// How many devices of a session that has several share a query: auto (all of them where one would take long, or
    /// does not hold its tables; else one) or a number, which counts where a table can be shared out: as whole files, or
    /// as batches of a table in memory.
    shards: Shards as Parsed = Shards::Auto, session;

    /// What devices that share a query do with each other's rows: auto (local where a table can be dealt out so, else
    /// stages), local (each runs the query over its part of one table, over the whole of others and the parts of those that
    /// are joined by the same key; only results meet) or stages (rows go from device to device, through the host).
    shard_plan: ShardPlan as OneOf = ShardPlan::Auto, session;

    /// A directory, created if need be, for rows of joins, group-bys and sorts that fit neither in device memory nor
    /// in warpline.host_memory; the files are deleted with the query. Empty for none: such a query is answered by the
    /// CPU or ends in an error.
    spill_directory: String as Text = String::new(), session;

    /// How many kernels are compiled at once at most, by as many helper processes; 0 means as many as there are cores.
    /// One number for all sessions of a program: the last one set.
    compile_processes: usize as Count = 0, session;

    /// How many queries of all sessions run on the device at once at most; the others wait, and short ones go first. 0
    /// means half as many as there are cores, at least 4 and at most 8.
    concurrency: usize as Count = 0, session;

    /// When true, queries that ask for the same of the same data at the same time, in whatever sessions, share one run on
    /// the device.
    share_queries: bool as Flag = true, session;

    /// When true, a query of which any part would fall back to the CPU is an error; warpline.min_rows does not apply
    /// then.
    require_gpu: bool as Flag = false, query;

    /// Tables with fewer rows stay on the CPU, which answers sooner than a kernel can be launched and its result
    /// fetched.
    min_rows: usize as Count = DEFAULT_MIN_ROWS, session;

    /// How long a query may run, e.g. 500ms, 10s or 5min, before it is stopped and its memory freed; 0 means no
    /// limit.
    time_limit: TimeLimit as Parsed = TimeLimit::default(), session;

    /// When true, a query whose text, tables, data and settings are those of an earlier one reuses its plan.
    plan_cache: bool as Flag = true, session;

    /// How many plans a session keeps at most; the least recently used are dropped first.
    plan_cache_size: usize as Count = DEFAULT_PLAN_CACHE_SIZE, session;

    /// When true, kernels start on the first row groups of a query's largest parquet table while later ones are still
    /// decoded, if the files' metadata determines how the columns are encoded.
    overlap_load: bool as Flag = true, query;

    /// Who decodes the columns of local parquet files: cpu, device (chunk by chunk, where it can) or auto (the device,
    /// where it can and is expected to be sooner; never the emulator). EXPLAIN ANALYZE counts the chunks that the CPU
    /// decoded, and why. Kernels do not start on rows of a table that the device decodes before all have come.
    parquet: ParquetReader as OneOf = ParquetReader::default(), query;

    /// What a query does while its columns are loaded and its kernels compiled: auto (the CPU runs its plan beside the
    /// device where it is expected to be first, and the first to finish answers), race (it does so
    /// wherever anything is to be loaded or compiled) or wait. Never under warpline.require_gpu.
    cold: ColdStart as OneOf = ColdStart::default(), query;

    /// Whether indexes over whole tables stay on the device for later queries and are joined with: auto (where that
    /// is cheaper), on (wherever a table is joined by its columns) or off.
    index_joins: IndexJoins as OneOf = IndexJoins::Auto, query;

    /// Whether rows that an operator on the CPU has computed go back to the device for the operators above it: auto
    /// (where that is cheaper), on (wherever the device runs these) or off.
    reentry: Reentry as OneOf = Reentry::Auto, query;

    /// How joins are done: auto (by price), perfect (an array over all possible keys), nphj (a hash table in device
    /// memory), phj_ur or phj_tr (partitioned hash join; payload gathered or partitioned along), smj_ur or smj_tr
    /// (sort-merge join; payload gathered or sorted along), triton (phj_tr after a pass that partitions both sides
    /// into host memory). Where a query makes the algorithm impossible, auto applies and EXPLAIN says why.
    join: JoinMode as OneOf = JoinMode::default(), query;

    /// How joins by `<`, `<=`, `>`, `>=` and BETWEEN are done: auto (by price), sorted (one side is sorted, the other one searches it)
    /// or pairs (each pair of rows with equal keys is tested).
    range_joins: RangeJoins as OneOf = RangeJoins::Auto, query;

    /// Whether an order of a table's rows of which the first ones are asked for reads the other columns for these alone, once it
    /// has found them by their keys: auto (where that is cheaper), on (wherever possible) or off.
    late_columns: LateColumns as OneOf = LateColumns::Auto, query;

    /// Whether the warps of a kernel over a table gather the rows that are left after some of its conditions and look-ups, and go on
    /// with 32 of them at a time: auto (where few are thought to be left), on (wherever possible) or off.
    lane_refill: LaneRefill as OneOf = LaneRefill::Auto, query;

    /// How grouped aggregations are done: auto (by price), private (states in registers), shared (in shared memory),
    /// global (in device memory), runs (of rows in the order of the key), hgb (numbered by a hash table), sgb_ur, sgb_tr or
    /// sgb_de_tr (sorted; payload gathered, sorted along, keys replaced by numbers), pgb_ur or pgb_tr (partitioned). Where a
    /// query makes the algorithm impossible, auto applies and EXPLAIN says why.
    group_by: GroupSetting as OneOf = GroupSetting::Auto, query;

    /// When true, what kernels do not compute is evaluated once for every combination of the values of its columns, if
    /// these are few, and looked up on the device; where they turn out to be too many, the query is cut into smaller
    /// parts around it.
    value_tables: bool as Flag = true, query;

    /// Whether what kernels do not compute of a table's columns becomes a column of the table, which DataFusion computes once for
    /// all of its rows and which stays on the device like any other: auto (where an operator would have to run on the CPU), on (wherever
    /// possible) or off.
    computed_columns: ComputedColumns as OneOf = ComputedColumns::Auto, query;

    /// The shape of pipelines in which rows have many matches in an index: auto (by price), tile (the matches are
    /// counted, then a second pipeline goes over the pairs) or tree (warps follow the matches and share the work).
    pipeline: PipelineShape as OneOf = PipelineShape::Auto, query;

    /// How the warps of tree-shaped pipelines share work: auto, none (each lane follows its own rows), fws (pieces of
    /// a fixed size), nifs (the lanes of a warp share) or nifs_aws (warps share as well). Any but auto makes trees of
    /// all pipelines that can be one, unless warpline.pipeline is tile.
    load_balance: LoadBalance as OneOf = LoadBalance::Auto, query;

    /// Matches in one piece of work under warpline.load_balance = fws, e.g. 1024 to 16384.
    fws_threshold: u32 as Positive = TreeOptions::default().fws_threshold, query;

    /// When tree-shaped pipelines read column values: lazy (when an operator needs them) or eager (when a row is
    /// visited first).
    materialization: Materialization as OneOf = Materialization::default(), query;

    /// Initial slots of hash tables of groups in device memory, rounded up to a power of two; they grow when that is
    /// too few. 0 sizes them by the expected groups and the device's caches.
    group_slots: usize as Count = 0, query;

    /// Most blocks of a kernel on a multiprocessor; 0 means as many as fit. For measuring.
    blocks: usize as Count = 0, query;

    /// When true, tree-shaped pipelines count idle lanes and busy cycles for EXPLAIN ANALYZE and reports, at a small
    /// cost.
    metrics: bool as Flag = false, query;

    /// For tests: calls of the device that fail, as rules separated by commas: allocate, device_allocate, copy,
    /// upload, download, fill, launch, compile, cubin, synchronize, stream, stop or lost, and after a colon N (the
    /// N-th call from now), N:COUNT, random:SEED:P, or nothing (every call). Empty for none.
    inject_failures: Failures as Parsed = Failures::default(), session;
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
        match SETTINGS.iter().find(|setting| setting.name == key) {
            Some(setting) => setting.write(self, value),
            None => {
                let names: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
                Err(DataFusionError::Configuration(format!(
                    "there is no setting warpline.{key}; the settings are {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// Keys bear the prefix: SHOW looks settings up by these names.
    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |setting: &SettingInfo| ConfigEntry {
            key: setting.key.to_string(),
            value: Some(setting.read(self)),
            description: setting.about,
        };
        SETTINGS.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests;
