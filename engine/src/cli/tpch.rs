//! `warpline tpch` and `warpline jcch`: load data, run the queries and print the report.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use warpline::{Result, WarplineSession};
use warpline_tpch::compare::Earlier;
use warpline_tpch::queries;
use warpline_tpch::report::{QueryReport, Report};
use warpline_tpch::runner::{self, RunOptions};
use warpline_tpch::tables::Table;
use warpline_tpch::{Benchmark, Scale, TpchError, data, generate};

use super::args::{ReportFormat, RunArguments};
use super::output::OutputFile;

/// Runs the benchmark; the exit status says whether every query passed.
pub(super) async fn run(benchmark: Benchmark, arguments: RunArguments) -> Result<ExitCode> {
    // What can fail early fails before minutes are spent on data and queries.
    let wanted = match arguments.scale {
        Some(scale) => scale,
        None => Scale::new(1.0)?,
    };
    let made = benchmark.dataset(wanted)?.scale();
    let queries = benchmark.queries(&arguments.queries(), made)?;
    let output = arguments
        .output
        .as_deref()
        .map(OutputFile::create)
        .transpose()?;
    let page = arguments
        .report
        .as_deref()
        .map(OutputFile::create)
        .transpose()?;
    let earlier = arguments
        .compare
        .as_deref()
        .map(Earlier::read)
        .transpose()?;
    let mut builder = arguments.session.builder();
    if arguments.metrics {
        builder = builder.set("warpline.metrics", "true");
    }
    let session = builder.open().await?;

    let tables = queries::tables_of(&queries);
    let scale = load(&session, benchmark, &arguments, &tables).await?;
    let options = RunOptions {
        benchmark,
        // The text may depend on the scale, which files tell only now.
        queries: benchmark.queries(&arguments.queries(), scale)?,
        runs: arguments.runs,
        verify: arguments.verifies(scale.factor()),
        cpu_runs: arguments.cpu_runs,
        results: arguments.results.clone(),
        plans: arguments.plans.clone(),
        scale,
    };
    let mut report = runner::run(&session, &options, progress_line).await?;
    report.environment = Some(warpline::environment(&session));
    print(&report, arguments.format, earlier.as_ref(), output)?;
    if let Some(page) = page {
        page.finish(&warpline_bench::page::tpch(&report, earlier.as_ref()))?;
    }
    let passed = report.passed(arguments.session.require_gpu);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Registers the tables, from files or generated, and returns their scale.
async fn load(
    session: &WarplineSession,
    benchmark: Benchmark,
    arguments: &RunArguments,
    tables: &[Table],
) -> Result<Scale> {
    let Some(directory) = &arguments.data else {
        let scale = match arguments.scale {
            Some(scale) => scale,
            None => Scale::new(1.0)?,
        };
        let dataset = benchmark.dataset(scale)?;
        note_scale(scale, dataset.scale());
        let wanted = tables.to_vec();
        let generated = tokio::task::spawn_blocking(move || {
            generate::generate(&wanted, dataset, generate::available_threads())
        });
        let generated = generated
            .await
            .map_err(|error| TpchError::Worker(error.to_string()))??;
        generate::register(session, generated)?;
        return Ok(dataset.scale());
    };
    data::register(session, directory, tables).await?;
    let measured = data::measured_scale(session, benchmark, tables).await?;
    match (arguments.scale, measured) {
        (Some(scale), Some(measured)) => {
            if (measured / scale.factor() - 1.0).abs() > 0.05 {
                note(&format!(
                    "--scale is {scale}, but {} holds about scale {measured:.3}",
                    directory.display()
                ));
            }
            Ok(scale)
        }
        (Some(scale), None) => Ok(scale),
        // Row counts of lineitem are random; three digits are what they tell.
        (None, Some(measured)) => Ok(Scale::new((measured * 1e3).round() / 1e3)?),
        (None, None) => Ok(Scale::new(1.0)?),
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
    let _ = writeln!(std::io::stderr(), "Q{}: {outcome}", query.query);
}

/// Says that the data is of another scale than was asked for.
pub(super) fn note_scale(wanted: Scale, made: Scale) {
    if made != wanted {
        note(&format!(
            "there is no data of scale {wanted}; scale {made} is made instead"
        ));
    }
}

fn note(message: &str) {
    let _ = writeln!(std::io::stderr(), "warpline: note: {message}");
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
