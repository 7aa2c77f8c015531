//! Runs a prepared fragment and brings its rows to the host.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use crate::codegen::{ControlWord, Part};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::run::Run;
use crate::exec::node::report::StepReport;
use crate::exec::output::decode::{as_type, decode};
use crate::exec::output::text::gather;
use crate::exec::prepare::hints::Hint;
use crate::exec::prepare::prepared::{OutputColumn, Prepared};
use crate::graph::ResultId;
use crate::memory::BatchFile;
use crate::runtime::Runtime;

/// Control words and output up to this many bytes come back in one copy, whatever part of it is in use.
const ONE_COPY: usize = 1 << 20;
/// Values from which on columns are decoded on several threads.
const PARALLEL_VALUES: usize = 1 << 18;

/// What becomes of the rows of a run while they are on the device.
pub(in crate::exec) type Deliver<'d, T> = &'d dyn Fn(&Run<'_>, &Host) -> Result<T>;

/// What became of the rows of a run, and what it took.
#[derive(Debug)]
pub(in crate::exec) struct Finished<T> {
    pub(in crate::exec) output: T,
    /// Rows of the output.
    pub(in crate::exec) rows: u64,
    /// Kernels launched.
    pub(in crate::exec) kernels: usize,
    /// Time between the events around the launches, in milliseconds.
    pub(in crate::exec) kernel_ms: f64,
    /// What each step did, when asked for.
    pub(in crate::exec) steps: Vec<StepReport>,
    /// Time by kind of work, when asked for.
    pub(in crate::exec) phases: Vec<(&'static str, f64)>,
    /// Whether sizes were read between the steps.
    pub(in crate::exec) careful: bool,
    /// Parts of joins.
    pub(in crate::exec) parts: u64,
    /// Sides of joins whose partitions had room of their own.
    pub(in crate::exec) sides_apart: u64,
    /// Parts of group-bys.
    pub(in crate::exec) group_parts: u64,
    /// Parts of sorts.
    pub(in crate::exec) sort_parts: u64,
    /// Launches over rows of a table of which others were still to come.
    pub(in crate::exec) early_strides: u64,
    /// Bytes that came in strides.
    pub(in crate::exec) streamed_bytes: u64,
    /// Bytes of results in host memory.
    pub(in crate::exec) spilled_bytes: u64,
}

/// Run with what the last run learned, or reading sizes between the steps when there was none or it no longer
/// holds. `profile` asks for the time of each step.
///
/// # Errors
/// [`GpuError::Arithmetic`], [`GpuError::DuplicateKeys`], [`GpuError::ScalarSubqueryRows`],
/// [`GpuError::OutOfDeviceMemory`], [`GpuError::Device`].
pub(in crate::exec) fn execute<T>(
    runtime: &Runtime,
    stream: &Stream,
    prepared: &Prepared,
    deliver: Deliver<'_, T>,
    profile: bool,
) -> Result<Finished<T>> {
    let hints = prepared.known();
    if hints.is_some() {
        if let Some(finished) = attempt(runtime, stream, prepared, deliver, profile, hints)? {
            return Ok(finished);
        }
        *prepared.hints.lock() = None;
    }
    attempt(runtime, stream, prepared, deliver, profile, None)?
        .ok_or_else(|| GpuError::Internal("exact room was too small".into()))
}

/// One run; `None` when the room that the hints gave was too small.
fn attempt<T>(
    runtime: &Runtime,
    stream: &Stream,
    prepared: &Prepared,
    deliver: Deliver<'_, T>,
    profile: bool,
    hints: Option<Arc<Vec<Hint>>>,
) -> Result<Option<Finished<T>>> {
    let careful = hints.is_none();
    let mut run = Run::new(runtime, stream, prepared, hints)?;
    run.steps(profile)?;

    let host = Host::read(&run)?;
    if !run.kept_within(&host.control) {
        return Ok(None);
    }
    Control::check(&host.control)?;
    for (result, spec) in prepared.graph.results.iter().enumerate() {
        if Control::word(&host.control, result, ControlWord::Duplicate) != 0 {
            return Err(GpuError::DuplicateKeys(spec.name.clone()));
        }
    }
    let many = |result: &usize| Control::word(&host.control, *result, ControlWord::Count) > 1;
    if prepared.scalars.iter().any(many) {
        return Err(GpuError::ScalarSubqueryRows);
    }
    run.keep_indexes(&host.control);
    // Of rows that came in parts there are no sizes for a run that does not read them.
    if careful && !run.in_parts {
        *prepared.hints.lock() = Some(Arc::new(run.learned(&host.control)));
    }

    if let Some(early) = &prepared.early {
        // Nobody sees rows of a table that turns out otherwise.
        early.arrival.confirm(stream)?;
    }
    let output = deliver(&run, &host)?;
    let (streamed_bytes, spilled_bytes) = run.link_bytes();
    let (kernel_ms, steps) = times(&run, &host.control, profile)?;
    Ok(Some(Finished {
        output,
        rows: host.rows(&run),
        kernels: run.kernels,
        kernel_ms: (kernel_ms - run.waited.as_secs_f64() * 1e3).max(0.0),
        steps,
        phases: phases(&run)?,
        careful,
        parts: run.parts,
        sides_apart: run.sides_apart,
        group_parts: run.group_parts,
        sort_parts: run.sort_parts,
        early_strides: run.early_strides,
        streamed_bytes,
        spilled_bytes,
    }))
}

/// Time of all steps, and what each one did.
fn times(run: &Run<'_>, control: &[u64], profile: bool) -> Result<(f64, Vec<StepReport>)> {
    let device = run.runtime.device();
    let events = &run.events;
    let total = match (events.first(), events.last()) {
        (Some(first), Some(last)) if events.len() > 1 => device.elapsed_ms(first, last)?,
        _ => 0.0,
    };
    let mut steps = Vec::new();
    if profile {
        for (number, (step, pair)) in run.prepared.steps.iter().zip(events.windows(2)).enumerate() {
            let counted = |r: &ResultId| run.prepared.shapes[*r].appends();
            let rows = |r| Control::word(control, r, ControlWord::Count);
            steps.push(StepReport {
                label: step.label().to_string(),
                milliseconds: device.elapsed_ms(&pair[0], &pair[1])?,
                rows: step.into().filter(counted).map(rows),
                tree: match run.trees.iter().rev().find(|(of, _)| *of == number) {
                    Some((_, memory)) => memory.metrics(run.stream)?,
                    None => None,
                },
            });
        }
    }
    Ok((total, steps))
}

/// Time by kind of work, as far as it was marked.
fn phases(run: &Run<'_>) -> Result<Vec<(&'static str, f64)>> {
    let device = run.runtime.device();
    let mut phases: Vec<(&'static str, f64)> = Vec::new();
    let mut last = run.events.first();
    for (name, event) in &run.marks {
        if let Some(last) = last {
            let ms = device.elapsed_ms(last, event)?;
            match phases.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += ms,
                None => phases.push((name, ms)),
            }
        }
        last = Some(event);
    }
    Ok(phases)
}

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
    control: Vec<u64>,
    /// What lies from the control words on in their buffer.
    head: Vec<u8>,
}

impl Host {
    fn read(run: &Run<'_>) -> Result<Self> {
        let control = &run.control;
        let (buffer, start) = control.location();
        let bytes = buffer.len().saturating_sub(start);
        if bytes > ONE_COPY {
            let control = buffer.download_values(run.stream, start, control.words())?;
            let head = Vec::new();
            return Ok(Self { control, head });
        }
        let head: Vec<u8> = buffer.download_values(run.stream, start, bytes)?;
        let words = head.as_chunks::<8>().0.iter().take(control.words());
        Ok(Self {
            control: words.map(|w| u64::from_le_bytes(*w)).collect(),
            head,
        })
    }

    /// The first `bytes` bytes of a part of the output.
    fn part(&self, run: &Run<'_>, part: Part, bytes: usize) -> Result<Cow<'_, [u8]>> {
        let (buffer, offset) = run.output_part(part)?;
        let (head, start) = run.control.location();
        if std::ptr::eq(buffer, head)
            && let Some(at) = offset.checked_sub(start)
            && let Some(here) = self.head.get(at..at + bytes)
        {
            return Ok(Cow::Borrowed(here));
        }
        let values = buffer.download_values::<u8>(run.stream, offset, bytes)?;
        Ok(Cow::Owned(values))
    }

    /// Rows of the output.
    pub(in crate::exec) fn rows(&self, run: &Run<'_>) -> u64 {
        Control::word(&self.control, run.prepared.graph.output, ControlWord::Count)
    }

    /// The output as Arrow arrays of the schema's types, or the file where it lies.
    pub(in crate::exec) fn delivered(
        &self,
        run: &Run<'_>,
        schema: &SchemaRef,
    ) -> Result<Delivered> {
        match &run.written {
            Some(file) => Ok(Delivered::File(Arc::clone(file))),
            None => self.batch(run, schema).map(Delivered::Batch),
        }
    }

    /// The output as Arrow arrays of the schema's types.
    pub(in crate::exec) fn batch(&self, run: &Run<'_>, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = self.rows(run);
        let rows = usize::try_from(rows).map_err(|_| GpuError::Internal("output rows".into()))?;
        self.rows_as_batch(run, schema, rows)
    }

    /// The same of the first `rows` rows.
    pub(in crate::exec) fn rows_as_batch(
        &self,
        run: &Run<'_>,
        schema: &SchemaRef,
        rows: usize,
    ) -> Result<RecordBatch> {
        let prepared = run.prepared;
        if schema.fields().len() != prepared.output.len() {
            return Err(GpuError::Internal(
                "a fragment's output has other columns than its schema".into(),
            ));
        }
        // Strings first: they are gathered on the device, which the other columns only wait for.
        let mut raw = Vec::with_capacity(prepared.output.len());
        for (index, column) in prepared.output.iter().enumerate() {
            raw.push(self.raw(run, index, column, rows)?);
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
        run: &Run<'_>,
        index: usize,
        column: &OutputColumn,
        rows: usize,
    ) -> Result<Raw<'_>> {
        let layout = &column.layout;
        let valid = match layout.nullable {
            true => Some(self.part(run, Part::Valid(index), rows)?),
            false => None,
        };
        if let Some(base) = &column.text {
            let base = base.upgrade().ok_or_else(|| {
                GpuError::Internal("a string column was evicted during a run".into())
            })?;
            let array = gather(run, index, layout, &base, valid.as_deref(), rows)?;
            return Ok(Raw::Array(array));
        }
        let bytes = rows.saturating_mul(usize::from(layout.width));
        Ok(Raw::Codes(
            self.part(run, Part::Column(index), bytes)?,
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
