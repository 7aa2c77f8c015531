//! CAST and TRY_CAST between numbers, decimals, booleans and the calendar: rounding, truncation and refusal.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array};
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{
    Nulls, booleans, check_all, check_sums, check_values, drawn, primitive, row_numbers,
};

const INTEGERS: [&str; 8] = [
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
];

fn fixture() -> Fixture {
    let small: [i64; 9] = [-128, -1, 0, 1, 100, 127, 5, 64, 17];
    let rows = small.len() + 1;
    let column = |values: [i64; 9]| values.into_iter().map(Some).chain([None]);
    macro_rules! fitting {
        ($type:ty, $native:ty) => {
            primitive::<$type>(
                column(small)
                    .map(|v| v.and_then(|v| <$native>::try_from(v).ok()))
                    .collect(),
            )
        };
    }
    let wide = [i64::MIN, -1, 0, 1, 255, 256, 1 << 31, 1 << 32, i64::MAX];
    let floats = [-128.9, -0.9, 0.5, 1.5, 2.5, 254.999, 1e10, -1e300, f64::NAN];
    let floats = floats.iter().copied().map(Some).chain([None]);
    let decimals = |precision, scale, values: [i128; 9]| -> ArrayRef {
        let array = Decimal128Array::from_iter(values.iter().copied().map(Some).chain([None]));
        Arc::new(
            array
                .with_precision_and_scale(precision, scale)
                .expect("a decimal"),
        )
    };
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("Int8", fitting!(Int8Type, i8)),
            ("Int16", fitting!(Int16Type, i16)),
            ("Int32", fitting!(Int32Type, i32)),
            ("Int64", fitting!(Int64Type, i64)),
            ("UInt8", fitting!(UInt8Type, u8)),
            ("UInt16", fitting!(UInt16Type, u16)),
            ("UInt32", fitting!(UInt32Type, u32)),
            ("UInt64", fitting!(UInt64Type, u64)),
            ("wide", primitive::<Int64Type>(column(wide).collect())),
            (
                "uwide",
                primitive::<UInt64Type>(column(wide).map(|v| v.map(|v| v as u64)).collect()),
            ),
            ("f", primitive::<Float64Type>(floats.clone().collect())),
            (
                "g",
                primitive::<Float32Type>(floats.map(|v| v.map(|v| v as f32)).collect()),
            ),
            (
                "x",
                decimals(
                    12,
                    3,
                    [
                        -128_500, -500, 499, 500, 501, 1_500, 2_500, 127_499, 300_000,
                    ],
                ),
            ),
            (
                "y",
                decimals(
                    38,
                    4,
                    [
                        -1,
                        0,
                        5_000,
                        15_000,
                        25_000,
                        10i128.pow(37),
                        -(10i128.pow(37)),
                        49,
                        50,
                    ],
                ),
            ),
            (
                "w",
                decimals(
                    20,
                    0,
                    [-129, -128, 0, 1, 255, 256, 5_000_000_000, 127, 65_535],
                ),
            ),
            ("p", booleans(drawn(&[true, false], rows, Nulls::Some, 3))),
        ],
    )
}

#[test]
fn integers_to_integers() {
    let fixture = fixture();
    let mut tries = Vec::new();
    for from in INTEGERS.iter().chain(&["wide", "uwide"]) {
        for to in INTEGERS {
            // Bounds beyond 64 bits meet only in SUM, which every integer has.
            tries.push(format!("arrow_try_cast(\"{from}\", '{to}')"));
        }
        tries.push(format!(
            "CAST(CAST(\"{from}\" % 100 AS BIGINT) AS SMALLINT)"
        ));
        tries.push(format!("CAST(CAST(\"{from}\" AS BOOLEAN) AS INT)"));
    }
    check_sums(&fixture, "t", &tries);
    check_values(
        &fixture,
        "t",
        &[
            "CAST(\"Int8\" AS BIGINT)",
            "CAST(\"UInt32\" AS BIGINT)",
            "CAST(p AS SMALLINT)",
            "CAST(p AS BIGINT) + 1",
        ],
    );
    for (from, to) in [
        ("wide", "INT"),
        ("wide", "SMALLINT"),
        ("wide", "BIGINT UNSIGNED"),
        ("uwide", "BIGINT"),
        ("Int8", "INT UNSIGNED"),
    ] {
        fixture.check_error(&format!("SELECT sum(CAST(\"{from}\" AS {to})) AS s FROM t"));
    }
    // What a filter has taken away does not fail.
    check_all(
        &fixture,
        ["SELECT sum(CAST(wide AS INT)) AS s FROM t WHERE wide BETWEEN -1 AND 256".to_string()],
    );
}

