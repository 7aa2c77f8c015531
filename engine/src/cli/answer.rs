//! Prints the result of a statement: tables with limited rows for people, all rows for programs.

use std::io::{self, ErrorKind};

use clap::ValueEnum;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::common::instant::Instant;
use datafusion::common::runtime::SpawnedTask;
use datafusion::config::FormatOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion_cli::exec;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use futures::StreamExt;
use tokio::sync::mpsc::channel;
use tokio::task::yield_now;
use warpline::{Error, Result, WarplineSession};
use warpline_tpch::TpchError;

use super::inspect;
use super::print::{print_line, print_note};
use super::progress::Progress;
use super::rows::{RowWriter, WriteError};
use super::shell::Flow;

/// Batches that wait to be written. While there are as many, the query waits as well.
const QUEUE: usize = 2;

/// Whether a program reads the format: it gets every row, and nothing but rows.
pub(super) fn is_for_programs(format: PrintFormat) -> bool {
    !matches!(format, PrintFormat::Table | PrintFormat::Automatic)
}

/// Says something about an answer: below a table for people, and beside rows for programs, on standard error.
pub(super) fn remark(format: PrintFormat, text: &str) {
    if is_for_programs(format) {
        print_note(text);
    } else {
        print_line(text);
    }
}

/// The answer of one statement, on its way to standard output.
pub(super) struct Answer<'a> {
    session: &'a WarplineSession,
    print: PrintOptions,
    sql: &'a str,
    start: Instant,
    progress: Progress,
    wrap: bool,
}

impl<'a> Answer<'a> {
    /// The statement begins.
    pub(super) fn new(session: &'a WarplineSession, print: &PrintOptions, sql: &'a str) -> Self {
        let mut print = print.clone();
        if print.format == PrintFormat::Automatic {
            print.format = PrintFormat::Table;
        }
        Self {
            session,
            print,
            sql,
            start: Instant::now(),
            progress: Progress::start(session.device()),
            wrap: false,
        }
    }

    /// A table has all rows.
    pub(super) fn all_rows(mut self) -> Self {
        self.print.maxrows = MaxRows::Unlimited;
        self
    }

    /// A table has long texts on several lines.
    pub(super) fn wrapped(mut self) -> Self {
        self.wrap = true;
        self
    }

    /// Prints the rows of a stream, of a table no more than `maxrows`: the others are counted only.
    pub(super) async fn print(
        self,
        stream: impl Future<Output = Result<SendableRecordBatchStream, DataFusionError>>,
    ) -> Result<Flow> {
        if is_for_programs(self.print.format) {
            self.print_rows(stream).await
        } else {
            self.print_table(stream).await
        }
    }

    /// Lets datafusion-cli run a statement that answers nothing or one row: it opens the object stores of locations.
    pub(super) async fn run_in_cli(self, rows: usize) -> Result<Flow> {
        // It prints by itself, where a line of progress would be in the way.
        drop(self.progress);
        let quiet = PrintOptions {
            quiet: true,
            ..self.print.clone()
        };
        let context = self.session.context();
        let run = exec::exec_from_commands(context, vec![self.sql.to_string()], &quiet);
        self.session.guard(self.sql, run).await?;
        if !self.print.quiet {
            remark(self.print.format, &details(rows, self.start));
        }
        Ok(Flow::Continue)
    }

    async fn print_rows(
        self,
        stream: impl Future<Output = Result<SendableRecordBatchStream, DataFusionError>>,
    ) -> Result<Flow> {
        let (format, progress) = (self.print.format, self.progress);
        let written = async { write_rows(stream.await?, format, progress).await };
        let flow = match self.session.guard(self.sql, written).await? {
            Ok(rows) => {
                if !self.print.quiet {
                    print_note(&details(rows, self.start));
                }
                Flow::Continue
            }
            Err(WriteError::Format(cause)) => return Err(unprintable(format, &cause)),
            Err(WriteError::Output(error)) => unwritten(error)?,
        };
        Ok(flow)
    }

