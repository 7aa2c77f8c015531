//! The shapes that become fragments, and why others do not.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use warpline_gpu::expr::Node;
use warpline_gpu::pipeline::{Aggregate, AggregateFunction, Pipeline, Sink, Stage};

use super::*;
use crate::WarplineConfig;
use crate::tests::{ROWS, plan, session, text};

/// The topmost aggregation with a final result.
fn root(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if is_root(plan.as_ref()) {
        return Some(Arc::clone(plan));
    }
    plan.children().into_iter().find_map(root)
}

async fn cut_in(context: &SessionContext, sql: &str) -> Result<Candidate, Reason> {
    let plan = plan(context, sql).await;
    let root = root(&plan).unwrap_or_else(|| panic!("no aggregation in\n{}", text(&plan)));
    let found = candidate(&root);
    if let Ok(found) = &found {
        assert_eq!(found.fragment.schema, root.schema());
    }
    found
}

async fn cut(sql: &str) -> Result<Candidate, Reason> {
    cut_in(&session(None, WarplineConfig::default()), sql).await
}

fn pipeline(candidate: &Candidate) -> &Pipeline {
    let [pipeline] = candidate.fragment.pipelines.as_slice() else {
        panic!("{candidate:?}")
    };
    pipeline
}

fn aggregate(pipeline: &Pipeline) -> &Aggregate {
    let Sink::Aggregate(aggregate) = &pipeline.sink;
    aggregate
}

/// Column names of the pipeline's scope.
fn scope(pipeline: &Pipeline) -> Vec<&str> {
    pipeline
        .source
        .fields
        .iter()
        .map(|f| f.name().as_str())
        .collect()
}

fn filters(pipeline: &Pipeline) -> Vec<String> {
    pipeline
        .stages
        .iter()
        .flat_map(|Stage::Filter(conjuncts)| conjuncts)
        .map(|e| e.named(&pipeline.source.fields).to_string())
        .collect()
}

const Q1: &str = "SELECT u, s, sum(qty), sum(price), sum(price * (1 - qty)), \
    sum(price * (1 - qty) * (1 + qty)), avg(qty), avg(price), count(*) \
    FROM t WHERE day <= date '1998-12-01' - interval '90' day GROUP BY u, s ORDER BY u, s";

#[tokio::test]
async fn q1_like_queries_are_one_pipeline() {
    let found = cut(Q1).await.unwrap();
    assert_eq!(found.rows, Some(ROWS));
    let p = pipeline(&found);
    assert_eq!(filters(p), ["(day <= 1998-09-02)"]);
    let a = aggregate(p);
    assert_eq!(a.keys.len(), 2);
    assert!(a.keys.iter().all(|key| matches!(key.node, Node::Column(_))));
    let functions: Vec<_> = a.calls.iter().map(|c| c.function).collect();
    use AggregateFunction::{Avg, Count, Sum};
    assert_eq!(functions, [Sum, Sum, Sum, Sum, Avg, Avg, Count]);
    assert!(a.calls[6].argument.is_none());
    assert_eq!(a.calls[0].return_type, DataType::Decimal128(25, 2));
    let mut names = scope(p);
    names.sort_unstable();
    assert_eq!(names, ["day", "price", "qty", "s", "u"]);
    // The scope's columns are the table's, by position.
    for (column, field) in p.source.columns.iter().zip(&p.source.fields) {
        assert_eq!(crate::tests::schema().field(*column).name(), field.name());
    }
}

#[tokio::test]
async fn q6_like_queries_are_one_ungrouped_pipeline() {
    let found = cut(
        "SELECT sum(price * qty) AS revenue FROM t WHERE day >= date '1994-01-01' AND \
         day < date '1994-01-01' + interval '1' year AND qty BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND b < 24",
    )
    .await
    .unwrap();
    let p = pipeline(&found);
    assert!(aggregate(p).keys.is_empty());
    assert_eq!(filters(p).len(), 5, "{:?}", filters(p));
    assert_eq!(scope(p).len(), 4);
}

#[tokio::test]
async fn every_partitioning_gives_the_same_fragment() {
    let mut shapes = Vec::new();
    for (partitions, grouped) in [(1, "GROUP BY u"), (4, "GROUP BY u")] {
        let context = session(None, WarplineConfig::default());
        context
            .sql(&format!(
                "SET datafusion.execution.target_partitions = {partitions}"
            ))
            .await
            .unwrap();
        let found = cut_in(
            &context,
            &format!("SELECT u, max(b) FROM t WHERE a > 3 {grouped}"),
        )
        .await
        .unwrap();
        shapes.push((filters(pipeline(&found)), scope(pipeline(&found)).join(",")));
    }
    assert_eq!(shapes[0], shapes[1]);
}

