//! Gathers of columns by row number, digit counts, and runs of equal keys.

use warpline_cuda::kernels::{
    self, COLUMN_VALUES, MoveColumnArgs, RUN_SHARED_BYTES, RUN_TILE, RunStartsArgs,
};

use super::partition::{Digits, Keys, count_digits};
use super::{BLOCK, RowCount, check_numbered, fill, grid, launch, scratch};
use crate::device::{DevicePtr, Kernel, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// `out[i]` = `column[map[i]]` for the `rows` entries of `map` (`u32*`); values have `width` bytes (1, 2, 4, 8, 16).
///
/// One kernel; its time depends on how clustered the map is: see `columns.cu`.
///
/// # Errors
/// [`GpuError::Internal`] for other widths, [`GpuError::Device`] from the driver.
///
/// # Safety
/// `map` has `rows.most()` entries, each the number of a value of `column`; `out` has room for as many values and
/// overlaps neither. Columns are aligned to their width.
pub unsafe fn gather(
    runtime: &Runtime,
    stream: &Stream,
    column: DevicePtr,
    map: DevicePtr,
    out: DevicePtr,
    width: u32,
    rows: RowCount,
) -> Result<()> {
    let args = moved((column, map, out), rows);
    // SAFETY: passed on to the caller.
    unsafe { move_column(runtime, stream, "gather_column", width, &args) }
}

/// Compile what [`gather`] launches for values of `width` bytes.
///
/// # Errors
/// [`GpuError::Compile`] and [`GpuError::Device`].
pub fn compile_gather(runtime: &Runtime, width: u32) -> Result<()> {
    column_kernel(runtime, "gather_column", width).map(|_| ())
}

/// `out[map[i]]` = `column[i]` for the `rows` entries of `map` (`u32*`); values have `width` bytes (1, 2, 4, 8, 16).
/// Which value wins where entries are equal is not said. One kernel: see `columns.cu`.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// `map` and `column` have `rows.most()` elements, each entry of `map` is the number of a value of `out`, and the three
/// do not overlap. Columns are aligned to their width.
pub unsafe fn scatter(
    runtime: &Runtime,
    stream: &Stream,
    column: DevicePtr,
    map: DevicePtr,
    out: DevicePtr,
    width: u32,
    rows: RowCount,
) -> Result<()> {
    let args = moved((column, map, out), rows);
    // SAFETY: passed on to the caller.
    unsafe { move_column(runtime, stream, "scatter_column", width, &args) }
}

fn moved((values, map, out): (DevicePtr, DevicePtr, DevicePtr), rows: RowCount) -> MoveColumnArgs {
    MoveColumnArgs {
        values,
        map,
        out,
        count: rows.count(),
        most: rows.most(),
    }
}

fn column_kernel(runtime: &Runtime, name: &'static str, width: u32) -> Result<Kernel> {
    if !matches!(width, 1 | 2 | 4 | 8 | 16) {
        return Err(GpuError::Internal(format!("a column of {width} bytes")));
    }
    runtime.builtin(name, width as usize, || kernels::columns(width))
}

/// # Safety
/// As [`gather`] or [`scatter`], by `name`.
unsafe fn move_column(
    runtime: &Runtime,
    stream: &Stream,
    name: &'static str,
    width: u32,
    args: &MoveColumnArgs,
) -> Result<()> {
    if args.most == 0 {
        return Ok(());
    }
    let kernel = column_kernel(runtime, name, width)?;
    let config = LaunchConfig {
        grid: grid(runtime, args.most, u64::from(BLOCK) * COLUMN_VALUES),
        block: BLOCK,
        shared_bytes: 0,
    };
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, args) }
}

/// Some bits of the keys of rows, or of their hashes.
#[derive(Debug, Clone, Copy)]
pub struct KeyDigits {
    /// The keys.
    pub keys: Keys,
    /// How many.
    pub rows: RowCount,
    /// Of the keys, or of their hashes?
    pub digits: Digits,
    /// The lowest of the bits, …
    pub shift: u32,
    /// … and how many, at most 8.
    pub bits: u32,
}

