//! Variances, deviations, covariances and correlations against plain DataFusion.

use super::tables::fixture;
use crate::operators::support::check_all;

const CALLS: [&str; 7] = [
    "stddev(f)",
    "stddev_pop(z)",
    "var_samp(x)",
    "var_pop(f * 3)",
    "covar_samp(f, z)",
    "covar_pop(k, f)",
    "corr(f, k)",
];

#[test]
fn of_every_table_grouped_and_not() {
    let queries = ["l", "one", "e", "n"].iter().flat_map(|table| {
        CALLS.iter().flat_map(move |call| {
            [
                format!("SELECT {call} AS v FROM {table}"),
                format!("SELECT s, z, {call} AS v, count(*) AS n FROM {table} GROUP BY s, z"),
            ]
        })
    });
    check_all(&fixture(), queries);
}

#[test]
fn with_filters_beside_others_and_above_joins() {
    check_all(
        &fixture(),
        [
            "SELECT k, stddev(f) FILTER (WHERE z > 2) AS a, var_pop(z) AS b, sum(x) AS c, bool_or(b) AS d FROM l GROUP BY k",
            "SELECT l.s, stddev(l.f) AS a, avg(r.z) AS b, stddev(r.z) / avg(r.z) AS c FROM l JOIN r ON l.k = r.k GROUP BY l.s",
            "SELECT z, count(DISTINCT k) AS a, stddev(f) AS b FROM l GROUP BY z HAVING stddev(f) > 0.5",
            "SELECT u, v FROM p JOIN (SELECT z, stddev(f) AS v FROM l GROUP BY z) g ON p.z = g.z",
            "SELECT stddev(n) AS a FROM (SELECT k, count(*) AS n FROM l GROUP BY k)",
        ]
        .map(String::from),
    );
}

/// Sums of squares alone would lose all digits of these.
#[test]
fn of_large_values_that_are_alike() {
    let fixture = fixture().table_from(
        "big",
        "SELECT value % 3 AS k, 1e6 + (value % 7) AS v, -1e6 + (value % 5) * 2 + value % 3 AS w FROM generate_series(1, 5000)",
    );
    check_all(
        &fixture,
        [
            "SELECT k, stddev(v) AS a, var_pop(v) AS b, corr(v - 1e6, w + 1e6) AS c FROM big GROUP BY k",
            "SELECT stddev_pop(v) AS a, covar_pop(v, v) AS b FROM big",
        ]
        .map(String::from),
    );
}

/// A column that does not vary has no correlation.
#[test]
fn of_constants() {
    let fixture = fixture().table_from(
        "c",
        "SELECT value % 2 AS k, 2.5 AS one, cast(value AS double) AS v FROM generate_series(1, 100)",
    );
    check_all(
        &fixture,
        ["SELECT k, stddev(one) AS a, corr(one, v) AS b, var_samp(one) AS c FROM c GROUP BY k"]
            .map(String::from),
    );
}
