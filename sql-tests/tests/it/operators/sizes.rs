//! Row counts around warps, tiles and blocks; tables of many batches, slices and partitions.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Decimal128Type, Int32Type, Int64Type};
use warpline_sql_tests::Fixture;

use super::support::{Nulls, booleans, check_all, drawn, primitive, strings};

fn batch(rows: usize, seed: u64) -> RecordBatch {
    let k: ArrayRef = primitive::<Int32Type>(drawn(&[-1, 0, 1, 2, 300], rows, Nulls::Some, seed));
    let a: ArrayRef =
        primitive::<Int64Type>(drawn(&[-7, 0, 1, 1 << 40], rows, Nulls::Some, seed + 1));
    let d: ArrayRef =
        primitive::<Decimal128Type>(drawn(&[-150, 0, 12345], rows, Nulls::None, seed + 2));
    let b: ArrayRef = booleans(drawn(&[true, false], rows, Nulls::Some, seed + 3));
    let s: ArrayRef = strings(drawn(&["", "x", "yy", "é"], rows, Nulls::Some, seed + 4));
    let columns = [("k", k), ("a", a), ("d", d), ("b", b), ("s", s)];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).expect("a batch")
}

/// Every row counts once: ungrouped, in registers, in shared memory, dense and hashed.
fn queries(table: &str) -> Vec<String> {
    let calls = "count(*) AS n, count(a) AS ka, sum(a) AS sa, sum(d) AS sd, min(a) AS lo, max(d) AS hi, \
                 min(s) AS first, count(*) FILTER (WHERE b) AS t";
    [
        format!("SELECT {calls} FROM {table}"),
        format!("SELECT {calls} FROM {table} WHERE a >= 0 AND (b OR s <> 'x')"),
        format!("SELECT b, {calls} FROM {table} GROUP BY b"),
        format!("SELECT k, s, {calls} FROM {table} WHERE d <> 0 GROUP BY k, s"),
        format!("SELECT k, a, s, {calls} FROM {table} GROUP BY k, a, s"),
    ]
    .into()
}

#[test]
fn around_warps_and_tiles() {
    let mut fixture = Fixture::device();
    let sizes = [
        0, 1, 7, 8, 9, 31, 32, 33, 255, 256, 257, 2047, 2048, 2049, 4096,
    ];
    for rows in sizes {
        fixture = fixture.batches(&format!("t{rows}"), vec![batch(rows, rows as u64)]);
    }
    for rows in sizes {
        check_all(&fixture, queries(&format!("t{rows}")));
    }
}

#[test]
fn over_many_blocks() {
    let fixture = Fixture::device().batches("t", vec![batch(100_003, 5)]);
    check_all(&fixture, queries("t"));
}

#[test]
fn in_slices_batches_and_partitions() {
    let whole = batch(9_001, 6);
    let partitions = (0..3)
        .map(|p| {
            let mut at = p * 3000;
            let mut batches = vec![whole.slice(at, 0)];
            for length in [1, 30, 2, 967, 2000] {
                batches.push(whole.slice(at, length));
                at += length;
            }
            batches
        })
        .collect();
    let fixture = Fixture::device()
        .partitions("t", partitions)
        .batches(
            "odd",
            vec![
                whole.slice(13, 777),
                whole.slice(5000, 1),
                whole.slice(3, 0),
            ],
        )
        .batches("none", vec![whole.slice(0, 0), whole.slice(9, 0)]);
    for table in ["t", "odd", "none"] {
        check_all(&fixture, queries(table));
    }
}

#[test]
fn nothing_passes_the_filter() {
    let fixture = Fixture::device().batches("t", vec![batch(5000, 7)]);
    let calls =
        "count(*) AS n, count(a) AS ka, sum(a) AS s, avg(d) AS m, min(s) AS lo, max(a) AS hi";
    let filters = [
        "a > 1099511627776",
        "a > 5 AND a < 5",
        "s = 'absent'",
        "b IS NULL AND b",
    ];
    let queries = filters.iter().flat_map(|filter| {
        [
            format!("SELECT {calls} FROM t WHERE {filter}"),
            format!("SELECT k, {calls} FROM t WHERE {filter} GROUP BY k"),
            format!("SELECT a, {calls} FROM t WHERE {filter} GROUP BY a"),
        ]
    });
    check_all(&fixture, queries);
}

#[test]
fn tables_of_one_column_of_nulls() {
    let nulls: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![None; 3000]));
    let fixture = Fixture::device().table("t", [("a", nulls)]);
    check_all(
        &fixture,
        [
            "SELECT count(*) AS n, count(a) AS k, sum(a) AS s, min(a) AS lo, max(a + 1) AS hi, avg(a) AS m \
             FROM t WHERE a IS NULL",
            "SELECT a, count(*) AS n, sum(a) AS s FROM t GROUP BY a",
            "SELECT a + 1 AS b, a IS NULL AS c, count(a) AS n FROM t GROUP BY a + 1, a IS NULL",
        ]
        .map(String::from),
    );
}
