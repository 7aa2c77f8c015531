//! Hand-written kernels behind host functions: sums, sorts, join indexes, gathered strings.
//!
//! Everything is queued on the given stream and returns without waiting, unless a function says otherwise.
//! Scratch memory comes from the runtime's pool and goes back at once: the pool hands it out
//! again for what follows on the same stream, and for others after the work that was queued before.
//!
//! Addresses come in as [`DevicePtr`]s, because the data are often parts of larger buffers; hence the functions
//! are `unsafe`: the caller vouches that each range is live device memory of the size that the function names.

mod arrow;
mod columns;
mod groups;
mod index;
mod pair_tables;
mod pairs;
mod partition;
mod partition_preallocated;
mod partition_unstable;
mod runs;
mod scan;
mod sort;
mod string_order;
mod strings;
mod window;
mod window_first;
mod write_combine;

pub use arrow::{CodesToWiden, pack_flags, widen_codes};
pub use columns::{
    KeyDigits, compile_gather, compile_run_lengths, gather, histogram, run_lengths, scatter,
};
pub use groups::{GroupNumbers, TakenWords, compile_group_numbers, count_groups, number_groups};
pub use index::{
    HashTable, KeyedRows, RankedRanges, WordKeys, build_dense_ranges, build_ranges,
    build_ranked_ranges, build_sorted, insert_set, insert_unique, rank_words, slots_for,
};
pub use pair_tables::{PartitionJoin, another_table_serves, compile_partition_join};
pub use pairs::{
    PairJoin, PairKind, PairList, Side, compile_merge_join, join_dense_partitions, join_partitions,
    merge_join, partition_bits,
};
pub use partition::{
    Digits, Keys, Partitioning, Payload, compile_partition, pass_columns, radix_partition,
};
pub use partition_preallocated::{
    Partitions, Rooms, can_preallocate, largest_partitions, radix_partition_preallocated,
};
pub use partition_unstable::{
    UnstablePart, compile_partition_unstable, is_unstable, keeps_hashes, radix_partition_unstable,
};
pub use runs::{ByteRun, copy_runs};
pub use scan::exclusive_sum;
pub use sort::{RangeKeys, finds_first, number_ranges, sort_first_rows, sort_rows};
pub(crate) use string_order::{sort_strings, string_sort_bits};
pub use strings::{StringRows, copy_strings, gather_strings, string_offsets};
pub(crate) use warpline_cuda::kernels::MOST_SORT_WORDS;
pub use window::{
    Frames, RunningCombine, RunningValue, WindowNumbers, compile_extremes, compile_running,
    frame_extremes, frame_squares, number_windows, running,
};
pub use window_first::{Numbering, OrderedKeys, first_of_partitions};
pub use write_combine::{Combine, KeyValues, LinkPartition, partition_across_link};

use warpline_cuda::KernelArgs;

use crate::device::{DevicePtr, Kernel, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;

/// Threads of a block of most kernels here.
const BLOCK: u32 = 256;

/// How many rows there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowCount {
    /// The host knows.
    Known(u64),
    /// Only the device knows: the smaller of `*count` (`u64*`) and `most`.
    Device {
        /// Where the number is when the kernels run.
        count: DevicePtr,
        /// An upper bound; memory and grids are sized by it.
        most: u64,
    },
}

impl RowCount {
    /// The number, or its upper bound.
    pub fn most(self) -> u64 {
        match self {
            Self::Known(rows) => rows,
            Self::Device { most, .. } => most,
        }
    }

    /// The address of the number; null when the host knows it.
    fn count(self) -> DevicePtr {
        match self {
            Self::Known(_) => DevicePtr::NULL,
            Self::Device { count, .. } => count,
        }
    }
}

/// A grid of blocks that go over `items` in strides, `per_block` at a time: no more than the device
/// holds at once, at least one.
fn grid(runtime: &Runtime, items: u64, per_block: u64) -> u32 {
    let resident = u64::from(runtime.device().info().multiprocessors.max(1)) * 8;
    u32::try_from(items.div_ceil(per_block).clamp(1, resident)).unwrap_or(u32::MAX)
}

/// A launch in which blocks of [`BLOCK`] threads go over `items` items, one a thread at a time.
fn one_each(runtime: &Runtime, items: u64) -> LaunchConfig {
    LaunchConfig {
        grid: grid(runtime, items, u64::from(BLOCK)),
        block: BLOCK,
        shared_bytes: 0,
    }
}

/// Queue one launch of a kernel of this module.
///
/// # Safety
/// As [`crate::device::Device::launch`].
pub(crate) unsafe fn launch(
    runtime: &Runtime,
    stream: &Stream,
    kernel: &Kernel,
    config: LaunchConfig,
    arguments: &impl KernelArgs,
) -> Result<()> {
    // SAFETY: the caller vouches for the addresses; the struct is the kernel's own.
    unsafe {
        runtime
            .device()
            .launch(stream, kernel, config, arguments.as_bytes())
    }
}

/// Set `bytes` bytes of device memory to `value`.
///
/// # Safety
/// The range is live device memory.
unsafe fn fill(
    runtime: &Runtime,
    stream: &Stream,
    ptr: DevicePtr,
    value: u8,
    bytes: u64,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller vouches for the range.
    unsafe { runtime.device().fill(stream, ptr, value, to_usize(bytes)?) }
}

/// Scratch memory of `count` values of `width` bytes for work on `stream` alone.
fn scratch(
    runtime: &Runtime,
    stream: &Stream,
    count: u64,
    width: u64,
    purpose: &str,
) -> Result<DeviceBuffer> {
    let bytes = count
        .checked_mul(width)
        .map_or(Err(too_many(count)), to_usize)?;
    runtime.working_memory(stream, bytes, purpose)
}

fn to_usize(count: u64) -> Result<usize> {
    usize::try_from(count).map_err(|_| too_many(count))
}

fn too_many(count: u64) -> GpuError {
    GpuError::Unsupported(format!("{count} rows in one device operation"))
}

/// Row and slot numbers take 32 bits; the last is a mark.
fn check_numbered(what: &str, count: u64) -> Result<()> {
    if count < u64::from(u32::MAX) {
        return Ok(());
    }
    Err(GpuError::Unsupported(format!(
        "{what} of {count}: numbers of rows on the device have 32 bits"
    )))
}
