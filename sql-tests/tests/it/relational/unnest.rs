//! Lists taken apart: elements as rows, beside the other columns, filtered, grouped and joined.

use std::fmt::Write;

use super::nested::{fixture, without_rows};
use crate::operators::support::check_all;

/// What runs wholly on the device.
const QUERIES: [&str; 36] = [
    "SELECT id, unnest(l) AS e FROM t",
    "SELECT id, n, unnest(w) AS e, w FROM t WHERE n < 4",
    "SELECT unnest(g) AS e, count(*) AS c FROM t GROUP BY 1",
    "SELECT e, count(*) AS c, sum(n) AS s FROM (SELECT unnest(w) AS e, n FROM t) GROUP BY e",
    "SELECT sum(e) AS s, min(e) AS lo, max(e) AS hi, count(e) AS c FROM (SELECT unnest(u) AS e FROM t)",
    "SELECT id, e FROM (SELECT id, unnest(u) AS e FROM t) WHERE e % 3 = 1",
    "SELECT count(*) AS c FROM (SELECT unnest(a) AS e FROM t)",
    "SELECT id, unnest(x) AS e FROM t",
    "SELECT id, unnest(f) AS e FROM t",
    "SELECT tag, count(*) AS c FROM (SELECT unnest(string_to_array(s, ',')) AS tag FROM t) GROUP BY tag",
    "SELECT id, tag FROM (SELECT id, unnest(string_to_array(s, ',')) AS tag FROM t WHERE n > 2) WHERE tag <> ''",
    "SELECT tag, n, count(*) AS c FROM (SELECT n, unnest(string_to_array(coalesce(s, 'none,of,these'), ',')) AS tag FROM t) GROUP BY tag, n",
    "SELECT id, p['key'] AS k, p['value'] AS v FROM (SELECT id, unnest(p) AS p FROM t)",
    "SELECT p['key'] AS k, sum(p['value']) AS v FROM (SELECT unnest(p) AS p FROM t) GROUP BY p['key']",
    "SELECT id, unnest(q) AS e FROM t",
    "SELECT id, unnest(e) AS e FROM (SELECT id, unnest(q) AS e FROM t)",
    "SELECT e, o.id FROM (SELECT unnest(l) AS e FROM t WHERE n = 1) AS t JOIN o ON e = o.n",
    "SELECT t.id, e FROM t LEFT JOIN (SELECT id, unnest(l) AS e FROM o) AS o ON t.id = o.id",
    "SELECT id, unnest(l) AS e FROM (SELECT t.id, o.l FROM t LEFT JOIN o ON t.id = o.id + 2)",
    "SELECT unnest(l) AS e FROM (SELECT DISTINCT l FROM t)",
    "SELECT id FROM t WHERE n IN (SELECT unnest(l) FROM o)",
    "SELECT id, e FROM (SELECT id, unnest(l) AS e FROM t) ORDER BY e DESC NULLS LAST, id LIMIT 40",
    "SELECT id, e, row_number() OVER (PARTITION BY e ORDER BY id) AS r FROM (SELECT id, unnest(u) AS e FROM t)",
    "SELECT count(DISTINCT e) AS c FROM (SELECT unnest(u) AS e FROM t UNION ALL SELECT unnest(l) FROM o)",
    "SELECT id, unnest(make_array(id, n)) AS e FROM t",
    "SELECT e, count(*) AS c FROM (SELECT unnest(make_array(n, 2, NULL)) AS e FROM t) GROUP BY e",
    "SELECT id, unnest(make_array(id)) AS e, n FROM t WHERE n <> 3",
    "SELECT id, unnest(make_array(s, 'x', upper(s))) AS e FROM t",
    "SELECT e, sum(n) AS x FROM (SELECT n, unnest(make_array(s, substr(s, 2))) AS e FROM t) WHERE e <> '' GROUP BY e",
    "SELECT t.id, e FROM t JOIN (SELECT id, unnest(make_array(n, n + 1)) AS e FROM o) AS o ON t.id = o.e",
    "SELECT g, unnest(make_array(lo, hi)) AS e FROM (SELECT n AS g, min(id) AS lo, max(id) AS hi FROM t GROUP BY n)",
    "SELECT id, unnest(make_array(1.5, n, NULL)) AS e FROM t WHERE id IN (SELECT unnest(make_array(n, 7)) FROM o)",
    "SELECT id, unnest(make_array(l, u)) AS e FROM t",
    "SELECT id, unnest(make_array(3, 1, 2)) AS e FROM t",
    "SELECT e, count(*) AS c FROM (SELECT unnest(make_array('x', 'größe', NULL, 'x')) AS e, n FROM t) WHERE n > 1 GROUP BY e",
    "SELECT unnest(make_array(id, n)) AS e, id FROM t ORDER BY id DESC, e LIMIT 11",
];

