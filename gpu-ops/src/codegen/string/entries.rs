//! The bytes of look-up tables: what an expression yields for each string of a dictionary, as kernels read it.
//!
//! Dictionaries have up to tens of millions of strings, and a query's first run waits for their tables: values are taken by the
//! column, not one by one, and numbers are as narrow as their range, so that more of a table stays in the device's caches.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, max, min};
use arrow::datatypes::{DataType, Int64Type, ToByteSlice};
use datafusion::scalar::ScalarValue;

use crate::codegen::ir::range::Range;
use crate::codegen::value::scalar::integer_of;
use crate::error::Result;

/// A table of integers.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) bytes: Vec<u8>,
    /// What the kernel's pointer to it points to.
    pub(super) pointer: &'static str,
    /// All numbers, and 0.
    pub(super) range: Range,
}

/// A byte an entry: 1 where the value is true.
pub(super) fn truths(values: &BooleanArray) -> Vec<u8> {
    match values.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => bytes_of_bits(&(values.values() & nulls.inner())),
        None => bytes_of_bits(values.values()),
    }
}

/// A byte an entry: 1 where the value is not NULL.
pub(super) fn validities(values: &dyn Array) -> Vec<u8> {
    match values.logical_nulls() {
        Some(nulls) => bytes_of_bits(nulls.inner()),
        None => vec![1; values.len()],
    }
}

/// Is any of the first entries NULL?
pub(super) fn has_null(values: &ArrayRef, entries: usize) -> bool {
    let nulls = values.logical_nulls();
    nulls.is_some_and(|nulls| nulls.slice(0, entries.min(nulls.len())).null_count() > 0)
}

fn bytes_of_bits(bits: &BooleanBuffer) -> Vec<u8> {
    let chunks = bits.bit_chunks();
    let mut bytes = Vec::with_capacity(bits.len().next_multiple_of(64));
    for word in chunks.iter_padded() {
        bytes.extend((0..64).map(|bit| (word >> bit & 1) as u8));
    }
    bytes.truncate(bits.len());
    bytes
}

/// The integers behind the entries, 0 for NULL. `None` when a value is no integer, or has no room in 64 bits.
///
/// # Errors
/// [`crate::GpuError::Arrow`] for a value that Arrow does not read.
pub(super) fn numbers(results: &ArrayRef) -> Result<Option<Numbers>> {
    let narrow = match results.data_type() {
        DataType::UInt64 => false,
        DataType::Date32 | DataType::Timestamp(..) => true,
        other => other.is_integer(),
    };
    let Some(values) = (if narrow {
        let stored = match results.data_type() {
            DataType::Date32 => &cast(results, &DataType::Int32)?,
            _ => results,
        };
        Some(
            cast(stored, &DataType::Int64)?
                .as_primitive::<Int64Type>()
                .clone(),
        )
    } else {
        one_by_one(results)?
    }) else {
        return Ok(None);
    };
    let least = min(&values).unwrap_or(0).min(0);
    let greatest = max(&values).unwrap_or(0).max(0);
    let (bytes, pointer) = match (least, greatest) {
        (0, 0..=0xff) => (packed(&values, |value| value as u8), "const u8*"),
        (0, 0..=0xffff) => (packed(&values, |value| value as u16), "const u16*"),
        (-0x8000_0000.., ..=0x7fff_ffff) => (packed(&values, |value| value as i32), "const i32*"),
        _ => (packed(&values, |value| value), "const i64*"),
    };
    Ok(Some(Numbers {
        bytes,
        pointer,
        range: Range::new(least.into(), greatest.into()),
    }))
}

/// The codes of so many strings, and what the kernel's pointer to them points to.
pub(super) fn codes(codes: &[i32], strings: usize) -> (Vec<u8>, &'static str) {
    let narrow = codes.iter();
    match strings {
        ..=0x100 => (narrow.map(|code| *code as u8).collect(), "const u8*"),
        0x101..=0x1_0000 => {
            let narrow: Vec<u16> = narrow.map(|code| *code as u16).collect();
            (narrow.to_byte_slice().to_vec(), "const u16*")
        }
        _ => (codes.to_byte_slice().to_vec(), "const i32*"),
    }
}

/// The values in a narrower type, 0 for NULL.
fn packed<T: Default + Copy>(values: &Int64Array, narrowed: impl Fn(i64) -> T) -> Vec<u8>
where
    [T]: ToByteSlice,
{
    let all: Vec<T> = match values.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => values
            .values()
            .iter()
            .map(|value| narrowed(*value))
            .collect(),
        Some(nulls) => {
            let valid = values.values().iter().zip(nulls.iter());
            valid
                .map(|(value, valid)| {
                    if valid {
                        narrowed(*value)
                    } else {
                        T::default()
                    }
                })
                .collect()
        }
    };
    all.as_slice().to_byte_slice().to_vec()
}

