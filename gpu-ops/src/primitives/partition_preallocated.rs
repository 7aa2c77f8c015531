//! Unstable radix partitions with preallocated room for each partition, so that nothing is counted first.

use warpline_cuda::kernels::{
    CURSOR_STEP, Hashing, PartitionEndsArgs, PartitionLargestArgs, PartitionTileArgs,
    SEGMENT_THREADS, SegmentPlanArgs,
};

use super::partition::{Partitioning, check};
use super::partition_unstable::{DIGITS, Plan, applies, hashing};
use super::{Digits, Keys, RowCount, fill, grid, launch, scratch};
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// The extents of partitions.
#[derive(Debug, Clone, Copy)]
pub struct Partitions {
    /// `u32*`: the first place of each.
    pub begins: DevicePtr,
    /// `u32*`: the place behind the last row of each.
    pub ends: DevicePtr,
}

impl Partitions {
    /// Of what is in no partitions.
    pub const NONE: Self = Self {
        begins: DevicePtr::NULL,
        ends: DevicePtr::NULL,
    };

    /// Side by side: `offsets` has the first place of each and, last, the number of rows.
    pub fn side_by_side(offsets: DevicePtr) -> Self {
        Self {
            begins: offsets,
            ends: offsets.offset(4),
        }
    }
}

/// Rows that partitions have room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rooms {
    /// Each one of the first pass of several.
    pub first: u32,
    /// Each one in the end.
    pub last: u32,
}

/// [`super::radix_partition_unstable`] for who knows from a time before how many rows the largest partitions have
/// ([`largest_partitions`]): nothing is counted, which saves an eighth of the time (3.2 ms in place of 3.7 for both sides of
/// 2^27 rows with row numbers, on an H200).
///
/// Partition p lies from place `p * rooms.last` on: the targets have `rooms.last << bits` places. A partition that finds no
/// room sets `*overflow` (`u64*`) to 1, and all partitions are said to be empty then; it is never cleared. Takes 1 to 16
/// bits and up to 8 payload columns.
///
/// # Errors
/// As [`super::radix_partition`]; [`GpuError::Internal`] for more bits or columns, and for more than 2^32 - 2 places.
///
/// # Safety
/// As [`super::radix_partition`], with as many places in the targets as said above, and `2^bits` words in both arrays of
/// `places`.
pub unsafe fn radix_partition_preallocated(
    runtime: &Runtime,
    stream: &Stream,
    of: &Partitioning<'_>,
    rooms: Rooms,
    places: Partitions,
    overflow: DevicePtr,
) -> Result<()> {
    check(of, true)?;
    let (columns, bits) = (of.payloads.len(), &of.bits);
    let plan = Plan::new(runtime, stream, of);
    let first = bits.len() as u32 - plan.digits.get(1).map_or(0, |(_, mask)| mask.count_ones());
    let fits = |room: u32, bits: u32| u64::from(room) << bits < u64::from(u32::MAX);
    if !applies(columns, bits) || !fits(rooms.last, bits.len() as u32) || !fits(rooms.first, first)
    {
        return Err(GpuError::Internal(format!(
            "{columns} columns in 2^{} partitions of {rooms:?} rows",
            bits.len()
        )));
    }
    // SAFETY: as above.
    unsafe { plan.run_preallocated(of.to, rooms, places, overflow) }
}

/// Raise `largest` (`u32[2]`) to the rows that the largest of `2^bits` partitions has, and the largest of the first pass of
/// [`radix_partition_preallocated`]; `offsets` as of [`super::radix_partition`], by keys of `key_width` bytes.
///
/// # Errors
/// [`GpuError::Compile`], [`GpuError::Device`].
///
/// # Safety
/// Both arrays are live device memory of these sizes.
pub unsafe fn largest_partitions(
    runtime: &Runtime,
    stream: &Stream,
    key_width: u32,
    digits: Digits,
    bits: u32,
    offsets: DevicePtr,
    largest: DevicePtr,
) -> Result<()> {
    // The kernel reads no keys: it stands beside those that do.
    let of = Partitioning {
        keys: Keys {
            ptr: DevicePtr::NULL,
            width: key_width,
        },
        to: DevicePtr::NULL,
        payloads: &[],
        rows: RowCount::Known(0),
        digits,
        bits: 0..bits,
    };
    let plan = Plan::new(runtime, stream, &of);
    let args = PartitionLargestArgs {
        offsets,
        largest,
        partitions: 1 << bits,
        neighbours: plan
            .digits
            .get(1)
            .map_or(1, |(_, mask)| u64::from(*mask) + 1),
    };
    let config = LaunchConfig {
        grid: grid(runtime, args.partitions, SEGMENT_THREADS.into()),
        block: SEGMENT_THREADS,
        shared_bytes: 0,
    };
    // SAFETY: passed on to the caller.
    unsafe {
        launch(
            runtime,
            stream,
            &plan.counter("partition_largest")?,
            config,
            &args,
        )
    }
}

