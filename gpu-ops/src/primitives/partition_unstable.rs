//! Unstable radix partitions of keys with payload columns: rows of a partition are in any order.

use std::ops::Range;

use warpline_cuda::kernels::{
    CURSOR_STEP, Hashing, MOST_PARTITION_COLUMNS, PartitionTileArgs, SEGMENT_PLAN_THREADS,
    SEGMENT_SHARED_BYTES, SEGMENT_THREADS, SEGMENT_TILE, SegmentDigitsArgs, SegmentPlanArgs,
    TileShape, partition_segments,
};

use super::partition::{Partitioning, check, count_digits, radix_partition};
use super::scan::exclusive_sum;
use super::{Digits, Keys, Payload, RowCount, fill, launch, scratch};
use crate::device::{DevicePtr, Kernel, LaunchConfig, Stream};
use crate::error::Result;
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;

/// Most bits of a pass, and values of a digit.
const DIGIT_BITS: u32 = 8;
pub(super) const DIGITS: u64 = 256;
/// Passes at most: the partitions of the first are the segments of the second.
const MOST_PASSES: u32 = 2;

/// Order rows by the bits of their keys or hashes as [`radix_partition`] does, rows with equal bits in any order.
///
/// Up to 16 bits and 8 payload columns this takes a fifth less time than keeping the order; beyond, it is the stable
/// partition, as it is without `offsets` (`u32`, `2^bits + 1`), which get the first place of every partition and the number
/// of rows. Costs: see `partition_unstable.cu`.
///
/// # Errors
/// As [`radix_partition`].
///
/// # Safety
/// As [`radix_partition`].
pub unsafe fn radix_partition_unstable(
    runtime: &Runtime,
    stream: &Stream,
    of: &Partitioning<'_>,
    offsets: Option<DevicePtr>,
) -> Result<()> {
    let applies = applies(of.payloads.len(), &of.bits) && of.rows.most() > 0;
    let Some(first_places) = offsets.filter(|_| applies) else {
        // SAFETY: passed on to the caller.
        return unsafe { radix_partition(runtime, stream, of, offsets) };
    };
    check(of, true)?;
    let plan = Plan::new(runtime, stream, of);
    // SAFETY: passed on to the caller; scratch is used behind the work queued before and before it is reused.
    unsafe { plan.run(of.to, first_places) }
}

/// Do the kernels of this module take so many columns and these bits?
pub(super) fn applies(columns: usize, bits: &Range<u32>) -> bool {
    (1..=DIGIT_BITS * MOST_PASSES).contains(&(bits.len() as u32))
        && columns <= MOST_PARTITION_COLUMNS
}

/// Do rows lose their order when they are partitioned by `bits` bits in any order, with so many payload columns? Else
/// [`radix_partition_unstable`] is [`radix_partition`].
pub fn is_unstable(columns: usize, bits: u32) -> bool {
    applies(columns, &(0..bits))
}

/// Shift and mask of each pass, the most significant first.
fn split(bits: &Range<u32>) -> Vec<(u32, u32)> {
    let total = bits.len() as u32;
    let mask = |width: u32| (1 << width) - 1;
    if total <= DIGIT_BITS {
        return vec![(bits.start, mask(total))];
    }
    let low = total / 2;
    vec![
        (bits.start + low, mask(total - low)),
        (bits.start, mask(low)),
    ]
}

/// Can rows be partitioned by `bits` bits of the hashes of keys of `width` bytes so that keys come out as these hashes
/// ([`Digits::KeptHash`]), with so many payload columns?
pub fn keeps_hashes(width: u32, columns: usize, bits: u32) -> bool {
    // Hashes of keys of 16 bytes have 8: they cannot stand for the keys.
    width <= 8 && applies(columns, &(0..bits))
}

/// When keys are hashed in each of `passes` passes.
pub(super) fn hashing(digits: Digits, width: u32, passes: usize) -> Vec<Hashing> {
    match (digits, passes) {
        (Digits::Key, _) => vec![Hashing::None; passes],
        (Digits::Hash, 2) if width <= 8 => vec![Hashing::In, Hashing::Out],
        (Digits::Hash, _) => vec![Hashing::EachLook; passes],
        (Digits::KeptHash, _) => [Hashing::In, Hashing::None][..passes].to_vec(),
    }
}

