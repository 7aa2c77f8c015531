//! `warpline bench hits`: writes a table like ClickBench's.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use warpline::{ByteSize, Result};
use warpline_bench::hits::Hits;
use warpline_tpch::TpchError;
use warpline_tpch::generate::available_threads;

use super::args::HitsArguments;
use super::bench_error::told;
use super::print::print_line;

/// Rows of a file, where their number is not given.
const ROWS_OF_A_FILE: u64 = 1_000_000;

/// Writes the table; Ctrl-C ends it, and leaves the files that are there.
pub(super) async fn run(arguments: HitsArguments) -> Result<ExitCode> {
    let HitsArguments {
        rows,
        files,
        seed,
        output,
    } = arguments;
    let start = Instant::now();
    let files = files
        .map_or(rows.div_ceil(ROWS_OF_A_FILE), u64::from)
        .max(1) as usize;
    let cancel = Arc::new(AtomicBool::new(false));
    let (worker_cancel, folder) = (Arc::clone(&cancel), output.clone());
    let mut worker = tokio::task::spawn_blocking(move || {
        Hits { rows, seed }.write(&folder, files, available_threads(), &worker_cancel)
    });
    let outcome = tokio::select! {
        outcome = &mut worker => outcome,
        _ = tokio::signal::ctrl_c() => {
            cancel.store(true, Ordering::Relaxed);
            worker.await
        }
    };
    let outcome = outcome.map_err(|error| TpchError::Worker(error.to_string()))?;
    let bytes = outcome.map_err(told)?;
    print_line(&format!(
        "Wrote {rows} rows in {files} files, {}, to {} in {:.1} s",
        ByteSize(usize::try_from(bytes).unwrap_or(usize::MAX)),
        output.display(),
        start.elapsed().as_secs_f64()
    ));
    Ok(ExitCode::SUCCESS)
}
