//! Traces: what the host and each stream of a device did when, for timelines.
//!
//! While a trace is taken, each kernel, copy and fill has an event of the device before and behind it. Events of a stream
//! are read one after the other, so that what lies within something else on the stream stays within it. Host and
//! device have a common origin: an event that the host waited for. The two clocks agree to some microseconds.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use parking_lot::Mutex;

use crate::device::{Device, Event, Stream};
use crate::error::Result;

/// Spans that are kept; what comes later is counted only. Each span on a stream holds two events of the device.
const MOST_SPANS: usize = 1 << 17;

/// Where a span is drawn. Spans of one track lie within each other or apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Track {
    /// What the session does: runs, planning, execution.
    Session,
    /// What one run of a fragment does on the host, by the query's number.
    Fragment(u64),
    /// A thread of the host, numbered in the order in which they appear, with its name.
    Thread(usize, String),
    /// One of those who read a table for a fragment at the same time.
    Reader {
        /// The query's number.
        query: u64,
        /// Which of the readers.
        reader: usize,
    },
    /// A stream of the device, numbered likewise.
    Stream(usize),
}

/// Kind of work, for colours and filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// A whole run of a query.
    Run,
    /// From text to plan.
    Plan,
    /// Executing a plan, and the fragments of it.
    Execute,
    /// Making columns resident.
    Load,
    /// Making pipelines, code and kernels of a plan.
    Compile,
    /// A step of a fragment on a stream: its kernels and copies lie within it.
    Step,
    /// A kernel.
    Kernel,
    /// Bytes moved or set by the device.
    Copy,
    /// The host waits for a stream.
    Wait,
}

impl Work {
    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Plan => "plan",
            Self::Execute => "execute",
            Self::Load => "load",
            Self::Compile => "compile",
            Self::Step => "step",
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Wait => "wait",
        }
    }
}

/// Something that took time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Where it is drawn.
    pub track: Track,
    /// Its kind.
    pub work: Work,
    /// What it was: a kernel's name, a step's label.
    pub name: String,
    /// Microseconds from the beginning of the trace.
    pub start_us: f64,
    /// Microseconds that it took.
    pub duration_us: f64,
    /// Numbers that belong to it: bytes, blocks, threads.
    pub numbers: Vec<(&'static str, u64)>,
}

/// A trace that is being taken.
pub struct Trace {
    /// The device, and an event on it at `origin`; none when the CPU answers.
    device: Option<(Arc<dyn Device>, Event)>,
    origin: Instant,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    host: Vec<Span>,
    device: Vec<DeviceSpan>,
    streams: Vec<StreamEvents>,
    threads: HashMap<ThreadId, usize>,
    dropped: u64,
}

/// The events of a stream, in the order in which they were recorded. The stream is held: another one at the same
/// address would be taken for it.
struct StreamEvents {
    stream: Stream,
    events: Vec<Event>,
}

/// A span between two events of a stream.
struct DeviceSpan {
    stream: usize,
    work: Work,
    name: String,
    begin: usize,
    /// None while it is open, and when its end could not be recorded.
    end: Option<usize>,
    numbers: Vec<(&'static str, u64)>,
}

impl Trace {
    /// Begins with what `device` does from now on.
    ///
    /// # Errors
    /// [`crate::GpuError::Device`] when it records no event.
    pub fn begin(device: Option<Arc<dyn Device>>) -> Result<Arc<Self>> {
        let device = match device {
            None => None,
            Some(device) => {
                let stream = device.create_stream()?;
                let event = device.record_event(&stream)?;
                device.synchronize(&stream)?;
                Some((device, event))
            }
        };
        Ok(Arc::new(Self {
            device,
            origin: Instant::now(),
            recorded: Mutex::default(),
        }))
    }

    /// A span of the host that ends when the guard is dropped.
    #[must_use]
    pub fn host(self: &Arc<Self>, track: Track, work: Work, name: impl Into<String>) -> HostSpan {
        HostSpan {
            trace: Arc::clone(self),
            track,
            work,
            name: name.into(),
            start: Instant::now(),
            numbers: vec![],
        }
    }

    /// The same on the track of this thread.
    #[must_use]
    pub fn thread(self: &Arc<Self>, work: Work, name: impl Into<String>) -> HostSpan {
        let thread = thread::current();
        let number = {
            let mut recorded = self.recorded.lock();
            let next = recorded.threads.len();
            *recorded.threads.entry(thread.id()).or_insert(next)
        };
        let track = Track::Thread(number, thread.name().unwrap_or("thread").to_string());
        self.host(track, work, name)
    }

