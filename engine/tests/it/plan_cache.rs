//! Plans of earlier queries: found again, and never used when anything has changed.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, UInt64Type};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use warpline::{DeviceChoice, PlanCacheStats, QueryRun, WarplineSession};

use super::on_a_large_stack;

const SUM: &str = "SELECT sum(a) AS s FROM t WHERE a > 0";

async fn session() -> WarplineSession {
    WarplineSession::builder()
        .device(DeviceChoice::Emulator)
        .set("warpline.min_rows", "0")
        .set("datafusion.execution.target_partitions", "2")
        .open()
        .await
        .expect("a session on the emulator")
}

fn numbers(values: &[i64]) -> RecordBatch {
    let array: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_from_iter([("a", array)]).expect("a batch")
}

fn register(session: &WarplineSession, name: &str, values: &[i64]) {
    let batch = numbers(values);
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).expect("a table");
    let context = session.context();
    context.deregister_table(name).expect("a catalog");
    context
        .register_table(name, Arc::new(table))
        .expect("registered");
}

/// The one number that a query answers, and whether its plan was found.
async fn ask(session: &WarplineSession, sql: &str) -> (i64, bool) {
    let run = session.query(sql).await.expect(sql);
    (number(&run), run.metrics.plan_cached)
}

fn number(run: &QueryRun) -> i64 {
    let batch = run.batches.iter().find(|b| b.num_rows() > 0);
    let column = batch.expect("a row").column(0);
    match column.as_primitive_opt::<UInt64Type>() {
        // Of rows that were written.
        Some(counts) => counts.value(0) as i64,
        None => column.as_primitive::<Int64Type>().value(0),
    }
}

#[test]
fn the_same_text_is_planned_once() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2, -3]);
        assert_eq!(ask(&session, SUM).await, (3, false));
        assert_eq!(ask(&session, SUM).await, (3, true));
        let spaced = "  SELECT sum(a) AS s\n  FROM t\tWHERE a > 0 ;";
        assert_eq!(ask(&session, spaced).await, (3, true));
        assert_eq!(
            session.plan_cache_stats(),
            PlanCacheStats {
                hits: 2,
                misses: 1,
                entries: 1
            }
        );
        // A plan that ran again measures that run alone.
        let run = session.query(SUM).await.expect("an answer");
        assert!(run.metrics.plan_cached && run.metrics.kernels >= 1);
        session.clear_plan_cache();
        assert_eq!(ask(&session, SUM).await, (3, false));
    });
}

/// A sort with a limit above hands a filter down at run time, so its plan is made anew; its fragment is not.
#[test]
fn fragments_of_plans_that_cannot_run_again_are_taken_over() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2, 2, 3]);
        let sql = "SELECT a, md5(cast(n AS varchar)) AS m FROM (SELECT a, count(*) AS n FROM t GROUP BY a) \
                   ORDER BY m, a LIMIT 2";
        let first = session.query(sql).await.expect("an answer");
        assert!(first.metrics.kernels >= 1 && first.metrics.compile_ms > 0.0);
        let again = session.query(sql).await.expect("an answer");
        assert!(!again.metrics.plan_cached && again.metrics.kernels >= 1);
        assert_eq!(again.metrics.compile_ms, 0.0);
        assert_eq!(again.batches, first.batches);
        assert_eq!(session.plan_cache_stats(), PlanCacheStats::default());
        // Other rows, other sizes.
        register(&session, "t", &[1, 2, 2, 3, 3, 3, 4]);
        let other = session.query(sql).await.expect("an answer");
        assert!(other.metrics.kernels >= 1 && other.batches != first.batches);
    });
}

