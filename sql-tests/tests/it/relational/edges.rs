//! Ends of types, decimals of 38 digits, dates before 1970, tables without rows in the middle of a plan.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::tables::{decimals, fixture};
use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers};

fn int64(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

/// Keys at both ends of each integer type, as join and group keys and in orders.
#[test]
fn keys_at_the_ends_of_their_types() {
    let wide = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let unsigned = [0, 1, 1 << 63, u64::MAX - 1, u64::MAX];
    let columns = |rows, seed| {
        vec![
            ("id", row_numbers(rows)),
            (
                "a",
                primitive::<Int64Type>(drawn(&wide, rows, Nulls::Some, seed)),
            ),
            (
                "b",
                primitive::<UInt64Type>(drawn(&unsigned, rows, Nulls::Some, seed + 1)),
            ),
            (
                "c",
                primitive::<Int32Type>(drawn(
                    &[i32::MIN, 0, i32::MAX],
                    rows,
                    Nulls::Some,
                    seed + 2,
                )),
            ),
            (
                "d",
                primitive::<Int8Type>(drawn(&[i8::MIN, 0, i8::MAX], rows, Nulls::Some, seed + 3)),
            ),
            (
                "e",
                primitive::<Int64Type>(drawn(&wide, rows, Nulls::None, seed + 4)),
            ),
        ]
    };
    let fixture = Fixture::device()
        .table("t", columns(400, 1))
        .table("o", columns(60, 11));
    let mut queries = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        queries.push(format!(
            "SELECT t.id AS i, o.id AS j FROM t JOIN o ON t.{key} = o.{key}"
        ));
        queries.push(format!(
            "SELECT t.id AS i, o.id AS j FROM t LEFT JOIN o ON t.{key} = o.{key} AND t.c = o.c"
        ));
        queries.push(format!(
            "SELECT id FROM t WHERE {key} NOT IN (SELECT {key} FROM o WHERE {key} > 0)"
        ));
        queries.push(format!(
            "SELECT {key}, id FROM t ORDER BY {key} DESC, id LIMIT 100"
        ));
        queries.push(format!(
            "SELECT DISTINCT {key}, id % 3 AS m FROM t WHERE {key} IS NOT NULL"
        ));
        queries.push(format!(
            "SELECT min({key}) AS lo, max({key}) AS hi, count(DISTINCT {key}) AS n FROM t"
        ));
    }
    queries.push("SELECT e, count(*) AS n FROM t GROUP BY e".into());
    queries.push("SELECT e, c, d, count(*) AS n FROM t GROUP BY e, c, d".into());
    queries.push(
        "SELECT t.id AS i, o.id AS j FROM t JOIN o ON t.a = o.a AND t.b = o.b AND t.e = o.e".into(),
    );
    check_all(&fixture, queries);
}

#[test]
fn decimals_of_38_digits() {
    let nines = 10i128.pow(38) - 1;
    let values = [nines, -nines, nines - 1, 10i128.pow(37), 1, 0, -1];
    let columns = |rows, seed| {
        vec![
            ("id", row_numbers(rows)),
            (
                "a",
                decimals(38, 0, drawn(&values, rows, Nulls::Some, seed)),
            ),
            (
                "b",
                decimals(38, 19, drawn(&values, rows, Nulls::Some, seed + 1)),
            ),
            (
                "c",
                decimals(
                    20,
                    2,
                    drawn(&[-1, 0, 10i128.pow(19)], rows, Nulls::None, seed + 2),
                ),
            ),
        ]
    };
    let fixture = Fixture::device()
        .table("t", columns(80, 5))
        .table("o", columns(20, 6));
    check_all(
        &fixture,
        [
            "SELECT id, a, b, c, a > 0 AS e FROM t",
            "SELECT t.id AS i, o.id AS j, o.a FROM t JOIN o ON t.a = o.a",
            "SELECT t.id AS i, o.id AS j FROM t LEFT JOIN o ON t.b = o.b AND t.c = o.c",
            "SELECT a, count(*) AS n FROM t GROUP BY a",
            "SELECT a, b, c, count(*) AS n FROM t GROUP BY a, b, c",
            "SELECT id, a FROM t ORDER BY a DESC NULLS LAST, id",
            "SELECT id, b FROM t ORDER BY b NULLS FIRST, id LIMIT 30",
            "SELECT min(a) AS lo, max(b) AS hi, sum(c) AS s FROM t",
            "SELECT c, min(a) AS lo, max(a) AS hi FROM t GROUP BY c",
            "SELECT DISTINCT a, c FROM t",
            "SELECT a FROM t EXCEPT SELECT a FROM o",
        ]
        .map(String::from),
    );
}

