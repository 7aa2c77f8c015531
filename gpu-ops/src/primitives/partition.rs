//! Stable radix partitions and sorts of keys with payload columns.

use std::ops::Range;

use warpline_cuda::kernels::{
    MOST_PARTITION_COLUMNS, PARTITION_HISTOGRAM_DIGITS, PARTITION_HISTOGRAM_SHARED_BYTES,
    PARTITION_HISTOGRAM_THREADS, PartitionHistogramArgs, PartitionOffsetsArgs, PartitionPassArgs,
    PartitionShape, partition_histogram,
};

use super::{RowCount, check_numbered, fill, launch, scratch};
use crate::device::{DevicePtr, Kernel, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;

/// Most bits of a pass, and values of a digit.
const DIGIT_BITS: u32 = 8;
const DIGITS: u64 = 256;
/// Tile words of several passes up to this size are cleared at once.
const CLEARED_AT_ONCE: u64 = 64 << 20;
/// Below so many rows a tile's words have 4 bytes, two bits of which are flags.
const NARROW_STATES: u64 = 1 << 30;
/// Most bits of partitions whose offsets are wanted.
const MOST_OFFSET_BITS: u32 = 28;

/// Keys of 4, 8 or 16 bytes, compared and split as unsigned little-endian integers.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// The first key, aligned to its width.
    pub ptr: DevicePtr,
    /// Bytes of a key.
    pub width: u32,
}

impl Keys {
    /// Refuse widths that no kernel is for.
    pub(super) fn check(self) -> Result<()> {
        match self.width {
            4 | 8 | 16 => Ok(()),
            width => Err(GpuError::Internal(format!("keys of {width} bytes"))),
        }
    }
}

/// A column that moves with the keys.
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    /// The column, aligned to its width; `None` for the numbers of the rows (`u32`).
    pub from: Option<DevicePtr>,
    /// Where it goes; overlaps no source.
    pub to: DevicePtr,
    /// Bytes of a value: 1, 2, 4, 8 or 16.
    pub width: u32,
}

/// What a partition splits by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digits {
    /// Bits of the key itself.
    Key,
    /// Bits of the key's `radix_hash` (`radix.cuh`): 32 for keys of 4 bytes, else 64.
    Hash,
    /// The same, and keys come out as these hashes, which are one to one for keys of 4 and 8 bytes: who joins them need not
    /// hash again. Only where [`keeps_hashes`](super::keeps_hashes) says so.
    KeptHash,
}

impl Digits {
    /// How many bits a key of `width` bytes has.
    pub(super) fn bits(self, width: u32) -> u32 {
        match self {
            Self::Key => width * 8,
            Self::Hash | Self::KeptHash => (width * 8).min(64),
        }
    }

    /// Are they of hashes?
    pub(super) fn hashed(self) -> bool {
        self != Self::Key
    }
}

/// Rows that a radix partition moves, and what it splits them by. Sources are only read.
#[derive(Debug, Clone)]
pub struct Partitioning<'a> {
    /// Keys of the rows.
    pub keys: Keys,
    /// Where the keys go; null when they are not wanted, which takes a partition without offsets.
    pub to: DevicePtr,
    /// Columns that go with them.
    pub payloads: &'a [Payload],
    /// How many rows.
    pub rows: RowCount,
    /// By bits of the keys or of their hashes, …
    pub digits: Digits,
    /// … these, counted from the lowest.
    pub bits: Range<u32>,
}