    async fn print_table(
        self,
        stream: impl Future<Output = Result<SendableRecordBatchStream, DataFusionError>>,
    ) -> Result<Flow> {
        let print = &self.print;
        // As in datafusion-cli, rows beyond `maxrows` are counted only.
        let most = match print.maxrows {
            MaxRows::Unlimited => usize::MAX,
            MaxRows::Limited(rows) => rows,
        };
        let collected = async {
            let stream = stream.await?;
            let schema = stream.schema();
            let (batches, rows) = collect(stream, most).await?;
            Ok((schema, batches, rows))
        };
        let collected = self.session.guard(self.sql, collected).await;
        // Erased before the table comes.
        drop(self.progress);
        let (mut schema, mut batches, rows) = collected?;
        if self.wrap {
            let wrapped = batches.iter().map(inspect::wrapped);
            batches = wrapped.collect::<Result<_, DataFusionError>>()?;
            schema = batches.first().map_or(schema, RecordBatch::schema);
        }
        let config = self.session.context().copied_config();
        let options: &FormatOptions = &config.options().format;
        let printed = print.print_batches(schema, &batches, self.start, rows, options);
        printed.map_or_else(
            |error| printing_failed(print.format, error),
            |()| Ok(Flow::Continue),
        )
    }
}

fn details(rows: usize, start: Instant) -> String {
    let seconds = start.elapsed().as_secs_f64();
    format!("{rows} row(s) fetched.\nElapsed {seconds:.3} seconds.\n")
}

/// The outcome of datafusion-cli's printer when it failed.
fn printing_failed(format: PrintFormat, error: DataFusionError) -> Result<Flow> {
    match error {
        DataFusionError::IoError(error) => unwritten(error),
        DataFusionError::ArrowError(cause, _) => match *cause {
            ArrowError::IoError(_, error) => unwritten(error),
            cause => Err(unprintable(format, &cause)),
        },
        error => Err(error.into()),
    }
}

fn unprintable(format: PrintFormat, cause: &ArrowError) -> Error {
    let name = format.to_possible_value();
    Error::Format {
        format: name.map_or_else(String::new, |name| name.get_name().to_string()),
        cause: cause.to_string(),
    }
}

/// A reader that has enough, such as `head`, is no error, and nobody reads what further statements answer.
fn unwritten(error: io::Error) -> Result<Flow> {
    if error.kind() == ErrorKind::BrokenPipe {
        return Ok(Flow::Closed);
    }
    Err(TpchError::io("write", "standard output".as_ref(), error).into())
}

/// Writes batches while the query computes the next ones, of which no more than a few wait.
async fn write_rows(
    mut stream: SendableRecordBatchStream,
    format: PrintFormat,
    progress: Progress,
) -> Result<Result<usize, WriteError>, DataFusionError> {
    let mut writer = RowWriter::new(format, stream.schema(), io::stdout());
    let mut progress = Some(progress);
    let (sender, mut batches) = channel(QUEUE);
    let query = SpawnedTask::spawn(async move {
        while let Some(batch) = stream.next().await {
            if sender.send(batch?).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    while let Some(batch) = batches.recv().await {
        drop(progress.take());
        if let Err(error) = writer.write(&batch) {
            // The query ends with its task.
            return Ok(Err(error));
        }
        // Ctrl-C is heard between batches, also while there is always a next one.
        yield_now().await;
    }
    joined(query).await?;
    drop(progress);
    Ok(writer.finish())
}

/// The first batches of an answer with `most` rows and those of the batch that goes beyond, and how many rows there are.
///
/// On another thread: Ctrl-C is heard also while operators compute without a pause. Dropping the future stops the work where
/// it pauses next.
async fn collect(
    mut stream: SendableRecordBatchStream,
    most: usize,
) -> Result<(Vec<RecordBatch>, usize), DataFusionError> {
    joined(SpawnedTask::spawn(async move {
        let (mut batches, mut rows) = (Vec::new(), 0);
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            let before = rows;
            rows += batch.num_rows();
            if before < most {
                batches.push(batch);
            }
        }
        Ok((batches, rows))
    }))
    .await
}

async fn joined<T: 'static>(
    task: SpawnedTask<Result<T, DataFusionError>>,
) -> Result<T, DataFusionError> {
    let ended = task.join_unwind().await;
    ended.map_err(|error| DataFusionError::Execution(format!("the task ended early: {error}")))?
}
