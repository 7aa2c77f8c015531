//! The first rows of an order over a table, whose other columns are read for these alone (`warpline.late_columns`).

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers, strings};

fn rows(fixture: Fixture, name: &str, rows: usize, nulls: Nulls) -> Fixture {
    let seed = rows as u64;
    let words = ["", "a", "Bär", "日本語", "zz top"];
    // Of many values: they stay as bytes.
    let names: Vec<Option<String>> = (0..rows)
        .map(|i| {
            (i % 7 != 3 || nulls == Nulls::None).then(|| format!("Straße {}", i * 7919 % 100_003))
        })
        .collect();
    let longs = [i64::MIN, -1, 0, 5, i64::MAX];
    let floats = [-1.5, -0.0, 0.0, 2.5, f64::NAN, f64::INFINITY];
    fixture.table(
        name,
        [
            ("id", row_numbers(rows)),
            (
                "g",
                primitive::<Int32Type>(drawn(&[1, 2, 3, 4], rows, nulls, seed)),
            ),
            (
                "v",
                primitive::<Int64Type>(drawn(&longs, rows, nulls, seed + 1)),
            ),
            (
                "f",
                primitive::<Float64Type>(drawn(&floats, rows, nulls, seed + 2)),
            ),
            (
                "d",
                primitive::<Date32Type>(drawn(&[-1, 0, 20_000], rows, nulls, seed + 3)),
            ),
            ("s", strings(drawn(&words, rows, nulls, seed + 4))),
            ("n", strings(names.iter().map(Option::as_deref).collect())),
            ("c", primitive::<Int32Type>(vec![Some(1); rows])),
            ("z", primitive::<Int16Type>(vec![None; rows])),
        ],
    )
}

fn queries(t: &str) -> Vec<String> {
    let mut queries = Vec::new();
    for order in [
        "v DESC NULLS LAST, id",
        "s, f NULLS FIRST, id DESC",
        "g + id, id",
        "c, z, id",
        "f DESC, d, id",
    ] {
        for cut in ["LIMIT 10", "LIMIT 3 OFFSET 7", "LIMIT 700", "LIMIT 0"] {
            queries.push(format!("SELECT * FROM {t} ORDER BY {order} {cut}"));
        }
        queries.push(format!(
            "SELECT upper(s) AS u, n, id % 5 AS m, v IS NULL AS w FROM {t} WHERE g > 1 AND n LIKE '%1%' ORDER BY {order} LIMIT 9"
        ));
        // The order's columns are not in the answer, which is summed up: rows that tie are told apart by id.
        queries.push(format!(
            "SELECT count(*) AS k, min(n) AS n, sum(id) AS i FROM (SELECT n, id FROM {t} ORDER BY {order} LIMIT 12 OFFSET 1) x"
        ));
    }
    queries.push(format!(
        "SELECT n, v, id FROM {t} WHERE id > (SELECT avg(id) FROM {t}) ORDER BY g, id LIMIT 5"
    ));
    queries.push(format!(
        "SELECT a.n, b.s FROM (SELECT n, g, id FROM {t} ORDER BY v, id LIMIT 4) a JOIN {t} b ON a.id = b.id ORDER BY a.id"
    ));
    queries.push(format!(
        "SELECT x.id, y.id AS j FROM (SELECT * FROM {t} ORDER BY f, id LIMIT 6) x, (SELECT * FROM {t} ORDER BY f DESC, id LIMIT 2) y \
         ORDER BY x.id, y.id"
    ));
    queries
}

#[test]
fn rows_of_every_number() {
    let mut fixture = Fixture::device();
    let sizes = [0, 1, 31, 32, 33, 5000];
    for size in sizes {
        fixture = rows(fixture, &format!("t{size}"), size, Nulls::Some);
    }
    fixture.set("warpline.late_columns", "on");
    for size in sizes {
        check_all(&fixture, queries(&format!("t{size}")));
    }
    let plan = fixture.explain("ANALYZE SELECT * FROM t5000 ORDER BY v LIMIT 3");
    assert!(plan.contains("picked by first of"), "{plan}");
}

#[test]
fn no_nulls_and_nothing_else() {
    let fixture = rows(Fixture::device(), "full", 2000, Nulls::None);
    let fixture = rows(fixture, "none", 2000, Nulls::All);
    fixture.set("warpline.late_columns", "on");
    check_all(&fixture, queries("full"));
    check_all(&fixture, queries("none"));
}

/// Keys come piece by piece, columns are in host memory.
#[test]
fn in_little_memory() {
    let fixture = rows(Fixture::device(), "t", 30_000, Nulls::Some);
    fixture.set("warpline.late_columns", "on");
    fixture.set("warpline.device_memory", "1MiB");
    check_all(
        &fixture,
        [
            "SELECT * FROM t ORDER BY v DESC, id LIMIT 10",
            "SELECT n, s, id FROM t WHERE g > 1 ORDER BY f, id LIMIT 20 OFFSET 5",
        ]
        .map(String::from),
    );
}

/// A narrow row is written down as it is; one of many columns is not, if there are many rows.
#[test]
fn where_it_is_cheaper() {
    let fixture = Fixture::device().table_from(
        "w",
        "SELECT value AS a, value * 3 AS b, value * 5 AS c, value * 7 AS d, value * 11 AS e, (value * 7919) % 100003 AS k \
         FROM generate_series(1, 3000000)",
    );
    let picked = |sql: &str| {
        let plan = fixture.explain(&format!("ANALYZE {sql}"));
        plan.contains("picked by first of")
    };
    assert!(picked("SELECT * FROM w ORDER BY k LIMIT 10"));
    assert!(!picked("SELECT k FROM w ORDER BY k LIMIT 10"));
    assert!(!picked(
        "SELECT * FROM w WHERE a < 1000 ORDER BY k LIMIT 10"
    ));
    assert!(!picked("SELECT * FROM w ORDER BY k LIMIT 1000000"));
    assert!(!picked("SELECT * FROM w ORDER BY k"));
    fixture.set("warpline.late_columns", "off");
    assert!(!picked("SELECT * FROM w ORDER BY k LIMIT 10"));
}

/// A row that is left out fails the query all the same, where it is computed before the order.
#[test]
fn what_fails_for_rows_that_are_left_out() {
    let fixture = Fixture::device().table_from(
        "t",
        "SELECT value AS a, 100 - value AS b FROM generate_series(1, 100)",
    );
    fixture.set("warpline.late_columns", "on");
    fixture.check_error("SELECT 10 / b AS q, a FROM t ORDER BY q, a LIMIT 3");
    fixture.check("SELECT 10 / b AS q, a FROM t WHERE b > 0 ORDER BY a LIMIT 3");
    fixture.check("SELECT b % 7 AS q, a FROM t ORDER BY q, a LIMIT 3");
}
