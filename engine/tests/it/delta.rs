//! Tables of Delta Lake: what the device answers is what the crate of Delta Lake reads, at every version.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use datafusion::logical_expr::{col, lit};
use datafusion::prelude::SessionContext;
use deltalake_core::protocol::SaveMode;
use deltalake_core::{DeltaTable, DeltaTableBuilder};
use tempfile::TempDir;
use url::Url;
use warpline::{DeltaOptions, DeviceChoice, WarplineSession};

use super::{Outcome, on_a_large_stack, run};

async fn session() -> WarplineSession {
    WarplineSession::builder()
        .device(DeviceChoice::Emulator)
        .set("warpline.min_rows", "0")
        // What the crate of Delta Lake scans itself is an input, which is priced.
        .set("warpline.reentry", "on")
        .set("datafusion.execution.target_partitions", "2")
        .open()
        .await
        .expect("a session on the emulator")
}

/// Rows from `from` on: every fifth key and every third text is NULL.
fn rows(from: i64, count: i64) -> RecordBatch {
    let all = from..from + count;
    let key = all.clone().map(|i| (i % 5 != 0).then_some(i));
    let text = all
        .clone()
        .map(|i| (i % 3 != 0).then(|| format!("t{}", i % 7)));
    let part = all.clone().map(|i| (i % 4 != 3).then_some((i % 4) as i32));
    let columns: [(&str, ArrayRef); 5] = [
        ("k", Arc::new(key.collect::<Int64Array>())),
        ("p", Arc::new(part.collect::<Int32Array>())),
        ("s", Arc::new(text.collect::<StringArray>())),
        (
            "f",
            Arc::new(
                all.clone()
                    .map(|i| Some(i as f64 / 4.0))
                    .collect::<Float64Array>(),
            ),
        ),
        (
            "d",
            Arc::new(all.map(|i| Some(i as i32)).collect::<Date32Array>()),
        ),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("a batch")
}

fn unloaded(folder: &Path) -> DeltaTable {
    let url = Url::from_directory_path(folder).expect("a location");
    let builder = DeltaTableBuilder::from_url(url).expect("a builder");
    builder.build().expect("a table")
}

/// Writes a version; the first one makes the table.
async fn write(folder: &Path, batch: RecordBatch, partitions: &[&str], mode: SaveMode) {
    let mut table = unloaded(folder);
    if folder.join("_delta_log").exists() {
        table.load().await.expect("a table");
    }
    let written = table.write([batch]).with_save_mode(mode);
    let written = match partitions {
        [] => written,
        columns => written.with_partition_columns(columns.to_vec()),
    };
    written.await.expect("a version");
}

async fn create(session: &WarplineSession, name: &str, folder: &Path, rest: &str) {
    let folder = folder.display();
    let sql =
        format!("CREATE EXTERNAL TABLE {name} STORED AS DELTATABLE LOCATION '{folder}' {rest}");
    session.context().sql(&sql).await.expect(&sql);
}

/// A table of one version in a folder of its own, and a session that has it as `t`.
async fn with_table(batch: RecordBatch, partitions: &[&str]) -> (TempDir, WarplineSession) {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), batch, partitions, SaveMode::ErrorIfExists).await;
    let session = session().await;
    create(&session, "t", folder.path(), "").await;
    (folder, session)
}

/// What the crate of Delta Lake itself answers, on the CPU.
async fn oracle(folder: &Path, version: Option<u64>, name: &str, sql: &str) -> String {
    let mut table = unloaded(folder);
    match version {
        Some(version) => table.load_version(version).await.expect("a version"),
        None => table.load().await.expect("a table"),
    }
    let context = SessionContext::new();
    let provider = table.table_provider().await.expect("a provider");
    context.register_table(name, provider).expect("registered");
    let batches = context.sql(sql).await.expect(sql).collect().await;
    pretty_format_batches(&batches.expect(sql))
        .expect("text")
        .to_string()
}

/// The answer of the device, and what its columns cost. Nothing is left to the CPU.
async fn answer(session: &WarplineSession, sql: &str) -> (String, usize) {
    let run = session.query(sql).await.expect(sql);
    assert!(run.metrics.kernels >= 1, "{sql} ran on the CPU");
    assert!(
        run.metrics.fallbacks.is_empty(),
        "{sql}: {:?}",
        run.metrics.fallbacks
    );
    let text = pretty_format_batches(&run.batches)
        .expect("text")
        .to_string();
    (text, run.metrics.columns_loaded as usize)
}

