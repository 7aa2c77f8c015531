//! Runs queries cold and hot and prints the report, for all commands that do.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use warpline::{Result, WarplineSession};
use warpline_tpch::compare::Earlier;
use warpline_tpch::report::{QueryReport, Report};
use warpline_tpch::runner::{self, RunOptions};
use warpline_tpch::{Subject, Task, TpchError};

use super::args::{MeasureArguments, ReportFormat};
use super::leave;
use super::output::OutputFile;

/// What can fail before data is made and queries run: files to write and to compare with.
pub(super) struct Measure {
    arguments: MeasureArguments,
    output: Option<OutputFile>,
    page: Option<OutputFile>,
    earlier: Option<Earlier>,
}

/// The queries, and whether answers are compared.
pub(super) struct Work {
    pub(super) subject: Subject,
    pub(super) tasks: Vec<Task>,
    pub(super) verify: bool,
}

impl Measure {
    /// Opens the files.
    ///
    /// # Errors
    /// [`TpchError::Io`] and [`TpchError::NoReport`] when one cannot be written or read.
    pub(super) fn new(arguments: MeasureArguments) -> Result<Self> {
        let create = |path: &Option<_>| path.as_deref().map(OutputFile::create).transpose();
        Ok(Self {
            output: create(&arguments.output)?,
            page: create(&arguments.report)?,
            earlier: arguments
                .compare
                .as_deref()
                .map(Earlier::read)
                .transpose()?,
            arguments,
        })
    }

    /// Opens the session.
    ///
    /// # Errors
    /// When the device cannot be opened or a setting does not exist.
    pub(super) async fn session(&self) -> Result<WarplineSession> {
        let mut builder = self.arguments.session.builder();
        if self.arguments.metrics {
            builder = builder.set("warpline.metrics", "true");
        }
        self.arguments.cluster.join(builder).await?.open().await
    }

    /// Runs the queries and reports; the exit status says whether every query passed.
    ///
    /// # Errors
    /// When a directory for results or the report cannot be written. Errors of queries are in the report.
    pub(super) async fn run(self, session: &WarplineSession, work: Work) -> Result<ExitCode> {
        let arguments = self.arguments;
        let options = RunOptions {
            subject: work.subject,
            queries: work.tasks,
            runs: arguments.runs,
            verify: work.verify,
            cpu_runs: arguments.cpu_runs,
            results: arguments.results,
            plans: arguments.plans,
        };
        let mut report = runner::run(session, &options, progress_line).await?;
        leave::keep_open(session);
        report.environment = Some(warpline::environment(session));
        let earlier = self.earlier.as_ref();
        print(&report, arguments.format, earlier, self.output)?;
        if let Some(page) = self.page {
            page.finish(&warpline_bench::page::tpch(&report, earlier))?;
        }
        let passed = report.passed(arguments.session.require_gpu);
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Tells a person who waits at a terminal which query is done.
fn progress_line(query: &QueryReport) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let outcome = match (&query.error, query.hot_median_ms.or(query.cold_ms)) {
        (Some(error), _) => format!("failed: {error}"),
        (None, Some(ms)) => format!("{ms:.1} ms"),
        (None, None) => "done".to_string(),
    };
    let _ = writeln!(std::io::stderr(), "{}: {outcome}", query.query);
}

fn print(
    report: &Report,
    format: ReportFormat,
    earlier: Option<&Earlier>,
    output: Option<OutputFile>,
) -> Result<()> {
    let compared = || earlier.map_or(String::new(), |earlier| earlier.to_table(report));
    let text = match format {
        ReportFormat::Table => format!("{}{}", report.to_table(), compared()),
        ReportFormat::Json => {
            let json = report
                .to_json()
                .map_err(|error| TpchError::io("write", Path::new("JSON"), error.into()))?;
            format!("{json}\n")
        }
    };
    match output {
        Some(output) => Ok(output.finish(&text)?),
        None => {
            // A reader that went away, such as `head`, is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}
