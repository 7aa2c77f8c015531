//! One layout for rows that several pipelines append (UNION ALL).

use std::sync::Arc;

use super::program::ColumnLayout;
use super::range::Range;
use super::scalar::unsupported;
use super::scope::narrowest;
use super::value::Meaning;
use crate::column::merge_dictionaries;
use crate::error::Result;

/// The layout that holds the values of both.
pub(super) fn layouts(a: &ColumnLayout, b: &ColumnLayout) -> Result<ColumnLayout> {
    let mut merged = a.clone();
    merged.nullable |= b.nullable;
    if a.float || b.float {
        if a.float != b.float || a.width != b.width {
            return unsupported("a union of floats and other numbers");
        }
        return Ok(merged);
    }
    merged.range = a.range.union(b.range);
    merged.meaning = match (&a.meaning, &b.meaning) {
        (Meaning::Number, Meaning::Number) => Meaning::Number,
        (Meaning::Packed { chars, bits }, Meaning::Packed { chars: c, bits: b })
            if chars == c && bits == b =>
        {
            a.meaning.clone()
        }
        (Meaning::Row(x), Meaning::Row(y)) if Arc::ptr_eq(x, y) => Meaning::Row(Arc::clone(x)),
        (Meaning::Code(x), Meaning::Code(y)) if Arc::ptr_eq(x, y) => Meaning::Code(Arc::clone(x)),
        (Meaning::Code(x), Meaning::Code(y)) => {
            let (dictionary, _, _) = merge_dictionaries(x, y)?;
            merged.range = Range::new(0, dictionary.len().max(1) as i128 - 1);
            Meaning::Code(dictionary)
        }
        // A column of NULLs alone has no dictionary of its own.
        (Meaning::Code(x), Meaning::Number) if b.range == Range::point(0) => {
            Meaning::Code(Arc::clone(x))
        }
        (Meaning::Number, Meaning::Code(y)) if a.range == Range::point(0) => {
            Meaning::Code(Arc::clone(y))
        }
        _ => return unsupported("a union of strings that lie in different ways"),
    };
    (merged.width, merged.base) = narrowest(merged.range);
    Ok(merged)
}
