//! One layout for rows that several pipelines append (UNION ALL).

use std::sync::Arc;

use crate::codegen::ir::layout::{ColumnLayout, narrowest};
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::value::Meaning;
use crate::column::merge_dictionaries;
use crate::error::Result;

/// The layout that holds the values of both.
pub(in crate::codegen) fn layouts(a: &ColumnLayout, b: &ColumnLayout) -> Result<ColumnLayout> {
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
        // NULL is neither a code, nor a row, nor packed: it takes the form of the others.
        (strings, Meaning::Number) if b.range == Range::point(0) => strings.clone(),
        (Meaning::Number, strings) if a.range == Range::point(0) => strings.clone(),
        _ => return needs_codes("a union of strings that lie in different ways"),
    };
    (merged.width, merged.base) = narrowest(merged.range);
    Ok(merged)
}
