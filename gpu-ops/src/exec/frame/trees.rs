//! What the launch of a tree-shaped kernel needs beside its arguments, and what the kernel counted.

use crate::codegen::TreeLayout;
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::prepare::prepared::PreparedKernel;
use crate::memory::DeviceBuffer;

/// Where `TreeCounters` of `tree_share.cuh` has its visits, in words of 8 bytes; idle lanes, busy cycles, the most of one
/// warp and its visits follow.
const VISITS: usize = 48;

/// Memory of one launch: zeroed words, and buffers.
pub(in crate::exec) struct TreeMemory {
    words: DeviceBuffer,
    buffers: DeviceBuffer,
    warps: u64,
    metrics: bool,
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

/// Blocks of a launch over `rows` rows.
pub(in crate::exec) fn blocks_of(kernel: &PreparedKernel, rows: u64) -> u64 {
    match &kernel.tree {
        None => rows.div_ceil(kernel.tile_rows),
        // A single row may have work for all.
        Some(layout) if layout.balance.shares() => kernel.most_blocks,
        Some(_) => rows.div_ceil(u64::from(kernel.block_threads)),
    }
    .clamp(1, kernel.most_blocks)
}

impl TreeMemory {
    pub(in crate::exec) fn words(&self) -> u64 {
        self.words.ptr().0
    }

    pub(in crate::exec) fn buffers(&self) -> u64 {
        self.buffers.ptr().0
    }

    /// What the kernel counted; waits for the device.
    pub(in crate::exec) fn metrics(&self, run: &Run<'_>) -> Result<Option<TreeMetrics>> {
        if !self.metrics {
            return Ok(None);
        }
        let words: Vec<u64> = self.words.download_values(run.stream, 0, VISITS + 5)?;
        let word = |i: usize| words.get(VISITS + i).copied().unwrap_or(0);
        Ok(Some(TreeMetrics {
            warps: self.warps,
            visits: word(0),
            idle_lanes: word(1),
            busy_cycles: word(2),
            most_busy_cycles: word(3),
            most_visits: word(4),
        }))
    }
}

impl Run<'_> {
    /// Memory for a launch of `blocks` blocks, with its words zeroed.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`].
    pub(in crate::exec) fn tree_memory(
        &mut self,
        kernel: &PreparedKernel,
        layout: TreeLayout,
        blocks: u64,
    ) -> Result<TreeMemory> {
        let warps = blocks * u64::from(kernel.block_threads / 32);
        let bytes = |words: u64| {
            usize::try_from(words * 4).map_err(|_| GpuError::Internal("queues of warps".into()))
        };
        let words = self
            .recycler
            .allocate(bytes(layout.words(warps))?, "queues of a pipeline")?;
        let buffers = self
            .recycler
            .allocate(bytes(layout.buffer_words(warps))?, "queues of a pipeline")?;
        words.fill(self.stream, 0)?;
        Ok(TreeMemory {
            words,
            buffers,
            warps,
            metrics: layout.metrics,
        })
    }
}
