//! Runs a prepared fragment and brings its rows to the host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::codegen::ControlWord;
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::results::Frame;
use crate::exec::frame::run::Run;
use crate::exec::node::report::StepReport;
use crate::exec::output::host::Host;
use crate::exec::portions::strategy::StepPortions;
use crate::exec::prepare::hints::Hint;
use crate::exec::prepare::prepared::Prepared;
use crate::graph::ResultId;
use crate::runtime::Runtime;

/// What becomes of the rows of a run while they are on the device.
pub(in crate::exec) type Deliver<'d, T> = &'d dyn Fn(&Frame<'_>, &Host) -> Result<T>;

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
    pub(in crate::exec) reads_sizes: bool,
    /// Parts of joins.
    pub(in crate::exec) parts: u64,
    /// Sides of joins whose partitions had room of their own.
    pub(in crate::exec) sides_apart: u64,
    /// Parts of group-bys.
    pub(in crate::exec) group_parts: u64,
    /// Parts of sorts.
    pub(in crate::exec) sort_parts: u64,
    /// What came in portions, by step.
    pub(in crate::exec) portions: Vec<StepPortions>,
    /// Launches over rows of a table of which others were still to come.
    pub(in crate::exec) early_strides: u64,
    /// Bytes that came in strides.
    pub(in crate::exec) streamed_bytes: u64,
    /// Bytes of results in host memory.
    pub(in crate::exec) spilled_bytes: u64,
    /// … and in the memory of other devices.
    pub(in crate::exec) peer_bytes: u64,
}

/// Run with what the last run learned, or reading sizes between the steps when there was none or it no longer
/// holds. `profile` asks for the time of each step.
///
/// # Errors
/// [`GpuError::Arithmetic`], [`GpuError::DuplicateKeys`], [`GpuError::ScalarSubqueryRows`],
/// [`GpuError::OutOfDeviceMemory`], [`GpuError::Device`].
pub(in crate::exec) fn execute<T>(
    runtime: &Arc<Runtime>,
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
        prepared.keeps_slots.store(true, Ordering::Relaxed);
    }
    attempt(runtime, stream, prepared, deliver, profile, None)?
        .ok_or_else(|| GpuError::Internal("exact room was too small".into()))
}

/// One run; `None` when the room that the hints gave was too small.
fn attempt<T>(
    runtime: &Arc<Runtime>,
    stream: &Stream,
    prepared: &Prepared,
    deliver: Deliver<'_, T>,
    profile: bool,
    hints: Option<Arc<Vec<Hint>>>,
) -> Result<Option<Finished<T>>> {
    let reads_sizes = hints.is_none();
    let mut run = Run::new(runtime, stream, prepared, hints)?;
    run.steps(profile)?;

    let host = Host::read(&run.frame)?;
    if !run.frame.kept_within(&host.control) {
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
    run.frame.keep_indexes(&host.control);
    // Of rows that came in parts there are no sizes for a run that does not read them.
    if reads_sizes && !run.schedule.in_parts {
        *prepared.hints.lock() = Some(Arc::new(run.frame.learned(&host.control)));
    }

    if let Some(overlap) = &prepared.overlap {
        // Nobody sees rows of a table that turns out otherwise.
        overlap.arrival.confirm(stream)?;
    }
    let output = deliver(&run.frame, &host)?;
    let (streamed_bytes, spilled_bytes, peer_bytes) = run.link_bytes();
    let (kernel_ms, steps) = times(&run, &host.control, profile)?;
    let finished = Finished {
        output,
        rows: host.rows(&run.frame),
        kernels: run.reports.kernels,
        kernel_ms: (kernel_ms - run.reports.waited.as_secs_f64() * 1e3).max(0.0),
        steps,
        phases: phases(&run)?,
        reads_sizes,
        parts: run.reports.join_parts,
        sides_apart: run.reports.sides_apart,
        group_parts: run.reports.group_parts,
        sort_parts: run.reports.sort_parts,
        portions: std::mem::take(&mut run.reports.portions),
        early_strides: run.reports.early_strides,
        streamed_bytes,
        spilled_bytes,
        peer_bytes,
    };
    if prepared.overlap.is_none() {
        run.end();
    }
    Ok(Some(finished))
}

/// Time of all steps, and what each one did.
fn times(run: &Run<'_>, control: &[u64], profile: bool) -> Result<(f64, Vec<StepReport>)> {
    let device = run.frame.runtime.device();
    let events = &run.reports.events;
    let total = match (events.first(), events.last()) {
        (Some(first), Some(last)) if events.len() > 1 => device.elapsed_ms(first, last)?,
        _ => 0.0,
    };
    let mut steps = Vec::new();
    if profile {
        for (number, (step, pair)) in run
            .frame
            .prepared
            .steps
            .iter()
            .zip(events.windows(2))
            .enumerate()
        {
            let counted = |r: &ResultId| run.frame.prepared.shapes[*r].appends();
            let rows = |r| Control::word(control, r, ControlWord::Count);
            steps.push(StepReport {
                label: step.label().to_string(),
                milliseconds: device.elapsed_ms(&pair[0], &pair[1])?,
                rows: step.into().filter(counted).map(rows),
                tree: match run.reports.trees.iter().rev().find(|(of, _)| *of == number) {
                    Some((_, memory)) => memory.metrics(run.frame.stream)?,
                    None => None,
                },
            });
        }
    }
    Ok((total, steps))
}

/// Time by kind of work, as far as it was marked.
fn phases(run: &Run<'_>) -> Result<Vec<(&'static str, f64)>> {
    let device = run.frame.runtime.device();
    let mut phases: Vec<(&'static str, f64)> = Vec::new();
    let mut last = run.reports.events.first();
    for (name, event) in &run.reports.marks {
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
