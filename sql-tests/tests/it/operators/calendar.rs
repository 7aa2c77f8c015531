//! Calendar fields of dates and timestamps: leap days, year ends, ISO weeks, days before 1970 and far from it.

use std::sync::Arc;

use arrow::array::PrimitiveArray;
use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{Random, check_all, check_conditions, check_values, primitive, row_numbers};

const FIELDS: [&str; 10] = [
    "year", "isoyear", "quarter", "month", "day", "dow", "isodow", "doy", "week", "epoch",
];
const TIME_FIELDS: [&str; 6] = [
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
    "nanosecond",
];

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
        values.push(format!("date_part('{field}', d)"));
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

/// Timestamps of every unit around the same seconds, times of day, and the days.
fn moments() -> (Fixture, Vec<&'static str>) {
    let mut random = Random::new(13);
    let mut seconds: Vec<i64> = days()
        .iter()
        .step_by(4)
        .map(|d| i64::from(*d) * 86_400 + random.below(86_400) as i64)
        .map(|s| s % 8_000_000_000)
        .collect();
    seconds.extend([-1, 0, 1, 59, 3_600, 86_399, 86_400, -86_400, -86_401]);
    let rows = seconds.len() + 1;
    let ticks = |factor: i64, add: i64| {
        let values = seconds.iter().map(|s| Some(s * factor + add));
        values.chain([None]).collect::<Vec<_>>()
    };
    let of_day = |factor: i64| {
        let values = seconds
            .iter()
            .map(|s| s.rem_euclid(86_400) * factor + factor / 3);
        values.map(Some).chain([None]).collect::<Vec<_>>()
    };
    let narrow = |values: Vec<Option<i64>>| {
        let values = values.into_iter();
        values.map(|v| v.map(|v| v as i32)).collect::<Vec<_>>()
    };
    let days = seconds.iter().map(|s| Some((s / 86_400) as i32));
    let other = ticks(1_000_000, 77).into_iter().rev().collect();
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("s", primitive::<TimestampSecondType>(ticks(1, 0))),
            ("ms", primitive::<TimestampMillisecondType>(ticks(1_000, 7))),
            (
                "us",
                primitive::<TimestampMicrosecondType>(ticks(1_000_000, 999_999)),
            ),
            (
                "ns",
                primitive::<TimestampNanosecondType>(ticks(1_000_000_000, 1)),
            ),
            ("o", primitive::<TimestampMicrosecondType>(other)),
            ("d", primitive::<Date32Type>(days.chain([None]).collect())),
            ("ts", primitive::<Time32SecondType>(narrow(of_day(1)))),
            (
                "tms",
                primitive::<Time32MillisecondType>(narrow(of_day(1_000))),
            ),
            ("tus", primitive::<Time64MicrosecondType>(of_day(1_000_000))),
            (
                "tns",
                primitive::<Time64NanosecondType>(of_day(1_000_000_000)),
            ),
            ("i", primitive::<Int64Type>(ticks(1, 0))),
        ],
    );
    (fixture, vec!["s", "ms", "us", "ns"])
}

#[test]
fn truncated_times() {
    let (fixture, columns) = moments();
    let fine = ["microsecond", "millisecond", "second", "minute", "hour"];
    let coarse = ["day", "week", "month", "quarter", "year"];
    let mut values = Vec::new();
    for to in fine.iter().chain(&coarse) {
        values.extend(columns.iter().map(|c| format!("date_trunc('{to}', {c})")));
    }
    for to in fine {
        for column in ["ts", "tms", "tus", "tns"] {
            values.push(format!("date_trunc('{to}', {column})"));
        }
    }
    for stride in [
        "1 second",
        "15 minutes",
        "7 hours",
        "1 day",
        "1 week",
        "10 days 3 hours",
    ] {
        values.push(format!("date_bin(INTERVAL '{stride}', s)"));
        values.push(format!(
            "date_bin(INTERVAL '{stride}', us, TIMESTAMP '2001-01-03T00:00:07')"
        ));
        values.push(format!(
            "date_bin(INTERVAL '{stride}', ns, TIMESTAMP '1969-01-01')"
        ));
    }
    values.push("date_trunc('month', d)".into());
    check_values(&fixture, "t", &values);
    check_all(
        &fixture,
        [
            "SELECT date_trunc('minute', us) AS k, count(*) AS n FROM t GROUP BY 1",
            "SELECT date_trunc('year', ns) AS k, count(*) AS n, max(s) AS hi FROM t GROUP BY 1",
            "SELECT date_bin(INTERVAL '90 days', ms) AS k, count(*) AS n FROM t GROUP BY 1",
        ]
        .map(String::from),
    );
}

