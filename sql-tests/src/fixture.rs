//! Tables, a session on a device, and the comparison of its answers with plain DataFusion.
//!
//! This is test support: a failure panics with a message that names the query and the first difference.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::{MemTable, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::prelude::ParquetReadOptions;
use tokio::runtime::Runtime;
use warpline::{DeviceChoice, QueryRun, WarplineSession, statements};
use warpline_tpch::runner::reference_answer;
use warpline_tpch::verify::{self, Answer, Ordering};
use warpline_tpch::{QueryEngine, TpchError};

use crate::cut::{self, Cut, CutRun};

/// Planning recurses deeply in builds without optimisation.
const STACK_BYTES: usize = 32 << 20;

/// The device under test: the emulator, or what `WARPLINE_TEST_DEVICE` names (`cuda`, or `cpu` to test the tests).
///
/// # Panics
/// When there is no such device.
pub fn test_device() -> DeviceChoice {
    match std::env::var("WARPLINE_TEST_DEVICE") {
        Ok(name) => name
            .parse()
            .unwrap_or_else(|error| panic!("WARPLINE_TEST_DEVICE: {error}")),
        Err(_) => DeviceChoice::Emulator,
    }
}

/// The step between the points that a test tries of many alike: one under `WARPLINE_EXHAUSTIVE=1`, so that none is left out.
pub fn every(step: usize) -> usize {
    if exhaustive() { 1 } else { step }
}

/// True when `WARPLINE_EXHAUSTIVE=1` asks for every point and for more random queries than a change is tested with.
pub fn exhaustive() -> bool {
    std::env::var("WARPLINE_EXHAUSTIVE").is_ok_and(|value| value == "1")
}

/// Tables and a session on a device; each query must run there in full.
pub struct Fixture {
    runtime: Runtime,
    session: Arc<WarplineSession>,
}

impl Fixture {
    /// A fixture on the device under test, where a fallback to the CPU is an error.
    pub fn device() -> Self {
        Self::open(test_device(), true, &[])
    }

    /// A fixture on the device under test, where a query may run in part on the CPU.
    pub fn relaxed() -> Self {
        Self::open(test_device(), false, &[("warpline.min_rows", "0")])
    }

    /// A fixture on plain DataFusion, for tests of the harness itself.
    pub fn cpu() -> Self {
        Self::open(DeviceChoice::Cpu, false, &[])
    }

    /// A fixture on any device with settings; without `require_gpu` a query may run in part on the CPU.
    ///
    /// # Panics
    /// When the session does not open.
    pub fn open(device: DeviceChoice, require_gpu: bool, settings: &[(&str, &str)]) -> Self {
        // Tests of queries can be tested themselves, with plain DataFusion on both sides.
        let require_gpu = require_gpu && device != DeviceChoice::Cpu;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .unwrap_or_else(|error| panic!("no runtime: {error}"));
        let mut builder = WarplineSession::builder()
            .device(device)
            .require_gpu(require_gpu);
        if require_gpu {
            // The tables of tests are far below the size from which a device pays.
            builder = builder.set("warpline.min_rows", "0");
        }
        if matches!(device, DeviceChoice::Cuda(_)) {
            // The CPU would often be first while kernels are compiled: tests are of the device.
            builder = builder.set("warpline.cold", "wait");
        }
        for (key, value) in settings {
            builder = builder.set(*key, *value);
        }
        let session = runtime
            .block_on(builder.open())
            .unwrap_or_else(|error| panic!("no session on {device}: {error}"));
        statements::register_functions(session.reference());
        Self {
            runtime,
            session: Arc::new(session),
        }
    }

