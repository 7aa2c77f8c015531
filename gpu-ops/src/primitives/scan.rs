//! Exclusive prefix sums.

use warpline_cuda::kernels::{self, SCAN_SHARED_BYTES, SCAN_TILE, ScanArgs};

use super::{BLOCK, RowCount, fill, grid, launch, scratch};
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// Tiles that one block goes over faster than words for many blocks are cleared.
const TILES_OF_ONE_BLOCK: u64 = 4;

/// `out[i]` = the sum of the `counts` before `i`, for i = 0 ..= rows: one word more than counts, the last is the total.
///
/// `counts` are `u32`; `out` are `u64` with `wide_out`, else `u32` (sums modulo 2^32), in which case `out` may be
/// `counts` itself, with room for one word more. Sums below 2^62. Both addresses are aligned to 16 bytes.
/// Words of `out` behind the total are left as they are. One kernel, at the speed of memory: see `scan.cu`.
///
/// # Errors
/// [`GpuError::OutOfDeviceMemory`] for a word per 4096 counts, [`GpuError::Device`] from the driver, [`GpuError::Internal`] for other
/// addresses.
///
/// # Safety
/// `counts` has `rows.most()` words, `out` one more.
pub unsafe fn exclusive_sum(
    runtime: &Runtime,
    stream: &Stream,
    counts: DevicePtr,
    out: DevicePtr,
    rows: RowCount,
    wide_out: bool,
) -> Result<()> {
    let name = if wide_out {
        "exclusive_sum_u64"
    } else {
        "exclusive_sum_u32"
    };
    if !(counts.0 | out.0).is_multiple_of(16) {
        return Err(GpuError::Internal(
            "sums of counts that do not begin at a multiple of 16 bytes".into(),
        ));
    }
    let kernel = runtime.builtin(name, 0, kernels::scan)?;
    let tiles = rows.most().div_ceil(SCAN_TILE);
    let mut args = ScanArgs {
        counts,
        out,
        states: DevicePtr::NULL,
        ticket: DevicePtr::NULL,
        count: rows.count(),
        most: rows.most(),
    };
    let mut blocks = 1;
    // Tile words, then the ticket.
    let mut words = None;
    if tiles > TILES_OF_ONE_BLOCK {
        let buffer = scratch(runtime, stream, tiles + 1, 8, "tiles of a sum")?;
        // SAFETY: the whole of a live buffer.
        unsafe { fill(runtime, stream, buffer.ptr(), 0, buffer.len() as u64)? };
        args.states = buffer.ptr();
        args.ticket = buffer.ptr().offset(tiles * 8);
        blocks = grid(runtime, tiles, 1);
        words = Some(buffer);
    }
    let config = LaunchConfig {
        grid: blocks,
        block: BLOCK,
        shared_bytes: SCAN_SHARED_BYTES,
    };
    // SAFETY: the caller vouches for `counts` and `out`; the scratch is sized for `tiles`, and the pool reuses it
    // only behind this launch.
    unsafe { launch(runtime, stream, &kernel, config, &args)? };
    drop(words);
    Ok(())
}
