//! Sides of joins in memory and rows of aggregations that stay in their tables, under every algorithm that reads them there.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array};
use arrow::datatypes::*;
use warpline_sql_tests::{Fixture, test_device};

use crate::operators::support::{
    Nulls, booleans, check_all, drawn, primitive, row_numbers, strings,
};

/// Keys of 4 and 8 bytes as columns store them, of strings, of few values, with NULLs; payload of every width.
fn columns(rows: usize, salt: u64, lowest: i32) -> Vec<(&'static str, ArrayRef)> {
    let none = Nulls::None;
    let keys: Vec<i32> = (0..60).map(|i| lowest + i * 1999).collect();
    let long: Vec<i64> = keys.iter().map(|k| i64::from(*k) << 33).collect();
    let words = ["", "a", "Bär", "zz", "日本語"];
    let wide = (0..rows).map(|i| (i as i128 - 7) << (i % 90));
    let wide = Decimal128Array::from_iter_values(wide).with_precision_and_scale(38, 2);
    let unique = (0..rows).map(|i| Some(lowest + ((i * 7919) % rows.max(1)) as i32 * 1009));
    vec![
        ("id", row_numbers(rows)),
        ("u", primitive::<Int32Type>(unique.collect())),
        ("k", primitive::<Int32Type>(drawn(&keys, rows, none, salt))),
        (
            "l",
            primitive::<Int64Type>(drawn(&long, rows, none, salt + 1)),
        ),
        ("s", strings(drawn(&words, rows, none, salt + 2))),
        (
            "n",
            primitive::<Int32Type>(drawn(&keys, rows, Nulls::Some, salt + 3)),
        ),
        (
            "v1",
            primitive::<Int16Type>(drawn(&[-3, 0, 9], rows, none, salt + 4)),
        ),
        (
            "v2",
            primitive::<Int32Type>(drawn(&[-300, 0, 900], rows, none, salt + 5)),
        ),
        (
            "v8",
            primitive::<Int64Type>(drawn(&[i64::MIN, 5, i64::MAX], rows, none, salt + 6)),
        ),
        ("v16", Arc::new(wide.expect("values that fit"))),
        (
            "f",
            Arc::new(Float64Array::from_iter_values(
                (0..rows).map(|i| i as f64 / 4.0),
            )),
        ),
        ("b", booleans(drawn(&[true, false], rows, none, salt + 7))),
    ]
}

/// Tables of few rows and of many; those of `far` have other smallest keys.
fn under(setting: &str, value: &str) -> Fixture {
    let mut fixture = Fixture::open(test_device(), true, &[(setting, value)]);
    for (name, rows) in [("r0", 0), ("r1", 1), ("r31", 31), ("r32", 32), ("r33", 33)] {
        let of: Vec<_> = columns(rows.max(1), rows as u64, 0)
            .into_iter()
            .map(|(name, array)| (name, array.slice(0, rows)))
            .collect();
        fixture = fixture.table(name, of);
    }
    fixture
        .table("a", columns(1500, 100, 0))
        .table("c", columns(700, 200, 0))
        .table("far", columns(300, 300, 40_000))
}

fn joins(value: &str) {
    let fixture = under("warpline.join", value);
    let all = "count(*) AS n, sum(a.id) AS i, sum(c.id) AS j, sum(a.v16) AS p, max(c.v16) AS q, min(c.s) AS s, \
               sum(c.v1) AS t, max(a.v8) AS o, sum(c.f) AS f, sum(a.v2) AS w, sum(c.n) AS m, \
               count(*) FILTER (WHERE a.b) AS b";
    let mut queries = Vec::new();
    for on in [
        "a.k = c.k",
        "a.l = c.l",
        "a.u = c.u",
        "a.s = c.s",
        "a.n = c.n",
        "a.k = c.n",
        "a.k = c.k AND a.v1 = c.v1",
    ] {
        queries.push(format!("SELECT {all} FROM a JOIN c ON {on}"));
    }
    queries.push(format!("SELECT {all} FROM a JOIN far c ON a.k = c.k"));
    queries.push(format!("SELECT {all} FROM far a JOIN c ON a.u = c.u"));
    queries.push(format!("SELECT {all} FROM a LEFT JOIN c ON a.u = c.u"));
    queries.push(format!("SELECT {all} FROM a FULL JOIN far c ON a.k = c.k"));
    for kind in ["SEMI", "ANTI"] {
        for key in ["k", "u", "n"] {
            queries.push(format!(
                "SELECT count(*) AS n, sum(a.id) AS i, max(a.v8) AS o FROM a LEFT {kind} JOIN c ON a.{key} = c.{key}"
            ));
        }
    }
    for small in ["r0", "r1", "r31", "r32", "r33"] {
        queries.push(format!("SELECT {all} FROM a JOIN {small} c ON a.k = c.k"));
        queries.push(format!(
            "SELECT {all} FROM {small} a LEFT JOIN c ON a.k = c.k"
        ));
    }
    // Again, with what the first run found out.
    let again = queries.clone();
    check_all(&fixture, queries.into_iter().chain(again));
}

