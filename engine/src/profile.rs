//! Profiles of a query: a timeline of host and device in the format of Perfetto and `chrome://tracing`.
//!
//! The format is the Trace Event Format's JSON object: complete events (`"ph": "X"`) with times in microseconds, on
//! threads of two processes, the host and the device, whose threads are streams.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use serde_json::{Value, json};
use warpline_gpu::trace::{Span, Trace, Track, Work};
use warpline_tpch::environment::Environment;

use crate::environment::environment;
use crate::error::{Error, Result};
use crate::session::WarplineSession;

/// Numbers of the two processes in the file.
const HOST: u64 = 1;
const DEVICE: u64 = 2;

/// The recorded timeline of a query.
#[derive(Debug, Clone)]
pub struct Profile {
    sql: String,
    environment: Environment,
    /// By start time.
    spans: Vec<Span>,
    /// Spans that exceeded the capacity of the record.
    dropped: u64,
    /// Rows of the answer.
    pub rows: usize,
}

/// Time of one run, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTimes {
    /// `cold run` or `hot run N`.
    pub name: String,
    /// From SQL text to the last batch.
    pub total_ms: f64,
    /// From SQL text to the plan.
    pub plan_ms: f64,
    /// Sum over the kernels, by the events around each, of all streams together.
    pub kernel_ms: f64,
    /// Kernels launched.
    pub kernels: usize,
    /// Sum over the copies and fills, likewise.
    pub copy_ms: f64,
    /// Sources that the compiler compiled or the cache on disk held.
    pub compiled: usize,
}