#[test]
fn dates_and_timestamps_before_1970() {
    let days = [-719_528, -141_428, -1, 0, 1, 10_957, 2_932_896];
    let microseconds = [-62_135_596_800_000_000, -1, 0, 1, 951_782_399_999_999];
    let stamps = |rows, seed| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(drawn(
            &microseconds,
            rows,
            Nulls::Some,
            seed,
        )))
    };
    let columns = |rows, seed| {
        vec![
            ("id", row_numbers(rows)),
            (
                "d",
                primitive::<Date32Type>(drawn(&days, rows, Nulls::Some, seed)),
            ),
            ("s", stamps(rows, seed + 1)),
        ]
    };
    let fixture = Fixture::device()
        .table("t", columns(120, 7))
        .table("o", columns(30, 9));
    check_all(
        &fixture,
        [
            "SELECT t.id AS i, o.id AS j, o.d FROM t JOIN o ON t.d = o.d",
            "SELECT t.id AS i, o.id AS j FROM t LEFT JOIN o ON t.s = o.s AND t.d > o.d",
            "SELECT date_part('year', d) AS y, count(*) AS n, min(s) AS lo FROM t GROUP BY date_part('year', d)",
            "SELECT s, count(*) AS n FROM t GROUP BY s",
            "SELECT id, d, s FROM t ORDER BY d DESC NULLS LAST, s NULLS FIRST, id",
            "SELECT id FROM t WHERE d < DATE '1900-01-01' OR s >= TIMESTAMP '1970-01-01'",
            "SELECT id, d + INTERVAL '1' MONTH AS m FROM o WHERE d > DATE '1600-01-01' AND d < DATE '2100-01-01'",
            "SELECT id FROM t WHERE d BETWEEN DATE '1582-10-15' - INTERVAL '90' DAY AND DATE '1970-01-01'",
        ]
        .map(String::from),
    );
}

/// A filter that keeps nothing leaves the later steps without rows.
#[test]
fn nothing_left_in_the_middle() {
    check_all(
        &fixture(),
        [
            "SELECT a.s, count(*) AS n FROM (SELECT * FROM l WHERE k > 100) a JOIN r ON a.k = r.k GROUP BY a.s",
            "SELECT count(*) AS n, sum(r.x) AS s FROM l JOIN (SELECT * FROM r WHERE s = 'absent') r ON l.k = r.k",
            "SELECT l.id AS i, t.n FROM l LEFT JOIN (SELECT k, count(*) AS n FROM r WHERE z > 99 GROUP BY k) t ON l.k = t.k",
            "SELECT k FROM (SELECT k, sum(x) AS s FROM l GROUP BY k HAVING sum(x) > 1000000) ORDER BY s LIMIT 3",
            "SELECT id FROM l WHERE x > (SELECT max(x) FROM r WHERE s = 'absent')",
            "SELECT id FROM l WHERE k NOT IN (SELECT k FROM r WHERE s = 'absent')",
            "SELECT k FROM l WHERE z > 99 UNION SELECT k FROM r WHERE z > 99",
            "SELECT DISTINCT s FROM l WHERE false",
            "SELECT count(*) AS n FROM l WHERE NULL",
        ]
        .map(String::from),
    );
}

/// Floats as keys of groups, joins and orders: the two zeros and NaN.
#[test]
fn floats_as_keys() {
    let values = [
        Some(0.0),
        Some(-0.0),
        Some(f64::NAN),
        Some(1.5),
        Some(f64::INFINITY),
        None,
        Some(f64::NEG_INFINITY),
        Some(1.5),
    ];
    let f: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
    let fixture = Fixture::device().table("t", [("id", row_numbers(8)), ("f", f)]);
    check_all(
        &fixture,
        [
            "SELECT id, f FROM t ORDER BY f DESC NULLS LAST, id",
            "SELECT id, f FROM t ORDER BY f, id LIMIT 4",
            "SELECT f, count(*) AS n FROM t GROUP BY f",
            "SELECT f, f > 1 AS g, max(id) AS m FROM t GROUP BY f, f > 1",
            "SELECT DISTINCT f, id % 2 AS p FROM t",
            "SELECT count(DISTINCT f) AS a, count(DISTINCT id) AS b, sum(DISTINCT f) AS c FROM t WHERE f < 10",
        ]
        .map(String::from),
    );
}

#[test]
fn a_column_of_each_kind_of_string_and_number_survives_every_step() {
    let fixture = Fixture::device()
        .table(
            "t",
            [
                ("k", int64(&[Some(1), Some(2), None, Some(2), Some(3)])),
                (
                    "s",
                    Arc::new(StringArray::from(vec![
                        Some("x"),
                        Some(""),
                        None,
                        Some("ß"),
                        Some("x"),
                    ])) as ArrayRef,
                ),
            ],
        )
        .table("o", [("k", int64(&[Some(2), Some(2), Some(9), None]))]);
    check_all(
        &fixture,
        [
            "SELECT t.k, t.s, o.k AS ok FROM t LEFT JOIN o ON t.k = o.k ORDER BY t.s NULLS FIRST, t.k, ok",
            "SELECT s, count(o.k) AS n FROM t LEFT JOIN o ON t.k = o.k GROUP BY s ORDER BY n DESC, s NULLS LAST LIMIT 3",
            "SELECT a.s, b.s AS t FROM t a JOIN t b ON a.k = b.k AND a.s IS DISTINCT FROM b.s",
            "SELECT s FROM t UNION ALL SELECT CAST(k AS VARCHAR) FROM o WHERE k > 2",
        ]
        .map(String::from),
    );
}