/// Order rows by the bits of their keys or hashes, rows with equal bits in their old order.
///
/// With all bits of the keys this is a sort. `offsets`, when given, gets the first place of every partition and the number
/// of rows (`u32`, `2^bits + 1`).
///
/// Up to 8 bits take one pass over all columns, more take one pass per started 8 bits ("onesweep": Adinets and
/// Merrill 2022; the partition of the GPU joins after Sioulas et al. 2019); more than 8 payload columns are moved
/// in groups, each with the keys. One reading of the keys precedes. Costs: see `partition.cu`.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^32 - 2 rows, [`GpuError::OutOfDeviceMemory`] for scratch: with several passes
/// as large as the keys and the payloads, plus a ninth of a byte a row and pass; [`GpuError::Internal`] for
/// widths and bits that do not exist; [`GpuError::Device`] from the driver.
///
/// # Safety
/// Every column has `rows.most()` values in live device memory, and no target overlaps a source or another target.
pub unsafe fn radix_partition(
    runtime: &Runtime,
    stream: &Stream,
    of: &Partitioning<'_>,
    offsets: Option<DevicePtr>,
) -> Result<()> {
    check(of, offsets.is_some())?;
    let (rows, digits, bits) = (of.rows, of.digits, &of.bits);
    // Without rows nothing is hashed.
    if digits == Digits::KeptHash && rows.most() > 0 {
        return Err(GpuError::Internal(
            "a radix partition in the old order with hashes in the place of keys".into(),
        ));
    }
    if rows.most() == 0 {
        let Some(to) = offsets else { return Ok(()) };
        // Partitions with offsets are few; a sort by all bits of a key has none.
        let bytes = ((1u64 << bits.len()) + 1) * 4;
        // SAFETY: passed on to the caller.
        return unsafe { fill(runtime, stream, to, 0, bytes) };
    }
    let plan = Plan {
        runtime,
        stream,
        keys: of.keys,
        rows,
        hashed: digits.hashed(),
        passes: passes(bits),
    };
    let payloads = of.ordered_payloads();
    // SAFETY: passed on to the caller; the scratch is used behind the work queued before and before it is reused.
    unsafe {
        let histograms = plan.histograms()?;
        if payloads.is_empty() {
            plan.partition(of.to, None, &[], histograms.ptr())?;
        }
        for (group, payloads) in payloads.chunks(MOST_PARTITION_COLUMNS).enumerate() {
            let to = if group == 0 { of.to } else { DevicePtr::NULL };
            plan.partition(to, None, payloads, histograms.ptr())?;
        }
        match offsets {
            Some(offsets) => plan.offsets(of.to, bits, offsets),
            None => Ok(()),
        }
    }
}

/// Compile what [`radix_partition`] needs for keys and payloads of these widths and up to `rows` rows, ahead of its use:
/// the `pass` itself, or else what counts and finds offsets; both can be compiled at once.
///
/// # Errors
/// [`GpuError::Compile`], [`GpuError::Device`].
pub fn compile_partition(
    runtime: &Runtime,
    key_width: u32,
    digits: Digits,
    widths: &[u32],
    rows: u64,
    pass: bool,
) -> Result<()> {
    let hashed = digits.hashed();
    if !pass {
        return histogram_kernel(runtime, "partition_histogram", key_width, hashed).map(drop);
    }
    for widths in pass_columns(widths) {
        let shape = PartitionShape {
            key_width,
            hashed,
            wide_states: rows >= NARROW_STATES,
            widths: &widths,
        };
        runtime.builtin("partition_pass", shape.variant(), || shape.source())?;
    }
    Ok(())
}

/// The widths of the columns that each kernel of a pass moves, where columns of these widths go along with keys: one kernel at
/// least, for the keys.
pub fn pass_columns(widths: &[u32]) -> Vec<Vec<u32>> {
    let mut widths = widths.to_vec();
    widths.sort_by_key(|width| std::cmp::Reverse(*width));
    match widths.is_empty() {
        true => vec![widths],
        false => {
            let kernels = widths.chunks(MOST_PARTITION_COLUMNS);
            kernels.map(<[u32]>::to_vec).collect()
        }
    }
}

/// A kernel of `partition_histogram.cu`.
fn histogram_kernel(
    runtime: &Runtime,
    name: &'static str,
    key_width: u32,
    hashed: bool,
) -> Result<Kernel> {
    let variant = key_width as usize | usize::from(hashed);
    runtime.builtin(name, variant, || partition_histogram(key_width, hashed))
}

