//! The output of a run on the host: what came with the control words, and what is copied behind them.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
#[cfg(test)]
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;

use crate::codegen::{ControlWord, Part};
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::results::Frame;
use crate::exec::output::chunks::{Chunk, OutputChunks, chunk_rows};
use crate::exec::output::lists::References;
use crate::exec::output::rows::{HostColumn, HostRows, host_bytes};
use crate::exec::output::text::{RowStrings, base_of, gather_texts};
use crate::memory::BatchFile;
use crate::runtime::Runtime;

/// Control words and output up to this many bytes come back in one copy, whatever part of it is in use.
const ONE_COPY: usize = 1 << 20;
/// Strings of up to so many rows are fetched for all columns at once: what that takes of memory is little.
const TOGETHER: usize = 1 << 16;

/// The rows of a fragment on the host; clones share them.
#[derive(Debug, Clone)]
pub(in crate::exec) enum Delivered {
    Batches(Vec<RecordBatch>),
    /// Many: the first of them, and the others as they are asked for.
    Chunks(Vec<RecordBatch>, Arc<OutputChunks>),
    /// Memory had no room for them.
    File(Arc<BatchFile>),
}

impl Delivered {
    /// All of the rows.
    pub(in crate::exec) fn rows(&self) -> usize {
        match self {
            Self::Batches(batches) => batches.iter().map(RecordBatch::num_rows).sum(),
            Self::Chunks(_, chunks) => chunks.rows(),
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

    /// The output for who reads it: decoded where it is small, in chunks where it is large, or the file where it lies.
    pub(in crate::exec) fn delivered(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
        runtime: &Arc<Runtime>,
    ) -> Result<Delivered> {
        if let Some(file) = &frame.written {
            return Ok(Delivered::File(Arc::clone(file)));
        }
        let rows = self.row_count(frame)?;
        let width = columns_of(frame, schema)?;
        // What lists refer to goes with the run.
        let lists = !frame.prepared.graph.lists.is_empty();
        if lists || rows <= chunk_rows(width) {
            return self
                .rows_as_batches(frame, schema, rows)
                .map(Delivered::Batches);
        }
        let chunks = OutputChunks::new(frame, schema, rows, runtime)?;
        // What fails now can still be tried in another way.
        let first = chunks.next().map(Chunk::decode).transpose()?;
        Ok(Delivered::Chunks(first.unwrap_or_default(), chunks))
    }

    /// The output as Arrow arrays of the schema's types.
    #[cfg(test)]
    pub(in crate::exec) fn batch(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let batches = self.rows_as_batches(frame, schema, self.row_count(frame)?)?;
        Ok(concat_batches(schema, &batches)?)
    }

    /// The first `rows` rows as Arrow arrays of the schema's types.
    pub(in crate::exec) fn rows_as_batches(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
        rows: usize,
    ) -> Result<Vec<RecordBatch>> {
        self.host_rows(frame, schema, rows)?.decode()
    }

    fn row_count(&self, frame: &Frame<'_>) -> Result<usize> {
        let rows = usize::try_from(self.rows(frame));
        rows.map_err(|_| GpuError::Internal("output rows".into()))
    }

    /// The first `rows` rows, copied from the device.
    fn host_rows(&self, frame: &Frame<'_>, schema: &SchemaRef, rows: usize) -> Result<HostRows> {
        let columns = 0..columns_of(frame, schema)?;
        Ok(HostRows {
            schema: Arc::clone(schema),
            rows,
            columns: self.columns(frame, columns, rows)?,
        })
    }

    /// The first `rows` rows of some columns, copied from the device.
    pub(super) fn columns(
        &self,
        frame: &Frame<'_>,
        numbers: Range<usize>,
        rows: usize,
    ) -> Result<Vec<HostColumn>> {
        let first = numbers.start;
        let mut columns = Vec::with_capacity(numbers.len());
        let mut texts = Vec::new();
        for index in numbers {
            let column = &frame.prepared.output[index];
            let layout = &column.layout;
            let valid = match layout.nullable {
                true => Some(self.part(frame, Part::Valid(index), rows)?),
                false => None,
            };
            if let Some(list) = &column.list {
                let bytes = rows.saturating_mul(usize::from(layout.width));
                let codes = self.part(frame, Part::Column(index), bytes)?;
                let references = References::of(layout, &codes, valid.as_deref(), rows)?;
                let lists = references.lists(list, frame)?;
                columns.push(Some(HostColumn::Array(lists)));
                continue;
            }
            if let Some(base) = &column.text {
                texts.push((index, base_of(base)?, valid));
                columns.push(None);
                continue;
            }
            let bytes = rows.saturating_mul(usize::from(layout.width));
            columns.push(Some(HostColumn::Codes {
                layout: layout.clone(),
                codes: self.part(frame, Part::Column(index), bytes)?,
                valid,
            }));
        }
        let together = if rows <= TOGETHER { texts.len() } else { 1 };
        for texts in texts.chunks(together.max(1)) {
            let strings = texts.iter().map(|(index, base, valid)| {
                let (numbers, offset) = frame.output_part(Part::Column(*index))?;
                let valid = match valid {
                    Some(valid) => {
                        let (buffer, offset) = frame.output_part(Part::Valid(*index))?;
                        Some((buffer.ptr_at(offset)?, valid.as_slice()))
                    }
                    None => None,
                };
                Ok(RowStrings {
                    layout: &frame.prepared.output[*index].layout,
                    base,
                    numbers: (numbers, offset),
                    valid,
                    rows,
                })
            });
            let strings = strings.collect::<Result<Vec<_>>>()?;
            let arrays = gather_texts(&strings, frame.runtime, frame.stream)?;
            for ((index, ..), array) in texts.iter().zip(arrays) {
                columns[*index - first] = Some(HostColumn::Array(array));
            }
        }
        let lost = || GpuError::Internal("a column of the output was lost".into());
        let columns = columns.into_iter().map(|column| column.ok_or_else(lost));
        columns.collect()
    }
}

/// Columns of the output, which are those of the schema.
fn columns_of(frame: &Frame<'_>, schema: &SchemaRef) -> Result<usize> {
    let columns = frame.prepared.output.len();
    match schema.fields().len() == columns {
        true => Ok(columns),
        false => Err(GpuError::Internal(
            "a fragment's output has other columns than its schema".into(),
        )),
    }
}
