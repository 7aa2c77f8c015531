//! The device representation of each logical Arrow type.

use arrow::datatypes::DataType;

use super::opaque::{self, is_opaque};
use crate::error::{GpuError, Result};

/// The Rust integer that Arrow stores a logical type as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Native {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    I128,
    I256,
}

/// The family of encodings a logical type can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Physical {
    Bits,
    Integer(Native),
    Float(u8),
    /// Strings of characters or of bytes, and what is stored as such.
    Text,
}

/// Can columns of this type live on a device?
///
/// # Errors
/// [`GpuError::Unsupported`] with the type and the reason.
pub fn check_type(data_type: &DataType) -> Result<()> {
    physical(data_type).map(|_| ())
}

/// Does the type hold strings, of characters or of bytes?
pub fn is_text(data_type: &DataType) -> bool {
    matches!(physical(data_type), Ok(Physical::Text))
}

/// Does the type hold strings of bytes, which need not be UTF-8, or what is stored as such?
pub(crate) fn is_binary(data_type: &DataType) -> bool {
    match data_type {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => true,
        DataType::Dictionary(_, value) => is_binary(value),
        other => is_opaque(other),
    }
}

/// Does the type hold integers of any kind: numbers, decimals, dates, times?
pub(crate) fn is_number(data_type: &DataType) -> bool {
    matches!(physical(data_type), Ok(Physical::Integer(_)))
}

/// Can columns of the type lie on the device?
pub(crate) fn is_storable(data_type: &DataType) -> bool {
    physical(data_type).is_ok()
}

/// The representation of `data_type`; a dictionary's is that of its values.
pub(super) fn physical(data_type: &DataType) -> Result<Physical> {
    use Native::*;
    Ok(match data_type {
        DataType::Boolean => Physical::Bits,
        DataType::Int8 => Physical::Integer(I8),
        DataType::Int16 => Physical::Integer(I16),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(_, _) => {
            Physical::Integer(I32)
        }
        DataType::Int64
        | DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(_, _)
        | DataType::Duration(_)
        | DataType::Decimal64(_, _) => Physical::Integer(I64),
        DataType::UInt8 => Physical::Integer(U8),
        DataType::UInt16 => Physical::Integer(U16),
        DataType::UInt32 => Physical::Integer(U32),
        DataType::UInt64 => Physical::Integer(U64),
        DataType::Decimal128(_, _) => Physical::Integer(I128),
        DataType::Decimal256(_, _) => Physical::Integer(I256),
        DataType::Float32 => Physical::Float(4),
        DataType::Float64 => Physical::Float(8),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Physical::Text,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Physical::Text,
        // Without a byte, an array does not say how many values it has.
        DataType::FixedSizeBinary(1..) => Physical::Text,
        DataType::Dictionary(_, value) if !value.is_nested() => physical(value)?,
        opaque if is_opaque(opaque) => Physical::Text,
        DataType::Float16 => {
            return Err(unsupported(
                data_type,
                "half-precision arithmetic; CAST to FLOAT",
            ));
        }
        DataType::FixedSizeBinary(_) => {
            return Err(unsupported(data_type, "values without a byte"));
        }
        DataType::Null => return Err(unsupported(data_type, "a column without a type")),
        _ => return Err(unsupported(data_type, "nested values")),
    })
}

fn unsupported(data_type: &DataType, what: &str) -> GpuError {
    GpuError::Unsupported(format!("a column of type {data_type} ({what})"))
}

/// The type whose values are stored: a dictionary's value type, bytes of what is opaque, else the type itself.
pub(super) fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => value,
        opaque if is_opaque(opaque) => &opaque::STORED,
        other => other,
    }
}

/// Fewest bytes that hold `0..=largest` unsigned; 16 where 8 do not.
pub(super) fn unsigned_width(largest: u128) -> u8 {
    match largest {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        0x1_0000_0000..=0xffff_ffff_ffff_ffff => 8,
        _ => 16,
    }
}

/// Do values begin so far from 0 that arrays over all keys would be larger for it by more than an eighth? Those of small spans are
/// small either way, and codes that are values need no addition.
fn is_far(min: i128, span: u128) -> bool {
    const SMALL: u128 = 1 << 16;
    span > SMALL && min.unsigned_abs() > span / 8
}

/// Width in bytes and base of the frame of reference for `range`, by the rule of
/// [`super::Encoding::Integer`].
pub(super) fn frame(range: Option<(i128, i128)>) -> (u8, i128) {
    let Some((min, max)) = range else {
        return (1, 0);
    };
    // The distance of two i128 always fits u128.
    let span = max.wrapping_sub(min) as u128;
    let width = unsigned_width(span);
    if width == 16 || (min >= 0 && unsigned_width(max as u128) <= width && !is_far(min, span)) {
        (width, 0)
    } else {
        (width, min)
    }
}
