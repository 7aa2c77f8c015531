//! The statements of other engines' sqllogictest files, compared with plain DataFusion.
//!
//! The files stay where they are: the user names a folder, such as that of DuckDB's `test/sql` or SQLite's corpus. Statements that
//! plain DataFusion refuses are passed over.

mod files;
mod reader;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use warpline::DeviceChoice;

use crate::comparison::{self, Difference, Kind, Setup, Statement, Summary};

/// Bytes that DataFusion's operators may hold on a side, for each job.
const MEMORY: usize = 2 << 30;

/// A file may take so many times as long as a statement.
const FILE_TIMES: u32 = 6;

/// Most rows of an answer that is compared.
const ROWS: usize = 1_000_000;

/// What files call the folder to which they write.
const SCRATCH: [&str; 3] = ["{TEST_DIR}", "${TEST_DIR}", "__TEST_DIR__"];

/// What the command takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folders with sqllogictest files (.test, .test_slow, .slt), or files
    #[arg(required = true, value_name = "FOLDER-OR-FILE")]
    paths: Vec<PathBuf>,
    /// Where Warpline runs: emulator, cuda or cpu
    #[arg(long, default_value = "emulator")]
    device: DeviceChoice,
    /// Run so many of the files, drawn by the seed
    #[arg(long)]
    files: Option<usize>,
    /// Run so many of the queries of each file, drawn by the seed
    #[arg(long)]
    queries: Option<usize>,
    /// Draws the samples
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Begin no other file after so many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Seconds that a statement may take on each side; a file may take six times as long
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// A setting of both sides: datafusion.*, or of Warpline's: warpline.*
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// Files that run at the same time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Write all differences and counts to this file as well
    #[arg(long)]
    report: Option<PathBuf>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((pair.0.trim().to_string(), pair.1.trim().to_string()))
}

/// A number of minutes or seconds as a time.
fn time(count: f64, unit: f64) -> io::Result<Duration> {
    Duration::try_from_secs_f64(count * unit)
        .map_err(|error| io::Error::other(format!("{count}: {error}")))
}

/// Runs the command; the exit status says whether all was equal.
pub fn run(arguments: &Arguments) -> ExitCode {
    // Panics are caught and counted; those of plain DataFusion are not for anybody to read.
    std::panic::set_hook(Box::new(|_| {}));
    match run_files(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether Warpline answered all that plain DataFusion answers, with the same answers.
fn run_files(arguments: &Arguments) -> io::Result<bool> {
    let mut setup = Setup::new(arguments.device, time(arguments.seconds, 1.0)?);
    setup.settings.extend(arguments.settings.iter().cloned());
    setup.file_time_limit = setup.time_limit.saturating_mul(FILE_TIMES);
    setup.memory = Some(MEMORY);
    setup.rows = ROWS;
    let minutes = arguments.minutes.map(|count| time(count, 60.0));
    let suite = Suite {
        arguments,
        setup,
        begin: Instant::now(),
        limit: minutes.transpose()?.unwrap_or(Duration::MAX),
        summary: Mutex::default(),
        scratches: AtomicUsize::new(0),
    };
    let found = files::find(&arguments.paths)?;
    let count = arguments.files.unwrap_or(found.len());
    let chosen = files::sample(found, count, arguments.seed);
    let of = chosen.len();
    let queue = Mutex::new(VecDeque::from(chosen));
    thread::scope(|scope| {
        let job = || suite.run_some(&queue);
        let jobs: Vec<_> = (0..arguments.jobs.max(1))
            .map(|_| scope.spawn(job))
            .collect();
        jobs.into_iter().try_for_each(|job| {
            let panicked = |_| Err(io::Error::other("a job panicked"));
            job.join().unwrap_or_else(panicked)
        })
    })?;
    let summary = suite
        .summary
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    println!(
        "\non {}, in {:.0?}, of {of} files:",
        arguments.device,
        suite.begin.elapsed()
    );
    println!("{summary}");
    if let Some(path) = &arguments.report {
        report(path, arguments.device, &summary).map_err(|error| files::named(path, &error))?;
    }
    Ok(!summary.differences.iter().any(is_wrong))
}

/// Whether Warpline is to blame: other answers and errors than plain DataFusion's. The emulator may be slow, and what plain
/// DataFusion refuses may well have an answer.
fn is_wrong(difference: &Difference) -> bool {
    match difference.kind {
        Kind::Answer | Kind::OnlyWarplineRefuses | Kind::Panic => true,
        Kind::OnlyDataFusionRefuses | Kind::OutOfTime => false,
    }
}

/// All differences, the worst first, then the counts.
fn report(path: &Path, device: DeviceChoice, summary: &Summary) -> io::Result<()> {
    let mut differences: Vec<&Difference> = summary.differences.iter().collect();
    differences.sort_by_key(|difference| difference.kind);
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    for difference in differences {
        writeln!(file, "{difference}\n")?;
    }
    writeln!(file, "on {device}:\n{summary}")?;
    file.flush()
}

/// What all jobs share.
struct Suite<'a> {
    arguments: &'a Arguments,
    setup: Setup,
    begin: Instant,
    limit: Duration,
    summary: Mutex<Summary>,
    /// Numbers the folders that files write to.
    scratches: AtomicUsize,
}

impl Suite<'_> {
    /// Runs files until there is none left, or no time.
    fn run_some(&self, queue: &Mutex<VecDeque<PathBuf>>) -> io::Result<()> {
        loop {
            let next = || {
                queue
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front()
            };
            let Some(file) = next().filter(|_| self.begin.elapsed() < self.limit) else {
                return Ok(());
            };
            let begin = Instant::now();
            let summary = self.run_file(&file)?;
            let mut lock = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
            for difference in &summary.differences {
                println!("{difference}");
            }
            lock.add(summary);
            let (statements, on_device) = (lock.statements, lock.on_device());
            println!(
                "{} in {:.1?}; so far {} files, {statements} statements, {on_device} on the device, {} do not agree",
                file.display(),
                begin.elapsed(),
                lock.files,
                lock.differences.len()
            );
        }
    }

    fn run_file(&self, file: &Path) -> io::Result<Summary> {
        let number = self.scratches.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpline-suite-{}-{number}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        let text = fs::read(file).map_err(|error| files::named(file, &error))?;
        let statements = prepared(&String::from_utf8_lossy(&text), &scratch);
        let statements = match self.arguments.queries {
            Some(count) => files::sample_queries(statements, count, self.arguments.seed),
            None => statements,
        };
        let clean = || {
            if scratch.exists() {
                fs::remove_dir_all(&scratch)?;
            }
            fs::create_dir_all(&scratch)
        };
        let summary = comparison::run_file(&self.setup, file, &statements, clean);
        fs::remove_dir_all(&scratch)?;
        summary
    }
}

