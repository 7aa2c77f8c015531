//! Joins by ranges: a sorted side and binary searches, for every kind of join, type of value, and number of rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::datatypes::*;
use warpline_sql_tests::{Fixture, test_device};

use super::tables::{decimals, with_tables};
use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers};

const KINDS: [&str; 7] = [
    "JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
    "RIGHT ANTI JOIN",
];

fn open(settings: &[(&str, &str)]) -> Fixture {
    let sorted = [("warpline.range_joins", "sorted")];
    let settings: Vec<_> = sorted.into_iter().chain(settings.iter().copied()).collect();
    Fixture::open(test_device(), true, &settings)
}

/// Rows of `a` with those of `b` under a condition, for one kind of join.
fn join(kind: &str, (a, b): (&str, &str), condition: &str) -> String {
    let columns = match kind {
        "LEFT SEMI JOIN" | "LEFT ANTI JOIN" => "a.id AS i",
        "RIGHT ANTI JOIN" => "b.id AS j",
        _ => "a.id AS i, b.id AS j",
    };
    format!("SELECT {columns} FROM {a} a {kind} {b} b ON {condition}")
}

fn each_kind(tables: (&str, &str), conditions: &[&str]) -> Vec<String> {
    let each = |kind: &&str| {
        let kind = *kind;
        let of = move |condition: &&str| join(kind, tables, condition);
        conditions.iter().map(of).collect::<Vec<_>>()
    };
    KINDS.iter().flat_map(each).collect()
}

/// Columns of every type that has an order: `v` and `w` with ends of the type among them, `lo` and `hi` with NULLs.
fn values(rows: usize, salt: u64) -> Vec<(&'static str, ArrayRef)> {
    let n = Nulls::Some;
    let small: Vec<i32> = (-12..12).collect();
    let lengths: Vec<i32> = (-2..6).collect();
    let low = drawn(&small, rows, n, salt + 1);
    let length = drawn(&lengths, rows, Nulls::None, salt + 2);
    let high = low
        .iter()
        .zip(length)
        .map(|(low, length)| Some((*low)? + length?));
    let floats = [
        f64::NEG_INFINITY,
        -1.5,
        -0.0,
        0.0,
        0.25,
        1e300,
        f64::INFINITY,
        f64::NAN,
    ];
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let wide = [
        -(10_i128.pow(30)),
        -5,
        0,
        7,
        10_i128.pow(30),
        10_i128.pow(30) + 1,
    ];
    let times: Vec<i64> = (0..30)
        .map(|i| 1_700_000_000_000_000 + i * 1_000_000)
        .collect();
    let g = primitive::<Int32Type>(drawn(&[1, 2, 3], rows, n, salt + 3));
    vec![
        ("id", row_numbers(rows)),
        (
            "x",
            primitive::<Int16Type>(
                drawn(&small, rows, n, salt)
                    .into_iter()
                    .map(|v| v.map(|v| v as i16))
                    .collect(),
            ),
        ),
        ("hi", primitive::<Int32Type>(high.collect())),
        ("lo", primitive::<Int32Type>(low)),
        ("g", g),
        ("w", primitive::<Int64Type>(drawn(&ends, rows, n, salt + 4))),
        (
            "u",
            primitive::<UInt64Type>(drawn(&[0, 1, u64::MAX - 1, u64::MAX], rows, n, salt + 5)),
        ),
        (
            "f",
            primitive::<Float64Type>(drawn(&floats, rows, n, salt + 6)),
        ),
        (
            "h",
            primitive::<Float32Type>(
                drawn(&floats, rows, n, salt + 7)
                    .into_iter()
                    .map(|v| v.map(|v| v as f32))
                    .collect(),
            ),
        ),
        (
            "d",
            primitive::<Date32Type>(drawn(&[-719_162, -1, 0, 9131, 9132], rows, n, salt + 8)),
        ),
        (
            "m",
            decimals(12, 2, drawn(&[-550, 0, 1, 99, 1250], rows, n, salt + 9)),
        ),
        ("p", decimals(38, 4, drawn(&wide, rows, n, salt + 10))),
        (
            "t",
            Arc::new(TimestampMicrosecondArray::from(drawn(
                &times,
                rows,
                n,
                salt + 11,
            ))),
        ),
        ("c", primitive::<Int32Type>(vec![Some(4); rows])),
    ]
}

fn typed(settings: &[(&str, &str)]) -> Fixture {
    open(settings)
        .table("l", values(150, 10))
        .table("r", values(90, 40))
}

#[test]
fn every_type_and_comparison() {
    let conditions = [
        // One end.
        "a.x < b.lo",
        "a.x <= b.lo",
        "a.x > b.lo",
        "b.hi >= a.x",
        // Ends of types, zeros of both signs, NaN.
        "a.w < b.w",
        "a.w >= b.w",
        "a.u > b.u",
        "a.u <= b.u",
        "a.f < b.f",
        "a.f >= b.f",
        "a.h <= b.h",
        "a.d > b.d",
        "a.m < b.m",
        "a.p >= b.p",
        "a.t < b.t",
        // Types that are made one.
        "a.x <= b.w",
        "a.h > b.f",
        "a.m <= b.p",
        "a.w < b.f",
        // One value.
        "a.c <= b.c",
        "a.c < b.x",
    ];
    let fixture = typed(&[]);
    check_all(&fixture, conditions.map(|c| join("JOIN", ("l", "r"), c)));
    check_all(
        &fixture,
        conditions.map(|c| join("FULL JOIN", ("l", "r"), c)),
    );
}

