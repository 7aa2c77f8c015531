//! Joins, group-bys and sorts whose rows neither device memory nor host memory has room for: they go to files, which go with
//! the query.

use std::fs;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, Decimal128Array, StringArray};
use arrow::datatypes::Int64Type;
use datafusion::error::DataFusionError;
use warpline_sql_tests::{Fixture, test_device};

use super::counter;
use crate::operators::support::{Nulls, drawn, primitive, row_numbers, strings};

const DEVICE_MEMORY: &str = "524288";
/// Less than groups and orders take.
const SHORT: &str = "262144";
/// Room for pieces of wide rows.
const WIDE_ROWS: &str = "1048576";
/// Room for the columns, and for less than half of what they are joined as.
const HOST_MEMORY: usize = 768 << 10;
const ROWS: usize = 20_000;

const JOINS: [&str; 5] = [
    "SELECT count(*) AS c, sum(x.id) AS a, sum(y.id) AS b, max(x.w) AS w, max(y.w) AS v, min(x.s) AS s \
     FROM large x JOIN large y ON x.l = y.l",
    "SELECT x.s, count(*) AS c, max(x.w) AS w, min(y.w) AS v FROM large x JOIN large y ON x.l = y.l AND x.id <> y.id GROUP BY x.s",
    // A third of the rows has no key, and all of them are in one partition.
    "SELECT count(*) AS c, sum(x.id) AS a, sum(y.id) AS b, max(y.w) AS w FROM large x LEFT JOIN large y ON x.l = y.l AND x.s = y.s",
    "SELECT x.s, count(*) AS c, count(y.id) AS d, max(x.w) AS w, min(y.w) AS v FROM large x LEFT JOIN large y ON x.l = y.l AND x.s = y.s GROUP BY x.s",
    // Keys of more bytes than partitions are made by.
    "SELECT count(*) AS c, sum(x.id) AS a, sum(y.m) AS b, max(y.id) AS w FROM large x JOIN large y ON x.l = y.l AND x.w = y.w",
];

/// Groups of keys of all kinds, with a host memory that their rows do not fit.
const GROUPS: [(&str, usize); 3] = [
    (
        "SELECT count(*) AS n, sum(c) AS c, max(w) AS w, min(a) AS a FROM \
         (SELECT m, count(*) AS c, max(w) AS w, sum(id) AS a FROM large GROUP BY m) g",
        640 << 10,
    ),
    (
        "SELECT m, count(*) AS c, sum(w) AS w, max(id) AS d FROM large GROUP BY m HAVING sum(id) % 50 = 7",
        640 << 10,
    ),
    (
        "SELECT s, count(*) AS n, max(c) AS c FROM (SELECT w, s, count(*) AS c, max(id) AS m FROM large GROUP BY w, s) g GROUP BY s",
        512 << 10,
    ),
];

/// Sorts whose output fits, and nothing else does.
const SORTS: [(&str, usize); 4] = [
    ("SELECT id FROM large ORDER BY w, id", 448 << 10),
    (
        "SELECT id FROM large ORDER BY l DESC NULLS LAST, id LIMIT 9000 OFFSET 5000",
        288 << 10,
    ),
    // Five keys: ranges of equal rows alone, which leave host memory to the output.
    ("SELECT s, id, m FROM large ORDER BY s", 540 << 10),
    (
        "SELECT id FROM large WHERE id % 5 <> 2 ORDER BY w, id DESC OFFSET 100",
        448 << 10,
    ),
];

/// Sorts of which not even the output fits.
const OUTPUTS: [(&str, usize); 3] = [
    (
        "SELECT id, m, m * 7 AS a, m * 3 + id AS b, m - id AS c, m * 5 AS d, m + 1 AS e, s FROM large ORDER BY m, id",
        480 << 10,
    ),
    (
        "SELECT id, l * 7 AS a, l * 3 + id AS b, l - id AS c, l * 5 AS d, l + 1 AS e FROM large ORDER BY l DESC NULLS LAST, id \
         LIMIT 15000 OFFSET 3000",
        480 << 10,
    ),
    // Text that the device has by number of row.
    (
        "SELECT id, t, m * 7 AS a, m * 3 + id AS b, m - id AS c, m * 5 AS d, m + 1 AS e FROM large ORDER BY m, id DESC",
        640 << 10,
    ),
];

