//! Files of many row groups that are decoded while others are laid out already, for tables larger than device memory: answers are
//! right, one row group that is broken ends the query with the name of its file, and a query that nobody waits for stops reading.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warpline_sql_tests::{Fixture, test_device};

use super::cancel::wait_until_idle;
use super::left_in_use;

const ROWS: usize = 120_000;
/// Rows of a row group.
const GROUP: usize = 3_000;
/// Bytes of device memory: a fifth of the columns.
const BUDGET: &str = "524288";

const QUERIES: [&str; 4] = [
    "SELECT k, w, count(*) AS n, sum(a) AS s, min(b) AS m, max(d) AS x FROM t GROUP BY k, w ORDER BY k, w",
    "SELECT count(*) AS n, sum(d) AS s, sum(b) AS b FROM t WHERE b < 50000 AND w = 'x'",
    "SELECT a, t, late FROM t WHERE a % 9973 = 5 OR late > 'm' ORDER BY a",
    "SELECT count(*) AS n, max(x.b) AS m FROM t x JOIN t y ON x.a = y.b WHERE y.k < 3",
];

/// A folder with `parts/whole.parquet` and `parts/other.parquet`, which goes with the test.
struct Files(PathBuf);

impl Files {
    fn new(fixture: &Fixture, name: &str) -> Self {
        let name = format!("warpline-row-groups-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("parts")).expect("a folder");
        let files = Self(folder);
        for (file, first) in [("whole.parquet", 1), ("other.parquet", ROWS + 1)] {
            let rows = format!(
                "SELECT value AS a, value * 7919 % 100000 AS b, CAST(value % 7 AS SMALLINT) AS k, \
                 CASE value % 4 WHEN 0 THEN 'x' WHEN 1 THEN 'yy' WHEN 2 THEN 'größer' END AS w, \
                 CASE WHEN value % 5 = 0 THEN NULL ELSE CAST(value % 1000 AS DECIMAL(12, 2)) END AS d, \
                 CASE WHEN value > {} THEN 'never before' ELSE 'as ever' END AS late, \
                 'text ' || value AS t FROM generate_series({first}, {})",
                2 * ROWS - 3,
                first + ROWS - 1
            );
            let sql = format!(
                "COPY ({rows}) TO '{}' STORED AS PARQUET OPTIONS ('format.max_row_group_size' '{GROUP}')",
                files.file(file).display()
            );
            let made = fixture.block_on(async {
                let frame = fixture.session().reference().sql(&sql).await?;
                frame.collect().await
            });
            made.unwrap_or_else(|error| panic!("{error}\n{sql}"));
        }
        files
    }

    fn parts(&self) -> PathBuf {
        self.0.join("parts")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.parts().join(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A session with the table `t` of two files, each row group of which is a unit of reading.
fn setup(name: &str) -> (Fixture, Files) {
    let settings = [("warpline.device_memory", BUDGET)];
    let fixture = Fixture::open(test_device(), true, &settings);
    let files = Files::new(&fixture, name);
    fixture.set("datafusion.optimizer.repartition_file_min_size", "1");
    table(&fixture, &files.parts());
    (fixture, files)
}

fn table(fixture: &Fixture, location: &Path) {
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}/'",
        location.display()
    );
    fixture.run(&sql).expect("a table");
}

#[test]
fn row_groups_of_a_table_larger_than_memory_are_streamed() {
    let (fixture, _files) = setup("streamed");
    for query in QUERIES {
        // Cold, with nothing kept of the query before.
        left_in_use(&fixture);
        let streamed = fixture.check(query).metrics.streamed_bytes;
        assert!(streamed > 0, "{query}");
        fixture.check(query);
    }
}

#[test]
fn a_row_group_broken_in_the_middle_ends_the_query() {
    let (fixture, files) = setup("broken");
    let path = files.file("whole.parquet");
    let whole = fs::read(&path).expect("the file");
    for tenth in [0, 3, 5, 8] {
        let mut broken = whole.clone();
        let from = 4 + whole.len() * tenth / 10;
        broken[from..from + whole.len() / 10].fill(0xff);
        fs::write(&path, &broken).expect("written");
        for query in &QUERIES[..3] {
            let error = fixture.run(query).expect_err("broken").strip_backtrace();
            assert!(error.contains("whole.parquet"), "{error}");
            assert_eq!(left_in_use(&fixture), 0, "{query}");
        }
        fs::write(&path, &whole).expect("written");
        fixture.check(QUERIES[0]);
    }
}

#[test]
fn a_query_dropped_while_it_reads_leaves_nothing() {
    let (fixture, _files) = setup("dropped");
    let mut dropped = 0;
    for microseconds in (0..10).map(|power| 1_000_u64 << power) {
        let time = Duration::from_micros(microseconds);
        match fixture.run_within(QUERIES[0], time) {
            Some(run) => drop(run.expect("an answer")),
            None => dropped += 1,
        }
        wait_until_idle(&fixture);
    }
    assert!(dropped > 2, "only {dropped} were dropped");
    fixture.check(QUERIES[0]);
}