/// The statements of a file, which write to the folder `scratch` and nowhere else.
fn prepared(text: &str, scratch: &Path) -> Vec<Statement> {
    let scratch = scratch.to_string_lossy();
    let mut statements = reader::read(text);
    for statement in &mut statements {
        for name in SCRATCH {
            statement.sql = statement.sql.replace(name, &scratch);
        }
    }
    statements.retain(|statement| {
        let sql = statement.sql.trim_start().to_ascii_lowercase();
        let writes = sql.starts_with("copy") || sql.starts_with("create external");
        !writes || statement.sql.contains(&*scratch)
    });
    statements
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn statements_write_to_one_folder() {
        let text = "statement ok\nCOPY t TO '{TEST_DIR}/a.csv'\n\nstatement ok\nCOPY t TO 'b.csv'\n\nquery I\nSELECT 1\n";
        let found = prepared(text, Path::new("/s"));
        let sql: Vec<_> = found.iter().map(|statement| &statement.sql).collect();
        assert_eq!(sql, ["COPY t TO '/s/a.csv'", "SELECT 1"]);
    }

    #[test]
    fn a_folder_is_run_and_reported() {
        let name = format!("warpline-suite-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let text = "statement ok\nCREATE TABLE t(a INT)\n\nloop i 0 5\n\nstatement ok\nINSERT INTO t VALUES (${i})\n\nendloop\n\n\
                    query I\nSELECT sum(a) FROM t\n----\n10\n\nquery I\nFROM nothing POSITIONAL JOIN t\n";
        fs::write(folder.join("a.test"), text).expect("a file");
        fs::write(folder.join("b.test"), [0xff, b'\n']).expect("a file");
        let report = folder.join("report");
        let words = ["p", "--device", "cpu", "--jobs", "2", "--report"].map(Into::into);
        let words = words
            .into_iter()
            .chain([report.clone().into_os_string(), folder.clone().into()]);
        let program = Program::try_parse_from(words).expect("arguments");
        assert!(run_files(&program.arguments).expect("a run"));
        let text = fs::read_to_string(&report).expect("a report");
        assert!(
            text.contains("2 files, 8 statements, 2 of them queries"),
            "{text}"
        );
        assert!(text.contains("1  were refused by both sides"), "{text}");
        fs::remove_dir_all(folder).expect("a folder to remove");
    }
}
