//! Folders that get more files: the device reads the new ones alone, and answers what DataFusion answers.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use warpline::{DeviceChoice, WarplineSession};

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
