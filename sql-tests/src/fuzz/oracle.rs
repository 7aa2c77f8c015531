//! Runs a query on a session and on plain DataFusion, and judges the two outcomes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use warpline::{Device, DeviceChoice, QueryRun, WarplineSession};
use warpline_tpch::QueryEngine as _;
use warpline_tpch::verify::{self, Answer, Ordering};

use super::case::Settings;
use super::query::Query;
use super::render;
use super::table::Table;
use crate::cut::Cut;

/// Planning recurses deeply in builds without optimisation.
const STACK_BYTES: usize = 32 << 20;
/// How long plain DataFusion may take: a query that takes longer is not worth the device's time.
const REFERENCE_LIMIT: Duration = Duration::from_secs(15);
/// Rows that an operator of plain DataFusion's plan may yield; the emulator takes a second for some millions.
const MOST_ROWS: usize = 300_000;

/// How a query's run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The answers are equal.
    Agreed(Placed),
    /// Nothing can be said, and why.
    Skipped(&'static str, String),
    /// They are not.
    Failed(Failure),
}

/// Where a query ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// On the device.
    Device,
    /// In part on the device, and why not in full.
    Part(Vec<String>),
    /// Nowhere on it, and why.
    Cpu(Vec<String>),
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Which kind of failure: shrinking keeps to it.
    pub kind: Kind,
    /// What happened, in words.
    pub message: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Another answer.
    Answer,
    /// An error, in words without names and numbers.
    Error(String),
    /// A panic, likewise.
    Panic(String),
    /// No answer in time.
    Hang,
}

/// Opens sessions and waits for them.
pub struct Oracle {
    choice: DeviceChoice,
    device: Device,
    runtime: Runtime,
    time_limit: Duration,
}

/// Tables in a session.
pub struct Opened {
    session: Arc<WarplineSession>,
    /// Removed with the session.
    _folder: TempDir,
}

/// What plain DataFusion answers.
#[derive(Clone)]
pub struct Expected {
    answer: Answer,
    ordering: Ordering,
}

impl Opened {
    /// Plain DataFusion over the tables.
    pub fn reference(&self) -> &SessionContext {
        self.session.reference()
    }
}

impl Expected {
    /// The rows.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Does the query's order leave no choice which row comes before which?
    pub fn is_in_one_order(&self) -> bool {
        let keys = &self.ordering.keys;
        !keys.is_empty() && self.answer.has_ties(keys).is_ok_and(|ties| !ties)
    }
}

impl Oracle {
    /// Opens a device; a query may take `time_limit` on it.
    ///
    /// # Errors
    /// What opening it reports.
    pub fn open(choice: DeviceChoice, time_limit: Duration) -> Result<Self, String> {
        let device = Device::open(choice, None).map_err(|error| error.to_string())?;
        Ok(Self {
            choice,
            device,
            runtime: runtime()?,
            time_limit,
        })
    }