/// An order by keys.
pub(super) struct KeyOrder {
    pub(super) keys: Keys,
    /// The memory of the keys may be used as scratch.
    pub(super) destroy: bool,
    /// The lowest bits count.
    pub(super) bits: u32,
    pub(super) rows: RowCount,
    /// The order that the keys come in, as row numbers; `None` for that of the rows.
    pub(super) from: Option<DevicePtr>,
}

/// The stable order by keys as row numbers in `order`.
///
/// # Safety
/// As [`radix_partition`].
pub(super) unsafe fn order_by_keys(
    runtime: &Runtime,
    stream: &Stream,
    of: &KeyOrder,
    order: DevicePtr,
) -> Result<()> {
    let KeyOrder {
        keys,
        destroy,
        bits,
        rows,
        from,
    } = *of;
    let plan = Plan {
        runtime,
        stream,
        keys,
        rows,
        hashed: false,
        passes: passes(&(0..bits)),
    };
    let payload = Payload {
        from,
        to: order,
        width: 4,
    };
    // SAFETY: passed on to the caller.
    unsafe {
        let histograms = plan.histograms()?;
        let spare = destroy.then_some(keys.ptr);
        plan.partition(DevicePtr::NULL, spare, &[payload], histograms.ptr())
    }
}

impl Partitioning<'_> {
    /// The payloads so that equal shapes in another order are one kernel.
    pub(super) fn ordered_payloads(&self) -> Vec<Payload> {
        let mut payloads = self.payloads.to_vec();
        payloads.sort_by_key(|p| (std::cmp::Reverse(p.width), p.from.is_some()));
        payloads
    }
}

/// Refuse what no kernel is for, with `offsets` where these are wanted.
pub(super) fn check(of: &Partitioning<'_>, offsets: bool) -> Result<()> {
    let (keys, bits) = (of.keys, &of.bits);
    check_numbered("a partition of rows", of.rows.most())?;
    keys.check()?;
    let wrong = if bits.start > bits.end || bits.end > of.digits.bits(keys.width) {
        Some(format!("bits {bits:?} of {} bytes", keys.width))
    } else if of.digits == Digits::KeptHash && keys.width > 8 {
        Some(format!(
            "hashes in the place of keys of {} bytes",
            keys.width
        ))
    } else if offsets && (of.to.is_null() || bits.len() > MOST_OFFSET_BITS as usize) {
        Some(format!("offsets of 2^{} partitions", bits.len()))
    } else {
        of.payloads
            .iter()
            .find(|p| !matches!(p.width, 1 | 2 | 4 | 8 | 16) || (p.from.is_none() && p.width != 4))
            .map(|p| format!("a payload of {} bytes", p.width))
    };
    match wrong {
        Some(what) => Err(GpuError::Internal(format!("a radix partition with {what}"))),
        None => Ok(()),
    }
}

/// Shift and mask of every pass, least significant first; widths as even as possible.
fn passes(bits: &Range<u32>) -> Vec<(u32, u32)> {
    let total = bits.len() as u32;
    let count = total.div_ceil(DIGIT_BITS).max(1);
    let mut shift = bits.start;
    (0..count)
        .map(|pass| {
            let width = total / count + u32::from(pass < total % count);
            let this = (shift, (1 << width) - 1);
            shift += width;
            this
        })
        .collect()
}

