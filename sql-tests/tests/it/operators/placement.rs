//! Groups in registers, in shared memory, in dense arrays and in hash tables; keys narrow, wide, skewed, extreme.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::*;
use warpline_sql_tests::{Fixture, test_device};

use super::support::{Nulls, Random, booleans, check_all, drawn, primitive, strings};

const ROWS: usize = 6_000;

const CALLS: &str = "count(*) AS n, count(a) AS ka, sum(a) AS s, sum(x) AS sx, min(a) AS lo, max(x) AS hi, \
                     avg(f) AS m, min(f) AS flo, max(t) AS text, sum(a) FILTER (WHERE b) AS part";

fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let cents = [-99_999_999_999_i128, 0, 1, 12_345];
    let small: Vec<i32> = (-500..500).collect();
    let large: Vec<i64> = (0..9000).map(|i| i * 977_777_777_777 - (1 << 50)).collect();
    let extreme = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let mut skewed = vec![42; 97];
    skewed.extend([i32::MIN, i32::MAX, 7]);
    vec![
        ("b", booleans(drawn(&[true, false], rows, Nulls::Some, 1))),
        (
            "g3",
            primitive::<Int8Type>(drawn(&[-1, 0, 1], rows, Nulls::Some, 2)),
        ),
        (
            "g1000",
            primitive::<Int32Type>(drawn(&small, rows, Nulls::Some, 3)),
        ),
        (
            "g9000",
            primitive::<Int64Type>(drawn(&large, rows, Nulls::None, 4)),
        ),
        (
            "edge",
            primitive::<Int64Type>(drawn(&extreme, rows, Nulls::None, 5)),
        ),
        (
            "edgeu",
            primitive::<UInt64Type>(drawn(&[0, 1, 1 << 63, u64::MAX], rows, Nulls::None, 6)),
        ),
        (
            "skew",
            primitive::<Int32Type>(drawn(&skewed, rows, Nulls::Some, 7)),
        ),
        (
            "one",
            primitive::<Int16Type>(drawn(&[-9], rows, Nulls::None, 8)),
        ),
        (
            "t",
            strings(drawn(&["", "x", "yy", "ß"], rows, Nulls::Some, 9)),
        ),
        (
            "a",
            primitive::<Int64Type>(drawn(&[-5, 0, 3, 1 << 33], rows, Nulls::Some, 10)),
        ),
        (
            "x",
            primitive::<Decimal128Type>(drawn(&cents, rows, Nulls::Some, 11)),
        ),
        (
            "f",
            primitive::<Float64Type>(drawn(&[0.25, 1.5, 3.0], rows, Nulls::Some, 12)),
        ),
    ]
}

fn fixture(group_by: &str) -> Fixture {
    Fixture::open(test_device(), true, &[("warpline.group_by", group_by)]).table("t", columns(ROWS))
}

/// Each query is right, and its groups live where the text after it says.
#[track_caller]
fn check_placed(fixture: &Fixture, queries: &[(&str, &str)]) {
    for (keys, place) in queries {
        let sql = format!("SELECT {keys}, {CALLS} FROM t GROUP BY {keys}");
        check_all(fixture, [sql.clone()]);
        // The columns are resident now, so the plan shows the choice.
        let plan = fixture.explain(&sql);
        assert!(
            plan.contains(&format!(" in {place}")),
            "not in {place}: {keys}\n{plan}"
        );
    }
}

#[test]
fn chosen_by_the_keys() {
    check_placed(
        &fixture("auto"),
        &[
            // The states of three groups are more than registers hold, and rows are few.
            ("b", "shared"),
            ("one", "registers"),
            ("g3, t", "shared"),
            ("g1000", "global dense"),
            ("g9000", "global hash"),
            ("edge", "global hash"),
            ("edge, g9000, g1000", "global hash"),
        ],
    );
}

#[test]
fn in_registers_on_request() {
    check_placed(
        &fixture("private"),
        &[
            ("b", "registers"),
            ("g3", "registers"),
            ("g1000", "global dense"),
        ],
    );
}

#[test]
fn in_shared_memory_on_request() {
    check_placed(
        &fixture("shared"),
        &[
            ("one", "shared"),
            ("b, g3", "shared"),
            ("t", "shared"),
            ("g9000", "global hash"),
        ],
    );
}

