//! Functions of numbers, at the edges of their domains.

use arrow::array::ArrayRef;
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{Nulls, check_all, drawn, primitive, row_numbers};

const VALUES: [f64; 16] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    -2.5,
    3.25,
    -7.125,
    1e-9,
    123_456.789,
    -99_999.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

fn fixture() -> Fixture {
    let (n, rows) = (Nulls::Some, 97);
    let floats = |seed| -> ArrayRef { primitive::<Float64Type>(drawn(&VALUES, rows, n, seed)) };
    let ints = [i32::MIN + 1, -7, -1, 0, 1, 12, i32::MAX];
    let decimals = [-12_345, -50, -5, 0, 5, 45, 55, 99_999];
    let decimals = drawn(&decimals.map(i128::from), rows, n, 5);
    let decimals = arrow::array::Decimal128Array::from(decimals);
    let decimals = decimals
        .with_precision_and_scale(9, 2)
        .expect("values that fit");
    let positive = [0.0, 0.25, 2.0, 81.0, 1e18];
    Fixture::device().table(
        "t",
        [
            ("f", floats(1)),
            ("g", floats(2)),
            ("p", primitive::<Float64Type>(drawn(&positive, rows, n, 3))),
            ("i", primitive::<Int32Type>(drawn(&ints, rows, n, 4))),
            ("d", std::sync::Arc::new(decimals) as ArrayRef),
            (
                "b",
                primitive::<UInt16Type>(drawn(&[0, 1, 65_535], rows, n, 6)),
            ),
            (
                "none",
                primitive::<Float64Type>(drawn(&[1.0], rows, Nulls::All, 7)),
            ),
        ],
    )
}

#[test]
fn of_one_float() {
    let functions = [
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh",
        "cot", "degrees", "exp", "floor", "ln", "log10", "log2", "log", "radians", "round",
        "signum", "sin", "sinh", "tan", "tanh", "trunc",
    ];
    let queries = functions.iter().flat_map(|name| {
        [
            format!("SELECT f, {name}(f) AS v FROM t"),
            format!("SELECT {name}(none) AS v, {name}(p / 100) AS w FROM t"),
        ]
    });
    check_all(&fixture(), queries);
}

#[test]
fn of_two_floats() {
    check_all(
        &fixture(),
        [
            "SELECT f, g, atan2(f, g) AS v FROM t",
            "SELECT f, g, nanvl(f, g) AS v FROM t",
            "SELECT p, power(p, 0.5) AS v, power(p, g) AS w FROM t WHERE g >= 0",
            "SELECT p, log(2.0, p) AS v, log(p, 8.0) AS w FROM t WHERE p > 0.1 AND p < 1e9",
            "SELECT p, sqrt(p) AS v FROM t",
            "SELECT sum(sqrt(p)) AS v, max(round(f, 1)) AS w FROM t WHERE abs(f) < 100 GROUP BY i",
        ]
        .map(String::from),
    );
}

#[test]
fn to_places() {
    check_all(
        &fixture(),
        [
            "SELECT round(f, 2) AS a, round(f, -2) AS b, trunc(f, 1) AS c, trunc(f, -1) AS e FROM t",
            "SELECT d, round(d, 1) AS a, round(d) AS b, round(d, 2) AS c, round(d, 5) AS e FROM t",
            "SELECT i, round(i) AS a, round(i, 3) AS b FROM t",
        ]
        .map(String::from),
    );
}

#[test]
fn of_whole_numbers_and_decimals() {
    check_all(
        &fixture(),
        ["SELECT i, abs(d) AS b, abs(b) AS c FROM t"].map(String::from),
    );
}

/// DataFusion fails, and so does the device, or it leaves the error to DataFusion.
#[test]
fn outside_of_their_domains() {
    let fixture = Fixture::relaxed().table(
        "t",
        [
            ("f", primitive::<Float64Type>(vec![Some(4.0), Some(-1.0)])),
            ("i", primitive::<Int32Type>(vec![Some(1), Some(i32::MIN)])),
        ],
    );
    for sql in [
        "SELECT sqrt(f) AS v FROM t",
        "SELECT power(f - 4, -1.0) AS v FROM t",
        "SELECT abs(i) AS v FROM t",
    ] {
        fixture.check_error(sql);
    }
    // Rows that a condition leaves out do not fail.
    fixture.check("SELECT CASE WHEN f >= 0 THEN sqrt(f) END AS v FROM t");
    fixture.check("SELECT sqrt(f) AS v FROM t WHERE f > 0");
}

/// What is a whole number is that, so that masks and buckets made of it are not one less.
#[test]
fn whole_numbers_stay_whole() {
    let numbers = (0..64_i32).map(|n| Some(f64::from(n))).collect::<Vec<_>>();
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(64)),
            ("n", primitive::<Float64Type>(numbers)),
        ],
    );
    check_all(
        &fixture,
        [
            "SELECT id, CAST(power(2.0, n) AS BIGINT) AS two FROM t WHERE n < 62",
            "SELECT id, CAST(power(10.0, n) AS BIGINT) AS ten, CAST(log10(power(10.0, n)) AS INT) AS l FROM t WHERE n <= 15",
            "SELECT id, CAST(log2(power(2.0, n)) AS INT) AS l, CAST(power(n, 3.0) AS BIGINT) AS cube, CAST(cbrt(n * n * n) AS INT) AS root FROM t",
            "SELECT id, CAST(power(3.0, n) AS BIGINT) AS three, CAST(1.0 / power(2.0, -n) AS BIGINT) AS part FROM t WHERE n < 33",
        ]
        .map(String::from),
    );
}