const QUERIES: &[&str] = &[
    "SELECT p, count(*), count(k), count(p), sum(k), min(s), max(s), min(d), max(f) FROM t GROUP BY p ORDER BY p",
    "SELECT s, sum(k), count(*) FROM t WHERE k > 3 GROUP BY s ORDER BY s",
    "SELECT sum(f) FROM t WHERE p = 1",
    "SELECT count(k) FROM t WHERE p IS NULL",
    "SELECT a.k, b.s FROM t a JOIN t b ON a.k = b.k WHERE b.p <> 2 ORDER BY a.k, b.s LIMIT 7",
];

async fn agree(session: &WarplineSession, folder: &Path, version: Option<u64>) {
    for sql in QUERIES {
        let expected = oracle(folder, version, "t", sql).await;
        assert_eq!(answer(session, sql).await.0, expected, "{sql}");
    }
}

#[test]
fn versions_of_a_growing_table() {
    on_a_large_stack(async || {
        let (folder, session) = with_table(rows(0, 100), &[]).await;
        let folder = folder.path();
        agree(&session, folder, Some(0)).await;

        // Columns stay while the files do, and so do plans.
        let sum = "SELECT sum(k), count(s) FROM t WHERE d IS NOT NULL";
        answer(&session, sum).await;
        let again = session.query(sum).await.expect(sum);
        assert_eq!(again.metrics.columns_loaded, 0);
        assert!(again.metrics.plan_cached);
        create(&session, "same", folder, "").await;
        let (_, loaded) = answer(
            &session,
            "SELECT sum(k), count(s) FROM same WHERE d IS NOT NULL",
        )
        .await;
        assert_eq!(loaded, 0);

        // Appended rows are seen by the next query, which reads them alone.
        write(folder, rows(100, 33), &[], SaveMode::Append).await;
        let grown = session.query(sum).await.expect(sum);
        assert!(!grown.metrics.plan_cached);
        let counts = (grown.metrics.columns_loaded, grown.metrics.columns_grown);
        assert_eq!(counts, (0, 3));
        agree(&session, folder, Some(1)).await;

        // A file is written anew, with fewer rows.
        let mut table = unloaded(folder);
        table.load().await.expect("a table");
        let delete = table
            .delete()
            .with_predicate(col("k").gt(lit(40)).and(col("k").lt(lit(90))));
        let (_, metrics) = delete.await.expect("a delete");
        assert!(metrics.num_deleted_rows.unwrap_or_default() > 30);
        agree(&session, folder, Some(2)).await;

        // All of them are.
        write(folder, rows(7, 40), &[], SaveMode::Overwrite).await;
        agree(&session, folder, Some(3)).await;

        // The past is there, beside the present.
        for version in 0..4 {
            let name = format!("t{version}");
            create(
                &session,
                &name,
                folder,
                &format!("OPTIONS('version' '{version}')"),
            )
            .await;
            let sql = format!("SELECT count(k), sum(k), max(d) FROM {name} WHERE f >= 0");
            let expected = oracle(folder, Some(version), &name, &sql).await;
            assert_eq!(answer(&session, &sql).await.0, expected);
        }
        let far = "OPTIONS('timestamp' '2200-01-01 00:00:00')";
        create(&session, "last", folder, far).await;
        let expected = oracle(folder, Some(3), "last", "SELECT sum(k) FROM last").await;
        assert_eq!(
            answer(&session, "SELECT sum(k) FROM last").await.0,
            expected
        );
    });
}

#[test]
fn partition_columns_are_values_of_files() {
    on_a_large_stack(async || {
        let (folder, session) = with_table(rows(0, 90), &["p"]).await;
        let folder = folder.path();
        agree(&session, folder, None).await;
        write(folder, rows(90, 31), &["p"], SaveMode::Append).await;
        agree(&session, folder, None).await;

        let texts = tempfile::tempdir().expect("a folder");
        let texts = texts.path();
        write(texts, rows(0, 64), &["s", "d"], SaveMode::ErrorIfExists).await;
        create(&session, "u", texts, "").await;
        for sql in [
            "SELECT s, count(*), sum(k), min(d) FROM u GROUP BY s ORDER BY s",
            "SELECT sum(k) FROM u WHERE s = 't2' AND d > DATE '1970-01-10'",
            "SELECT count(k) FROM u WHERE s IS NULL",
        ] {
            let expected = oracle(texts, None, "u", sql).await;
            assert_eq!(answer(&session, sql).await.0, expected, "{sql}");
        }
    });
}