#[test]
fn partitioned_row_numbers() {
    joins("phj_ur");
}

#[test]
fn partitioned_rows() {
    joins("phj_tr");
}

#[test]
fn sorted_row_numbers() {
    joins("smj_ur");
}

#[test]
fn sorted_rows() {
    joins("smj_tr");
}

fn groups(value: &str) {
    let fixture = under("warpline.group_by", value);
    let calls = "count(*) AS c, sum(v16) AS p, max(v8) AS o, sum(v1) AS t, min(s) AS s2, sum(f) AS g, \
                 sum(n) AS m, sum(v2 * 2) AS w, count(*) FILTER (WHERE b) AS b2";
    let queries: Vec<String> = ["a", "far", "r0", "r1", "r31", "r32", "r33"]
        .iter()
        .flat_map(|table| {
            ["k", "l", "s", "n", "u", "k, v1"]
                .map(|keys| format!("SELECT {keys}, {calls} FROM {table} GROUP BY {keys}"))
        })
        .chain(["SELECT u, max(v2) AS x, sum(v8) AS y, sum(v16) AS z FROM a GROUP BY u".into()])
        .collect();
    check_all(&fixture, queries.clone().into_iter().chain(queries));
}

#[test]
fn groups_numbered_by_a_hash_table() {
    groups("hgb");
}

#[test]
fn groups_of_sorted_keys() {
    groups("sgb_ur");
}

#[test]
fn groups_of_sorted_rows() {
    groups("sgb_tr");
}

#[test]
fn groups_of_sorted_numbers() {
    groups("sgb_de_tr");
}

#[test]
fn groups_of_partitioned_keys() {
    groups("pgb_ur");
}

#[test]
fn groups_of_partitioned_rows() {
    groups("pgb_tr");
}

/// What a run of a query says about it.
fn explained(fixture: &Fixture, sql: &str) -> String {
    let sql = format!("EXPLAIN ANALYZE {sql}");
    let run = fixture.block_on(fixture.session().query(&sql));
    let batches = run.expect("a run").batches;
    let text = arrow::util::pretty::pretty_format_batches(&batches);
    text.expect("text").to_string()
}

#[test]
fn bare_scans_are_not_copied() {
    let fixture = under("warpline.join", "phj_tr");
    let sql = "SELECT sum(a.v2 + c.v8) AS x FROM a JOIN c ON a.k = c.k";
    let plan = explained(&fixture, sql);
    assert_eq!(plan.matches("2 of 2 columns and keys").count(), 2, "{plan}");
    // A key that can be NULL is written, its row stays.
    let sql = "SELECT sum(a.v2 + c.v8) AS x FROM a LEFT JOIN c ON a.n = c.u";
    let plan = explained(&fixture, sql);
    assert!(plan.contains("1 of 2 columns and keys"), "{plan}");
    assert!(plan.contains("2 of 2 columns and keys"), "{plan}");
    // A filter leaves rows out.
    let sql = "SELECT sum(a.v2 + c.v8) AS x FROM a JOIN c ON a.k = c.k WHERE a.v1 > 0 AND c.v1 > 0";
    let plan = explained(&fixture, sql);
    assert!(!plan.contains("stays in its table"), "{plan}");
}
