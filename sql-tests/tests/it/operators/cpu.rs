//! What stays on the CPU: right answers, a reason in EXPLAIN, a clear refusal where the device is required.

use arrow::array::ArrayRef;
use arrow::datatypes::*;
use warpline::WarplineSession;
use warpline_sql_tests::{Fixture, test_device};
use warpline_tpch::QueryEngine;

use super::support::{Nulls, drawn, primitive, strings};

fn with_tables(fixture: Fixture) -> Fixture {
    let rows = 300;
    let k: ArrayRef = primitive::<Int32Type>(drawn(&[1, 2, 3], rows, Nulls::Some, 1));
    let v: ArrayRef = primitive::<Int64Type>(drawn(&[-5, 0, 12], rows, Nulls::Some, 2));
    let f: ArrayRef = primitive::<Float64Type>(drawn(&[0.5, 1.5, -2.0], rows, Nulls::Some, 3));
    let s: ArrayRef = strings(drawn(&["a", "b", ""], rows, Nulls::Some, 4));
    let r: ArrayRef = strings(drawn(&["a", "c"], rows, Nulls::Some, 5));
    fixture
        .table(
            "t",
            [("k", k.clone()), ("v", v), ("f", f), ("s", s), ("r", r)],
        )
        .table(
            "o",
            [("k", primitive::<Int32Type>(vec![Some(1), Some(2), None]))],
        )
}

/// A query and words of the reason that users read.
const STAYS: [(&str, &str); 11] = [
    (
        "SELECT k, v, sum(v * 2) FILTER (WHERE v > 0) OVER (PARTITION BY k) AS n FROM t",
        "with a FILTER",
    ),
    (
        "SELECT k, array_length(array_agg(v) OVER (PARTITION BY k)) AS s FROM t",
        "put together at the end: nothing is computed of it",
    ),
    (
        "SELECT bit_xor(DISTINCT v) AS d, bit_xor(DISTINCT k) AS e FROM t",
        "bit_xor(DISTINCT",
    ),
    (
        "SELECT m, count(*) AS n FROM (SELECT k, string_agg(s, ',' ORDER BY s) AS m FROM t GROUP BY k) GROUP BY m",
        "put together at the end",
    ),
    (
        "SELECT first_value(k) AS m FROM t",
        "first_value without ORDER BY",
    ),
    (
        "SELECT first_value(v) AS m FROM t WHERE v > 0",
        "first_value without ORDER BY",
    ),
    (
        "SELECT k, s, first_value(v) AS x FROM t GROUP BY GROUPING SETS ((k), (s))",
        "first_value without ORDER BY",
    ),
    (
        "SELECT k, s, first_value(v) AS x FROM t GROUP BY ROLLUP (k, s)",
        "first_value without ORDER BY",
    ),
    ("SELECT max(repeat(s, k)) AS x FROM t", "repeat"),
    (
        "SELECT max(s || n) AS x FROM (SELECT s, sum(f) AS n FROM t GROUP BY s)",
        "run",
    ),
    (
        "SELECT count(*) AS n FROM t WHERE f * random() > 9",
        "volatile",
    ),
];

#[test]
fn answers_right_and_says_why() {
    let fixture = with_tables(Fixture::open(
        test_device(),
        false,
        &[("warpline.min_rows", "0")],
    ));
    for (sql, reason) in STAYS {
        let run = fixture.check(sql);
        assert!(
            !run.metrics.fallbacks.is_empty(),
            "{sql}: no fallback reported"
        );
        let fallbacks = run.metrics.fallbacks.join("; ");
        assert!(fallbacks.contains(reason), "{sql}: {fallbacks}");
        let plan = fixture.explain(sql);
        let words: Vec<_> = reason.split(' ').collect();
        assert!(plan.contains("PlacementReportExec"), "{sql}\n{plan}");
        assert!(
            words.iter().all(|word| plan.contains(word)),
            "{sql}: {reason}\n{plan}"
        );
    }
}

#[test]
fn is_refused_where_the_device_is_required() {
    let fixture = with_tables(Fixture::device());
    for (sql, reason) in STAYS {
        let message = fixture.compare(sql).map(|_| ()).expect_err(sql);
        assert!(message.contains("the device failed"), "{sql}: {message}");
        assert!(
            message.contains("warpline.require_gpu is set"),
            "{sql}: {message}"
        );
        assert!(message.contains(reason), "{sql}: {message}");
    }
    // The session lives on.
    fixture.check("SELECT k, sum(v) AS s FROM t GROUP BY k");
}

#[test]
fn aggregates_below_other_operators_still_run_on_the_device() {
    let fixture = with_tables(Fixture::open(
        test_device(),
        false,
        &[("warpline.min_rows", "0")],
    ));
    for sql in [
        "SELECT a.k, a.s, b.n FROM (SELECT k, sum(v) AS s FROM t GROUP BY k) a \
         JOIN (SELECT k, count(*) AS n FROM t WHERE v > 0 GROUP BY k) b ON a.k = b.k",
        "SELECT k, sum(v) AS s FROM t GROUP BY k UNION ALL SELECT k, count(*) AS s FROM o WHERE k > 0 GROUP BY k",
        "SELECT k, s, rank() OVER (ORDER BY s) AS r FROM (SELECT k, sum(v) AS s FROM t GROUP BY k)",
        "SELECT s, count(DISTINCT k) AS d FROM t GROUP BY s",
        "SELECT count(*) AS n FROM t WHERE v > (SELECT avg(v) FROM t WHERE k = 1)",
        "SELECT k, sum(v) AS s FROM t GROUP BY k HAVING sum(v) > (SELECT min(k) FROM o WHERE k > 0)",
        "SELECT min(n) AS lo, max(n) AS hi FROM (SELECT s, count(*) AS n FROM t GROUP BY s)",
    ] {
        let run = fixture.check(sql);
        assert!(run.metrics.kernels > 0, "{sql}: nothing ran on the device");
    }
}

#[test]
fn too_small_tables_stay_unless_required() {
    let relaxed = with_tables(Fixture::open(test_device(), false, &[]));
    let run = relaxed.check("SELECT sum(v) AS s FROM t WHERE k > 0");
    assert_eq!(run.metrics.kernels, 0);
    let fallbacks = run.metrics.fallbacks.join("; ");
    assert!(
        fallbacks.contains("fewer than warpline.min_rows"),
        "{fallbacks}"
    );
    let session: &WarplineSession = relaxed.session();
    relaxed
        .block_on(session.run("SET warpline.min_rows = 0"))
        .expect("a valid setting");
    let run = relaxed.check("SELECT sum(v) AS s FROM t WHERE k > 0");
    assert!(run.metrics.kernels > 0);
}
