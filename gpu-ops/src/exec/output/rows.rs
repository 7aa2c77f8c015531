//! Rows of an output on the host as they lay on the device, decoded as Arrow arrays.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, SchemaRef};

use crate::codegen::{ColumnLayout, Meaning};
use crate::column::map;
use crate::error::{GpuError, Result};
use crate::exec::output::decode::{as_type, decode};
use crate::memory::DeviceBuffer;

/// Values from which on columns are decoded on several threads.
const PARALLEL_VALUES: usize = 1 << 18;
/// Rows of strings that are worth a thread, and parts of a column at most.
const PART: usize = 1 << 15;
const MOST_PARTS: usize = 16;

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
        let fields = self.schema.fields();
        let values = self.rows.saturating_mul(fields.len());
        let parallel = values >= PARALLEL_VALUES;
        let parts = |column: &HostColumn| column.parts(self.rows, parallel);
        let parts: Vec<Vec<Range<usize>>> = self.columns.iter().map(parts).collect();
        let columns = self.columns.iter().zip(fields).zip(&parts);
        let work = columns.flat_map(|(column, parts)| parts.iter().map(move |part| (column, part)));
        let decode = |((column, field), part): ((&HostColumn, &FieldRef), &Range<usize>)| {
            as_type(column.decode(part.clone())?, field.data_type())
        };
        let mut decoded = match parallel {
            true => map(work.collect(), decode)?
                .into_iter()
                .collect::<Result<Vec<_>>>()?,
            false => work.map(decode).collect::<Result<_>>()?,
        }
        .into_iter();
        let mut columns = Vec::with_capacity(parts.len());
        for parts in &parts {
            let parts: Vec<ArrayRef> = decoded.by_ref().take(parts.len()).collect();
            columns.push(match &parts[..] {
                [all] => Arc::clone(all),
                parts => concat(&parts.iter().map(|part| &**part).collect::<Vec<_>>())?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }
}

impl HostColumn {
    /// Ranges of its `rows` rows, where `parallel` those that are worth a thread each: strings of a dictionary lie all over it.
    fn parts(&self, rows: usize, parallel: bool) -> Vec<Range<usize>> {
        let looked_up = matches!(
            self,
            Self::Codes { layout, .. } if matches!(layout.meaning, Meaning::Code(_))
        );
        let size = match looked_up && parallel {
            true => rows.div_ceil(MOST_PARTS).max(PART),
            false => rows.max(1),
        };
        let parts = (0..rows.max(1)).step_by(size);
        parts.map(|start| start..(start + size).min(rows)).collect()
    }

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
