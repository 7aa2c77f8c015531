//! Groups by any keys, DISTINCT in and outside of aggregates, HAVING, from one group to a million.

use warpline_sql_tests::Fixture;

use super::tables::{fixture, with_tables};
use crate::operators::support::check_all;

pub(super) const CALLS: &str = "count(*) AS n, count(x) AS m, sum(x) AS sx, avg(x) AS ax, min(d) AS lo, max(s) AS hi, sum(w) AS sw, min(f) AS mf";

#[test]
fn by_any_keys() {
    let keys = [
        "k",
        "z",
        "w",
        "s",
        "d",
        "x",
        "b",
        "k, s",
        "s, d, b",
        "w, x",
        "k, z, s, d, x, b",
        "upper(s)",
        "substr(s, 1, 1)",
        "k % 3, z + 1",
        "date_part('year', d)",
        "k IS NULL, s IS NULL",
        "CASE WHEN k > 0 THEN s ELSE 'none' END",
    ];
    check_all(
        &fixture(),
        keys.iter().map(|keys| {
            let names: Vec<String> = split_keys(keys)
                .iter()
                .enumerate()
                .map(|(i, key)| format!("{key} AS g{i}"))
                .collect();
            format!(
                "SELECT {}, {CALLS} FROM l GROUP BY {keys}",
                names.join(", ")
            )
        }),
    );
}

