//! Folders that get more files: the device reads the new ones alone, and answers what DataFusion answers. Whatever happens to a folder, the
//! next query sees it, though its text has a plan.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use datafusion::error::DataFusionError;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::TryStreamExt;
use warpline::{DeviceChoice, PreparedQuery, WarplineSession};

use super::on_a_large_stack;

async fn session(folder: &Path) -> WarplineSession {
    let session = WarplineSession::builder()
        .device(DeviceChoice::Emulator)
        .set("warpline.min_rows", "0")
        .set("datafusion.execution.target_partitions", "2")
        .open()
        .await
        .expect("a session on the emulator");
    register(session.context(), folder).await;
    session
}

async fn register(context: &SessionContext, folder: &Path) {
    for table in ["keys", "facts"] {
        let path = folder.join(table).display().to_string();
        let options = ParquetReadOptions::default();
        let registered = context.register_parquet(table, path, options).await;
        registered.expect("a table");
    }
}

fn write(folder: &Path, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let columns = columns.into_iter().map(|(name, c)| (name, c, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
    std::fs::create_dir_all(folder).expect("a folder");
    let file = File::create(folder.join(name)).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a file");
}

fn keys(folder: &Path, name: &str, keys: &[i64]) {
    let texts = keys.iter().map(|k| Some(format!("key {}", k % 10)));
    write(
        &folder.join("keys"),
        name,
        vec![
            ("k", Arc::new(Int64Array::from(keys.to_vec()))),
            ("s", Arc::new(texts.collect::<StringArray>())),
        ],
    );
}

fn facts(folder: &Path, name: &str, from: i64, count: i64) {
    let all = from..from + count;
    let money = all
        .clone()
        .map(|i| (i % 9 > 0).then_some(i128::from(i) * 10_001 - 5_000));
    let money = money.collect::<Decimal128Array>();
    write(
        &folder.join("facts"),
        name,
        vec![
            (
                "k",
                Arc::new(all.clone().map(|i| Some(i % 40)).collect::<Int64Array>()),
            ),
            (
                "m",
                Arc::new(money.with_precision_and_scale(12, 2).expect("a type")),
            ),
            (
                "d",
                Arc::new(all.map(|i| Some(9_000 + i as i32)).collect::<Date32Array>()),
            ),
        ],
    );
}

const QUERIES: &[&str] = &[
    "SELECT count(*), count(m), sum(m), min(d), max(d) FROM facts",
    "SELECT k, sum(m), count(*) FROM facts GROUP BY k ORDER BY k",
    "SELECT s, sum(m), count(*) FROM facts JOIN keys USING (k) GROUP BY s ORDER BY s",
    "SELECT count(*) FROM facts WHERE k IN (SELECT k FROM keys)",
    "SELECT count(DISTINCT k), count(DISTINCT s), min(s), max(s) FROM keys",
    "SELECT d, m FROM facts WHERE m IS NOT NULL ORDER BY d DESC, m LIMIT 5",
    "SELECT k, s FROM keys ORDER BY k, s LIMIT 7",
];

/// Asks all, compares with a DataFusion that sees the files for the first time, and tells how many columns were loaded and grew.
async fn agree(session: &WarplineSession, folder: &Path) -> (u64, u64) {
    let oracle = SessionContext::new();
    register(&oracle, folder).await;
    let (mut loaded, mut grown) = (0, 0);
    for sql in QUERIES {
        let expected = oracle.sql(sql).await.expect(sql).collect().await;
        let run = session.query(sql).await.expect(sql);
        assert!(run.metrics.kernels >= 1, "{sql} ran on the CPU");
        assert!(run.metrics.fallbacks.is_empty(), "{sql}");
        let text =
            |batches: &[RecordBatch]| pretty_format_batches(batches).expect("text").to_string();
        assert_eq!(text(&run.batches), text(&expected.expect(sql)), "{sql}");
        loaded += run.metrics.columns_loaded;
        grown += run.metrics.columns_grown;
    }
    (loaded, grown)
}

#[test]
fn new_files_are_read_alone() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        keys(folder, "m.parquet", &(0..30).collect::<Vec<_>>());
        facts(folder, "m.parquet", 0, 200);
        let session = session(folder).await;
        assert_eq!(agree(&session, folder).await, (5, 0));
        assert_eq!(agree(&session, folder).await, (0, 0));

        facts(folder, "n.parquet", 200, 77);
        assert_eq!(agree(&session, folder).await, (0, 3));
        // A key twice, which plans over the first file knew not to be, and one that is new.
        keys(folder, "a.parquet", &[7, 31]);
        assert_eq!(agree(&session, folder).await, (0, 2));
        facts(folder, "a.parquet", 100_000, 5);
        keys(folder, "z.parquet", &[-5_000_000_000, 99]);
        let sql = format!("EXPLAIN ANALYZE {}", QUERIES[0]);
        let run = session.query(&sql).await.expect("a plan");
        let text = pretty_format_batches(&run.batches)
            .expect("text")
            .to_string();
        assert!(text.contains("columns_grown=2"), "{text}");
        assert_eq!(agree(&session, folder).await, (0, 3));

        // Rewritten, and gone.
        facts(folder, "n.parquet", 500, 10);
        assert_eq!(agree(&session, folder).await, (3, 0));
        std::fs::remove_file(folder.join("keys/m.parquet")).expect("a file less");
        assert_eq!(agree(&session, folder).await, (2, 0));
    });
}

