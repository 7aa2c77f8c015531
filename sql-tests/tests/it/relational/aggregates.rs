//! Aggregates beyond sums against plain DataFusion: bits, medians and percentiles, first and last values, regressions, DISTINCT.

use warpline_sql_tests::Fixture;

use super::tables::{fixture, with_tables};
use crate::operators::support::check_all;

const TABLES: [&str; 4] = ["l", "one", "e", "n"];

/// All calls over every table, grouped and not, with filters and beside others; each alone over one table.
fn each(calls: &[&str]) -> Vec<String> {
    let numbered = |suffix: &str| {
        let calls = calls.iter().enumerate();
        let calls: Vec<String> = calls
            .map(|(i, call)| format!("{call}{suffix} AS v{i}"))
            .collect();
        calls.join(", ")
    };
    let (all, filtered) = (numbered(""), numbered(" FILTER (WHERE z > 2)"));
    let mut queries: Vec<String> = calls
        .iter()
        .map(|call| format!("SELECT s, z, {call} AS v FROM l GROUP BY s, z"))
        .collect();
    for table in TABLES {
        queries.push(format!("SELECT {all} FROM {table}"));
        queries.push(format!(
            "SELECT b, {filtered}, sum(x) AS t, stddev(f) AS d FROM {table} GROUP BY b"
        ));
    }
    queries
}

#[test]
fn bits() {
    let calls = [
        "bit_and(k)",
        "bit_or(k)",
        "bit_xor(k)",
        "bit_and(z)",
        "bit_or(arrow_cast(z, 'UInt8'))",
        "bit_xor(arrow_cast(z, 'UInt64'))",
        "bit_and(arrow_cast(z * -3, 'Int16'))",
        "bit_or(DISTINCT z)",
    ];
    check_all(&fixture(), each(&calls));
}

#[test]
fn medians_and_percentiles() {
    let calls = [
        "median(x)",
        "median(f)",
        "median(k)",
        "median(w)",
        "percentile_cont(0.25) WITHIN GROUP (ORDER BY f)",
        "percentile_cont(0.9) WITHIN GROUP (ORDER BY k DESC)",
        "percentile_cont(z, 0.5)",
        "percentile_cont(arrow_cast(f, 'Float32'), 0.31)",
        "percentile_disc(0.25) WITHIN GROUP (ORDER BY f)",
        "percentile_disc(0.9) WITHIN GROUP (ORDER BY s DESC)",
        "percentile_disc(0) WITHIN GROUP (ORDER BY d)",
        "percentile_disc(1) WITHIN GROUP (ORDER BY x)",
        "percentile_disc(z, 0.5)",
    ];
    check_all(&fixture(), each(&calls));
}

#[test]
fn of_distinct_values() {
    let calls = [
        "median(DISTINCT f)",
        "median(DISTINCT x)",
        "percentile_cont(DISTINCT z, 0.4)",
        "var_samp(DISTINCT f)",
        "var_pop(DISTINCT k)",
        "sum(DISTINCT x)",
        "avg(DISTINCT f)",
        "count(DISTINCT s)",
        "approx_distinct(s)",
        "approx_distinct(z)",
    ];
    check_all(&fixture(), each(&calls));
}

/// The order is total, so that one row is the one.
#[test]
fn first_last_and_nth_values() {
    let calls = [
        "first_value(x ORDER BY id)",
        "last_value(s ORDER BY id)",
        "first_value(f ORDER BY z DESC, id)",
        "last_value(k ORDER BY s NULLS FIRST, id DESC)",
        "nth_value(d, 2 ORDER BY id)",
        "nth_value(w, -3 ORDER BY id)",
    ];
    let mut queries = each(&calls);
    queries.extend(
        [
            "SELECT z, first_value(k ORDER BY id) IGNORE NULLS AS a, last_value(b ORDER BY id) IGNORE NULLS AS b FROM l GROUP BY z",
            "SELECT last_value(s ORDER BY f DESC, id) IGNORE NULLS AS a, last_value(s ORDER BY f DESC, id) AS b FROM l",
            "SELECT s, nth_value(d, -2 ORDER BY f, id) AS a, nth_value(x, 1 ORDER BY f, id) AS b FROM l GROUP BY s",
        ]
        .map(String::from),
    );
    check_all(&fixture(), queries);
}

#[test]
fn regressions() {
    let calls = [
        "regr_slope(f, z)",
        "regr_intercept(f, k)",
        "regr_count(f, k)",
        "regr_r2(z, f)",
        "regr_avgx(f, k)",
        "regr_avgy(f, k)",
        "regr_sxx(f, z)",
        "regr_syy(f, z)",
        "regr_sxy(f, z)",
    ];
    check_all(&fixture(), each(&calls));
}