/// Splits at the commas that are not in parentheses.
fn split_keys(keys: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in keys.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

#[test]
fn over_nothing_and_over_nulls() {
    let fixture = fixture();
    let mut queries = Vec::new();
    for table in ["e", "n", "one"] {
        queries.push(format!("SELECT {CALLS} FROM {table}"));
        queries.push(format!("SELECT k, {CALLS} FROM {table} GROUP BY k"));
        queries.push(format!("SELECT s, w, {CALLS} FROM {table} GROUP BY s, w"));
        queries.push(format!(
            "SELECT count(DISTINCT s) AS a, sum(DISTINCT x) AS b FROM {table}"
        ));
        queries.push(format!("SELECT DISTINCT k, s FROM {table}"));
        queries.push(format!(
            "SELECT sum(x) AS t FROM {table} HAVING count(*) > 0"
        ));
    }
    queries.push(format!(
        "SELECT k, {CALLS} FROM l WHERE k > 1000 GROUP BY k"
    ));
    queries.push(format!("SELECT {CALLS} FROM l WHERE k > 1000"));
    check_all(&fixture, queries);
}

#[test]
fn truths() {
    const CALLS: &str = "min(b) AS lo, max(b) AS hi, bool_and(b) AS every, bool_or(b) AS any, \
                         bool_or(k > 3) FILTER (WHERE z > 2) AS some, bool_and(s LIKE 'z%' OR b) AS words, \
                         max(DISTINCT NOT b) AS d, count(DISTINCT b) AS n";
    let fixture = fixture();
    check_all(
        &fixture,
        ["l", "e", "n", "one"].iter().flat_map(|table| {
            [
                format!("SELECT {CALLS} FROM {table}"),
                format!("SELECT s, {CALLS} FROM {table} GROUP BY s"),
                format!("SELECT w, z, bool_and(b) AS every FROM {table} GROUP BY w, z HAVING bool_or(b)"),
                format!("SELECT b, bool_or(k < 0) AS any, sum(k) AS t FROM {table} GROUP BY b"),
                format!("SELECT k, bool_and(f > 0) AS p FROM {table} GROUP BY k ORDER BY p DESC NULLS LAST, k LIMIT 5"),
            ]
        }),
    );
    // What is asked of the groups reads booleans again.
    check_all(
        &fixture,
        [
            "SELECT count(*) AS n FROM (SELECT k, bool_and(b) AS every FROM l GROUP BY k) WHERE every IS NOT TRUE".to_string(),
            "SELECT g.every, count(*) AS n FROM l JOIN (SELECT k, max(b) AS every FROM l GROUP BY k) g ON l.k = g.k AND g.every GROUP BY 1"
                .to_string(),
            "SELECT id FROM l WHERE b = (SELECT bool_or(b) FROM p) ORDER BY id LIMIT 9".to_string(),
        ],
    );
}

#[test]
fn counts_of_several_arguments() {
    check_all(
        &fixture(),
        ["l", "e", "n", "one"].iter().flat_map(|table| {
            [
                format!("SELECT count(k, b) AS n, count(k, s, x) AS m, count(1, d) AS o FROM {table}"),
                format!("SELECT s, count(k, b) AS n, count(f, k) FILTER (WHERE b) AS m, count(*) AS o FROM {table} GROUP BY s"),
            ]
        }),
    );
}

#[test]
fn distinct_arguments() {
    check_all(
        &fixture(),
        [
            "SELECT count(DISTINCT k) AS a, count(DISTINCT s) AS b, count(DISTINCT x) AS c FROM l",
            "SELECT sum(DISTINCT k) AS a, sum(DISTINCT x) AS b, sum(DISTINCT z) AS c FROM l",
            "SELECT z, count(DISTINCT s) AS a FROM l GROUP BY z",
            "SELECT s, count(DISTINCT k) AS a, count(*) AS n, sum(x) AS t FROM l GROUP BY s",
            "SELECT z, sum(DISTINCT k) AS a, count(DISTINCT d) AS b, max(x) AS c FROM l GROUP BY z",
            "SELECT k, s, count(DISTINCT x) AS a, min(DISTINCT z) AS b, max(DISTINCT w) AS c FROM l GROUP BY k, s",
            "SELECT count(DISTINCT w) AS a, count(DISTINCT b) AS b, avg(DISTINCT k) AS c FROM l",
            "SELECT count(DISTINCT upper(s)) AS a, count(DISTINCT k % 5) AS b FROM l WHERE z > 1",
            "SELECT l.z, count(DISTINCT r.s) AS a FROM l JOIN r ON l.k = r.k GROUP BY l.z",
        ]
        .map(String::from),
    );
}

/// A constant is one value however many rows have it, and none where no row does.
#[test]
fn distinct_constants() {
    let calls = [
        "count(DISTINCT 8) AS a",
        "sum(DISTINCT 2) AS b",
        "avg(DISTINCT 1.5) AS c",
        "min(DISTINCT 3) AS d",
        "count(DISTINCT CAST(NULL AS INT)) AS e",
        "sum(DISTINCT CAST(NULL AS BIGINT)) AS f",
        "count(DISTINCT true) AS g",
        "count(DISTINCT 'word') AS h",
        "count(DISTINCT 8) FILTER (WHERE k > 0) AS i",
        "sum(DISTINCT 2) FILTER (WHERE k > 1000) AS j",
        "count(DISTINCT 9.25) FILTER (WHERE b) AS l",
        // Constant in each row, but for NULLs.
        "count(DISTINCT k - k) AS m",
        "sum(DISTINCT z - z + 5) AS o",
        "count(DISTINCT DATE '2020-01-01') AS p",
    ];
    let beside = "count(*) AS rows, count(8) AS eights, sum(x) AS sx, count(DISTINCT s) AS words, sum(DISTINCT k) AS sk";
    let fixture = fixture();
    let mut queries = Vec::new();
    // DataFusion makes groups of a distinct argument that is alone.
    for call in ["count(DISTINCT 8) AS a", "sum(DISTINCT 2) AS b"] {
        for table in ["l", "e"] {
            queries.push(format!("SELECT {call} FROM {table}"));
            queries.push(format!("SELECT z, {call} FROM {table} GROUP BY z"));
        }
    }
    queries.push("SELECT count(DISTINCT CAST(NULL AS INT)) AS a FROM l".into());
    for table in ["l", "e", "n", "one"] {
        let all = calls.join(", ");
        queries.push(format!("SELECT {all}, {beside} FROM {table}"));
        queries.push(format!("SELECT s, {all}, {beside} FROM {table} GROUP BY s"));
    }
    let all = calls.join(", ");
    queries.push(format!("SELECT k, w, {all} FROM l GROUP BY k, w"));
    queries.push(format!("SELECT {all} FROM l WHERE k > 1000"));
    check_all(&fixture, queries);
}

#[test]
fn distinct_rows() {
    check_all(
        &fixture(),
        [
            "SELECT DISTINCT k FROM l",
            "SELECT DISTINCT s, b FROM l WHERE z <> 3",
            "SELECT DISTINCT k % 4 AS a, upper(s) AS b FROM l",
            "SELECT DISTINCT l.z, r.s FROM l JOIN r ON l.k = r.k",
            "SELECT count(*) AS n FROM (SELECT DISTINCT k, z, s FROM l)",
        ]
        .map(String::from),
    );
}

#[test]
fn having() {
    check_all(
        &fixture(),
        [
            "SELECT k, count(*) AS n FROM l GROUP BY k HAVING count(*) > 7",
            "SELECT s, sum(x) AS t FROM l GROUP BY s HAVING sum(x) > 0 AND min(k) < -5 AND s IS NOT NULL",
            "SELECT k FROM l GROUP BY k HAVING max(s) LIKE 'z%' OR avg(x) < 2",
            "SELECT z, avg(f) AS a FROM l GROUP BY z HAVING count(DISTINCT k) > 20",
            "SELECT k, count(*) AS n FROM l WHERE k IN (SELECT k FROM r GROUP BY k HAVING sum(x) > 10) GROUP BY k",
        ]
        .map(String::from),
    );
}

#[test]
fn after_joins() {
    check_all(
        &fixture(),
        [
            "SELECT r.s, l.z, count(*) AS n, sum(l.x * r.x) AS t FROM l JOIN r ON l.k = r.k GROUP BY r.s, l.z",
            "SELECT l.k, count(r.id) AS n, max(r.s) AS hi FROM l LEFT JOIN r ON l.k = r.k AND l.s = r.s GROUP BY l.k",
            "SELECT coalesce(l.s, r.s) AS g, count(*) AS n FROM l FULL JOIN r ON l.s = r.s GROUP BY coalesce(l.s, r.s)",
            "SELECT date_part('year', l.d) AS y, sum(CASE WHEN r.s = 'a' THEN l.x ELSE 0 END) / sum(l.x) AS part \
             FROM l JOIN r ON l.k = r.k WHERE l.x <> 0 GROUP BY date_part('year', l.d)",
        ]
        .map(String::from),
    );
}

/// Far more groups than any estimate: tables must grow.
#[test]
fn a_million_groups() {
    let fixture = with_tables(Fixture::device()).table_from(
        "g",
        "SELECT (value * 7919) % 1000003 AS k, value % 3 AS z, value AS v FROM generate_series(1, 1000000)",
    );
    check_all(
        &fixture,
        [
            "SELECT count(*) AS n, sum(c) AS c, sum(s) AS s, max(k) AS k FROM \
             (SELECT k, count(*) AS c, sum(v) AS s FROM g GROUP BY k)",
            "SELECT count(*) AS n, sum(c) AS c FROM (SELECT k, z, count(*) AS c FROM g GROUP BY k, z)",
            "SELECT count(DISTINCT k) AS n FROM g",
            "SELECT z, count(DISTINCT k) AS n FROM g GROUP BY z",
        ]
        .map(String::from),
    );
}

#[test]
fn one_group_and_skew() {
    let fixture = fixture().table_from(
        "g",
        "SELECT CASE WHEN value % 100 = 0 THEN value ELSE 0 END AS k, 'only' AS one, value AS v \
         FROM generate_series(1, 100000)",
    );
    check_all(
        &fixture,
        [
            "SELECT one, count(*) AS n, sum(v) AS s, min(v) AS lo FROM g GROUP BY one",
            "SELECT k, count(*) AS n, sum(v) AS s FROM g GROUP BY k",
            "SELECT one, k % 2 AS p, count(DISTINCT v % 10) AS n FROM g GROUP BY one, k % 2",
        ]
        .map(String::from),
    );
}

/// Far fewer groups than were estimated: the table of the next run is smaller, whatever its keys, and answers the same.
#[test]
fn tables_of_few_groups_shrink() {
    let fixture = fixture().table_from(
        "g",
        "SELECT value % 60007 AS k, value % 1009 AS m, concat('n', value % 50021) AS s, value AS v, value % 7 AS x, (value * 3 + value / 64) % 7 AS y \
         FROM generate_series(1, 200000)",
    );
    for keys in ["k", "k, m", "s", "s, k, m"] {
        let sql = |rest: u32| {
            format!(
                "SELECT {keys}, count(*) AS n, sum(v) AS t FROM g WHERE x + y = 12 AND (k + v) % 5000 = {rest} GROUP BY {keys}"
            )
        };
        // The columns are there from then on.
        fixture.check(&sql(2));
        let peaks = [1, 2].map(|_| {
            let run = fixture.run(&sql(1)).expect("an answer");
            run.metrics.peak_device_bytes.expect("a run on the device")
        });
        assert!(peaks[1] < peaks[0], "{keys}: {peaks:?}");
        fixture.check(&sql(1));
    }
}