    /// A session with tables.
    ///
    /// # Errors
    /// What the session reports.
    pub fn session(&self, tables: &[Table], settings: &Settings) -> Result<Opened, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = folder.path().to_path_buf();
        let (tables, settings) = (tables.to_vec(), settings.clone());
        let device = self.device.clone();
        let limited = settings
            .iter()
            .any(|(key, _)| key == "warpline.device_memory");
        let open = async move {
            let mut builder = WarplineSession::builder().set("warpline.min_rows", "0");
            // A budget is the device's; the next session has none.
            builder = match limited {
                true => builder.device(device_choice(&device)),
                false => builder.shared_device(&device),
            };
            for (key, value) in &settings {
                builder = builder.set(key, value);
            }
            let session = builder.open().await.map_err(|error| error.to_string())?;
            for table in &tables {
                let made = table.register(&session, &path).await;
                made.map_err(|error| format!("table {}: {}", table.name, error.strip_backtrace()))?;
            }
            Ok::<_, String>(session)
        };
        let session = self
            .runtime
            .block_on(self.runtime.spawn(open))
            .map_err(|error| error.to_string())??;
        Ok(Opened {
            session: Arc::new(session),
            _folder: folder,
        })
    }

    /// The device that was asked for.
    pub fn choice(&self) -> DeviceChoice {
        self.choice
    }

    /// What plain DataFusion says, or why nothing can be compared with it.
    pub fn expect(&self, opened: &Opened, query: &Query) -> Result<Expected, Verdict> {
        let session = Arc::clone(&opened.session);
        let sql = render::query(query);
        let task = self.runtime.spawn(async move {
            tokio::time::timeout(REFERENCE_LIMIT, reference(&session, &sql)).await
        });
        let skipped = |why, text: String| Err(Verdict::Skipped(why, text));
        match self.runtime.block_on(task) {
            Ok(Ok(Ok(Some(expected)))) => Ok(expected),
            Ok(Ok(Ok(None))) => skipped("too many rows", String::new()),
            Ok(Ok(Err(error))) => {
                let text = error.strip_backtrace();
                match is_fault(&text) {
                    true => skipped("plain DataFusion ends in an error", text),
                    false => skipped("plain DataFusion refuses it", text),
                }
            }
            Ok(Err(_)) => skipped("plain DataFusion takes too long", String::new()),
            Err(panic) => skipped("plain DataFusion panics", panic.to_string()),
        }
    }

    /// Runs a query on the session and compares.
    pub fn judge(&self, opened: &Opened, query: &Query, expected: &Expected) -> Verdict {
        let session = Arc::clone(&opened.session);
        let (sql, limit) = (render::query(query), self.time_limit);
        let task = self
            .runtime
            .spawn(async move { tokio::time::timeout(limit, session.run(&sql)).await });
        // A task that does not listen to its time limit is left behind.
        let late = limit + Duration::from_secs(20);
        let outcome = self
            .runtime
            .block_on(async { tokio::time::timeout(late, task).await });
        let failed = |kind, message: String| Verdict::Failed(Failure { kind, message });
        let run = match outcome {
            Err(_) | Ok(Ok(Err(_))) => {
                return failed(Kind::Hang, format!("no answer in {limit:?}"));
            }
            Ok(Err(panic)) => {
                let text = panic.to_string();
                return failed(Kind::Panic(without_names(&text)), text);
            }
            Ok(Ok(Ok(Err(error)))) => {
                let text = error.strip_backtrace();
                return match () {
                    () if text.contains("panicked") => {
                        failed(Kind::Panic(without_names(&text)), text)
                    }
                    () if is_out_of_memory(&text) => Verdict::Skipped("out of memory", text),
                    () => failed(Kind::Error(without_names(&text)), text),
                };
            }
            Ok(Ok(Ok(Ok(run)))) => run,
        };
        // The CPU answers for a device that fails: then the answer is right and the device wrong.
        let internal = |reason: &&String| reason.contains("internal error");
        match self.difference(opened, query, expected, &run) {
            None => match run.metrics.fallbacks.iter().find(internal) {
                None => Verdict::Agreed(placed(&run)),
                Some(text) => failed(Kind::Error(without_names(text)), text.clone()),
            },
            Some(message) => failed(Kind::Answer, message),
        }
    }

    /// What is wrong with a query's answer when its aggregations are cut between their phases; `None` where it is right, or nothing
    /// can be said.
    pub fn judge_cut(
        &self,
        opened: &Opened,
        query: &Query,
        expected: &Expected,
        cut: Cut,
    ) -> Option<Failure> {
        if query.limit.is_some() || query.offset.is_some() {
            return None;
        }
        let message = self.cut_differs(opened, query, expected, cut)?;
        // Of other partitions plain DataFusion may have another answer too.
        match self.cut_differs(opened, query, expected, Cut::NOWHERE) {
            Some(_) => None,
            None => Some(Failure {
                kind: Kind::Answer,
                message: format!("{cut:?}: {message}"),
            }),
        }
    }

    /// What is wrong with the rows that a query leaves on the device; `None` where they are right, or nothing can be said.
    pub fn judge_on_device(
        &self,
        opened: &Opened,
        query: &Query,
        expected: &Expected,
    ) -> Option<Failure> {
        // Which rows those of a limit are is the run's choice.
        if self.choice == DeviceChoice::Cpu || query.limit.is_some() || query.offset.is_some() {
            return None;
        }
        let session = Arc::clone(&opened.session);
        let (sql, limit) = (render::query(query), self.time_limit);
        let task = self.runtime.spawn(async move {
            tokio::time::timeout(limit, super::on_device::run(&session, &sql)).await
        });
        let failed = |kind, message: String| Some(Failure { kind, message });
        let (schema, batch) = match self.runtime.block_on(task) {
            Err(panic) => {
                let text = panic.to_string();
                return failed(Kind::Panic(without_names(&text)), text);
            }
            Ok(Err(_)) => return failed(Kind::Hang, format!("no rows in {limit:?}")),
            Ok(Ok(Err(error))) => {
                let text = error.strip_backtrace();
                let known = is_out_of_memory(&text) || is_fault(&text);
                return match known {
                    true => None,
                    false => failed(Kind::Error(without_names(&text)), text),
                };
            }
            Ok(Ok(Ok(left))) => left,
        };
        let message = match Answer::new(&schema, &[batch]) {
            Ok(found) => verify::compare(&expected.answer, &found, &expected.ordering)?.to_string(),
            Err(error) => error.to_string(),
        };
        failed(Kind::Answer, message)
    }

    fn cut_differs(
        &self,
        opened: &Opened,
        query: &Query,
        expected: &Expected,
        cut: Cut,
    ) -> Option<String> {
        let session = Arc::clone(&opened.session);
        let (sql, limit) = (render::query(query), self.time_limit);
        let task = self.runtime.spawn(async move {
            tokio::time::timeout(limit, crate::cut::run(&session, &sql, cut)).await
        });
        let run = match self.runtime.block_on(task) {
            Err(panic) => return Some(panic.to_string()),
            Ok(Err(_)) => return Some(format!("no answer in {limit:?}")),
            Ok(Ok(Err(error))) => {
                let text = error.strip_backtrace();
                let known = is_out_of_memory(&text) || is_fault(&text);
                return (!known).then_some(text);
            }
            Ok(Ok(Ok(run))) => run,
        };
        if run.phases == 0 || run.ordered {
            return None;
        }
        match Answer::new(&run.schema, &run.batches) {
            Ok(found) => verify::compare(&expected.answer, &found, &expected.ordering)
                .map(|difference| difference.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn difference(
        &self,
        opened: &Opened,
        query: &Query,
        expected: &Expected,
        run: &QueryRun,
    ) -> Option<String> {
        let found = match Answer::new(&run.schema, &run.batches) {
            Ok(found) => found,
            Err(error) => return Some(error.to_string()),
        };
        let cut = query.limit.is_some() || query.offset.is_some();
        if cut && query.order.is_empty() {
            return self.not_among(opened, query, expected, &found);
        }
        let difference = verify::compare(&expected.answer, &found, &expected.ordering)?;
        Some(format!(
            "{difference}\nexpected:\n{}\nfound:\n{}",
            crate::fixture::shown(expected.answer.batch()),
            crate::fixture::shown(found.batch())
        ))
    }

    /// Any rows do for a limit without an order, if they are of the answer without the limit.
    fn not_among(
        &self,
        opened: &Opened,
        query: &Query,
        expected: &Expected,
        found: &Answer,
    ) -> Option<String> {
        let (wanted, rows) = (expected.answer.batch().num_rows(), found.batch().num_rows());
        if wanted != rows {
            return Some(format!("expected {wanted} rows, found {rows}"));
        }
        let inexact = (0..query.items().len()).any(|column| query.inexact(column));
        if inexact {
            return None;
        }
        let whole = Query {
            limit: None,
            offset: None,
            ..query.clone()
        };
        let all = self.expect(opened, &whole).ok()?;
        let mut left: HashMap<String, usize> = HashMap::new();
        for row in texts(all.answer.batch()).ok()? {
            *left.entry(row).or_default() += 1;
        }
        for row in texts(found.batch()).ok()? {
            match left.get_mut(&row) {
                Some(count) if *count > 0 => *count -= 1,
                _ => {
                    return Some(format!(
                        "row ({row}) is not in the answer without the limit"
                    ));
                }
            }
        }
        None
    }

    /// Whether the answer depends on a rule of the optimizer. That of a limit does by right, so that all rows are compared.
    pub fn judge_rules(&self, opened: &Opened, query: &Query, expected: &Expected) -> Verdict {
        if query.limit.is_some() || query.offset.is_some() {
            let whole = Query {
                limit: None,
                offset: None,
                ..query.clone()
            };
            return match self.expect(opened, &whole) {
                Ok(expected) => self.judge_rules(opened, &whole, &expected),
                Err(verdict) => verdict,
            };
        }
        let session = Arc::clone(&opened.session);
        let (sql, limit, expected) = (render::query(query), self.time_limit, expected.clone());
        let task = self.runtime.spawn(async move {
            let (answer, ordering) = (&expected.answer, &expected.ordering);
            let differing = super::rules::differing(&session, &sql, answer, ordering);
            tokio::time::timeout(limit, differing).await
        });
        match self.runtime.block_on(task) {
            Ok(Ok(Ok(None))) => Verdict::Agreed(Placed::Cpu(vec![])),
            Ok(Ok(Ok(Some(message)))) => Verdict::Failed(Failure {
                kind: Kind::Answer,
                message,
            }),
            Ok(Ok(Err(error))) => Verdict::Skipped("has no plan", error.strip_backtrace()),
            Ok(Err(_)) => Verdict::Skipped("takes too long", String::new()),
            Err(panic) => Verdict::Skipped("panics", panic.to_string()),
        }
    }

    /// Whether plain DataFusion contradicts itself: two queries, or sessions, whose answers must be equal.
    pub fn contradicts(&self, opened: &Opened, query: &Query, expected: &Expected) -> bool {
        match self.expect(opened, query) {
            Ok(other) => {
                let found = &other.answer;
                verify::compare(&expected.answer, found, &Ordering::default()).is_some()
            }
            Err(_) => true,
        }
    }

    /// Begins with a new device and new threads, after something was left behind on the old ones.
    ///
    /// # Errors
    /// What opening the device reports.
    pub fn renew(&mut self) -> Result<(), String> {
        let fresh = Self::open(self.choice, self.time_limit)?;
        std::mem::replace(self, fresh).end();
        Ok(())
    }

    /// Waits for nothing: a query of plain DataFusion that took too long may go on for hours before it notices that nobody wants it.
    pub fn end(self) {
        self.runtime.shutdown_background();
    }
}

/// The device's name as a choice.
fn device_choice(device: &Device) -> DeviceChoice {
    match device.name().as_str() {
        "emulator" => DeviceChoice::Emulator,
        "cpu" => DeviceChoice::Cpu,
        _ => DeviceChoice::Auto,
    }
}

fn runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

/// The answer of plain DataFusion; `None` when it is too much work for an emulator.
async fn reference(
    session: &WarplineSession,
    sql: &str,
) -> Result<Option<Expected>, DataFusionError> {
    let frame = session.reference().sql(sql).await?;
    let ordering = verify::ordering_of(frame.logical_plan());
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), task).await?;
    if most_rows(&plan) > MOST_ROWS {
        return Ok(None);
    }
    let answer = Answer::new(&plan.schema(), &batches)?;
    Ok(Some(Expected { answer, ordering }))
}

