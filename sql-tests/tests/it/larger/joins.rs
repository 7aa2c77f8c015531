//! Joins of every kind in pairs of partitions: by keys of more bytes than partitions are made by, and with conditions beside
//! the keys, where rows without a match count.

use arrow::array::ArrayRef;
use arrow::datatypes::{Int32Type, Int64Type};
use warpline_sql_tests::{Fixture, test_device};

use super::counter;
use crate::operators::support::{Nulls, drawn, primitive, row_numbers, strings};

/// Bytes of device memory: a table of some thousand rows; and rows of the tables.
const BUDGET: &str = "524288";
const ROWS: [usize; 5] = [0, 1, 33, 3000, 9000];
/// Rows of both sides.
const SIZES: [(usize, usize); 5] = [(0, 33), (33, 0), (1, 33), (33, 33), (9000, 9000)];

/// Keys `a`, `b` and `c` together have more than two words; `a` and `b` alone name few rows.
fn columns(rows: usize, seed: u64) -> Vec<(&'static str, ArrayRef)> {
    let long: Vec<i64> = (0..9001).map(|i| (i - 100) << 44).collect();
    let other: Vec<i64> = (0..5).map(|i| i << 48).collect();
    let few: Vec<i32> = (0..7).map(|i| i << 20).collect();
    vec![
        ("id", row_numbers(rows)),
        (
            "a",
            primitive::<Int64Type>(drawn(&long, rows, Nulls::Some, seed)),
        ),
        (
            "b",
            primitive::<Int64Type>(drawn(&other, rows, Nulls::Some, seed + 1)),
        ),
        (
            "c",
            primitive::<Int32Type>(drawn(&few, rows, Nulls::None, seed + 2)),
        ),
        (
            "s",
            strings(drawn(
                &["", "a", "Bär", "日本語"],
                rows,
                Nulls::Some,
                seed + 3,
            )),
        ),
        // Every value once, and one that most rows have.
        (
            "u",
            primitive::<Int64Type>((0..rows).map(|i| Some((i as i64) << 40)).collect()),
        ),
        ("o", primitive::<Int64Type>((0..rows).map(often).collect())),
        (
            "v",
            primitive::<Int64Type>(drawn(&long, rows, Nulls::Some, seed + 4)),
        ),
    ]
}

fn often(row: usize) -> Option<i64> {
    match row % 7 {
        0 => Some((row as i64) << 40),
        1 => None,
        _ => Some(5 << 40),
    }
}

fn fixture(settings: &[(&str, &str)]) -> Fixture {
    let budget = [("warpline.device_memory", BUDGET)];
    let settings = [&budget, settings].concat();
    let mut fixture = Fixture::open(test_device(), true, &settings);
    for rows in ROWS {
        fixture = fixture.table(&format!("x{rows}"), columns(rows, 1));
        fixture = fixture.table(&format!("y{rows}"), columns(rows, 11));
    }
    fixture
}

/// Each query over tables of these sizes, within so many bytes, large ones twice: the second run does not read sizes. Over the
/// two largest, pairs come in parts.
#[track_caller]
fn check(fixture: &Fixture, queries: &[&str]) {
    let mut failures = Vec::new();
    for query in queries {
        for (x, y) in SIZES {
            let sql = query.replace("{x}", &format!("x{x}"));
            let sql = sql.replace("{y}", &format!("y{y}"));
            let sql = sql.replace("{keys}", KEYS);
            for _ in 0..if x.min(y) > 33 { 2 } else { 1 } {
                if let Err(message) = fixture.compare(&sql) {
                    let message: String = message.chars().take(2000).collect();
                    failures.push(format!("{sql}\n{message}"));
                }
            }
            if x.min(y) > 33 {
                let plan = fixture.explain(&sql);
                let parts = counter(fixture, &sql, "join_parts");
                if !plan.contains("tracking for phj_") || parts < 2 {
                    failures.push(format!("{parts} parts of {sql}\n{plan}"));
                }
            }
        }
    }
    let all = failures.join("\n\n");
    assert!(failures.is_empty(), "{} fail\n\n{all}", failures.len());
}

