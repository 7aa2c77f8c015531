//! Groups of rows: dense codes for their keys, and how many there are in a table.

use warpline_cuda::kernels::{self, CountGroupsArgs, GROUP_PROBES, NumberGroupsArgs};

use super::partition::Keys;
use super::{RowCount, check_numbered, fill, launch, one_each};
use crate::device::{DevicePtr, Kernel, Stream};
use crate::error::Result;
use crate::runtime::Runtime;

/// A hash table from keys to numbers of groups, and what comes out of it.
#[derive(Debug, Clone, Copy)]
pub struct GroupNumbers {
    /// Slots: a power of two.
    pub slots: u64,
    /// A state a slot (`u32*`); cleared here.
    pub states: DevicePtr,
    /// A key a slot, as wide as the keys.
    pub keys: DevicePtr,
    /// A number a slot (`u32*`).
    pub numbers: DevicePtr,
    /// The key of each group, in the order of their numbers, for `room` groups.
    pub dense: DevicePtr,
    /// Room in `dense`.
    pub room: u64,
    /// How many groups there are (`u64*`); cleared here. Those beyond `room` have numbers but no key.
    pub count: DevicePtr,
    /// Set to 1 when a key found no slot (`u64*`): number again with more slots.
    pub overflow: DevicePtr,
}

/// What tells whether the slots of a hash table of groups are taken.
#[derive(Debug, Clone, Copy)]
pub struct TakenWords {
    /// The first slot's: not 0 where the slot is taken.
    pub words: DevicePtr,
    /// Bytes from one to the next.
    pub stride: u64,
    /// Bytes of one: 4 or 8.
    pub width: u32,
}

/// Add the number of slots that are taken to `*count` (`u64*`). Costs: see `group_count.cu`.
///
/// # Errors
/// [`crate::GpuError::Device`] from the driver.
///
/// # Safety
/// There are `slots` slots.
pub unsafe fn count_groups(
    runtime: &Runtime,
    stream: &Stream,
    taken: TakenWords,
    slots: u64,
    count: DevicePtr,
) -> Result<()> {
    let args = CountGroupsArgs {
        words: taken.words,
        stride: taken.stride,
        slots,
        count,
        width: taken.width,
        padding: 0,
    };
    let kernel = runtime.builtin("count_groups", 0, kernels::group_count)?;
    let config = one_each(runtime, slots);
    // SAFETY: the caller vouches.
    unsafe { launch(runtime, stream, &kernel, config, &args) }
}

/// Give every row the number of its group: equal keys get equal numbers, from 0 on without gaps, in no order.
/// `numbers` (`u32*`) has one a row.
///
/// The first stage of the hash-based group-by and the dictionary of the sort-based one (Wu et al., SIGMOD 2025,
/// algorithm 1 and section 4.2). Costs: see `group_number.cu`.
///
/// # Errors
/// [`crate::GpuError::Unsupported`] beyond 2^32 - 2 rows, [`crate::GpuError::Internal`] for keys of other widths than 4, 8 and
/// 16 bytes, [`crate::GpuError::Device`] from the driver.
///
/// # Safety
/// There are `rows.most()` keys, aligned to their width, and as many numbers; the table is as [`GroupNumbers`] says.
pub unsafe fn number_groups(
    runtime: &Runtime,
    stream: &Stream,
    keys: Keys,
    rows: RowCount,
    table: &GroupNumbers,
    numbers: DevicePtr,
) -> Result<()> {
    check_numbered("groups of rows", rows.most())?;
    keys.check()?;
    let args = NumberGroupsArgs {
        keys: keys.ptr,
        count: rows.count(),
        most: rows.most(),
        states: table.states,
        table: table.keys,
        numbers: table.numbers,
        mask: table.slots.max(1) - 1,
        groups: table.count,
        dense: table.dense,
        room: table.room,
        out: numbers,
        overflow: table.overflow,
        limit: u32::try_from(table.slots).map_or(GROUP_PROBES, |slots| slots.min(GROUP_PROBES)),
        padding: 0,
    };
    let kernel = numbering(runtime, keys.width)?;
    let config = one_each(runtime, rows.most());
    // SAFETY: the caller vouches for every address.
    unsafe {
        fill(runtime, stream, table.states, 0, table.slots * 4)?;
        fill(runtime, stream, table.count, 0, 8)?;
        launch(runtime, stream, &kernel, config, &args)
    }
}

/// Compile what [`number_groups`] needs for keys of this many bytes ahead of its use.
///
/// # Errors
/// [`crate::GpuError::Compile`], [`crate::GpuError::Device`].
pub fn compile_group_numbers(runtime: &Runtime, width: u32) -> Result<()> {
    numbering(runtime, width).map(drop)
}

fn numbering(runtime: &Runtime, width: u32) -> Result<Kernel> {
    runtime.builtin("number_groups", width as usize, || {
        kernels::group_number(width)
    })
}