#[test]
fn times_and_intervals() {
    let (fixture, columns) = moments();
    let intervals = [
        "1 day",
        "-40 days",
        "1 month",
        "-1 month",
        "13 months",
        "100 years",
        "1 month 3 days 2 hours 30 minutes",
        "25 hours",
        "1 nanosecond",
        "-1500 microseconds",
    ];
    let mut values = Vec::new();
    for interval in intervals {
        for column in columns.iter().chain(&["d"]) {
            // Nanoseconds end in 2262.
            if interval == "100 years" && *column == "ns" {
                continue;
            }
            values.push(format!("{column} + INTERVAL '{interval}'"));
            values.push(format!("{column} - INTERVAL '{interval}'"));
        }
    }
    values.push("INTERVAL '1 month' + d".into());
    values.push("d + 5".into());
    values.push("d - 31".into());
    values.push("us + CAST(NULL AS INTERVAL)".into());
    values.extend(
        [
            "d - DATE '2000-02-29'",
            "DATE '1960-01-01' - d",
            "CAST(us AS DATE) - d",
        ]
        .map(String::from),
    );
    values.push("arrow_cast(us - o, 'Int64')".into());
    values.push("date_part('epoch', tns)".into());
    for field in TIME_FIELDS {
        for column in ["ts", "tms", "tus", "tns"] {
            values.push(format!("date_part('{field}', {column})"));
        }
    }
    check_values(&fixture, "t", &values);
    check_conditions(
        &fixture,
        "t",
        &[
            "us > o + INTERVAL '3 months'",
            "d > CAST(o AS DATE) + 5",
            "d + INTERVAL '1 month' = DATE '2000-02-29'",
        ],
    );
}

#[test]
fn times_of_day() {
    let (fixture, moments) = moments();
    let units = ["s", "ms", "µs", "ns"];
    let times = ["ts", "tms", "tus", "tns"];
    let mut values = Vec::new();
    for column in moments.iter().chain(&times) {
        for (unit, bits) in units.iter().zip([32, 32, 64, 64]) {
            values.push(format!("arrow_cast({column}, 'Time{bits}({unit})')"));
        }
        values.push(format!("date_part('minute', CAST({column} AS TIME))"));
        values.push(format!("TRY_CAST({column} AS TIME)"));
    }
    check_values(&fixture, "t", &values);
    check_conditions(
        &fixture,
        "t",
        &[
            "CAST(us AS TIME) >= TIME '09:30:00'",
            "CAST(tus AS TIME) < TIME '12:00:00.000001'",
            "CAST(ts AS TIME) = CAST(s AS TIME)",
            "CAST(us AS TIME) BETWEEN CAST(tus AS TIME) AND tns",
        ],
    );
}

#[test]
fn numbers_as_times_and_back() {
    let (fixture, _) = moments();
    check_values(
        &fixture,
        "t",
        &[
            "to_timestamp_seconds(i)",
            "to_timestamp_millis(i)",
            "to_timestamp_micros(i)",
            "to_timestamp_nanos(i)",
            "to_timestamp(i)",
            "from_unixtime(i)",
            "to_timestamp_millis(us)",
            "to_timestamp_seconds(CAST(i AS DOUBLE) / 3)",
            "to_unixtime(us)",
            "to_unixtime(d)",
            "to_unixtime(i)",
            "to_date(us)",
            "CAST(us AS BIGINT)",
            "CAST(s AS DOUBLE)",
            "CAST(i AS TIMESTAMP)",
            "arrow_cast(i, 'Timestamp(s)')",
            "arrow_cast(d, 'Int64')",
            "arrow_cast(tns, 'Int64')",
            "arrow_cast(arrow_cast(i, 'Duration(ms)'), 'Int64')",
            "date_trunc('minute', to_timestamp_seconds(i))",
        ],
    );
}

