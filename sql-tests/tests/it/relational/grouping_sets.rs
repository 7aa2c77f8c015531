//! GROUPING SETS, ROLLUP and CUBE: sets of every shape, over every edge of tables.

use super::groups::CALLS;
use super::tables::fixture;
use crate::operators::support::check_all;

/// Grouping sets and the keys among which they choose.
const SETS: [(&str, &str); 9] = [
    ("ROLLUP (z, b)", "z, b"),
    ("ROLLUP (s, d, k)", "s, d, k"),
    ("CUBE (z, s, b)", "z, s, b"),
    ("GROUPING SETS ((z), (b), ())", "z, b"),
    ("GROUPING SETS ((z, s), (s, b), (z, b))", "z, s, b"),
    ("GROUPING SETS ((s), (s), ())", "s"),
    ("z, ROLLUP (s)", "z, s"),
    ("GROUPING SETS ((s, z, b), (s, z), ())", "s, z, b"),
    ("GROUPING SETS ((k, w), ())", "k, w"),
];

#[test]
fn of_every_table() {
    let queries = ["l", "one", "e", "n"].iter().flat_map(|table| {
        SETS.iter()
            .map(move |(sets, keys)| format!("SELECT {keys}, {CALLS} FROM {table} GROUP BY {sets}"))
    });
    check_all(&fixture(), queries);
}

#[test]
fn with_their_numbers() {
    let queries = SETS.iter().map(|(sets, keys)| {
        let numbers: Vec<String> = keys
            .split(", ")
            .enumerate()
            .map(|(i, key)| format!("grouping({key}) AS g{i}"))
            .collect();
        format!(
            "SELECT {keys}, {}, grouping({keys}) AS g, count(*) AS n FROM l GROUP BY {sets}",
            numbers.join(", ")
        )
    });
    check_all(&fixture(), queries);
}

/// Calls whose value of a coarser group does not come from finer ones, and calls with filters.
#[test]
fn calls_of_every_kind() {
    let calls = [
        "count(DISTINCT k) AS a, sum(x) AS b",
        "avg(x) AS a, avg(f) AS b, avg(k) AS c",
        "sum(DISTINCT z) AS a",
        "count(x) FILTER (WHERE z > 2) AS a, sum(w) FILTER (WHERE b) AS b",
        "bool_and(b) AS a, bool_or(b) AS c, min(s) AS d, max(f) AS e",
        "stddev(f) AS a, var_pop(z) AS c, count(*) AS d",
        "max(d) - min(d) AS a",
    ];
    let queries = calls.iter().flat_map(|calls| {
        ["ROLLUP (z, s)", "GROUPING SETS ((z), (s), ())"]
            .map(|sets| format!("SELECT z, s, {calls} FROM l GROUP BY {sets}"))
    });
    check_all(&fixture(), queries);
}

#[test]
fn below_and_above_other_operators() {
    check_all(
        &fixture(),
        [
            "SELECT l.z, r.s, count(*) AS n, sum(l.x) AS x FROM l JOIN r ON l.k = r.k GROUP BY ROLLUP (l.z, r.s)",
            "SELECT z, s, sum(x) AS x FROM l GROUP BY ROLLUP (z, s) HAVING sum(x) > 0 ORDER BY x DESC, z, s LIMIT 7",
            "SELECT p.u, g.n FROM p JOIN (SELECT z, count(*) AS n FROM l GROUP BY ROLLUP (z)) g ON p.z = g.z",
            "SELECT z, s, n FROM (SELECT z, s, count(*) AS n, grouping(s) AS g FROM l GROUP BY CUBE (z, s)) WHERE g = 1",
            "SELECT z + 1 AS a, upper(s) AS b, count(*) AS n FROM l GROUP BY ROLLUP (z + 1, upper(s))",
            "SELECT count(*) AS n, sum(m) AS m FROM (SELECT z, s, count(*) AS m FROM l GROUP BY CUBE (z, s))",
            "SELECT z, 'x' AS c, count(*) AS n FROM l GROUP BY ROLLUP (z) UNION ALL SELECT k, s, 1 FROM r",
        ]
        .map(String::from),
    );
}
