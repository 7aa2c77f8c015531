//! Strings as views, made by all cores: those of a long result take one of them longer than kernels and link together.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray, make_view};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};

use super::parallel::{map, shares};
use crate::error::{GpuError, Result};

/// Views of the strings in `data`, of which `offsets` has the begin of each and the end of the last, in order; `None` where views do not reach
/// as far.
///
/// # Errors
/// [`GpuError::Internal`] when the bytes of a string are not UTF-8.
pub(super) fn text_views(
    offsets: &[u64],
    data: &Buffer,
    nulls: Option<&NullBuffer>,
) -> Result<Option<ArrayRef>> {
    if u32::try_from(data.len()).is_err() {
        return Ok(None);
    }
    let rows = offsets.len().saturating_sub(1);
    let mut views = vec![0_u128; rows];
    let mut rest = views.as_mut_slice();
    let mut parts = Vec::new();
    for share in shares(rows) {
        let (part, behind) = rest.split_at_mut(share.len());
        rest = behind;
        parts.push((share, part));
    }
    let made = map(parts, |(rows, views)| fill(rows, views, offsets, data))?;
    made.into_iter().collect::<Result<()>>()?;
    let (views, buffers) = (ScalarBuffer::from(views), vec![data.clone()]);
    // SAFETY: `fill` has checked that each string is UTF-8 and made its view, which lies within the one buffer.
    let array = unsafe { StringViewArray::new_unchecked(views, buffers, nulls.cloned()) };
    Ok(Some(Arc::new(array)))
}

/// The views of some rows.
fn fill(rows: Range<usize>, views: &mut [u128], offsets: &[u64], data: &Buffer) -> Result<()> {
    let begin = |row: usize| offsets[row] as usize;
    let (first, last) = (begin(rows.start), begin(rows.end));
    let text = std::str::from_utf8(&data[first..last])
        .map_err(|error| GpuError::Internal(format!("a string column: {error}")))?;
    for (row, view) in rows.zip(views) {
        let (from, to) = (begin(row), begin(row + 1));
        if !text.is_char_boundary(from - first) {
            return Err(GpuError::Internal(
                "a string column: a string begins within a character".into(),
            ));
        }
        *view = make_view(&data[from..to], 0, from as u32);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use arrow::array::{Array, AsArray};

    use super::*;

    fn of(strings: &[&str]) -> (Vec<u64>, Buffer) {
        let mut offsets = vec![0];
        let mut data = String::new();
        for string in strings {
            data.push_str(string);
            offsets.push(data.len() as u64);
        }
        (offsets, Buffer::from(data.as_bytes()))
    }

    #[test]
    fn views_are_the_strings() {
        let long = "größer als eine Sicht".repeat(3);
        let some = [
            "",
            "a",
            "zwölf Bytes",
            "twelve bytes",
            "thirteen byte",
            &long,
            "語",
        ];
        let many: Vec<&str> = some.into_iter().cycle().take(100_000).collect();
        for strings in [&[][..], &some, &many] {
            let (offsets, data) = of(strings);
            let views = text_views(&offsets, &data, None).unwrap().unwrap();
            views.to_data().validate_full().unwrap();
            let views = views.as_string_view();
            assert!(views.iter().map(Option::unwrap).eq(strings.iter().copied()));
        }
        let (offsets, data) = of(&["x", "", "y"]);
        let nulls = NullBuffer::from(vec![true, false, true]);
        let views = text_views(&offsets, &data, Some(&nulls)).unwrap().unwrap();
        let views: Vec<_> = views.as_string_view().iter().collect();
        assert_eq!(views, [Some("x"), None, Some("y")]);
    }

    #[test]
    fn broken_characters_are_refused() {
        let (_, data) = of(&["größe"]);
        assert!(text_views(&[0, 3, 7], &data, None).is_err());
        assert!(text_views(&[0, 4, 7], &data, None).is_ok());
        let broken = Buffer::from(&[b'a', 0xFF][..]);
        assert!(text_views(&[0, 1, 2], &broken, None).is_err());
    }
}
