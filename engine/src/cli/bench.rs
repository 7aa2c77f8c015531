//! `warpline bench`: runs micro-benchmarks of the device and prints the report.

use std::io::Write;
use std::process::ExitCode;

use warpline::Result;
use warpline::bench::{self, BENCHMARKS, Bench, Report};

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
    let output = arguments.output.as_deref();
    if let Some(path) = output {
        OutputFile::create(path)?;
    }
    let session = arguments.session.builder().open().await?;
    let bench = Bench::new(session, arguments.rows, arguments.runs)?;
    let text = |report: &Report| -> Result<String> {
        Ok(match arguments.format {
            ChartFormat::Table => report.to_table(),
            ChartFormat::Json => format!("{}\n", report.to_json()?),
            ChartFormat::Svg => report.to_svg(),
        })
    };
    // Lines come as points do; a file always has what there is so far, should the rest never come.
    let lines = output.is_none() && arguments.format == ChartFormat::Table;
    let mut started = false;
    let progress = |report: &Report| -> Result<()> {
        let title = if started { String::new() } else { report.title() };
        started = true;
        let line = format!("{title}{}", report.last_line());
        if lines {
            let mut stdout = std::io::stdout();
            let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
        } else {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        match output {
            Some(path) => OutputFile::create(path)?.finish(&text(report)?),
            None => Ok(()),
        }
    };
    let report = bench::run(&bench, name, &arguments.sweep, progress).await?;
    if !lines {
        print(&text(&report)?, output.map(OutputFile::create).transpose()?)?;
    }
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
