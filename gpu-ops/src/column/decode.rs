//! Decoding of device codes to Arrow arrays of the logical type.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, BooleanArray, LargeBinaryArray, LargeStringArray, UInt32Array,
    make_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, i256};

use super::native::{Native, Physical, is_binary, physical, value_type};
use super::opaque::{self, is_opaque};
use super::types::{Column, Dictionary, Encoding};
use super::views::text_views;
use crate::device::Stream;
use crate::error::{GpuError, Result};

/// Decode `rows` codes that lie in host memory as they lay on the device.
///
/// `codes` holds at least `rows` codes of the encoding (bits for [`Encoding::Bits`]), `validity` one
/// bit a row, least significant first, 1 = not null. The result has exactly `data_type`.
///
/// # Errors
/// [`GpuError::Internal`] when a slice is too short or a dictionary code out of range;
/// [`GpuError::Unsupported`] when the type does not go with the encoding. Strings that lie as bytes
/// are decoded by [`decode_bytes`].
pub fn decode(
    data_type: &DataType,
    encoding: &Encoding,
    codes: &[u8],
    validity: Option<&[u8]>,
    rows: usize,
) -> Result<ArrayRef> {
    let nulls = validity.map(|bits| null_buffer(bits, rows)).transpose()?;
    if let Encoding::Bits = encoding {
        if codes.len() < rows.div_ceil(8) {
            return Err(short(codes.len(), rows));
        }
        let buffer = BooleanBuffer::new(Buffer::from(&codes[..rows.div_ceil(8)]), 0, rows);
        return as_logical(Arc::new(BooleanArray::new(buffer, nulls)), data_type);
    }
    let width = match encoding {
        Encoding::Integer { width, .. }
        | Encoding::Float { width }
        | Encoding::Dictionary { width, .. } => usize::from(*width),
        Encoding::Bits | Encoding::Bytes { .. } => {
            return Err(GpuError::Internal(
                "strings that lie as bytes have no codes".into(),
            ));
        }
    };
    let codes = rows
        .checked_mul(width)
        .and_then(|bytes| codes.get(..bytes))
        .ok_or_else(|| short(codes.len(), rows))?;
    match width {
        1 => decode_words(data_type, encoding, nulls, codes, |[code]| code.into()),
        2 => decode_words(data_type, encoding, nulls, codes, |w| {
            u16::from_le_bytes(w).into()
        }),
        4 => decode_words(data_type, encoding, nulls, codes, |w| {
            u32::from_le_bytes(w).into()
        }),
        8 => decode_words(data_type, encoding, nulls, codes, |w| {
            u64::from_le_bytes(w).into()
        }),
        16 => decode_words(data_type, encoding, nulls, codes, i128::from_le_bytes),
        other => Err(GpuError::Internal(format!("codes of {other} bytes"))),
    }
}

/// Decode codes widened to 64 bits, as group keys leave a kernel: `base + code` for integers, the
/// position in the dictionary, 0 or 1, or the bits of a float.
///
/// `nulls` tells which of the rows are null.
///
/// # Errors
/// As [`decode`]; also [`GpuError::Unsupported`] for 16-byte codes, which 64 bits do not hold.
pub fn decode_codes(
    data_type: &DataType,
    encoding: &Encoding,
    codes: &[u64],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    if nulls
        .as_ref()
        .is_some_and(|nulls| nulls.len() != codes.len())
    {
        return Err(GpuError::Internal(
            "codes and null flags differ in length".into(),
        ));
    }
    if let Encoding::Integer { width: 16, .. } = encoding {
        return Err(GpuError::Unsupported(
            "a key of 128 bits as 64-bit codes".into(),
        ));
    }
    let codes = codes.iter().map(|code| i128::from(*code));
    decode_with(data_type, encoding, nulls, codes)
}

