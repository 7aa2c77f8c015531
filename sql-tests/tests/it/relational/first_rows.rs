//! The first rows of each partition of a window, by `row_number()`, `rank()` and `dense_rank()`.

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers, strings};

fn rows(fixture: Fixture, name: &str, rows: usize) -> Fixture {
    let n = Nulls::Some;
    let few: Vec<i64> = (0..12).map(|i| i * 1_000_000_007).collect();
    let words = ["", "a", "Bär", "日本語", "zz top"];
    let seed = rows as u64;
    // Nine rows of ten in one partition.
    let skewed: Vec<i32> = (0..20).map(|i| i32::from(i > 17) * i).collect();
    fixture.table(
        name,
        [
            ("id", row_numbers(rows)),
            (
                "g",
                primitive::<Int32Type>(drawn(&[1, 2, 3, 4], rows, n, seed)),
            ),
            (
                "h",
                primitive::<Int32Type>(drawn(&skewed, rows, Nulls::None, seed + 1)),
            ),
            ("v", primitive::<Int64Type>(drawn(&few, rows, n, seed + 2))),
            (
                "f",
                primitive::<Float64Type>(drawn(
                    &[-1.5, -0.0, 0.0, 2.5, f64::NAN],
                    rows,
                    n,
                    seed + 3,
                )),
            ),
            ("s", strings(drawn(&words, rows, n, seed + 4))),
            ("c", primitive::<Int32Type>(vec![Some(1); rows])),
        ],
    )
}

/// Rows by their number under an order that is total for `row_number()`, since any of equal rows may come first.
fn queries(t: &str) -> Vec<String> {
    let numbers = [
        ("row_number()", ", id"),
        ("rank()", ""),
        ("dense_rank()", ""),
        ("rank()", ", id"),
        ("dense_rank()", ", g, id"),
    ];
    let windows = [
        "PARTITION BY g ORDER BY v DESC",
        "PARTITION BY h, s ORDER BY f NULLS FIRST",
        "PARTITION BY c ORDER BY s, v",
        "ORDER BY v, f DESC",
    ];
    let conditions = [
        "n <= 3",
        "n < 2",
        "n = 1",
        "5 >= n AND id % 2 = 0",
        "n BETWEEN 2 AND 40",
    ];
    let mut all = Vec::new();
    for (i, (function, more)) in numbers.into_iter().enumerate() {
        for (j, window) in windows.into_iter().enumerate() {
            let condition = conditions[(i + j) % conditions.len()];
            all.push(format!(
                "SELECT id, g, v, f, s, n FROM (SELECT *, {function} OVER ({window}{more}) AS n FROM {t}) WHERE {condition}"
            ));
        }
    }
    all
}

#[test]
fn rows_of_every_number() {
    let sizes = [0, 1, 31, 32, 33, 257, 2500];
    let fixture = sizes.into_iter().fold(Fixture::device(), |fixture, size| {
        rows(fixture, &format!("t{size}"), size)
    });
    for size in sizes {
        check_all(&fixture, queries(&format!("t{size}")));
    }
}

/// What else the window has, and what is above the condition.
#[test]
fn beside_other_functions() {
    let fixture = rows(Fixture::device(), "t", 700);
    let over = "OVER (PARTITION BY g ORDER BY v, id)";
    let running = "sum(h) OVER (PARTITION BY g ORDER BY v, id ROWS UNBOUNDED PRECEDING)";
    check_all(
        &fixture,
        [
            format!(
                "SELECT id, n, r, t FROM (SELECT id, row_number() {over} AS n, rank() {over} AS r, {running} AS t FROM t) WHERE n <= 4 AND r < 9"
            ),
            // Those that depend on rows behind are over all rows.
            format!(
                "SELECT id, n, m FROM (SELECT id, rank() {over} AS n, lead(id) {over} AS m FROM t) WHERE n <= 2"
            ),
            format!(
                "SELECT id, n, m FROM (SELECT id, row_number() {over} AS n, count(*) OVER (PARTITION BY g) AS m FROM t) WHERE n <= 2"
            ),
            format!(
                "SELECT id, n, m FROM (SELECT id, row_number() {over} AS n, cume_dist() {over} AS m FROM t) WHERE n <= 2"
            ),
            format!(
                "SELECT g, count(*) AS k, max(n) AS m FROM (SELECT g, row_number() {over} AS n FROM t) WHERE n <= 7 GROUP BY g"
            ),
            format!(
                "SELECT a.id, b.n FROM t a JOIN (SELECT id, dense_rank() {over} AS n FROM t) b ON a.id = b.id WHERE b.n <= 3"
            ),
            // Not the first ones.
            format!("SELECT id, n FROM (SELECT id, rank() {over} AS n FROM t) WHERE n > 3"),
            format!(
                "SELECT id, n FROM (SELECT id, rank() {over} AS n FROM t) WHERE n <= 0 OR n = 3"
            ),
            format!("SELECT id, n FROM (SELECT id, rank() {over} AS n FROM t) WHERE n <= 0"),
            // Rows of one window under two conditions.
            format!(
                "WITH w AS (SELECT id, g, rank() {over} AS n FROM t) SELECT a.id, b.id AS j FROM w a JOIN w b ON a.g = b.g AND a.n <= 2 WHERE b.n = 1"
            ),
        ],
    );
    let plan = fixture.explain(&format!(
        "SELECT id FROM (SELECT id, rank() {over} AS n FROM t) WHERE n < 5"
    ));
    assert!(plan.contains("rows of rank() <= 4"), "{plan}");
}

/// Hot runs, which read no sizes back, have the same rows; and so do runs over fewer rows than before.
#[test]
fn again() {
    let fixture = rows(Fixture::device(), "t", 900);
    let sql = "SELECT id, n FROM (SELECT id, rank() OVER (PARTITION BY h ORDER BY v) AS n FROM t WHERE id % 7 < 3) WHERE n <= 5";
    for _ in 0..3 {
        fixture.check(sql);
    }
    for least in [800, 0, 890] {
        fixture.check(&sql.replace("id % 7 < 3", &format!("id > {least}")));
    }
}
