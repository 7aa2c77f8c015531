//! Each column type as aggregate argument, as filter input and as grouping key; with no, some and only NULLs.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, FixedSizeBinaryArray, LargeStringArray};
use arrow::compute::cast;
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{Nulls, booleans, check_all, drawn, primitive, string_views, strings};

const ROWS: usize = 700;

/// A column type under test.
struct Kind {
    name: &'static str,
    make: fn(Nulls, u64) -> ArrayRef,
    /// Conditions over `{}`.
    conditions: &'static [&'static str],
    sums: bool,
    extremes: bool,
    key: bool,
}

const TEXTS: [&str; 7] = ["", "a", "ab", "b", "zebra", "Ünï", "日本語"];

fn text(nulls: Nulls, seed: u64) -> ArrayRef {
    strings(drawn(&TEXTS, ROWS, nulls, seed))
}

/// Not all of them are UTF-8.
const BYTES: [&[u8]; 7] = [
    b"",
    b"a",
    b"ab",
    b"b",
    b"\x00",
    b"\xff\xfe",
    "Ünï".as_bytes(),
];

fn bytes(nulls: Nulls, seed: u64) -> ArrayRef {
    Arc::new(BinaryArray::from_opt_vec(drawn(&BYTES, ROWS, nulls, seed)))
}

fn fixed_bytes(nulls: Nulls, seed: u64) -> ArrayRef {
    const TRIPLES: [&[u8]; 4] = [b"abc", b"\x00\x00\x00", b"\xff\x80\x00", b"abd"];
    let values = drawn(&TRIPLES, ROWS, nulls, seed).into_iter();
    Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 3).expect("triples"))
}

macro_rules! numbers {
    ($type:ty, [$($value:expr),* $(,)?]) => {
        |nulls, seed| primitive::<$type>(drawn(&[$($value),*], ROWS, nulls, seed))
    };
}

/// A primitive array of the type's default parameters, seen as `$to`.
macro_rules! seen_as {
    ($type:ty, $to:expr, [$($value:expr),* $(,)?]) => {
        |nulls, seed| {
            let values = primitive::<$type>(drawn(&[$($value),*], ROWS, nulls, seed));
            let data = values.to_data().into_builder().data_type($to).build();
            arrow::array::make_array(data.expect("the same layout"))
        }
    };
}

