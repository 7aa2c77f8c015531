//! Kernels that begin while later row groups of their table are still decoded. The last row group of the last file is held back
//! for a while, so that whatever is done before it has been decoded is done early, on any machine.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use datafusion::parquet::file::statistics::Statistics;
use warpline::{DeviceChoice, WarplineSession};
use warpline_sql_tests::{Fixture, every, test_device};
use warpline_tpch::tables::Table;
use warpline_tpch::{QueryEngine, Scale};

use super::cancel::wait_until_idle;
use super::held::{Gate, register};
use super::{assert_right, left_in_use, sql};
use crate::larger::counter;
use crate::relational::tpch::with_tables;

/// Rows of each of the two files: their last row groups are not full.
const ROWS: usize = 40_013;
/// Rows of a row group.
const GROUP: usize = 3_000;
/// How long the last row group is held back: at first, and at most when that is too short for the machine.
const HELD: [Duration; 2] = [Duration::from_millis(125), Duration::from_secs(32)];

/// Over columns of which all is known once the first row group lies in its place.
const OVERLAPPED: [&str; 6] = [
    "SELECT k, w, count(*) AS n, sum(a) AS s, min(b) AS m, max(d) AS x FROM t GROUP BY k, w ORDER BY k, w",
    "SELECT count(*) AS n, sum(d) AS s, sum(b) AS b, avg(f) AS f FROM t WHERE b < 50000 AND w = 'x'",
    "SELECT a, b, w FROM t WHERE a % 9973 = 5 ORDER BY a",
    "SELECT b, count(*) AS n, sum(k) AS s FROM t GROUP BY b ORDER BY n DESC, b LIMIT 7",
    "SELECT s.name, count(*) AS n, sum(t.a) AS a FROM t JOIN s ON t.k = s.k GROUP BY s.name ORDER BY s.name",
    "SELECT a / 4 AS q, sum(b) AS b FROM t GROUP BY a / 4 ORDER BY b DESC, q LIMIT 9",
];
/// With columns that are laid out at the end: these wait for all rows.
const LATE: [&str; 3] = [
    "SELECT k, sum(gaps) AS s, count(gaps) AS n FROM t GROUP BY k ORDER BY k",
    "SELECT count(*) AS n FROM t WHERE flag AND k < 3",
    "SELECT a, text FROM t WHERE text LIKE '%7777%' ORDER BY a",
];
/// Over strings of which the last row group has one that no other has.
const SURPRISED: &str =
    "SELECT late, count(*) AS n, sum(a) AS s FROM t GROUP BY late ORDER BY late";