#[test]
fn parts_of_durations() {
    let near = [
        0, 1, -1, 999, -999, 2147, 2148, -2147, -2148, 2_147_483, 2_147_484,
    ];
    let ticks = near.into_iter().chain([
        -2_147_483,
        -2_147_484,
        2_147_483_647,
        2_147_483_648,
        -2_147_483_648,
        -2_147_483_649,
        86_399_999_999,
        -86_400_000_000,
        1 << 52,
        i64::MAX,
        i64::MIN,
    ]);
    let ticks: Vec<Option<i64>> = ticks.map(Some).chain([None]).collect();
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(ticks.len())),
            ("i", primitive::<Int64Type>(ticks)),
        ],
    );
    let mut values = Vec::new();
    for unit in ["s", "ms", "us", "ns"] {
        for part in ["week", "day", "hour", "minute", "second", "epoch"] {
            values.push(format!(
                "date_part('{part}', arrow_cast(i, 'Duration({unit})'))"
            ));
        }
    }
    values.push("extract(epoch FROM (to_timestamp_micros(i % 1000000000000) - TIMESTAMP '1970-01-02 00:00:00')) / 86400.0".into());
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    check_values(&fixture, "t", &values);
}

/// What leaves 64 bits or the calendar is DataFusion's to refuse or to answer.
#[test]
fn moves_beyond_the_calendar() {
    let far = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX];
    let days = [i32::MIN, -95_000_000, 0, 1, 95_000_000, i32::MAX];
    let fixture = Fixture::relaxed().table(
        "t",
        [
            ("id", row_numbers(6)),
            (
                "ns",
                primitive::<TimestampNanosecondType>(far.map(Some).to_vec()),
            ),
            (
                "s",
                primitive::<TimestampSecondType>(far.map(Some).to_vec()),
            ),
            ("d", primitive::<Date32Type>(days.map(Some).to_vec())),
        ],
    );
    for expression in [
        "ns + INTERVAL '1 day'",
        "s - INTERVAL '1 month'",
        "d + INTERVAL '1 month'",
        "date_trunc('year', s)",
        "date_trunc('month', ns)",
        "date_bin(INTERVAL '1 hour', s)",
        "s - arrow_cast(1, 'Timestamp(s)')",
        "ns - TIMESTAMP '1600-01-01'",
        "date_part('year', s)",
        "date_part('isoyear', d)",
        "to_timestamp(CAST(s AS BIGINT))",
    ] {
        for condition in ["true", "id BETWEEN 2 AND 3"] {
            let sql =
                format!("SELECT id, max({expression}) AS x FROM t WHERE {condition} GROUP BY id");
            match fixture.compare(&sql) {
                Err(message) if message.starts_with("the reference failed") => {
                    fixture.check_error(&sql);
                }
                outcome => drop(outcome.unwrap_or_else(|message| panic!("{sql}\n{message}"))),
            }
        }
    }
}

/// Times around two days of 1969 and 1970 and some weeks of 2024, in each unit and without NULL.
fn near_times() -> Fixture {
    let mut random = Random::new(14);
    let mut seconds: Vec<i64> = vec![-1, 0, 1, 59, 60, 3_599, 3_600, -60, -61, -3_600, -3_601];
    seconds.extend([86_399, 86_400, -86_400, -86_401]);
    seconds.extend((0..400).map(|_| random.below(200_000) as i64 - 100_000));
    let rows = seconds.len() + 2;
    let ticks = |factor: i64, add: i64| {
        let values = seconds.iter().map(|second| Some(second * factor + add));
        values.chain([None, None]).collect::<Vec<_>>()
    };
    let earlier = |factor: i64| {
        let values = seconds.iter().enumerate();
        let values = values.map(|(row, second)| Some((second - row as i64 * 13) * factor));
        values.chain([None, Some(0)]).collect::<Vec<_>>()
    };
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("s", primitive::<TimestampSecondType>(ticks(1, 0))),
            ("s0", primitive::<TimestampSecondType>(earlier(1))),
            (
                "ms",
                primitive::<TimestampMillisecondType>(ticks(1_000, 999)),
            ),
            ("ms0", primitive::<TimestampMillisecondType>(earlier(1_000))),
            (
                "us",
                primitive::<TimestampMicrosecondType>(ticks(1_000_000, 1)),
            ),
            (
                "us0",
                primitive::<TimestampMicrosecondType>(earlier(1_000_000)),
            ),
            (
                "ns",
                primitive::<TimestampNanosecondType>(ticks(1_000_000_000, 5)),
            ),
            (
                "ns0",
                primitive::<TimestampNanosecondType>(earlier(1_000_000_000)),
            ),
        ],
    )
}