/// Can [`radix_partition_preallocated`] split rows with so many columns by these bits?
pub fn can_preallocate(columns: usize, bits: u32) -> bool {
    applies(columns, &(0..bits))
}

impl Plan<'_> {
    /// All passes, each partition with room of its own.
    ///
    /// # Safety
    /// As [`radix_partition_preallocated`].
    unsafe fn run_preallocated(
        &self,
        to: DevicePtr,
        rooms: Rooms,
        places: Partitions,
        overflow: DevicePtr,
    ) -> Result<()> {
        let (runtime, stream) = (self.runtime, self.stream);
        let hashing = hashing(self.by, self.width, self.digits.len());
        let (shift, mask) = self.digits[0];
        let last = self.digits.get(1).copied();
        let segment_count = u64::from(mask) + 1;
        let values = last.map_or(1, |(_, mask)| u64::from(mask) + 1);
        let partitions = segment_count * values;
        // Cursors of both passes; behind them segments, their ends and tiles.
        let first_cursors = segment_count * CURSOR_STEP;
        let zeroed = first_cursors + if last.is_some() { partitions } else { 0 };
        let purpose = "cursors of a partition";
        let words = scratch(runtime, stream, zeroed + 4 * (DIGITS + 1), 4, purpose)?;
        let at = |word: u64| words.ptr().offset(word * 4);
        let tables = |table: u64| at(zeroed + table * (DIGITS + 1));
        let (segments, segment_ends, tiles) = (tables(0), tables(1), tables(2));
        // SAFETY: passed on to the caller; scratch is sized as the kernels' arguments say.
        unsafe {
            fill(runtime, stream, words.ptr(), 0, zeroed * 4)?;
            let all_rows = PartitionTileArgs {
                keys_in: self.keys,
                keys_out: to,
                from: self.sources(),
                to: self.targets(),
                segments: DevicePtr::NULL,
                segment_ends: DevicePtr::NULL,
                tiles: DevicePtr::NULL,
                first_places: DevicePtr::NULL,
                cursors: at(0),
                overflow,
                count: self.rows.count(),
                most: self.rows.most(),
                segment_count: 1,
                shift,
                mask,
                room: rooms.last,
            };
            let mut ends = PartitionEndsArgs {
                cursors: at(0),
                begins: places.begins,
                ends: places.ends,
                overflow,
                partitions,
                step: CURSOR_STEP as u32,
                room: rooms.last,
            };
            if let Some((low_shift, low_mask)) = last {
                let between = self.between(segment_count * u64::from(rooms.first))?;
                let args = PartitionTileArgs {
                    keys_out: between.keys.ptr(),
                    to: between.columns(),
                    room: rooms.first,
                    ..all_rows
                };
                self.pass(hashing[0], &args, 0)?;
                let plan = SegmentPlanArgs {
                    counts: at(0),
                    segments,
                    segment_ends,
                    tiles,
                    counted_tiles: tables(3),
                    overflow,
                    digits: segment_count as u32,
                    tile: self.shape(Hashing::None).tile() as u32,
                    step: CURSOR_STEP as u32,
                    room: rooms.first,
                };
                self.plan_segments(&plan)?;
                let args = PartitionTileArgs {
                    keys_in: between.keys.ptr(),
                    from: between.columns(),
                    segments,
                    segment_ends,
                    tiles,
                    cursors: at(first_cursors),
                    segment_count: segment_count as u32,
                    shift: low_shift,
                    mask: low_mask,
                    ..all_rows
                };
                self.pass(hashing[1], &args, segment_count)?;
                ends = PartitionEndsArgs {
                    cursors: at(first_cursors),
                    step: 1,
                    ..ends
                };
            } else {
                self.pass(hashing[0], &all_rows, 0)?;
            }
            let config = LaunchConfig {
                grid: grid(runtime, partitions, SEGMENT_THREADS.into()),
                block: SEGMENT_THREADS,
                shared_bytes: 0,
            };
            launch(
                runtime,
                stream,
                &self.counter("partition_ends")?,
                config,
                &ends,
            )
        }
    }
}