/// Values of other types.
fn one_by_one(results: &ArrayRef) -> Result<Option<Int64Array>> {
    let mut numbers = Vec::with_capacity(results.len());
    for i in 0..results.len() {
        let scalar = ScalarValue::try_from_array(results, i)?;
        let number = match integer_of(&scalar) {
            None if scalar.is_null() => None,
            None => return Ok(None),
            Some(number) => match i64::try_from(number) {
                Ok(number) => Some(number),
                Err(_) => return Ok(None),
            },
        };
        numbers.push(number);
    }
    Ok(Some(numbers.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    #[test]
    fn codes_are_as_narrow_as_their_number_allows() {
        for (strings, width, pointer) in [
            (0, 1, "const u8*"),
            (1, 1, "const u8*"),
            (256, 1, "const u8*"),
            (257, 2, "const u16*"),
            (65_536, 2, "const u16*"),
            (65_537, 4, "const i32*"),
        ] {
            let last = (strings as i32 - 1).max(0);
            let (bytes, of) = super::codes(&[last, 0], strings);
            assert_eq!((bytes.len(), of), (2 * width, pointer), "{strings} strings");
            let mut first = [0; 4];
            first[..width].copy_from_slice(&bytes[..width]);
            assert_eq!(u32::from_le_bytes(first), last as u32);
            assert!(bytes[width..].iter().all(|byte| *byte == 0));
        }
    }

    use std::sync::Arc;

    use arrow::array::{
        Date32Array, Decimal128Array, Float64Array, Int8Array, Int32Array, StringArray,
        TimestampMillisecondArray, UInt64Array,
    };

    use super::*;

    fn read<const W: usize>(bytes: &[u8]) -> Vec<[u8; W]> {
        bytes.as_chunks::<W>().0.to_vec()
    }

    #[test]
    fn booleans_are_bytes_wherever_their_bits_begin() {
        for rows in [0, 1, 31, 32, 33, 63, 64, 65, 1000] {
            let values = (0..rows + 3).map(|i| [Some(i % 3 == 0), None, Some(true)][i % 5 % 3]);
            let whole: BooleanArray = values.collect();
            for offset in 0..3 {
                let array = whole.slice(offset, rows);
                let expected: Vec<u8> = array.iter().map(|v| u8::from(v == Some(true))).collect();
                assert_eq!(truths(&array), expected);
                let expected: Vec<u8> = array.iter().map(|v| u8::from(v.is_some())).collect();
                assert_eq!(validities(&array), expected);
                let first = array.iter().position(|value| value.is_none());
                let array: ArrayRef = Arc::new(array);
                for entries in 0..=rows {
                    let expected = first.is_some_and(|at| at < entries);
                    assert_eq!(
                        has_null(&array, entries),
                        expected,
                        "{rows} {offset} {entries}"
                    );
                }
            }
        }
    }

    #[test]
    fn numbers_are_as_narrow_as_they_can_be() {
        let of = |array: ArrayRef| numbers(&array).unwrap().unwrap();
        let bytes = of(Arc::new(Int32Array::from(vec![Some(7), None, Some(255)])));
        assert_eq!((bytes.pointer, bytes.bytes), ("const u8*", vec![7, 0, 255]));
        assert_eq!(bytes.range, Range::new(0, 255));
        let words = of(Arc::new(Int64Array::from(vec![256, 65_535])));
        assert_eq!(words.pointer, "const u16*");
        assert_eq!(read(&words.bytes), [256u16, 65_535].map(u16::to_ne_bytes));
        let negative = of(Arc::new(Int8Array::from(vec![-1, 5])));
        assert_eq!(negative.pointer, "const i32*");
        assert_eq!(read(&negative.bytes), [-1i32, 5].map(i32::to_ne_bytes));
        assert_eq!(negative.range, Range::new(-1, 5));
        for extreme in [i64::MIN, i64::MAX] {
            let wide = of(Arc::new(Int64Array::from(vec![extreme])));
            assert_eq!(wide.pointer, "const i64*");
            assert_eq!(wide.bytes, extreme.to_ne_bytes());
        }
        for edge in [i64::from(i32::MIN), i64::from(i32::MAX)] {
            assert_eq!(
                of(Arc::new(Int64Array::from(vec![edge]))).pointer,
                "const i32*"
            );
        }
        for edge in [i64::from(i32::MIN) - 1, i64::from(i32::MAX) + 1] {
            assert_eq!(
                of(Arc::new(Int64Array::from(vec![edge]))).pointer,
                "const i64*"
            );
        }
        // All NULL, and nothing at all.
        for none in [vec![None, None], vec![]] {
            let none = of(Arc::new(Int64Array::from(none)));
            assert!(none.bytes.iter().all(|byte| *byte == 0));
            assert_eq!(none.range, Range::point(0));
        }
    }

    #[test]
    fn dates_times_and_decimals_are_numbers_and_others_are_not() {
        let date: ArrayRef = Arc::new(Date32Array::from(vec![Some(-3), None]));
        let found = numbers(&date).unwrap().unwrap();
        assert_eq!(read(&found.bytes), [-3i32, 0].map(i32::to_ne_bytes));
        let time: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1 << 40]));
        assert_eq!(
            numbers(&time).unwrap().unwrap().bytes,
            (1i64 << 40).to_ne_bytes()
        );
        let decimal = Decimal128Array::from(vec![Some(12_345), None]);
        let decimal: ArrayRef = Arc::new(decimal.with_precision_and_scale(9, 2).unwrap());
        assert_eq!(
            read(&numbers(&decimal).unwrap().unwrap().bytes),
            [12_345u16, 0].map(u16::to_ne_bytes)
        );
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![1, u64::MAX]));
        assert!(numbers(&large).unwrap().is_none());
        let small: ArrayRef = Arc::new(UInt64Array::from(vec![1, 2]));
        assert_eq!(numbers(&small).unwrap().unwrap().bytes, [1, 2]);
        let huge = Decimal128Array::from(vec![i128::MAX / 4]);
        let huge: ArrayRef = Arc::new(huge.with_precision_and_scale(38, 0).unwrap());
        assert!(numbers(&huge).unwrap().is_none());
        let float: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        assert!(numbers(&float).unwrap().is_none());
        let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
        assert!(numbers(&text).unwrap().is_none());
    }
}
