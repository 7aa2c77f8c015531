//! Runs queries cold and hot, checks each answer, and isolates the failures of one query from the others.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufWriter;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::SessionContext;
use futures::FutureExt;

use crate::engine::{QueryEngine, QueryMetrics, QueryRun};
use crate::error::{Result, TpchError};
use crate::report::{QueryReport, Report, millis};
use crate::task::{Subject, Task};
use crate::verify::{self, Answer, Candidates, Difference, Ordering};

/// Between two looks at whether the device is ready.
const WAIT: Duration = Duration::from_millis(20);
/// How long it may take before the next runs count as hot all the same.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// What to run and how.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// What the report is about.
    pub subject: Subject,
    /// The queries, in the order to run them.
    pub queries: Vec<Task>,
    /// Hot runs after the cold one.
    pub runs: usize,
    /// Compare each answer with the reference.
    pub verify: bool,
    /// Runs of each query on plain DataFusion, to compare times with, after one that is not counted.
    pub cpu_runs: usize,
    /// A directory that gets each answer as `qNN.csv`.
    pub results: Option<PathBuf>,
    /// A directory that gets each query's text and its plan with what every part of it did, as `qNN.txt`.
    pub plans: Option<PathBuf>,
}

/// Runs the queries and reports on each; `on_query` hears of every query when it is done.
///
/// A query that fails or panics has its error in the report, and the next one runs.
///
/// # Errors
/// [`TpchError::Io`] when a directory for results or plans cannot be made. Both are made before the first query runs.
pub async fn run(
    engine: &dyn QueryEngine,
    options: &RunOptions,
    mut on_query: impl FnMut(&QueryReport),
) -> Result<Report> {
    for directory in options.results.iter().chain(&options.plans) {
        fs::create_dir_all(directory)
            .map_err(|error| TpchError::io("create directory", directory, error))?;
    }
    let mut report = Report::new(engine.device(), &options.subject);
    // Measured here, so that the first query does not wait for it.
    let bandwidth = engine.copy_bandwidth();
    for query in &options.queries {
        let outcome = AssertUnwindSafe(run_query(engine, query, options, bandwidth))
            .catch_unwind()
            .await;
        let query_report = outcome.unwrap_or_else(|panic| QueryReport {
            error: Some(format!("panicked: {}", panic_text(panic.as_ref()))),
            ..QueryReport::new(query.name.clone())
        });
        on_query(&query_report);
        report.push(query_report);
    }
    Ok(report)
}

async fn run_query(
    engine: &dyn QueryEngine,
    query: &Task,
    options: &RunOptions,
    bandwidth: Option<f64>,
) -> QueryReport {
    let mut report = QueryReport::new(query.name.clone());
    if let Err(error) = measure(engine, query, options, bandwidth, &mut report).await {
        report.error = Some(error.to_string());
    }
    report
}