#[test]
fn another_table_or_other_data_is_planned_anew() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2]);
        ask(&session, SUM).await;
        register(&session, "t", &[10]);
        assert_eq!(ask(&session, SUM).await, (10, false));
        // The provider stays; an INSERT past the session's query path changes what it holds.
        let insert = session.context().sql("INSERT INTO t VALUES (5)").await;
        insert.expect("planned").collect().await.expect("inserted");
        assert_eq!(ask(&session, SUM).await, (15, false));
        assert_eq!(ask(&session, SUM).await, (15, true));
        let delete = session.context().sql("DELETE FROM t WHERE a = 10").await;
        delete.expect("planned").collect().await.expect("deleted");
        assert_eq!(ask(&session, SUM).await, (5, false));
    });
}

#[test]
fn rows_written_by_the_session_are_seen_by_the_next_query() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2]);
        ask(&session, SUM).await;
        assert_eq!(ask(&session, "INSERT INTO t VALUES (5)").await, (1, false));
        assert_eq!(ask(&session, SUM).await, (8, false));
        assert_eq!(ask(&session, "DELETE FROM t WHERE a = 2").await, (1, false));
        assert_eq!(ask(&session, SUM).await, (6, false));
        let prepare = session.query("PREPARE p AS SELECT sum(a) AS s FROM t WHERE a > $1");
        prepare.await.expect("prepared");
        assert_eq!(ask(&session, "EXECUTE p(4)").await, (5, false));
        assert_eq!(ask(&session, "INSERT INTO t VALUES (7)").await, (1, false));
        assert_eq!(ask(&session, "EXECUTE p(4)").await, (12, false));
        // With plans that are not kept, queries are the session's all the same.
        session
            .set("warpline.plan_cache", "false")
            .await
            .expect("a setting");
        assert!(session.prepare(SUM).await.expect("planned").is_some());
        assert_eq!(ask(&session, SUM).await, (13, false));
        assert_eq!(ask(&session, SUM).await, (13, false));
    });
}

/// A table that nothing was ever written to is not compared with what it was; a plan that writes counts from when it is made,
/// whenever it runs and however often.
#[test]
fn tables_of_rows_know_whether_they_were_written_to() {
    on_a_large_stack(async || {
        let session = session().await;
        let create = "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 10)";
        session.query(create).await.expect("a table");
        assert_eq!(ask(&session, SUM).await, (55, false));
        assert_eq!(ask(&session, SUM).await, (55, true));
        let context = session.context();
        let insert = context
            .sql("INSERT INTO t VALUES (100)")
            .await
            .expect("a plan");
        let insert = insert.create_physical_plan().await.expect("a plan");
        assert_eq!(
            ask(&session, SUM).await,
            (55, false),
            "the table can change from here on"
        );
        for expected in [155, 255] {
            let written =
                datafusion::physical_plan::collect(Arc::clone(&insert), context.task_ctx());
            written.await.expect("a row");
            assert_eq!(ask(&session, SUM).await, (expected, false));
            assert_eq!(ask(&session, SUM).await, (expected, true));
        }
        session
            .query("DELETE FROM t WHERE a = 100")
            .await
            .expect("fewer rows");
        assert_eq!(ask(&session, SUM).await, (55, false));
        assert_eq!(ask(&session, SUM).await, (55, true));
    });
}

#[test]
fn views_count_with_their_definition_and_their_tables() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2]);
        let view = |sql: &'static str| async {
            let frame = session.context().sql(sql).await.expect(sql);
            frame.collect().await.expect(sql);
        };
        let sql = "SELECT sum(b) AS s FROM v WHERE b > 1";
        view("CREATE VIEW v AS SELECT a + 1 AS b FROM t").await;
        assert_eq!(ask(&session, sql).await, (5, false));
        assert_eq!(ask(&session, sql).await, (5, true));
        view("CREATE OR REPLACE VIEW v AS SELECT a + 2 AS b FROM t").await;
        assert_eq!(ask(&session, sql).await, (7, false));
        view("INSERT INTO t VALUES (8)").await;
        assert_eq!(ask(&session, sql).await, (17, false));
    });
}