fn columns() -> Vec<(&'static str, ArrayRef)> {
    let keys: Vec<i64> = (0..9973).map(|i| i << 40).collect();
    let words = ["", "a", "Bär", "日本語"];
    let wide = (0..ROWS).map(|i| (i as i128 - 7) << (i % 90));
    let wide = Decimal128Array::from_iter_values(wide).with_precision_and_scale(38, 2);
    vec![
        ("id", row_numbers(ROWS)),
        (
            "l",
            primitive::<Int64Type>(drawn(&keys, ROWS, Nulls::Some, 3)),
        ),
        (
            "m",
            primitive::<Int64Type>(drawn(&keys, ROWS, Nulls::None, 5)),
        ),
        ("s", strings(drawn(&words, ROWS, Nulls::Some, 4))),
        ("w", Arc::new(wide.expect("values that fit"))),
        (
            "t",
            Arc::new(StringArray::from_iter(
                (0..ROWS).map(|row| (row % 17 > 0).then(|| format!("日 {}", row / 2))),
            )),
        ),
    ]
}

fn fixture(settings: &[(&str, &str)]) -> Fixture {
    let host = HOST_MEMORY.to_string();
    let common = [
        ("warpline.device_memory", DEVICE_MEMORY),
        ("warpline.host_memory", host.as_str()),
        ("warpline.join", "triton"),
    ];
    let settings: Vec<_> = common.into_iter().chain(settings.iter().copied()).collect();
    Fixture::open(test_device(), true, &settings).table("large", columns())
}

/// The table with less device memory than its groups and orders take, and so much host memory.
fn short(host_memory: usize, settings: &[(&str, &str)]) -> Fixture {
    let host = host_memory.to_string();
    let common = [
        ("warpline.device_memory", SHORT),
        ("warpline.host_memory", host.as_str()),
    ];
    let settings: Vec<_> = common.into_iter().chain(settings.iter().copied()).collect();
    Fixture::open(test_device(), true, &settings).table("large", columns())
}

/// Right answers where rows go to files, none of which stays; without a directory there is no room, so that files it was.
#[track_caller]
fn check_short(parts: &str, device_memory: &str, queries: &[(&str, usize)]) {
    let folder = Folder::new(parts);
    let name = folder.path().to_str().expect("a name");
    for (sql, host_memory) in queries {
        let memory = ("warpline.device_memory", device_memory);
        let fixture = short(*host_memory, &[memory, ("warpline.spill_directory", name)]);
        for _ in 0..2 {
            let run = fixture.check(sql);
            assert!(run.metrics.spilled_bytes > 0, "{sql}");
            assert_eq!(files(folder.path()), 0, "{sql}");
        }
        assert!(counter(&fixture, sql, parts) > 1, "{sql}");
        let without = short(*host_memory, &[memory]);
        let error = without.block_on(without.session().query(sql));
        let error = error.expect_err(sql).to_string();
        assert!(error.contains("warpline.spill_directory"), "{error}");
    }
}

/// A directory that goes in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Tests that run at the same time may choose the same name.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpline-test-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).expect("a directory").count()
}

#[test]
fn rows_beyond_host_memory_go_to_files() {
    let folder = Folder::new("spilled");
    let path = folder.path().join("spill");
    // What a process left that has no number any more.
    fs::create_dir(&path).expect("a directory");
    let left = path.join(format!("warpline-{}-0.spill", u32::MAX));
    fs::write(&left, "rows").expect("a file");
    let name = path.to_str().expect("a name");
    let fixture = fixture(&[("warpline.spill_directory", name)]);
    for join in JOINS {
        for _ in 0..2 {
            // Without the directory there is no room: see below.
            let run = fixture.check(join);
            assert!(run.metrics.spilled_bytes > 0, "{join}");
            assert_eq!(files(&path), 0, "{join}");
        }
    }
    assert!(!left.exists());
}

