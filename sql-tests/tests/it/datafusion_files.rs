//! DataFusion's own sqllogictest files, which `scripts/datafusion-slt.sh` fetches and runs these tests on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpline::DeviceChoice;
use warpline_sql_tests::comparison::{Difference, Summary};
use warpline_sql_tests::{datafusion_data, datafusion_files, test_device};

/// Statements that may have another answer than plain DataFusion's: file, line and reason.
const KNOWN: &[(&str, u32, &str)] = &[
    ("aggregate.slt", 697, APPROXIMATE),
    ("aggregate.slt", 703, APPROXIMATE),
    ("aggregate.slt", 1635, APPROXIMATE),
    ("aggregate.slt", 2617, APPROXIMATE),
    ("aggregate.slt", 2628, APPROXIMATE),
    ("aggregate.slt", 2639, APPROXIMATE),
    ("aggregate.slt", 2659, APPROXIMATE),
    ("aggregate.slt", 2698, APPROXIMATE),
    ("aggregate.slt", 2707, APPROXIMATE),
    ("aggregate.slt", 4103, APPROXIMATE),
    ("aggregate_skip_partial.slt", 321, APPROXIMATE),
    ("aggregate_skip_partial.slt", 402, APPROXIMATE),
    ("aggregate_skip_partial.slt", 519, APPROXIMATE),
    ("aggregate_skip_partial.slt", 703, APPROXIMATE),
    ("aggregate_skip_partial.slt", 716, APPROXIMATE),
    ("delete.slt", 120, LEFT_OUT),
    ("delete.slt", 132, LEFT_OUT),
    ("insert_to_external.slt", 48, NULLS),
    ("limit.slt", 691, TIES),
    ("limit.slt", 718, TIES),
    ("ordered_aggregate_spill.slt", 69, MEMORY),
    ("set_variable.slt", 344, MEMORY),
    ("strings.slt", 75, PATTERNS),
    ("strings.slt", 86, PATTERNS),
];

/// Which rows `DELETE … LIMIT` is of nobody says, and DataFusion's tables delete all: it is refused.
const LEFT_OUT: &str = "DataFusion's tables leave LIMIT out of DELETE";

/// Rows with NULL may follow those that a table is made of.
const NULLS: &str = "tables of CREATE TABLE AS take NULL";

/// DataFusion's sketches are near the values that the device finds.
const APPROXIMATE: &str = "approximate in DataFusion, exact on the device";

/// What DataFusion's memory limit refuses, the device computes in its own memory.
const MEMORY: &str = "datafusion.runtime.memory_limit does not bind the device";

/// `SIMILAR TO` is the standard's pattern of the whole string here; plain DataFusion looks for a regular expression.
const PATTERNS: &str = "SIMILAR TO is a regular expression in DataFusion";

/// Any of the rows that tie may be among the first.
const TIES: &str = "a limit over an order with ties";

/// Every so many-th file is a sample.
const SAMPLE: usize = 20;

/// The files that `WARPLINE_SLT_FILES` names, by a part of their paths separated by commas; else all, or a sample of them.
fn files(sample: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("test_files")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder of the files") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "slt") {
                found.push(path);
            }
        }
    }
    // Functions of a crate that neither side has.
    found.retain(|path| {
        !path.starts_with("test_files/spark") && !path.starts_with("test_files/scratch")
    });
    found.sort();
    assert!(!found.is_empty(), "no .slt file");
    match std::env::var("WARPLINE_SLT_FILES") {
        Ok(names) => {
            found.retain(|path| names.split(',').any(|n| path.to_string_lossy().contains(n)))
        }
        Err(_) if sample => found = found.into_iter().step_by(SAMPLE).collect(),
        Err(_) => {}
    }
    found
}

fn run(device: DeviceChoice, sample: bool) {
    let folder = std::env::var_os("WARPLINE_DATAFUSION_SLT");
    let folder = folder.expect("WARPLINE_DATAFUSION_SLT: run scripts/datafusion-slt.sh");
    // The files name data relative to where DataFusion's runner stands.
    std::env::set_current_dir(Path::new(&folder)).expect("WARPLINE_DATAFUSION_SLT is a folder");
    let made = datafusion_data::stand_ins(Path::new(".")).expect("data for the files");
    if !made.is_empty() {
        println!("stand-ins for data that is not there: {}", made.join(", "));
    }
    let files = files(sample);
    let begin = Instant::now();
    let finished = |file: &Path, time: Duration, so_far: &Summary| {
        let (statements, on_device) = (so_far.statements, so_far.on_device());
        let differ = so_far.differences.len();
        let file = file.display();
        println!(
            "{file} in {time:.1?}; so far {statements} statements, {on_device} on the device, {differ} differ"
        );
    };
    let summary = datafusion_files::run(&files, device, finished).expect("the files");
    println!("on {device}, in {:.0?}:\n{summary}", begin.elapsed());
    let mut unknown = String::new();
    for difference in &summary.differences {
        let is_it = |(file, line, _): &&(&str, u32, &str)| {
            difference.file.ends_with(file) && difference.statement.line == *line
        };
        match KNOWN.iter().find(is_it) {
            Some((file, line, reason)) => println!("known to differ: {file}:{line}: {reason}"),
            None => unknown += &format!("{difference}\n"),
        }
    }
    assert!(
        unknown.is_empty(),
        "differences to plain DataFusion:\n{unknown}"
    );
    if device != DeviceChoice::Cpu {
        let differs = |file: &str, line: u32| {
            let found = |d: &Difference| d.file.ends_with(file) && d.statement.line == line;
            summary.differences.iter().any(found)
        };
        for (file, line, reason) in KNOWN {
            if files.iter().any(|path| path.ends_with(file)) && !differs(file, *line) {
                println!("no longer differs: {file}:{line}: {reason}");
            }
        }
        assert!(summary.on_device() > 0, "nothing ran on the device");
    }
}

#[test]
#[ignore = "scripts/datafusion-slt.sh runs it"]
fn a_sample_on_the_cpu() {
    run(DeviceChoice::Cpu, true);
}

#[test]
#[ignore = "scripts/datafusion-slt.sh runs it"]
fn a_sample_on_the_device() {
    run(test_device(), true);
}

#[test]
#[ignore = "scripts/datafusion-slt.sh --all runs it"]
fn all_on_the_cpu() {
    run(DeviceChoice::Cpu, false);
}

#[test]
#[ignore = "scripts/datafusion-slt.sh --all runs it"]
fn all_on_the_device() {
    run(test_device(), false);
}
