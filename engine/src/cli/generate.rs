//! `warpline tpch generate` and `warpline jcch generate`: write the tables as files.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use warpline::{ByteSize, Result};
use warpline_tpch::generate::available_threads;
use warpline_tpch::tables::Table;
use warpline_tpch::{Benchmark, TpchError, files};

use super::args::GenerateArguments;
use super::print::print_line;
use super::tpch::note_scale;

/// Writes all tables; Ctrl-C stops the work and removes what was written.
pub(super) async fn run(benchmark: Benchmark, arguments: GenerateArguments) -> Result<ExitCode> {
    let GenerateArguments {
        scale,
        output,
        format,
    } = arguments;
    let dataset = benchmark.dataset(scale)?;
    note_scale(scale, dataset.scale());
    let start = Instant::now();
    let cancel = Arc::new(AtomicBool::new(false));
    let worker_cancel = Arc::clone(&cancel);
    let directory = output.clone();
    let mut worker = tokio::task::spawn_blocking(move || {
        files::write_tables(
            &Table::ALL,
            dataset,
            format,
            &directory,
            available_threads(),
            &worker_cancel,
        )
    });
    let outcome = tokio::select! {
        outcome = &mut worker => outcome,
        _ = tokio::signal::ctrl_c() => {
            cancel.store(true, Ordering::Relaxed);
            worker.await
        }
    };
    let written = outcome.map_err(|error| TpchError::Worker(error.to_string()))??;
    print_line(&format!(
        "Wrote {} rows in {} files, {}, to {} in {:.1} s",
        written.rows,
        written.files,
        ByteSize(usize::try_from(written.bytes).unwrap_or(usize::MAX)),
        output.display(),
        start.elapsed().as_secs_f64()
    ));
    Ok(ExitCode::SUCCESS)
}
