//! Strings as offsets and bytes: the offsets of each chunk in the column.

use std::borrow::Cow;
use std::ops::Range;

use super::assemble::{PositionedChunk, Rows};
use super::chunk::{Codes, Segment, Values};
use super::parallel::map;
use crate::error::Result;

/// The strings of one chunk at their place in the column.
struct ChunkText<'a> {
    /// Where its first string begins in the column's bytes.
    start: u64,
    /// Where each of its strings ends, counted from `start`.
    ends: Cow<'a, [usize]>,
}

impl ChunkText<'_> {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// All strings of a column.
pub(super) struct Strings<'a> {
    rows: &'a Rows<'a>,
    segments: &'a [Segment],
    /// By position of the chunk.
    texts: Vec<ChunkText<'a>>,
    /// Bytes of all strings.
    pub(super) total: usize,
}

impl<'a> Strings<'a> {
    /// Measure the strings, on all cores.
    ///
    /// Host memory: eight bytes a row of chunks that hold numbers; none for chunks of bytes.
    ///
    /// # Errors
    /// [`crate::GpuError::Internal`] when a thread panics.
    pub(super) fn new(rows: &'a Rows<'a>, segments: &'a [Segment]) -> Result<Self> {
        let ends = map(
            rows.placed.iter().collect(),
            |placed: &'a PositionedChunk<'a>| {
                if let Values::Bytes { ends, .. } = &placed.chunk.values {
                    return Cow::Borrowed(&ends[..]);
                }
                let mut end = 0;
                let ends = (0..placed.chunk.rows).map(|row| {
                    end += string(placed, segments, row).len();
                    end
                });
                Cow::Owned(ends.collect())
            },
        )?;
        let mut start = 0;
        let texts = ends.into_iter().map(|ends| {
            let text = ChunkText { start, ends };
            start += text.len() as u64;
            text
        });
        let texts = texts.collect();
        Ok(Self {
            rows,
            segments,
            texts,
            total: start as usize,
        })
    }

    /// The strings of these rows, ascending; `None` for NULLs.
    pub(super) fn of_rows(&self, rows: impl Iterator<Item = usize>) -> Vec<Option<&[u8]>> {
        let mut chunks = self.rows.placed.iter().peekable();
        let mut strings = Vec::new();
        for row in rows {
            while chunks
                .next_if(|chunk| row >= chunk.start + chunk.chunk.rows)
                .is_some()
            {}
            if let Some(placed) = chunks.peek() {
                let row = row - placed.start;
                let valid = placed.chunk.is_valid(row);
                strings.push(valid.then(|| string(placed, self.segments, row)));
            }
        }
        strings
    }

    /// Bytes `range` of the offsets, a u64 each.
    pub(super) fn write_offsets(&self, range: Range<usize>, out: &mut [u8]) {
        let entries = range.start / 8..range.end / 8;
        let (words, _) = out.as_chunks_mut::<8>();
        // Entry 0 is 0, entry i the end of row i - 1.
        let skipped = usize::from(entries.start == 0);
        let rows = entries.start.saturating_sub(1)..entries.end.saturating_sub(1);
        for (position, own, at) in self.rows.overlapping(rows) {
            let text = &self.texts[position];
            let words = words[skipped + at..].iter_mut();
            for (word, end) in words.zip(&text.ends[own]) {
                *word = (text.start + *end as u64).to_le_bytes();
            }
        }
    }

    /// Bytes `range` of the strings.
    pub(super) fn write_bytes(&self, range: Range<usize>, out: &mut [u8]) {
        let before = |text: &ChunkText<'_>| text.start as usize + text.len() <= range.start;
        let first = self.texts.partition_point(before);
        for (text, placed) in self.texts.iter().zip(&self.rows.placed).skip(first) {
            let start = text.start as usize;
            if start >= range.end {
                break;
            }
            // The part of the chunk's bytes that is wanted.
            let from = range.start.saturating_sub(start);
            let to = (range.end - start).min(text.len());
            let out = &mut out[start + from - range.start..start + to - range.start];
            if let Values::Bytes { data, .. } = &placed.chunk.values {
                out.copy_from_slice(&data[from..to]);
                continue;
            }
            let first = text.ends.partition_point(|end| *end <= from);
            for (row, end) in text.ends.iter().enumerate().skip(first) {
                let value = string(placed, self.segments, row);
                let begin = end - value.len();
                if begin >= to {
                    break;
                }
                let (a, b) = (begin.clamp(from, to), (*end).clamp(from, to));
                out[a - from..b - from].copy_from_slice(&value[a - begin..b - begin]);
            }
        }
    }
}

/// The bytes of one row of a chunk of strings; empty for nulls.
fn string<'a>(placed: &PositionedChunk<'a>, segments: &'a [Segment], row: usize) -> &'a [u8] {
    if !placed.chunk.is_valid(row) {
        return &[];
    }
    let interner = &segments[placed.segment].interner;
    match &placed.chunk.values {
        Values::Dictionary(Codes::U8(codes)) => interner.value(codes[row].into()),
        Values::Dictionary(Codes::U16(codes)) => interner.value(codes[row].into()),
        Values::Dictionary(Codes::U32(codes)) => interner.value(codes[row]),
        Values::Bytes { ends, data } => {
            let begin = row.checked_sub(1).map_or(0, |before| ends[before]);
            &data[begin..ends[row]]
        }
        _ => &[],
    }
}