/// More than two words together.
const KEYS: &str = "x.a = y.a AND x.b = y.b AND x.c = y.c";

#[test]
fn outer_joins_by_wide_keys() {
    check(
        &fixture(&[]),
        &[
            "SELECT x.id, y.id AS j, y.s FROM {x} x LEFT JOIN {y} y ON {keys}",
            "SELECT x.id, x.s, y.id AS j, y.v FROM {x} x FULL JOIN {y} y ON {keys}",
        ],
    );
}

#[test]
fn wide_keys_that_exist() {
    check(
        &fixture(&[]),
        &[
            "SELECT x.id, x.s FROM {x} x WHERE EXISTS (SELECT 1 FROM {y} y WHERE {keys})",
            "SELECT x.id, x.s FROM {x} x WHERE NOT EXISTS (SELECT 1 FROM {y} y WHERE {keys})",
            "SELECT x.id, x.v FROM {x} x WHERE x.id < 7 OR EXISTS (SELECT 1 FROM {y} y WHERE {keys})",
        ],
    );
}

#[test]
fn conditions_beside_the_keys() {
    check(
        &fixture(&[]),
        &[
            "SELECT x.id, y.id AS j, x.s FROM {x} x FULL JOIN {y} y ON x.a = y.a AND x.v < y.v",
            "SELECT x.id FROM {x} x WHERE NOT EXISTS (SELECT 1 FROM {y} y WHERE x.a = y.a AND x.v < y.v)",
        ],
    );
}

/// What is joined in parts is aggregated and joined again.
#[test]
fn what_reads_such_joins() {
    check(
        &fixture(&[]),
        &[
            "SELECT x.s, count(*) AS c, count(y.id) AS d, sum(y.v) AS v FROM {x} x LEFT JOIN {y} y ON {keys} GROUP BY x.s",
            "SELECT count(*) AS c, sum(y.id) AS j, max(z.id) AS z FROM {x} x LEFT JOIN {y} y ON {keys} \
         LEFT JOIN x33 z ON z.id = y.id",
        ],
    );
}

/// Their partition comes in pieces, and which rows have no match is known after the last.
#[test]
fn many_rows_of_one_key_probe() {
    let fixture = fixture(&[("warpline.join", "triton")]);
    let queries = [
        "SELECT x.id, y.id AS j FROM {x} x FULL JOIN {y} y ON x.u = y.{key}",
        "SELECT x.id, y.id AS j FROM {x} x LEFT JOIN {y} y ON x.u = y.{key} AND x.v < y.v",
        "SELECT x.id FROM {x} x WHERE EXISTS (SELECT 1 FROM {y} y WHERE x.u = y.{key} AND x.v < y.v)",
    ];
    let of_key = |key: &str| queries.map(|query| query.replace("{key}", key));
    let often = of_key("o");
    check(&fixture, &often.each_ref().map(String::as_str));
    let parts = |query: &String| {
        let sql = query.replace("{x}", "x9000").replace("{y}", "y9000");
        counter(&fixture, &sql, "join_parts")
    };
    for (often, once) in often.iter().zip(&of_key("u")) {
        assert!(parts(often) > parts(once), "{often}");
    }
}

/// Every piece is as small as can be.
#[test]
fn outer_joins_on_two_keys_in_tiny_memory() {
    for budget in ["65536", "24576"] {
        let fixture = fixture(&[("warpline.device_memory", budget)]);
        for join in ["FULL", "LEFT", "RIGHT"] {
            let sql = format!(
                "SELECT x.id, y.id AS j, y.s, x.v FROM x3000 x {join} JOIN y3000 y ON x.a = y.a AND x.c = y.c"
            );
            for _ in 0..2 {
                let run = fixture.check(&sql);
                assert_eq!(run.metrics.ladder.cpu_fallbacks, 0, "{budget} {sql}");
            }
            assert!(counter(&fixture, &sql, "join_parts") > 1, "{budget} {sql}");
        }
    }
}