const BANDS: [&str; 9] = [
    "a.x BETWEEN b.lo AND b.hi",
    "a.x > b.lo AND a.x < b.hi",
    "b.x BETWEEN a.lo AND a.hi",
    // Keys before the band, and conditions behind it.
    "a.g = b.g AND a.x BETWEEN b.lo AND b.hi",
    "a.g = b.g AND a.m = b.m AND a.w <= b.w",
    "a.x BETWEEN b.lo AND b.hi AND a.id % 3 <> b.id % 2",
    // Around a value.
    "a.t BETWEEN b.t - INTERVAL '3 seconds' AND b.t + INTERVAL '2 seconds'",
    "a.f >= b.f - 1.0 AND a.f <= b.f + 1.0",
    // Two values of which one is sorted.
    "a.x < b.lo AND a.w > b.w",
];

#[test]
fn every_kind_of_join() {
    check_all(&typed(&[]), each_kind(("l", "r"), &BANDS));
}

#[test]
fn every_kind_of_join_in_trees() {
    let fixture = typed(&[("warpline.load_balance", "nifs_aws")]);
    check_all(&fixture, each_kind(("l", "r"), &BANDS));
}

#[test]
fn sides_are_empty_unknown_or_one_row() {
    let fixture = with_tables(open(&[]));
    let conditions = [
        "a.k >= b.k AND a.k < b.u",
        "a.z = b.z AND a.f <= b.f",
        "a.w < b.w",
    ];
    for other in ["e", "n", "one"] {
        check_all(&fixture, each_kind(("l", other), &conditions));
        check_all(&fixture, each_kind((other, "r"), &conditions));
    }
    check_all(&fixture, each_kind(("e", "n"), &conditions));
}

#[test]
fn numbers_of_rows_around_warps_and_blocks() {
    let sizes = [1, 31, 32, 33, 255, 257, 2047, 2049];
    let mut fixture = open(&[]).table("r", values(33, 40));
    for rows in sizes {
        fixture = fixture.table(&format!("t{rows}"), values(rows, rows as u64));
    }
    for rows in sizes {
        let table = format!("t{rows}");
        for condition in ["a.x BETWEEN b.lo AND b.hi", "a.g = b.g AND a.w > b.w"] {
            check_all(
                &fixture,
                [
                    join("JOIN", (&table, "r"), condition),
                    join("LEFT SEMI JOIN", ("r", &table), condition),
                    join("LEFT JOIN", (&table, "r"), condition),
                ],
            );
        }
    }
}

#[test]
fn many_rows_of_few_matches() {
    let rows = 6_000;
    let keys: Vec<i64> = (0..rows as i64).map(|i| i * 3).collect();
    let column = |seed| primitive::<Int64Type>(drawn(&keys, rows, Nulls::Some, seed));
    // Half of the rows have one key.
    let skewed: Vec<i32> = (0..200).map(|i| i.max(100)).collect();
    let fixture = Fixture::device()
        .table(
            "l",
            [
                ("id", row_numbers(rows)),
                ("v", column(1)),
                (
                    "g",
                    primitive::<Int32Type>(drawn(&skewed, rows, Nulls::None, 3)),
                ),
            ],
        )
        .table(
            "r",
            [
                ("id", row_numbers(rows)),
                ("v", column(2)),
                (
                    "g",
                    primitive::<Int32Type>(drawn(&skewed, rows, Nulls::None, 4)),
                ),
            ],
        );
    // Sorted by its price alone.
    let narrow = "a.v BETWEEN b.v - 2 AND b.v + 2";
    let sql = format!("SELECT count(*) AS n, sum(a.id + b.id) AS s FROM l a JOIN r b ON {narrow}");
    assert!(
        fixture
            .explain(&format!("ANALYZE {sql}"))
            .contains("sorted by")
    );
    check_all(
        &fixture,
        [
            sql,
            format!("SELECT count(*) AS n FROM l a JOIN r b ON a.g = b.g AND {narrow}"),
            format!("SELECT count(*) AS n FROM l a LEFT ANTI JOIN r b ON {narrow}"),
        ],
    );
}

#[test]
fn subqueries_compare() {
    check_all(&typed(&[]), [
        "SELECT a.id FROM l a WHERE EXISTS (SELECT 1 FROM r b WHERE b.lo < a.x AND b.hi > a.x)".to_string(),
        "SELECT a.id FROM l a WHERE NOT EXISTS (SELECT 1 FROM r b WHERE b.g = a.g AND b.lo < a.x AND a.x <= b.hi)".to_string(),
        "SELECT a.id FROM l a WHERE EXISTS (SELECT 1 FROM r b WHERE b.lo < a.x AND b.hi > a.x) OR a.id < 9".to_string(),
        "SELECT a.id, b.id AS j, c.id AS k FROM l a, r b, r c WHERE a.x BETWEEN b.lo AND b.hi AND b.w < c.w AND c.id < 20".to_string(),
    ]);
}

/// Which way a condition goes is shown, and the setting chooses.
#[test]
fn plans_say_how() {
    let fixture = typed(&[]);
    let plan = |condition: &str| {
        let sql = join("JOIN", ("l", "r"), condition);
        fixture.explain(&format!("ANALYZE {sql}"))
    };
    let text = plan("a.x BETWEEN b.lo AND b.hi");
    for part in [
        "sorted by",
        "value >= ",
        " and <= ",
        "warpline.range_joins = sorted",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    // Strings are compared pair by pair, and so is what can fail.
    assert!(!plan("CAST(a.x AS VARCHAR) < CAST(b.x AS VARCHAR)").contains("sorted by"));
    assert!(!plan("10 / a.c > b.x").contains("sorted by"));
    fixture.set("warpline.range_joins", "pairs");
    assert!(!plan("a.x BETWEEN b.lo AND b.hi").contains("sorted by"));
}
