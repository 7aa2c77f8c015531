//! Runs DataFusion's own sqllogictest files on plain DataFusion, then on Warpline, and compares answer by answer.
//!
//! What the files say of the answers is not looked at: plain DataFusion's answers are the standard, with the data that is at hand.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqllogictest::{Condition, DefaultColumnType, Record};
use warpline::DeviceChoice;

use crate::comparison::{self, Setup, Statement, Summary};

/// Longest that one statement may take: in the emulator, on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Runs `files`, whose paths are relative to the working directory as DataFusion's runner has it, on a device. `finished` is told
/// of each file, with the time that it took and what came of all so far.
///
/// # Errors
/// A file that cannot be read, a session that does not open.
pub fn run(
    files: &[PathBuf],
    device: DeviceChoice,
    finished: impl Fn(&Path, Duration, &Summary),
) -> io::Result<Summary> {
    let setup = Setup::new(device, TIME_LIMIT);
    let mut summary = Summary::default();
    for file in files {
        let begin = Instant::now();
        let statements = statements(file)?;
        summary.add(comparison::run_file(&setup, file, &statements, || {
            clean(file)
        })?);
        finished(file, begin.elapsed(), &summary);
    }
    Ok(summary)
}

/// The statements that are for DataFusion.
fn statements(file: &Path) -> io::Result<Vec<Statement>> {
    let records = sqllogictest::parse_file::<DefaultColumnType>(file);
    let records = records.map_err(|error| io::Error::other(error.to_string()))?;
    let mut found = Vec::new();
    for record in records {
        let (loc, conditions, sql) = match record {
            Record::Statement {
                loc,
                conditions,
                sql,
                ..
            }
            | Record::Query {
                loc,
                conditions,
                sql,
                ..
            }
            | Record::Let {
                loc,
                conditions,
                sql,
                ..
            } => (loc, conditions, sql),
            Record::Halt { .. } => break,
            _ => continue,
        };
        let is_ours = |label: &str| label.eq_ignore_ascii_case("datafusion");
        let skipped = conditions.iter().any(|condition| match condition {
            Condition::OnlyIf { label } => !is_ours(label),
            Condition::SkipIf { label } => is_ours(label),
        });
        if !skipped {
            let line = loc.line();
            found.push(Statement { line, sql });
        }
    }
    Ok(found)
}

/// An empty folder where the file's statements write.
fn clean(file: &Path) -> io::Result<()> {
    let Some(name) = file.file_stem() else {
        return Ok(());
    };
    let folder = Path::new("test_files/scratch").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder)
}
