//! Conditions that keep others from failing: what can fail is asked of the rows alone for which the rest holds.

use arrow::datatypes::{Decimal128Type, Int32Type, Int64Type};
use warpline_sql_tests::Fixture;

use super::support::{Nulls, drawn, primitive, row_numbers, strings};

/// What is written, and what never fails.
const QUERIES: [(&str, &str); 8] = [
    (
        "SELECT id FROM t WHERE b <> 0 AND a / b > 2",
        "SELECT id FROM t WHERE a / nullif(b, 0) > 2",
    ),
    (
        "SELECT id FROM t WHERE a % b = 1 AND b > 0 AND id > 2",
        "SELECT id FROM t WHERE a % nullif(b, 0) = 1 AND b > 0 AND id > 2",
    ),
    (
        "SELECT id FROM t WHERE b = 0 OR a / b < 1",
        "SELECT id FROM t WHERE b = 0 OR a / nullif(b, 0) < 1",
    ),
    (
        "SELECT id, x / d AS q FROM (SELECT * FROM t WHERE d <> 0) AS some WHERE x / d > 1",
        "SELECT id, x / nullif(d, 0) AS q FROM t WHERE d <> 0 AND x / nullif(d, 0) > 1",
    ),
    (
        "SELECT id, b <> 0 AND a / b > 2 AS p, b = 0 OR a / b > 2 AS q FROM t",
        "SELECT id, CASE WHEN b = 0 THEN false ELSE b <> 0 AND a / nullif(b, 0) > 2 END AS p, CASE WHEN b = 0 THEN true ELSE b = 0 OR a / nullif(b, 0) > 2 END AS q FROM t",
    ),
    (
        "SELECT b, count(*) AS n FROM t GROUP BY b HAVING b > 0 AND sum(a) / b > 1",
        "SELECT b, count(*) AS n FROM t GROUP BY b HAVING b > 0 AND sum(a) / nullif(b, 0) > 1",
    ),
    (
        "SELECT k, sum(a / b) FILTER (WHERE b <> 0) AS s, count(*) FILTER (WHERE b <> 0 AND a % b = 0) AS n FROM t GROUP BY k",
        "SELECT k, sum(a / nullif(b, 0)) AS s, count(*) FILTER (WHERE a % nullif(b, 0) = 0) AS n FROM t GROUP BY k",
    ),
    (
        "SELECT l.id, r.id AS other FROM t AS l JOIN t AS r ON l.k = r.k AND r.b <> 0 AND l.a / r.b > 3",
        "SELECT l.id, r.id AS other FROM t AS l JOIN t AS r ON l.k = r.k AND l.a / nullif(r.b, 0) > 3",
    ),
];

#[test]
fn what_can_fail_is_asked_last() {
    for (rows, nulls) in [
        (0, Nulls::None),
        (1, Nulls::None),
        (31, Nulls::Some),
        (32, Nulls::None),
        (33, Nulls::Some),
        (1500, Nulls::Some),
        (40, Nulls::All),
    ] {
        let number =
            |values: &[i64], seed| primitive::<Int64Type>(drawn(values, rows, nulls, seed));
        let fixture = Fixture::device().table(
            "t",
            [
                ("id", row_numbers(rows)),
                ("k", number(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 1)),
                ("a", number(&[-9, 0, 1, 5, 8, 40], 2)),
                (
                    "b",
                    primitive::<Int32Type>(drawn(&[-2, 0, 0, 1, 3], rows, nulls, 3)),
                ),
                (
                    "x",
                    primitive::<Decimal128Type>(drawn(&[-50, 0, 75, 100_000], rows, nulls, 4)),
                ),
                (
                    "d",
                    primitive::<Decimal128Type>(drawn(&[0, 10, -3], rows, nulls, 5)),
                ),
            ],
        );
        for (written, meant) in QUERIES {
            let expected = fixture.expect(meant);
            let run = fixture.run(written);
            let run = run.unwrap_or_else(|error| panic!("{written}, {rows} rows: {error}"));
            assert_eq!(expected.difference(&run), None, "{written}, {rows} rows");
        }
    }
}

