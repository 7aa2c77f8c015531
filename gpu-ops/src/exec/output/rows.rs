//! Rows of an output on the host as they lay on the device, decoded as Arrow arrays.

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
    /// The rows as Arrow arrays of the schema's types.
    ///
    /// # Errors
    /// [`GpuError::Internal`] for codes that no layout makes.
    pub(in crate::exec) fn decode(&self) -> Result<RecordBatch> {
        let work = |(column, field): (&HostColumn, &DataField)| -> Result<ArrayRef> {
            as_type(column.decode(self.rows)?, field.data_type())
        };
        let columns: Vec<_> = self.columns.iter().zip(self.schema.fields()).collect();
        let values = self.rows.saturating_mul(columns.len());
        let columns = if values < PARALLEL_VALUES {
            columns.into_iter().map(work).collect::<Result<Vec<_>>>()?
        } else {
            in_parallel(columns, work)?
        };
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }
}

type DataField = Arc<arrow::datatypes::Field>;

impl HostColumn {
    pub(super) fn decode(&self, rows: usize) -> Result<ArrayRef> {
        match self {
            Self::Array(array) => Ok(Arc::clone(array)),
            Self::Codes {
                layout,
                codes,
                valid,
            } => decode(layout, codes, valid.as_deref(), rows),
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
