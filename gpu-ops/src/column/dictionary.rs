//! Sorted dictionaries as lists of byte strings: reading, merging two, translating codes.

use std::sync::Arc;

use super::build;
use super::parallel::{map, shares};
use super::texts::Texts;
use super::types::Dictionary;
use crate::error::{GpuError, Result};

/// The first position of `from..end` for which `before` does not hold, `before` being true up to there
/// and false afterwards: an exponential search, cheap when that is near.
fn gallop(from: usize, end: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (from, 1);
    while low + step <= end && before(low + step - 1) {
        low += step;
        step *= 2;
    }
    // `low` strings and those before are passed; the answer is within the last step.
    let mut high = (low + step - 1).min(end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// For every code of `from` the code of the same string in `to`, or -1 where `to` lacks it.
///
/// Both are sorted, so this is a merge, cut into shares for all cores: linear in the smaller side
/// with a logarithm of the larger one's gaps.
///
/// # Errors
/// [`GpuError::Internal`] when a dictionary holds no strings; [`GpuError::Unsupported`] beyond 2^31 of them.
pub fn translate_codes(from: &Arc<Dictionary>, to: &Arc<Dictionary>) -> Result<Vec<i32>> {
    let (source, target) = (Texts::new(&*from.values)?, Texts::new(&*to.values)?);
    if i32::try_from(target.len()).is_err() {
        return Err(too_many());
    }
    if Arc::ptr_eq(from, to) {
        return Ok((0..source.len() as i32).collect());
    }
    let parts = map(shares(source.len()), |share| {
        let mut codes = Vec::with_capacity(share.len());
        let mut at = 0;
        for i in share {
            let value = source.get(i);
            at = gallop(at, target.len(), |i| target.get(i) < value);
            let found = at < target.len() && target.get(at) == value;
            codes.push(if found { at as i32 } else { -1 });
        }
        codes
    })?;
    Ok(parts.concat())
}

/// One dictionary with the strings of both, of the first one's type, and each one's codes in it.
///
/// # Errors
/// As [`translate_codes`], and when the strings outgrow the Arrow type.
pub fn merge_dictionaries(
    a: &Arc<Dictionary>,
    b: &Arc<Dictionary>,
) -> Result<(Arc<Dictionary>, Vec<i32>, Vec<i32>)> {
    let to_b = translate_codes(a, b)?;
    let to_a = translate_codes(b, a)?;
    if to_b.iter().all(|code| *code >= 0) {
        let own = (0..to_a.len() as i32).collect();
        return Ok((Arc::clone(b), to_b, own));
    }
    if to_a.iter().all(|code| *code >= 0) {
        let own = (0..to_b.len() as i32).collect();
        return Ok((Arc::clone(a), own, to_a));
    }
    let (x, y) = (Texts::new(&*a.values)?, Texts::new(&*b.values)?);
    let mut merged: Vec<&[u8]> = Vec::with_capacity(x.len() + y.len());
    let mut of_a = Vec::with_capacity(x.len());
    let mut of_b = Vec::with_capacity(y.len());
    while of_a.len() < x.len() || of_b.len() < y.len() {
        let code = i32::try_from(merged.len()).map_err(|_| too_many())?;
        let left = (of_a.len() < x.len()).then(|| x.get(of_a.len()));
        let right = (of_b.len() < y.len()).then(|| y.get(of_b.len()));
        match (left, right) {
            (Some(l), Some(r)) => {
                if l <= r {
                    of_a.push(code);
                }
                if r <= l {
                    of_b.push(code);
                }
                merged.push(l.min(r));
            }
            (Some(l), None) => {
                of_a.push(code);
                merged.push(l);
            }
            (None, Some(r)) => {
                of_b.push(code);
                merged.push(r);
            }
            (None, None) => break,
        }
    }
    let values = build::string_array(a.values.data_type(), &merged, "a merged dictionary")?;
    Ok((Arc::new(Dictionary { values }), of_a, of_b))
}

fn too_many() -> GpuError {
    GpuError::Unsupported("a dictionary of more than 2^31 strings".into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use arrow::array::StringViewArray;

    use super::*;

    fn dictionary(mut values: Vec<String>) -> Arc<Dictionary> {
        values.sort_unstable();
        values.dedup();
        let values = Arc::new(StringViewArray::from_iter_values(values));
        Arc::new(Dictionary { values })
    }

    fn strings(dictionary: &Dictionary) -> Vec<String> {
        let values = Texts::new(&*dictionary.values).unwrap();
        let text = |i| String::from_utf8(values.get(i).to_vec()).unwrap();
        (0..values.len()).map(text).collect()
    }

    /// Names of the multiples of `step` below `end`, some long, some not ASCII.
    fn multiples(step: usize, end: usize) -> Arc<Dictionary> {
        let name = |i: usize| match i % 3 {
            0 => format!("{i}"),
            1 => format!("größe {i} of a longer kind"),
            _ => format!("a name with {i} and more than twelve bytes"),
        };
        dictionary((0..end).step_by(step).map(name).collect())
    }

    #[test]
    fn translation_finds_every_common_string_and_no_other() {
        for (x, y) in [
            (multiples(2, 100_000), multiples(3, 90_000)),
            (multiples(1, 10), multiples(1, 200_000)),
            (multiples(1, 200_000), multiples(997, 100_000)),
            (multiples(1, 0), multiples(1, 5)),
            (multiples(1, 5), multiples(1, 0)),
        ] {
            let (own, other) = (strings(&x), strings(&y));
            let codes = translate_codes(&x, &y).unwrap();
            assert_eq!(codes.len(), own.len());
            for (text, code) in own.iter().zip(codes) {
                let expected = other.binary_search(text).map_or(-1, |i| i as i32);
                assert_eq!(code, expected, "{text}");
            }
        }
    }

    #[test]
    fn a_merged_dictionary_is_sorted_and_keeps_both_sides() {
        for (x, y) in [
            (multiples(2, 3_000), multiples(3, 3_000)),
            (multiples(1, 300), multiples(2, 300)),
            (multiples(4, 300), multiples(2, 300)),
            (multiples(1, 0), multiples(2, 300)),
        ] {
            let (merged, of_x, of_y) = merge_dictionaries(&x, &y).unwrap();
            let all = strings(&merged);
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
            for (side, codes) in [(&x, of_x), (&y, of_y)] {
                let texts = strings(side);
                assert_eq!(texts.len(), codes.len());
                for (text, code) in texts.iter().zip(codes) {
                    assert_eq!(&all[code as usize], text);
                }
            }
            let expected: std::collections::BTreeSet<_> =
                strings(&x).into_iter().chain(strings(&y)).collect();
            assert_eq!(expected.len(), all.len());
        }
    }
}