/// A table whose second version has a deletion vector: that of the protocol's own example, of rows 3, 4, 7, 11, 18 and 29.
async fn with_deletion_vector(folder: &Path) {
    let file = folder.join("part.parquet");
    let context = SessionContext::new();
    let frame = context.read_batch(rows(0, 40)).expect("rows");
    let options = datafusion::dataframe::DataFrameWriteOptions::new();
    let written = frame
        .write_parquet(&file.display().to_string(), options, None)
        .await;
    written.expect("a file");
    let size = std::fs::metadata(&file).expect("a file").len();
    let log = folder.join("_delta_log");
    std::fs::create_dir(&log).expect("a log");
    let column = |name: &str, kind: &str| {
        format!(
            r#"{{\"name\":\"{name}\",\"type\":\"{kind}\",\"nullable\":true,\"metadata\":{{}}}}"#
        )
    };
    let columns = [
        ("k", "long"),
        ("p", "integer"),
        ("s", "string"),
        ("f", "double"),
        ("d", "date"),
    ];
    let columns = columns.map(|(name, kind)| column(name, kind)).join(",");
    let stats = r#""stats":"{\"numRecords\":40}""#;
    let add = format!(
        r#""path":"part.parquet","partitionValues":{{}},"size":{size},"modificationTime":1700000000000,"dataChange":true,{stats}"#
    );
    let protocol = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}"#;
    let metadata = format!(
        r#"{{"metaData":{{"id":"5fba94ed-9794-4965-ba6e-6ee3c0d22af9","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{{\"type\":\"struct\",\"fields\":[{columns}]}}","partitionColumns":[],"configuration":{{"delta.enableDeletionVectors":"true"}},"createdTime":1700000000000}}}}"#
    );
    let vector = r#""deletionVector":{"storageType":"i","pathOrInlineDv":"^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L","sizeInBytes":44,"cardinality":6}"#;
    let put = |version: u64, text: String| {
        std::fs::write(log.join(format!("{version:020}.json")), text).expect("a version");
    };
    put(
        0,
        format!("{protocol}\n{metadata}\n{{\"add\":{{{add}}}}}\n"),
    );
    put(
        1,
        format!(
            "{{\"remove\":{{\"path\":\"part.parquet\",\"dataChange\":true,\"deletionTimestamp\":1700000000001}}}}\n{{\"add\":{{{add},{vector}}}}}\n"
        ),
    );
}

#[test]
fn rows_of_deletion_vectors_are_not_seen() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        with_deletion_vector(folder).await;
        let session = session().await;
        create(&session, "t", folder, "").await;
        agree(&session, folder, None).await;
        let rows = "SELECT k, d FROM t WHERE d < DATE '1970-01-13' ORDER BY d";
        let (text, _) = answer(&session, rows).await;
        assert_eq!(text, oracle(folder, None, "t", rows).await);
        assert!(!text.contains("1970-01-04"), "{text}");
        // Its columns stay.
        let (_, loaded) = answer(&session, "SELECT sum(k) FROM t").await;
        assert_eq!(loaded, 0);
        let count = session
            .query("SELECT count(*) FROM t")
            .await
            .expect("a count");
        assert_eq!(
            count.batches[0]
                .column(0)
                .as_primitive::<Int64Type>()
                .value(0),
            34
        );
        // The version before has the rows, of the same file; both stay.
        create(&session, "before", folder, "OPTIONS('version' '0')").await;
        let sql = "SELECT sum(k), count(d), min(d) FROM before";
        assert_eq!(
            answer(&session, sql).await.0,
            oracle(folder, Some(0), "before", sql).await
        );
        assert_eq!(answer(&session, "SELECT sum(k) FROM t").await.1, 0);
        // The CPU reads what the device does.
        let reference = session.reference();
        for sql in QUERIES {
            let batches = reference
                .sql(sql)
                .await
                .expect(sql)
                .collect()
                .await
                .expect(sql);
            let text = pretty_format_batches(&batches).expect("text").to_string();
            assert_eq!(text, oracle(folder, None, "t", sql).await, "{sql}");
        }
        // A plan that travels would lose the choice of rows.
        let plan = reference.sql("SELECT k FROM t").await.expect("a query");
        let plan = plan.create_physical_plan().await.expect("a plan");
        let bytes = datafusion_proto::bytes::physical_plan_to_bytes(plan);
        assert!(bytes.is_err(), "a choice of rows was lost");
    });
}

