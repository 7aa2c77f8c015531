//! Group-bys whose states are larger than device memory: rows come in parts that have all rows of their groups.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use warpline_sql_tests::{Fixture, test_device};

use super::counter;
use crate::operators::support::{Nulls, Random, booleans, drawn, primitive, row_numbers, strings};

/// Bytes of device memory: a table of some thousand groups.
const BUDGET: &str = "262144";
/// More than enough.
const PLENTY: &str = "1GiB";
/// None, a warp and around it, some blocks, many parts.
const ROWS: [usize; 7] = [0, 1, 31, 32, 33, 3000, 40_000];

fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let mut random = Random::new(11);
    let many: Vec<i64> = (0..20_011).map(|i| (i - 100) << 21).collect();
    let few: Vec<i32> = (0..97).collect();
    // Every second row of one key, a quarter of the next …
    let skewed = (0..rows).map(|_| Some(random.next().trailing_zeros() as i64));
    let skewed: Vec<_> = skewed.collect();
    // All rows but few of one key, the others each of their own.
    let one = (0..rows).map(|row| Some(if row % 7 < 6 { -1 } else { row as i64 }));
    let wide = (0..rows).map(|i| ((i % 15_000) as i128 - 7) << (i % 15_000 % 90));
    let wide = Decimal128Array::from_iter_values(wide).with_precision_and_scale(38, 2);
    let texts = (0..rows).map(|row| match row % 11 {
        0 => None,
        1 => Some(format!("日本 {}", row / 2)),
        _ => Some(format!("ßtext {}", row / 3)),
    });
    vec![
        ("id", row_numbers(rows)),
        (
            "l",
            primitive::<Int64Type>(drawn(&many, rows, Nulls::Some, 1)),
        ),
        (
            "m",
            primitive::<Int64Type>(drawn(&many, rows, Nulls::None, 2)),
        ),
        (
            "k",
            primitive::<Int32Type>(drawn(&few, rows, Nulls::Some, 3)),
        ),
        ("z", primitive::<Int64Type>(skewed)),
        ("one", primitive::<Int64Type>(one.collect())),
        (
            "nothing",
            primitive::<Int64Type>(drawn(&many, rows, Nulls::All, 4)),
        ),
        ("w", Arc::new(wide.expect("values that fit"))),
        (
            "f",
            Arc::new(Float64Array::from_iter_values(
                (0..rows).map(|i| (i % 9000) as f64 / 8.0),
            )),
        ),
        ("b", booleans(drawn(&[true, false], rows, Nulls::Some, 5))),
        (
            "s",
            strings(drawn(&["", "a", "Bär", "日本語"], rows, Nulls::Some, 6)),
        ),
        ("t", Arc::new(StringArray::from_iter(texts))),
    ]
}

fn fixture(budget: &str) -> Fixture {
    let mut fixture = Fixture::open(test_device(), true, &[("warpline.device_memory", budget)]);
    for rows in ROWS {
        fixture = fixture.table(&format!("t{rows}"), columns(rows));
    }
    fixture
}

/// Each query over each table, twice: the second run begins where the first one succeeded.
#[track_caller]
fn check(queries: &[&str], tables: &[usize]) {
    let fixture = fixture(BUDGET);
    let mut failures = Vec::new();
    for query in queries {
        for rows in tables {
            let sql = query.replace("{t}", &format!("t{rows}"));
            for _ in 0..2 {
                if let Err(message) = fixture.compare(&sql) {
                    let message: String = message.chars().take(2000).collect();
                    failures.push(format!("{sql}\n{message}"));
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} queries differ\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    let plenty = self::fixture(PLENTY);
    for query in queries {
        let most = tables.iter().max().expect("a table");
        let sql = query.replace("{t}", &format!("t{most}"));
        let parts = counter(&fixture, &sql, "group_parts");
        assert!(parts > 1, "{parts} parts of {sql}");
        assert_eq!(counter(&plenty, &sql, "group_parts"), 0, "{sql}");
    }
}

#[test]
fn every_aggregate_in_parts() {
    check(
        &[
            "SELECT l, count(*) AS a, count(k) AS b, sum(w) AS c, min(f) AS d, max(id) AS e, avg(f) AS g, min(s) AS h, \
             sum(id) FILTER (WHERE b) AS i, count(*) FILTER (WHERE b IS NULL) AS j, max(w) AS m FROM {t} GROUP BY l",
            "SELECT m, count(DISTINCT k) AS d, sum(DISTINCT id) AS e, min(t) AS t FROM {t} GROUP BY m",
        ],
        &ROWS,
    );
}

#[test]
fn every_kind_of_key_in_parts() {
    check(
        &[
            "SELECT id, b, sum(m) AS s FROM {t} GROUP BY id, b",
            "SELECT w, count(*) AS c, min(id) AS i FROM {t} GROUP BY w",
            "SELECT t, count(*) AS c, max(f) AS f FROM {t} GROUP BY t",
            "SELECT f, m, nothing, count(l) AS c FROM {t} GROUP BY f, m, nothing",
            "SELECT DISTINCT l, m FROM {t}",
        ],
        &ROWS,
    );
}

#[test]
fn skewed_keys_in_parts() {
    check(
        &[
            "SELECT one, count(*) AS c, sum(m) AS s, min(w) AS w FROM {t} GROUP BY one",
            "SELECT z, m, count(*) AS c, max(l) AS l FROM {t} GROUP BY z, m",
        ],
        &[33, 40_000],
    );
}

#[test]
fn what_reads_the_groups_reads_all_parts() {
    check(
        &[
            "SELECT l, sum(id) AS s FROM {t} GROUP BY l HAVING sum(id) > 70000",
            "SELECT c, count(*) AS n, max(s) AS s FROM (SELECT m, count(*) AS c, sum(id) AS s FROM {t} GROUP BY m) g GROUP BY c",
            "SELECT l, sum(id) AS s, count(*) AS c FROM {t} GROUP BY l ORDER BY s DESC NULLS LAST, l LIMIT 17",
            "SELECT x.id, g.c FROM {t} x JOIN (SELECT m, count(*) AS c, max(id) AS i FROM {t} GROUP BY m) g ON g.i = x.id WHERE g.c > 3",
            "SELECT s, sum(c) AS c, count(*) AS n FROM (SELECT id, s, count(*) AS c FROM {t} GROUP BY id, s) g GROUP BY s",
            "SELECT i, max(c) AS c FROM (SELECT m, k, max(id) AS i, count(*) AS c FROM {t} WHERE k > 3 GROUP BY m, k) g GROUP BY i",
        ],
        &[0, 33, 3000, 40_000],
    );
}

#[test]
fn few_groups_stay_in_their_table() {
    let fixture = fixture(BUDGET);
    for sql in [
        "SELECT k, count(*) AS c, sum(m) AS s FROM t40000 GROUP BY k",
        "SELECT z, s, max(w) AS w FROM t40000 GROUP BY z, s",
    ] {
        fixture.check(sql);
        assert_eq!(counter(&fixture, sql, "group_parts"), 0, "{sql}");
    }
}

#[test]
fn a_plan_says_that_groups_come_in_parts() {
    let fixture = fixture(BUDGET);
    let sql = "SELECT l, m, sum(w) AS s FROM t40000 GROUP BY l, m";
    fixture.check(sql);
    let plan = fixture.explain(&format!("ANALYZE {sql}"));
    assert!(plan.contains("rows in parts of"), "{plan}");
    assert!(counter(&fixture, sql, "bytes_spilled") > 0);
}