/// What of [`radix_partition_unstable`] is compiled ahead, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnstablePart {
    /// A pass, the first or the second.
    Pass(usize),
    /// What counts digits between the passes.
    Segments,
}

/// Compile a part of what [`radix_partition_unstable`] needs for `bits` bits of keys and payloads of these widths ahead of
/// its use.
///
/// # Errors
/// [`crate::GpuError::Compile`], [`crate::GpuError::Device`].
pub fn compile_partition_unstable(
    runtime: &Runtime,
    width: u32,
    digits: Digits,
    widths: &[u32],
    bits: u32,
    part: UnstablePart,
) -> Result<()> {
    if !applies(widths.len(), &(0..bits)) {
        return super::compile_partition(
            runtime,
            width,
            digits,
            widths,
            0,
            part != UnstablePart::Segments,
        );
    }
    let passes = hashing(digits, width, split(&(0..bits)).len());
    match part {
        UnstablePart::Pass(pass) => {
            let Some(hashing) = passes.get(pass) else {
                return Ok(());
            };
            let mut widths = widths.to_vec();
            widths.sort_by_key(|width| std::cmp::Reverse(*width));
            let shape = TileShape {
                key_width: width,
                hashing: *hashing,
                widths: &widths,
            };
            tile_kernel(runtime, shape).map(drop)
        }
        UnstablePart::Segments => {
            let counted = counted_hashed(digits, width, passes.len());
            segment_kernel(runtime, "segment_digits", width, counted)?;
            super::compile_partition(runtime, width, digits, &[], 0, false)
        }
    }
}

/// Between the passes, are digits counted of hashes that keys do not travel as?
fn counted_hashed(digits: Digits, width: u32, passes: usize) -> bool {
    digits.hashed() && !(passes == 2 && width <= 8)
}

fn tile_kernel(runtime: &Runtime, shape: TileShape<'_>) -> Result<Kernel> {
    runtime.builtin("partition_tile", shape.variant(), || shape.source())
}

fn segment_kernel(
    runtime: &Runtime,
    name: &'static str,
    width: u32,
    hashed: bool,
) -> Result<Kernel> {
    let variant = width as usize | usize::from(hashed);
    runtime.builtin(name, variant, || partition_segments(width, hashed))
}

/// What the passes have in common.
pub(super) struct Plan<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) stream: &'a Stream,
    pub(super) rows: RowCount,
    pub(super) keys: DevicePtr,
    pub(super) width: u32,
    pub(super) by: Digits,
    payloads: Vec<Payload>,
    /// Of the payloads.
    widths: Vec<u32>,
    /// Shift and mask, the most significant first: one or two.
    pub(super) digits: Vec<(u32, u32)>,
}

/// The partitions of a pass, as segments of the next.
struct Segments {
    /// `u32`: first rows of all segments, their first tiles, and those of tiles of `SEGMENT_TILE` rows, 257 each; zeroed
    /// cursors behind.
    words: DeviceBuffer,
}

impl Segments {
    const FIRST: u64 = 0;
    const TILES: u64 = DIGITS + 1;
    const COUNTED: u64 = 2 * (DIGITS + 1);
    const CURSORS: u64 = 3 * (DIGITS + 1);
    const COUNTS: u64 = Self::CURSORS + DIGITS * CURSOR_STEP;
    const WORDS: u64 = Self::COUNTS + DIGITS;

    fn at(&self, word: u64) -> DevicePtr {
        self.words.ptr().offset(word * 4)
    }
}

/// Keys and columns between two passes.
pub(super) struct Between {
    pub(super) keys: DeviceBuffer,
    columns: Vec<DeviceBuffer>,
}

impl Between {
    /// As kernels take them.
    pub(super) fn columns(&self) -> [DevicePtr; MOST_PARTITION_COLUMNS] {
        let at = |column: usize| self.columns.get(column).map(DeviceBuffer::ptr);
        std::array::from_fn(|column| at(column).unwrap_or(DevicePtr::NULL))
    }
}

