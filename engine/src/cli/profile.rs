//! `warpline profile`: runs a query cold and hot and writes a timeline.

use std::process::ExitCode;

use warpline::{Error, Result};
use warpline_tpch::queries::query;
use warpline_tpch::{Benchmark, TpchError, generate};

use super::args::ProfileArguments;
use super::output::OutputFile;
use super::print::print_line;
use super::queries;
use super::shell::register_shell_catalog;

/// Sets the tables up, profiles the query and writes the trace.
pub(super) async fn run(arguments: ProfileArguments) -> Result<ExitCode> {
    let mut statements = Vec::new();
    for path in arguments.setup.iter().chain(&arguments.file) {
        statements.extend(queries::statements(path)?);
    }
    let sql = match &arguments.query {
        Some(text) => match query_number(text) {
            Some(number) if arguments.tpch.is_some() => query(number)?.sql.clone(),
            _ => text.trim().trim_end_matches(';').to_string(),
        },
        // The last statement of the file; those before set up what it needs.
        None => statements.pop().ok_or(Error::NoQuery)?,
    };
    // What can fail early fails before minutes are spent on data.
    let output = OutputFile::create(&arguments.output)?;
    let session = arguments.session.builder().local_files(true).open().await?;
    register_shell_catalog(session.context());
    if let Some(scale) = arguments.tpch {
        let dataset = Benchmark::Tpch.dataset(scale)?;
        let tables = warpline_tpch::tables::Table::ALL.to_vec();
        let made = tokio::task::spawn_blocking(move || {
            generate::generate(&tables, dataset, generate::available_threads())
        });
        let made = made
            .await
            .map_err(|error| TpchError::Worker(error.to_string()))??;
        generate::register(&session, made)?;
    }
    for statement in &statements {
        queries::set_up(&session, statement).await?;
    }
    let profile = warpline::profile(&session, &sql, arguments.runs).await?;
    output.finish(&profile.to_json()?)?;
    for run in profile.runs() {
        print_line(&format!(
            "{:<10} {:>9.3} ms: plan {:.3}, {} kernels {:.3}, copies {:.3}, {} sources compiled or from disk",
            run.name,
            run.total_ms,
            run.plan_ms,
            run.kernels,
            run.kernel_ms,
            run.copy_ms,
            run.compiled
        ));
    }
    if profile.dropped() > 0 {
        print_line(&format!(
            "{} spans found no room in the trace",
            profile.dropped()
        ));
    }
    print_line(&format!(
        "{} row{} on {}; {} opens in https://ui.perfetto.dev and chrome://tracing",
        profile.rows,
        if profile.rows == 1 { "" } else { "s" },
        session.device().name(),
        arguments.output.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// `Q6`, `q6` and `6` name a query of TPC-H.
fn query_number(text: &str) -> Option<u8> {
    let text = text.trim();
    let number = text.strip_prefix(['Q', 'q']).unwrap_or(text);
    number.parse().ok()
}