#[test]
fn in_device_memory_on_request() {
    check_placed(
        &fixture("global"),
        &[
            ("b", "global dense"),
            ("g1000", "global dense"),
            ("t, g3", "global dense"),
            ("skew", "global hash"),
        ],
    );
}

#[test]
fn wide_negative_and_extreme_keys() {
    let fixture = fixture("auto");
    let keys = [
        "edgeu",
        "skew",
        "edge, edgeu",
        "skew, edge, t",
        "g9000, g1000, g3, b, t, one",
        "edge, edgeu, g9000, skew, g1000, g3",
        "a, x",
        "x * 1000, t",
        "-g1000, g3 + 100",
        "a IS NULL, b",
        "g1000 % 7, g1000 / 250",
        "CASE WHEN g1000 > 0 THEN g9000 END, t",
    ];
    check_all(
        &fixture,
        keys.map(|k| format!("SELECT {k}, {CALLS} FROM t GROUP BY {k}")),
    );
    check_all(
        &fixture,
        [
            "SELECT DISTINCT g3, t FROM t",
            "SELECT g1000, count(*) AS n FROM t GROUP BY g1000 HAVING count(*) > 7 ORDER BY n DESC, g1000 LIMIT 5",
            "SELECT t, sum(a) AS s FROM t WHERE g1000 BETWEEN -3 AND 250 GROUP BY t ORDER BY t",
        ]
        .map(String::from),
    );
}

/// A key that takes all 2^64 values and NULL as well.
#[test]
fn full_range_keys_with_nulls() {
    let extreme = [i64::MIN, -1, 0, i64::MAX];
    let fixture = Fixture::open(test_device(), false, &[("warpline.min_rows", "0")]).table(
        "t",
        [
            (
                "k",
                primitive::<Int64Type>(drawn(&extreme, 500, Nulls::Some, 1)),
            ),
            (
                "u",
                primitive::<UInt64Type>(drawn(&[0, u64::MAX], 500, Nulls::Some, 2)),
            ),
            (
                "a",
                primitive::<Int64Type>(drawn(&extreme, 500, Nulls::Some, 3)),
            ),
        ],
    );
    check_all(
        &fixture,
        [
            "SELECT k, count(*) AS n, sum(a) AS s, min(a) AS lo FROM t GROUP BY k",
            "SELECT u, k, count(*) AS n, max(a) AS hi, max(u) AS hiu FROM t GROUP BY u, k",
        ]
        .map(String::from),
    );
}

/// Every row a group of its own, in keys of one word and of several.
#[test]
fn as_many_groups_as_rows() {
    let rows = 100_000;
    let spread: Vec<Option<i64>> = {
        let mut random = Random::new(21);
        (0..rows).map(|_| Some(random.next() as i64)).collect()
    };
    let row: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..rows as i64).map(|i| i * 3 - 50_000),
    ));
    let fixture = Fixture::open(test_device(), false, &[("warpline.min_rows", "0")]).table(
        "t",
        [
            ("row", row),
            ("spread", primitive::<Int64Type>(spread)),
            (
                "g",
                primitive::<Int32Type>(drawn(&[1, 2, 3], rows, Nulls::Some, 22)),
            ),
        ],
    );
    for sql in [
        "SELECT row, count(*) AS n, sum(g) AS s, max(spread) AS hi FROM t GROUP BY row",
        "SELECT spread, count(*) AS n, sum(row) AS s FROM t GROUP BY spread",
        "SELECT spread, g, row, count(*) AS n, min(row) AS s FROM t GROUP BY spread, g, row",
    ] {
        let run = fixture.check(sql);
        assert_eq!(run.rows(), rows, "{sql}");
        assert!(
            run.metrics.kernels > 0,
            "{sql} ran on the CPU: {:?}",
            run.metrics.fallbacks
        );
    }
}

/// More groups than the first table holds: it overflows, grows, and the answer counts every row once.
#[test]
fn tables_that_grow() {
    let fixture = Fixture::open(test_device(), false, &[("warpline.min_rows", "0")])
        .table_from(
            "t",
            "SELECT value * 1000003 % 4611686018427387847 AS k, value AS v FROM generate_series(1, 5000000)",
        );
    let sql = "SELECT count(*) AS n, sum(s) AS s, sum(c) AS c, max(k) AS hi FROM \
               (SELECT k, sum(v) AS s, count(*) AS c FROM t GROUP BY k)";
    let run = fixture.check(sql);
    assert!(run.metrics.kernels > 1, "{:?}", run.metrics);
}