/// Columns have other names in the files: the crate of Delta Lake reads them, and the device computes.
#[test]
fn columns_with_other_names_in_files() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let file = folder.join("part.parquet");
        let context = SessionContext::new();
        let frame = context.sql("SELECT column1 AS \"col-1\", column2 AS \"col-2\" FROM (VALUES (1, 'a'), (2, NULL), (NULL, 'a'))");
        let frame = frame.await.expect("rows");
        let options = datafusion::dataframe::DataFrameWriteOptions::new();
        let written = frame
            .write_parquet(&file.display().to_string(), options, None)
            .await;
        written.expect("a file");
        let size = std::fs::metadata(&file).expect("a file").len();
        let column = |id: u8, name: &str, kind: &str| {
            format!(
                r#"{{\"name\":\"{name}\",\"type\":\"{kind}\",\"nullable\":true,\"metadata\":{{\"delta.columnMapping.id\":{id},\"delta.columnMapping.physicalName\":\"col-{id}\"}}}}"#
            )
        };
        let columns = [column(1, "x", "long"), column(2, "name", "string")].join(",");
        let log = folder.join("_delta_log");
        std::fs::create_dir(&log).expect("a log");
        let text = format!(
            r#"{{"protocol":{{"minReaderVersion":2,"minWriterVersion":5}}}}
{{"metaData":{{"id":"5fba94ed-9794-4965-ba6e-6ee3c0d22af9","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{{\"type\":\"struct\",\"fields\":[{columns}]}}","partitionColumns":[],"configuration":{{"delta.columnMapping.mode":"name","delta.columnMapping.maxColumnId":"2"}},"createdTime":1700000000000}}}}
{{"add":{{"path":"part.parquet","partitionValues":{{}},"size":{size},"modificationTime":1700000000000,"dataChange":true,"stats":"{{\"numRecords\":3}}"}}}}
"#
        );
        std::fs::write(log.join("00000000000000000000.json"), text).expect("a version");
        let session = session().await;
        create(&session, "t", folder, "").await;
        for sql in [
            "SELECT name, sum(x), count(*) FROM t GROUP BY name ORDER BY name",
            "SELECT sum(x) FROM t WHERE name = 'a'",
        ] {
            let expected = oracle(folder, None, "t", sql).await;
            assert_eq!(answer(&session, sql).await.0, expected, "{sql}");
        }
    });
}

#[test]
fn rows_are_inserted_by_the_cpu() {
    on_a_large_stack(async || {
        let (folder, session) = with_table(rows(0, 50), &["p"]).await;
        let folder = folder.path();
        create(&session, "past", folder, "OPTIONS('version' '0')").await;
        let insert = "INSERT INTO t SELECT k + 1000, p, s, f, d FROM t WHERE k < 20";
        session.query(insert).await.expect(insert);
        agree(&session, folder, Some(1)).await;
        let values = "INSERT INTO t VALUES (5000, 2, 'new', 1.5, DATE '2026-01-31')";
        session.query(values).await.expect(values);
        agree(&session, folder, Some(2)).await;
        let error = session
            .query("INSERT INTO past VALUES (1, 2, 'n', 1.5, NULL)")
            .await;
        let error = error.expect_err("the past").to_string();
        assert!(error.contains("a version of the past"), "{error}");
    });
}

