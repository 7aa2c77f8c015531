//! Gathers of strings by row number.

use warpline_cuda::kernels::{self, GatherStringsArgs};

use super::{RowCount, exclusive_sum, launch, one_each, scratch, to_usize};
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;

/// Bytes that one lane copies at a time.
const LANE_BYTES: u64 = 8;

/// Rows of a column of strings that are chosen by their numbers.
#[derive(Debug, Clone, Copy)]
pub struct StringRows {
    /// `u64*`: where each string of the column begins, and the end of the last.
    pub offsets: DevicePtr,
    /// Their bytes.
    pub data: DevicePtr,
    /// The numbers of the rows: unsigned integers …
    pub row_ids: DevicePtr,
    /// … of so many bytes, 4 or 8.
    pub id_width: u8,
    /// A byte a chosen row: where it is 0 the string is empty and the row number is not looked at.
    pub valid: Option<DevicePtr>,
    /// How many.
    pub rows: RowCount,
}

impl StringRows {
    fn args(&self) -> Result<GatherStringsArgs> {
        if self.id_width != 4 && self.id_width != 8 {
            return Err(GpuError::Internal(format!(
                "row numbers of {} bytes",
                self.id_width
            )));
        }
        Ok(GatherStringsArgs {
            offsets: self.offsets,
            data: self.data,
            ids: self.row_ids,
            valid: self.valid.unwrap_or(DevicePtr::NULL),
            lengths: DevicePtr::NULL,
            out_offsets: DevicePtr::NULL,
            out: DevicePtr::NULL,
            count: self.rows.count(),
            most: self.rows.most(),
            id_width: u32::from(self.id_width),
            lanes_log2: 0,
        })
    }
}

/// Where each of the chosen strings begins when they lie one after the other, and the end of the last: `rows.most() + 1` words at
/// `into`. Beyond a number of rows that only the device knows, strings are empty.
///
/// # Errors
/// [`GpuError::Internal`] for another `id_width`, [`GpuError::OutOfDeviceMemory`], [`GpuError::Device`].
///
/// # Safety
/// The column is live and every row number is one of its rows; strings are shorter than 2^32 bytes; `row_ids` and `valid` have
/// `rows.most()` elements, `into` one more.
pub unsafe fn string_offsets(
    runtime: &Runtime,
    stream: &Stream,
    of: &StringRows,
    into: DevicePtr,
) -> Result<()> {
    let mut args = of.args()?;
    let lengths = scratch(runtime, stream, args.most, 4, "lengths of strings")?;
    args.lengths = lengths.ptr();
    args.out_offsets = into;
    let kernel = runtime.builtin("string_lengths", 0, kernels::strings_gather)?;
    let rows = RowCount::Known(args.most);
    // SAFETY: the scratch has a length a row; for the rest the caller vouches.
    unsafe {
        launch(
            runtime,
            stream,
            &kernel,
            one_each(runtime, args.most),
            &args,
        )?;
        exclusive_sum(runtime, stream, lengths.ptr(), into, rows, true)
    }
}

/// Copy the chosen strings, `total` bytes in all, to where `offsets` of [`string_offsets`] say behind `into`.
///
/// # Errors
/// As [`string_offsets`].
///
/// # Safety
/// As there; `data` is readable up to a multiple of 8 bytes, as every buffer of the pool is; `into` is aligned to 8 bytes and has `total`.
/// Words at the end are written whole only inside of strings.
pub unsafe fn copy_strings(
    runtime: &Runtime,
    stream: &Stream,
    of: &StringRows,
    (offsets, into): (DevicePtr, DevicePtr),
    total: u64,
) -> Result<()> {
    if total == 0 {
        return Ok(());
    }
    let mut args = of.args()?;
    args.out_offsets = offsets;
    args.out = into;
    // As many lanes as the average string has words, and one for its ends.
    let words = (total / args.most.max(1) / LANE_BYTES + 1).next_power_of_two();
    args.lanes_log2 = words.ilog2().min(5);
    let lanes = args.most.saturating_mul(1 << args.lanes_log2);
    let kernel = runtime.builtin("copy_strings", 0, kernels::strings_gather)?;
    // SAFETY: the caller vouches.
    unsafe { launch(runtime, stream, &kernel, one_each(runtime, lanes), &args) }
}

/// The strings of chosen rows, one after the other: their offsets (`u64`, `rows.most() + 1` of them) and their bytes.
///
/// Beyond a number of rows that only the device knows, strings are empty.
/// Waits for the device once, to read the number of bytes.
///
/// # Errors
/// [`GpuError::Internal`] for another `id_width`, [`GpuError::OutOfDeviceMemory`], [`GpuError::Device`].
///
/// # Safety
/// The column is live and every row number is one of its rows; strings are shorter than 2^32 bytes; `data` is readable
/// up to a multiple of 8 bytes, as every buffer of the pool is; `row_ids` and `valid` have `rows.most()` elements.
pub unsafe fn gather_strings(
    runtime: &Runtime,
    stream: &Stream,
    of: &StringRows,
) -> Result<(DeviceBuffer, DeviceBuffer)> {
    let most = of.rows.most();
    let ends = most.saturating_add(1);
    let offsets = scratch(runtime, stream, ends, 8, "offsets of strings")?;
    // SAFETY: there is an offset a row and one more; for the rest the caller vouches.
    unsafe { string_offsets(runtime, stream, of, offsets.ptr())? };
    let total: Vec<u64> = offsets.download_values(stream, to_usize(most)? * 8, 1)?;
    let total = total.first().copied().unwrap_or(0);
    let bytes = scratch(runtime, stream, total, 1, "bytes of strings")?;
    // SAFETY: the output has the bytes that the offsets were summed up to.
    unsafe { copy_strings(runtime, stream, of, (offsets.ptr(), bytes.ptr()), total)? };
    Ok((offsets, bytes))
}
