//! `warpline tpch` and `warpline jcch`: load data and measure the queries.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use warpline::{Result, WarplineSession};
use warpline_tpch::queries;
use warpline_tpch::tables::Table;
use warpline_tpch::{Benchmark, Scale, Subject, Task, TpchError, data, generate};

use super::args::RunArguments;
use super::measure::{Measure, Work};

/// Runs the benchmark; the exit status says whether every query passed.
pub(super) async fn run(benchmark: Benchmark, arguments: RunArguments) -> Result<ExitCode> {
    // What can fail early fails before minutes are spent on data and queries.
    let wanted = match arguments.scale {
        Some(scale) => scale,
        None => Scale::new(1.0)?,
    };
    let made = benchmark.dataset(wanted)?.scale();
    let numbers = arguments.queries();
    let verify = arguments.verify();
    let queries = benchmark.queries(&numbers, made)?;
    let measure = Measure::new(arguments.measure)?;
    let session = measure.session().await?;

    let tables = queries::tables_of(&queries);
    let source = Source {
        scale: arguments.scale,
        data: arguments.data.as_deref(),
    };
    let scale = load(&session, benchmark, &source, &tables).await?;
    // The text may depend on the scale, which files tell only now.
    let queries = benchmark.queries(&numbers, scale)?;
    let work = Work {
        subject: Subject::benchmark(benchmark, scale),
        tasks: queries.into_iter().map(Task::from).collect(),
        verify: verify.at(scale.factor()),
    };
    measure.run(&session, work).await
}

/// Where the tables come from.
pub(super) struct Source<'a> {
    pub(super) scale: Option<Scale>,
    pub(super) data: Option<&'a Path>,
}

/// Registers the tables, from files or generated, and returns their scale.
pub(super) async fn load(
    session: &WarplineSession,
    benchmark: Benchmark,
    source: &Source<'_>,
    tables: &[Table],
) -> Result<Scale> {
    let Some(directory) = source.data else {
        let scale = match source.scale {
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
    match (source.scale, measured) {
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