/// Looked up by the number of a day, hour, minute or second.
#[test]
fn texts_of_spans() {
    let fixture = near_times();
    let mut values = Vec::new();
    for column in ["s", "ms", "us", "ns"] {
        for format in [
            "%Y-%m",
            "%d. %b %y, day %j",
            "%H h",
            "%F %H:%M",
            "%H:%M:%S",
            "%%",
        ] {
            values.push(format!("to_char({column}, '{format}')"));
        }
        for span in ["hour", "day", "week", "quarter"] {
            values.push(format!("CAST(date_trunc('{span}', {column}) AS VARCHAR)"));
        }
        values.push(format!(
            "'at ' || CAST(date_bin(INTERVAL '90 seconds', {column}) AS VARCHAR)"
        ));
        values.push(format!("length(to_char({column}, '%A')) + 1"));
    }
    check_values(&fixture, "t", &values);
    check_all(
        &fixture,
        [
            "SELECT to_char(us, '%Y-%m-%d %H') AS k, count(*) AS n, min(ns) AS lo FROM t GROUP BY 1",
            "SELECT to_char(ns, '%H') AS k, to_char(s, '%d') AS d, count(*) AS n FROM t GROUP BY 1, 2",
            "SELECT id FROM t WHERE to_char(ms, '%p') = 'AM' AND to_char(ms, '%M') < '30'",
        ]
        .map(String::from),
    );
}

/// A day has 24 hours there, a month 30 days.
#[test]
fn durations_against_intervals() {
    let fixture = near_times();
    let mut conditions = Vec::new();
    for column in ["s", "ms", "us", "ns"] {
        for op in ["<", "<=", ">", ">=", "=", "<>"] {
            conditions.push(format!("{column} - {column}0 {op} INTERVAL '13 seconds'"));
        }
        for interval in [
            "1 day",
            "-1 day",
            "1 month",
            "-2 months 5 seconds",
            "26 minutes 0.5 seconds",
            "0 seconds",
        ] {
            conditions.push(format!("{column} - {column}0 > INTERVAL '{interval}'"));
            conditions.push(format!("INTERVAL '{interval}' >= {column} - {column}0"));
            conditions.push(format!("{column} - {column}0 <> INTERVAL '{interval}'"));
        }
        conditions.push(format!(
            "{column} - {column}0 BETWEEN INTERVAL '1 minute' AND INTERVAL '1 hour'"
        ));
    }
    check_conditions(&fixture, "t", &conditions);
    let sessions = "SELECT id, sum(CASE WHEN us - before > INTERVAL '30 minutes' THEN 1 ELSE 0 END) OVER (ORDER BY us, id) AS session \
                    FROM (SELECT id, us, lag(us) OVER (ORDER BY us, id) AS before FROM t) x";
    check_all(&fixture, [sessions.to_string()]);
}

#[test]
fn moves_by_intervals_of_a_case() {
    let fixture = near_times();
    let mut values = Vec::new();
    // One CASE of two columns is computed before.
    for (n, column) in ["s", "ms", "us", "ns", "us"].into_iter().enumerate() {
        let n = n.min(3) + 3;
        values.push(format!(
            "{column} + CASE WHEN id % {n} = 0 THEN INTERVAL '90 minutes' WHEN id % {n} = 1 THEN INTERVAL '1 month' ELSE INTERVAL '20 seconds' END"
        ));
        values.push(format!(
            "{column} - CASE id % {n} WHEN 0 THEN INTERVAL '1 day' WHEN 1 THEN INTERVAL '2 hours' END"
        ));
    }
    check_values(&fixture, "t", &values);
}

