//! What counts as a difference, and what does not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use warpline::{DeviceChoice, QueryMetrics, QueryRun};
use warpline_tpch::verify::{Ordering, SortKey};

use super::plain::Expected;
use super::*;

fn batch(values: &[i64]) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_from_iter([("a", column)]).expect("a batch")
}

fn expected(values: &[i64], ordering: Ordering) -> Expected {
    let batch = batch(values);
    Expected {
        schema: batch.schema(),
        batches: vec![batch],
        ordering,
        volatile: false,
    }
}

fn run_of(batch: RecordBatch) -> QueryRun {
    QueryRun {
        schema: batch.schema(),
        batches: vec![batch],
        metrics: QueryMetrics {
            fallbacks: vec!["FilterExec x2: why".into(), "FilterExec: why".into()],
            ..QueryMetrics::default()
        },
    }
}

fn by_first_column(limit: Option<usize>) -> Ordering {
    Ordering {
        keys: vec![SortKey {
            column: 0,
            descending: false,
            nulls_first: false,
        }],
        limit,
        sorted: true,
    }
}

fn statement(sql: &str) -> Statement {
    Statement {
        line: 1,
        sql: sql.to_string(),
    }
}

fn compared(
    sql: &str,
    expected: Result<Expected, Failure>,
    found: Result<QueryRun, Failure>,
) -> Summary {
    let mut summary = Summary::default();
    summary.compare(Path::new("f"), &statement(sql), &expected, found);
    summary
}

#[test]
fn what_differs_is_counted() {
    let free = Ordering::default;
    let of = |values: &[i64], ordering| Ok(expected(values, ordering));
    let found = |values: &[i64]| Ok(run_of(batch(values)));
    let no = || Failure::Refused("no".to_string());
    let panic = || Failure::Panicked("no".to_string());
    let limit = Ordering {
        limit: Some(1),
        ..Ordering::default()
    };
    for (sql, expected, found, kind) in [
        ("SELECT", of(&[1, 2], free()), found(&[2, 1]), None),
        (
            "SELECT",
            of(&[1, 2], by_first_column(None)),
            found(&[2, 1]),
            Some(Kind::Answer),
        ),
        (
            "SELECT",
            of(&[1, 2], free()),
            found(&[1, 3]),
            Some(Kind::Answer),
        ),
        (
            "SELECT",
            of(&[1, 1, 2], free()),
            found(&[1, 2, 2]),
            Some(Kind::Answer),
        ),
        (
            "SELECT",
            of(&[1, 2], free()),
            found(&[1]),
            Some(Kind::Answer),
        ),
        // Any of the rows will do, but not another number of them.
        ("SELECT", of(&[1], limit.clone()), found(&[2]), None),
        (
            "SELECT",
            of(&[1], limit.clone()),
            found(&[1, 2]),
            Some(Kind::Answer),
        ),
        // Plans differ by design; success does not.
        (" EXPLAIN", of(&[1, 2], free()), found(&[1]), None),
        (
            "EXPLAIN",
            of(&[1, 2], free()),
            Err(no()),
            Some(Kind::OnlyWarplineRefuses),
        ),
        (
            "SELECT",
            Err(no()),
            found(&[1]),
            Some(Kind::OnlyDataFusionRefuses),
        ),
        ("SELECT", Err(no()), Err(no()), None),
        ("SELECT", Err(panic()), Err(panic()), None),
        ("SELECT", Err(no()), Err(panic()), Some(Kind::Panic)),
        (
            "SELECT",
            of(&[1], free()),
            Err(Failure::OutOfTime),
            Some(Kind::OutOfTime),
        ),
    ] {
        let context = format!("{sql} {expected:?} {found:?}");
        let summary = compared(sql, expected, found);
        let kinds: Vec<Kind> = summary.differences.iter().map(|d| d.kind).collect();
        assert_eq!(kinds, Vec::from_iter(kind), "{context}");
        assert_eq!(summary.statements, 1, "{context}");
        let reasons: Vec<_> = summary.reasons.keys().collect();
        assert!(
            reasons.iter().all(|reason| *reason == "FilterExec: why"),
            "{reasons:?}"
        );
    }
}

