//! Placed plans: positions of fragments, restored partitioning and order, and the report.

use arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlanProperties, collect};
use datafusion::prelude::SessionContext;
use warpline_gpu::exec::GpuFragmentExec;

use super::*;
use crate::metrics;
use crate::tests::{any_size, placed, plan, runtime, session, text};
use crate::{GroupAlgorithm, GroupSetting};

fn required() -> WarplineConfig {
    let mut config = any_size();
    config.require_gpu = true;
    config
}

/// Why the plan of a query may not run.
async fn refusal(context: &SessionContext, sql: &str) -> String {
    let plan = plan(context, sql).await;
    let report = plan.downcast_ref::<PlacementReportExec>().unwrap();
    let refusal = report.refusal().unwrap().to_string();
    let shown = text(&plan);
    assert!(shown.contains("refused by warpline.require_gpu"), "{shown}");
    let error = collect(plan, context.task_ctx()).await.unwrap_err();
    assert!(error.to_string().contains(&refusal), "{error}");
    refusal
}

fn fragments(plan: &Arc<dyn ExecutionPlan>) -> usize {
    usize::from(plan.is::<GpuFragmentExec>())
        + plan.children().into_iter().map(fragments).sum::<usize>()
}

fn cpu(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let report = plan.downcast_ref::<PlacementReportExec>().unwrap();
    report
        .cpu_operators()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[tokio::test]
async fn whole_queries_become_one_fragment_under_the_report() {
    let context = placed(required());
    for sql in [
        "SELECT u, s, sum(qty) FROM t WHERE a > 1 GROUP BY u, s ORDER BY u, s",
        "SELECT t.u, count(*) FROM t JOIN other o ON t.a = o.a GROUP BY t.u ORDER BY 2 DESC LIMIT 3",
        "SELECT a FROM t WHERE b > (SELECT avg(b) FROM other)",
        "SELECT a, b FROM t WHERE a IN (SELECT a FROM other WHERE b > 3) ORDER BY b NULLS FIRST",
        "SELECT a FROM t UNION SELECT a FROM other",
        "SELECT a FROM t LIMIT 5",
    ] {
        let plan = plan(&context, sql).await;
        assert!(
            plan.children()[0].is::<GpuFragmentExec>(),
            "{}",
            text(&plan)
        );
        assert_eq!(cpu(&plan), Vec::<String>::new(), "{sql}");
    }
}

#[tokio::test]
async fn rows_are_not_moved_for_little_work() {
    let context = placed(any_size());
    for sql in [
        "SELECT a FROM t",
        "SELECT a + 1 FROM t WHERE b > 3",
        "SELECT a FROM t LIMIT 5",
    ] {
        assert_eq!(fragments(&plan(&context, sql).await), 0, "{sql}");
    }
}

/// Not by the shape of a query: by the rows that it leaves.
#[tokio::test]
async fn filters_go_where_their_price_is_lower() {
    let context = placed(any_size());
    let big =
        "CREATE TABLE big AS SELECT value AS k, value % 10 AS g FROM generate_series(1, 3000000)";
    context.sql(big).await.unwrap().collect().await.unwrap();
    for (sql, on_device) in [
        ("SELECT * FROM big WHERE k = 77", 1),
        ("SELECT k + g FROM big WHERE k = 77 OR k = 78", 1),
        ("SELECT * FROM big WHERE k = 77 LIMIT 10", 1),
        (
            "SELECT k FROM big WHERE k = 5 UNION ALL SELECT g FROM big WHERE k = 6",
            1,
        ),
        ("SELECT * FROM big", 0),
        ("SELECT * FROM big LIMIT 10", 0),
        ("SELECT k + 1 FROM big", 0),
        ("SELECT * FROM big WHERE g <> 100", 0),
        // The CPU has its rows before it has read much.
        ("SELECT * FROM big WHERE g <> 100 LIMIT 10", 0),
    ] {
        let plan = plan(&context, sql).await;
        assert_eq!(fragments(&plan), on_device, "{sql}:\n{}", text(&plan));
        if on_device == 0 {
            let reasons = cpu(&plan);
            let prices = [
                "moving the rows costs more than computing them: ",
                " on the CPU, ",
                "rows back",
            ];
            assert!(
                prices.iter().all(|p| reasons[0].contains(p)),
                "{sql}: {reasons:?}"
            );
        }
    }
}

#[tokio::test]
async fn explain_shows_devices_and_reasons() {
    let context = placed(any_size());
    for format in ["INDENT", "TREE"] {
        let sql = format!(
            "EXPLAIN FORMAT {format} SELECT u, row_number() OVER () FROM \
             (SELECT t.u, count(*) AS n FROM t JOIN other o ON t.a = o.a GROUP BY t.u)"
        );
        let batches = context.sql(&sql).await.unwrap().collect().await.unwrap();
        let shown = pretty_format_batches(&batches).unwrap().to_string();
        assert!(
            shown.contains("device=emulator") || shown.contains("device: emulator"),
            "{shown}"
        );
        // Boxes break lines within words.
        let run_on = |text: &str| text.replace(|c: char| c.is_whitespace() || "|│".contains(c), "");
        let words = ["BoundedWindowAggExec:", "no ORDER BY", "on the CPU"];
        assert!(
            words.iter().all(|w| run_on(&shown).contains(&run_on(w))),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn schemas_do_not_change() {
    for sql in [
        "SELECT u, count(*) AS n, avg(qty) FROM t GROUP BY u",
        "SELECT sum(b) + 1 AS x, min(s) FROM t",
        "SELECT date_part('year', day) AS y, max(at) FROM t GROUP BY 1 HAVING max(b) > 3 ORDER BY y DESC LIMIT 3",
    ] {
        let cpu = plan(&session(None, any_size()), sql).await;
        let gpu = plan(&placed(required()), sql).await;
        assert_eq!(cpu.schema(), gpu.schema(), "{sql}");
        assert_eq!(fragments(&gpu), 1, "{}", text(&gpu));
    }
}

#[tokio::test]
async fn partitioned_joins_over_fragments_keep_their_partitions() {
    let context = placed(any_size());
    context
        .sql("SET datafusion.optimizer.hash_join_single_partition_threshold = 0")
        .await
        .unwrap();
    context
        .sql("SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0")
        .await
        .unwrap();
    let sql = "SELECT x.u, x.n, y.m FROM (SELECT u, avg(f) AS n FROM t GROUP BY u) x \
               JOIN (SELECT u, avg(f) AS m FROM other GROUP BY u) y \
               ON x.n = y.m AND factorial(CAST(x.n AS BIGINT)) > CAST(y.m AS BIGINT)";
    let plan = plan(&context, sql).await;
    assert_eq!(fragments(&plan), 2, "{}", text(&plan));
    let reasons = cpu(&plan);
    assert!(
        reasons.len() == 1 && reasons[0].starts_with("HashJoinExec: the function factorial"),
        "{reasons:?}"
    );
    fn check(plan: &Arc<dyn ExecutionPlan>) {
        let children = plan.children();
        if plan.name() == "HashJoinExec" {
            let counts: Vec<_> = children
                .iter()
                .map(|c| c.output_partitioning().partition_count())
                .collect();
            assert_eq!(counts[0], counts[1], "{}", text(plan));
            assert!(
                text(plan).contains("RepartitionExec: partitioning=Hash"),
                "{}",
                text(plan)
            );
        }
        children.into_iter().for_each(check);
    }
    check(&plan);
}

#[tokio::test]
async fn an_order_that_operators_above_rely_on_is_restored() {
    let context = placed(any_size());
    context
        .sql("CREATE EXTERNAL TABLE sorted (k BIGINT NOT NULL, v BIGINT) STORED AS CSV WITH ORDER (k ASC) \
              LOCATION 'tests/data/sorted.csv' OPTIONS ('format.has_header' 'true')")
        .await
        .unwrap();
    let sql = "SELECT k, sum(v) FROM sorted GROUP BY k ORDER BY k";
    let plan = plan(&context, sql).await;
    assert_eq!(fragments(&plan), 1, "{}", text(&plan));
    // DataFusion took its sort away, since the file is in order already.
    assert!(!text(&plan).contains("SortExec"), "{}", text(&plan));
    let answer = collect(Arc::clone(&plan), context.task_ctx())
        .await
        .unwrap();
    let expected = session(None, any_size());
    expected
        .sql(
            "CREATE EXTERNAL TABLE sorted (k BIGINT NOT NULL, v BIGINT) STORED AS CSV \
              LOCATION 'tests/data/sorted.csv' OPTIONS ('format.has_header' 'true')",
        )
        .await
        .unwrap();
    let expected = expected.sql(sql).await.unwrap().collect().await.unwrap();
    assert_eq!(
        pretty_format_batches(&answer).unwrap().to_string(),
        pretty_format_batches(&expected).unwrap().to_string()
    );
}

#[tokio::test]
async fn require_gpu_lists_every_reason() {
    let context = placed(required());
    let error = refusal(
        &context,
        "SELECT u, m, row_number() OVER () FROM (SELECT t.u, first_value(t.b) AS m FROM t JOIN other o ON t.a = o.a \
         GROUP BY t.u)",
    )
    .await;
    for part in [
        "warpline.require_gpu is set",
        "AggregateExec: first_value without ORDER BY runs on the CPU",
        "its window has no ORDER BY",
        "SET warpline.require_gpu = false",
    ] {
        assert!(error.contains(part), "{part} missing in: {error}");
    }
    let error = refusal(
        &context,
        "SELECT a, row_number() OVER () FROM t WHERE a > 1",
    )
    .await;
    assert!(error.contains("its window has no ORDER BY"), "{error}");
    let error = refusal(&context, "SELECT first_value(f) FROM t").await;
    assert!(
        error.contains("first_value without ORDER BY runs on the CPU"),
        "{error}"
    );
}

#[tokio::test]
async fn require_gpu_without_a_device_is_an_error_only_where_tables_are_read() {
    let context = session(Some(GpuPlacement::new(None)), required());
    let error = refusal(&context, "SELECT u, count(*) FROM t GROUP BY u").await;
    assert!(error.contains("the session has no device"), "{error}");
    for sql in [
        "SELECT 1 + 1",
        "SHOW warpline.device",
        "SELECT * FROM (VALUES (1), (2)) ORDER BY 1",
        "SHOW TABLES",
    ] {
        context
            .sql(sql)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    let without = session(Some(GpuPlacement::new(None)), any_size());
    let plan = plan(&without, "SELECT u, count(*) FROM t GROUP BY u").await;
    assert!(!plan.is::<PlacementReportExec>() && fragments(&plan) == 0);
}

#[tokio::test]
async fn statements_without_tables_have_no_report() {
    let context = placed(required());
    for sql in [
        "SELECT 1 + 1",
        "SHOW warpline.device",
        "SELECT sum(column1) FROM (VALUES (1), (2)) GROUP BY column1",
        "SELECT count(*) FROM information_schema.tables",
        "SELECT count(*) FROM t",
        "EXPLAIN SELECT a FROM t",
        "CREATE VIEW v AS SELECT a FROM t",
        "SET warpline.min_rows = 3",
    ] {
        let plan = plan(&context, sql).await;
        assert!(!plan.is::<PlacementReportExec>(), "{sql}:\n{}", text(&plan));
    }
}

#[tokio::test]
async fn tables_made_of_values_are_tables() {
    let context = placed(required());
    let made = "CREATE TABLE made AS VALUES (1, 'x'), (2, 'y')";
    context.sql(made).await.unwrap().collect().await.unwrap();
    for sql in [
        "SELECT column2, sum(column1) FROM made GROUP BY column2",
        "SELECT column1 FROM made WHERE column1 > 1",
    ] {
        let plan = plan(&context, sql).await;
        assert_eq!(fragments(&plan), 1, "{}", text(&plan));
        assert_eq!(cpu(&plan), Vec::<String>::new(), "{sql}");
    }
}

#[tokio::test]
async fn tables_that_the_device_cannot_read_say_why() {
    let context = placed(any_size());
    let halves = "CREATE TABLE halves AS SELECT a, arrow_cast(a, 'Float16') AS l FROM t";
    context.sql(halves).await.unwrap().collect().await.unwrap();
    for sql in [
        "SELECT l FROM halves WHERE a > 2",
        "SELECT l FROM halves",
        "SELECT l, count(*) FROM halves GROUP BY l",
    ] {
        let reasons = cpu(&plan(&context, sql).await);
        assert!(
            reasons[0].starts_with("DataSourceExec: column l is of type Float16"),
            "{sql}: {reasons:?}"
        );
        assert!(
            reasons.iter().all(|r| r.contains("Float16")),
            "{sql}: {reasons:?}"
        );
    }
}

#[tokio::test]
async fn the_deepest_cause_comes_first_and_every_operator_says_its_own() {
    let context = placed(any_size());
    for (sql, expected) in [
        (
            "SELECT first_value(f) FROM t LIMIT 5",
            vec![
                "AggregateExec: first_value without ORDER BY runs on the CPU",
                "GlobalLimitExec: its input comes from the CPU (AggregateExec: first_value without ORDER BY runs on the CPU: which row comes first is not defined)",
            ],
        ),
        // The filter could run on the device; that it is not worth it is not why the query is on the CPU.
        (
            "SELECT s, first_value(s) AS m FROM t WHERE a > 1 GROUP BY s ORDER BY m LIMIT 5",
            vec![
                "AggregateExec: first_value without ORDER BY runs on the CPU",
                "FilterExec: ",
                "SortExec(TopK): its input comes from the CPU (AggregateExec: first_value without ORDER BY runs on the CPU: which row comes first is not defined)",
                "SortPreservingMergeExec: its input comes from the CPU (AggregateExec: first_value without ORDER BY runs on the CPU: which row comes first is not defined)",
            ],
        ),
        (
            "SELECT repeat(s, a) AS d FROM t ORDER BY 1 LIMIT 3",
            vec![
                "ProjectionExec: repeat",
                "SortExec(TopK): its input comes from the CPU (ProjectionExec: ",
                "SortPreservingMergeExec: its input comes from the CPU (ProjectionExec: ",
            ],
        ),
        // Converted without its subquery the filter is in the way, but not the cause; the aggregation says so although the
        // filter below it comes first.
        (
            "SELECT u, s, first_value(b) FROM t WHERE qty > (SELECT avg(qty) FROM other) GROUP BY u, s",
            vec![
                "AggregateExec: first_value without ORDER BY runs on the CPU",
                "FilterExec: a scalar subquery of it is answered apart (AggregateExec: first_value without ORDER BY runs on the CPU: which row comes first is not defined)",
            ],
        ),
        // Both are in the way, the deeper one first.
        (
            "SELECT u, nth_value(n, 2) FROM (SELECT u, s, first_value(s) AS n FROM t GROUP BY u, s) GROUP BY u",
            vec![
                "AggregateExec: first_value without ORDER BY runs on the CPU",
                "AggregateExec: nth_value without ORDER BY runs on the CPU",
            ],
        ),
    ] {
        let reasons = cpu(&plan(&context, sql).await);
        let found = reasons.len() == expected.len()
            && reasons.iter().zip(&expected).all(|(r, e)| r.starts_with(e));
        assert!(found, "{sql}: {reasons:#?}");
    }
}

#[tokio::test]
async fn small_tables_stay_on_the_cpu() {
    let mut config = any_size();
    config.min_rows = crate::tests::ROWS + 1;
    let plan_small = plan(
        &placed(config.clone()),
        "SELECT u, count(*) FROM t GROUP BY u",
    )
    .await;
    assert_eq!(fragments(&plan_small), 0);
    assert_eq!(
        cpu(&plan_small),
        ["AggregateExec: the table's 40 rows are fewer than warpline.min_rows = 41"]
    );
    config.min_rows = crate::tests::ROWS;
    let plan_large = plan(&placed(config), "SELECT u, count(*) FROM t GROUP BY u").await;
    assert_eq!(fragments(&plan_large), 1);
}

#[tokio::test]
async fn device_and_cpu_answers_are_equal() {
    let mut shared = required();
    shared.group_by = GroupSetting::Force(GroupAlgorithm::Shared);
    for sql in [
        "SELECT sum(price * qty), count(*), avg(b), min(day), max(s) FROM t WHERE qty < 20 AND s LIKE 'name%'",
        "SELECT u, s, sum(qty), avg(price), count(b), max(f) FROM t WHERE a <> 3 GROUP BY u, s ORDER BY u, s",
        "SELECT date_part('month', day) AS m, sum(CASE WHEN u = 'odd' THEN qty ELSE 0 END) FROM t GROUP BY 1 \
         HAVING count(*) > 1 ORDER BY m LIMIT 5",
        "SELECT sum(b) FROM t UNION ALL SELECT max(b) FROM other ORDER BY 1",
        "SELECT count(*) FROM t WHERE a > 1000",
        "SELECT u, count(*) FROM t WHERE a > 1000 GROUP BY u",
        "SELECT t.u, o.s, sum(t.qty), count(*) FROM t JOIN other o ON t.a = o.a WHERE o.b > 2000 GROUP BY t.u, o.s \
         ORDER BY 1, 2",
        "SELECT t.b, o.b FROM t LEFT JOIN other o ON t.b = o.b AND o.a > 2 ORDER BY 1, 2",
        "SELECT t.a, t.b FROM t WHERE t.b NOT IN (SELECT b FROM other WHERE a = 1 AND b IS NOT NULL) ORDER BY 2, 1",
        "SELECT a, (SELECT max(b) FROM other) - b FROM t WHERE b > (SELECT avg(b) FROM other) ORDER BY 2 LIMIT 7",
        "SELECT a FROM t INTERSECT SELECT a FROM other WHERE a > 2 ORDER BY 1",
    ] {
        let expected = session(None, any_size())
            .sql(sql)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        for config in [required(), shared.clone()] {
            let context = placed(config);
            let plan = plan(&context, sql).await;
            let answer = collect(Arc::clone(&plan), context.task_ctx())
                .await
                .unwrap_or_else(|e| panic!("{sql}: {e}"));
            assert_eq!(
                pretty_format_batches(&answer).unwrap().to_string(),
                pretty_format_batches(&expected).unwrap().to_string(),
                "{sql}"
            );
            let totals = metrics::collect([&plan]);
            assert_eq!(totals.fallbacks, Vec::<String>::new(), "{sql}");
            assert!(
                totals.counts.kernels > 0 && totals.counts.bytes > 0 && totals.fragments > 0,
                "{sql}: {totals:?}"
            );
        }
    }
}

#[tokio::test]
async fn plan_time_fallbacks_reach_the_totals() {
    let context = placed(any_size());
    let sql = "SELECT first_value(f) FROM t";
    let plan = plan(&context, sql).await;
    collect(Arc::clone(&plan), context.task_ctx())
        .await
        .unwrap();
    let totals = metrics::collect([&plan]);
    assert_eq!(totals.counts.kernels, 0);
    assert!(
        totals
            .fallbacks
            .contains(&"AggregateExec: first_value without ORDER BY runs on the CPU: which row comes first is not defined".to_string()),
        "{totals:?}"
    );
}

#[tokio::test]
async fn the_rule_leaves_its_own_output_alone() {
    let rule = GpuPlacement::new(Some(runtime()));
    let context = placed(any_size());
    let once = plan(&context, "SELECT u, count(*) FROM t GROUP BY u").await;
    let twice = rule
        .optimize(Arc::clone(&once), context.state().config().options())
        .unwrap();
    assert!(Arc::ptr_eq(&once, &twice));
}
