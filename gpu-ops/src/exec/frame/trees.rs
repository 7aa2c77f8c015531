//! What the launch of a tree-shaped kernel needs beside its arguments, and what the kernel counted.

use std::sync::Arc;

use crate::codegen::TreeLayout;
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::storage::Recycler;
use crate::exec::node::report::TreeMetrics;
use crate::exec::prepare::kernel::PreparedKernel;
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

    /// Nobody uses it any more.
    pub(in crate::exec) fn release(self, recycler: &mut Recycler) {
        recycler.take_buffer(Arc::new(self.words));
        recycler.take_buffer(Arc::new(self.buffers));
    }

    /// What the kernel counted; waits for the device.
    pub(in crate::exec) fn metrics(&self, stream: &Stream) -> Result<Option<TreeMetrics>> {
        if !self.metrics {
            return Ok(None);
        }
        let words: Vec<u64> = self.words.download_values(stream, 0, VISITS + 5)?;
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

impl TreeMemory {
    /// Memory for a launch of `blocks` blocks, with its words zeroed.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`].
    pub(in crate::exec) fn new(
        kernel: &PreparedKernel,
        layout: TreeLayout,
        blocks: u64,
        recycler: &mut Recycler,
        stream: &Stream,
    ) -> Result<Self> {
        let warps = blocks * u64::from(kernel.block_threads / 32);
        let bytes = |words: u64| {
            usize::try_from(words * 4).map_err(|_| GpuError::Internal("queues of warps".into()))
        };
        let purpose = "queues of a pipeline";
        let words = recycler.allocate(bytes(layout.words(warps))?, purpose)?;
        let buffers = recycler.allocate(bytes(layout.buffer_words(warps))?, purpose)?;
        words.fill(stream, 0)?;
        Ok(Self {
            words,
            buffers,
            warps,
            metrics: layout.metrics,
        })
    }
}
