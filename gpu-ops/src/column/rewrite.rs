//! Re-encoding of a chunk's codes to those of its column: another width, base or dictionary.

use std::ops::Range;

use super::chunk::Codes;
use crate::error::{GpuError, Result};

/// Write `bytes(value)` of each value, one after the other.
pub(super) fn put<T: Copy, const W: usize>(
    values: &[T],
    out: &mut [u8],
    bytes: impl Fn(T) -> [u8; W],
) {
    for (out, value) in out.as_chunks_mut::<W>().0.iter_mut().zip(values) {
        *out = bytes(*value);
    }
}

/// Write the low `width` bytes of `code(value)` of each value.
fn put_codes<T: Copy>(
    values: &[T],
    out: &mut [u8],
    width: usize,
    code: impl Fn(T) -> u64,
) -> Result<()> {
    match width {
        1 => put(values, out, |v| [code(v) as u8]),
        2 => put(values, out, |v| (code(v) as u16).to_le_bytes()),
        4 => put(values, out, |v| (code(v) as u32).to_le_bytes()),
        8 => put(values, out, |v| code(v).to_le_bytes()),
        other => return Err(mixed(&format!("a width of {other} bytes"))),
    }
    Ok(())
}

/// Move codes from the chunk's base to the column's.
pub(super) fn write_integers(
    codes: &Codes,
    rows: Range<usize>,
    out: &mut [u8],
    width: usize,
    own: i128,
    base: i128,
) -> Result<()> {
    if width == 16 {
        match codes {
            Codes::U8(codes) => put(&codes[rows], out, |v| (own + i128::from(v)).to_le_bytes()),
            Codes::U16(codes) => put(&codes[rows], out, |v| (own + i128::from(v)).to_le_bytes()),
            Codes::U32(codes) => put(&codes[rows], out, |v| (own + i128::from(v)).to_le_bytes()),
            // Wraps on null rows only, which are cleared afterwards.
            Codes::U64(codes) => put(&codes[rows], out, |v| {
                own.wrapping_add(i128::from(v)).to_le_bytes()
            }),
            Codes::I128(codes) => put(&codes[rows], out, |v| v.to_le_bytes()),
        }
        return Ok(());
    }
    // Codes are relative to `base` modulo 2^64, and the column's range fits the width.
    let delta = own.wrapping_sub(base) as u64;
    match codes {
        Codes::U8(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v.into())),
        Codes::U16(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v.into())),
        Codes::U32(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v.into())),
        Codes::U64(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v)),
        Codes::I128(_) => Err(mixed("a chunk of 128 bits")),
    }
}

/// Replace a segment's numbers by the column's codes.
pub(super) fn write_dictionary(
    codes: &Codes,
    rows: Range<usize>,
    out: &mut [u8],
    width: usize,
    remap: &[u32],
) -> Result<()> {
    // A segment of nulls alone has no strings; its codes are cleared afterwards.
    let code = |number: usize| u64::from(remap.get(number).copied().unwrap_or(0));
    match codes {
        Codes::U8(codes) => put_codes(&codes[rows], out, width, |v| code(v.into())),
        Codes::U16(codes) => put_codes(&codes[rows], out, width, |v| code(v.into())),
        Codes::U32(codes) => put_codes(&codes[rows], out, width, |v| code(v as usize)),
        Codes::U64(_) | Codes::I128(_) => Err(mixed("wide dictionary codes")),
    }
}

/// The error of pieces whose encodings do not go together.
pub(super) fn mixed(what: &str) -> GpuError {
    GpuError::Internal(format!("{what} in a column of another encoding"))
}
