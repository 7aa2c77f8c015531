//! Columns of a result on the host as Arrow arrays of their logical types.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::codegen::{ColumnLayout, Meaning, unpack_array};
use crate::column::{Dictionary, Encoding, decode as decode_encoded, decode_codes, is_text};
use crate::error::{GpuError, Result};

/// Decode the first `rows` values of a column that lies in host memory as it lay on the device: `codes` as
/// `layout` says, `valid` a byte a row (0 = NULL) when the layout is nullable.
///
/// # Errors
/// [`GpuError::Internal`] when a slice is too short, a code out of range, or strings come by row, which have
/// to be gathered first.
pub(in crate::exec) fn decode(
    layout: &ColumnLayout,
    codes: &[u8],
    valid: Option<&[u8]>,
    rows: usize,
) -> Result<ArrayRef> {
    let data_type = &layout.data_type;
    let width = usize::from(layout.width);
    let short = || GpuError::Internal(format!("an output column of fewer than {rows} rows"));
    let codes = rows
        .checked_mul(width)
        .and_then(|bytes| codes.get(..bytes))
        .ok_or_else(short)?;
    let valid = match valid {
        Some(valid) => Some(valid.get(..rows).ok_or_else(short)?),
        None => None,
    };
    if *data_type == DataType::Null {
        return Ok(new_null_array(data_type, rows));
    }
    let bits = valid.map(bits);
    let text = matches!(data_type, DataType::Dictionary(..)) || is_text(data_type);
    match &layout.meaning {
        Meaning::Row(_) => Err(GpuError::Internal("strings that were not gathered".into())),
        Meaning::Code(dictionary) => strings(layout, dictionary, codes, bits, rows),
        Meaning::Packed {
            chars,
            bits: char_bits,
        } => {
            let packed: Vec<i128> = match layout.width {
                16 => {
                    let words = codes.as_chunks::<16>().0.iter();
                    words.map(|word| i128::from_le_bytes(*word)).collect()
                }
                // Packed strings are not negative.
                _ => numbers(codes, layout)?
                    .into_iter()
                    .map(i128::from)
                    .collect(),
            };
            let known = |row: usize| bits.as_ref().is_none_or(|bits| bits.value(row));
            let packed = packed.into_iter().enumerate();
            let packed = packed.map(|(row, number)| known(row).then_some(number));
            unpack_array(packed, *chars, *char_bits, data_type)
        }
        // Strings are codes, rows or packed; NULL alone is none of these.
        Meaning::Number if text && bits.as_ref().is_some_and(|b| b.count_set_bits() == 0) => {
            Ok(new_null_array(data_type, rows))
        }
        Meaning::Number if *data_type == DataType::Boolean => {
            let values = BooleanBuffer::collect_bool(rows, |row| codes[row] != 0);
            Ok(Arc::new(BooleanArray::new(values, nulls(bits))))
        }
        Meaning::Number => {
            let encoding = if layout.float {
                Encoding::Float {
                    width: layout.width,
                }
            } else {
                Encoding::Integer {
                    width: layout.width,
                    base: layout.base,
                }
            };
            let bytes = bits.as_ref().map(BooleanBuffer::values);
            decode_encoded(data_type, &encoding, codes, bytes, rows)
        }
    }
}

/// Bytes that are 0 or not as bits.
fn bits(valid: &[u8]) -> BooleanBuffer {
    BooleanBuffer::collect_bool(valid.len(), |row| valid[row] != 0)
}

fn nulls(bits: Option<BooleanBuffer>) -> Option<NullBuffer> {
    bits.map(NullBuffer::new)
        .filter(|nulls| nulls.null_count() > 0)
}

fn strings(
    layout: &ColumnLayout,
    dictionary: &Arc<Dictionary>,
    codes: &[u8],
    bits: Option<BooleanBuffer>,
    rows: usize,
) -> Result<ArrayRef> {
    if dictionary.is_empty() {
        return Ok(new_null_array(&layout.data_type, rows));
    }
    let encoding = Encoding::Dictionary {
        width: layout.width,
        dictionary: Arc::clone(dictionary),
    };
    if layout.base == 0 {
        let bytes = bits.as_ref().map(BooleanBuffer::values);
        return decode_encoded(&layout.data_type, &encoding, codes, bytes, rows);
    }
    let nulls = nulls(bits);
    let mut wide = numbers(codes, layout)?;
    // NULLs hold no code of the dictionary.
    if let Some(nulls) = &nulls {
        for (row, code) in wide.iter_mut().enumerate() {
            if nulls.is_null(row) {
                *code = 0;
            }
        }
    }
    decode_codes(&layout.data_type, &encoding, &wide, nulls)
}

/// The values of unsigned codes of up to 8 bytes.
///
/// # Errors
/// [`GpuError::Internal`] for other widths.
pub(in crate::exec) fn numbers(codes: &[u8], layout: &ColumnLayout) -> Result<Vec<u64>> {
    let base = layout.base as u64;
    let add = |code: u64| code.wrapping_add(base);
    Ok(match layout.width {
        1 => codes.iter().map(|c| add((*c).into())).collect(),
        2 => {
            let words = codes.as_chunks::<2>().0.iter();
            words.map(|c| add(u16::from_le_bytes(*c).into())).collect()
        }
        4 => {
            let words = codes.as_chunks::<4>().0.iter();
            words.map(|c| add(u32::from_le_bytes(*c).into())).collect()
        }
        8 => {
            let words = codes.as_chunks::<8>().0.iter();
            words.map(|c| add(u64::from_le_bytes(*c))).collect()
        }
        other => {
            return Err(GpuError::Internal(format!("row numbers of {other} bytes")));
        }
    })
}