/// Decode strings that lie as bytes: `offsets` has a position in `data` for the begin of each, and one for the end of the
/// last.
///
/// # Errors
/// [`GpuError::Internal`] when offsets leave `data` or go back, or when the bytes of text are not UTF-8.
pub fn decode_bytes(
    data_type: &DataType,
    offsets: &[u64],
    data: Buffer,
    validity: Option<&[u8]>,
) -> Result<ArrayRef> {
    let rows = offsets.len().saturating_sub(1);
    let nulls = validity.map(|bits| null_buffer(bits, rows)).transpose()?;
    let ascending =
        offsets.is_sorted() && offsets.last().is_none_or(|end| *end <= data.len() as u64);
    if !ascending {
        return Err(GpuError::Internal(
            "a string lies outside its column".into(),
        ));
    }
    if *data_type == DataType::Utf8View
        && !offsets.is_empty()
        && let Some(views) = text_views(offsets, &data, nulls.as_ref())?
    {
        return Ok(views);
    }
    let offsets: ScalarBuffer<i64> = match offsets {
        [] => vec![0].into(),
        offsets => offsets.iter().map(|end| *end as i64).collect(),
    };
    // The cast to the logical type checks its own limits.
    if is_binary(data_type) {
        let array = LargeBinaryArray::try_new(OffsetBuffer::new(offsets), data, nulls)
            .map_err(|error| GpuError::Internal(format!("a binary column: {error}")))?;
        return as_logical(Arc::new(array), data_type);
    }
    // Checks the bytes of all strings at once.
    let array = LargeStringArray::try_new(OffsetBuffer::new(offsets), data, nulls)
        .map_err(|error| GpuError::Internal(format!("a string column: {error}")))?;
    as_logical(Arc::new(array), data_type)
}

impl Column {
    /// Download the column and decode it to its logical type.
    ///
    /// # Errors
    /// [`GpuError::Device`] from the copy or earlier work on `stream`; else as [`decode`].
    pub fn to_arrow(&self, stream: &Stream) -> Result<ArrayRef> {
        let bits = self.rows.div_ceil(8);
        let validity = match &self.validity {
            Some(buffer) => Some(buffer.download_values::<u8>(stream, 0, bits)?),
            None => None,
        };
        let validity = validity.as_deref();
        let bytes = match &self.encoding {
            Encoding::Bytes { offsets } => {
                let offsets = offsets.download_values::<u64>(stream, 0, self.rows + 1)?;
                let total = offsets.last().copied().unwrap_or(0) as usize;
                let data = self.data.download_values::<u8>(stream, 0, total)?;
                return decode_bytes(&self.data_type, &offsets, data.into(), validity);
            }
            Encoding::Bits => bits,
            Encoding::Integer { width, .. }
            | Encoding::Float { width }
            | Encoding::Dictionary { width, .. } => self.rows * usize::from(*width),
        };
        let codes = self.data.download_values::<u8>(stream, 0, bytes)?;
        decode(&self.data_type, &self.encoding, &codes, validity, self.rows)
    }
}

fn short(bytes: usize, rows: usize) -> GpuError {
    GpuError::Internal(format!("{bytes} bytes are too few for {rows} rows"))
}

fn null_buffer(bits: &[u8], rows: usize) -> Result<NullBuffer> {
    let bits = bits
        .get(..rows.div_ceil(8))
        .ok_or_else(|| short(bits.len(), rows))?;
    Ok(NullBuffer::new(BooleanBuffer::new(
        Buffer::from(bits),
        0,
        rows,
    )))
}

fn decode_words<const W: usize>(
    data_type: &DataType,
    encoding: &Encoding,
    nulls: Option<NullBuffer>,
    codes: &[u8],
    widen: impl Fn([u8; W]) -> i128,
) -> Result<ArrayRef> {
    let (words, _) = codes.as_chunks::<W>();
    let codes = words.iter().map(|word| widen(*word));
    decode_with(data_type, encoding, nulls, codes)
}

