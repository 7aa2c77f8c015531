//! Rows of an output on the host as they lay on the device, decoded as Arrow arrays some at a time.
//!
//! Codes take a fraction of the room of the values that they stand for. A large output therefore stays in codes, and whoever
//! reads its rows holds a few chunks of them as Arrow arrays at a time.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;

use crate::codegen::ColumnLayout;
use crate::error::{GpuError, Result};
use crate::exec::output::decode::{as_type, decode};
use crate::memory::DeviceBuffer;

/// Values from which on columns are decoded on several threads.
const PARALLEL_VALUES: usize = 1 << 18;
/// Values of a chunk: enough for several threads, little beside the codes of a large output. Builds for tests have smaller
/// ones, so that outputs of their size come in several.
const CHUNK_VALUES: usize = if cfg!(debug_assertions) {
    1 << 16
} else {
    1 << 22
};
/// Chunks have a multiple of so many rows.
const CHUNK_STEP: usize = 8192;

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
    /// More rows than are decoded at once?
    pub(in crate::exec) fn is_large(&self) -> bool {
        self.rows > self.chunk_rows()
    }

    /// Rows of one chunk.
    fn chunk_rows(&self) -> usize {
        let rows = CHUNK_VALUES / self.columns.len().max(1);
        rows.next_multiple_of(CHUNK_STEP)
    }

    /// The chunks, in order.
    pub(in crate::exec) fn chunks(&self) -> impl Iterator<Item = Range<usize>> + Send + use<> {
        let (rows, step) = (self.rows, self.chunk_rows());
        (0..rows)
            .step_by(step)
            .map(move |at| at..rows.min(at + step))
    }

    /// Some of the rows as Arrow arrays of the schema's types.
    ///
    /// # Errors
    /// [`GpuError::Internal`] for codes that no layout makes.
    pub(in crate::exec) fn decode(&self, rows: Range<usize>) -> Result<RecordBatch> {
        let work = |(column, field): (&HostColumn, &DataField)| -> Result<ArrayRef> {
            as_type(column.decode(rows.clone())?, field.data_type())
        };
        let columns: Vec<_> = self.columns.iter().zip(self.schema.fields()).collect();
        let values = rows.len().saturating_mul(columns.len());
        let columns = if values < PARALLEL_VALUES {
            columns.into_iter().map(work).collect::<Result<Vec<_>>>()?
        } else {
            in_parallel(columns, work)?
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }
}

type DataField = Arc<arrow::datatypes::Field>;

impl HostColumn {
    fn decode(&self, rows: Range<usize>) -> Result<ArrayRef> {
        match self {
            Self::Array(array) => Ok(array.slice(rows.start, rows.len())),
            Self::Codes {
                layout,
                codes,
                valid,
            } => {
                let short = || GpuError::Internal(format!("an output column without {rows:?}"));
                let of = |bytes: &'_ Buffer, width: usize| -> Result<Buffer> {
                    let (start, len) = (rows.start * width, rows.len() * width);
                    let held = start.checked_add(len).is_some_and(|end| end <= bytes.len());
                    let slice = held.then(|| bytes.slice_with_length(start, len));
                    slice.ok_or_else(short)
                };
                let codes = of(codes, layout.width.into())?;
                let valid = valid.as_ref().map(|valid| of(valid, 1)).transpose()?;
                decode(layout, &codes, valid.as_deref(), rows.len())
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

/// Apply `work` to every item, each on a thread of its own.
fn in_parallel<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = items
            .into_iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        // All are joined, also after an error.
        let results: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                worker.join().unwrap_or_else(|_| {
                    Err(GpuError::Internal(
                        "a thread decoding a column panicked".into(),
                    ))
                })
            })
            .collect();
        results.into_iter().collect()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::codegen::{Meaning, Range as Values};

    fn rows(rows: usize) -> HostRows {
        let layout = ColumnLayout {
            data_type: DataType::Int64,
            width: 2,
            float: false,
            base: -7,
            range: Values::FULL,
            meaning: Meaning::Number,
            nullable: true,
        };
        let codes: Vec<u8> = (0..rows)
            .flat_map(|row| (row as u16).to_le_bytes())
            .collect();
        let valid: Vec<u8> = (0..rows).map(|row| u8::from(row % 3 != 0)).collect();
        let text = StringArray::from_iter_values((0..rows).map(|row| format!("ä{row}")));
        let fields = vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, false),
        ];
        HostRows {
            schema: Arc::new(Schema::new(fields)),
            rows,
            columns: vec![
                HostColumn::Codes {
                    layout,
                    codes: Buffer::from_vec(codes),
                    valid: Some(Buffer::from_vec(valid)),
                },
                HostColumn::Array(Arc::new(text)),
            ],
        }
    }

    #[test]
    fn chunks_are_all_rows_in_order() {
        for count in [
            0,
            1,
            8191,
            8192,
            CHUNK_VALUES / 2,
            CHUNK_VALUES / 2 + 1,
            CHUNK_VALUES,
        ] {
            let rows = rows(count);
            assert_eq!(rows.is_large(), count > CHUNK_VALUES / 2);
            let mut at = 0;
            for chunk in rows.chunks() {
                assert_eq!(chunk.start, at);
                assert!(!chunk.is_empty());
                at = chunk.end;
            }
            assert_eq!(at, count);
        }
    }

    #[test]
    fn some_of_the_rows_are_decoded_as_all_are() {
        let rows = rows(20_000);
        assert!(!rows.is_large());
        let all = rows.decode(0..20_000).unwrap();
        let numbers = (0..20_000).map(|row| (row % 3 != 0).then_some(row - 7));
        assert_eq!(all.column(0).as_ref(), &Int64Array::from_iter(numbers));
        for part in [0..0, 0..1, 31..33, 8191..8193, 19_999..20_000, 0..20_000] {
            let some = rows.decode(part.clone()).unwrap();
            assert_eq!(some, all.slice(part.start, part.len()));
        }
        assert!(rows.decode(19_999..20_001).is_err());
    }
}
