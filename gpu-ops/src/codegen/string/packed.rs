//! Short strings as integers that order as the strings do.
//!
//! A string of at most `chars` characters is a number of that many digits of `bits` bits, the first one highest.
//! A character's digit is its code point plus one, so that the digit 0, with which shorter strings are
//! filled up, is less than any. UTF-8 orders as code points do, hence numbers order as strings. ASCII
//! characters take digits of 8 bits, any others 21.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::codegen::ir::range::Range;
use crate::error::{GpuError, Result};

/// Bits of a digit, and the largest character.
pub(in crate::codegen) fn digit(ascii: bool) -> (u8, char) {
    if ascii { (8, '\x7f') } else { (21, char::MAX) }
}

/// Most characters that fit the 126 bits below the sign of an i128.
pub(in crate::codegen) fn most_chars(ascii: bool) -> u8 {
    126 / digit(ascii).0
}

/// The numbers of all strings of at most `chars` characters.
pub(in crate::codegen) fn packed_range(chars: u8, ascii: bool) -> Range {
    let (bits, largest) = digit(ascii);
    let digit = i128::from(u32::from(largest)) + 1;
    Range::new(0, (0..chars).fold(0, |n, _| n << bits | digit))
}

/// The number of `text` in `chars` digits of `bits` bits; `None` when it is longer or has other characters.
pub fn pack(text: &str, chars: u8, bits: u8) -> Option<i128> {
    let mut number = 0i128;
    let mut left = u32::from(chars);
    for char in text.chars() {
        let digit = i128::from(u32::from(char)) + 1;
        if bits == self::digit(true).0 && !char.is_ascii() {
            return None;
        }
        left = left.checked_sub(1)?;
        number = number << bits | digit;
    }
    number.checked_shl(left * u32::from(bits))
}

/// The strings of `numbers` (`None` for NULL), as [`pack`] makes them, as an array of `data_type`, a string type.
///
/// # Errors
/// [`GpuError::Internal`] when a number stands for no string of at most `chars` characters.
pub fn unpack_array(
    numbers: impl IntoIterator<Item = Option<i128>>,
    chars: u8,
    bits: u8,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let mut builder = StringViewBuilder::new();
    let mut text = String::new();
    for number in numbers {
        let Some(number) = number else {
            builder.append_null();
            continue;
        };
        text.clear();
        for place in (0..u32::from(chars)).rev() {
            let digit = (number >> (place * u32::from(bits))) & ((1 << bits) - 1);
            if digit == 0 {
                break;
            }
            let char = u32::try_from(digit - 1).ok().and_then(char::from_u32);
            text.push(char.ok_or_else(|| {
                GpuError::Internal(format!(
                    "{number} is no packed string of {chars} characters"
                ))
            })?);
        }
        builder.append_value(&text);
    }
    let array: ArrayRef = Arc::new(builder.finish());
    if array.data_type() == data_type {
        return Ok(array);
    }
    Ok(cast(&array, data_type)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use arrow::array::{Array, AsArray};

    #[test]
    fn packed_strings_come_back_and_order_as_strings() {
        let plain = [
            "", "\0", "\0a", "a", "a\0", "aa", "ab", "b", "zz", "13", "31", "\x7f",
        ];
        let wide = ["é", "\u{7ff}a", "\u{ffff}", "\u{10ffff}\u{10ffff}"];
        for ascii in [true, false] {
            let texts: Vec<&str> = match ascii {
                true => plain.to_vec(),
                false => [&plain[..], &wide[..]].concat(),
            };
            for chars in 2..=most_chars(ascii) {
                let bits = digit(ascii).0;
                let numbers: Vec<i128> = texts
                    .iter()
                    .map(|text| pack(text, chars, bits).unwrap())
                    .collect();
                for (a, x) in texts.iter().zip(&numbers) {
                    assert!(packed_range(chars, ascii).contains(*x), "{chars} {a:?}");
                    for (b, y) in texts.iter().zip(&numbers) {
                        assert_eq!(a.cmp(b), x.cmp(y), "{a:?} {b:?} in {chars} characters");
                    }
                }
                let all = numbers.into_iter().map(Some).chain([None]);
                for data_type in [DataType::Utf8View, DataType::Utf8] {
                    let array = unpack_array(all.clone(), chars, bits, &data_type).unwrap();
                    assert_eq!(*array.data_type(), data_type);
                    let array = cast(&array, &DataType::Utf8View).unwrap();
                    let array = array.as_string_view();
                    assert!((0..texts.len()).all(|i| array.value(i) == texts[i]));
                    assert!(array.is_null(texts.len()));
                }
            }
        }
        assert_eq!(pack("abcd", 3, 21), None);
        assert_eq!(pack("é", 3, 8), None);
    }
}