/// Decode codes, zero-extended (sign-extended for 16 bytes). Loops over them have no branch.
fn decode_with(
    data_type: &DataType,
    encoding: &Encoding,
    nulls: Option<NullBuffer>,
    codes: impl ExactSizeIterator<Item = i128> + Clone,
) -> Result<ArrayRef> {
    let rows = codes.len();
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let stored = value_type(data_type);
    let buffer = match (encoding, physical(data_type)?) {
        (Encoding::Bits, Physical::Bits) => {
            let bits = BooleanBuffer::from_iter(codes.map(|code| code & 1 == 1));
            return as_logical(Arc::new(BooleanArray::new(bits, nulls)), data_type);
        }
        (Encoding::Dictionary { dictionary, .. }, Physical::Text) => {
            return decode_dictionary(data_type, dictionary, codes.map(|code| code as u64), nulls);
        }
        (Encoding::Float { width: 4 }, Physical::Float(4)) => {
            Buffer::from_vec(codes.map(|code| code as u32).collect())
        }
        (Encoding::Float { width: 8 }, Physical::Float(8)) => {
            Buffer::from_vec(codes.map(|code| code as u64).collect())
        }
        (Encoding::Integer { base, .. }, Physical::Integer(native)) => {
            // The sum is exact: it is a value of the column.
            let values = codes.map(|code| base.wrapping_add(code));
            match native {
                Native::I8 | Native::U8 => Buffer::from_vec(values.map(|v| v as u8).collect()),
                Native::I16 | Native::U16 => Buffer::from_vec(values.map(|v| v as u16).collect()),
                Native::I32 | Native::U32 => Buffer::from_vec(values.map(|v| v as u32).collect()),
                Native::I64 | Native::U64 => Buffer::from_vec(values.map(|v| v as u64).collect()),
                Native::I128 => Buffer::from_vec(values.collect::<Vec<i128>>()),
                Native::I256 => {
                    Buffer::from_vec(values.map(i256::from_i128).collect::<Vec<i256>>())
                }
            }
        }
        (encoding, _) => {
            return Err(GpuError::Unsupported(format!(
                "decoding {encoding:?} as {data_type}"
            )));
        }
    };
    let data = ArrayData::builder(stored.clone())
        .len(rows)
        .nulls(nulls)
        .add_buffer(buffer)
        .build()?;
    as_logical(make_array(data), data_type)
}

/// The largest of the codes, and all of them as keys, which they are where that is in the dictionary.
fn keys_of(codes: impl Iterator<Item = u64> + Clone) -> (u64, Vec<u32>) {
    let largest = codes.clone().fold(0, u64::max);
    (largest, codes.map(|code| code as u32).collect())
}

/// Strings by dictionary code; codes of null rows are not looked at.
fn decode_dictionary(
    data_type: &DataType,
    dictionary: &Dictionary,
    codes: impl ExactSizeIterator<Item = u64> + Clone,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let rows = codes.len();
    let (largest, keys) = match &nulls {
        None => keys_of(codes),
        Some(nulls) => {
            let codes = codes.zip(nulls);
            keys_of(codes.map(|(code, known)| if known { code } else { 0 }))
        }
    };
    let known = rows - nulls.as_ref().map_or(0, NullBuffer::null_count);
    if known > 0 && largest >= dictionary.len() as u64 {
        return Err(GpuError::Internal(format!(
            "code {largest} in a dictionary of {} strings",
            dictionary.len()
        )));
    }
    if dictionary.is_empty() {
        return Ok(new_null_array(data_type, rows));
    }
    let keys = UInt32Array::new(keys.into(), nulls);
    if let DataType::Dictionary(key_type, _) = data_type {
        // Keys of the logical type, when it holds the whole dictionary; else the cast below keeps
        // only the strings in use.
        let largest = UInt32Array::from(vec![dictionary.len() as u32 - 1]);
        if cast(&largest, key_type)?.null_count() == 0 {
            let keys = cast(&keys, key_type)?;
            let data = keys
                .to_data()
                .into_builder()
                .data_type(data_type.clone())
                .add_child_data(dictionary.values.to_data())
                .build()?;
            return Ok(make_array(data));
        }
    }
    // Each value is made once, of as few bytes as there are.
    if is_opaque(data_type) && rows > dictionary.len() {
        let values = as_logical(Arc::clone(&dictionary.values), data_type)?;
        return Ok(take(&values, &keys, None)?);
    }
    as_logical(take(&dictionary.values, &keys, None)?, data_type)
}

/// Stored values as those of the logical type.
///
/// # Errors
/// [`GpuError::Arrow`] when the type has no such value; else as [`opaque::values`].
pub(crate) fn as_logical(array: ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if array.data_type() == data_type {
        return Ok(array);
    }
    if is_opaque(data_type) {
        return opaque::values(&array, data_type);
    }
    Ok(cast(&array, data_type)?)
}
