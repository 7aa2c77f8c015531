//! Phases of aggregations that run apart, on the device and on the CPU in turn: states that either leaves, the other merges.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringArray};
use arrow::datatypes::{Float64Type, Int64Type};
use warpline_sql_tests::Fixture;
use warpline_sql_tests::cut::Cut;

use super::tables::with_tables;
use crate::operators::support::{Nulls, drawn, primitive};

/// In several partitions and small batches, so that phases have work.
fn fixture() -> Fixture {
    let fixture = with_tables(Fixture::device());
    for (key, value) in [
        ("datafusion.execution.target_partitions", "3"),
        ("datafusion.execution.batch_size", "64"),
    ] {
        fixture.set(key, value);
    }
    fixture
}

/// Every query in every way in which the device has a part; it has to take all that it is given.
#[track_caller]
fn check_cut(fixture: &Fixture, queries: impl IntoIterator<Item = String>) {
    let mut failures = Vec::new();
    for sql in queries {
        let expected = fixture.expect(&sql);
        for cut in Cut::EACH {
            let message = match fixture.run_cut(&sql, cut) {
                Err(error) => Some(error.strip_backtrace()),
                Ok(run) if run.phases == 0 => Some("nothing was cut".into()),
                Ok(run) if !run.refused.is_empty() => Some(run.refused.join("\n")),
                Ok(run) => expected.difference_of(&run.schema, &run.batches),
            };
            failures.extend(message.map(|message| format!("{sql}\n{cut:?}\n{message}")));
        }
    }
    assert!(
        failures.is_empty(),
        "{} runs differ\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Calls of every function that the device merges.
const CALLS: [&str; 5] = [
    "count(*) AS a, count(x) AS b, count(k, s) AS c, sum(w) AS d, sum(x) AS e, sum(f) AS g, avg(x) AS h, avg(f) AS i, avg(z) AS j",
    "min(k) AS a, max(w) AS b, min(s) AS c, max(s) AS d, min(d) AS e, max(x) AS g, min(f) AS h, max(f) AS i, min(b) AS j, max(b) AS l, sum(z) AS y",
    "bool_and(b) AS a, bool_or(b) AS c, bit_and(z) AS d, bit_or(w) AS e, bit_xor(k) AS g",
    "var_pop(f) AS a, var_samp(k) AS b, stddev(z) AS c, stddev_pop(f) AS d, covar_pop(f, z) AS e, covar_samp(k, f) AS g, corr(z, f) AS h",
    "regr_slope(f, z) AS a, regr_intercept(f, k) AS b, regr_count(k, f) AS c, regr_r2(z, f) AS d, regr_avgx(f, k) AS e, regr_avgy(f, k) AS g, regr_sxx(f, z) AS h, regr_syy(f, z) AS i, regr_sxy(k, f) AS j",
];

/// Of a table without rows DataFusion knows some answers from its statistics alone: the condition is true.
fn each_call(table: &str) -> Vec<String> {
    let each = CALLS.iter().flat_map(|calls| {
        [
            format!("SELECT {calls} FROM {table} WHERE id >= 0"),
            format!("SELECT s, {calls} FROM {table} WHERE id >= 0 GROUP BY s"),
        ]
    });
    each.collect()
}

#[test]
fn of_every_function() {
    check_cut(&fixture(), each_call("l"));
}

#[test]
fn of_no_rows() {
    check_cut(&fixture(), each_call("e"));
}

#[test]
fn of_nulls_alone_and_of_one_row() {
    check_cut(
        &fixture(),
        ["n", "one"].iter().flat_map(|table| each_call(table)),
    );
}

#[test]
fn with_filters_that_leave_some_groups_nothing() {
    check_cut(
        &fixture(),
        [
            "SELECT k, count(*) FILTER (WHERE z > 5) AS a, avg(x) FILTER (WHERE z > 8) AS b, sum(f) FILTER (WHERE f > 3) AS c, stddev(f) FILTER (WHERE z < 3) AS d, min(s) FILTER (WHERE b) AS e, corr(f, z) FILTER (WHERE z > 2) AS g FROM l GROUP BY k",
            "SELECT count(*) FILTER (WHERE z > 50) AS a, avg(x) FILTER (WHERE z > 50) AS b, sum(f) FILTER (WHERE f > 50) AS c, stddev(f) FILTER (WHERE z > 50) AS d, regr_count(f, z) FILTER (WHERE z > 50) AS e FROM l",
        ]
        .map(String::from),
    );
}

#[test]
fn of_keys_of_every_type_and_of_sets_of_them() {
    check_cut(
        &fixture(),
        [
            "SELECT DISTINCT s, z FROM l",
            "SELECT w, x, d, b, count(*) AS n, sum(z) AS t FROM l GROUP BY w, x, d, b",
            "SELECT upper(s) AS u, k % 3 AS m, count(*) AS n, avg(x) AS a FROM l GROUP BY upper(s), k % 3",
            "SELECT id, count(*) AS n, avg(f) AS a, var_pop(f) AS v FROM l GROUP BY id",
            "SELECT z, s, count(*) AS n, sum(x) AS t, avg(x) AS a, min(s) AS m FROM l GROUP BY ROLLUP (z, s)",
            "SELECT z, b, count(*) AS n, avg(f) AS a, stddev(f) AS v, grouping(z, b) AS g FROM l GROUP BY CUBE (z, b)",
            "SELECT s, count(*) AS n, avg(x) AS a FROM e GROUP BY GROUPING SETS ((s), (s), ())",
        ]
        .map(String::from),
    );
}

#[test]
fn below_and_above_other_operators() {
    check_cut(
        &fixture(),
        [
            "SELECT l.z, count(*) AS n, sum(r.x) AS t, avg(r.f) AS a FROM l JOIN r ON l.k = r.k WHERE l.z > 1 GROUP BY l.z",
            "SELECT z + 1 AS y, avg(x) * 2 AS a FROM l GROUP BY z HAVING count(*) > 3 ORDER BY a DESC, y LIMIT 3",
            "SELECT count(*) AS n FROM (SELECT l.id FROM l JOIN r ON l.z = r.z) q",
        ]
        .map(String::from),
    );
}

/// Lanes, warps and blocks that are full or not; one group has nearly all rows.
#[test]
fn over_sizes_around_a_warp_and_of_many_blocks() {
    let table = |rows: usize| -> Vec<(&'static str, ArrayRef)> {
        let keys = (0..rows).map(|i| if i % 50 == 7 { i as i64 } else { 3 });
        let money = drawn(&[-99_999, 0, 1, 12_345_678], rows, Nulls::Some, 5);
        let money = Decimal128Array::from(money).with_precision_and_scale(15, 2);
        let words = (0..rows).map(|i| (i % 5 > 0).then(|| format!("straße {}", i % 9)));
        vec![
            ("k", Arc::new(Int64Array::from_iter_values(keys)) as _),
            ("m", Arc::new(money.expect("digits")) as _),
            (
                "f",
                primitive::<Float64Type>(drawn(&[-1e9, 0.1, 1e9], rows, Nulls::Some, 6)),
            ),
            ("t", Arc::new(words.collect::<StringArray>()) as _),
            ("c", primitive::<Int64Type>(vec![Some(7); rows])),
        ]
    };
    let mut fixture = Fixture::device();
    for rows in [1, 31, 32, 33, 3000] {
        fixture = fixture.table(&format!("t{rows}"), table(rows));
    }
    fixture.set("datafusion.execution.target_partitions", "2");
    let queries = [1, 31, 32, 33, 3000].map(|rows| {
        format!(
            "SELECT k, count(m) AS a, sum(m) AS b, avg(m) AS c, max(t) AS d, var_pop(f) AS e, sum(c) AS g, stddev(c) AS h FROM t{rows} GROUP BY k"
        )
    });
    check_cut(&fixture, queries);
}

/// Sums that wrap, averages that need more digits than their type, extremes of their types and floats that are none.
#[test]
fn of_extreme_values() {
    let ends = [i64::MIN, i64::MAX, -1, 0, 1];
    let digits = 10i128.pow(24) - 1;
    let wide = |precision| {
        let values = drawn(&[digits, -digits, 1, digits / 3], 200, Nulls::Some, 3);
        let array = Decimal128Array::from(values).with_precision_and_scale(precision, 4);
        Arc::new(array.expect("digits")) as ArrayRef
    };
    let fixture = Fixture::device().table(
        "t",
        [
            (
                "k",
                primitive::<Int64Type>(drawn(&[1, 2, 3], 200, Nulls::Some, 1)),
            ),
            (
                "i",
                primitive::<Int64Type>(drawn(&ends, 200, Nulls::Some, 2)),
            ),
            ("m", wide(25)),
            (
                "f",
                primitive::<Float64Type>(drawn(
                    &[f64::INFINITY, -0.0, 0.0, 1.5, f64::MAX],
                    200,
                    Nulls::Some,
                    4,
                )),
            ),
        ],
    );
    fixture.set("datafusion.execution.target_partitions", "3");
    fixture.set("datafusion.execution.batch_size", "32");
    let calls = "sum(i) AS a, avg(m) AS b, sum(m) AS c, min(i) AS d, max(i) AS e, min(f) AS g, max(f) AS h, bit_xor(i) AS j";
    check_cut(
        &fixture,
        [
            format!("SELECT k, {calls} FROM t GROUP BY k"),
            format!("SELECT {calls} FROM t"),
        ],
    );
}

/// What arrives is read once, whatever becomes of the device: for the next attempt, and for the CPU.
#[test]
fn arrivals_are_kept_for_whoever_answers() {
    let fixture = with_tables(Fixture::open(
        warpline_sql_tests::test_device(),
        false,
        &[("warpline.min_rows", "0"), ("warpline.reentry", "on")],
    ));
    fixture.set("datafusion.execution.target_partitions", "3");
    fixture.set("datafusion.execution.batch_size", "64");
    let sql = "SELECT s, count(*) AS n, avg(x) AS a, stddev(f) AS d FROM l GROUP BY s";
    let expected = fixture.expect(sql);
    let finishes = Cut {
        begins: false,
        reduces: None,
        finishes: true,
    };
    for rules in [
        "",
        "allocate:1",
        "allocate:3:1000000",
        "upload",
        "launch:1",
        "compile",
        "download",
    ] {
        fixture.session().device().evict().expect("evicted");
        fixture.set("warpline.inject_failures", rules);
        let run = fixture.run_cut(sql, finishes);
        fixture.set("warpline.inject_failures", "");
        let run = run.unwrap_or_else(|error| panic!("{rules}: {error}"));
        assert_eq!(run.refused, Vec::<String>::new(), "{rules}");
        let difference = expected.difference_of(&run.schema, &run.batches);
        assert_eq!(difference, None, "{rules}");
    }
}

/// States that are no numbers stay where they are; the rest of the query goes on.
#[test]
fn states_that_are_lists_or_sketches_stay_on_the_cpu() {
    let fixture = with_tables(Fixture::open(
        warpline_sql_tests::test_device(),
        false,
        &[("warpline.min_rows", "0"), ("warpline.reentry", "on")],
    ));
    fixture.set("datafusion.execution.target_partitions", "3");
    for (call, reason) in [
        ("count(DISTINCT f + 1)", "the state of count(DISTINCT"),
        ("median(f)", "the state of median"),
        ("approx_distinct(k)", "the state of approx_distinct"),
        ("array_agg(k ORDER BY k)", "the state of array_agg"),
        (
            "first_value(k ORDER BY k)",
            "does not merge states of first_value",
        ),
    ] {
        // Beside another call, so that DISTINCT does not become a grouping.
        let sql = format!("SELECT z, {call} AS a, sum(w) AS b FROM l GROUP BY z");
        for cut in Cut::EACH {
            let run = fixture.run_cut(&sql, cut).expect("an answer");
            assert!(!run.refused.is_empty(), "{sql} {cut:?}");
            for plan in &run.refused {
                assert!(plan.contains(reason), "{reason}\n{plan}");
            }
        }
    }
}