    /// Adds a table of one batch; all columns are nullable.
    ///
    /// # Panics
    /// When the columns differ in length or there are none.
    #[must_use]
    pub fn table<'a>(
        self,
        name: &str,
        columns: impl IntoIterator<Item = (&'a str, ArrayRef)>,
    ) -> Self {
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns)
            .unwrap_or_else(|error| panic!("table {name}: {error}"));
        self.partitions(name, vec![vec![batch]])
    }

    /// Adds a table of several batches in one partition.
    ///
    /// # Panics
    /// When there is no batch or their schemas differ.
    #[must_use]
    pub fn batches(self, name: &str, batches: Vec<RecordBatch>) -> Self {
        self.partitions(name, vec![batches])
    }

    /// Adds a table of several partitions.
    ///
    /// # Panics
    /// When there is no batch or their schemas differ.
    #[must_use]
    pub fn partitions(self, name: &str, partitions: Vec<Vec<RecordBatch>>) -> Self {
        let first = partitions
            .iter()
            .flatten()
            .next()
            .unwrap_or_else(|| panic!("table {name} has no batch"));
        let table = MemTable::try_new(first.schema(), partitions)
            .unwrap_or_else(|error| panic!("table {name}: {error}"));
        self.provider(name, Arc::new(table))
    }

    /// Adds a table of any kind.
    ///
    /// # Panics
    /// When the catalog refuses it.
    #[must_use]
    pub fn provider(self, name: &str, table: Arc<dyn TableProvider>) -> Self {
        // The reference shares the catalog.
        let outcome = self.session.context().register_table(name, table);
        outcome.unwrap_or_else(|error| panic!("table {name}: {error}"));
        self
    }

    /// Adds a table that a query makes, on plain DataFusion: `generate_series` and the like.
    ///
    /// # Panics
    /// When the query fails.
    #[must_use]
    pub fn table_from(self, name: &str, sql: &str) -> Self {
        let make = async {
            let (answer, _) = reference_answer(self.session.reference(), sql).await?;
            Ok::<_, warpline_tpch::TpchError>(answer.batch().clone())
        };
        let batch = self
            .runtime
            .block_on(make)
            .unwrap_or_else(|error| panic!("table {name}: {error}\n{sql}"));
        self.partitions(name, vec![vec![batch]])
    }

    /// Adds a parquet file as a table.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn parquet(self, name: &str, path: &Path) -> Self {
        let context = self.session.context().clone();
        let (name, path) = (name.to_string(), path.display().to_string());
        let registered = self.block_on(async move {
            let options = ParquetReadOptions::default();
            context.register_parquet(&name, path, options).await
        });
        registered.unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// The session, to change settings or register other tables.
    pub fn session(&self) -> &WarplineSession {
        &self.session
    }

    /// Waits for a future on the fixture's threads.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Runs a query on the device alone, on a thread with a large stack.
    ///
    /// # Errors
    /// What planning or execution reports.
    ///
    /// # Panics
    /// When the query does.
    pub fn run(&self, sql: &str) -> Result<QueryRun, DataFusionError> {
        let session = Arc::clone(&self.session);
        let text = sql.to_string();
        let task = self.runtime.spawn(async move { session.run(&text).await });
        let outcome = self.runtime.block_on(task);
        outcome.unwrap_or_else(|error| panic!("{error}\nquery: {sql}"))
    }

    /// As [`Self::run`], but gives up after a time, as somebody who does not wait any longer: then `None`.
    ///
    /// # Panics
    /// When the query does.
    pub fn run_within(
        &self,
        sql: &str,
        time: Duration,
    ) -> Option<Result<QueryRun, DataFusionError>> {
        let session = Arc::clone(&self.session);
        let text = sql.to_string();
        let task = self
            .runtime
            .spawn(async move { tokio::time::timeout(time, session.run(&text)).await.ok() });
        let outcome = self.runtime.block_on(task);
        outcome.unwrap_or_else(|error| panic!("{error}\nquery: {sql}"))
    }

    /// Runs a query with its aggregations cut between their phases.
    ///
    /// # Errors
    /// What planning or a phase reports.
    ///
    /// # Panics
    /// When the query does.
    pub fn run_cut(&self, sql: &str, cut: Cut) -> Result<CutRun, DataFusionError> {
        let session = Arc::clone(&self.session);
        let text = sql.to_string();
        let task = self
            .runtime
            .spawn(async move { cut::run(&session, &text, cut).await });
        let outcome = self.runtime.block_on(task);
        outcome.unwrap_or_else(|error| panic!("{error}\nquery: {sql}"))
    }

    /// The answer of plain DataFusion, to compare several answers of the device with.
    ///
    /// # Panics
    /// When the query fails.
    #[track_caller]
    pub fn expect(&self, sql: &str) -> Expected {
        let session = Arc::clone(&self.session);
        let text = sql.to_string();
        let task = self
            .runtime
            .spawn(async move { plain_answer(&session, &text).await });
        match self.runtime.block_on(task) {
            Ok(Ok((answer, ordering))) => Expected {
                sql: sql.to_string(),
                answer,
                ordering,
            },
            Ok(Err(error)) => panic!("the reference failed: {error}\nquery: {sql}"),
            Err(error) => panic!("{error}\nquery: {sql}"),
        }
    }

    /// Changes a setting.
    ///
    /// # Panics
    /// When there is no such setting or the value does not fit.
    #[track_caller]
    pub fn set(&self, key: &str, value: &str) {
        let outcome = self.runtime.block_on(self.session.set(key, value));
        outcome.unwrap_or_else(|error| panic!("SET {key} = '{value}': {error}"));
    }

    /// Runs a query on the device and on plain DataFusion; the answers must be equal, values exactly but floats to
    /// 1e-9 relative, and in the order that the query asks for. Returns the device's answer.
    ///
    /// # Panics
    /// When a side fails or the answers differ; the message shows both answers when they are small.
    #[track_caller]
    pub fn check(&self, sql: &str) -> QueryRun {
        match self.compare(sql) {
            Ok(run) => run,
            Err(message) => panic!("{message}\nquery: {sql}"),
        }
    }

    /// As [`Self::check`], for callers that want the message.
    ///
    /// # Errors
    /// What failed or differs, in words.
    pub fn compare(&self, sql: &str) -> Result<QueryRun, String> {
        let session = Arc::clone(&self.session);
        let text = sql.to_string();
        // On a worker thread, whose stack is large; a test's own is not.
        let task = self.runtime.spawn(async move {
            let reference = plain_answer(&session, &text).await;
            let found = session.run(&text).await;
            (reference, found)
        });
        let (reference, found) = self
            .runtime
            .block_on(task)
            .map_err(|error| error.to_string())?;
        let (expected, ordering) =
            reference.map_err(|error| format!("the reference failed: {error}"))?;
        let found =
            found.map_err(|error| format!("the device failed: {}", error.strip_backtrace()))?;
        let answer =
            Answer::new(&found.schema, &found.batches).map_err(|error| error.to_string())?;
        match verify::compare(&expected, &answer, &ordering) {
            None => Ok(found),
            Some(difference) => Err(format!(
                "{difference}\nexpected:\n{}\nfound:\n{}",
                shown(expected.batch()),
                shown(answer.batch())
            )),
        }
    }

    /// Both sides must refuse the query, as for a division by zero; returns the device's message.
    ///
    /// # Panics
    /// When a side answers.
    #[track_caller]
    pub fn check_error(&self, sql: &str) -> String {
        let session = Arc::clone(&self.session);
        let text = sql.to_string();
        let task = self.runtime.spawn(async move {
            let reference = plain_answer(&session, &text).await.map(|_| ());
            (reference, session.run(&text).await)
        });
        match self.runtime.block_on(task) {
            Ok((Err(_), Err(error))) => error.strip_backtrace(),
            Ok((Ok(()), _)) => panic!("the reference answers\nquery: {sql}"),
            Ok((_, Ok(run))) => panic!("the device answers with {} rows\nquery: {sql}", run.rows()),
            Err(error) => panic!("{error}\nquery: {sql}"),
        }
    }

    /// The physical plan on the device, as `EXPLAIN` prints it.
    ///
    /// # Panics
    /// When the query cannot be planned.
    #[track_caller]
    pub fn explain(&self, sql: &str) -> String {
        let run = self.block_on(self.session.run(&format!("EXPLAIN {sql}")));
        let run = run.unwrap_or_else(|error| panic!("{error}\nquery: {sql}"));
        pretty_format_batches(&run.batches)
            .map_or_else(|error| error.to_string(), |text| text.to_string())
    }
}