impl<'a> Plan<'a> {
    pub(super) fn new(runtime: &'a Runtime, stream: &'a Stream, of: &Partitioning<'_>) -> Self {
        let payloads = of.ordered_payloads();
        Self {
            runtime,
            stream,
            rows: of.rows,
            keys: of.keys.ptr,
            width: of.keys.width,
            by: of.digits,
            widths: payloads.iter().map(|p| p.width).collect(),
            payloads,
            digits: split(&of.bits),
        }
    }

    /// As kernels take the sources of columns.
    pub(super) fn sources(&self) -> [DevicePtr; MOST_PARTITION_COLUMNS] {
        let source = |p: &Payload| p.from.unwrap_or(DevicePtr::NULL);
        let payload = |column| self.payloads.get(column);
        std::array::from_fn(|column| payload(column).map_or(DevicePtr::NULL, source))
    }

    /// As kernels take the targets of columns.
    pub(super) fn targets(&self) -> [DevicePtr; MOST_PARTITION_COLUMNS] {
        let payload = |column| self.payloads.get(column);
        std::array::from_fn(|column| payload(column).map_or(DevicePtr::NULL, |p| p.to))
    }

    /// All passes.
    ///
    /// # Safety
    /// As [`radix_partition_unstable`].
    unsafe fn run(&self, to: DevicePtr, offsets: DevicePtr) -> Result<()> {
        let (runtime, stream) = (self.runtime, self.stream);
        let hashing = hashing(self.by, self.width, self.digits.len());
        let (shift, mask) = self.digits[0];
        let segments = Segments {
            words: scratch(
                runtime,
                stream,
                Segments::WORDS,
                4,
                "segments of a partition",
            )?,
        };
        let counts = segments.at(Segments::COUNTS);
        let last = self.digits.get(1);
        // SAFETY: passed on to the caller; scratch is sized as the kernels' arguments say.
        unsafe {
            let (words, from) = (Segments::WORDS, Segments::CURSORS);
            fill(runtime, stream, segments.at(from), 0, (words - from) * 4)?;
            let all = Keys {
                ptr: self.keys,
                width: self.width,
            };
            count_digits(
                runtime,
                stream,
                all,
                self.rows,
                self.by.hashed(),
                &[(shift, mask)],
                counts,
            )?;
            // With one pass the segments are the partitions themselves.
            let first = match last {
                Some(_) => segments.at(Segments::FIRST),
                None => offsets,
            };
            self.segment_plan(counts, first, &segments, mask)?;
            let all_rows = PartitionTileArgs {
                keys_in: self.keys,
                keys_out: to,
                from: self.sources(),
                to: self.targets(),
                segments: DevicePtr::NULL,
                segment_ends: DevicePtr::NULL,
                tiles: DevicePtr::NULL,
                first_places: first,
                cursors: segments.at(Segments::CURSORS),
                overflow: DevicePtr::NULL,
                count: self.rows.count(),
                most: self.rows.most(),
                segment_count: 1,
                shift,
                mask,
                room: 0,
            };
            let Some((low_shift, low_mask)) = last.copied() else {
                return self.pass(hashing[0], &all_rows, 0);
            };

            let most = self.rows.most();
            let between = self.between(most)?;
            let args = PartitionTileArgs {
                keys_out: between.keys.ptr(),
                to: between.columns(),
                ..all_rows
            };
            self.pass(hashing[0], &args, 0)?;

            // Digits of every segment, then the first places of all partitions, then the rows.
            let (segment_count, values) = (u64::from(mask) + 1, u64::from(low_mask) + 1);
            let partitions = segment_count * values;
            let counters = scratch(runtime, stream, 2 * partitions, 4, "digits of a partition")?;
            fill(runtime, stream, counters.ptr(), 0, 2 * partitions * 4)?;
            let digits = SegmentDigitsArgs {
                keys: between.keys.ptr(),
                segments: first,
                tiles: segments.at(Segments::COUNTED),
                counts: counters.ptr(),
                segment_count: segment_count as u32,
                shift: low_shift,
                mask: low_mask,
                padding: 0,
            };
            let kernel = self.counter("segment_digits")?;
            let config = LaunchConfig {
                grid: blocks(most, SEGMENT_TILE, segment_count),
                block: SEGMENT_THREADS,
                shared_bytes: SEGMENT_SHARED_BYTES,
            };
            launch(runtime, stream, &kernel, config, &digits)?;
            let known = RowCount::Known(partitions);
            exclusive_sum(runtime, stream, counters.ptr(), offsets, known, false)?;
            let args = PartitionTileArgs {
                keys_in: between.keys.ptr(),
                from: between.columns(),
                segments: first,
                segment_ends: first.offset(4),
                tiles: segments.at(Segments::TILES),
                first_places: offsets,
                cursors: counters.ptr().offset(partitions * 4),
                segment_count: segment_count as u32,
                shift: low_shift,
                mask: low_mask,
                ..all_rows
            };
            self.pass(hashing[1], &args, segment_count)
        }
    }

