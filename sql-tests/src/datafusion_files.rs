//! Runs DataFusion's own sqllogictest files on plain DataFusion, then on Warpline, and compares answer by answer.
//!
//! What the files say of the answers is not looked at: plain DataFusion's answers are the standard, with the data that is at
//! hand. Plans differ by design, so of `EXPLAIN` only the success is compared.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{SessionConfig, SessionContext};
use sqllogictest::{Condition, DefaultColumnType, Record};
use warpline::{DeviceChoice, WarplineSession};
use warpline_tpch::QueryEngine;
use warpline_tpch::verify::{self, Answer, Ordering};

/// Longest that one statement may take: in the emulator, on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Reasons that a summary lists.
const LISTED: usize = 60;

/// What came of running files.
#[derive(Debug, Default)]
pub struct Summary {
    /// Files that were run.
    pub files: usize,
    /// Statements and queries in them.
    pub statements: usize,
    /// Those of which a part ran on the device.
    pub on_device: usize,
    /// Those that neither side could run: errors that files expect, data and functions that only DataFusion's own runner has.
    pub refused: usize,
    /// Those on which both sides do not agree.
    pub differences: Vec<Difference>,
    /// Why parts stayed on the CPU, and of how many statements.
    pub reasons: BTreeMap<String, usize>,
}

/// A statement on which plain DataFusion and Warpline do not agree.
#[derive(Debug)]
pub struct Difference {
    /// The file, as it was given.
    pub file: PathBuf,
    /// The line in it, or in a file that it includes.
    pub line: u32,
    /// The statement.
    pub sql: String,
    /// How the answers differ.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        write!(
            f,
            "{file}:{}: {}\n  {}",
            self.line,
            self.what,
            self.sql.trim()
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differing = self.differences.len();
        writeln!(
            f,
            "{} files, {} statements: {} ran on the device at least in part, {} were refused by both sides, {differing} differ",
            self.files, self.statements, self.on_device, self.refused
        )?;
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1));
        for (reason, count) in reasons.iter().take(LISTED) {
            writeln!(f, "{count:>6}  {reason}")?;
        }
        Ok(())
    }
}

/// A statement of a file, with its line.
type Statement = (u32, String);

/// An answer, with what orders it, or the error.
type Outcome = Result<(SchemaRef, Vec<RecordBatch>, Ordering), String>;

/// Runs `files`, whose paths are relative to the working directory as DataFusion's runner has it, on a device. `finished` is told
/// of each file, with the time that it took and what came of all so far.
///
/// # Errors
/// A file that cannot be read, a session that does not open.
pub async fn run(
    files: &[PathBuf],
    device: DeviceChoice,
    finished: impl Fn(&Path, Duration, &Summary),
) -> io::Result<Summary> {
    let mut summary = Summary::default();
    for file in files {
        let begin = Instant::now();
        let statements = statements(file)?;
        let plain = Plain::new();
        clean(file)?;
        let mut expected = Vec::with_capacity(statements.len());
        for (_, sql) in &statements {
            expected.push(within_time(plain.clone().run(sql.clone())).await);
        }
        clean(file)?;
        let session = WarplineSession::builder()
            .device(device)
            .set("warpline.min_rows", "0")
            .set(
                "datafusion.execution.target_partitions",
                PARTITIONS.to_string(),
            );
        let session = Arc::new(session.open().await.map_err(io::Error::other)?);
        for ((line, sql), expected) in statements.iter().zip(expected) {
            let answer = within_time(on_warpline(Arc::clone(&session), sql.clone()));
            summary.compare(file, *line, sql, &expected, answer.await);
        }
        summary.files += 1;
        finished(file, begin.elapsed(), &summary);
    }
    Ok(summary)
}

/// Queries run on the device alone where they can, also where that does not pay; else in part, as users have it.
async fn on_warpline(
    session: Arc<WarplineSession>,
    sql: String,
) -> Result<warpline::QueryRun, String> {
    let start = sql.trim_start().to_ascii_lowercase();
    let is_query = ["select", "with", "from", "values", "("]
        .iter()
        .any(|word| start.starts_with(word));
    if is_query && session.device().is_in_use() {
        let require = |value| session.set("warpline.require_gpu", value);
        require("true").await.map_err(|error| error.to_string())?;
        let run = session.run(&sql).await;
        require("false").await.map_err(|error| error.to_string())?;
        match run.map_err(|error| error.strip_backtrace()) {
            // It says why the device alone does not do.
            Err(error) if error.contains("warpline.require_gpu") => {}
            done => return done,
        }
    }
    let run = session.run(&sql).await;
    run.map_err(|error| error.strip_backtrace())
}