#[tokio::test]
async fn projections_and_filters_between_are_substituted() {
    let found = cut(
        "SELECT k, sum(v) FROM (SELECT y AS k, x * 2 AS v FROM \
         (SELECT b + 1 AS x, a AS y, f FROM t WHERE f > 0.5 LIMIT 1000000) WHERE x > 10) GROUP BY k",
    )
    .await;
    // A limit decides which rows there are: not a fragment.
    assert!(
        found.unwrap_err().as_str().contains("limit"),
        "limit must be refused"
    );
    let found = cut("SELECT k, sum(v) FROM (SELECT y AS k, x * 2 AS v FROM \
         (SELECT b + 1 AS x, a AS y, f FROM t WHERE f > 0.5) WHERE x > 10) GROUP BY k")
    .await
    .unwrap();
    let p = pipeline(&found);
    let mut names = scope(p);
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "f"]);
    assert_eq!(filters(p).len(), 2, "{:?}", filters(p));
    let argument = aggregate(p).calls[0]
        .argument
        .as_ref()
        .unwrap()
        .named(&p.source.fields)
        .to_string();
    assert_eq!(argument, "((b + 1) * 2)");
}

#[tokio::test]
async fn conditions_that_can_fail_come_last() {
    let found = cut("SELECT count(*) FROM t WHERE 100 / a > 20 AND a <> 0 AND s LIKE 'name%'")
        .await
        .unwrap();
    let order = filters(pipeline(&found));
    assert_eq!(order.len(), 3, "{order:?}");
    assert!(order[2].contains("/"), "{order:?}");
}

#[tokio::test]
async fn aggregate_filters_counts_and_extremes() {
    let found = cut(
        "SELECT count(b) FILTER (WHERE a > 2), count(a), count(*), min(s), max(day), min(DISTINCT b), avg(b) FROM t",
    )
    .await
    .unwrap();
    let calls = &aggregate(pipeline(&found)).calls;
    assert!(calls[0].filter.is_some() && calls[0].argument.is_some());
    assert!(calls[2].argument.is_none() && calls[2].filter.is_none());
    assert_eq!(calls[3].return_type, DataType::Utf8View);
    assert_eq!(calls[6].return_type, DataType::Float64);
    let argument = calls[6].argument.as_ref().unwrap();
    assert_eq!(argument.data_type, DataType::Float64);
}

#[tokio::test]
async fn parquet_scans_that_compute_or_filter_are_taken_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let path = path.to_str().unwrap();
    for pushdown in [false, true] {
        let context = session(None, WarplineConfig::default());
        let table = context.sql("SELECT * FROM t").await.unwrap();
        table
            .write_parquet(path, Default::default(), None)
            .await
            .unwrap();
        context
            .sql(&format!(
                "SET datafusion.execution.parquet.pushdown_filters = {pushdown}"
            ))
            .await
            .unwrap();
        context
            .register_parquet("p", path, ParquetReadOptions::default())
            .await
            .unwrap();
        let computed = "SELECT u, sum(x), sum(x * 2), min(x) FROM (SELECT u, b * 3 + a AS x FROM p) GROUP BY u";
        let found = cut_in(&context, computed).await.unwrap();
        let mut names = scope(pipeline(&found));
        names.sort_unstable();
        assert_eq!(names, ["a", "b", "u"]);
        let filtered = "SELECT u, sum(b) FROM p WHERE day > date '1993-01-01' AND f < 9 GROUP BY u";
        let found = cut_in(&context, filtered).await.unwrap();
        let p = pipeline(&found);
        assert_eq!(filters(p).len(), 2, "pushdown {pushdown}: {:?}", filters(p));
        assert_eq!(found.rows, Some(ROWS));
    }
}

#[tokio::test]
async fn refusals_name_what_is_in_the_way() {
    for (sql, why) in [
        (
            "SELECT regr_slope(f, f) FROM t",
            "regr_slope is not a device aggregate",
        ),
        (
            "SELECT u, median(f) FROM t GROUP BY u",
            "median is not a device aggregate",
        ),
        (
            "SELECT count(DISTINCT a), sum(DISTINCT b) FROM t",
            "DISTINCT",
        ),
        (
            "SELECT array_agg(b ORDER BY a) FROM t",
            "array_agg is not a device aggregate",
        ),
        (
            "SELECT a, u, sum(b) FROM t GROUP BY ROLLUP (a, u)",
            "ROLLUP",
        ),
        (
            "SELECT f, count(*) FROM t GROUP BY f",
            "grouping by f of type Float64",
        ),
        ("SELECT max(flag) FROM t", "max of Boolean"),
        ("SELECT count(a, b) FROM t", "count of 2 arguments"),
        (
            "SELECT sum(t.b) FROM t JOIN other o ON t.a = o.a",
            "HashJoinExec below the aggregation",
        ),
        (
            "SELECT sum(b) FROM t WHERE s > u",
            "compares two string columns",
        ),
        (
            "SELECT sum(b) FROM t WHERE b > (SELECT avg(b) FROM other)",
            "",
        ),
        (
            "SELECT count(*) FROM information_schema.tables",
            "catalogue",
        ),
        ("SELECT sum(column1) FROM (VALUES (1), (2))", "constants"),
    ] {
        let reason = match cut(sql).await {
            Ok(found) => panic!("{sql} became {found:?}"),
            Err(reason) => reason,
        };
        assert!(reason.as_str().contains(why), "{sql}: {reason}");
    }
}
