//! Short strings as integers that order as the strings do.
//!
//! A string of at most `most` bytes is its bytes, the first one highest, filled up with zeros to `most`, and
//! below them its length in as few bits as hold `most`. Equal strings have equal numbers, and as zero is the
//! smallest byte and the shorter one the smaller of two strings that agree so far, numbers order as strings.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::range::Range;
use crate::error::{GpuError, Result};

/// Longest packed string: with its length it takes 124 of the 127 bits of a non-negative i128.
pub(super) const MOST_BYTES: u8 = 15;

/// Bits of the length.
pub(super) fn length_bits(most: u8) -> u32 {
    (u8::BITS - most.leading_zeros()).max(1)
}

/// The numbers of all strings of at most `most` bytes.
pub(super) fn packed_range(most: u8) -> Range {
    let bits = 8 * u32::from(most) + length_bits(most);
    Range::new(0, (1i128 << bits) - 1)
}

/// The number of `text`; `None` when it is longer than `most` bytes.
pub fn pack(text: &str, most: u8) -> Option<i128> {
    let most = most.min(MOST_BYTES);
    if text.len() > usize::from(most) {
        return None;
    }
    let bytes = text.bytes().chain(std::iter::repeat(0)).take(most.into());
    let number = bytes.fold(0i128, |n, byte| n << 8 | i128::from(byte));
    Some(number << length_bits(most) | text.len() as i128)
}

/// The strings of `numbers` (`None` for NULL) as an array of `data_type`, a string type.
///
/// # Errors
/// [`GpuError::Internal`] when a number stands for no string of at most `most` bytes.
pub fn unpack_array(
    numbers: impl IntoIterator<Item = Option<i128>>,
    most: u8,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let bits = length_bits(most);
    let mut builder = StringViewBuilder::new();
    for number in numbers {
        let Some(number) = number else {
            builder.append_null();
            continue;
        };
        let wrong = || GpuError::Internal(format!("{number} is no packed string"));
        let length = (number & ((1 << bits) - 1)) as usize;
        let bytes =
            ((number >> bits) << (128 - 8 * u32::from(most.clamp(1, MOST_BYTES)))).to_be_bytes();
        let bytes = bytes.get(..length).ok_or_else(wrong)?;
        builder.append_value(str::from_utf8(bytes).map_err(|_| wrong())?);
    }
    let array: ArrayRef = Arc::new(builder.finish());
    if array.data_type() == data_type {
        return Ok(array);
    }
    Ok(cast(&array, data_type)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;

    #[test]
    fn packed_strings_come_back_and_order_as_strings() {
        let texts = [
            "",
            "\0",
            "\0a",
            "a",
            "a\0",
            "aa",
            "ab",
            "b",
            "é",
            "zz",
            "\u{10ffff}",
            "13",
            "31",
        ];
        for most in 4..=MOST_BYTES {
            let numbers: Vec<i128> = texts.iter().map(|t| pack(t, most).unwrap()).collect();
            for (a, x) in texts.iter().zip(&numbers) {
                assert!(packed_range(most).contains(*x), "{most} {a:?}");
                for (b, y) in texts.iter().zip(&numbers) {
                    assert_eq!(a.cmp(b), x.cmp(y), "{a:?} {b:?} in {most} bytes");
                }
            }
            let all = numbers.into_iter().map(Some).chain([None]);
            for data_type in [DataType::Utf8View, DataType::Utf8] {
                let array = unpack_array(all.clone(), most, &data_type).unwrap();
                assert_eq!(*array.data_type(), data_type);
                let array = cast(&array, &DataType::Utf8View).unwrap();
                let array = array.as_string_view();
                assert!(
                    texts
                        .iter()
                        .enumerate()
                        .all(|(i, text)| array.value(i) == *text)
                );
                assert!(arrow::array::Array::is_null(array, texts.len()));
            }
        }
        assert_eq!(pack("abcdefgh", 7), None);
    }
}