/// The answer of plain DataFusion to a text in words that it has a plan for.
async fn plain_answer(
    session: &WarplineSession,
    sql: &str,
) -> Result<(Answer, Ordering), TpchError> {
    let reference = session.reference();
    // What is wrong with a text is said when it runs.
    let plain = statements::plain_text(&reference.state(), sql).await;
    reference_answer(reference, plain.as_deref().unwrap_or(sql)).await
}

/// What plain DataFusion answers.
pub struct Expected {
    /// The query.
    pub sql: String,
    answer: Answer,
    ordering: Ordering,
}

impl Expected {
    /// What is wrong with an answer of the device; `None` when it is right.
    pub fn difference(&self, run: &QueryRun) -> Option<String> {
        self.difference_of(&run.schema, &run.batches)
    }

    /// What is wrong with these rows; `None` when they are right.
    pub fn difference_of(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Option<String> {
        match Answer::new(schema, batches) {
            Ok(found) => verify::compare(&self.answer, &found, &self.ordering)
                .map(|difference| difference.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// A batch as text, cut to what a person reads.
pub(crate) fn shown(batch: &RecordBatch) -> String {
    const ROWS: usize = 20;
    let head = batch.slice(0, batch.num_rows().min(ROWS));
    let text = pretty_format_batches(&[head])
        .map_or_else(|error| error.to_string(), |text| text.to_string());
    match batch.num_rows().checked_sub(ROWS) {
        None | Some(0) => text,
        Some(more) => format!("{text}\n… and {more} more rows"),
    }
}