/// Runs a query once cold and `hot` times more, and records all of it. Events around every kernel and copy cost some
/// microseconds each, so the runs take longer than without recording.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let session = warpline::WarplineSession::builder().open().await?;
/// let profile = warpline::profile(&session, "SELECT sum(value) FROM generate_series(1, 100)", 2).await?;
/// for run in profile.runs() {
///     println!("{}: {} ms, of which kernels {} ms", run.name, run.total_ms, run.kernel_ms);
/// }
/// let for_perfetto = profile.to_json()?;
/// # assert!(for_perfetto.contains("traceEvents"));
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::DataFusion`] with what planning or execution reports, [`Error::Gpu`] when the device records nothing.
pub async fn profile(session: &WarplineSession, sql: &str, hot: usize) -> Result<Profile> {
    let runtime = session.device().runtime();
    let trace = match &runtime {
        Some(runtime) => runtime.start_trace()?,
        None => Trace::begin(None)?,
    };
    let outcome = runs(session, sql, hot, &trace).await;
    if let Some(runtime) = &runtime {
        runtime.stop_trace();
    }
    let rows = outcome?;
    let (spans, dropped) = trace.spans()?;
    Ok(Profile {
        sql: sql.to_string(),
        environment: environment(session),
        spans,
        dropped,
        rows,
    })
}

async fn runs(
    session: &WarplineSession,
    sql: &str,
    hot: usize,
    trace: &Arc<Trace>,
) -> Result<usize> {
    let mut rows = 0;
    for number in 0..=hot {
        let name = match number {
            0 => "cold run".to_string(),
            number => format!("hot run {number}"),
        };
        let _run = trace.host(Track::Session, Work::Run, name);
        let planning = trace.host(Track::Session, Work::Plan, "plan");
        rows = match session.prepare(sql).await? {
            Some(query) => {
                drop(planning);
                let mut executing = trace.host(Track::Session, Work::Execute, "execute");
                executing.number("plan_cached", u64::from(query.is_cached()));
                let mut stream = query.stream()?;
                let rows = session.guard(sql, count(&mut stream)).await?;
                drop(stream);
                query.finish();
                rows
            }
            None => {
                let run = async {
                    let frame = session.context().sql(sql).await?;
                    let task = Arc::new(frame.task_ctx());
                    let plan = frame.create_physical_plan().await?;
                    drop(planning);
                    let _executing = trace.host(Track::Session, Work::Execute, "execute");
                    count(&mut execute_stream(plan, task)?).await
                };
                session.guard(sql, run).await?
            }
        };
    }
    Ok(rows)
}

async fn count(stream: &mut SendableRecordBatchStream) -> Result<usize, DataFusionError> {
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows();
    }
    Ok(rows)
}

impl Profile {
    /// The times of each run.
    pub fn runs(&self) -> Vec<RunTimes> {
        let runs = self.spans.iter().filter(|span| span.work == Work::Run);
        runs.map(|run| {
            let within = |span: &&Span| {
                let middle = span.start_us + span.duration_us / 2.0;
                middle >= run.start_us && middle <= run.start_us + run.duration_us
            };
            let sum = |work: Work| {
                let spans = self.spans.iter().filter(within).filter(|s| s.work == work);
                let (count, us) = spans.fold((0, 0.0), |(count, us), span| {
                    (count + 1, us + span.duration_us)
                });
                (count, us / 1e3)
            };
            let (kernels, kernel_ms) = sum(Work::Kernel);
            RunTimes {
                name: run.name.clone(),
                total_ms: run.duration_us / 1e3,
                plan_ms: sum(Work::Plan).1,
                kernel_ms,
                kernels,
                copy_ms: sum(Work::Copy).1,
                compiled: self
                    .spans
                    .iter()
                    .filter(within)
                    .filter(|span| span.work == Work::Compile && span.name.starts_with("compile "))
                    .count(),
            }
        })
        .collect()
    }

    /// Spans that exceeded the capacity of the record; 0 unless there were very many.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The profile as Trace Event Format.
    ///
    /// # Errors
    /// [`Error::Bench`] when a number has no form in JSON, which those of clocks have.
    pub fn to_json(&self) -> Result<String> {
        let device = self.environment.device.as_ref();
        let device = device.map(|device| (DEVICE, device.name.as_str()));
        let mut events = Vec::new();
        // The host above the device, the query above what it consists of: viewers sort by name otherwise.
        for (process, name) in [(HOST, "host")].into_iter().chain(device) {
            events.push(name_of("process_name", process, 0, name));
            events.push(order_of("process_sort_index", process, 0, process));
        }
        let lanes = Lanes::of(&self.spans);
        let mut tracks: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for span in &self.spans {
            let (process, thread, name) = lanes.place(&span.track);
            tracks.entry((process, thread)).or_insert(name);
        }
        for ((process, thread), name) in &tracks {
            events.push(name_of("thread_name", *process, *thread, name));
            events.push(order_of("thread_sort_index", *process, *thread, *thread));
        }
        events.extend(self.spans.iter().map(|span| event(span, &lanes)));
        let numbers = |e: &Environment| serde_json::to_value(e).unwrap_or(Value::Null);
        let file = json!({
            "displayTimeUnit": "ms",
            "otherData": {
                "query": self.sql,
                "environment": numbers(&self.environment),
                "spans_without_room": self.dropped,
            },
            "traceEvents": events,
        });
        serde_json::to_string(&file)
            .map_err(|error| Error::Bench(format!("the profile has no JSON form: {error}")))
    }
}

/// Positions of spans in the timeline. Fragments that do not overlap share a lane.
struct Lanes {
    /// By the fragment's number.
    of_fragments: HashMap<u64, u64>,
    /// Streams on which no kernel ran.
    copying: HashSet<usize>,
}

impl Lanes {
    /// `spans` by their beginning.
    fn of(spans: &[Span]) -> Self {
        let mut fragments: Vec<(u64, f64, f64)> = Vec::new();
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let (mut streams, mut computing) = (HashSet::new(), HashSet::new());
        for span in spans {
            match &span.track {
                Track::Fragment(number) => {
                    let at = *numbers.entry(*number).or_insert_with(|| {
                        fragments.push((*number, span.start_us, span.start_us));
                        fragments.len() - 1
                    });
                    let end = span.start_us + span.duration_us;
                    fragments[at].2 = fragments[at].2.max(end);
                }
                Track::Stream(number) => {
                    streams.insert(*number);
                    if span.work == Work::Kernel {
                        computing.insert(*number);
                    }
                }
                Track::Session | Track::Thread(..) | Track::Reader { .. } => {}
            }
        }
        let mut ends: Vec<f64> = Vec::new();
        let mut of_fragments = HashMap::new();
        for (number, start, end) in fragments {
            let free = ends.iter().position(|taken| *taken <= start);
            let lane = free.unwrap_or(ends.len());
            match free {
                Some(lane) => ends[lane] = end,
                None => ends.push(end),
            }
            of_fragments.insert(number, lane as u64);
        }
        Self {
            of_fragments,
            copying: &streams - &computing,
        }
    }

    /// Process, thread and the thread's name of a track.
    fn place(&self, track: &Track) -> (u64, u64, String) {
        match track {
            Track::Session => (HOST, 1, "query".to_string()),
            Track::Fragment(number) => {
                let lane = self.of_fragments.get(number).copied().unwrap_or(0);
                (HOST, 1_000 + lane, format!("fragments {lane}"))
            }
            Track::Reader { query, reader } => {
                let lane = self.of_fragments.get(query).copied().unwrap_or(0);
                let place = 500_000 + lane * 1_000 + *reader as u64;
                (HOST, place, format!("reader {reader} of fragments {lane}"))
            }
            Track::Thread(number, name) => {
                (HOST, 1_000_000 + *number as u64, format!("{name} {number}"))
            }
            Track::Stream(number) if self.copying.contains(number) => {
                (DEVICE, *number as u64, format!("stream {number}, copies"))
            }
            Track::Stream(number) => (DEVICE, *number as u64, format!("stream {number}")),
        }
    }
}

fn order_of(kind: &str, process: u64, thread: u64, order: u64) -> Value {
    json!({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"sort_index": order}})
}

fn name_of(kind: &str, process: u64, thread: u64, name: &str) -> Value {
    json!({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}})
}

/// Microseconds to the nanosecond.
fn fine(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

fn event(span: &Span, lanes: &Lanes) -> Value {
    let (process, thread, _) = lanes.place(&span.track);
    let numbers = span.numbers.iter();
    let mut numbers: serde_json::Map<String, Value> = numbers
        .map(|(name, value)| ((*name).to_string(), json!(value)))
        .collect();
    let bytes = span.numbers.iter().find(|(name, _)| *name == "bytes");
    if let Some((_, bytes)) = bytes.filter(|_| span.duration_us > 0.0) {
        let rate = *bytes as f64 / span.duration_us / 1e3;
        numbers.insert("gb_per_s".into(), json!(fine(rate)));
    }
    if let Track::Fragment(number) = span.track {
        numbers.insert("fragment".into(), json!(number));
    }
    // Both ends are rounded, not the duration: what lies within something else stays there.
    let (start, end) = (fine(span.start_us), fine(span.start_us + span.duration_us));
    json!({
        "ph": "X",
        "cat": span.work.name(),
        "name": span.name,
        "pid": process,
        "tid": thread,
        "ts": start,
        "dur": fine(end - start),
        "args": numbers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(track: Track, work: Work, start_us: f64, duration_us: f64) -> Span {
        Span {
            track,
            work,
            name: String::new(),
            start_us,
            duration_us,
            numbers: vec![],
        }
    }

    #[test]
    fn fragments_share_a_lane_when_none_runs_beside_the_other() {
        let fragment =
            |number, start, duration| span(Track::Fragment(number), Work::Execute, start, duration);
        let spans = [
            fragment(4, 0.0, 10.0),
            // Within the one above, and longer than that.
            fragment(4, 1.0, 19.0),
            fragment(5, 15.0, 10.0),
            fragment(6, 20.0, 1.0),
            fragment(7, 22.0, 1.0),
        ];
        let lanes = Lanes::of(&spans);
        let of = |number| lanes.place(&Track::Fragment(number));
        assert_eq!(of(4).2, "fragments 0");
        assert_eq!(of(5).2, "fragments 1");
        assert_eq!((of(6), of(7)), (of(4), of(4)));
    }

    #[test]
    fn streams_without_kernels_are_those_of_copies() {
        let spans = [
            span(Track::Stream(0), Work::Copy, 0.0, 1.0),
            span(Track::Stream(1), Work::Copy, 0.0, 1.0),
            span(Track::Stream(0), Work::Kernel, 1.0, 1.0),
        ];
        let lanes = Lanes::of(&spans);
        assert_eq!(lanes.place(&Track::Stream(0)).2, "stream 0");
        assert_eq!(lanes.place(&Track::Stream(1)).2, "stream 1, copies");
    }
}