#[test]
fn the_log_decides_about_columns() {
    on_a_large_stack(async || {
        let (folder, session) = with_table(rows(0, 20), &[]).await;
        let folder = folder.path();
        let mut table = unloaded(folder);
        table.load().await.expect("a table");
        let wider = rows(20, 13);
        let mut columns: Vec<(String, ArrayRef)> = wider
            .schema()
            .fields()
            .iter()
            .zip(wider.columns())
            .map(|(field, column)| (field.name().clone(), Arc::clone(column)))
            .collect();
        columns.push(("new".into(), Arc::new(Int64Array::from(vec![7; 13]))));
        let wider = RecordBatch::try_from_iter(columns).expect("a batch");
        let write = table
            .write([wider])
            .with_schema_mode(deltalake_core::operations::write::SchemaMode::Merge);
        write.await.expect("a version");
        // A column more does not disturb those who do not know it; who creates the table anew has it, with NULL in old files.
        agree(&session, folder, Some(1)).await;
        create(&session, "w", folder, "").await;
        let sql = "SELECT new, count(*), sum(k) FROM w GROUP BY new ORDER BY new";
        assert_eq!(
            answer(&session, sql).await.0,
            oracle(folder, None, "w", sql).await
        );

        let other: [(&str, ArrayRef); 1] = [("k", Arc::new(StringArray::from(vec!["text"])))];
        let other = RecordBatch::try_from_iter(other).expect("a batch");
        let mut table = unloaded(folder);
        table.load().await.expect("a table");
        let write = table
            .write([other])
            .with_save_mode(SaveMode::Overwrite)
            .with_schema_mode(deltalake_core::operations::write::SchemaMode::Overwrite);
        write.await.expect("a version");
        let error = session.query("SELECT sum(k) FROM t").await;
        let error = error.expect_err("other columns").to_string();
        assert!(
            error.contains("has other columns than 't' was created with"),
            "{error}"
        );
    });
}

#[test]
fn errors_name_the_table() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let session = session().await;
        let missing = session
            .delta_table("/nowhere/at-all", &DeltaOptions::default())
            .await;
        let error = missing.expect_err("nothing there").to_string();
        assert!(error.contains("/nowhere/at-all"), "{error}");
        let location = folder.display().to_string();
        let empty = session
            .delta_table(&location, &DeltaOptions::default())
            .await;
        let error = empty.expect_err("no log").to_string();
        assert!(error.contains(&location), "{error}");
        write(folder, rows(0, 20), &[], SaveMode::ErrorIfExists).await;
        let later = DeltaOptions {
            version: Some(4),
            ..DeltaOptions::default()
        };
        let error = session.delta_table(&location, &later).await;
        let error = error.expect_err("no such version").to_string();
        assert!(error.contains(&location), "{error}");
        let columns =
            format!("CREATE EXTERNAL TABLE c (a INT) STORED AS DELTA LOCATION '{location}'");
        let error = session.context().sql(&columns).await;
        let error = error.expect_err("columns").to_string();
        assert!(error.contains("are in its log"), "{error}");
        // A log that ends in the middle.
        let log = folder.join("_delta_log/00000000000000000001.json");
        std::fs::write(&log, "{\"add\":{\"path\":\"x.par").expect("a file");
        let error = session
            .delta_table(&location, &DeltaOptions::default())
            .await;
        let error = error.expect_err("a broken log").to_string();
        assert!(error.contains(&location), "{error}");
        let context = session.context();
        let both = "OPTIONS('version' '0', 'timestamp' '2026-01-31')";
        let sql =
            format!("CREATE EXTERNAL TABLE b STORED AS DELTATABLE LOCATION '{location}' {both}");
        let error = context.sql(&sql).await.expect_err("both").to_string();
        assert!(error.contains("not at both"), "{error}");
    });
}

#[test]
fn the_shell_reads_versions_and_folders() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("orders");
    std::fs::create_dir(&folder).expect("a folder");
    let place = folder.clone();
    on_a_large_stack(async move || {
        write(&place, rows(0, 10), &[], SaveMode::ErrorIfExists).await;
        write(&place, rows(10, 5), &[], SaveMode::Append).await;
    });
    let create = |options: &str| {
        format!(
            "CREATE EXTERNAL TABLE t STORED AS delta LOCATION '{}' {options}; SELECT count(*) AS n FROM t;",
            folder.display()
        )
    };
    let count = |sql: &str| -> Outcome {
        run(&["--device", "cpu", "--format", "csv", "-q", "-c", sql]).ok()
    };
    assert_eq!(count(&create("")).stdout.trim(), "n\n15");
    assert_eq!(
        count(&create("OPTIONS('version' '0')")).stdout.trim(),
        "n\n10"
    );
    run(&["--device", "cpu", "-c", &create("OPTIONS('version' '7')")])
        .fails_with(&["Delta table", "orders"]);
}
