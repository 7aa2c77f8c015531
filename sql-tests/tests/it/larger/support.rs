//! What tests of results in parts share: tables with keys of every kind, and a check that parts were really made.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use warpline_sql_tests::{Fixture, test_device};

use super::counter;
use crate::operators::support::{Nulls, Random, booleans, drawn, primitive, row_numbers, strings};

/// Bytes of device memory: a table of some thousand groups.
pub(super) const BUDGET: &str = "262144";
/// More than enough.
const PLENTY: &str = "1GiB";
/// None, a warp and around it, some blocks, many parts.
pub(super) const ROWS: [usize; 7] = [0, 1, 31, 32, 33, 3000, 40_000];

/// Every kind of key, and arguments.
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

/// The tables, with so many bytes of device memory.
pub(super) fn fixture(budget: &str, settings: &[(&str, &str)]) -> Fixture {
    let budget = [("warpline.device_memory", budget)];
    let settings = [&budget, settings].concat();
    let mut fixture = Fixture::open(test_device(), true, &settings);
    for rows in ROWS {
        fixture = fixture.table(&format!("t{rows}"), columns(rows));
    }
    fixture
}

/// Each query over each table, large ones twice: the second run begins where the first one succeeded. What the counter `name` counts is
/// there for the largest table, and not where memory is plenty.
#[track_caller]
pub(super) fn check_parts(name: &str, queries: &[&str], tables: &[usize]) {
    let fixture = fixture(BUDGET, &[]);
    let mut failures = Vec::new();
    for query in queries {
        for rows in tables {
            let sql = query.replace("{t}", &format!("t{rows}"));
            // What is small has nothing to begin again with.
            let runs = if *rows > 3000 { 2 } else { 1 };
            for _ in 0..runs {
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
    let plenty = self::fixture(PLENTY, &[]);
    for query in queries {
        let most = tables.iter().max().expect("a table");
        let sql = query.replace("{t}", &format!("t{most}"));
        let parts = counter(&fixture, &sql, name);
        assert!(parts > 1, "{parts} parts of {sql}");
        assert_eq!(counter(&plenty, &sql, name), 0, "{sql}");
    }
}