fn kinds() -> Vec<Kind> {
    const TEXT: &[&str] = &["{} > 'ab'", "{} = ''", "{} IN ('b', 'zebra', 'none')"];
    const BINARY: &[&str] = &["{} > X'6162'", "{} = X''", "{} IN (X'62', X'fffe', X'63')"];
    let kind = |name, make, conditions| Kind {
        name,
        make,
        conditions,
        sums: true,
        extremes: true,
        key: true,
    };
    let plain = |name, make, conditions| Kind {
        sums: false,
        ..kind(name, make, conditions)
    };
    vec![
        Kind {
            extremes: false,
            ..plain(
                "bool",
                |nulls, seed| booleans(drawn(&[true, false], ROWS, nulls, seed)),
                &["{}", "NOT {}", "{} = true", "{} < true"],
            )
        },
        kind(
            "i8",
            numbers!(Int8Type, [i8::MIN, -1, 0, 7, i8::MAX]),
            &["{} > -1", "{} = -128"],
        ),
        kind(
            "i16",
            numbers!(Int16Type, [i16::MIN, -1, 0, 7, i16::MAX]),
            &["{} >= 0", "{} <> 7"],
        ),
        kind(
            "i32",
            numbers!(Int32Type, [i32::MIN, -1, 0, 7, i32::MAX]),
            &["{} <= 7", "{} = 2147483647"],
        ),
        kind(
            "i64",
            numbers!(Int64Type, [i64::MIN / 4096, -1, 0, 7, i64::MAX / 4096]),
            &["{} < 7", "{} = -1"],
        ),
        kind(
            "u8",
            numbers!(UInt8Type, [0, 1, 200, u8::MAX]),
            &["{} > 199", "{} = 255"],
        ),
        kind(
            "u16",
            numbers!(UInt16Type, [0, 1, 200, u16::MAX]),
            &["{} > 199", "{} = 65535"],
        ),
        kind(
            "u32",
            numbers!(UInt32Type, [0, 1, 200, u32::MAX]),
            &["{} > 199", "{} = 4294967295"],
        ),
        kind(
            "u64",
            numbers!(UInt64Type, [0, 1, 200, i64::MAX as u64 / 4096]),
            &["{} > 199", "{} = 0"],
        ),
        Kind {
            key: false,
            ..kind(
                "f32",
                numbers!(Float32Type, [0.0, 1.5, 2.25, 1e30, -1e-30]),
                &["{} > 1.5", "{} = 0"],
            )
        },
        Kind {
            key: false,
            ..kind(
                "f64",
                numbers!(Float64Type, [0.0, 1.5, 2.25, 1e300, 1e-300]),
                &["{} > 1.5", "{} = 0"],
            )
        },
        kind(
            "d32",
            seen_as!(
                Decimal32Type,
                DataType::Decimal32(9, 2),
                [-999_999, -1, 0, 1250, 999_999]
            ),
            &["{} > arrow_cast(12, 'Decimal32(9, 2)')", "{} IS NOT NULL"],
        ),
        kind(
            "d64",
            seen_as!(
                Decimal64Type,
                DataType::Decimal64(18, 4),
                [-99_999_999_999_999, -1, 0, 1_250_000]
            ),
            &["{} < arrow_cast(125, 'Decimal64(18, 4)')", "{} IS NULL"],
        ),
        kind(
            "d128",
            seen_as!(
                Decimal128Type,
                DataType::Decimal128(15, 2),
                [-999_999_999_999_999, -1, 0, 1250]
            ),
            &["{} >= CAST(12.5 AS DECIMAL(15, 2))", "{} > 0.005"],
        ),
        kind(
            "d128s0",
            seen_as!(
                Decimal128Type,
                DataType::Decimal128(20, 0),
                [-99_999_999_999, 0, 5]
            ),
            &["{} = 5"],
        ),
        plain(
            "date32",
            numbers!(Date32Type, [-719_162, -1, 0, 19_000, 2_932_896]),
            &["{} >= DATE '1970-01-01'", "{} = DATE '1969-12-31'"],
        ),
        plain(
            "date64",
            numbers!(Date64Type, [-86_400_000, 0, 86_400_000, 1_600_000_000_000]),
            &["{} > arrow_cast('1970-01-01', 'Date64')"],
        ),
        plain(
            "ts_s",
            numbers!(TimestampSecondType, [-1, 0, 1_600_000_000]),
            &["{} >= arrow_cast('1970-01-01T00:00:00', 'Timestamp(Second, None)')"],
        ),
        plain(
            "ts_ms",
            numbers!(TimestampMillisecondType, [-1, 0, 1_600_000_000_001]),
            &["{} < arrow_cast('1970-01-01T00:00:00', 'Timestamp(Millisecond, None)')"],
        ),
        plain(
            "ts_us",
            numbers!(TimestampMicrosecondType, [-1, 0, 1_600_000_000_000_001]),
            &["{} <> arrow_cast('1970-01-01T00:00:00', 'Timestamp(Microsecond, None)')"],
        ),
        plain(
            "ts_ns",
            numbers!(TimestampNanosecondType, [i64::MIN + 2, -1, 0, i64::MAX]),
            &["{} > TIMESTAMP '1970-01-01T00:00:00'"],
        ),
        plain(
            "ts_tz",
            seen_as!(
                TimestampMillisecondType,
                DataType::Timestamp(TimeUnit::Millisecond, Some("+02:00".into())),
                [-1, 0, 1_600_000_000_001]
            ),
            &["{} IS NULL"],
        ),
        plain(
            "time32",
            numbers!(Time32SecondType, [0, 59, 86_399]),
            &["{} IS NULL"],
        ),
        plain(
            "time64",
            numbers!(Time64NanosecondType, [0, 59, 86_399_999_999_999]),
            &["{} IS NOT NULL"],
        ),
        Kind {
            extremes: false,
            ..plain(
                "duration",
                numbers!(DurationMillisecondType, [-5, 0, 1 << 40]),
                &["{} IS NULL"],
            )
        },
        plain("utf8", text, TEXT),
        plain(
            "large",
            |nulls, seed| Arc::new(LargeStringArray::from(drawn(&TEXTS, ROWS, nulls, seed))),
            TEXT,
        ),
        plain(
            "view",
            |nulls, seed| string_views(drawn(&TEXTS, ROWS, nulls, seed)),
            TEXT,
        ),
        plain(
            "dict",
            |nulls, seed| {
                let data_type =
                    DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
                cast(&text(nulls, seed), &data_type).expect("a dictionary")
            },
            TEXT,
        ),
        plain(
            "dict_view",
            |nulls, seed| {
                let data_type =
                    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
                cast(&text(nulls, seed), &data_type).expect("a dictionary")
            },
            TEXT,
        ),
        plain("binary", bytes, BINARY),
        plain(
            "large_binary",
            |nulls, seed| cast(&bytes(nulls, seed), &DataType::LargeBinary).expect("bytes"),
            BINARY,
        ),
        plain(
            "binary_view",
            |nulls, seed| cast(&bytes(nulls, seed), &DataType::BinaryView).expect("bytes"),
            BINARY,
        ),
        plain(
            "fixed_binary",
            fixed_bytes,
            &[
                "{} > X'616263'",
                "{} = X'ff8000'",
                "{} IN (X'616264', X'000000')",
            ],
        ),
        plain(
            "dict_binary",
            |nulls, seed| {
                let data_type =
                    DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Binary));
                cast(&bytes(nulls, seed), &data_type).expect("a dictionary")
            },
            BINARY,
        ),
    ]
}

