//! The device column: encoding, buffers and statistics.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::sample::Sample;
use super::sketch::Sketch;
use crate::memory::DeviceBuffer;

/// How the values of a column lie in device memory. The encoding never changes a result.
///
/// Every data buffer is padded with zeros to a multiple of 256 bytes past the last row, so that
/// kernels may load whole vectors.
#[derive(Debug, Clone)]
pub enum Encoding {
    /// Booleans, one bit a row, least significant bit first (Arrow's layout).
    Bits,
    /// Frame of reference: `value = base + code`, code an unsigned little-endian integer of
    /// `width` bytes (1, 2, 4, 8), or for width 16 a signed 128-bit value with base 0.
    /// Values are integers, unscaled decimals, days, seconds … of the logical type.
    /// `base` is 0 whenever `0 <= min`, `max` fits the width and `min` is not far from 0 as against the span of the values.
    Integer {
        /// Bytes a code: 1, 2, 4, 8 or 16.
        width: u8,
        /// Added to every code.
        base: i128,
    },
    /// IEEE floats as they are; `width` 4 or 8.
    Float {
        /// Bytes a value.
        width: u8,
    },
    /// Index into a sorted dictionary of distinct strings, unsigned, `width` 1, 2 or 4 bytes.
    Dictionary {
        /// Bytes a code.
        width: u8,
        /// The distinct values.
        dictionary: Arc<Dictionary>,
    },
    /// Strings as offsets and bytes: `offsets` is a u64 buffer of rows + 1 entries.
    Bytes {
        /// `rows + 1` u64 byte positions into the data buffer.
        offsets: Arc<DeviceBuffer>,
    },
}

/// The distinct non-null values of a dictionary-encoded column, ascending by bytes.
#[derive(Debug)]
pub struct Dictionary {
    /// Sorted, distinct, without nulls, of the column's value type.
    pub values: ArrayRef,
}

impl Dictionary {
    /// Number of distinct values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True when the column has no non-null value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// What is known exactly about the values of a resident column.
#[derive(Debug, Clone, Default)]
pub struct ColumnStatistics {
    /// Smallest and largest non-null value of an integer-encoded column (dictionary codes for
    /// dictionary columns, 0/1 for booleans); `None` when there is no non-null value or for floats and bytes.
    pub range: Option<(i128, i128)>,
    /// Number of nulls.
    pub null_count: usize,
    /// Distinct non-null values where counted exactly (dictionaries, numbers of a moderate range).
    pub distinct: Option<usize>,
    /// Distinct non-null values, exactly or estimated to a few percent; `None` for strings that lie as bytes.
    pub distinct_estimate: Option<u64>,
    /// Strings alone: all of them are ASCII.
    pub ascii: bool,
    /// Non-null values never descend from row to row and there are no nulls.
    pub sorted: bool,
    /// No value occurs twice (known only when sorted strictly or where distinct values are counted exactly).
    pub unique: bool,
    /// Which values the column has, and how unevenly they repeat, in brief; `None` for strings, of which only
    /// dictionary codes have a sample.
    pub sketch: Option<Arc<Sketch>>,
    /// The values of some rows, the same ones of all columns of a table.
    pub sample: Option<Arc<Sample>>,
}

/// One column resident on a device.
#[derive(Debug, Clone)]
pub struct Column {
    /// The logical Arrow type that values have when they leave.
    pub data_type: DataType,
    /// Number of rows.
    pub rows: usize,
    /// How values lie in `data`.
    pub encoding: Encoding,
    /// Codes, bits or bytes.
    pub data: Arc<DeviceBuffer>,
    /// Validity, one bit a row, 1 = not null; absent when there are no nulls.
    pub validity: Option<Arc<DeviceBuffer>>,
    /// Facts about the values.
    pub statistics: ColumnStatistics,
}

impl Column {
    /// Its memory on the device.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Arc<DeviceBuffer>> {
        let offsets = match &self.encoding {
            Encoding::Bytes { offsets } => Some(offsets),
            _ => None,
        };
        [Some(&self.data), self.validity.as_ref(), offsets]
            .into_iter()
            .flatten()
    }

    /// The value, or dictionary code, that every row has, where the column's range tells: there is one, and no NULL.
    pub fn only_value(&self) -> Option<i128> {
        let coded = matches!(
            self.encoding,
            Encoding::Integer { .. } | Encoding::Dictionary { .. }
        );
        let (least, most) = self.statistics.range?;
        (coded && self.validity.is_none() && least == most).then_some(least)
    }

    /// Bytes that a kernel reading the whole column moves.
    pub fn bytes(&self) -> usize {
        let data = match &self.encoding {
            Encoding::Bits => self.rows.div_ceil(8),
            Encoding::Integer { width, .. }
            | Encoding::Float { width }
            | Encoding::Dictionary { width, .. } => self.rows * usize::from(*width),
            Encoding::Bytes { offsets } => self.data.len() + offsets.len(),
        };
        data + self.validity.as_ref().map_or(0, |_| self.rows.div_ceil(8))
    }
}
