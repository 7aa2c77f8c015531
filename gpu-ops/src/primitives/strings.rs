//! Gathers of strings by row number.

use warpline_cuda::kernels::{self, GatherStringsArgs};

use super::{BLOCK, RowCount, exclusive_sum, grid, launch, scratch, to_usize};
use crate::device::{DevicePtr, LaunchConfig, Stream};
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
    let StringRows {
        offsets,
        data,
        row_ids,
        id_width,
        valid,
        rows,
    } = *of;
    if id_width != 4 && id_width != 8 {
        return Err(GpuError::Internal(format!(
            "row numbers of {id_width} bytes"
        )));
    }
    let most = rows.most();
    let lengths = scratch(runtime, stream, most, 4, "lengths of strings")?;
    let out_offsets = scratch(
        runtime,
        stream,
        most.saturating_add(1),
        8,
        "offsets of strings",
    )?;
    let mut args = GatherStringsArgs {
        offsets,
        data,
        ids: row_ids,
        valid: valid.unwrap_or(DevicePtr::NULL),
        lengths: lengths.ptr(),
        out_offsets: out_offsets.ptr(),
        out: DevicePtr::NULL,
        count: rows.count(),
        most,
        id_width: u32::from(id_width),
        lanes_log2: 0,
    };
    let config = |items: u64| LaunchConfig {
        grid: grid(runtime, items, u64::from(BLOCK)),
        block: BLOCK,
        shared_bytes: 0,
    };
    let kernel = runtime.builtin("string_lengths", 0, kernels::strings_gather)?;
    // SAFETY: the scratch has a length a row and an offset more; for the rest the caller vouches.
    unsafe {
        launch(runtime, stream, &kernel, config(most), &args)?;
        exclusive_sum(
            runtime,
            stream,
            lengths.ptr(),
            out_offsets.ptr(),
            RowCount::Known(most),
            true,
        )?;
    }
    let total: Vec<u64> = out_offsets.download_values(stream, to_usize(most)? * 8, 1)?;
    let total = total.first().copied().unwrap_or(0);
    // Words at the end are written whole only inside of strings, so the exact size is enough.
    let bytes = scratch(runtime, stream, total, 1, "bytes of strings")?;
    if total > 0 {
        // As many lanes as the average string has words, and one for its ends.
        let words = (total / most.max(1) / LANE_BYTES + 1).next_power_of_two();
        args.lanes_log2 = words.ilog2().min(5);
        args.out = bytes.ptr();
        let kernel = runtime.builtin("copy_strings", 0, kernels::strings_gather)?;
        let lanes = most.saturating_mul(1 << args.lanes_log2);
        // SAFETY: the output has the bytes that the offsets were summed up to.
        unsafe { launch(runtime, stream, &kernel, config(lanes), &args)? };
    }
    Ok((out_offsets, bytes))
}
