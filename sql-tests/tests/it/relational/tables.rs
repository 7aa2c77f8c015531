//! The tables that the relational tests share.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array};
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, booleans, drawn, primitive, row_numbers, strings};

pub(super) fn decimals(precision: u8, scale: i8, values: Vec<Option<i128>>) -> ArrayRef {
    let array = Decimal128Array::from(values).with_precision_and_scale(precision, scale);
    Arc::new(array.expect("values that fit"))
}

/// Columns with every type of key: `k` repeats, `u` is unique, `w` reaches the ends of its type.
fn columns(rows: usize, salt: u64) -> Vec<(&'static str, ArrayRef)> {
    let n = Nulls::Some;
    let keys: Vec<i32> = (-20..20).collect();
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let words = ["", "a", "ab", "Bär", "日本語", "zz top", "ZZ TOP", "a"];
    let step = 7 + salt as usize % 2;
    vec![
        ("id", row_numbers(rows)),
        ("u", {
            let unique = (0..rows).map(|i| Some(((i * step) % rows.max(1)) as i32 - 5));
            primitive::<Int32Type>(unique.collect())
        }),
        ("k", primitive::<Int32Type>(drawn(&keys, rows, n, salt))),
        (
            "z",
            primitive::<Int16Type>(drawn(&[1, 2, 3, 5, 8, 13], rows, Nulls::None, salt + 1)),
        ),
        ("w", primitive::<Int64Type>(drawn(&ends, rows, n, salt + 2))),
        ("s", strings(drawn(&words, rows, n, salt + 3))),
        (
            "d",
            primitive::<Date32Type>(drawn(&[-719_162, -1, 0, 9131, 19_782], rows, n, salt + 4)),
        ),
        (
            "x",
            decimals(12, 2, drawn(&[-550, 0, 1, 99, 1250], rows, n, salt + 5)),
        ),
        (
            "f",
            primitive::<Float64Type>(drawn(&[-1.5, 0.0, 0.25, 4.0], rows, n, salt + 6)),
        ),
        ("b", booleans(drawn(&[true, false], rows, n, salt + 7))),
    ]
}

/// `l` and `r` repeat keys, `p` is small and has each `u` once, `e` is empty, `n` has NULLs alone, `one` has one row.
pub(super) fn with_tables(fixture: Fixture) -> Fixture {
    let nothing = columns(1, 9)
        .into_iter()
        .map(|(name, array)| (name, array.slice(0, 0)));
    let unknown = columns(12, 9).into_iter().map(|(name, array)| {
        let array = match name {
            "id" => array,
            _ => arrow::array::new_null_array(array.data_type(), 12),
        };
        (name, array)
    });
    fixture
        .table("l", columns(300, 100))
        .table("r", columns(170, 201))
        .table("p", columns(40, 302))
        .table("e", nothing)
        .table("n", unknown)
        .table("one", columns(1, 403))
}

pub(super) fn fixture() -> Fixture {
    with_tables(Fixture::device())
}