/// One column of one row, in a file that was written at this second: files of equal numbers of digits have equal sizes.
fn number(path: &Path, value: i64, second: u64) {
    let folder = path.parent().expect("a folder");
    let name = path.file_name().expect("a name");
    let column: ArrayRef = Arc::new(Int64Array::from(vec![value]));
    write(folder, &name.to_string_lossy(), vec![("a", column)]);
    let file = File::options().write(true).open(path).expect("a file");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + second);
    file.set_modified(time).expect("a time");
}

async fn with_tables(tables: &[&str]) -> WarplineSession {
    let session = WarplineSession::builder()
        .device(DeviceChoice::Emulator)
        .set("warpline.min_rows", "0")
        .set(
            "datafusion.execution.listing_table_ignore_subdirectory",
            "false",
        )
        .open()
        .await
        .expect("a session on the emulator");
    for create in tables {
        session.query(create).await.expect(create);
    }
    session
}

/// The sum of all numbers, and whether the query had its plan already.
async fn sum(session: &WarplineSession, table: &str) -> (i64, bool) {
    let sql = format!("SELECT sum(a) AS s FROM {table} WHERE a > 0");
    let run = session.query(&sql).await.expect(&sql);
    assert!(run.metrics.kernels >= 1, "{sql} ran on the CPU");
    let sums = run.batches[0].column(0).as_primitive::<Int64Type>();
    (sums.value(0), run.metrics.plan_cached)
}

#[test]
fn whatever_happens_to_a_folder_is_seen_by_the_next_query() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("numbers");
        let at = |name: &str| root.join(name);
        number(&at("a.parquet"), 1, 0);
        number(&at("b.parquet"), 10, 0);
        let create = format!(
            "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}/'",
            root.display()
        );
        let session = with_tables(&[&create]).await;
        let expect = async |expected: i64, what: &str| {
            assert_eq!(sum(&session, "t").await, (expected, false), "{what}");
            for _ in 0..2 {
                assert_eq!(sum(&session, "t").await, (expected, true), "{what}");
            }
        };
        expect(11, "the files").await;
        number(&at("c.parquet"), 100, 0);
        expect(111, "a file more").await;
        let size = |name: &str| std::fs::metadata(at(name)).expect("a file").len();
        let before = size("c.parquet");
        number(&at("c.parquet"), 300, 1);
        assert_eq!(size("c.parquet"), before);
        expect(311, "rewritten in place, of equal size").await;
        number(&at("new"), 500, 2);
        assert_eq!(size("new"), before);
        std::fs::rename(at("new"), at("c.parquet")).expect("renamed");
        expect(511, "another file of its name and size").await;
        std::fs::remove_file(at("b.parquet")).expect("a file less");
        expect(501, "a file less").await;
        std::fs::rename(at("a.parquet"), at("a.txt")).expect("renamed");
        expect(500, "a file of another kind").await;
        number(&at("deep/er/d.parquet"), 1000, 0);
        expect(1500, "a folder in a folder").await;

        // Nothing that is read.
        std::fs::write(at("_SUCCESS"), "").expect("a file");
        std::fs::create_dir(at("empty")).expect("a folder");
        assert_eq!(sum(&session, "t").await, (1500, true));
        std::fs::remove_file(at("_SUCCESS")).expect("a file less");
        assert_eq!(sum(&session, "t").await, (1500, true));
        number(&at("empty/e.parquet"), 2000, 0);
        expect(3500, "a file in a folder that was empty").await;

        // The folder as a whole, by another one.
        let other = folder.path().join("other");
        number(&other.join("a.parquet"), 7, 3);
        std::fs::rename(&root, folder.path().join("old")).expect("renamed");
        std::fs::rename(&other, &root).expect("renamed");
        expect(7, "another folder of its name").await;
        std::fs::remove_file(at("a.parquet")).expect("a file less");
        std::os::unix::fs::symlink(folder.path().join("old"), at("link")).expect("a link");
        expect(3500, "a link to a folder").await;
        number(&folder.path().join("old/f.parquet"), 4, 0);
        expect(3504, "a file behind the link").await;
    });
}