/// Add to `counts` (256 `u32` a digit) how many keys have each value of up to 8 digits (shift, mask).
///
/// # Safety
/// There are `rows.most()` keys and 256 counts a digit.
pub(super) unsafe fn count_digits(
    runtime: &Runtime,
    stream: &Stream,
    keys: Keys,
    rows: RowCount,
    hashed: bool,
    digits: &[(u32, u32)],
    counts: DevicePtr,
) -> Result<()> {
    let mut args = PartitionHistogramArgs {
        keys: keys.ptr,
        histogram: counts,
        count: rows.count(),
        most: rows.most(),
        shifts: [0; 8],
        masks: [0; 8],
        digits: digits.len() as u32,
        padding: 0,
    };
    for (digit, (shift, mask)) in digits.iter().enumerate() {
        args.shifts[digit] = *shift;
        args.masks[digit] = *mask;
    }
    let kernel = histogram_kernel(runtime, "partition_histogram", keys.width, hashed)?;
    // All the threads that the device holds; fewer where each would have less than one load.
    let resident = u64::from(runtime.device().info().multiprocessors.max(1)) * 2;
    let loads = u64::from(PARTITION_HISTOGRAM_THREADS * 16 / keys.width);
    let blocks = rows.most().div_ceil(loads).clamp(1, resident);
    let config = LaunchConfig {
        grid: u32::try_from(blocks).unwrap_or(u32::MAX),
        block: PARTITION_HISTOGRAM_THREADS,
        shared_bytes: PARTITION_HISTOGRAM_SHARED_BYTES,
    };
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, &args) }
}

/// What all groups of payloads have in common.
struct Plan<'a> {
    runtime: &'a Runtime,
    stream: &'a Stream,
    keys: Keys,
    rows: RowCount,
    hashed: bool,
    passes: Vec<(u32, u32)>,
}