    /// Memory for keys and columns between two passes.
    pub(super) fn between(&self, rows: u64) -> Result<Between> {
        let column =
            |width: u32, what| scratch(self.runtime, self.stream, rows, width.into(), what);
        let columns = self
            .payloads
            .iter()
            .map(|payload| column(payload.width, "columns of a partition"));
        Ok(Between {
            keys: column(self.width, "keys of a partition")?,
            columns: columns.collect::<Result<_>>()?,
        })
    }

    /// Where the partitions of the first digit begin, and their tiles.
    ///
    /// # Safety
    /// `counts` has a word a digit, `first` one more.
    unsafe fn segment_plan(
        &self,
        counts: DevicePtr,
        first: DevicePtr,
        segments: &Segments,
        mask: u32,
    ) -> Result<()> {
        let args = SegmentPlanArgs {
            counts,
            segments: first,
            segment_ends: DevicePtr::NULL,
            tiles: segments.at(Segments::TILES),
            counted_tiles: segments.at(Segments::COUNTED),
            overflow: DevicePtr::NULL,
            digits: mask + 1,
            tile: self.shape(Hashing::None).tile() as u32,
            step: 1,
            room: 0,
        };
        // SAFETY: passed on to the caller.
        unsafe { self.plan_segments(&args) }
    }

    /// A kernel of `partition_segments.cu`.
    pub(super) fn counter(&self, name: &'static str) -> Result<Kernel> {
        let counted = counted_hashed(self.by, self.width, self.digits.len());
        segment_kernel(self.runtime, name, self.width, counted)
    }

    /// Launch what plans segments.
    ///
    /// # Safety
    /// The arguments are the kernel's.
    pub(super) unsafe fn plan_segments(&self, args: &SegmentPlanArgs) -> Result<()> {
        let config = LaunchConfig {
            grid: 1,
            block: SEGMENT_PLAN_THREADS,
            shared_bytes: SEGMENT_SHARED_BYTES,
        };
        let kernel = self.counter("segment_plan")?;
        // SAFETY: passed on to the caller.
        unsafe { launch(self.runtime, self.stream, &kernel, config, args) }
    }

    /// One pass over all rows, which are in `segments` segments that may each end in a tile of their own.
    ///
    /// # Safety
    /// As [`radix_partition_unstable`]; the arguments are those of the shape.
    pub(super) unsafe fn pass(
        &self,
        hashing: Hashing,
        args: &PartitionTileArgs,
        segments: u64,
    ) -> Result<()> {
        let shape = self.shape(hashing);
        let kernel = tile_kernel(self.runtime, shape)?;
        let config = LaunchConfig {
            grid: blocks(self.rows.most(), shape.tile(), segments),
            block: shape.threads(),
            shared_bytes: shape.shared_bytes(),
        };
        // SAFETY: passed on to the caller.
        unsafe { launch(self.runtime, self.stream, &kernel, config, args) }
    }

    pub(super) fn shape(&self, hashing: Hashing) -> TileShape<'_> {
        TileShape {
            key_width: self.width,
            hashing,
            widths: &self.widths,
        }
    }
}

/// Blocks of one tile each, of which every segment may have one that is not full.
fn blocks(rows: u64, tile: u64, segments: u64) -> u32 {
    u32::try_from(rows.div_ceil(tile) + segments).unwrap_or(u32::MAX)
}
