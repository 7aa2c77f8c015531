//! Runs files of statements on plain DataFusion, then on Warpline, and compares answer by answer.
//!
//! Plain DataFusion's answers are the standard. Each side has a catalog of its own, so that each statement that defines or changes
//! a table takes effect on either side exactly once. Plans differ by design, so of `EXPLAIN` only the success is compared.

mod answer;
mod plain;
mod setup;
mod statement;
mod summary;
mod workers;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use warpline::{QueryRun, WarplineSession};
use warpline_tpch::QueryEngine;

use plain::Plain;
pub use setup::Setup;
use statement::{Failure, is_query};
pub use statement::{PassedOver, Statement};
pub use summary::{Difference, Kind, Summary};
use workers::Workers;

/// After so many statements that run out of time, the rest of a file is left: work that does not end may hold the session up.
const TIMEOUTS: usize = 3;

/// Runs the statements of a file on new sessions. `clean` empties what they write to, before either side.
///
/// # Errors
/// A session that does not open, or what `clean` reports.
pub fn run_file(
    setup: &Setup,
    file: &Path,
    statements: &[Statement],
    clean: impl Fn() -> io::Result<()>,
) -> io::Result<Summary> {
    let mut summary = Summary {
        files: 1,
        ..Summary::default()
    };
    let mut workers = Workers::new()?;
    let plain = workers.wait(Plain::new(setup.clone()))?;
    clean()?;
    let mut expected = Vec::with_capacity(statements.len());
    let (mut timeouts, mut begin) = (0, Instant::now());
    for statement in statements {
        if timeouts == TIMEOUTS || begin.elapsed() >= setup.file_time_limit {
            break;
        }
        let answer = plain.clone().run(statement.sql.clone());
        let answer = workers.within_time(setup.time_limit, answer)?;
        timeouts += usize::from(matches!(answer, Err(Failure::OutOfTime)));
        expected.push(answer);
    }
    drop(plain);
    clean()?;
    let session = Arc::new(workers.wait(session(setup.clone()))?);
    let mut run = 0;
    (timeouts, begin) = (0, Instant::now());
    for (statement, expected) in statements.iter().zip(expected) {
        if begin.elapsed() >= setup.file_time_limit {
            break;
        }
        run += 1;
        let passed_over = match &expected {
            Err(Failure::PassedOver(why)) => Some(*why),
            Err(Failure::OutOfTime) => Some(PassedOver::OutOfTime),
            _ => None,
        };
        if let Some(why) = passed_over {
            summary.pass_over(statement, why);
            continue;
        }
        let work = on_warpline(Arc::clone(&session), statement.sql.clone());
        let found = workers.within_time(setup.time_limit, work)?;
        timeouts += usize::from(matches!(found, Err(Failure::OutOfTime)));
        let one_sided = expected.is_ok() != found.is_ok();
        summary.compare(file, statement, &expected, found);
        // From here on the two sides have different tables, or no answer comes any more.
        if one_sided && !statement.is_query() || timeouts == TIMEOUTS {
            break;
        }
    }
    for statement in &statements[run..] {
        summary.pass_over(statement, PassedOver::Left);
    }
    Ok(summary)
}

async fn session(setup: Setup) -> io::Result<WarplineSession> {
    let mut builder = WarplineSession::builder()
        .device(setup.device)
        .runtime(setup.runtime()?);
    for (key, value) in &setup.settings {
        builder = builder.set(key, value);
    }
    builder.open().await.map_err(io::Error::other)
}

/// Queries run on the device alone where they can, also where that does not pay; else in part, as users have it.
async fn on_warpline(session: Arc<WarplineSession>, sql: String) -> Result<QueryRun, Failure> {
    let refused = |error: datafusion::error::DataFusionError| refusal(error.strip_backtrace());
    if is_query(&sql) && session.device().is_in_use() {
        let require = |value| session.set("warpline.require_gpu", value);
        let failed = |error: warpline::Error| Failure::Refused(error.to_string());
        require("true").await.map_err(failed)?;
        let run = session.run(&sql).await;
        require("false").await.map_err(failed)?;
        match run.map_err(refused) {
            // It says why the device alone does not do.
            Err(Failure::Refused(error)) if error.contains("warpline.require_gpu") => {}
            done => return done,
        }
    }
    session.run(&sql).await.map_err(refused)
}

/// A session reports panics below as errors.
fn refusal(error: String) -> Failure {
    let panicked = ["panicked", "ended in a panic"];
    match panicked.iter().any(|words| error.contains(words)) {
        true => Failure::Panicked(error),
        false => Failure::Refused(error),
    }
}

#[cfg(test)]
mod tests;
