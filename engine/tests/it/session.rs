//! The library: sessions on the CPU and their settings.

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use warpline::{ByteSize, Device, DeviceChoice, Error, WarplineExt, WarplineSession};
use warpline_planner::WarplineConfig;

async fn count(context: &SessionContext, sql: &str) -> usize {
    context
        .sql(sql)
        .await
        .expect("a plan")
        .count()
        .await
        .expect("rows")
}

#[tokio::test]
async fn the_reference_sees_the_tables_of_the_session() {
    let session = WarplineSession::builder()
        .device(DeviceChoice::Cpu)
        .open()
        .await
        .expect("a session");
    session
        .query("CREATE TABLE t AS VALUES (1), (2)")
        .await
        .expect("a table");
    assert_eq!(count(session.context(), "SELECT * FROM t").await, 2);
    assert_eq!(count(session.reference(), "SELECT * FROM t").await, 2);
    let run = session.query("SELECT * FROM t").await.expect("an answer");
    assert_eq!(run.rows(), 2);
    assert!(run.metrics.plan_ms > 0.0);
    assert_eq!((run.metrics.bytes, run.metrics.fallbacks.len()), (None, 0));
}

#[tokio::test]
async fn settings_reach_session_and_reference() {
    let builder = WarplineSession::builder()
        .device(DeviceChoice::Cpu)
        .set("datafusion.execution.batch_size", "77");
    let session = builder
        .set("warpline.min_rows", "5")
        .open()
        .await
        .expect("a session");
    for context in [session.context(), session.reference()] {
        assert_eq!(context.copied_config().batch_size(), 77);
    }
    let config = session.context().copied_config();
    assert_eq!(WarplineConfig::of(config.options()).min_rows, 5);
    for (key, value) in [
        ("warpline.nonsense", "1"),
        ("datafusion.execution.batch_size", "many"),
        ("nonsense", "1"),
    ] {
        let error = session.set(key, value).await.expect_err(key);
        assert!(matches!(error, Error::DataFusion(_)), "{error}");
    }
}

#[tokio::test]
async fn a_required_gpu_that_is_not_there_is_an_error_at_once() {
    let builder = WarplineSession::builder()
        .device(DeviceChoice::Cpu)
        .require_gpu(true);
    assert!(matches!(
        builder.open().await.err(),
        Some(Error::NoGpu { .. })
    ));
    let builder = WarplineSession::builder().set("warpline.device", "abacus");
    assert!(matches!(
        builder.open().await.err(),
        Some(Error::DeviceName { .. })
    ));
}

#[tokio::test]
async fn other_sessions_can_be_extended() {
    let device = Device::open(DeviceChoice::Cpu, Some(ByteSize(1 << 20))).expect("the CPU");
    assert_eq!(device.name(), "cpu");
    let builder = SessionStateBuilder::new().with_default_features();
    let context = SessionContext::new_with_state(builder.with_warpline(&device).build());
    assert_eq!(count(&context, "SELECT 1").await, 1);
    context
        .sql("SET warpline.min_rows = 3")
        .await
        .expect("the settings are there");
}

#[tokio::test]
async fn tables_made_of_queries_say_what_their_query_did() {
    let session = WarplineSession::builder()
        .device(DeviceChoice::Emulator)
        .set("warpline.min_rows", "0")
        .open()
        .await
        .expect("a session");
    let run = |sql: &'static str| {
        let session = &session;
        async move { session.query(sql).await.expect(sql) }
    };
    run("CREATE TABLE t AS SELECT value AS a, value % 3 AS b FROM generate_series(1, 1000)").await;
    let made = run("CREATE TABLE sums AS SELECT b, sum(a) AS s FROM t GROUP BY b").await;
    assert!(made.metrics.kernels > 0);
    assert_eq!((made.rows(), made.schema.fields().len()), (0, 0));
    assert_eq!(run("SELECT * FROM sums").await.rows(), 3);
    let made = run("CREATE OR REPLACE TABLE sums AS SELECT first_value(a) FROM t").await;
    assert!(!made.metrics.fallbacks.is_empty());
    assert_eq!(run("SELECT * FROM sums").await.rows(), 1);
    // Constants and columns that the optimizer knows to hold no NULL.
    run("CREATE TABLE known AS SELECT x AS a, 'b' AS b FROM (VALUES (1), (2)) AS v(x) WHERE x IS NOT NULL").await;
    assert_eq!(run("SELECT * FROM known WHERE a > 1").await.rows(), 1);
    // An existing table stays as it is.
    run("CREATE TABLE IF NOT EXISTS sums AS SELECT a FROM t").await;
    assert_eq!(run("SELECT * FROM sums").await.rows(), 1);
    for (sql, wanted) in [
        ("CREATE TABLE sums AS SELECT a FROM t", "already exists"),
        ("CREATE TABLE twice AS SELECT a, a FROM t", "a"),
        (
            "CREATE TABLE broken AS SELECT a / 0 FROM t",
            "ivide by zero",
        ),
    ] {
        let error = session.query(sql).await.expect_err(sql).to_string();
        assert!(error.contains(wanted), "{sql}: {error}");
    }
    // Outputs may bear one name, columns of a table may not.
    run("CREATE TABLE pairs (x BIGINT, y BIGINT)").await;
    run("INSERT INTO pairs SELECT a, a FROM t").await;
    let answer = run("SELECT *, x + 1 AS x, count(*) OVER (), count(*) OVER () FROM pairs").await;
    assert_eq!((answer.rows(), answer.schema.fields().len()), (1000, 5));
    run("CREATE TABLE empty (a INT DEFAULT 7, b VARCHAR)").await;
    assert_eq!(run("SELECT * FROM empty").await.rows(), 0);
    assert!(session.query("SELECT * FROM broken").await.is_err());
}