#[test]
fn numbers_to_decimals_and_back() {
    let fixture = fixture();
    let mut values = Vec::new();
    for from in ["Int8", "Int32", "UInt32", "w"] {
        for to in [
            "DECIMAL(12, 2)",
            "DECIMAL(20, 5)",
            "DECIMAL(38, 0)",
            "DECIMAL(30, 20)",
        ] {
            values.push(format!("CAST(\"{from}\" AS {to})"));
        }
        values.push(format!("TRY_CAST(\"{from}\" AS DECIMAL(4, 2))"));
        values.push(format!("TRY_CAST(\"{from}\" AS DECIMAL(2, 0))"));
    }
    for to in [
        "DECIMAL(12, 0)",
        "DECIMAL(12, 1)",
        "DECIMAL(12, 2)",
        "DECIMAL(14, 5)",
        "DECIMAL(30, 12)",
        "BIGINT",
        "INT",
    ] {
        values.push(format!("CAST(x AS {to})"));
    }
    for to in [
        "TINYINT",
        "SMALLINT",
        "SMALLINT UNSIGNED",
        "BIGINT UNSIGNED",
        "DECIMAL(5, 2)",
        "DECIMAL(3, 0)",
    ] {
        values.push(format!("TRY_CAST(x AS {to})"));
        values.push(format!("TRY_CAST(w AS {to})"));
    }
    values.push("CAST(y AS DECIMAL(38, 0))".into());
    values.push("CAST(y AS DECIMAL(38, 2))".into());
    values.push("TRY_CAST(y AS BIGINT)".into());
    values.push("TRY_CAST(y AS DECIMAL(10, 1))".into());
    check_sums(&fixture, "t", &values);
    for sql in [
        "SELECT sum(CAST(x AS TINYINT)) AS s FROM t",
        "SELECT sum(CAST(w AS DECIMAL(3, 0))) AS s FROM t",
        "SELECT sum(CAST(y AS DECIMAL(38, 8))) AS s FROM t",
        "SELECT sum(CAST(\"Int32\" AS DECIMAL(3, 1))) AS s FROM t",
    ] {
        fixture.check_error(sql);
    }
}

#[test]
fn to_and_from_floats() {
    let fixture = fixture();
    let mut values = Vec::new();
    for from in INTEGERS.iter().chain(&["wide", "uwide", "x", "y", "w"]) {
        values.push(format!("CAST(\"{from}\" AS DOUBLE)"));
        values.push(format!("CAST(\"{from}\" AS REAL)"));
    }
    values.push("CAST(f AS REAL)".into());
    values.push("CAST(g AS DOUBLE)".into());
    check_values(&fixture, "t", &values);
    let mut tries = Vec::new();
    for to in INTEGERS {
        tries.push(format!("arrow_try_cast(f, '{to}')"));
        tries.push(format!("arrow_try_cast(g, '{to}')"));
    }
    check_sums(&fixture, "t", &tries);
    for sql in [
        "SELECT sum(CAST(f AS INT)) AS s FROM t",
        "SELECT sum(CAST(f AS BIGINT)) AS s FROM t WHERE f > 0 OR f < -1e20",
        "SELECT sum(CAST(g AS TINYINT UNSIGNED)) AS s FROM t WHERE g < 0",
    ] {
        fixture.check_error(sql);
    }
    check_all(
        &fixture,
        ["SELECT sum(CAST(f AS INT)) AS s FROM t WHERE f BETWEEN -200 AND 300".to_string()],
    );
}

#[test]
fn between_dates_and_timestamps() {
    const DAY: i64 = 86_400;
    let seconds = [
        -DAY - 1,
        -DAY,
        -1,
        0,
        1,
        DAY - 1,
        DAY,
        951_782_400,
        1_600_000_000,
    ];
    let rows = seconds.len() + 1;
    let scaled = |factor: i64, add: i64| {
        seconds
            .iter()
            .map(|s| Some(s * factor + add))
            .chain([None])
            .collect::<Vec<_>>()
    };
    let later = |factor: i64, add: i64| {
        let values = seconds.iter().map(|s| Some(s.abs() * factor + add));
        values.chain([None]).collect::<Vec<_>>()
    };
    let days = seconds
        .iter()
        .map(|s| Some(s.div_euclid(DAY) as i32))
        .chain([None])
        .collect();
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("d32", primitive::<Date32Type>(days)),
            ("d64", primitive::<Date64Type>(scaled(1000, 0))),
            ("odd", primitive::<Date64Type>(scaled(1000, 7))),
            ("s", primitive::<TimestampSecondType>(scaled(1, 0))),
            ("ms", primitive::<TimestampMillisecondType>(scaled(1000, 1))),
            (
                "us",
                primitive::<TimestampMicrosecondType>(scaled(1_000_000, 999_999)),
            ),
            (
                "ns",
                primitive::<TimestampNanosecondType>(scaled(1_000_000_000, 1)),
            ),
            (
                "late_us",
                primitive::<TimestampMicrosecondType>(later(1_000_000, 999_999)),
            ),
            (
                "late_ns",
                primitive::<TimestampNanosecondType>(later(1_000_000_000, 999)),
            ),
        ],
    );
    let mut values = Vec::new();
    for from in ["d32", "d64", "odd", "s", "ms", "us", "ns"] {
        values.push(format!("CAST({from} AS DATE)"));
    }
    for from in ["d32", "d64", "s", "ms", "late_us", "late_ns"] {
        for to in ["Timestamp(Nanosecond, None)", "Date64"] {
            values.push(format!("arrow_cast({from}, '{to}')"));
        }
    }
    for from in ["d32", "s", "late_us", "late_ns"] {
        for to in [
            "Timestamp(Second, None)",
            "Timestamp(Millisecond, None)",
            "Timestamp(Microsecond, None)",
        ] {
            values.push(format!("arrow_cast({from}, '{to}')"));
        }
    }
    for from in ["d64", "s", "ms", "us", "ns", "d32"] {
        values.push(format!("arrow_cast({from}, 'Int64')"));
    }
    values.push("arrow_cast(d32, 'Int32')".into());
    values.push("arrow_cast(arrow_cast(d32, 'Int32') + arrow_cast(1, 'Int32'), 'Date32')".into());
    check_values(&fixture, "t", &values);
    check_all(
        &fixture,
        [
            "SELECT CAST(ns AS DATE) AS d, count(*) AS n FROM t GROUP BY CAST(ns AS DATE)",
            "SELECT count(*) AS n FROM t WHERE d32 < TIMESTAMP '1970-01-01T00:00:01' AND CAST(ms AS DATE) >= DATE '1969-12-31'",
        ]
        .map(String::from),
    );
}