#[test]
fn partitions_patterns_and_files_that_come_are_seen() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        number(&at("days/day=1/a.parquet"), 1, 0);
        number(&at("some/x1.parquet"), 1, 0);
        number(&at("some/y1.parquet"), 10, 0);
        number(&at("one.parquet"), 1, 0);
        let path = folder.path().display();
        let session = with_tables(&[
            &format!("CREATE EXTERNAL TABLE days STORED AS PARQUET PARTITIONED BY (day) LOCATION '{path}/days/'"),
            &format!("CREATE EXTERNAL TABLE xs STORED AS PARQUET LOCATION '{path}/some/x*.parquet'"),
            &format!("CREATE EXTERNAL TABLE one STORED AS PARQUET LOCATION '{path}/one.parquet'"),
        ])
        .await;
        let expect = async |table: &str, expected: i64| {
            assert_eq!(sum(&session, table).await, (expected, false), "{table}");
            assert_eq!(sum(&session, table).await, (expected, true), "{table}");
        };
        expect("days", 1).await;
        number(&at("days/day=2/b.parquet"), 2, 0);
        expect("days", 3).await;
        number(&at("days/day=2/c.parquet"), 3, 0);
        expect("days", 6).await;
        std::fs::remove_dir_all(at("days/day=1")).expect("a folder less");
        expect("days", 5).await;

        expect("xs", 1).await;
        number(&at("some/x2.parquet"), 2, 0);
        expect("xs", 3).await;
        number(&at("some/y2.parquet"), 20, 0);
        assert_eq!(sum(&session, "xs").await, (3, true));

        expect("one", 1).await;
        number(&at("one.parquet"), 5, 1);
        expect("one", 5).await;
    });
}

/// The plan cache has looked at the files of a plan that it finds: a run that follows at once does not look again, and answers as of
/// then. Any later one looks for itself.
#[test]
fn files_are_looked_at_once_for_a_plan_that_is_found() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("t/a.parquet");
        number(&file, 1, 0);
        let create = format!(
            "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}/t/'",
            folder.path().display()
        );
        let session = with_tables(&[&create]).await;
        let sql = "SELECT sum(a) AS s FROM t WHERE a > 0";
        session.query(sql).await.expect("an answer");
        let found = session
            .prepare(sql)
            .await
            .expect("a plan")
            .expect("a query");
        assert!(found.is_cached());
        let read = async |found: &PreparedQuery<'_>| {
            let rows: Vec<RecordBatch> = found.stream()?.try_collect().await?;
            Ok::<i64, DataFusionError>(rows[0].column(0).as_primitive::<Int64Type>().value(0))
        };
        number(&file, 5, 1);
        // By what was seen when it was prepared, or, some time later, by what there is.
        let first = read(&found).await.expect("an answer");
        assert!(first == 1 || first == 5, "{first}");
        // What was seen is good for one run.
        assert_eq!(read(&found).await.expect("an answer"), 5);
        found.finish();
        assert_eq!(sum(&session, "t").await, (5, false));
        let found = session
            .prepare(sql)
            .await
            .expect("a plan")
            .expect("a query");
        assert!(found.is_cached());
        std::fs::remove_file(&file).expect("a file less");
        if let Ok(first) = read(&found).await {
            assert_eq!(first, 5);
        }
        let gone = read(&found).await.expect_err("no file").to_string();
        assert!(gone.contains("a.parquet"), "{gone}");
    });
}
