//! Aggregations over joins whose sides multiply each other's rows, and may be grouped first.

use super::tables::fixture;
use crate::operators::support::check_all;

/// Calls over the left-most table, over either side, over both, and over none.
const CALLS: [&str; 12] = [
    "count(*) AS n, count(l.id) AS a, count(r.s) AS b, count(p.k) AS c, count(l.k) AS d, count(DISTINCT p.id) AS e",
    "sum(l.x) AS a, sum(r.z) AS b, sum(p.x) AS c, sum(p.z) AS d, sum(l.w) AS e, sum(p.w) AS f",
    "sum(CASE WHEN l.z = 2 THEN 1 ELSE 0 END) AS a, sum(coalesce(r.z, 7)) AS b, sum(CASE WHEN r.s IS NULL THEN 3 END) AS c, \
     count(CASE WHEN l.s = 'a' OR l.z IS NULL THEN 1 END) AS d, sum(CASE WHEN upper(coalesce(l.s, 'x')) = 'X' THEN 1 ELSE 0 END) AS e",
    "min(l.s) AS a, max(r.s) AS b, max(l.d) AS c, min(p.w) AS d, bool_and(r.b) AS e, bit_or(l.z) AS f, bit_and(p.z) AS g, \
     max(coalesce(l.z, 99)) AS h",
    "avg(l.f) AS a, avg(r.x) AS b, avg(p.f) AS c, avg(l.z) AS d, avg(coalesce(l.f, 8.0)) AS e",
    "avg(p.x) AS a, avg(l.x) AS b, count(r.id) AS c",
    "count(DISTINCT l.s) AS a, count(DISTINCT l.id) AS b, count(DISTINCT CASE WHEN r.b THEN r.id END) AS c, \
     sum(DISTINCT r.z) AS d, count(DISTINCT p.s) AS e, sum(l.z) AS f",
    "count(*) FILTER (WHERE l.z > 2) AS a, sum(p.z) FILTER (WHERE p.b) AS b, count(r.id) FILTER (WHERE r.s = 'a') AS c, \
     count(*) FILTER (WHERE l.id IS NULL) AS d, sum(r.x) FILTER (WHERE r.z IS NULL OR r.b) AS e, count(p.s) FILTER (WHERE p.z > 2) AS f",
    "count(DISTINCT l.s) FILTER (WHERE l.z > 2) AS a, max(l.x) FILTER (WHERE l.b) AS b, min(p.s) FILTER (WHERE p.b) AS c",
    "sum(l.x * p.x) AS a, sum(r.z) AS b, count(*) AS n",
    "sum(l.x * r.x) AS a, max(l.z + r.z) AS b",
    "bit_xor(l.z) AS a, bit_xor(p.z) AS b, stddev(l.f) AS c, sum(r.z) AS d",
];

const KEYS: [&str; 5] = ["p.u", "p.u, p.s", "p.s", "l.k, p.z", ""];

fn queries<'a>(
    calls: impl IntoIterator<Item = &'a str> + Clone + 'a,
    from: &'a str,
) -> impl Iterator<Item = String> + 'a {
    KEYS.into_iter().flat_map(move |keys| {
        calls.clone().into_iter().map(move |calls| match keys {
            "" => format!("SELECT {calls} FROM {from}"),
            keys => format!("SELECT {keys}, {calls} FROM {from} GROUP BY {keys}"),
        })
    })
}

#[test]
fn two_sides_of_each_kind() {
    for (first, second) in [("LEFT", "LEFT"), ("INNER", "LEFT"), ("INNER", "INNER")] {
        let from = format!("p {first} JOIN l ON p.u = l.k {second} JOIN r ON p.u = r.k");
        check_all(&fixture(), queries(CALLS, &from));
    }
}

/// One side by each kind of key, two of them, with more than the keys, and with nothing in it.
#[test]
fn keys_and_conditions() {
    let calls = [CALLS[0], CALLS[2], CALLS[7]];
    for from in [
        "p LEFT JOIN l ON p.s = l.s LEFT JOIN r ON p.d = r.d AND p.b = r.b",
        "p LEFT JOIN l ON p.x = l.x AND p.z > 2 LEFT JOIN r ON p.k + 1 = r.k",
        "p LEFT JOIN l ON p.u = l.k AND l.z > 2 LEFT JOIN r ON p.u = r.k AND l.z = r.z",
        "p LEFT JOIN l ON p.f = l.f LEFT JOIN r ON p.f = r.f",
        "p LEFT JOIN (SELECT * FROM l WHERE id < 0) AS l ON p.u = l.k LEFT JOIN r ON p.u = r.k",
        "p JOIN n AS l ON p.u = l.k LEFT JOIN r ON p.u = r.k",
        "one AS p LEFT JOIN l ON p.z = l.z LEFT JOIN r ON p.z = r.z",
        "(SELECT * FROM p WHERE false) AS p LEFT JOIN l ON p.u = l.k LEFT JOIN r ON p.u = r.k",
    ] {
        check_all(&fixture(), queries(calls, from));
    }
}

/// Sides of sides, filters between joins, joins that keep rows, and joins that other joins read.
#[test]
fn chains() {
    let calls = [CALLS[0], CALLS[1], CALLS[4], CALLS[6]];
    for from in [
        "p LEFT JOIN l ON p.u = l.k LEFT JOIN r ON l.z = r.z",
        "r JOIN p ON p.u = r.k JOIN l ON p.u = l.k",
        "(SELECT p.*, l.x AS y FROM p LEFT JOIN l ON p.u = l.k WHERE p.z > 1) AS p LEFT JOIN l ON p.u = l.k LEFT JOIN r ON p.u = r.k",
        "p LEFT JOIN l ON p.u = l.k LEFT JOIN r ON p.u = r.k LEFT JOIN l AS m ON p.u = m.k LEFT JOIN r AS o ON p.s = o.s",
        "(SELECT * FROM p WHERE k IN (SELECT k FROM l) AND NOT EXISTS (SELECT 1 FROM r WHERE r.s = p.s AND r.z = p.z)) AS p \
         LEFT JOIN l ON p.u = l.k LEFT JOIN r ON p.u = r.k",
    ] {
        check_all(&fixture(), queries(calls, from));
    }
    let calls = ["count(*) AS n, sum(p.z) AS a, count(l.id) AS b"];
    for condition in ["l.id IS NULL", "coalesce(l.z, 1) < 5", "r.k IS NULL"] {
        let from = format!("p LEFT JOIN l ON p.u = l.k LEFT JOIN r ON p.u = r.k WHERE {condition}");
        check_all(&fixture(), queries(calls, &from));
    }
}

/// What can fail fails for rows of the join alone.
#[test]
fn what_can_fail() {
    check_all(
        &fixture(),
        [
            "SELECT p.u, sum(10 / l.k) AS a, count(r.id) AS n FROM p JOIN l ON p.u = l.k LEFT JOIN r ON p.u = r.k \
             WHERE p.u > 0 GROUP BY p.u",
        ]
        .map(String::from),
    );
}
