//! Calendar fields of dates and timestamps: leap days, year ends, ISO weeks, days before 1970 and far from it.

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{Random, check_all, check_conditions, check_values, primitive, row_numbers};

const FIELDS: [&str; 7] = ["year", "quarter", "month", "day", "dow", "doy", "week"];
const TIME_FIELDS: [&str; 3] = ["hour", "minute", "second"];

/// Days since 1970 on which calendars go wrong, and others at random over nine millennia.
fn days() -> Vec<i32> {
    let year_start = |year: i64| {
        let before = year - 1;
        (before * 365 + before / 4 - before / 100 + before / 400 - 719_162) as i32
    };
    let mut days = Vec::new();
    for year in [
        1583, 1600, 1700, 1899, 1900, 1904, 1968, 1969, 1970, 1972, 1999, 2000, 2001, 2004, 2015,
        2020, 2024, 2100, 2400,
    ] {
        let start = year_start(year);
        // Around the new year, when ISO weeks belong to either year, and around the end of February.
        days.extend(start - 4..start + 5);
        days.extend(start + 57..start + 61);
    }
    let mut random = Random::new(11);
    days.extend((0..120).map(|_| random.below(3_300_000) as i32 - 720_000));
    days
}

#[test]
fn fields_of_dates() {
    let days = days();
    let rows = days.len() + 1;
    let with_null = |days: &[i32]| {
        days.iter()
            .copied()
            .map(Some)
            .chain([None])
            .collect::<Vec<_>>()
    };
    let millis = days
        .iter()
        .map(|d| Some(i64::from(*d) * 86_400_000))
        .chain([None])
        .collect();
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("d", primitive::<Date32Type>(with_null(&days))),
            ("m", primitive::<Date64Type>(millis)),
        ],
    );
    let mut values = Vec::new();
    for field in FIELDS {
        values.push(format!("date_part('{field}', d)"));
        values.push(format!("extract({field} FROM m)"));
    }
    for field in TIME_FIELDS {
        values.push(format!("date_part('{field}', m)"));
    }
    values.push("date_part('year', d) * 100 + date_part('month', d)".into());
    check_values(&fixture, "t", &values);
    check_conditions(
        &fixture,
        "t",
        &[
            "date_part('year', d) = 2000",
            "d >= DATE '1969-12-28' AND d < DATE '1970-01-03'",
            "extract(dow FROM d) IN (0, 6)",
        ],
    );
    check_all(
        &fixture,
        FIELDS.map(|field| {
            format!("SELECT date_part('{field}', d) AS k, count(*) AS n, max(d) AS hi FROM t GROUP BY date_part('{field}', d)")
        }),
    );
}

#[test]
fn fields_of_timestamps() {
    let mut random = Random::new(12);
    let mut seconds: Vec<i64> = days()
        .iter()
        .step_by(3)
        .map(|d| i64::from(*d) * 86_400 + random.below(86_400) as i64)
        .collect();
    seconds.extend([
        -1, 0, 1, 59, 60, 3599, 3600, 86_399, 86_400, -86_400, -86_401, -60, -61,
    ]);
    let rows = seconds.len() + 1;
    let ticks = |factor: i64, add: i64| {
        let values = seconds.iter().map(|s| Some(s * factor + add));
        values.chain([None]).collect::<Vec<_>>()
    };
    // Nanoseconds reach from 1677 to 2262 only.
    let nanos = seconds
        .iter()
        .map(|s| Some(s % 9_000_000_000 * 1_000_000_000 + 5));
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("s", primitive::<TimestampSecondType>(ticks(1, 0))),
            (
                "ms",
                primitive::<TimestampMillisecondType>(ticks(1000, 999)),
            ),
            (
                "us",
                primitive::<TimestampMicrosecondType>(ticks(1_000_000, 1)),
            ),
            (
                "ns",
                primitive::<TimestampNanosecondType>(nanos.chain([None]).collect()),
            ),
        ],
    );
    let mut values = Vec::new();
    for column in ["s", "ms", "us", "ns"] {
        for field in FIELDS.iter().chain(&TIME_FIELDS) {
            values.push(format!("date_part('{field}', {column})"));
        }
    }
    check_values(&fixture, "t", &values);
    check_all(
        &fixture,
        [
            "SELECT extract(hour FROM us) AS h, count(*) AS n FROM t WHERE extract(minute FROM us) < 30 GROUP BY extract(hour FROM us)",
            "SELECT extract(year FROM ns) AS y, extract(month FROM ns) AS m, count(*) AS n, min(ns) AS lo FROM t GROUP BY 1, 2",
        ]
        .map(String::from),
    );
}

/// Ranges of fields are derived from the ranges of columns, which here lie to one side of 1970.
#[test]
fn years_far_from_1970() {
    let from = |first: i32, step: i32| (0..40).map(|i| Some(first + i * step)).collect::<Vec<_>>();
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(40)),
            ("late", primitive::<Date32Type>(from(1_000_000, 11))),
            ("later", primitive::<Date32Type>(from(40_000_000, 300))),
            ("early", primitive::<Date32Type>(from(-1_000_000, 11))),
            ("earlier", primitive::<Date32Type>(from(-40_000_000, 300))),
        ],
    );
    let columns = ["late", "later", "early", "earlier"];
    let values: Vec<_> = columns
        .iter()
        .map(|c| format!("date_part('year', {c})"))
        .collect();
    check_values(&fixture, "t", &values);
    check_all(
        &fixture,
        columns.map(|c| format!("SELECT date_part('year', {c}) AS y, count(*) AS n FROM t GROUP BY date_part('year', {c})")),
    );
    let in_lists = columns.map(|c| {
        format!("date_part('year', {c}) IN (4707, 4708, -768, -769, 111486, 111487, 111488, -107546, -107545, -107544, 1970)")
    });
    check_conditions(&fixture, "t", &in_lists);
}