#[test]
fn in_sets_windows_and_subqueries() {
    check_all(
        &fixture(),
        [
            "SELECT z, b, median(x) AS m, bit_or(k) AS o FROM l GROUP BY ROLLUP (z, b)",
            "SELECT id, median(f) OVER (PARTITION BY z) AS m, bit_xor(k) OVER (PARTITION BY s) AS o FROM l",
            "SELECT l.s, median(r.z) AS m, first_value(l.x ORDER BY l.id, r.id) AS a FROM l JOIN r ON l.k = r.k GROUP BY l.s",
            "SELECT p.u, m FROM p JOIN (SELECT z, median(f) AS m FROM l GROUP BY z HAVING median(f) > 0) g ON p.z = g.z",
            "SELECT median(n) AS a FROM (SELECT k, count(*) AS n FROM l GROUP BY k)",
            "SELECT k, median(f) AS a, percentile_cont(f, 0.1) AS b, percentile_cont(f, 0.9) AS c FROM l GROUP BY k",
            "SELECT upper(s) AS u, median(z + 1) AS a, last_value(lower(s) ORDER BY id) AS b FROM l GROUP BY upper(s)",
            "SELECT sum(x ORDER BY id) AS a, count(k ORDER BY id) AS b FROM l",
        ]
        .map(String::from),
    );
}

/// Below, at and above the width of a warp, and many blocks; skewed keys; constant columns.
#[test]
fn of_many_sizes() {
    let mut fixture = fixture();
    let mut queries = Vec::new();
    for rows in [1, 32, 33, 5000] {
        fixture = fixture.table_from(
            &format!("m{rows}"),
            &format!(
                "SELECT value AS id, CASE WHEN value % 50 = 0 THEN value ELSE 0 END AS k, value * 7919 % 1000 AS v, \
                 0.1 AS c, cast(value % 17 AS double) / 7 AS f, arrow_cast(value % 9, 'Decimal128(9, 2)') AS d, \
                 9223372036854775807 - value AS h FROM generate_series(1, {rows})"
            ),
        );
        for keys in ["", " GROUP BY k"] {
            queries.push(format!(
                "SELECT median(v) AS a, median(d) AS b, percentile_cont(f, 0.37) AS c, first_value(v ORDER BY f, id) AS d, \
                 bit_and(h) AS e, bit_or(v) AS g, bit_xor(h) AS h, sum(v) AS i FROM m{rows}{keys}"
            ));
            queries.push(format!(
                "SELECT var_pop(c) AS a, stddev(c) AS b, regr_r2(c, f) AS d, regr_slope(f, c) AS e, covar_samp(c, f) AS g \
                 FROM m{rows}{keys}"
            ));
        }
    }
    check_all(&fixture, queries);
}

/// Estimates of DataFusion's are near what the device computes.
#[test]
fn approximate_values() {
    let fixture = fixture().table_from(
        "a",
        "SELECT value % 3 AS k, value * 7919 % 10007 AS v FROM generate_series(1, 10000)",
    );
    let queries = [
        "abs(approx_median(v) - 5000) < 200",
        "abs(approx_percentile_cont(v, 0.9) - 9000) < 200",
        "abs(approx_percentile_cont(0.2) WITHIN GROUP (ORDER BY v DESC) - 8000) < 200",
        "approx_distinct(v) BETWEEN 3000 AND 10400",
    ]
    .into_iter()
    .flat_map(|near| ["", " GROUP BY k"].map(|keys| format!("SELECT {near} AS near FROM a{keys}")));
    check_all(&fixture, queries);
}

/// Which value is not said: of equal ones there is no other, and of any it is one of them.
#[test]
fn any_values() {
    let queries = TABLES.iter().flat_map(|table| {
        [
            format!("SELECT z, any_value(z * 2) AS v, any_value(s) FILTER (WHERE s = 'a') AS a FROM {table} GROUP BY z"),
            format!("SELECT z, any_value(x) BETWEEN min(x) AND max(x) AS x, any_value(s) BETWEEN min(s) AND max(s) AS s, any_value(b) IS NULL AS b FROM {table} GROUP BY z"),
        ]
    });
    check_all(&fixture(), queries);
}

/// How many centroids an estimate has must be a positive constant, though the device keeps none.
#[test]
fn centroids_of_percentiles() {
    let fixture = with_tables(Fixture::relaxed());
    let percentile = |centroids: &str, keys: &str| {
        format!(
            "SELECT approx_percentile_cont(0.95, {centroids}) WITHIN GROUP (ORDER BY f) AS p FROM l{keys}"
        )
    };
    for keys in ["", " GROUP BY z"] {
        for refused in ["-1000", "0", "k", "z"] {
            let error = fixture.check_error(&percentile(refused, keys));
            assert!(error.contains("Tdigest max_size"), "{refused}: {error}");
        }
        let run = fixture.run(&percentile("1000", keys)).expect("an answer");
        assert_eq!(run.rows() > 1, !keys.is_empty());
    }
}

/// The least number of 128 bits has no other sign: totals of which no range is known are looked at for it.
#[test]
fn totals_with_another_sign() {
    let wide = "arrow_cast(x, 'Decimal128(38, 10)')";
    let totals = format!("SELECT s, sum({wide}) AS t FROM l GROUP BY s");
    let queries = [
        format!("SELECT s, -t AS v FROM ({totals}) q"),
        format!(
            "SELECT -min(t) AS v FROM (SELECT t FROM ({totals}) q UNION ALL SELECT {wide} FROM one) u"
        ),
        format!("SELECT max(-t) FILTER (WHERE s <> 'a') AS v, sum(-t) AS w FROM ({totals}) q"),
        format!(
            "SELECT l.id AS i, -q.t AS v FROM l LEFT JOIN ({totals}) q ON q.s = l.s AND -q.t < 5"
        ),
    ];
    check_all(&fixture(), queries);
}
