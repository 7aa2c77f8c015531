//! `warpline bench`: runs micro-benchmarks of the device and prints the report.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use warpline::{Error, Result, WarplineSession};
use warpline_bench::micro::choice::{self, Choices};
use warpline_bench::micro::{self, BENCHMARKS, Bench, EarlierReport, Report};
use warpline_bench::page;

use super::args::{BenchArguments, BenchCommand, ChartFormat, SpillTo};
use super::bench_error::told;
use super::output::OutputFile;
use super::{clients, hits, queries};

/// Runs the sweeps; a wrong result is an error.
pub(super) async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    match arguments.command {
        Some(BenchCommand::Queries(arguments)) => return queries::run(*arguments).await,
        Some(BenchCommand::Clients(arguments)) => return clients::run(*arguments).await,
        Some(BenchCommand::Hits(arguments)) => return hits::run(arguments).await,
        None => {}
    }
    let Some(name) = &arguments.benchmark else {
        print(&list(), None)?;
        return Ok(ExitCode::SUCCESS);
    };
    if name == CHOICE {
        return choices(arguments).await;
    }
    // What can fail early fails before minutes are spent on measuring.
    micro::find(name).map_err(told)?;
    let output = arguments.output.as_deref();
    if let Some(path) = output {
        OutputFile::create(path)?;
    }
    let page_file = arguments.report.as_deref();
    if let Some(path) = page_file {
        OutputFile::create(path)?;
    }
    let earlier = arguments
        .compare
        .as_deref()
        .map(EarlierReport::read)
        .transpose()
        .map_err(told)?;
    let session = arguments.session.builder().open().await?;
    let bench = bench(session, arguments.rows, arguments.runs)?
        .with_scale(arguments.scale)
        .with_queries(arguments.query.map(|list| list.0))
        .with_budget(arguments.budget)
        .on_peers(arguments.spill == SpillTo::Peer)
        .with_limit(Duration::from_secs(arguments.limit));
    let text = |report: &Report| -> warpline_bench::Result<String> {
        Ok(match arguments.format {
            ChartFormat::Table => report.to_table(),
            ChartFormat::Json => format!("{}\n", report.to_json()?),
            ChartFormat::Svg => report.to_svg(),
        })
    };
    // Lines come as points do; a file always has what there is so far, should the rest never come.
    let lines = output.is_none() && arguments.format == ChartFormat::Table;
    let mut started = false;
    let progress = |report: &Report| -> warpline_bench::Result<()> {
        let title = if started {
            String::new()
        } else {
            report.title()
        };
        started = true;
        let line = format!("{title}{}", report.last_line());
        if lines {
            let mut stdout = std::io::stdout();
            let _ = stdout
                .write_all(line.as_bytes())
                .and_then(|()| stdout.flush());
        } else {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        if let Some(path) = page_file {
            OutputFile::create(path)?.finish(&page::bench(report, earlier.as_ref()))?;
        }
        match output {
            Some(path) => Ok(OutputFile::create(path)?.finish(&text(report)?)?),
            None => Ok(()),
        }
    };
    let report = micro::run(&bench, name, &arguments.sweep, progress)
        .await
        .map_err(told)?;
    let compared = match (&earlier, arguments.format) {
        (Some(earlier), ChartFormat::Table) => earlier.to_table(&report),
        _ => String::new(),
    };
    if lines {
        print(&compared, None)?;
    } else {
        let text = format!("{}{compared}", text(&report).map_err(told)?);
        print(&text, output.map(OutputFile::create).transpose()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The benchmark of choices, which has workloads in place of sweeps.
const CHOICE: &str = "choice";
/// Rows of its largest tables: enough for a GPU's time to matter.
const CHOICE_ROWS: u64 = 1 << 26;
const CHOICE_ROWS_EMULATED: u64 = 1 << 9;

/// Runs workloads drawn at random by every algorithm and by the planner's choice.
async fn choices(arguments: BenchArguments) -> Result<ExitCode> {
    let output = arguments.output.as_deref();
    if let Some(path) = output {
        OutputFile::create(path)?;
    }
    let page_file = arguments.report.as_deref();
    if let Some(path) = page_file {
        OutputFile::create(path)?;
    }
    let earlier = arguments.compare.as_deref().map(recorded).transpose()?;
    let json = arguments.format == ChartFormat::Json;
    let text = |choices: &Choices| -> warpline_bench::Result<String> {
        if json {
            return Ok(format!("{}\n", choices.to_json()?));
        }
        let mut text = choices.to_table();
        if let Some(earlier) = &earlier {
            let (good, mean) = earlier.quality();
            text.push_str(&format!(
                "then: {} workloads, {:.1} % within 15 %, mean loss {:.1} %\n",
                earlier.cases.len(),
                100.0 * good,
                100.0 * mean
            ));
        }
        Ok(text)
    };
    let session = arguments.session.builder().open().await?;
    let environment = warpline::environment(&session);
    let write_page = |path: Option<&Path>, choices: &Choices| match path {
        Some(path) => {
            let page = page::choices(choices, Some(&environment), earlier.as_ref());
            OutputFile::create(path)?.finish(&page)
        }
        None => Ok(()),
    };
    let emulated = session.device().name().contains("emulator");
    let rows = arguments.rows.unwrap_or(match emulated {
        true => CHOICE_ROWS_EMULATED,
        false => CHOICE_ROWS,
    });
    let bench = bench(session, Some(rows), arguments.runs)?;
    if let Some(path) = &arguments.replay {
        let choices = choice::replayed(&recorded(path)?, bench.machine());
        write_page(page_file, &choices)?;
        print(
            &text(&choices).map_err(told)?,
            output.map(OutputFile::create).transpose()?,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    // Lines come as workloads do; a file always has what there is so far, should the rest never come.
    let progress = |choices: &Choices| -> warpline_bench::Result<()> {
        let line = choices.cases.last().map_or(String::new(), |case| {
            format!("{:>3} {}\n", choices.cases.len(), case.to_line())
        });
        let mut stderr = std::io::stderr();
        let _ = stderr
            .write_all(line.as_bytes())
            .and_then(|()| stderr.flush());
        write_page(page_file, choices)?;
        match output {
            Some(path) => Ok(OutputFile::create(path)?.finish(&text(choices)?)?),
            None => Ok(()),
        }
    };
    let choices = choice::run(&bench, arguments.workloads, arguments.seed, progress)
        .await
        .map_err(told)?;
    match output {
        Some(path) => {
            OutputFile::create(path)?.finish(&text(&choices).map_err(told)?)?;
            print(&choices.to_table(), None)?;
        }
        None => print(&text(&choices).map_err(told)?, None)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Choices that `--format json` wrote.
fn recorded(path: &Path) -> Result<Choices> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::Bench(format!("{} cannot be read: {error}", path.display())))?;
    Choices::of_json(&text).map_err(|error| Error::Bench(format!("{}: {error}", path.display())))
}

/// Benchmarks on the session's device.
fn bench(session: WarplineSession, rows: Option<u64>, runs: usize) -> Result<Bench> {
    let runtime = session.device().runtime().ok_or(Error::NothingToMeasure)?;
    let environment = warpline::environment(&session);
    Ok(Bench::new(session, runtime, rows, runs).with_environment(environment))
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
    text.push_str(
        "queries: queries of your own over tables of your own\n  --queries DIR|FILE --data DIR\n\
         clients: queries from many sessions at once\n  --clients LIST --seconds N\n",
    );
    text.push_str(&format!(
        "{CHOICE}: joins and group-bys drawn at random, by every algorithm and by the planner's choice\n  \
         --workloads N --seed N --rows MAX, or --replay FILE\n"
    ));
    text
}

fn print(text: &str, output: Option<OutputFile>) -> Result<()> {
    match output {
        Some(output) => Ok(output.finish(text)?),
        None => {
            // A reader that went away, such as `head`, is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}