/// Every type with each mix of NULLs, columns `<type>_<nulls>`, beside a key `g` and a number `v`.
fn fixture() -> Fixture {
    let g = primitive::<Int16Type>(drawn(&[-3, 0, 4], ROWS, Nulls::Some, 1));
    let v = primitive::<Int32Type>(drawn(&[1, 2, 3, 500], ROWS, Nulls::None, 2));
    let mut columns = vec![("g".to_string(), g), ("v".to_string(), v)];
    for (seed, kind) in kinds().iter().enumerate() {
        for nulls in Nulls::EACH {
            let name = format!("{}_{}", kind.name, nulls.suffix());
            columns.push((name, (kind.make)(nulls, seed as u64 + 10)));
        }
    }
    let columns: Vec<_> = columns
        .iter()
        .map(|(n, a)| (n.as_str(), a.clone()))
        .collect();
    Fixture::device().table("t", columns)
}

#[test]
fn as_arguments_of_aggregates() {
    let fixture = fixture();
    let mut queries = Vec::new();
    for (i, group) in kinds().chunks(5).enumerate() {
        for nulls in Nulls::EACH {
            let mut calls = Vec::new();
            for kind in group {
                let column = format!("{}_{}", kind.name, nulls.suffix());
                let mut call = |function: &str, suffix: &str| {
                    let name = calls.len();
                    calls.push(format!("{function}({column}){suffix} AS c{name}"));
                };
                call("count", "");
                call("count", " FILTER (WHERE v > 2)");
                if kind.extremes {
                    call("min", "");
                    call("max", "");
                    call("max", " FILTER (WHERE v = 2)");
                }
                if kind.sums {
                    call("sum", "");
                    call("avg", "");
                    call("sum", " FILTER (WHERE v < 3)");
                }
            }
            let calls = calls.join(", ");
            // Ungrouped and grouped by turns, so that each type meets both with some mix of NULLs.
            queries.push(if (i + nulls as usize).is_multiple_of(2) {
                format!("SELECT count(*) AS n, {calls} FROM t WHERE v > 0")
            } else {
                format!("SELECT g, count(*) AS n, {calls} FROM t GROUP BY g")
            });
        }
    }
    check_all(&fixture, queries);
}

#[test]
fn as_inputs_of_filters() {
    let fixture = fixture();
    let mut queries = Vec::new();
    let mut every = Vec::new();
    for kind in kinds() {
        for nulls in Nulls::EACH {
            let column = format!("{}_{}", kind.name, nulls.suffix());
            for condition in kind.conditions {
                every.push(condition.replace("{}", &column));
            }
            every.push(format!("{column} IS NULL"));
        }
    }
    for chunk in every.chunks(16) {
        let counts: Vec<String> = chunk
            .iter()
            .enumerate()
            .map(|(i, c)| {
                format!(
                    "count(*) FILTER (WHERE {c}) AS t{i}, count(*) FILTER (WHERE NOT ({c})) AS f{i}"
                )
            })
            .collect();
        queries.push(format!("SELECT {} FROM t WHERE v > 0", counts.join(", ")));
    }
    for chunk in every.chunks(7) {
        let any = chunk.join(" OR ");
        queries.push(format!(
            "SELECT count(*) AS n, sum(v) AS s FROM t WHERE {any}"
        ));
    }
    check_all(&fixture, queries);
}

#[test]
fn as_grouping_keys() {
    let fixture = fixture();
    let mut queries = Vec::new();
    for kind in kinds().iter().filter(|k| k.key) {
        let name = kind.name;
        queries.push(format!(
            "SELECT {name}_some, count(*) AS n, sum(v) AS s, min(v) AS lo FROM t GROUP BY {name}_some"
        ));
        queries.push(format!(
            "SELECT {name}_none AS a, {name}_all AS b, count(*) AS n, avg(v) AS m FROM t \
             WHERE v < 500 GROUP BY {name}_none, {name}_all"
        ));
    }
    check_all(&fixture, queries);
}

#[test]
fn all_key_types_together() {
    let fixture = fixture();
    let keys: Vec<String> = kinds()
        .iter()
        .filter(|k| k.key)
        .map(|k| format!("{}_some", k.name))
        .collect();
    let queries = keys.chunks(4).map(|chunk| {
        let list = chunk.join(", ");
        format!("SELECT {list}, count(*) AS n, sum(v) AS s FROM t GROUP BY {list}")
    });
    check_all(&fixture, queries);
}