/// Fills the report step by step, so that what was measured before an error stays.
async fn measure(
    engine: &dyn QueryEngine,
    query: &Task,
    options: &RunOptions,
    bandwidth: Option<f64>,
    report: &mut QueryReport,
) -> Result<()> {
    let (cold, cold_ms) = timed(engine, query).await?;
    let QueryMetrics {
        load_ms,
        columns_loaded,
        columns_grown,
        parquet_chunks_device,
        parquet_chunks_cpu,
        plan_ms,
        compile_ms,
        kernel_ms,
        kernels,
        bytes,
        ..
    } = cold.metrics;
    report.rows = Some(cold.rows());
    report.cold_ms = Some(millis(cold_ms));
    report.load_ms = Some(millis(load_ms));
    report.columns_loaded = columns_loaded;
    report.columns_grown = columns_grown;
    report.parquet_chunks_device = parquet_chunks_device;
    report.parquet_chunks_cpu = parquet_chunks_cpu;
    report.plan_ms = Some(millis(plan_ms));
    report.compile_ms = Some(millis(compile_ms));
    report.kernel_ms = bytes.map(|_| millis(kernel_ms));
    report.kernels = bytes.map(|_| kernels);
    report.set_bytes(bytes, bandwidth);
    report.fallbacks = cold.metrics.fallbacks.clone();
    report.balance = cold.metrics.balance;
    report.note_memory(&cold.metrics);

    if cold.metrics.races > 0 {
        settle(engine, query).await?;
    }

    let mut checker = Checker::default();
    if options.verify || options.cpu_runs > 0 {
        let (answer, ordering, cpu_ms) = timed_reference(engine.reference(), query).await?;
        report.cpu_ms = vec![millis(cpu_ms)];
        if options.verify {
            checker.reference = Some((answer, ordering));
        }
    }
    if options.cpu_runs > 0 {
        // The first run reads files that nobody has read before.
        report.cpu_ms.clear();
        for _ in 0..options.cpu_runs {
            let (_, _, cpu_ms) = timed_reference(engine.reference(), query).await?;
            report.cpu_ms.push(millis(cpu_ms));
        }
    }
    if let Some(directory) = &options.results {
        write_csv(directory, query, &cold)?;
    }
    report.verified = checker.check(&cold, engine.reference(), query).await?;

    for _ in 0..options.runs {
        let (hot, hot_ms) = timed(engine, query).await?;
        report.hot_ms.push(millis(hot_ms));
        report.hot_plan_ms = Some(millis(hot.metrics.plan_ms));
        report.plan_cached = Some(hot.metrics.plan_cached);
        report.balance = hot.metrics.balance;
        report.note_memory(&hot.metrics);
        // The hot figures are the steady state; the cold ones include first-touch costs.
        if hot.metrics.bytes.is_some() {
            report.kernel_ms = Some(millis(hot.metrics.kernel_ms));
            report.kernels = Some(hot.metrics.kernels);
            report.set_bytes(hot.metrics.bytes, bandwidth);
        }
        for fallback in &hot.metrics.fallbacks {
            if !report.fallbacks.contains(fallback) {
                report.fallbacks.push(fallback.clone());
            }
        }
        // A later run may take another path (resident columns, cached kernels), so it is checked as well.
        if report.verified == Some(true) {
            report.verified = checker.check(&hot, engine.reference(), query).await?;
        }
    }
    if let Some(directory) = &options.plans {
        write_plan(engine, directory, query).await?;
    }
    report.set_medians();
    report.error = checker.difference;
    Ok(())
}

/// Runs a query from SQL text to the last batch; the second value is milliseconds.
async fn timed(engine: &dyn QueryEngine, query: &Task) -> Result<(QueryRun, f64)> {
    let start = Instant::now();
    let run = engine.run(&query.sql).await?;
    Ok((run, start.elapsed().as_secs_f64() * 1e3))
}

/// Waits for what the cold run has left behind: the CPU may have answered while the device goes on to load and compile, and would
/// answer again. Neither the CPU's times nor the hot ones are those of a machine that does both.
async fn settle(engine: &dyn QueryEngine, query: &Task) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < MOST_WAIT {
        let (run, _) = timed(engine, query).await?;
        if run.metrics.races == 0 {
            break;
        }
        tokio::time::sleep(WAIT).await;
    }
    Ok(())
}

/// Compares the runs of one query with its reference answer.
#[derive(Default)]
struct Checker {
    reference: Option<(Answer, Ordering)>,
    /// Batches that were found right: runs mostly repeat them bit for bit.
    right: Option<Vec<RecordBatch>>,
    /// The first difference, in words.
    difference: Option<String>,
}

impl Checker {
    /// True when the answer is right, `None` when nothing is compared.
    async fn check(
        &mut self,
        run: &QueryRun,
        reference: &SessionContext,
        query: &Task,
    ) -> Result<Option<bool>> {
        let Some((expected, ordering)) = &self.reference else {
            return Ok(None);
        };
        if self.right.as_ref() == Some(&run.batches) {
            return Ok(Some(true));
        }
        let found = Answer::new(&run.schema, &run.batches)?;
        self.difference = match verify::compare(expected, &found, ordering) {
            None => None,
            Some(Difference::Row { .. })
                if may_tie(reference, &query.reference, &found).await? =>
            {
                None
            }
            Some(difference) => Some(format!("wrong answer: {difference}")),
        };
        if self.difference.is_none() {
            self.right = Some(run.batches.clone());
        }
        Ok(Some(self.difference.is_none()))
    }
}

/// Could the rows of an answer that is not the reference's tie with those, by columns that the answer does not show?
async fn may_tie(reference: &SessionContext, sql: &str, found: &Answer) -> Result<bool> {
    let candidates = Candidates::of(reference, sql).await?;
    Ok(candidates.is_some_and(|candidates| candidates.allow(found)))
}

/// Runs a query on plain DataFusion; also says in which order its rows belong.
///
/// # Errors
/// What DataFusion reports for the query.
pub async fn reference_answer(reference: &SessionContext, sql: &str) -> Result<(Answer, Ordering)> {
    let (schema, batches, ordering) = run_reference(reference, sql).await?;
    Ok((Answer::new(&schema, &batches)?, ordering))
}