/// The array as the type that the fragment's schema says.
pub(in crate::exec) fn as_type(array: ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if array.data_type() == data_type {
        return Ok(array);
    }
    Ok(cast(&array, data_type)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::array::{
        Array, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Int16Array, Int64Array,
        StringArray, StringViewArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{TimeUnit, i256};

    use super::*;
    use crate::codegen::Range;

    fn layout(data_type: DataType, width: u8, base: i128) -> ColumnLayout {
        ColumnLayout {
            data_type,
            width,
            float: false,
            base,
            range: Range::FULL,
            meaning: Meaning::Number,
            nullable: false,
        }
    }

    #[test]
    fn numbers_of_every_width() {
        let short = layout(DataType::Int64, 1, -3);
        let array = decode(&short, &[0, 255, 3, 99], None, 3).unwrap();
        assert_eq!(array.as_ref(), &Int64Array::from(vec![-3, 252, 0]));

        let middle = layout(DataType::Int16, 2, -300);
        let array = decode(&middle, &[1, 0, 88, 2], Some(&[1, 0]), 2).unwrap();
        assert_eq!(array.as_ref(), &Int16Array::from(vec![Some(-299), None]));

        let days = layout(DataType::Date32, 4, -10);
        let array = decode(&days, &7u32.to_le_bytes(), None, 1).unwrap();
        assert_eq!(array.as_ref(), &Date32Array::from(vec![-3]));

        let stamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        let stamps = layout(stamp, 8, i64::MIN.into());
        let array = decode(&stamps, &u64::MAX.to_le_bytes(), None, 1).unwrap();
        let expected = TimestampMicrosecondArray::from(vec![i64::MAX]);
        assert_eq!(array.as_ref(), &expected);

        let wide = layout(DataType::Decimal128(38, 2), 16, 0);
        let value = -(10i128.pow(38) - 1);
        let array = decode(&wide, &value.to_le_bytes(), None, 1).unwrap();
        let expected = Decimal128Array::from(vec![value])
            .with_precision_and_scale(38, 2)
            .unwrap();
        assert_eq!(array.as_ref(), &expected);

        let wider = layout(DataType::Decimal256(60, 2), 16, 0);
        let array = decode(&wider, &value.to_le_bytes(), None, 1).unwrap();
        let expected = Decimal256Array::from(vec![i256::from_i128(value)])
            .with_precision_and_scale(60, 2)
            .unwrap();
        assert_eq!(array.as_ref(), &expected);
    }

    #[test]
    fn floats_and_booleans() {
        let mut float = layout(DataType::Float32, 4, 0);
        float.float = true;
        let array = decode(&float, &(-0.5f32).to_le_bytes(), None, 1).unwrap();
        assert_eq!(array.as_ref(), &Float32Array::from(vec![-0.5]));

        let boolean = layout(DataType::Boolean, 1, 0);
        let array = decode(&boolean, &[1, 0, 0], Some(&[1, 1, 0]), 3).unwrap();
        let expected = BooleanArray::from(vec![Some(true), Some(false), None]);
        assert_eq!(array.as_ref(), &expected);
    }

    #[test]
    fn strings_by_code() {
        let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "ü"]));
        let mut coded = layout(DataType::Utf8, 1, 0);
        coded.meaning = Meaning::Code(Arc::new(Dictionary { values }));
        let array = decode(&coded, &[2, 0, 1], Some(&[1, 0, 1]), 3).unwrap();
        let expected = StringArray::from(vec![Some("ü"), None, Some("b")]);
        assert_eq!(array.as_ref(), &expected);
        let views = as_type(array, &DataType::Utf8View).unwrap();
        let expected = StringViewArray::from(vec![Some("ü"), None, Some("b")]);
        assert_eq!(views.as_ref(), &expected);

        // Codes that count from 1, as after a filter; a NULL's code may be anything.
        coded.base = 1;
        let array = decode(&coded, &[1, 200, 0], Some(&[1, 0, 1]), 3).unwrap();
        let expected = StringArray::from(vec![Some("ü"), None, Some("b")]);
        assert_eq!(array.as_ref(), &expected);

        let values: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
        coded.meaning = Meaning::Code(Arc::new(Dictionary { values }));
        let array = decode(&coded, &[0], Some(&[0]), 1).unwrap();
        assert_eq!(array.null_count(), 1);
    }

    #[test]
    fn too_few_bytes_are_an_error() {
        let column = layout(DataType::Int64, 4, 0);
        assert!(decode(&column, &[0; 7], None, 2).is_err());
        assert!(decode(&column, &[0; 8], Some(&[1]), 2).is_err());
        assert!(numbers(&[0; 16], &layout(DataType::Int64, 16, 0)).is_err());
    }
}
