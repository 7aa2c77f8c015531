//! Stand-ins for data that DataFusion's sqllogictest files read and their crate does not have.
//!
//! Plain DataFusion's answers over the same data are the standard, so only the columns and the order of rows must be as the files
//! say, not the values. What is there already stays.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use warpline_tpch::files::{FileFormat, write_tables};
use warpline_tpch::tables::Table;
use warpline_tpch::{Scale, TpchError};

/// Where the files expect TPC-H's tables, which DataFusion's runner has made by dbgen.
const TPCH: &str = "test_files/tpch/data";
/// Smaller than there: the emulator runs the queries, too.
const TPCH_SCALE: f64 = 0.01;
/// Where they expect small tables of DataFusion's repository.
const CORE: &str = "../core/tests/data";

/// Makes what is missing, in the folders beside and below `runner`, DataFusion's `sqllogictest`; the names of what it made.
///
/// # Errors
/// A folder that cannot be read or written.
pub fn stand_ins(runner: &Path) -> io::Result<Vec<String>> {
    let mut made = Vec::new();
    if !runner.join(TPCH).exists() {
        tpch(&runner.join(TPCH)).map_err(io::Error::other)?;
        made.push(TPCH.to_string());
    }
    fs::create_dir_all(runner.join(CORE).join("partitioned_csv"))?;
    for (name, text) in tables() {
        let path = runner.join(CORE).join(&name);
        if !path.exists() {
            fs::write(path, text)?;
            made.push(format!("{CORE}/{name}"));
        }
    }
    Ok(made)
}

/// Each table in one file. The folder appears when all are there.
fn tpch(folder: &Path) -> Result<(), TpchError> {
    let work = folder.with_extension("parts");
    let (parts, joined) = (work.join("tables"), work.join("joined"));
    let failed = |error| TpchError::io("write", &work, error);
    if work.exists() {
        fs::remove_dir_all(&work).map_err(failed)?;
    }
    fs::create_dir_all(&joined).map_err(failed)?;
    let never = AtomicBool::new(false);
    let scale = Scale::new(TPCH_SCALE)?;
    write_tables(&Table::ALL, scale, FileFormat::Tbl, &parts, 2, &never)?;
    let join = || -> io::Result<()> {
        for table in Table::ALL {
            let mut whole = fs::File::create(joined.join(format!("{}.tbl", table.name())))?;
            let entries = fs::read_dir(parts.join(table.name()))?;
            let mut names: Vec<_> = entries
                .map(|entry| Ok(entry?.path()))
                .collect::<io::Result<_>>()?;
            names.sort();
            for name in names {
                whole.write_all(&fs::read(name)?)?;
            }
        }
        fs::rename(&joined, folder)?;
        fs::remove_dir_all(&work)
    };
    join().map_err(failed)
}

/// The small tables: names and texts.
fn tables() -> Vec<(String, String)> {
    // In the order that statements promise: a, then b, then c.
    let nested = (0..100).map(|i| format!("1,{},{},{i},{}", i / 50, i / 25, i * 7 % 5));
    // By ts, and by inc_col; by desc_col downwards.
    let ordered = (0..100).map(|i| format!("{},{},{}", 260 + 4 * i, 1 + 3 * i, 100 - 2 * i));
    // One row of the smallest value, two of the next, and so on.
    let repeated = || (1..=5).flat_map(|i| (0..i).map(move |_| i));
    let simple: Vec<String> = repeated()
        .map(|i| format!("0.0000{i},0.00000000000{i},{}", i % 2 == 1))
        .collect();
    let decimals =
        repeated().map(|i| format!("0.0000{i},0.00000000000{i},{i},{},0.00{i}4", i % 2 == 1));
    let mut all = vec![
        ("window_2.csv".to_string(), csv("a0,a,b,c,d", nested)),
        (
            "window_1.csv".to_string(),
            csv("ts,inc_col,desc_col", ordered),
        ),
        (
            "aggregate_simple.csv".to_string(),
            csv("c1,c2,c3", simple.iter().cloned()),
        ),
        (
            "aggregate_simple_pipe.csv".to_string(),
            csv("c1,c2,c3", simple.into_iter()).replace(',', "|"),
        ),
        (
            "decimal_data.csv".to_string(),
            csv("c1,c2,c3,c4,c5", decimals),
        ),
        ("empty.csv".to_string(), String::new()),
    ];
    for partition in 0..4 {
        let rows = (0..11).map(|i| format!("{partition},{i},{}\n", i % 2 == 0));
        let name = format!("partitioned_csv/partition-{partition}.csv");
        all.push((name, rows.collect()));
    }
    all
}

fn csv(header: &str, rows: impl Iterator<Item = String>) -> String {
    let mut text = format!("{header}\n");
    for row in rows {
        text.push_str(&row);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_made_and_what_is_there_stays() {
        let folder = std::env::temp_dir().join(format!("warpline-slt-{}", std::process::id()));
        let runner = folder.join("sqllogictest");
        fs::create_dir_all(&runner).expect("a folder");
        let core = folder.join("core/tests/data");
        fs::create_dir_all(&core).expect("a folder");
        fs::write(core.join("window_2.csv"), "theirs").expect("a file");
        let made = stand_ins(&runner).expect("stand-ins");
        assert!(made.iter().any(|name| name == TPCH), "{made:?}");
        assert_eq!(made.len(), 1 + tables().len() - 1, "{made:?}");
        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        assert_eq!(read(&core.join("window_2.csv")), "theirs");
        let nations = read(&runner.join(TPCH).join("nation.tbl"));
        assert_eq!(nations.lines().count(), 25);
        assert!(!runner.join("test_files/tpch/data.parts").exists());
        assert!(stand_ins(&runner).expect("nothing to do").is_empty());
        fs::remove_dir_all(folder).expect("a folder to remove");
    }

    #[test]
    fn tables_have_the_order_that_statements_promise() {
        for (name, text) in tables() {
            let keys = match name.as_str() {
                "window_2.csv" => 1..4,
                "window_1.csv" => 0..2,
                _ => continue,
            };
            let rows: Vec<Vec<i64>> = text
                .lines()
                .skip(1)
                .map(|line| line.split(',').map(|cell| cell.parse().expect("a number")))
                .map(Iterator::collect)
                .collect();
            assert_eq!(rows.len(), 100);
            for key in keys {
                assert!(
                    rows.is_sorted_by_key(|row| row[key]),
                    "{name} by column {key}"
                );
            }
        }
    }
}
