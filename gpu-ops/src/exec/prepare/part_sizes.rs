//! Parts of results with their sizes, and how they come together in blocks of memory.

use crate::codegen::{JoinKeys, Part};
use crate::error::{GpuError, Result};

/// Parts of a block begin at multiples of this, and end there: kernels may load whole vectors.
pub(in crate::exec) const ALIGNMENT: usize = 256;

/// One part and its size: `rows` of `unit` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct PartSize {
    pub(in crate::exec) part: Part,
    pub(in crate::exec) unit: usize,
    pub(in crate::exec) rows: u64,
}

impl PartSize {
    pub(in crate::exec) fn new(part: Part, unit: usize, rows: u64) -> Self {
        Self { part, unit, rows }
    }

    /// Rounded up to whole units of alignment.
    pub(in crate::exec) fn bytes(&self) -> Result<usize> {
        usize::try_from(self.rows)
            .ok()
            .and_then(|rows| rows.checked_mul(self.unit))
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
            .ok_or_else(|| GpuError::Unsupported("a result of more than 2^63 bytes".into()))
    }
}

/// Bytes of a column's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct ColumnShape {
    pub(in crate::exec) width: usize,
    pub(in crate::exec) nullable: bool,
    /// The packed keys are this column.
    pub(in crate::exec) key_alias: bool,
}

impl ColumnShape {
    /// Bytes of a row in memory of its own.
    pub(in crate::exec) fn row_bytes(&self) -> usize {
        match self.key_alias {
            true => 0,
            false => self.width + usize::from(self.nullable),
        }
    }
}

/// Parts that are initialised alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::exec) struct BlockSizes {
    pub(in crate::exec) parts: Vec<PartSize>,
    /// Every byte before the first use; `None`: whatever is there.
    pub(in crate::exec) fill: Option<u8>,
    /// Not needed once the step that fills the result is over.
    pub(in crate::exec) temporary: bool,
}

/// Values and validity of columns.
pub(in crate::exec) fn column_parts(columns: &[ColumnShape], rows: u64) -> Vec<PartSize> {
    let mut parts = Vec::with_capacity(columns.len() * 2);
    for (i, column) in columns.iter().enumerate().filter(|(_, c)| !c.key_alias) {
        parts.push(PartSize::new(Part::Column(i), column.width, rows));
        if column.nullable {
            parts.push(PartSize::new(Part::Valid(i), 1, rows));
        }
    }
    parts
}

/// The packed keys of a side of a join.
pub(in crate::exec) fn key_part(keys: JoinKeys, rows: u64) -> PartSize {
    PartSize::new(Part::KeyWord(0), keys.width as usize, rows)
}

/// The first row of each of `2^bits` partitions, and the number of rows.
pub(in crate::exec) fn offsets_part(bits: u32) -> PartSize {
    PartSize::new(Part::Offsets, 4, (1 << bits) + 1)
}

/// Parts of a side of a materialised join whose rows have been partitioned by `bits` hash bits or sorted; `rows` with the
/// places that stay empty.
pub(in crate::exec) fn arranged_parts(
    columns: &[ColumnShape],
    keys: JoinKeys,
    bits: u32,
    rows: u64,
    apart: bool,
) -> Vec<PartSize> {
    let mut parts = vec![key_part(keys, rows)];
    if keys.join.transforms() {
        parts.extend(column_parts(columns, rows));
    } else {
        parts.push(PartSize::new(Part::Numbers, 4, rows));
    }
    if apart {
        parts.push(PartSize::new(Part::Offsets, 4, 2 << bits));
    } else if !keys.join.sorts() {
        parts.push(offsets_part(bits));
    }
    parts
}

/// Parts of a side of a materialised join with all its columns, in partitions by `bits` hash bits.
pub(in crate::exec) fn side_parts(
    columns: &[ColumnShape],
    keys: JoinKeys,
    bits: u32,
    rows: u64,
) -> Vec<PartSize> {
    let mut parts = vec![key_part(keys, rows)];
    parts.extend(column_parts(columns, rows));
    parts.push(offsets_part(bits));
    parts
}

/// Parts of a list of pairs.
pub(in crate::exec) fn pair_parts(pairs: u64) -> Vec<PartSize> {
    [Part::PairRow, Part::PairEntry]
        .map(|part| PartSize::new(part, 4, pairs))
        .to_vec()
}

/// A bit each.
pub(in crate::exec) fn bitmap(part: Part, bits: u64) -> PartSize {
    PartSize::new(part, 4, bits.div_ceil(32))
}

/// Parts of an index of `rows` entries that are sorted by their key words.
pub(in crate::exec) fn sorted_parts(words: usize, rows: u64) -> Vec<PartSize> {
    let words = (0..words).map(|w| PartSize::new(Part::SortedWord(w), 8, rows));
    words
        .chain([PartSize::new(Part::Entries, 4, rows)])
        .collect()
}

/// Parts of a sort over `rows` rows: the words of its keys and the order.
pub(in crate::exec) fn sort_parts(words: usize, rows: u64) -> Vec<PartSize> {
    let words = (0..words).map(|w| PartSize::new(Part::KeyWord(w), 8, rows));
    words.chain([PartSize::new(Part::Order, 4, rows)]).collect()
}