/// As many as DataFusion's runner has.
const PARTITIONS: usize = 4;

/// Plain DataFusion.
#[derive(Clone)]
struct Plain(SessionContext);

impl Plain {
    fn new() -> Self {
        let config = SessionConfig::new()
            .with_target_partitions(PARTITIONS)
            .with_information_schema(true);
        Self(SessionContext::new_with_config(config))
    }

    async fn run(self, sql: String) -> Outcome {
        let answer = async {
            let frame = self.0.sql(&sql).await?;
            let ordering = verify::ordering_of(frame.logical_plan());
            let task = Arc::new(frame.task_ctx());
            let plan = frame.create_physical_plan().await?;
            let schema = plan.schema();
            let batches = datafusion::physical_plan::collect(plan, task).await?;
            Ok((schema, batches, ordering))
        };
        answer
            .await
            .map_err(|error: datafusion::error::DataFusionError| error.strip_backtrace())
    }
}

/// On a worker thread, whose stack is large; panics and runs without an end are errors.
async fn within_time<T: Send + 'static>(
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    let task = tokio::spawn(tokio::time::timeout(TIME_LIMIT, work));
    match task.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(format!("it took more than {TIME_LIMIT:?}")),
        Err(error) => Err(format!("it ended early: {error}")),
    }
}

/// The statements that are for DataFusion.
fn statements(file: &Path) -> io::Result<Vec<Statement>> {
    let records = sqllogictest::parse_file::<DefaultColumnType>(file);
    let records = records.map_err(|error| io::Error::other(error.to_string()))?;
    let mut found = Vec::new();
    for record in records {
        let (loc, conditions, sql) = match record {
            Record::Statement {
                loc,
                conditions,
                sql,
                ..
            }
            | Record::Query {
                loc,
                conditions,
                sql,
                ..
            }
            | Record::Let {
                loc,
                conditions,
                sql,
                ..
            } => (loc, conditions, sql),
            Record::Halt { .. } => break,
            _ => continue,
        };
        let is_ours = |label: &str| label.eq_ignore_ascii_case("datafusion");
        let skipped = conditions.iter().any(|condition| match condition {
            Condition::OnlyIf { label } => !is_ours(label),
            Condition::SkipIf { label } => is_ours(label),
        });
        if !skipped {
            found.push((loc.line(), sql));
        }
    }
    Ok(found)
}

/// An empty folder where the file's statements write.
fn clean(file: &Path) -> io::Result<()> {
    let Some(name) = file.file_stem() else {
        return Ok(());
    };
    let folder = Path::new("test_files/scratch").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder)
}

impl Summary {
    fn compare(
        &mut self,
        file: &Path,
        line: u32,
        sql: &str,
        expected: &Outcome,
        found: Result<warpline::QueryRun, String>,
    ) {
        self.statements += 1;
        if let Ok(run) = &found {
            self.on_device += usize::from(run.metrics.kernels > 0);
            for reason in &run.metrics.fallbacks {
                *self.reasons.entry(without_count(reason)).or_default() += 1;
            }
        }
        let what = match (expected, found) {
            (Err(_), Err(_)) => {
                self.refused += 1;
                None
            }
            (Ok(_), Err(error)) => Some(format!("only Warpline refuses it: {error}")),
            (Err(error), Ok(_)) => Some(format!("only DataFusion refuses it: {error}")),
            (Ok(_), Ok(_)) if !is_comparable(sql) => None,
            (Ok((schema, batches, ordering)), Ok(run)) => {
                difference((schema, batches), (&run.schema, &run.batches), ordering)
            }
        };
        self.differences.extend(what.map(|what| Difference {
            file: file.to_path_buf(),
            line,
            sql: sql.to_string(),
            what,
        }));
    }
}

/// `FilterExec x2: why` as `FilterExec: why`.
fn without_count(reason: &str) -> String {
    match reason.split_once(": ") {
        Some((operators, why)) => {
            let operator = operators.split(" x").next().unwrap_or(operators);
            format!("{operator}: {why}")
        }
        None => reason.to_string(),
    }
}