impl Plan<'_> {
    /// 256 counts a pass.
    ///
    /// # Safety
    /// As [`radix_partition`].
    unsafe fn histograms(&self) -> Result<DeviceBuffer> {
        let (runtime, stream) = (self.runtime, self.stream);
        let words = self.passes.len() as u64 * DIGITS;
        let histograms = scratch(runtime, stream, words, 4, "digits of a partition")?;
        // SAFETY: passed on to the caller; the counts are sized above.
        unsafe {
            fill(runtime, stream, histograms.ptr(), 0, words * 4)?;
            for (group, passes) in self.passes.chunks(PARTITION_HISTOGRAM_DIGITS).enumerate() {
                let first = (group * PARTITION_HISTOGRAM_DIGITS) as u64;
                let counts = histograms.ptr().offset(first * DIGITS * 4);
                count_digits(
                    runtime,
                    stream,
                    self.keys,
                    self.rows,
                    self.hashed,
                    passes,
                    counts,
                )?;
            }
        }
        Ok(histograms)
    }

    /// All passes over the keys and at most 8 payloads. When keys are not wanted (`to` null), `spare` may be memory
    /// for them, also that of the keys themselves.
    ///
    /// # Safety
    /// As [`radix_partition`]; `histograms` are those of [`Plan::histograms`].
    unsafe fn partition(
        &self,
        to: DevicePtr,
        spare: Option<DevicePtr>,
        payloads: &[Payload],
        histograms: DevicePtr,
    ) -> Result<()> {
        let (runtime, stream) = (self.runtime, self.stream);
        let most = self.rows.most();
        let count = self.passes.len();
        let widths: Vec<u32> = payloads.iter().map(|p| p.width).collect();
        let shape = PartitionShape {
            key_width: self.keys.width,
            hashed: self.hashed,
            wide_states: most >= NARROW_STATES,
            widths: &widths,
        };
        let tiles = most.div_ceil(shape.tile());
        let state_bytes = tiles * DIGITS * if shape.wide_states { 8 } else { 4 };
        let ticket_bytes = (count as u64 * 4).next_multiple_of(256);
        let at_once = state_bytes * count as u64 <= CLEARED_AT_ONCE;
        let kept = if at_once { count as u64 } else { 1 };
        let control = scratch(
            runtime,
            stream,
            ticket_bytes + state_bytes * kept,
            1,
            "places of a partition",
        )?;

        // Targets and scratch take turns so that the last pass writes the targets.
        let several = u64::from(count > 1);
        let key_width = u64::from(self.keys.width);
        let other_keys = scratch(
            runtime,
            stream,
            most * several,
            key_width,
            "keys of a partition",
        )?;
        let hidden = u64::from(to.is_null() && spare.is_none() && count > 2);
        let hidden_keys = scratch(
            runtime,
            stream,
            most * hidden,
            key_width,
            "keys of a partition",
        )?;
        let mut other_payloads = Vec::with_capacity(payloads.len());
        for payload in payloads {
            other_payloads.push(scratch(
                runtime,
                stream,
                most * several,
                u64::from(payload.width),
                "columns of a partition",
            )?);
        }
        let to_target = |pass: usize| (count - 1 - pass).is_multiple_of(2);
        // The first pass still reads what may be the spare memory.
        let keys_after = |pass: usize| match to.is_null() {
            true if pass + 1 == count => DevicePtr::NULL,
            true if pass.is_multiple_of(2) => other_keys.ptr(),
            true => spare.unwrap_or(hidden_keys.ptr()),
            false if to_target(pass) => to,
            false => other_keys.ptr(),
        };

        let kernel = runtime.builtin("partition_pass", shape.variant(), || shape.source())?;
        let config = LaunchConfig {
            grid: u32::try_from(tiles).unwrap_or(u32::MAX),
            block: shape.threads(),
            shared_bytes: shape.shared_bytes(),
        };
        // SAFETY: the scratch is sized as the kernel's shape says; for the rest the caller vouches.
        unsafe {
            if at_once {
                fill(
                    runtime,
                    stream,
                    control.ptr(),
                    0,
                    ticket_bytes + state_bytes * kept,
                )?;
            } else {
                fill(runtime, stream, control.ptr(), 0, ticket_bytes)?;
            }
            for (pass, (shift, mask)) in self.passes.iter().enumerate() {
                let number = pass as u64;
                let states = control
                    .ptr()
                    .offset(ticket_bytes + if at_once { number * state_bytes } else { 0 });
                if !at_once {
                    fill(runtime, stream, states, 0, state_bytes)?;
                }
                let mut args = PartitionPassArgs {
                    keys_in: if pass == 0 {
                        self.keys.ptr
                    } else {
                        keys_after(pass - 1)
                    },
                    keys_out: keys_after(pass),
                    from: [DevicePtr::NULL; 8],
                    to: [DevicePtr::NULL; 8],
                    histogram: histograms.offset(number * DIGITS * 4),
                    states,
                    ticket: control.ptr().offset(number * 4),
                    count: self.rows.count(),
                    most,
                    shift: *shift,
                    mask: *mask,
                };
                for (column, payload) in payloads.iter().enumerate() {
                    let after = |pass: usize| {
                        if to_target(pass) {
                            payload.to
                        } else {
                            other_payloads[column].ptr()
                        }
                    };
                    args.from[column] = match pass {
                        0 => payload.from.unwrap_or(DevicePtr::NULL),
                        _ => after(pass - 1),
                    };
                    args.to[column] = after(pass);
                }
                launch(runtime, stream, &kernel, config, &args)?;
            }
        }
        Ok(())
    }

    /// Where the partitions of the partitioned `keys` begin.
    ///
    /// # Safety
    /// As [`radix_partition`].
    unsafe fn offsets(&self, keys: DevicePtr, bits: &Range<u32>, offsets: DevicePtr) -> Result<()> {
        let partitions = 1u64 << bits.len();
        let args = PartitionOffsetsArgs {
            keys,
            offsets,
            count: self.rows.count(),
            most: self.rows.most(),
            partitions,
            shift: bits.start,
            mask: (partitions - 1) as u32,
        };
        let kernel = histogram_kernel(
            self.runtime,
            "partition_offsets",
            self.keys.width,
            self.hashed,
        )?;
        // Small blocks spread the searches over all multiprocessors.
        let block = 128;
        let config = LaunchConfig {
            grid: u32::try_from((partitions + 1).div_ceil(block)).unwrap_or(u32::MAX),
            block: block as u32,
            shared_bytes: 0,
        };
        // SAFETY: passed on to the caller.
        unsafe { launch(self.runtime, self.stream, &kernel, config, &args) }
    }
}
