//! The output of a run on the host: what came with the control words, and what is copied behind them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;

use crate::codegen::{ControlWord, Part};
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::results::Frame;
use crate::exec::output::rows::{HostColumn, HostRows, host_bytes};
use crate::exec::output::text::gather;
use crate::exec::prepare::prepared::OutputColumn;
use crate::memory::BatchFile;

/// Control words and output up to this many bytes come back in one copy, whatever part of it is in use.
const ONE_COPY: usize = 1 << 20;

/// The rows of a fragment on the host.
#[derive(Debug)]
pub(in crate::exec) enum Delivered {
    Batch(RecordBatch),
    /// Many, in codes.
    Rows(Arc<HostRows>),
    /// Memory had no room for them.
    File(Arc<BatchFile>),
}

impl Delivered {
    /// All of the rows.
    pub(in crate::exec) fn rows(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.num_rows(),
            Self::Rows(rows) => rows.rows,
            Self::File(file) => file.rows(),
        }
    }
}

/// Control words and as much of the output as came with them.
#[derive(Default)]
pub(in crate::exec) struct Host {
    pub(in crate::exec) control: Vec<u64>,
    /// What lies from the control words on in their buffer.
    head: Buffer,
}

impl Host {
    pub(in crate::exec) fn read(frame: &Frame<'_>) -> Result<Self> {
        let control = &frame.control;
        let (buffer, start) = control.location();
        let bytes = buffer.len().saturating_sub(start);
        if bytes > ONE_COPY {
            let control = buffer.download_values(frame.stream, start, control.words())?;
            let head = Buffer::default();
            return Ok(Self { control, head });
        }
        let head: Vec<u8> = buffer.download_values(frame.stream, start, bytes)?;
        let words = head.as_chunks::<8>().0.iter().take(control.words());
        Ok(Self {
            control: words.map(|w| u64::from_le_bytes(*w)).collect(),
            head: Buffer::from_vec(head),
        })
    }

    /// The first `bytes` bytes of a part of the output.
    fn part(&self, frame: &Frame<'_>, part: Part, bytes: usize) -> Result<Buffer> {
        let (buffer, offset) = frame.output_part(part)?;
        let (head, start) = frame.control.location();
        if std::ptr::eq(buffer.as_ref(), head)
            && let Some(at) = offset.checked_sub(start)
            && at + bytes <= self.head.len()
        {
            return Ok(self.head.slice_with_length(at, bytes));
        }
        if buffer.is_host() {
            frame.runtime.device().synchronize(frame.stream)?;
            // SAFETY: the steps of the run are over, and their copies were just waited for.
            if let Some(bytes) = unsafe { host_bytes(buffer, offset, bytes) } {
                return Ok(bytes);
            }
        }
        let values = buffer.download_values::<u8>(frame.stream, offset, bytes)?;
        Ok(Buffer::from_vec(values))
    }

    /// Rows of the output.
    pub(in crate::exec) fn rows(&self, frame: &Frame<'_>) -> u64 {
        Control::word(
            &self.control,
            frame.prepared.graph.output,
            ControlWord::Count,
        )
    }

    /// The output for who reads it: decoded where it is small, in codes where it is large, or the file where it lies.
    pub(in crate::exec) fn delivered(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
    ) -> Result<Delivered> {
        if let Some(file) = &frame.written {
            return Ok(Delivered::File(Arc::clone(file)));
        }
        let rows = self.host_rows(frame, schema, self.row_count(frame)?)?;
        Ok(match rows.is_large() {
            true => Delivered::Rows(Arc::new(rows)),
            false => Delivered::Batch(rows.decode(0..rows.rows)?),
        })
    }

    /// The output as Arrow arrays of the schema's types.
    #[cfg(test)]
    pub(in crate::exec) fn batch(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        self.rows_as_batch(frame, schema, self.row_count(frame)?)
    }

    /// The first `rows` rows as Arrow arrays of the schema's types.
    pub(in crate::exec) fn rows_as_batch(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
        rows: usize,
    ) -> Result<RecordBatch> {
        self.host_rows(frame, schema, rows)?.decode(0..rows)
    }

    fn row_count(&self, frame: &Frame<'_>) -> Result<usize> {
        let rows = usize::try_from(self.rows(frame));
        rows.map_err(|_| GpuError::Internal("output rows".into()))
    }

    /// The first `rows` rows, copied from the device.
    fn host_rows(&self, frame: &Frame<'_>, schema: &SchemaRef, rows: usize) -> Result<HostRows> {
        let prepared = frame.prepared;
        if schema.fields().len() != prepared.output.len() {
            return Err(GpuError::Internal(
                "a fragment's output has other columns than its schema".into(),
            ));
        }
        let columns = prepared.output.iter().enumerate();
        let columns = columns.map(|(index, column)| self.column(frame, index, column, rows));
        Ok(HostRows {
            schema: Arc::clone(schema),
            rows,
            columns: columns.collect::<Result<_>>()?,
        })
    }

    fn column(
        &self,
        frame: &Frame<'_>,
        index: usize,
        column: &OutputColumn,
        rows: usize,
    ) -> Result<HostColumn> {
        let layout = &column.layout;
        let valid = match layout.nullable {
            true => Some(self.part(frame, Part::Valid(index), rows)?),
            false => None,
        };
        if let Some(base) = &column.text {
            let base = base.upgrade().ok_or_else(|| {
                GpuError::Internal("a string column was evicted during a run".into())
            })?;
            let array = gather(frame, index, layout, &base, valid.as_deref(), rows)?;
            return Ok(HostColumn::Array(array));
        }
        let bytes = rows.saturating_mul(usize::from(layout.width));
        Ok(HostColumn::Codes {
            layout: layout.clone(),
            codes: self.part(frame, Part::Column(index), bytes)?,
            valid,
        })
    }
}