/// The same, with the milliseconds from SQL text to the last batch.
async fn timed_reference(
    reference: &SessionContext,
    query: &Task,
) -> Result<(Answer, Ordering, f64)> {
    let start = Instant::now();
    let (schema, batches, ordering) = run_reference(reference, &query.reference).await?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    Ok((Answer::new(&schema, &batches)?, ordering, milliseconds))
}

async fn run_reference(
    reference: &SessionContext,
    sql: &str,
) -> Result<(SchemaRef, Vec<RecordBatch>, Ordering)> {
    let frame = reference.sql(sql).await?;
    let ordering = verify::ordering_of(frame.logical_plan());
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let schema = plan.schema();
    let batches = datafusion::physical_plan::collect(plan, task).await?;
    Ok((schema, batches, ordering))
}

fn write_csv(directory: &Path, query: &Task, run: &QueryRun) -> Result<()> {
    let path = directory.join(format!("{}.csv", query.name.file_stem()));
    let file = File::create(&path).map_err(|error| TpchError::io("create", &path, error))?;
    let mut writer = WriterBuilder::new()
        .with_header(true)
        .build(BufWriter::new(file));
    if run.batches.is_empty() {
        // The header alone says which columns an empty answer has.
        writer.write(&RecordBatch::new_empty(run.schema.clone()))?;
    }
    for batch in &run.batches {
        writer.write(batch)?;
    }
    Ok(())
}

/// Writes the query's text and what its plan did in a hot run.
async fn write_plan(engine: &dyn QueryEngine, directory: &Path, query: &Task) -> Result<()> {
    let analyze = format!("EXPLAIN ANALYZE {}", query.sql);
    // What counts is compiled, and learns sizes, in a first run.
    engine.run(&analyze).await?;
    let run = engine.run(&analyze).await?;
    let mut text = format!("{}\n", query.sql);
    for batch in &run.batches {
        // The last column is the plan, those before it say what of it.
        let Some(plan) = batch.columns().last() else {
            continue;
        };
        let plan = ArrayFormatter::try_new(plan.as_ref(), &FormatOptions::default())?;
        for row in 0..batch.num_rows() {
            let _ = writeln!(text, "\n{}", plan.value(row));
        }
    }
    let path = directory.join(format!("{}.txt", query.name.file_stem()));
    fs::write(&path, text).map_err(|error| TpchError::io("write", &path, error))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

    use async_trait::async_trait;
    use datafusion::error::DataFusionError;

    use super::*;
    use crate::task::QueryName;

    /// Its first runs are those of the CPU beside the device.
    struct Slow {
        context: SessionContext,
        races: usize,
        runs: AtomicUsize,
    }

    #[async_trait]
    impl QueryEngine for Slow {
        fn device(&self) -> String {
            "slow".into()
        }

        fn copy_bandwidth(&self) -> Option<f64> {
            None
        }

        fn session(&self) -> &SessionContext {
            &self.context
        }

        fn reference(&self) -> &SessionContext {
            &self.context
        }

        async fn run(&self, sql: &str) -> Result<QueryRun, DataFusionError> {
            let frame = self.context.sql(sql).await?;
            let schema = Arc::clone(frame.schema().inner());
            let batches = frame.collect().await?;
            let number = self.runs.fetch_add(1, Atomic::SeqCst);
            let metrics = QueryMetrics {
                races: u64::from(number < self.races),
                ..QueryMetrics::default()
            };
            Ok(QueryRun {
                schema,
                batches,
                metrics,
            })
        }
    }

    #[tokio::test]
    async fn runs_are_hot_when_the_device_is_ready() {
        for (races, runs) in [(0, 3), (1, 4), (4, 7)] {
            let engine = Slow {
                context: SessionContext::new(),
                races,
                runs: AtomicUsize::new(0),
            };
            let task = Task::new(QueryName::Number(1), "SELECT 1 AS one");
            let options = RunOptions {
                subject: Subject::queries("slow"),
                queries: vec![task],
                runs: 2,
                verify: true,
                cpu_runs: 0,
                results: None,
                plans: None,
            };
            let report = run(&engine, &options, |_| {}).await.unwrap();
            let query = &report.queries[0];
            assert_eq!((query.verified, query.hot_ms.len()), (Some(true), 2));
            // One that is cold, those until the device is ready, and the hot ones.
            assert_eq!(engine.runs.load(Atomic::SeqCst), runs, "{races} races");
        }
    }
}