fn most_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let here = plan.metrics().and_then(|metrics| metrics.output_rows());
    let below = plan.children().into_iter().map(most_rows).max();
    here.unwrap_or(0).max(below.unwrap_or(0))
}

fn placed(run: &QueryRun) -> Placed {
    let reasons = run.metrics.fallbacks.clone();
    match (run.metrics.kernels, reasons.is_empty()) {
        (0, false) => Placed::Cpu(reasons),
        (_, false) => Placed::Part(reasons),
        _ => Placed::Device,
    }
}

fn texts(batch: &RecordBatch) -> Result<Vec<String>, ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options))
        .collect::<Result<_, _>>()?;
    (0..batch.num_rows())
        .map(|row| {
            let cells = columns
                .iter()
                .map(|column| column.value(row).try_to_string());
            Ok(cells.collect::<Result<Vec<_>, _>>()?.join(", "))
        })
        .collect()
}

/// Errors of values, which depend on the rows that an expression is evaluated for.
pub(crate) fn is_fault(text: &str) -> bool {
    [
        "overflow",
        "Overflow",
        "ivide by zero",
        "cast",
        "Cast",
        "too large",
        "out of range",
    ]
    .iter()
    .any(|word| text.contains(word))
}

fn is_out_of_memory(text: &str) -> bool {
    [
        "Resources exhausted",
        "device memory",
        "out of memory",
        "warpline.host_memory",
    ]
    .iter()
    .any(|word| text.contains(word))
}

/// The words of a message that are the same for other tables and values.
fn without_names(text: &str) -> String {
    let mut words = String::new();
    for word in text.split(|c: char| !c.is_alphabetic()) {
        if word.len() > 3 && words.len() < 60 {
            words.push_str(word);
            words.push(' ');
        }
    }
    words.trim_end().to_string()
}