    /// A span of a stream: what is queued there until the guard is dropped. None when there is no room for it.
    ///
    /// # Errors
    /// [`crate::GpuError::Device`] when no event is recorded.
    pub fn on_stream(
        self: &Arc<Self>,
        stream: &Stream,
        work: Work,
        name: &str,
        numbers: Vec<(&'static str, u64)>,
    ) -> Result<Option<StreamSpan>> {
        let mut recorded = self.recorded.lock();
        if recorded.device.len() >= MOST_SPANS {
            recorded.dropped += 1;
            return Ok(None);
        }
        let (number, begin) = self.event(&mut recorded, stream)?;
        recorded.device.push(DeviceSpan {
            stream: number,
            work,
            name: name.to_string(),
            begin,
            end: None,
            numbers,
        });
        let span = recorded.device.len() - 1;
        drop(recorded);
        Ok(Some(StreamSpan {
            trace: Arc::clone(self),
            stream: stream.clone(),
            span,
        }))
    }

    /// Records an event: the stream's number, and the event's among those of the stream.
    fn event(&self, recorded: &mut Recorded, stream: &Stream) -> Result<(usize, usize)> {
        let Some((device, _)) = &self.device else {
            return Err(crate::GpuError::Internal(
                "a trace without a device was asked for an event".into(),
            ));
        };
        let event = device.record_event(stream)?;
        let known = recorded.streams.iter().position(|s| s.stream.is(stream));
        let number = known.unwrap_or(recorded.streams.len());
        if known.is_none() {
            recorded.streams.push(StreamEvents {
                stream: stream.clone(),
                events: vec![],
            });
        }
        let events = &mut recorded.streams[number].events;
        events.push(event);
        Ok((number, events.len() - 1))
    }

    /// All spans so far, by their beginning, and how many found no room. Waits for the device. What is still open ends where
    /// its stream does.
    ///
    /// # Errors
    /// [`crate::GpuError::Device`] when the device failed.
    pub fn spans(&self) -> Result<(Vec<Span>, u64)> {
        let recorded = self.recorded.lock();
        let mut spans = recorded.host.clone();
        if let Some((device, origin)) = &self.device {
            let times = recorded
                .streams
                .iter()
                .map(|stream| microseconds(device.as_ref(), origin, &stream.events))
                .collect::<Result<Vec<_>>>()?;
            for span in &recorded.device {
                let times = &times[span.stream];
                let last = times.len() - 1;
                let (start, end) = (times[span.begin], times[span.end.unwrap_or(last)]);
                spans.push(Span {
                    track: Track::Stream(span.stream),
                    work: span.work,
                    name: span.name.clone(),
                    start_us: start,
                    duration_us: end - start,
                    numbers: span.numbers.clone(),
                });
            }
        }
        // What encloses others comes before them.
        spans.sort_by(|a, b| {
            let starts = a.start_us.total_cmp(&b.start_us);
            starts.then(b.duration_us.total_cmp(&a.duration_us))
        });
        Ok((spans, recorded.dropped))
    }
}

/// The times of a stream's events: each from the one before, which is finer than from the origin, and never back.
fn microseconds(device: &dyn Device, origin: &Event, events: &[Event]) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(events.len());
    let (mut before, mut now) = (origin, 0.0);
    for event in events {
        now += (device.elapsed_ms(before, event)? * 1e3).max(0.0);
        times.push(now);
        before = event;
    }
    Ok(times)
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

/// See [`Trace::host`].
#[derive(Debug)]
pub struct HostSpan {
    trace: Arc<Trace>,
    track: Track,
    work: Work,
    name: String,
    start: Instant,
    numbers: Vec<(&'static str, u64)>,
}

impl HostSpan {
    /// Adds a number, or a one for a fact.
    pub fn number(&mut self, name: &'static str, value: u64) {
        self.numbers.push((name, value));
    }
}

impl Drop for HostSpan {
    fn drop(&mut self) {
        let mut recorded = self.trace.recorded.lock();
        if recorded.host.len() >= MOST_SPANS {
            recorded.dropped += 1;
            return;
        }
        let since = self.start.saturating_duration_since(self.trace.origin);
        recorded.host.push(Span {
            track: self.track.clone(),
            work: self.work,
            name: std::mem::take(&mut self.name),
            start_us: since.as_secs_f64() * 1e6,
            duration_us: self.start.elapsed().as_secs_f64() * 1e6,
            numbers: std::mem::take(&mut self.numbers),
        });
    }
}

/// See [`Trace::on_stream`].
pub struct StreamSpan {
    trace: Arc<Trace>,
    stream: Stream,
    span: usize,
}

impl Drop for StreamSpan {
    fn drop(&mut self) {
        let mut recorded = self.trace.recorded.lock();
        match self.trace.event(&mut recorded, &self.stream) {
            Ok((_, event)) => recorded.device[self.span].end = Some(event),
            // The device failed, which the work itself reports.
            Err(error) => log::debug!("the end of a span was not recorded: {error}"),
        }
    }
}