#[test]
fn floats_may_differ_by_the_order_of_sums() {
    let float = |value: f64| {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![value]));
        RecordBatch::try_from_iter([("a", column)]).expect("a batch")
    };
    let expected = || {
        let batch = float(1.0);
        Ok(Expected {
            schema: batch.schema(),
            batches: vec![batch],
            ordering: Ordering::default(),
            volatile: false,
        })
    };
    for (value, differences) in [(1.0 + 1e-12, 0), (1.0 + 1e-6, 1), (f64::NAN, 1)] {
        let summary = compared("SELECT", expected(), Ok(run_of(float(value))));
        assert_eq!(summary.differences.len(), differences, "{value}");
    }
    // Another type is another answer, whatever the value.
    let summary = compared("SELECT", expected(), Ok(run_of(batch(&[1]))));
    assert_eq!(summary.differences.len(), 1);
}

/// Runs statements on two sessions without a device.
fn both(setup: &Setup, sql: &[&str]) -> Summary {
    let statements: Vec<Statement> = sql.iter().map(|sql| statement(sql)).collect();
    run_file(setup, Path::new("f"), &statements, || Ok(())).expect("two sessions")
}

fn on_the_cpu() -> Setup {
    Setup::new(DeviceChoice::Cpu, Duration::from_secs(60))
}

#[test]
fn each_side_runs_each_statement_once() {
    let summary = both(
        &on_the_cpu(),
        &[
            "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 3)",
            "INSERT INTO t VALUES (4)",
            "SELECT count(*), sum(a) FROM t",
            // Refused by both: the answers would differ if one side had run it.
            "SELECT 1 / (CASE WHEN sum(a) = 10 THEN 0 ELSE 1 END) FROM t",
            "not SQL",
        ],
    );
    assert!(summary.differences.is_empty(), "{:?}", summary.differences);
    assert_eq!((summary.statements, summary.refused), (5, 2));
}

#[test]
fn what_cannot_be_compared_is_passed_over() {
    let mut setup = on_the_cpu();
    setup.rows = 10;
    let summary = both(
        &setup,
        &[
            "CREATE TABLE t AS SELECT random() AS a",
            // The table is on neither side.
            "SELECT a FROM t",
            "SELECT random()",
            "SELECT value FROM generate_series(1, 11)",
            "SELECT value FROM generate_series(1, 10)",
        ],
    );
    assert!(summary.differences.is_empty(), "{:?}", summary.differences);
    assert_eq!(summary.refused, 1);
    let passed_over: Vec<_> = summary.passed_over.into_iter().collect();
    let wanted = [(PassedOver::Volatile, 2), (PassedOver::Large, 1)];
    assert_eq!(passed_over, wanted);
}

#[test]
fn time_and_memory_are_bounded() {
    let mut setup = on_the_cpu();
    setup.memory = Some(1 << 20);
    let large = "SELECT count(*) FROM (SELECT DISTINCT value FROM generate_series(1, 1000000))";
    let summary = both(&setup, &[large]);
    assert_eq!(summary.refused, 1, "{summary}");
    setup.time_limit = Duration::from_millis(300);
    // The second never waits for anything.
    let endless = [
        "SELECT max(value) FROM generate_series(1, 1000000000000)",
        "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 1000000) b WHERE a.value + b.value < 0",
    ];
    let summary = both(&setup, &[endless[1], endless[0], endless[1], endless[0]]);
    assert!(summary.differences.is_empty(), "{:?}", summary.differences);
    let passed_over: Vec<_> = summary.passed_over.into_iter().collect();
    let wanted = [(PassedOver::OutOfTime, 3), (PassedOver::Left, 1)];
    assert_eq!(passed_over, wanted);
    setup.file_time_limit = Duration::ZERO;
    let summary = both(&setup, &["SELECT 1", "SELECT 2"]);
    assert_eq!(summary.passed_over.get(&PassedOver::Left), Some(&2));
}