#[test]
fn settings_and_functions_are_part_of_the_key() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2]);
        ask(&session, SUM).await;
        session
            .set("warpline.group_by", "global")
            .await
            .expect("set");
        assert_eq!(ask(&session, SUM).await, (3, false));
        assert_eq!(ask(&session, SUM).await, (3, true));
        let add = |by: i64| {
            let function = move |arguments: &[ColumnarValue]| {
                let array = arguments[0].to_array(1)?;
                let values = array.as_primitive::<Int64Type>();
                let sums: Int64Array = values.unary(|v| v + by);
                Ok(ColumnarValue::Array(Arc::new(sums)))
            };
            let int = arrow::datatypes::DataType::Int64;
            create_udf(
                "add_some",
                vec![int.clone()],
                int,
                Volatility::Immutable,
                Arc::new(function),
            )
        };
        session.context().register_udf(add(1));
        assert_eq!(ask(&session, SUM).await, (3, false));
        let sql = "SELECT sum(a + add_some(1)) AS s FROM t";
        assert_eq!(ask(&session, sql).await, (7, false));
        session.context().register_udf(add(10));
        assert_eq!(ask(&session, sql).await, (25, false));
        session
            .set("warpline.plan_cache", "false")
            .await
            .expect("set");
        assert_eq!(ask(&session, SUM).await, (3, false));
        assert_eq!(ask(&session, SUM).await, (3, false));
        assert_eq!(session.plan_cache_stats().entries, 0);
    });
}

#[test]
fn what_depends_on_time_or_chance_is_never_kept() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2]);
        for sql in [
            "SELECT count(*) AS n FROM t WHERE extract(epoch FROM now()) > a",
            "SELECT count(*) AS n FROM t WHERE a > random() - 1",
            "SELECT count(*) AS n FROM information_schema.tables WHERE table_name = 't'",
            "SELECT count(*) AS n FROM generate_series(1, 5) AS s(v) WHERE v > random() * 0",
        ] {
            assert!(!ask(&session, sql).await.1, "{sql}");
            assert!(!ask(&session, sql).await.1, "{sql}");
        }
        assert_eq!(session.plan_cache_stats(), PlanCacheStats::default());
    });
}

#[test]
fn what_depends_on_the_year_is_kept_within_it() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2, 3000]);
        for sql in [
            "SELECT count(*) AS n FROM t WHERE a < extract(year FROM current_date)",
            "SELECT count(*) AS n FROM t WHERE now() > TIMESTAMP '2000-01-01' AND a < 3",
        ] {
            assert_eq!(ask(&session, sql).await, (2, false), "{sql}");
            assert_eq!(ask(&session, sql).await, (2, true), "{sql}");
        }
        let view = "CREATE VIEW v AS SELECT a FROM t WHERE a < extract(year FROM current_date)";
        session.context().sql(view).await.expect("a view");
        let sql = "SELECT count(*) AS n FROM v";
        assert_eq!(ask(&session, sql).await, (2, false));
        assert_eq!(ask(&session, sql).await, (2, true));
    });
}

/// Their rows are in the text.
#[test]
fn plans_over_series_and_values_are_kept() {
    on_a_large_stack(async || {
        let session = session().await;
        // Rows of the text go to the device, however few they are.
        session.set("warpline.reentry", "on").await.expect("set");
        register(&session, "t", &[1, 2, 3, 7]);
        for (sql, answer) in [
            ("SELECT count(*) AS n FROM generate_series(1, 5)", 5),
            (
                "SELECT sum(t.a) AS n FROM t JOIN generate_series(2, 5) AS s(v) ON t.a = s.v",
                5,
            ),
            (
                "SELECT count(*) AS n FROM range(0, 4) AS s(v) LEFT JOIN t ON t.a = s.v WHERE t.a IS NULL",
                1,
            ),
            (
                "SELECT sum(t.a * w.f) AS n FROM t JOIN (VALUES (1, 10), (7, 100)) w(a, f) ON t.a = w.a",
                710,
            ),
        ] {
            assert_eq!(ask(&session, sql).await, (answer, false), "{sql}");
            for _ in 0..2 {
                assert_eq!(ask(&session, sql).await, (answer, true), "{sql}");
            }
        }
        // Other rows of the table are seen.
        register(&session, "t", &[2, 5]);
        let sql = "SELECT sum(t.a) AS n FROM t JOIN generate_series(2, 5) AS s(v) ON t.a = s.v";
        assert_eq!(ask(&session, sql).await, (7, false));
    });
}