/// Plans differ by design, and so do lists of settings, which has Warpline's.
fn is_comparable(sql: &str) -> bool {
    let text = sql.trim_start().to_ascii_lowercase();
    !text.starts_with("explain") && !text.starts_with("show all") && !text.contains("df_settings")
}

fn difference(
    expected: (&SchemaRef, &[RecordBatch]),
    found: (&SchemaRef, &[RecordBatch]),
    ordering: &Ordering,
) -> Option<String> {
    // Row by row where the order is the same too.
    if let (Some(one), Some(other)) = (lines(expected.1), lines(found.1))
        && one == other
        && expected.0.fields() == found.0.fields()
    {
        return None;
    }
    let answer = |(schema, batches): (&SchemaRef, &[RecordBatch])| Answer::new(schema, batches);
    match (answer(expected), answer(found)) {
        // A limit without an order: any of the rows will do.
        (Ok(expected), Ok(found)) if ordering.limit.is_some() && ordering.keys.is_empty() => {
            let rows = (expected.batch().num_rows(), found.batch().num_rows());
            (rows.0 != rows.1).then(|| format!("expected {} rows, found {}", rows.0, rows.1))
        }
        (Ok(expected), Ok(found)) => {
            verify::compare(&expected, &found, ordering).map(|d| d.to_string())
        }
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
    }
}

/// Each row as text.
fn lines(batches: &[RecordBatch]) -> Option<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let formatters: Result<Vec<_>, _> = columns
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect();
        let formatters = formatters.ok()?;
        for row in 0..batch.num_rows() {
            let cells = formatters
                .iter()
                .map(|formatter| formatter.value(row).to_string());
            lines.push(cells.collect::<Vec<_>>().join("\u{1f}"));
        }
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn outcome(values: &[i64], ordering: Ordering) -> (SchemaRef, Vec<RecordBatch>, Ordering) {
        let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        let batch = RecordBatch::try_from_iter([("a", column)]).expect("a batch");
        (batch.schema(), vec![batch], ordering)
    }

    fn run_of(values: &[i64]) -> warpline::QueryRun {
        let (schema, batches, _) = outcome(values, Ordering::default());
        warpline::QueryRun {
            schema,
            batches,
            metrics: warpline::QueryMetrics {
                fallbacks: vec!["FilterExec x2: why".into(), "FilterExec: why".into()],
                ..warpline::QueryMetrics::default()
            },
        }
    }

    #[test]
    fn what_differs_is_counted() {
        let ordered = Ordering {
            keys: vec![verify::SortKey {
                column: 0,
                descending: false,
                nulls_first: false,
            }],
            limit: None,
        };
        let free = Ordering::default;
        let refused = || Err("no".to_string());
        for (sql, expected, found, differences) in [
            (
                "SELECT",
                Ok(outcome(&[1, 2], free())),
                Ok(run_of(&[2, 1])),
                0,
            ),
            (
                "SELECT",
                Ok(outcome(&[1, 2], ordered)),
                Ok(run_of(&[2, 1])),
                1,
            ),
            (
                "SELECT",
                Ok(outcome(&[1, 2], free())),
                Ok(run_of(&[1, 3])),
                1,
            ),
            ("SELECT", Ok(outcome(&[1, 2], free())), Ok(run_of(&[1])), 1),
            (
                " EXPLAIN",
                Ok(outcome(&[1, 2], free())),
                Ok(run_of(&[1])),
                0,
            ),
            (
                "EXPLAIN",
                Ok(outcome(&[1, 2], free())),
                Err("no".to_string()),
                1,
            ),
            ("SELECT", refused(), Ok(run_of(&[1])), 1),
            ("SELECT", refused(), Err("also no".to_string()), 0),
        ] {
            let mut summary = Summary::default();
            summary.compare(Path::new("f"), 1, sql, &expected, found);
            assert!(
                summary
                    .reasons
                    .keys()
                    .all(|reason| reason == "FilterExec: why")
            );
            let found = summary.differences.len();
            assert_eq!(
                (summary.statements, found),
                (1, differences),
                "{sql} {expected:?}"
            );
        }
    }
}
