//! Functions of numbers of every type: bits, remainders, magnitudes, whole numbers, the greatest of several, CASE of floats.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array};
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{
    Nulls, check_all, check_conditions, check_values, drawn, primitive, row_numbers, strings,
};

const ROWS: usize = 160;

fn decimals(values: &[i128], nulls: Nulls, precision: u8, scale: i8) -> ArrayRef {
    let values = Decimal128Array::from(drawn(values, ROWS, nulls, 9));
    let values = values.with_precision_and_scale(precision, scale);
    Arc::new(values.expect("a decimal"))
}

fn table(nulls: Nulls) -> Fixture {
    let floats = [
        0.0,
        -0.0,
        1.5,
        -2.5,
        0.5,
        1e300,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let short = floats.map(|f| f as f32);
    let wide = [i64::MIN + 1, i64::MAX, -7, 0, 5, 63, 1 << 40];
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(ROWS)),
            (
                "i8",
                primitive::<Int8Type>(drawn(&[-127, -1, 0, 3, 127], ROWS, nulls, 1)),
            ),
            (
                "i16",
                primitive::<Int16Type>(drawn(&[-32_767, -1, 0, 9, 32_767], ROWS, nulls, 2)),
            ),
            (
                "i32",
                primitive::<Int32Type>(drawn(
                    &[-2_147_483_647, -9, 0, 33, i32::MAX],
                    ROWS,
                    nulls,
                    3,
                )),
            ),
            ("i64", primitive::<Int64Type>(drawn(&wide, ROWS, nulls, 4))),
            (
                "j64",
                primitive::<Int64Type>(drawn(&[-65, -1, 0, 1, 3, 64, 70], ROWS, nulls, 5)),
            ),
            (
                "u8",
                primitive::<UInt8Type>(drawn(&[0, 1, 7, 255], ROWS, nulls, 6)),
            ),
            (
                "u32",
                primitive::<UInt32Type>(drawn(&[0, 2, 31, u32::MAX], ROWS, nulls, 7)),
            ),
            (
                "u64",
                primitive::<UInt64Type>(drawn(&[0, 1, 1 << 63, u64::MAX], ROWS, nulls, 8)),
            ),
            (
                "f",
                primitive::<Float64Type>(drawn(&floats, ROWS, nulls, 10)),
            ),
            (
                "g",
                primitive::<Float64Type>(drawn(&floats, ROWS, nulls, 11)),
            ),
            (
                "h",
                primitive::<Float32Type>(drawn(&short, ROWS, nulls, 12)),
            ),
            (
                "d",
                decimals(&[0, 1, 100, 150, -150, -1, 99_949, -99_949], nulls, 12, 2),
            ),
            ("e", decimals(&[0, 5, -5, 123_456], nulls, 20, 5)),
            ("s", strings(drawn(&["a", "b", ""], ROWS, nulls, 13))),
            ("r", strings(drawn(&["b", "c", ""], ROWS, nulls, 14))),
        ],
    )
}

const VALUES: [&str; 44] = [
    "i64 << j64",
    "i64 >> j64",
    "i32 << 3",
    "i32 >> i32",
    "i8 << i8",
    "i16 >> i8",
    "u8 << u8",
    "u32 >> u32",
    "u64 << u64",
    "u64 >> 63",
    "i64 & j64",
    "u64 | u32",
    "i32 ^ i16",
    "abs(i8)",
    "abs(i16)",
    "abs(i32)",
    "abs(i64)",
    "abs(h)",
    "abs(d)",
    "ceil(d)",
    "floor(d)",
    "ceil(e)",
    "floor(e)",
    "ceil(h)",
    "floor(h)",
    "signum(h)",
    "i64 % nullif(j64, 0)",
    "u64 % nullif(u32, 0)",
    "d % nullif(e, 0)",
    "greatest(i64, j64, 4)",
    "least(i8, i16, i32)",
    "greatest(d, e)",
    "least(u64, u32)",
    "greatest(s, r)",
    "least(s, 'b', r)",
    "nvl(i64, j64)",
    "nvl2(i64, j64, i32)",
    "nvl2(s, r, 'x')",
    "ifnull(d, 0)",
    "CASE f WHEN g THEN 1 WHEN 0 THEN 2 ELSE 3 END",
    "nullif(s, r)",
    "nullif(i64, j64)",
    "CASE WHEN s IN (r, 'a') THEN i64 ELSE j64 END",
    "coalesce(s, r, 'none')",
];

#[test]
fn values_of_numbers() {
    for nulls in Nulls::EACH {
        check_values(&table(nulls), "t", &VALUES);
    }
}

#[test]
fn conditions_on_numbers() {
    check_conditions(
        &table(Nulls::Some),
        "t",
        &[
            "isnan(f)",
            "isnan(h)",
            "isnan(i64)",
            "isnan(d)",
            "iszero(f)",
            "iszero(h)",
            "iszero(i32)",
            "iszero(d)",
            "f % 1 = 0.5",
            "f % g = f",
            "h % h = 0",
            "greatest(f, g) = g",
            "least(f, g) < 0",
            "CASE f WHEN g THEN true ELSE false END",
            "nullif(f, g) IS NULL",
            "i64 IN (j64, 5, i32)",
            "i64 NOT IN (j64, NULL)",
            "s IN (r, 'a')",
            "r NOT IN (s, 'c')",
            "f IN (g, 1.5)",
        ],
    );
}

#[test]
fn magnitudes_that_do_not_fit() {
    let fixture = Fixture::relaxed().table(
        "t",
        [
            ("id", row_numbers(4)),
            (
                "b",
                primitive::<Int8Type>(vec![Some(-128), Some(1), None, Some(127)]),
            ),
            (
                "i",
                primitive::<Int64Type>(vec![Some(i64::MIN), Some(1), None, Some(i64::MAX)]),
            ),
            (
                "d",
                Arc::new(
                    Decimal128Array::from(vec![Some(-995), Some(1), None, Some(995)])
                        .with_precision_and_scale(3, 1)
                        .expect("a decimal"),
                ),
            ),
        ],
    );
    for expression in ["abs(b)", "abs(i)", "floor(d)", "ceil(d)"] {
        fixture.check_error(&format!(
            "SELECT id, max({expression}) AS x FROM t GROUP BY id"
        ));
    }
    check_all(
        &fixture,
        ["abs(b)", "abs(i)", "floor(d)", "ceil(d)"].map(|e| {
            format!("SELECT id, max({e}) AS x FROM t WHERE id BETWEEN 1 AND 2 GROUP BY id")
        }),
    );
}