/// Spans that depend on the row, added to dates and to timestamps; texts say the same to DataFusion.
#[test]
fn products_of_intervals() {
    const PRODUCTS: [(&str, &str); 11] = [
        (
            "d - CAST(n AS INT)",
            "d - CAST(CAST(n AS VARCHAR) || ' days' AS INTERVAL)",
        ),
        (
            "CAST(at AS DATE) + CAST(n * 3 AS INT)",
            "CAST(at AS DATE) + CAST(CAST(n * 3 AS VARCHAR) || ' days' AS INTERVAL)",
        ),
        (
            "d - CAST(id % 5 AS INT) + CAST(n AS INT)",
            "d + CAST(CAST(n - id % 5 AS VARCHAR) || ' days' AS INTERVAL)",
        ),
        (
            "d - n * INTERVAL '1 day'",
            "d - CAST(CAST(n AS VARCHAR) || ' days' AS INTERVAL)",
        ),
        (
            "d + INTERVAL '2 weeks' * CAST(n AS INT)",
            "d + CAST(CAST(n * 14 AS VARCHAR) || ' days' AS INTERVAL)",
        ),
        (
            "CAST(at AS DATE) + 3 * INTERVAL '1 day'",
            "CAST(at AS DATE) + INTERVAL '3 days'",
        ),
        (
            "at - n * INTERVAL '36 hours'",
            "at - CAST(CAST(n * 36 AS VARCHAR) || ' hours' AS INTERVAL)",
        ),
        (
            "CASE WHEN d < DATE '2030-01-01' + n * INTERVAL '1 day' THEN at + n * INTERVAL '1 day 90 seconds' END",
            "CASE WHEN d < DATE '2030-01-01' + CAST(CAST(n AS VARCHAR) || ' days' AS INTERVAL) THEN at + CAST(CAST(n * 86490 AS VARCHAR) || ' seconds' AS INTERVAL) END",
        ),
        (
            "CASE WHEN d > DATE '2020-01-01' - n * INTERVAL '1 day' THEN utc - n * INTERVAL '2 days' END",
            "CASE WHEN d > DATE '2020-01-01' - CAST(CAST(n AS VARCHAR) || ' days' AS INTERVAL) THEN utc - CAST(CAST(n * 2 AS VARCHAR) || ' days' AS INTERVAL) END",
        ),
        (
            "d + n * INTERVAL '1 month'",
            "d + CAST(CAST(n AS VARCHAR) || ' months' AS INTERVAL)",
        ),
        (
            "at - INTERVAL '1 year' * n",
            "at - CAST(CAST(n AS VARCHAR) || ' years' AS INTERVAL)",
        ),
    ];
    for rows in [0, 1, 31, 32, 33, 5_000] {
        let mut random = Random::new(rows as u64 + 3);
        let mut number = |most: usize| -> Vec<Option<i64>> {
            let values = (0..rows).map(|_| (!random.chance(9)).then(|| random.below(most) as i64));
            values.collect()
        };
        let (days, numbers) = (number(40_000), number(120));
        let numbers = numbers.iter().map(|n| n.map(|n| n - 60));
        let seconds: Vec<_> = days.iter().map(|d| d.map(|d| d * 86_399)).collect();
        let days = days.iter().map(|d| d.map(|d| d as i32 - 9_000)).collect();
        let fixture = Fixture::device().table(
            "t",
            [
                ("id", row_numbers(rows)),
                ("n", primitive::<Int64Type>(numbers.collect())),
                ("d", primitive::<Date32Type>(days)),
                ("at", primitive::<TimestampSecondType>(seconds.clone())),
                (
                    "utc",
                    Arc::new(
                        PrimitiveArray::<TimestampSecondType>::from(seconds).with_timezone("UTC"),
                    ),
                ),
            ],
        );
        for (written, meant) in PRODUCTS {
            let expected = fixture.expect(&format!("SELECT id, {meant} AS x FROM t"));
            let run = fixture.run(&format!("SELECT id, {written} AS x FROM t"));
            assert_eq!(
                expected.difference(&run.expect(written)),
                None,
                "{written}, {rows} rows"
            );
        }
    }
}