/// `counts[d]` (256 `u32`) = how many keys have the digit d. One reading of the keys: see `partition_histogram.cu`.
///
/// # Errors
/// [`GpuError::Internal`] for digits that do not exist, [`GpuError::Unsupported`] beyond 2^32 - 2 rows,
/// [`GpuError::Device`] from the driver.
///
/// # Safety
/// There are `rows.most()` keys, aligned to their width, and 256 counts.
pub unsafe fn histogram(
    runtime: &Runtime,
    stream: &Stream,
    of: &KeyDigits,
    counts: DevicePtr,
) -> Result<()> {
    let KeyDigits {
        keys,
        rows,
        digits,
        shift,
        bits,
    } = *of;
    check_numbered("a histogram of rows", rows.most())?;
    keys.check()?;
    if bits > 8 || shift + bits > digits.bits(keys.width) {
        return Err(GpuError::Internal(format!(
            "a histogram of {bits} bits from {shift} on of {} bytes",
            keys.width
        )));
    }
    let hashed = digits.hashed();
    // SAFETY: passed on to the caller.
    unsafe {
        fill(runtime, stream, counts, 0, 256 * 4)?;
        count_digits(
            runtime,
            stream,
            keys,
            rows,
            hashed,
            &[(shift, (1 << bits) - 1)],
            counts,
        )
    }
}

/// The runs of equal neighbours among `keys`: `starts` (`u32*`) gets the first row of each and behind them the number
/// of rows, `runs` (`u64*`) their number. The length of run i is `starts[i + 1] - starts[i]`.
///
/// One reading of the keys: see `run_lengths.cu`.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^32 - 2 rows, [`GpuError::Internal`] for keys of other widths,
/// [`GpuError::OutOfDeviceMemory`] for a word per 4096 keys, [`GpuError::Device`] from the driver.
///
/// # Safety
/// There are `rows.most()` keys, aligned to their width; `starts` has room for one word more than there are keys.
pub unsafe fn run_lengths(
    runtime: &Runtime,
    stream: &Stream,
    keys: Keys,
    rows: RowCount,
    starts: DevicePtr,
    runs: DevicePtr,
) -> Result<()> {
    check_numbered("runs of rows", rows.most())?;
    keys.check()?;
    let tiles = rows.most().div_ceil(RUN_TILE).max(1);
    // Tile words, then the ticket.
    let words = scratch(runtime, stream, tiles + 1, 8, "tiles of runs")?;
    let args = RunStartsArgs {
        keys: keys.ptr,
        starts,
        runs,
        states: words.ptr(),
        ticket: words.ptr().offset(tiles * 8),
        count: rows.count(),
        most: rows.most(),
    };
    let kernel = run_starts(runtime, keys.width)?;
    let config = LaunchConfig {
        grid: grid(runtime, tiles, 1),
        block: BLOCK,
        shared_bytes: RUN_SHARED_BYTES,
    };
    // SAFETY: the scratch is sized for `tiles`, and the pool reuses it only behind this launch; for the rest the
    // caller vouches.
    unsafe {
        fill(runtime, stream, words.ptr(), 0, (tiles + 1) * 8)?;
        launch(runtime, stream, &kernel, config, &args)
    }
}

/// Compile what [`run_lengths`] needs for keys of this many bytes ahead of its use.
///
/// # Errors
/// [`crate::GpuError::Compile`], [`crate::GpuError::Device`].
pub fn compile_run_lengths(runtime: &Runtime, width: u32) -> Result<()> {
    run_starts(runtime, width).map(drop)
}

fn run_starts(runtime: &Runtime, width: u32) -> Result<Kernel> {
    runtime.builtin("run_starts", width as usize, || kernels::run_lengths(width))
}
