//! The output of a run on the host: what came with the control words, and columns decoded as Arrow arrays.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use crate::codegen::{ControlWord, Part};
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::results::Frame;
use crate::exec::output::decode::{as_type, decode};
use crate::exec::output::text::gather;
use crate::exec::prepare::prepared::OutputColumn;
use crate::memory::BatchFile;

/// Control words and output up to this many bytes come back in one copy, whatever part of it is in use.
const ONE_COPY: usize = 1 << 20;
/// Values from which on columns are decoded on several threads.
const PARALLEL_VALUES: usize = 1 << 18;

/// The rows of a fragment on the host.
#[derive(Debug)]
pub(in crate::exec) enum Delivered {
    Batch(RecordBatch),
    /// Memory had no room for them.
    File(Arc<BatchFile>),
}

impl Delivered {
    /// All of the rows.
    pub(in crate::exec) fn rows(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.num_rows(),
            Self::File(file) => file.rows(),
        }
    }
}

/// Control words and as much of the output as came with them.
#[derive(Default)]
pub(in crate::exec) struct Host {
    pub(in crate::exec) control: Vec<u64>,
    /// What lies from the control words on in their buffer.
    head: Vec<u8>,
}

impl Host {
    pub(in crate::exec) fn read(frame: &Frame<'_>) -> Result<Self> {
        let control = &frame.control;
        let (buffer, start) = control.location();
        let bytes = buffer.len().saturating_sub(start);
        if bytes > ONE_COPY {
            let control = buffer.download_values(frame.stream, start, control.words())?;
            let head = Vec::new();
            return Ok(Self { control, head });
        }
        let head: Vec<u8> = buffer.download_values(frame.stream, start, bytes)?;
        let words = head.as_chunks::<8>().0.iter().take(control.words());
        Ok(Self {
            control: words.map(|w| u64::from_le_bytes(*w)).collect(),
            head,
        })
    }

    /// The first `bytes` bytes of a part of the output.
    fn part(&self, frame: &Frame<'_>, part: Part, bytes: usize) -> Result<Cow<'_, [u8]>> {
        let (buffer, offset) = frame.output_part(part)?;
        let (head, start) = frame.control.location();
        if std::ptr::eq(buffer, head)
            && let Some(at) = offset.checked_sub(start)
            && let Some(here) = self.head.get(at..at + bytes)
        {
            return Ok(Cow::Borrowed(here));
        }
        let values = buffer.download_values::<u8>(frame.stream, offset, bytes)?;
        Ok(Cow::Owned(values))
    }

    /// Rows of the output.
    pub(in crate::exec) fn rows(&self, frame: &Frame<'_>) -> u64 {
        Control::word(
            &self.control,
            frame.prepared.graph.output,
            ControlWord::Count,
        )
    }

    /// The output as Arrow arrays of the schema's types, or the file where it lies.
    pub(in crate::exec) fn delivered(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
    ) -> Result<Delivered> {
        match &frame.written {
            Some(file) => Ok(Delivered::File(Arc::clone(file))),
            None => self.batch(frame, schema).map(Delivered::Batch),
        }
    }

    /// The output as Arrow arrays of the schema's types.
    pub(in crate::exec) fn batch(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
    ) -> Result<RecordBatch> {
        let rows = self.rows(frame);
        let rows = usize::try_from(rows).map_err(|_| GpuError::Internal("output rows".into()))?;
        self.rows_as_batch(frame, schema, rows)
    }

    /// The same of the first `rows` rows.
    pub(in crate::exec) fn rows_as_batch(
        &self,
        frame: &Frame<'_>,
        schema: &SchemaRef,
        rows: usize,
    ) -> Result<RecordBatch> {
        let prepared = frame.prepared;
        if schema.fields().len() != prepared.output.len() {
            return Err(GpuError::Internal(
                "a fragment's output has other columns than its schema".into(),
            ));
        }
        // Strings first: they are gathered on the device, which the other columns only wait for.
        let mut raw = Vec::with_capacity(prepared.output.len());
        for (index, column) in prepared.output.iter().enumerate() {
            raw.push(self.raw(frame, index, column, rows)?);
        }
        let work = |(index, raw): (usize, Raw<'_>)| -> Result<ArrayRef> {
            let array = match raw {
                Raw::Array(array) => array,
                Raw::Codes(codes, valid) => decode(
                    &prepared.output[index].layout,
                    &codes,
                    valid.as_deref(),
                    rows,
                )?,
            };
            as_type(array, schema.field(index).data_type())
        };
        let values = rows.saturating_mul(raw.len());
        let columns = if values < PARALLEL_VALUES {
            raw.into_iter()
                .enumerate()
                .map(work)
                .collect::<Result<Vec<_>>>()?
        } else {
            in_parallel(raw.into_iter().enumerate().collect(), work)?
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(schema),
            columns,
            &options,
        )?)
    }

    fn raw(
        &self,
        frame: &Frame<'_>,
        index: usize,
        column: &OutputColumn,
        rows: usize,
    ) -> Result<Raw<'_>> {
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
            return Ok(Raw::Array(array));
        }
        let bytes = rows.saturating_mul(usize::from(layout.width));
        Ok(Raw::Codes(
            self.part(frame, Part::Column(index), bytes)?,
            valid,
        ))
    }
}

/// A column on the host.
enum Raw<'a> {
    /// As it lay on the device.
    Codes(Cow<'a, [u8]>, Option<Cow<'a, [u8]>>),
    /// Decoded.
    Array(ArrayRef),
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
