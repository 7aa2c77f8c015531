//! Statistics of a device's memory: usage, cached columns and indexes, and the relief ladder.

use std::fmt;

use warpline_gpu::memory::LadderCounts;
use warpline_gpu::runtime::Runtime;
pub use warpline_gpu::tables::ResidentColumn;
use warpline_planner::ByteSize;
use warpline_tpch::MemoryLadder;

/// The state of a device's memory at one moment, and counts since the device was opened. Sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The limit.
    pub budget: usize,
    /// In use by columns, indexes and running queries.
    pub in_use: usize,
    /// Peak usage.
    pub peak: usize,
    /// Free blocks, ready for reuse.
    pub cached: usize,
    /// Cached columns.
    pub columns: usize,
    /// Their bytes.
    pub column_bytes: usize,
    /// Cached indexes.
    pub indexes: usize,
    /// Their bytes.
    pub index_bytes: usize,
    /// Queries that run on the device.
    pub queries: usize,
    /// Allocations that were refused.
    pub refusals: u64,
    /// What was done when memory was short.
    pub ladder: MemoryLadder,
    /// Why the device is lost.
    pub lost: Option<String>,
}

impl DeviceMemory {
    pub(crate) fn of(runtime: &Runtime) -> Self {
        let statistics = runtime.pool().statistics();
        let columns = runtime.tables().resident();
        let (indexes, index_bytes) = runtime.kept_indexes();
        Self {
            budget: statistics.budget,
            in_use: statistics.in_use,
            peak: statistics.peak,
            cached: statistics.cached,
            columns: columns.len(),
            column_bytes: columns.iter().map(|column| column.bytes).sum(),
            indexes,
            index_bytes,
            queries: runtime.pool().queries(),
            refusals: statistics.refusals,
            ladder: ladder_of(runtime.ladder()),
            lost: runtime.lost(),
        }
    }
}

impl DeviceMemory {
    /// Both together; of causes of a loss all.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let lost: Vec<String> = [self.lost, other.lost].into_iter().flatten().collect();
        Self {
            budget: self.budget + other.budget,
            in_use: self.in_use + other.in_use,
            peak: self.peak + other.peak,
            cached: self.cached + other.cached,
            columns: self.columns + other.columns,
            column_bytes: self.column_bytes + other.column_bytes,
            indexes: self.indexes + other.indexes,
            index_bytes: self.index_bytes + other.index_bytes,
            queries: self.queries + other.queries,
            refusals: self.refusals + other.refusals,
            ladder: self.ladder.plus(other.ladder),
            lost: (!lost.is_empty()).then(|| lost.join("; ")),
        }
    }
}

/// One of the devices of a session.
#[derive(Debug, Clone)]
pub struct DeviceState {
    /// The device in words: `NVIDIA H200 (cuda:0)`, `emulator:1`.
    pub name: String,
    /// The state of its memory.
    pub memory: DeviceMemory,
    /// Its cached columns, by table and name.
    pub columns: Vec<ResidentColumn>,
}

impl DeviceState {
    pub(crate) fn of(name: String, runtime: &Runtime) -> Self {
        Self {
            name,
            memory: DeviceMemory::of(runtime),
            columns: runtime.tables().resident(),
        }
    }
}

impl fmt::Display for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: usize| ByteSize(bytes).to_string();
        writeln!(
            f,
            "in use    {} of {}, at most so far {}; {} more in free blocks",
            size(self.in_use),
            size(self.budget),
            size(self.peak),
            size(self.cached)
        )?;
        writeln!(
            f,
            "kept      {} columns, {}; {} indexes, {}",
            self.columns,
            size(self.column_bytes),
            self.indexes,
            size(self.index_bytes)
        )?;
        let ladder = &self.ladder;
        write!(
            f,
            "shortage  {} evictions, {} waits, {} repeated runs, {} out of core, {} on the CPU; {} refusals",
            ladder.evictions,
            ladder.memory_waits,
            ladder.repeats,
            ladder.out_of_core,
            ladder.cpu_fallbacks,
            self.refusals
        )?;
        if self.queries > 0 {
            write!(f, "\nrunning   {} queries", self.queries)?;
        }
        match &self.lost {
            Some(cause) => write!(
                f,
                "\nlost      {cause}; SET warpline.device opens the device again"
            ),
            None => Ok(()),
        }
    }
}

/// The counts by the names of reports.
pub(crate) fn ladder_of(counts: LadderCounts) -> MemoryLadder {
    MemoryLadder {
        memory_waits: counts.waits,
        evictions: counts.evictions,
        repeats: counts.repeats,
        out_of_core: counts.out_of_core,
        cpu_fallbacks: counts.cpu,
    }
}