/// A folder of files, which goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("warpline-overlap-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// The files are other ones from now on: columns that are kept are not theirs.
    fn touch(&self) {
        for file in fs::read_dir(&self.0).expect("a folder") {
            let path = file.expect("a file").path();
            let bytes = fs::read(&path).expect("the file");
            fs::write(&path, bytes).expect("written");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A session with the table `t` of two files, the table `s` of few rows, and the gate before the last row group of `t`.
struct Setup {
    fixture: Fixture,
    folder: Folder,
    gate: Arc<Gate>,
    /// How long the last row group is held back, so that this machine begins early.
    held: Cell<Duration>,
}

impl Setup {
    fn new(name: &str, settings: &[(&str, &str)]) -> Self {
        Self::of(Fixture::open(test_device(), true, settings), name)
    }

    fn of(fixture: Fixture, name: &str) -> Self {
        let folder = Folder::new(name);
        let setup = Self {
            fixture,
            folder,
            gate: Arc::default(),
            held: Cell::new(HELD[0]),
        };
        for (file, first) in [("a.parquet", 1), ("z.parquet", ROWS + 1)] {
            setup.write(file, first);
        }
        let fixture = &setup.fixture;
        fixture.set("datafusion.optimizer.repartition_file_min_size", "1");
        let sql =
            "CREATE TABLE s AS SELECT value AS k, 'n' || value AS name FROM generate_series(0, 6)";
        fixture.run(sql).expect("a table");
        setup.register();
        setup
    }

    fn write(&self, file: &str, first: usize) {
        let rows = format!(
            "SELECT value AS a, value * 7919 % 100000 AS b, value % 7 AS k, \
             CASE value % 3 WHEN 0 THEN 'x' WHEN 1 THEN 'yy' ELSE 'größer' END AS w, \
             CAST(value % 1000 AS DECIMAL(12, 2)) AS d, CAST(value AS DOUBLE) / 7 AS f, \
             CASE WHEN value % 5 = 0 THEN NULL ELSE value % 1000 END AS gaps, \
             value % 11 < 4 AS flag, 'text ' || value AS text, \
             CASE WHEN value > {} THEN 'never before' ELSE 'as ever' END AS late \
             FROM generate_series({first}, {})",
            2 * ROWS - 3,
            first + ROWS - 1
        );
        let sql = format!(
            "COPY ({rows}) TO '{}' STORED AS PARQUET OPTIONS ('format.max_row_group_size' '{GROUP}')",
            self.file(file).display()
        );
        let made = self.fixture.block_on(async {
            let frame = self.fixture.session().reference().sql(&sql).await?;
            frame.collect().await
        });
        made.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    /// The table anew, as its files are now.
    fn register(&self) {
        let location = format!("{}/", self.folder.0.display());
        register(&self.fixture, &self.gate, "t", &location);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    /// Columns that are kept are those of older files from now on.
    fn cool(&self) {
        left_in_use(&self.fixture);
        self.folder.touch();
    }

    /// Launches before the last row group was decoded, in a run that finds no columns.
    fn early_strides(&self, sql: &str) -> u64 {
        self.cool();
        self.gate.close(self.held.get());
        let strides = counter(&self.fixture, sql, "early_strides");
        assert!(self.gate.came() > 0, "nobody was held back: {sql}");
        self.gate.open();
        strides
    }

    /// The device's answer with the last row group held back is that of the CPU.
    #[track_caller]
    fn check(&self, sql: &str) {
        let expected = self.fixture.expect(sql);
        self.cool();
        self.gate.close(self.held.get());
        let run = self.fixture.run(sql);
        assert!(self.gate.came() > 0, "nobody was held back: {sql}");
        self.gate.open();
        assert_right(&expected, &run.expect("an answer"), "early");
        // Over resident columns.
        let run = self.fixture.run(sql).expect("an answer");
        assert_right(&expected, &run, "again");
    }

    /// The query begins before, if need be after a longer wait; that is how long the last row group is held back from then on.
    #[track_caller]
    fn assert_overlaps(&self, sql: &str) {
        while self.early_strides(sql) == 0 {
            assert!(self.held.get() < HELD[1], "{sql}");
            self.held.set(2 * self.held.get());
        }
    }

    /// The query waits for all rows, where others have begun.
    #[track_caller]
    fn assert_late(&self, sql: &str) {
        assert_eq!(self.early_strides(sql), 0, "{sql}");
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.gate.open();
    }
}

#[test]
fn kernels_run_before_the_last_row_group_is_decoded() {
    let setup = Setup::new("kernels", &[]);
    for sql in OVERLAPPED {
        setup.assert_overlaps(sql);
        setup.check(sql);
    }
    for sql in LATE {
        setup.check(sql);
        setup.assert_late(sql);
    }
    setup.fixture.set("warpline.overlap_load", "false");
    setup.check(OVERLAPPED[0]);
    setup.assert_late(OVERLAPPED[0]);
    assert_eq!(left_in_use(&setup.fixture), 0);
}

/// All queries of TPC-H over files, in row groups that take their time.
#[test]
fn queries_begin_while_their_largest_table_comes() {
    /// Rows of a row group.
    const GROUP: usize = 4_000;
    let fixture = Fixture::open(test_device(), true, &[]);
    let fixture = with_tables(fixture, Scale::new(0.01).expect("a scale"));
    let folder = Folder::new("tpch");
    let gate = Arc::default();
    for table in Table::ALL {
        let name = table.name();
        let path = folder.0.join(format!("{name}.parquet"));
        let copy = format!(
            "COPY {name} TO '{}' STORED AS PARQUET OPTIONS ('format.max_row_group_size' '{GROUP}')",
            path.display()
        );
        let made = fixture.block_on(async {
            let frame = fixture.session().reference().sql(&copy).await?;
            frame.collect().await
        });
        made.expect("a file");
        register(&fixture, &gate, name, &path.display().to_string());
    }
    fixture.set("datafusion.optimizer.repartition_file_min_size", "1");
    let mut early = 0;
    for number in 1..=22 {
        let sql = sql(number);
        let expected = fixture.expect(&sql);
        gate.slow_down(Duration::from_millis(20));
        // Kernels are compiled in the first run.
        for when in ["cold", "compiled"] {
            folder.touch();
            let run = fixture
                .run(&sql)
                .unwrap_or_else(|error| panic!("Q{number}: {error}"));
            assert_right(&expected, &run, &format!("Q{number} {when}"));
        }
        folder.touch();
        // A view is no query.
        if number != 15 {
            early += usize::from(counter(&fixture, &sql, "early_strides") > 0);
        }
        gate.slow_down(Duration::ZERO);
    }
    // How many depends on how fast the device and its compiler are.
    let least = match test_device() {
        DeviceChoice::Emulator => 6,
        _ => 1,
    };
    assert!(early >= least, "{early} of 21 queries began early");
    assert_eq!(left_in_use(&fixture), 0);
}

#[test]
fn columns_in_host_memory_are_fetched_as_their_rows_come() {
    let setup = Setup::new("host", &[("warpline.device_memory", "524288")]);
    for sql in &OVERLAPPED[..2] {
        setup.assert_overlaps(sql);
        setup.check(sql);
        let run = setup.fixture.check(sql);
        assert!(run.metrics.streamed_bytes > 0, "{sql}");
    }
    assert_eq!(left_in_use(&setup.fixture), 0);
}

/// The file with other statistics of the numbers in some column.
fn tell(path: &Path, column: &str, told: &Statistics) {
    let bytes = fs::read(path).expect("the file");
    let file = fs::File::open(path).expect("the file");
    let metadata: ParquetMetaData = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .expect("metadata");
    let groups = metadata.row_groups().iter().map(|group| {
        let mut columns = group.columns().to_vec();
        let named = columns
            .iter()
            .position(|c| c.column_path().string() == column);
        let at = named.expect("the column");
        let changed = columns[at].clone().into_builder();
        columns[at] = changed
            .set_statistics(told.clone())
            .build()
            .expect("statistics");
        let group = group.clone().into_builder().set_column_metadata(columns);
        group.build().expect("a row group")
    });
    let groups = groups.collect();
    let metadata = metadata.into_builder().set_row_groups(groups).build();
    let end = bytes.len() - 8;
    let length = bytes[end..end + 4].try_into().expect("four bytes");
    let footer = u32::from_le_bytes(length) as usize;
    let mut changed = bytes[..end - footer].to_vec();
    ParquetMetaDataWriter::new(&mut changed, &metadata)
        .finish()
        .expect("written");
    fs::write(path, changed).expect("written");
}

#[test]
fn what_turns_out_otherwise_is_gone_over_again() {
    let setup = Setup::new("otherwise", &[]);
    setup.assert_overlaps(OVERLAPPED[0]);
    // Its groups are found early, by a dictionary without the last string.
    setup.check(SURPRISED);
    setup.assert_late(SURPRISED);
    let told = [
        // Too narrow; the width is right, but values lie outside.
        (
            "k",
            Statistics::int64(Some(2), Some(3), None, Some(0), false),
        ),
        // There are NULLs.
        (
            "gaps",
            Statistics::int64(Some(1), Some(999), None, Some(0), false),
        ),
        // Wider than the values are.
        (
            "k",
            Statistics::int64(Some(-(1 << 40)), Some(1 << 40), None, Some(0), false),
        ),
    ];
    for (column, told) in told {
        for file in ["a.parquet", "z.parquet"] {
            tell(&setup.file(file), column, &told);
        }
        setup.register();
        let sql = if column == "k" {
            OVERLAPPED[4]
        } else {
            LATE[0]
        };
        setup.check(sql);
        assert_eq!(setup.early_strides(sql), 0, "{column}: {told:?}");
        for (file, first) in [("a.parquet", 1), ("z.parquet", ROWS + 1)] {
            setup.write(file, first);
        }
        setup.register();
    }
    assert_eq!(left_in_use(&setup.fixture), 0);
}

#[test]
fn a_last_row_group_that_is_broken_ends_the_query_with_its_file() {
    let setup = Setup::new("broken", &[]);
    let path = setup.file("z.parquet");
    let whole = fs::read(&path).expect("the file");
    let file = fs::File::open(&path).expect("the file");
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file);
    let metadata = metadata.expect("metadata");
    let last = metadata.row_groups().last().expect("row groups");
    let ranges: Vec<(u64, u64)> = last.columns().iter().map(|c| c.byte_range()).collect();
    let mut broken = whole.clone();
    for (start, bytes) in ranges {
        broken[start as usize..(start + bytes) as usize].fill(0xff);
    }
    for sql in OVERLAPPED {
        setup.assert_overlaps(sql);
        fs::write(&path, &broken).expect("written");
        left_in_use(&setup.fixture);
        setup.gate.close(setup.held.get());
        let error = setup
            .fixture
            .run(sql)
            .expect_err("broken")
            .strip_backtrace();
        assert!(setup.gate.came() > 0, "{sql}");
        setup.gate.open();
        assert!(error.contains("z.parquet"), "{error}");
        assert_eq!(left_in_use(&setup.fixture), 0, "{sql}");
        fs::write(&path, &whole).expect("written");
    }
    setup.check(OVERLAPPED[0]);
}

#[test]
fn a_query_dropped_while_rows_come_leaves_nothing() {
    let setup = Setup::new("dropped", &[]);
    // Compiled by now.
    setup.check(OVERLAPPED[0]);
    for milliseconds in [5, 50, 200, 400, 800] {
        setup.cool();
        setup.gate.close(HELD[1]);
        let time = Duration::from_millis(milliseconds);
        let run = setup.fixture.run_within(OVERLAPPED[0], time);
        assert!(run.is_none(), "over before its last row group came");
        setup.gate.open();
        wait_until_idle(&setup.fixture);
    }
    setup.check(OVERLAPPED[0]);
}

#[test]
fn sessions_that_read_a_table_at_once_get_it_once() {
    let setup = Setup::new("sessions", &[]);
    let fixture = &setup.fixture;
    let all: Vec<_> = OVERLAPPED.iter().map(|sql| fixture.expect(sql)).collect();
    let device = fixture.session().device();
    let context = fixture.session().context();
    let mut sessions = vec![];
    for _ in 0..2 {
        let session = fixture.block_on(async {
            let session = WarplineSession::builder()
                .shared_device(device)
                .require_gpu(true)
                .set("warpline.min_rows", "0")
                .set("datafusion.optimizer.repartition_file_min_size", "1")
                .open()
                .await
                .expect("a session");
            for table in ["t", "s"] {
                let provider = context.table_provider(table).await.expect("a table");
                let other = session.context();
                other.register_table(table, provider).expect("registered");
            }
            session
        });
        sessions.push(Arc::new(session));
    }
    setup.assert_overlaps(OVERLAPPED[0]);
    for _ in 0..2 {
        setup.cool();
        setup.gate.close(setup.held.get());
        let runs = fixture.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for (number, expected) in all.iter().enumerate() {
                let session = Arc::clone(&sessions[number % 2]);
                let sql = expected.sql.clone();
                tasks.spawn(async move { (number, session.run(&sql).await) });
            }
            tasks.join_all().await
        });
        assert!(setup.gate.came() > 0, "nobody was held back");
        setup.gate.open();
        for (number, run) in runs {
            assert_right(&all[number], &run.expect("an answer"), "at once");
        }
        for session in &sessions {
            session.clear_plan_cache();
        }
    }
    assert_eq!(left_in_use(fixture), 0);
}

/// Each kind of failure at every place of the query, while its row groups take their time.
#[track_caller]
fn check_failures(name: &str, sql: &str) {
    let relaxed = Fixture::open(test_device(), false, &[("warpline.min_rows", "0")]);
    let setup = Setup::of(relaxed, name);
    let fixture = &setup.fixture;
    let expected = fixture.expect(sql);
    setup.gate.slow_down(Duration::from_millis(3));
    let mut all = 0;
    for kind in ["allocate", "upload", "copy", "launch", "stop"] {
        for nth in (1..1000).step_by(every(4)) {
            setup.cool();
            let rule = format!("{kind}:{nth}");
            fixture.set("warpline.inject_failures", &rule);
            match fixture.run(sql) {
                Ok(run) => assert_right(&expected, &run, &rule),
                Err(error) => {
                    let error = error.strip_backtrace();
                    let stopped = error.contains("the query was stopped");
                    assert!(kind == "stop" && stopped, "{rule}: {error}");
                }
            }
            let injected = fixture.session().injected_failures();
            fixture.set("warpline.inject_failures", "");
            assert_eq!(left_in_use(fixture), 0, "{rule}");
            all += injected;
            if injected == 0 {
                break;
            }
        }
    }
    assert!(all > 5, "{all} failures");
}

#[test]
fn failures_while_rows_of_groups_come_do_no_harm() {
    check_failures("failures-groups", OVERLAPPED[0]);
}

#[test]
fn failures_while_rows_of_a_join_come_do_no_harm() {
    check_failures("failures-join", OVERLAPPED[4]);
}

#[test]
fn failures_before_a_surprise_do_no_harm() {
    check_failures("failures-surprise", SURPRISED);
}
