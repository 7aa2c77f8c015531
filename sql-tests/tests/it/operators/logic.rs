//! Three-valued logic, exhaustively, and comparisons with NULL.

use warpline_sql_tests::Fixture;

use super::support::{booleans, check_all, check_conditions, check_values, row_numbers};

const TRUTH: [Option<bool>; 3] = [Some(true), Some(false), None];

/// All 27 assignments of three conditions.
fn truths() -> Fixture {
    let all = || (0..27usize).map(|i| [TRUTH[i / 9], TRUTH[i / 3 % 3], TRUTH[i % 3]]);
    let column = |c: usize| booleans(all().map(|row| row[c]).collect());
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(27)),
            ("p", column(0)),
            ("q", column(1)),
            ("r", column(2)),
        ],
    )
}

const CONDITIONS: [&str; 28] = [
    "p AND q",
    "p OR q",
    "NOT p",
    "NOT (p AND q)",
    "NOT (p OR q)",
    "NOT p OR NOT q",
    "p AND q AND r",
    "p OR q OR r",
    "p AND (q OR r)",
    "p OR (q AND NOT r)",
    "(p OR q) AND (q OR r) AND (r OR p)",
    "p = q",
    "p <> q",
    "p < q",
    "p >= q",
    "p IS NULL",
    "p IS NOT NULL",
    "p IS TRUE",
    "p IS NOT TRUE",
    "p IS FALSE",
    "p IS UNKNOWN",
    "p IS DISTINCT FROM q",
    "p IS NOT DISTINCT FROM q",
    "(p AND q) IS NULL",
    "coalesce(p, q, r)",
    "CASE WHEN p THEN q WHEN q THEN r END",
    "p IN (true, NULL)",
    "p AND NULL",
];

#[test]
fn and_or_not_over_every_assignment() {
    let fixture = truths();
    check_conditions(&fixture, "t", &CONDITIONS);
    check_conditions(
        &fixture,
        "t",
        &[
            "p OR NULL",
            "NOT (p AND NULL)",
            "nullif(p, q)",
            "(p = q) = r",
            "p <> (q OR r)",
        ],
    );
    let filters =
        CONDITIONS.map(|c| format!("SELECT count(*) AS n, sum(id) AS s FROM t WHERE {c}"));
    check_all(&fixture, filters.into_iter().step_by(2));
    check_all(
        &fixture,
        CONDITIONS.chunks(4).map(|c| {
            format!(
                "SELECT count(*) AS n, sum(id) AS s FROM t WHERE ({})",
                c.join(") AND (")
            )
        }),
    );
}

#[test]
fn conditions_as_values_and_keys() {
    let fixture = truths();
    check_all(
        &fixture,
        [
            "SELECT p AND q AS k, count(*) AS n FROM t GROUP BY p AND q",
            "SELECT p, q IS NULL AS u, r OR p AS o, count(*) AS n, sum(id) AS s FROM t GROUP BY p, q IS NULL, r OR p",
            "SELECT p, count(q) AS n, count(NOT r) AS m, count(*) FILTER (WHERE q) AS f FROM t GROUP BY p",
            "SELECT count(p AND q) AS a, count(p OR q) AS o, count(NOT p) AS x FROM t WHERE id >= 0",
        ]
        .map(String::from),
    );
    check_values(
        &fixture,
        "t",
        &[
            "CAST(p AS INT)",
            "CASE WHEN p AND q THEN 1 WHEN NOT p THEN 2 ELSE 3 END",
            "CASE p WHEN q THEN id ELSE -id END",
        ],
    );
}

#[test]
fn comparisons_with_null_constants() {
    let fixture = truths();
    check_conditions(
        &fixture,
        "t",
        &[
            "id = NULL",
            "id IS DISTINCT FROM NULL",
            "id > 3 AND NULL",
            "id > 3 OR NULL",
            "id IN (1, 2, NULL)",
            "id NOT IN (1, 2, NULL)",
            "id BETWEEN NULL AND 5",
            "id BETWEEN 5 AND NULL",
            "NOT id BETWEEN NULL AND 5",
            "CASE WHEN NULL THEN true ELSE p END",
            "coalesce(NULL, p)",
        ],
    );
}