#[test]
fn groups_beyond_host_memory_go_to_files() {
    check_short("group_parts", SHORT, &GROUPS);
}

#[test]
fn sorts_beyond_host_memory_go_to_files() {
    check_short("sort_parts", SHORT, &SORTS);
}

#[test]
fn output_of_sorts_beyond_host_memory_goes_to_files() {
    check_short("sort_parts", WIDE_ROWS, &OUTPUTS);
}

/// Somebody reads the first rows and goes away.
#[test]
fn a_file_of_output_goes_with_its_reader() {
    let folder = Folder::new("output-dropped");
    let name = folder.path().to_str().expect("a name");
    let (sql, host_memory) = OUTPUTS[0];
    let settings = [
        ("warpline.device_memory", WIDE_ROWS),
        ("warpline.spill_directory", name),
    ];
    let fixture = short(host_memory, &settings);
    let rows = fixture.block_on(async {
        let frame = fixture.session().context().sql(sql).await?;
        let mut stream = frame.execute_stream().await?;
        let first = poll_fn(|task| stream.as_mut().poll_next(task))
            .await
            .transpose()?;
        assert_eq!(files(folder.path()), 1);
        drop(stream);
        Ok::<_, DataFusionError>(first.map_or(0, |batch| batch.num_rows()))
    });
    assert!(rows.expect("rows") > 0);
    assert_eq!(files(folder.path()), 0);
}

/// Whatever call of the device fails: an error or the right answer, and no file stays.
#[test]
fn files_of_groups_and_sorts_go_when_queries_fail() {
    let folder = Folder::new("parts-failed");
    let name = folder.path().to_str().expect("a name");
    let rules = "download:random:3:0.02,launch:random:5:0.005,copy:random:7:0.005";
    for ((sql, host_memory), device_memory) in [
        (GROUPS[0], SHORT),
        (SORTS[0], SHORT),
        (OUTPUTS[0], WIDE_ROWS),
    ] {
        let settings = [
            ("warpline.device_memory", device_memory),
            ("warpline.spill_directory", name),
            ("warpline.inject_failures", rules),
        ];
        let fixture = short(host_memory, &settings);
        let mut failed = 0;
        for _ in 0..6 {
            failed += usize::from(fixture.block_on(fixture.session().query(sql)).is_err());
            assert_eq!(files(folder.path()), 0, "{sql}");
        }
        assert!(failed > 0, "nothing failed: {sql}");
    }
}

/// A call of the device fails now and then: an error or the right answer, and no file stays.
#[test]
fn files_go_when_queries_fail() {
    let folder = Folder::new("failed");
    let name = folder.path().to_str().expect("a name");
    let rules = "download:random:3:0.05,launch:random:5:0.01";
    let fixture = fixture(&[
        ("warpline.spill_directory", name),
        ("warpline.require_gpu", "true"),
        ("warpline.inject_failures", rules),
    ]);
    let mut failed = 0;
    for _ in 0..6 {
        failed += usize::from(fixture.block_on(fixture.session().query(JOINS[0])).is_err());
        assert_eq!(files(folder.path()), 0);
    }
    assert!(failed > 0, "nothing failed");
}

#[test]
fn without_a_directory_the_error_names_it() {
    let fixture = fixture(&[("warpline.require_gpu", "true")]);
    let error = fixture.block_on(fixture.session().query(JOINS[0]));
    let error = error.expect_err("no room").to_string();
    assert!(error.contains("warpline.spill_directory"), "{error}");
    let folder = Folder::new("error");
    let file = folder.path().join("file");
    fs::write(&file, "no directory").expect("a file");
    let name = file.to_str().expect("a name");
    let wrong = self::fixture(&[("warpline.spill_directory", name)]);
    let error = wrong.block_on(wrong.session().query(JOINS[0]));
    let error = error.expect_err("no directory").to_string();
    assert!(
        error.contains("could not be made") && error.contains("file"),
        "{error}"
    );
}
