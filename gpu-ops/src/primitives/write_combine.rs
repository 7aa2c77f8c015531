//! Partitions written straight to host memory, with write combining so that the link carries whole lines.

use warpline_cuda::kernels::{WRITE_COMBINE_THREADS, WriteCombineArgs, WriteCombineShape};

use super::launch;
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// Shared memory that the buffers of a block may take, where the device has it, in bytes.
const SHARED_BYTES: usize = 200 << 10;
/// Most rows of a buffer in shared memory: four lines of 128 bytes of keys.
const MOST_SLOTS: usize = 64;
/// Rows of a buffer in device memory: as many, or four times a buffer in shared memory.
const BEHIND: u32 = 64;
/// Most partitions.
const MOST_FANOUT: u32 = 1 << 12;

/// Where rows are gathered before they are written (Lutz et al., "Triton Join", SIGMOD 2022, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// Nowhere: each is written by itself.
    Not,
    /// In shared memory.
    Shared,
    /// In shared memory, then in device memory.
    Hierarchical,
}

/// Columns of keys and values of 8 bytes.
#[derive(Debug, Clone, Copy)]
pub struct KeyValues {
    /// The first key.
    pub keys: DevicePtr,
    /// The first value.
    pub values: DevicePtr,
}

/// Rows that are partitioned across the link.
#[derive(Debug, Clone, Copy)]
pub struct LinkPartition {
    /// Where they are.
    pub from: KeyValues,
    /// Where they go.
    pub to: KeyValues,
    /// How many.
    pub rows: u64,
    /// The first place of each partition (`u64*`), …
    pub front: DevicePtr,
    /// … and the one behind its last. Both move.
    pub back: DevicePtr,
    /// How many partitions.
    pub fanout: u32,
}

/// Split rows into partitions by the lowest bits of their keys, in no order. Partition `p` gets the places from `front[p]` to
/// before `back[p]`, which are as many as it has rows.
///
/// # Errors
/// [`GpuError::Internal`] when `fanout` is no power of two from 2 to 4096 or its buffers do not fit shared memory;
/// [`GpuError::OutOfDeviceMemory`] for buffers in device memory, [`GpuError::Compile`] and [`GpuError::Device`].
///
/// # Safety
/// Sources have `rows` rows, targets a row at every place; `front` and `back` have `fanout` words; none overlap. Memory may be
/// that of the host.
pub unsafe fn partition_across_link(
    runtime: &Runtime,
    stream: &Stream,
    of: &LinkPartition,
    combine: Combine,
) -> Result<()> {
    let LinkPartition {
        from,
        to,
        rows,
        front,
        back,
        fanout,
    } = *of;
    let info = runtime.device().info();
    let shape = shape(fanout, combine, info.shared_memory_per_block)?;
    let blocks_of = |bytes: usize| info.shared_memory_per_multiprocessor / bytes.max(1);
    let resident = info.multiprocessors.max(1) * blocks_of(shape.shared_bytes()).clamp(1, 2) as u32;
    let needed = rows.div_ceil(WRITE_COMBINE_THREADS.into()).max(1);
    let grid = u32::try_from(needed).unwrap_or(u32::MAX).min(resident);
    let behind = match shape.behind {
        0 => None,
        rows => {
            let words = grid as usize * fanout as usize * rows as usize * 2;
            Some(
                runtime
                    .pool()
                    .allocate(words * 8, "buffers of partitions")?,
            )
        }
    };
    let kernel = runtime.builtin("write_combine", shape.variant(), || shape.source())?;
    let args = WriteCombineArgs {
        keys_in: from.keys,
        values_in: from.values,
        keys_out: to.keys,
        values_out: to.values,
        front,
        back,
        behind: behind.as_ref().map_or(DevicePtr::NULL, |b| b.ptr()),
        rows,
    };
    let config = LaunchConfig {
        grid,
        block: WRITE_COMBINE_THREADS,
        shared_bytes: shape.shared_bytes(),
    };
    // SAFETY: the caller vouches for the columns; the buffers are sized by grid and shape, and used again only behind this.
    unsafe { launch(runtime, stream, &kernel, config, &args) }
}

/// The buffers for `fanout` partitions in `shared` bytes of shared memory.
fn shape(fanout: u32, combine: Combine, shared: usize) -> Result<WriteCombineShape> {
    if !fanout.is_power_of_two() || !(2..=MOST_FANOUT).contains(&fanout) {
        return Err(GpuError::Internal(format!(
            "a partition into {fanout} parts"
        )));
    }
    let room = shared.min(SHARED_BYTES) / fanout as usize;
    // Three counters a partition.
    let fitting = room.saturating_sub(12) / 16;
    let slots = match (combine, fitting) {
        (Combine::Not, _) => 0,
        (_, 0) => {
            return Err(GpuError::Internal(format!(
                "buffers of {fanout} partitions in {shared} bytes of shared memory"
            )));
        }
        (_, fitting) => 1 << fitting.min(MOST_SLOTS).ilog2(),
    };
    Ok(WriteCombineShape {
        fanout,
        slots,
        behind: match combine {
            Combine::Hierarchical => BEHIND.max(4 * slots),
            Combine::Not | Combine::Shared => 0,
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn buffers_hold_whole_lines_as_long_as_they_fit() {
        let slots = |fanout, combine| shape(fanout, combine, 227 << 10).unwrap().slots;
        assert_eq!(slots(2, Combine::Shared), 64);
        assert_eq!(slots(256, Combine::Shared), 32);
        assert_eq!(slots(512, Combine::Shared), 16);
        assert_eq!(slots(2048, Combine::Hierarchical), 4);
        assert_eq!(slots(2048, Combine::Not), 0);
        let shape = shape(64, Combine::Hierarchical, 227 << 10).unwrap();
        assert!(shape.behind.is_multiple_of(shape.slots) && shape.behind > shape.slots);
        assert!(shape.shared_bytes() <= SHARED_BYTES);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for fanout in [0, 1, 3, 1 << 13] {
            assert!(shape(fanout, Combine::Not, 1 << 20).is_err(), "{fanout}");
        }
        assert!(shape(4096, Combine::Shared, 48 << 10).is_err());
    }
}