#[test]
fn least_recently_used_plans_go_first() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &[1, 2]);
        session
            .set("warpline.plan_cache_size", "2")
            .await
            .expect("set");
        let sql = |n: i64| format!("SELECT sum(a) AS s FROM t WHERE a < {n}");
        for n in [5, 6, 5, 7] {
            ask(&session, &sql(n)).await;
        }
        assert_eq!(session.plan_cache_stats().entries, 2);
        assert!(ask(&session, &sql(5)).await.1);
        assert!(!ask(&session, &sql(6)).await.1);
    });
}

#[test]
fn runs_at_the_same_time_have_plans_of_their_own() {
    on_a_large_stack(async || {
        let session = Arc::new(session().await);
        register(&session, "t", &(0..5000).collect::<Vec<_>>());
        let mut tasks = Vec::new();
        for _ in 0..6 {
            let session = Arc::clone(&session);
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let run = session.query(SUM).await.expect("an answer");
                    assert_eq!(number(&run), 4999 * 2500);
                    assert!(run.metrics.fallbacks.is_empty());
                }
            }));
        }
        for task in tasks {
            task.await.expect("the task");
        }
        let stats = session.plan_cache_stats();
        assert_eq!(stats.hits + stats.misses, 30);
        assert!(stats.hits >= 20, "{stats:?}");
    });
}

#[test]
fn operators_above_the_device_part_run_again() {
    on_a_large_stack(async || {
        let session = session().await;
        register(&session, "t", &(0..100).collect::<Vec<_>>());
        let sql = "SELECT a % 3 AS k, sum(a) AS s FROM t GROUP BY a % 3 ORDER BY s DESC";
        let first = session.query(sql).await.expect("an answer");
        for _ in 0..3 {
            let again = session.query(sql).await.expect("an answer");
            assert!(again.metrics.plan_cached);
            assert_eq!(again.batches, first.batches);
        }
    });
}

async fn write_parquet(session: &WarplineSession, path: &Path, values: &str) {
    let sql = format!(
        "COPY (SELECT * FROM (VALUES {values}) AS v(a)) TO '{}' STORED AS PARQUET",
        path.display()
    );
    let frame = session.reference().sql(&sql).await.expect("planned");
    frame.collect().await.expect("written");
}

#[test]
fn files_are_looked_at_again() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let session = session().await;
        let file = folder.path().join("one.parquet");
        write_parquet(&session, &file, "(1), (2), (-4)").await;
        let create = format!(
            "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}'",
            file.display()
        );
        session.query(&create).await.expect("a table");
        // DataFusion answers this one from the file's statistics when it plans.
        let highest = "SELECT max(a) AS m FROM t";
        assert_eq!(ask(&session, SUM).await, (3, false));
        assert_eq!(ask(&session, SUM).await, (3, true));
        assert_eq!(ask(&session, highest).await, (2, false));
        assert_eq!(ask(&session, highest).await, (2, true));
        std::fs::remove_file(&file).expect("removed");
        write_parquet(&session, &file, "(10), (20), (30), (40)").await;
        assert_eq!(ask(&session, SUM).await, (100, false));
        assert_eq!(ask(&session, highest).await, (40, false));
        std::fs::remove_file(&file).expect("removed");
        // To DataFusion, a table without files is empty.
        let run = session.query(SUM).await.expect("an answer");
        assert!(!run.metrics.plan_cached && run.batches[0].column(0).is_null(0));
    });
}
