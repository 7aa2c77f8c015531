//! Rows of an output on the host as they lay on the device, decoded as Arrow arrays.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;

use crate::codegen::ColumnLayout;
use crate::column::map;
use crate::error::{GpuError, Result};
use crate::exec::output::decode::{as_type, decode};
use crate::memory::DeviceBuffer;

/// Values from which on rows are decoded by several threads: to start these takes as long as some hundred thousand values do.
const PARALLEL_VALUES: usize = 1 << 18;
/// Values that are worth a thread then, and most threads.
const PART_VALUES: usize = 1 << 16;
const MOST_PARTS: usize = 16;
/// Batches have a multiple of so many rows, but for the last one.
const PART_STEP: usize = 1024;

/// Rows of an output on the host.
#[derive(Debug)]
pub(in crate::exec) struct HostRows {
    pub(in crate::exec) schema: SchemaRef,
    pub(in crate::exec) rows: usize,
    /// One for each field of the schema.
    pub(in crate::exec) columns: Vec<HostColumn>,
}

/// A column of them.
#[derive(Debug)]
pub(in crate::exec) enum HostColumn {
    /// As it lay on the device.
    Codes {
        layout: ColumnLayout,
        codes: Buffer,
        /// A byte a row, 0 for NULL; where the layout is nullable.
        valid: Option<Buffer>,
    },
    /// Decoded.
    Array(ArrayRef),
}

impl HostRows {
    /// The rows as Arrow arrays of the schema's types, in batches: as many as are worth a thread each. They are not put together,
    /// which one thread would have to do; whoever reads them takes a few thousand rows at a time.
    ///
    /// # Errors
    /// [`GpuError::Internal`] for codes that no layout makes.
    pub(in crate::exec) fn decode(&self) -> Result<Vec<RecordBatch>> {
        let parallel = self.rows.saturating_mul(self.columns.len()) >= PARALLEL_VALUES;
        let most = if parallel { MOST_PARTS } else { 1 };
        let worth = PART_VALUES / self.columns.len().max(1);
        let size = self.rows.div_ceil(most).max(worth);
        let size = size.next_multiple_of(PART_STEP);
        let parts = (0..self.rows.max(1)).step_by(size);
        let parts = parts.map(|start| start..(start + size).min(self.rows));
        let batches = map(parts.collect(), |part| self.batch(part))?;
        batches.into_iter().collect()
    }

    /// Some of the rows.
    fn batch(&self, rows: Range<usize>) -> Result<RecordBatch> {
        let columns = self.columns.iter().zip(self.schema.fields());
        let columns = columns
            .map(|(column, field)| as_type(column.decode(rows.clone())?, field.data_type()))
            .collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }
}

impl HostColumn {
    /// Some of the rows.
    pub(super) fn decode(&self, rows: Range<usize>) -> Result<ArrayRef> {
        match self {
            Self::Array(array) => Ok(array.slice(rows.start, rows.len())),
            Self::Codes {
                layout,
                codes,
                valid,
            } => {
                let short = || GpuError::Internal("an output column of too few rows".into());
                let first = rows.start * usize::from(layout.width);
                let codes = codes.get(first..).ok_or_else(short)?;
                let valid = match valid {
                    Some(valid) => Some(valid.get(rows.start..).ok_or_else(short)?),
                    None => None,
                };
                decode(layout, codes, valid, rows.len())
            }
        }
    }
}

/// Bytes of a buffer in host memory, which they keep; `None` for one in device memory.
///
/// # Safety
/// Nothing writes to the buffer any more: what was queued that does has been waited for.
pub(in crate::exec) unsafe fn host_bytes(
    buffer: &Arc<DeviceBuffer>,
    offset: usize,
    bytes: usize,
) -> Option<Buffer> {
    let end = offset.checked_add(bytes)?;
    if !buffer.is_host() || end > buffer.len() {
        return None;
    }
    let first = std::ptr::with_exposed_provenance_mut::<u8>(buffer.ptr().0 as usize + offset);
    let first = NonNull::new(first)?;
    let owner = Arc::new(AssertUnwindSafe(Arc::clone(buffer)));
    // SAFETY: the bytes lie in the buffer, whose block of host memory was initialised when it was allocated and is in use as
    // long as the owner is; the caller says that they stay as they are.
    Some(unsafe { Buffer::from_custom_allocation(first, bytes, owner) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::codegen::{Meaning, Range as Values};
    use crate::column::Dictionary;

    /// `rows` rows of a number, of a string by its code that is NULL in every third row, and of an array that is decoded.
    fn host_rows(rows: usize) -> (HostRows, RecordBatch) {
        let layout = |data_type: &DataType, meaning, nullable| ColumnLayout {
            data_type: data_type.clone(),
            width: 2,
            float: false,
            base: 0,
            range: Values::FULL,
            meaning,
            nullable,
        };
        let names = ["", "a", "größer als eine Sicht"];
        let values: ArrayRef = Arc::new(StringViewArray::from_iter_values(names));
        let numbers = || (0..rows).map(|row| (row % 60_000) as u16);
        let codes = || (0..rows).map(|row| (row % names.len()) as u16);
        let bytes = |codes: Vec<u16>| {
            codes
                .into_iter()
                .flat_map(u16::to_le_bytes)
                .collect::<Vec<u8>>()
        };
        let known = |row: usize| !row.is_multiple_of(3);
        let wide: ArrayRef = Arc::new(Int64Array::from_iter_values(
            (0..rows).map(|row| row as i64),
        ));
        let schema = Arc::new(Schema::new(vec![
            Field::new("number", DataType::Int64, false),
            Field::new("name", DataType::Utf8View, true),
            Field::new("row", DataType::Int64, false),
        ]));
        let coded = Meaning::Code(Arc::new(Dictionary { values }));
        let columns = vec![
            HostColumn::Codes {
                layout: layout(&DataType::Int64, Meaning::Number, false),
                codes: Buffer::from_vec(bytes(numbers().collect())),
                valid: None,
            },
            HostColumn::Codes {
                layout: layout(&DataType::Utf8View, coded, true),
                codes: Buffer::from_vec(bytes(codes().collect())),
                valid: Some((0..rows).map(|row| u8::from(known(row))).collect()),
            },
            HostColumn::Array(Arc::clone(&wide)),
        ];
        let name = |row: usize| known(row).then(|| names[row % names.len()]);
        let expected = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(Int64Array::from_iter_values(numbers().map(i64::from))),
                Arc::new((0..rows).map(name).collect::<StringViewArray>()),
                wide,
            ],
        );
        let rows = HostRows {
            schema,
            rows,
            columns,
        };
        (rows, expected.unwrap())
    }

    #[test]
    fn batches_are_all_rows_in_order() {
        for (rows, batches) in [(0, 1), (1, 1), (80_000, 1), (100_000, 5), (1_000_001, 16)] {
            let (host, expected) = host_rows(rows);
            let decoded = host.decode().unwrap();
            assert_eq!(decoded.len(), batches, "{rows} rows");
            let (_, others) = decoded.split_last().unwrap();
            assert!(others.iter().all(|batch| batch.num_rows() % PART_STEP == 0));
            let all = concat_batches(&host.schema, &decoded).unwrap();
            assert_eq!(all, expected, "{rows} rows");
        }
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let host = HostRows {
            schema: Arc::new(Schema::empty()),
            rows: 70_000,
            columns: vec![],
        };
        let decoded = host.decode().unwrap();
        assert_eq!(
            decoded.iter().map(RecordBatch::num_rows).sum::<usize>(),
            70_000
        );
    }
}
