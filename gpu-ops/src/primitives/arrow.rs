//! Columns of codes in Arrow's layout.

use warpline_cuda::kernels::{self, ArrowColumnArgs};

use super::{launch, one_each};
use crate::device::{DevicePtr, Stream};
use crate::error::Result;
use crate::runtime::Runtime;

/// Codes, and where their values go.
#[derive(Debug, Clone, Copy)]
pub struct CodesToWiden {
    /// Unsigned codes, or signed values in 16 bytes …
    pub codes: DevicePtr,
    /// … of so many bytes.
    pub width: u8,
    /// Added to every code.
    pub base: i128,
    /// The values …
    pub out: DevicePtr,
    /// … of so many bytes, up to 32: higher bits of the sum are dropped.
    pub out_width: u8,
    /// How many.
    pub rows: u64,
}

/// Values of their type's width, of codes.
///
/// # Errors
/// [`crate::GpuError::Compile`] and [`crate::GpuError::Device`].
///
/// # Safety
/// Both ranges are live and of `rows` elements.
pub unsafe fn widen_codes(runtime: &Runtime, stream: &Stream, of: &CodesToWiden) -> Result<()> {
    if of.rows == 0 {
        return Ok(());
    }
    let base = of.base as u128;
    let args = ArrowColumnArgs {
        codes: of.codes,
        out: of.out,
        base_low: base as u64,
        base_high: (base >> 64) as u64,
        rows: of.rows,
        width: of.width.into(),
        out_width: of.out_width.into(),
        ..ArrowColumnArgs::default()
    };
    let kernel = runtime.builtin("widen_codes", 0, kernels::arrow_columns)?;
    // SAFETY: the caller vouches for both ranges.
    unsafe { launch(runtime, stream, &kernel, one_each(runtime, of.rows), &args) }
}

/// A bit for each of `rows` bytes: is it not 0? `out` has words of 4 bytes; the number of bytes that are 0 is added to `zeros`
/// (`u64*`).
///
/// # Errors
/// As [`widen_codes`].
///
/// # Safety
/// The ranges are live: `rows` bytes of flags, a bit for each rounded up to words, and a `u64`.
pub unsafe fn pack_flags(
    runtime: &Runtime,
    stream: &Stream,
    flags: DevicePtr,
    out: DevicePtr,
    zeros: DevicePtr,
    rows: u64,
) -> Result<()> {
    if rows == 0 {
        return Ok(());
    }
    let args = ArrowColumnArgs {
        codes: flags,
        out,
        zeros,
        rows,
        ..ArrowColumnArgs::default()
    };
    let kernel = runtime.builtin("pack_flags", 0, kernels::arrow_columns)?;
    // SAFETY: the caller vouches for the ranges.
    unsafe { launch(runtime, stream, &kernel, one_each(runtime, rows), &args) }
}
