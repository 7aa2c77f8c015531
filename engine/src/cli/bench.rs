//! `warpline bench`: runs micro-benchmarks of the device and prints the report.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use warpline::Result;
use warpline::bench::{self, BENCHMARKS, Bench};

use super::args::{BenchArguments, ChartFormat};
use super::output::OutputFile;

/// Runs the sweeps; a wrong result is an error.
pub(super) async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    let Some(name) = &arguments.benchmark else {
        print(&list(), None)?;
        return Ok(ExitCode::SUCCESS);
    };
    // What can fail early fails before minutes are spent on measuring.
    bench::find(name)?;
    let output = arguments
        .output
        .as_deref()
        .map(OutputFile::create)
        .transpose()?;
    let session = arguments.session.builder().open().await?;
    let bench = Bench::new(session, arguments.rows, arguments.runs)?;
    let progress = |sweep: &bench::SweepReport| {
        if std::io::stderr().is_terminal() {
            let points = sweep.points.len();
            let _ = writeln!(std::io::stderr(), "{}: {points} points", sweep.sweep);
        }
    };
    let report = bench::run(&bench, name, &arguments.sweep, progress).await?;
    let text = match arguments.format {
        ChartFormat::Table => report.to_table(),
        ChartFormat::Json => format!("{}\n", report.to_json()?),
        ChartFormat::Svg => report.to_svg(),
    };
    print(&text, output)?;
    Ok(ExitCode::SUCCESS)
}

/// The benchmarks and their sweeps.
fn list() -> String {
    let mut text = String::new();
    for benchmark in BENCHMARKS {
        text.push_str(&format!("{}: {}\n", benchmark.name, benchmark.about));
        for sweep in benchmark.sweeps {
            text.push_str(&format!("  --sweep {}: {}\n", sweep.name, sweep.about));
        }
    }
    text
}

fn print(text: &str, output: Option<OutputFile>) -> Result<()> {
    match output {
        Some(output) => output.finish(text),
        None => {
            // A reader that went away, such as `head`, is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}