#[test]
fn elements_are_rows() {
    for rows in [1, 33, 2_500] {
        check_all(&fixture(rows), QUERIES.map(String::from));
    }
}

#[test]
fn no_rows() {
    check_all(&without_rows(), QUERIES.map(String::from));
}

/// Lists of the rows around: what is written as a join, or in a subquery, and the same beside the rows.
const PAIRS: [(&str, &str); 21] = [
    (
        "SELECT t.id, x.e FROM t CROSS JOIN unnest(t.l) AS x(e)",
        "SELECT id, unnest(l) AS e FROM t",
    ),
    (
        "SELECT t.id, x.e FROM t, unnest(t.w) AS x(e) WHERE x.e <> 'a' AND t.n > 1",
        "SELECT id, e FROM (SELECT id, n, unnest(w) AS e FROM t) WHERE e <> 'a' AND n > 1",
    ),
    (
        "SELECT tag, count(*) AS c FROM t, unnest(string_to_array(t.s, ',')) AS x(tag) GROUP BY tag",
        "SELECT tag, count(*) AS c FROM (SELECT unnest(string_to_array(s, ',')) AS tag FROM t) GROUP BY tag",
    ),
    (
        "SELECT t.id, x.d FROM t, LATERAL (SELECT e * 2 AS d FROM unnest(t.l) AS u(e) WHERE e < 3) AS x",
        "SELECT id, e * 2 AS d FROM (SELECT id, unnest(l) AS e FROM t) WHERE e < 3",
    ),
    (
        "SELECT t.id, x.e FROM t LEFT JOIN unnest(t.l) AS x(e) ON true",
        "SELECT id, unnest(l) AS e FROM t UNION ALL SELECT id, NULL FROM t WHERE coalesce(array_length(l), 0) = 0",
    ),
    (
        "SELECT t.id, x.e FROM t LEFT JOIN LATERAL (SELECT e FROM unnest(t.l) AS u(e) WHERE e = 1) AS x ON true",
        "SELECT t.id, x.e FROM t LEFT JOIN (SELECT id, e FROM (SELECT id, unnest(l) AS e FROM t) WHERE e = 1) AS x \
         ON t.id = x.id",
    ),
    (
        "SELECT t.id, x.e FROM t LEFT JOIN unnest(t.w) AS x(e) ON x.e = 'b'",
        "SELECT t.id, x.e FROM t LEFT JOIN (SELECT id, e FROM (SELECT id, unnest(w) AS e FROM t) WHERE e = 'b') AS x \
         ON t.id = x.id",
    ),
    (
        "SELECT t.id, x.d FROM t LEFT JOIN LATERAL (SELECT coalesce(e, 0) AS d FROM unnest(t.l) AS u(e)) AS x ON true",
        "SELECT t.id, x.d FROM t LEFT JOIN (SELECT id, coalesce(e, 0) AS d FROM (SELECT id, unnest(l) AS e FROM t)) AS x \
         ON t.id = x.id",
    ),
    (
        "SELECT id FROM t WHERE 2 IN (SELECT unnest(t.l))",
        "SELECT id FROM t WHERE array_has(l, 2)",
    ),
    (
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM unnest(t.w) AS x(e) WHERE e = 'a')",
        "SELECT id FROM t WHERE array_has(w, 'a')",
    ),
    (
        "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM unnest(t.l) AS x(e) WHERE e = t.n)",
        "SELECT t.id FROM t LEFT JOIN (SELECT DISTINCT id FROM (SELECT id, n, unnest(l) AS e FROM t) WHERE e = n) AS x \
         ON t.id = x.id WHERE x.id IS NULL",
    ),
    (
        "SELECT id, (SELECT sum(e) FROM unnest(t.l) AS x(e) WHERE e < 100) AS s FROM t",
        "SELECT t.id, x.s FROM t LEFT JOIN (SELECT id, sum(e) AS s FROM (SELECT id, unnest(l) AS e FROM t) WHERE e < 100 \
         GROUP BY id) AS x ON t.id = x.id",
    ),
    (
        "SELECT t.id, x.k, x.v FROM t, LATERAL (SELECT p['key'] AS k, p['value'] AS v FROM unnest(t.p) AS u(p)) AS x",
        "SELECT id, p['key'] AS k, p['value'] AS v FROM (SELECT id, unnest(p) AS p FROM t)",
    ),
    (
        "SELECT t.id, y.e FROM t, unnest(t.q) AS x(l), unnest(x.l) AS y(e)",
        "SELECT id, unnest(l) AS e FROM (SELECT id, unnest(q) AS l FROM t)",
    ),
    (
        "SELECT t.id, x.e FROM t, unnest(make_array(t.id, t.n)) AS x(e) WHERE x.e > 1",
        "SELECT id, e FROM (SELECT id, unnest(make_array(id, n)) AS e FROM t) WHERE e > 1",
    ),
    (
        "SELECT t.id, v.k, v.x FROM t CROSS JOIN LATERAL (VALUES ('id', t.id), ('n', t.n), ('none', NULL)) AS v(k, x)",
        "SELECT id, 'id' AS k, id AS x FROM t UNION ALL SELECT id, 'n', n FROM t UNION ALL SELECT id, 'none', NULL FROM t",
    ),
    (
        "SELECT t.id, v.x FROM t LEFT JOIN LATERAL (VALUES (t.n * 2)) AS v(x) ON true",
        "SELECT id, n * 2 AS x FROM t",
    ),
    (
        "SELECT v.k, sum(v.x) AS x FROM t, LATERAL (VALUES (1, t.id), (2, t.n), (1, 5)) AS v(k, x) WHERE v.x < 30 GROUP BY v.k",
        "SELECT k, sum(x) AS x FROM (SELECT 1 AS k, id AS x FROM t UNION ALL SELECT 2, n FROM t UNION ALL SELECT 1, 5 FROM t)          WHERE x < 30 GROUP BY k",
    ),
    (
        "SELECT id, (SELECT max(v.x) FROM (VALUES (t.id), (t.n)) AS v(x)) AS m FROM t",
        "SELECT id, greatest(id, n) AS m FROM t",
    ),
    (
        "SELECT t.id, x.a, x.b FROM t LEFT JOIN LATERAL (SELECT t.id + 1 AS a, upper(t.s) AS b) AS x ON true",
        "SELECT id, id + 1 AS a, upper(s) AS b FROM t",
    ),
    (
        "SELECT t.id, x.a, y.c FROM t CROSS JOIN LATERAL (SELECT t.n * 2 AS a) AS x CROSS JOIN LATERAL (SELECT x.a + t.id AS c) AS y",
        "SELECT id, n * 2 AS a, n * 2 + id AS c FROM t",
    ),
];

/// Both sides of a comparison make the same of lists of the rows around: what is right the second text says.
#[test]
fn lists_of_rows_around() {
    let mut failures = String::new();
    for rows in [1, 33, 700] {
        let fixture = fixture(rows);
        for (query, beside) in PAIRS {
            let difference = match fixture.compare(query) {
                Ok(run) => fixture.expect(beside).difference(&run),
                Err(message) => Some(message),
            };
            if let Some(difference) = difference {
                let _ = writeln!(failures, "{rows} rows: {query}\n{difference}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// What the CPU takes apart, whatever is around it the device's.
#[test]
fn lists_of_the_cpu() {
    let fixture = fixture(500);
    fixture.set("warpline.require_gpu", "false");
    for sql in [
        "SELECT id, unnest(l) AS a, unnest(w) AS b FROM t",
        "SELECT sum(e) AS s FROM (SELECT unnest(array_agg(n)) AS e FROM t GROUP BY n)",
        "SELECT unnest(e) AS e FROM (SELECT unnest(make_array(l, u)) AS e FROM t)",
    ] {
        fixture.check(sql);
    }
}