/// The values of a string column are cast before any row is looked at; what fails is an error where a row has it.
#[test]
fn casts_of_strings_are_asked_last() {
    let many: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let few = ["1", "4", "none", "17", "", "2.5"].map(String::from);
    for values in [few.to_vec(), [many, few.to_vec()].concat()] {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        for (rows, nulls) in [
            (0, Nulls::None),
            (1, Nulls::None),
            (33, Nulls::Some),
            (1500, Nulls::None),
            (1500, Nulls::Some),
        ] {
            let fixture = Fixture::device().table(
                "t",
                [
                    ("id", row_numbers(rows)),
                    ("s", strings(drawn(&values, rows, nulls, 6))),
                ],
            );
            let whole = "regexp_like(s, '^[0-9]+$')";
            for (written, meant) in [
                (
                    "SELECT id FROM t WHERE s <> 'none' AND s NOT IN ('', '2.5') AND CAST(s AS INT) > 3".to_string(),
                    "SELECT id FROM t WHERE TRY_CAST(s AS INT) > 3".to_string(),
                ),
                (
                    format!("SELECT id FROM t WHERE {whole} AND CAST(s AS INT) > 3"),
                    format!("SELECT id FROM t WHERE {whole} AND TRY_CAST(s AS INT) > 3"),
                ),
                (
                    format!(
                        "SELECT CAST(s AS BIGINT) AS n, count(*) AS c FROM t WHERE {whole} GROUP BY 1"
                    ),
                    format!(
                        "SELECT TRY_CAST(s AS BIGINT) AS n, count(*) AS c FROM t WHERE {whole} GROUP BY 1"
                    ),
                ),
                (
                    format!(
                        "SELECT sum(CAST(s AS INT)) AS n, max(CAST(s AS DOUBLE)) AS m FROM t WHERE {whole}"
                    ),
                    format!(
                        "SELECT sum(TRY_CAST(s AS INT)) AS n, max(TRY_CAST(s AS DOUBLE)) AS m FROM t WHERE {whole}"
                    ),
                ),
                (
                    format!(
                        "SELECT id, CASE WHEN id % 2 = 0 AND {whole} THEN CAST(s AS INT) ELSE -1 END AS n FROM t"
                    ),
                    format!(
                        "SELECT id, CASE WHEN id % 2 = 0 AND {whole} THEN TRY_CAST(s AS INT) ELSE -1 END AS n FROM t"
                    ),
                ),
                (
                    "SELECT l.id, r.id AS other FROM t AS l JOIN t AS r ON r.id = CAST(l.s AS BIGINT) WHERE regexp_like(l.s, '^[0-9]+$')".to_string(),
                    "SELECT l.id, r.id AS other FROM t AS l JOIN t AS r ON r.id = TRY_CAST(l.s AS BIGINT) WHERE regexp_like(l.s, '^[0-9]+$')".to_string(),
                ),
            ] {
                let expected = fixture.expect(&meant);
                let run = fixture.run(&written);
                let run = run.unwrap_or_else(|error| panic!("{written}, {rows} rows: {error}"));
                assert_eq!(expected.difference(&run), None, "{written}, {rows} rows");
            }
            if rows > 33 {
                let error = fixture.check_error("SELECT sum(CAST(s AS INT)) AS n FROM t");
                assert!(error.to_lowercase().contains("cast"), "{error}");
            }
        }
    }
}

/// Nothing keeps these from it.
#[test]
fn what_fails_for_a_row_that_counts_fails() {
    let fixture = Fixture::device().table_from(
        "t",
        "SELECT value AS id, value % 3 AS b FROM generate_series(1, 40)",
    );
    for sql in [
        "SELECT id FROM t WHERE id / b > 2",
        "SELECT id FROM t WHERE id > 5 AND id / b > 2",
    ] {
        let error = fixture.check_error(sql);
        assert!(error.to_lowercase().contains("zero"), "{error}");
    }
}
