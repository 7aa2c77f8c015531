//! Columns in host memory whose rows come to the device in strides.

use crate::codegen::ColumnPart;
use crate::column::{Column, Encoding};
use crate::device::DevicePtr;

/// Copies of columns begin at multiples of this, as columns do; what is behind the last row of a table has as many bytes at
/// most.
pub(in crate::exec) const ALIGNMENT: u64 = 256;

/// A buffer of a column that lies in host memory. It stays there as long as the table, which a run's caller holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct StreamedPart {
    /// Where it begins.
    pub(in crate::exec) source: DevicePtr,
    /// Bytes, zeros behind the last row included.
    bytes: u64,
    /// Rows of the table.
    rows: u64,
    kind: PartKind,
}

/// Where the rows of a part lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    /// Codes or bits of so many bits.
    Codes(u64),
    /// One offset of eight bytes a row, and one more.
    Offsets,
    /// Strings, which lie where these offsets say.
    Text(DevicePtr),
}

impl StreamedPart {
    /// A part of a column, when it lies in host memory and a stride of rows is a range of its bytes.
    pub(in crate::exec) fn of(column: &Column, part: ColumnPart) -> Option<Self> {
        let (buffer, kind) = match (part, &column.encoding) {
            (ColumnPart::Validity, _) => (column.validity.as_ref()?, PartKind::Codes(1)),
            (ColumnPart::Data, Encoding::Bits) => (&column.data, PartKind::Codes(1)),
            (
                ColumnPart::Data,
                Encoding::Integer { width, .. }
                | Encoding::Float { width }
                | Encoding::Dictionary { width, .. },
            ) => (&column.data, PartKind::Codes(u64::from(*width) * 8)),
            (ColumnPart::Offsets, Encoding::Bytes { offsets }) => (offsets, PartKind::Offsets),
            // The host looks up where the strings of a stride begin.
            (ColumnPart::Data, Encoding::Bytes { offsets }) if offsets.is_host() => {
                (&column.data, PartKind::Text(offsets.ptr()))
            }
            _ => return None,
        };
        buffer.is_host().then(|| Self {
            source: buffer.ptr(),
            bytes: buffer.len() as u64,
            rows: column.rows as u64,
            kind,
        })
    }

    /// Bytes of the part that the rows from `first` to before `end` lie in; `first` is a multiple of eight.
    pub(in crate::exec) fn range(&self, first: u64, end: u64) -> (u64, u64) {
        let (from, to) = match self.kind {
            PartKind::Codes(bits) => (first / 8 * bits, (end * bits).div_ceil(8)),
            PartKind::Offsets => (first * 8, (end + 1) * 8),
            PartKind::Text(_) if first >= end => (0, 0),
            PartKind::Text(offsets) => {
                let offset = |row: u64| {
                    let at = std::ptr::with_exposed_provenance::<u64>(offsets.0 as usize);
                    // SAFETY: offsets in host memory, one more than rows, which do not change after loading.
                    unsafe { at.add(row.min(self.rows) as usize).read() }
                };
                (offset(first), offset(end))
            }
        };
        // What is behind the last row is read too: vectors are.
        let to = if end >= self.rows { self.bytes } else { to };
        let from = from / ALIGNMENT * ALIGNMENT;
        (from, to.next_multiple_of(ALIGNMENT).min(self.bytes))
    }

    /// Bytes that a slot has for `rows` rows of it; of strings, a quarter more than they are long on average.
    pub(in crate::exec) fn room(&self, rows: u64) -> u64 {
        let bytes = match self.kind {
            PartKind::Codes(bits) => (rows * bits).div_ceil(8),
            PartKind::Offsets => (rows + 1) * 8,
            PartKind::Text(_) => {
                let mean = self.bytes.div_ceil(self.rows.max(1));
                rows * (mean + mean / 4 + 1)
            }
        };
        bytes.min(self.bytes).next_multiple_of(ALIGNMENT) + 2 * ALIGNMENT
    }
}
