//! Timestamps of time zones: fields, starts of spans, casts and moves, around the hours that clocks skip and repeat.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{Random, check_all, check_values, primitive, row_numbers};

/// Zones without and with changes of their clocks, by half an hour and by odd offsets, and a date that clocks skip at midnight.
const ZONES: [&str; 9] = [
    "UTC",
    "+00:00",
    "+05:30",
    "-11:00",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
];

/// Seconds around changes of clocks, and others at random over six decades.
fn seconds() -> Vec<Option<i64>> {
    let mut seconds = vec![0, -1, 1, 86_399, 86_400];
    // Berlin 2024-03-31 and 2024-10-27; New York 2024-03-10 and 2024-11-03; São Paulo 2017-10-15 and 2018-02-18; Lord Howe 2024-04-06
    // and 2024-10-05; Kathmandu 1985-12-31.
    for change in [
        1_711_846_800,
        1_729_990_800,
        1_710_054_000,
        1_730_613_600,
        1_508_036_400,
        1_518_919_200,
        1_712_415_600,
        1_728_142_200,
        504_901_800,
    ] {
        for minutes in [
            -1_440, -181, -61, -60, -31, -30, -1, 0, 1, 29, 30, 59, 60, 90, 121, 1_439,
        ] {
            seconds.push(change + minutes * 60);
            seconds.push(change + minutes * 60 + 17);
        }
    }
    let mut random = Random::new(77);
    seconds.extend((0..300).map(|_| random.below(2_000_000_000) as i64 - 100_000_000));
    seconds.into_iter().map(Some).chain([None, None]).collect()
}

fn stamps<T: ArrowTimestampType>(factor: i64, add: i64, zone: &str) -> ArrayRef {
    let ticks: Vec<_> = seconds()
        .into_iter()
        .map(|second| second.map(|second| second * factor + add))
        .collect();
    let array = primitive::<T>(ticks);
    let array = array
        .as_any()
        .downcast_ref::<arrow::array::PrimitiveArray<T>>();
    Arc::new(array.expect("timestamps").clone().with_timezone(zone))
}

fn fixture(zone: &str) -> Fixture {
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(seconds().len())),
            ("s", stamps::<TimestampSecondType>(1, 0, zone)),
            ("ms", stamps::<TimestampMillisecondType>(1_000, 999, zone)),
            ("us", stamps::<TimestampMicrosecondType>(1_000_000, 1, zone)),
            (
                "ns",
                stamps::<TimestampNanosecondType>(1_000_000_000, 5, zone),
            ),
        ],
    )
}

#[test]
fn fields_and_starts() {
    for zone in ZONES {
        let fixture = fixture(zone);
        let mut values = Vec::new();
        for column in ["s", "ms", "us", "ns"] {
            for field in [
                "year",
                "isoyear",
                "quarter",
                "month",
                "week",
                "day",
                "doy",
                "dow",
                "hour",
                "minute",
                "second",
                "millisecond",
                "epoch",
            ] {
                values.push(format!("date_part('{field}', {column})"));
            }
            for span in [
                "second", "minute", "hour", "day", "week", "month", "quarter", "year",
            ] {
                values.push(format!("date_trunc('{span}', {column})"));
            }
            values.push(format!("date_bin(INTERVAL '15 minutes', {column})"));
            values.push(format!("CAST({column} AS DATE)"));
            values.push(format!("CAST({column} AS TIME)"));
            values.push(format!("to_local_time({column})"));
        }
        check_values(&fixture, "t", &values);
    }
}

#[test]
fn casts_and_moves() {
    for zone in ["UTC", "+05:30", "Europe/Berlin"] {
        let fixture = fixture(zone);
        let mut values = vec![
            "CAST(us AS TIMESTAMP)".to_string(),
            "CAST(ns AS TIMESTAMP(0))".to_string(),
            "arrow_cast(ms, 'Timestamp(us, \"America/New_York\")')".to_string(),
            "date_trunc('day', us AT TIME ZONE 'Asia/Tokyo')".to_string(),
            "date_part('hour', ms AT TIME ZONE 'America/New_York')".to_string(),
            "CAST(s AS BIGINT)".to_string(),
            "us + INTERVAL '90 minutes'".to_string(),
            "us - ms".to_string(),
            "to_char(us, '%Y-%m-%d %H')".to_string(),
            "CASE WHEN us >= TIMESTAMP '2024-03-31 04:30:00Z' THEN 1 ELSE 0 END".to_string(),
            "CAST(date_trunc('hour', to_local_time(us)) AS DATE)".to_string(),
        ];
        if zone == "UTC" {
            values.push("us + INTERVAL '1 month 3 days'".to_string());
            values.push("CAST(CAST(us AS DATE) AS TIMESTAMP WITH TIME ZONE)".to_string());
            values.push("CAST(to_local_time(ns) AS TIMESTAMP WITH TIME ZONE)".to_string());
        }
        check_values(&fixture, "t", &values);
    }
}

/// A local time that there is twice, or never, has no moment.
#[test]
fn moments_of_local_times() {
    let fixture = fixture("UTC");
    let mut values = Vec::new();
    for zone in ["Europe/Berlin", "Australia/Lord_Howe", "+05:30"] {
        for column in ["s", "ms", "us", "ns"] {
            values.push(format!(
                "arrow_try_cast(to_local_time({column}), 'Timestamp(us, \"{zone}\")')"
            ));
        }
    }
    check_values(&fixture, "t", &values);
    // Of days without a change every time has one.
    check_all(
        &fixture,
        [
            "SELECT id, to_local_time(us) AT TIME ZONE 'Europe/Berlin' AS at FROM t WHERE date_part('month', us) IN (1, 6, 7)",
            "SELECT date_trunc('day', us) AS day, count(*) AS n, max(ms) AS last FROM t GROUP BY 1",
            "SELECT to_char(ms, '%Y-%m') AS month, count(*) AS n FROM t GROUP BY 1",
            "SELECT id, lag(us) OVER (ORDER BY us, id) AS before FROM t",
            "SELECT id, count(*) OVER (ORDER BY us RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW) AS n FROM t",
        ]
        .map(String::from),
    );
}

/// Clocks of Apia skipped a whole day: the CPU answers where it ends.
#[test]
fn a_day_that_was_skipped() {
    let fixture = fixture("Pacific/Apia");
    let values = ["date_part('day', us)", "CAST(ms AS DATE)"];
    check_values(&fixture, "t", &values);
}
