//! Subqueries that refer to the rows around them, of every form and in every operator, against the same written without them.
//!
//! Plain DataFusion has no plan for most of these, so both sides of a comparison run what the rule of the analyzer makes of them.
//! What is right a second query says: one of joins, or one of constants for each row around.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use warpline_sql_tests::Fixture;
use warpline_tpch::QueryRun;

use crate::operators::support::{Nulls, check_all, drawn, primitive};

/// Three tables of keys `a`, values `b`, and `c`, which is never NULL, with row numbers `id`; and `e` without rows.
fn tables(rows: usize, nulls: Nulls) -> Fixture {
    let columns = |rows: usize, keys: &[i64], seed: u64| -> Vec<(&'static str, ArrayRef)> {
        let values: [i64; 9] = [-4, -2, -1, 0, 1, 2, 3, 4, 5];
        let few = (0..rows as i64).map(|row| (row * 7 + seed as i64) % 5);
        let keys = drawn(keys, rows, nulls, seed);
        let values = drawn(&values, rows, nulls, seed + 1);
        vec![
            ("a", primitive::<Int64Type>(keys)),
            ("b", primitive::<Int64Type>(values)),
            ("c", Arc::new(Int64Array::from_iter_values(few))),
            ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
        ]
    };
    let [t, u, v] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        [0, 1, 1, 1, 2, 3, 4, 6, 8, 11],
        [0, 1, 3, 3, 5, 7, 8, 9, 9, 9],
    ];
    Fixture::relaxed()
        .table("t", columns(rows, &t, 11))
        .table("u", columns(rows * 3 / 2, &u, 23))
        .table("v", columns(rows * 2 / 3, &v, 37))
        .table("e", columns(0, &t, 41))
}

/// Queries, and what they are without subqueries that refer to rows around them.
const PAIRS: [(&str, &str); 48] = [
    (
        "SELECT id FROM t WHERE b > ALL (SELECT u.b FROM u WHERE u.a = t.a)",
        "SELECT t.id FROM t LEFT JOIN (SELECT a, count(*) n, count(b) m, max(b) x FROM u GROUP BY a) q ON q.a = t.a \
         WHERE CASE WHEN n IS NULL THEN true WHEN b <= x THEN false WHEN b IS NULL OR m < n THEN NULL ELSE true END",
    ),
    (
        "SELECT id FROM t WHERE b >= ANY (SELECT u.b FROM u)",
        "SELECT t.id FROM t WHERE b >= (SELECT min(b) FROM u)",
    ),
    (
        "SELECT id, b = ANY (SELECT u.b FROM u WHERE u.a = t.a) AS x FROM t",
        "SELECT id, b IN (SELECT u.b FROM u WHERE u.a = t.a) AS x FROM t",
    ),
    (
        "SELECT id, b <> ALL (SELECT u.b FROM u WHERE u.a = t.a) AS x FROM t",
        "SELECT id, b NOT IN (SELECT u.b FROM u WHERE u.a = t.a) AS x FROM t",
    ),
    (
        "SELECT t.id, d.b FROM t, LATERAL (SELECT u.b FROM u WHERE u.a = t.a) d",
        "SELECT t.id, u.b FROM t JOIN u ON u.a = t.a",
    ),
    (
        "SELECT t.id, d.b FROM t LEFT JOIN LATERAL (SELECT u.b FROM u WHERE u.a = t.a AND u.b > t.b) d ON true",
        "SELECT t.id, u.b FROM t LEFT JOIN u ON u.a = t.a AND u.b > t.b",
    ),
    (
        "SELECT t.id, d.b, d.id AS o FROM t LEFT JOIN LATERAL (SELECT u.b, u.id FROM u WHERE u.a = t.a ORDER BY u.id \
         LIMIT 1) d ON true",
        "SELECT t.id, u.b, u.id AS o FROM t LEFT JOIN (SELECT a, min(id) AS i FROM u GROUP BY a) q ON q.a = t.a LEFT \
         JOIN u ON u.id = q.i",
    ),
    (
        "SELECT t.id, d.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.a = t.a) d",
        "SELECT t.id, coalesce(n, 0) AS n FROM t LEFT JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) q ON q.a = t.a",
    ),
    (
        "SELECT t.id, d.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.a = t.a HAVING count(*) > 2) d",
        "SELECT t.id, n FROM t JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) q ON q.a = t.a WHERE n > 2",
    ),
    (
        "SELECT t.id, d.x FROM t, LATERAL (VALUES (t.a), (t.b + 1)) AS d(x)",
        "SELECT id, a AS x FROM t UNION ALL SELECT id, b + 1 FROM t",
    ),
    (
        "SELECT t.id, d.x FROM t, LATERAL (SELECT t.a + t.b AS x) d",
        "SELECT id, a + b AS x FROM t",
    ),
    (
        "SELECT t.id, e.x FROM t, LATERAL (SELECT t.a + t.b AS x) d, LATERAL (SELECT d.x * 2 AS x) e",
        "SELECT id, (a + b) * 2 AS x FROM t",
    ),
    (
        "SELECT t.id, d.x FROM t, LATERAL (SELECT max(u.b) AS x FROM u WHERE u.a = t.a UNION ALL SELECT min(v.b) FROM \
         v WHERE v.a = t.a) d",
        "SELECT t.id, q.x FROM t LEFT JOIN (SELECT a, max(b) x FROM u GROUP BY a) q ON q.a = t.a UNION ALL SELECT \
         t.id, q.x FROM t LEFT JOIN (SELECT a, min(b) x FROM v GROUP BY a) q ON q.a = t.a",
    ),
    (
        "SELECT t.id, u.id AS o FROM t LEFT JOIN u ON t.a = u.a AND EXISTS (SELECT 1 FROM v WHERE v.a = t.a AND v.b = \
         u.b)",
        "SELECT t.id, u.id AS o FROM t LEFT JOIN u ON t.a = u.a AND u.a * 100 + u.b IN (SELECT v.a * 100 + v.b FROM \
         v)",
    ),
    (
        "SELECT t.id, u.id AS o FROM t LEFT JOIN u ON t.a = u.a AND u.b > (SELECT avg(v.b) FROM v WHERE v.a = t.a OR \
         v.b = u.b)",
        "SELECT t.id, q.id AS o FROM t LEFT JOIN (SELECT t.id AS i, u.id FROM t JOIN u ON t.a = u.a JOIN v ON v.a = \
         t.a OR v.b = u.b GROUP BY t.id, u.id, u.b HAVING u.b > avg(v.b)) q ON q.i = t.id",
    ),
    (
        "SELECT t.id, u.id AS o FROM t RIGHT JOIN u ON u.id = (SELECT max(v.id) FROM v WHERE v.a = t.a)",
        "SELECT q.id, u.id AS o FROM (SELECT t.id, max(v.id) m FROM t JOIN v ON v.a = t.a GROUP BY t.id) q RIGHT JOIN \
         u ON u.id = q.m",
    ),
    (
        "SELECT id, (SELECT max(m) FROM (SELECT DISTINCT ON (u.b) u.b, u.id AS m FROM u WHERE u.a = t.a ORDER BY u.b, \
         u.id) d) AS x FROM t",
        "SELECT t.id, q.x FROM t LEFT JOIN (SELECT a, max(m) x FROM (SELECT a, b, min(id) m FROM u GROUP BY a, b) z \
         GROUP BY a) q ON q.a = t.a",
    ),
    (
        "SELECT id, (SELECT (SELECT (SELECT max(v.id) FROM v WHERE v.a = t.a AND v.b >= u.b) FROM u WHERE u.id = \
         t.id)) AS x FROM t",
        "SELECT t.id, max(v.id) AS x FROM t LEFT JOIN u ON u.id = t.id LEFT JOIN v ON v.a = t.a AND v.b >= u.b GROUP \
         BY t.id",
    ),
    (
        "SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a AND EXISTS (SELECT 1 FROM v WHERE v.a = u.a AND v.b = \
         t.b)) AS x FROM t",
        "SELECT t.id, count(u.id) AS x FROM t LEFT JOIN u ON u.a = t.a AND u.a * 100 + t.b IN (SELECT a * 100 + b \
         FROM v) GROUP BY t.id",
    ),
    (
        "SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a AND u.b NOT IN (SELECT v.b FROM v WHERE v.a = t.a AND v.b \
         IS NOT NULL)) AS x FROM t",
        "SELECT t.id, count(u.id) AS x FROM t LEFT JOIN u ON u.a = t.a AND u.b IS NOT NULL AND NOT EXISTS (SELECT 1 \
         FROM v WHERE v.a = t.a AND v.b = u.b) OR (u.a = t.a AND NOT EXISTS (SELECT 1 FROM v WHERE v.a = t.a AND v.b \
         IS NOT NULL)) GROUP BY t.id",
    ),
    (
        "SELECT id, x FROM (SELECT id, a, row_number() OVER (ORDER BY b, id) AS r FROM t) q, LATERAL (SELECT sum(u.b) \
         AS x FROM u WHERE u.a > q.a) d WHERE r < 20",
        "SELECT q.id, sum(u.b) AS x FROM (SELECT id, a, row_number() OVER (ORDER BY b, id) AS r FROM t) q LEFT JOIN u \
         ON u.a > q.a WHERE r < 20 GROUP BY q.id",
    ),
    (
        "SELECT id, x FROM (SELECT id, a FROM t ORDER BY id LIMIT 10) q, LATERAL (SELECT count(*) AS x FROM u WHERE \
         u.a > q.a) d",
        "SELECT q.id, count(u.id) AS x FROM (SELECT id, a FROM t ORDER BY id LIMIT 10) q LEFT JOIN u ON u.a > q.a \
         GROUP BY q.id",
    ),
    (
        "SELECT id, (SELECT sum(w.b) FROM (SELECT u.b, rank() OVER (PARTITION BY u.b % 2 ORDER BY u.id) AS r FROM u \
         WHERE u.a = t.a) w WHERE w.r <= 2) AS x FROM t",
        "SELECT t.id, q.x FROM t LEFT JOIN (SELECT a, sum(b) AS x FROM (SELECT a, b, rank() OVER (PARTITION BY a, b % \
         2 ORDER BY id) AS r FROM u) w WHERE r <= 2 GROUP BY a) q ON q.a = t.a",
    ),
    (
        "SELECT a, (SELECT max(u.b) FROM u WHERE u.a = t.a) + sum(b) AS x FROM t GROUP BY a",
        "SELECT t.a, max(q.m) + sum(b) AS x FROM t LEFT JOIN (SELECT a, max(b) AS m FROM u GROUP BY a) q ON q.a = t.a \
         GROUP BY t.a",
    ),
    (
        "SELECT t.id, d.y FROM t, LATERAL (SELECT x.y + 1 AS y FROM unnest(make_array(t.a, t.b)) AS x(y) WHERE x.y > \
         0) d",
        "SELECT id, a + 1 AS y FROM t WHERE a > 0 UNION ALL SELECT id, b + 1 FROM t WHERE b > 0",
    ),
    (
        "SELECT id FROM t WHERE (SELECT count(*) FROM u WHERE u.a = t.a) > (SELECT count(*) FROM v WHERE v.a = t.a)",
        "SELECT t.id FROM t LEFT JOIN (SELECT a, count(*) n FROM u GROUP BY a) x ON x.a = t.a LEFT JOIN (SELECT a, \
         count(*) n FROM v GROUP BY a) y ON y.a = t.a WHERE coalesce(x.n, 0) > coalesce(y.n, 0)",
    ),
    (
        "SELECT t.id, count(u.id) AS x FROM t LEFT JOIN u ON u.a = t.a AND u.b IS NOT NULL AND NOT EXISTS (SELECT 1 \
         FROM v WHERE v.a = t.a AND v.b = u.b) OR (u.a = t.a AND NOT EXISTS (SELECT 1 FROM v WHERE v.a = t.a AND v.b \
         IS NOT NULL)) GROUP BY t.id",
        "SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a AND u.b NOT IN (SELECT v.b FROM v WHERE v.a = t.a AND v.b \
         IS NOT NULL)) AS x FROM t",
    ),
    (
        "SELECT id FROM t WHERE id > 10 AND EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.b NOT IN (SELECT v.b FROM v \
         WHERE v.a = t.a AND v.id > t.b AND v.b IS NOT NULL) AND (SELECT count(*) FROM v WHERE v.a = u.a AND v.b <> \
         t.b) < 3)",
        "SELECT id FROM t WHERE id > 10 AND id IN (SELECT t.id FROM t JOIN u ON u.a = t.a WHERE NOT EXISTS (SELECT 1 \
         FROM v WHERE v.a = t.a AND v.id > t.b AND v.b IS NOT NULL AND (v.b = u.b OR u.b IS NULL)) AND NOT EXISTS \
         (SELECT t2.i FROM (SELECT t.id AS i, u.id AS j FROM t JOIN u ON u.a = t.a JOIN v ON v.a = u.a AND v.b <> t.b \
         GROUP BY 1, 2 HAVING count(*) >= 3) t2 WHERE t2.i = t.id AND t2.j = u.id))",
    ),
    (
        "SELECT t.id, (SELECT max(d.x) FROM (SELECT u.b + (SELECT count(*) FROM v WHERE v.a = u.a AND v.b > t.b) AS x \
         FROM u WHERE u.a = t.a) d) AS m FROM t",
        "SELECT t.id, max(q.x) AS m FROM t LEFT JOIN (SELECT t.id AS i, u.b + count(v.id) AS x FROM t JOIN u ON u.a = \
         t.a LEFT JOIN v ON v.a = u.a AND v.b > t.b GROUP BY t.id, u.id, u.b) q ON q.i = t.id GROUP BY t.id",
    ),
    (
        "SELECT t.id, (SELECT string_agg(u.id, ',' ORDER BY u.id) FROM u WHERE u.a = t.a) AS m FROM t WHERE t.id < 9",
        "SELECT t.id, q.m FROM t LEFT JOIN (SELECT a, string_agg(id, ',' ORDER BY id) AS m FROM u GROUP BY a) q ON \
         q.a = t.a WHERE t.id < 9",
    ),
    (
        "SELECT t.id, (SELECT count(*) FROM (SELECT a FROM u UNION ALL SELECT a FROM v) w WHERE w.a = t.a) AS m FROM \
         t",
        "SELECT t.id, count(w.a) AS m FROM t LEFT JOIN (SELECT a FROM u UNION ALL SELECT a FROM v) w ON w.a = t.a \
         GROUP BY t.id",
    ),
    (
        "SELECT id FROM t WHERE a IN (SELECT u.a FROM u WHERE u.id IN (SELECT v.id FROM v WHERE v.b < t.b))",
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u, v WHERE u.id = v.id AND u.a = t.a AND v.b < t.b)",
    ),
    (
        "SELECT x.id FROM (SELECT id, a FROM t UNION ALL SELECT id + 1000, a FROM u) x WHERE x.a NOT IN (SELECT v.a \
         FROM v WHERE v.id < x.id AND v.a IS NOT NULL)",
        "SELECT x.id FROM (SELECT id, a FROM t UNION ALL SELECT id + 1000, a FROM u) x LEFT JOIN (SELECT DISTINCT \
         x.id i FROM (SELECT id, a FROM t UNION ALL SELECT id + 1000, a FROM u) x JOIN v ON v.id < x.id AND (v.a = \
         x.a OR x.a IS NULL) WHERE v.a IS NOT NULL) y ON y.i = x.id WHERE y.i IS NULL",
    ),
    (
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n, (SELECT count(*) \
         FROM u WHERE u.a = r.n) AS c FROM r",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n, count(u.id) AS c \
         FROM r LEFT JOIN u ON u.a = r.n GROUP BY n",
    ),
    (
        "SELECT id, (SELECT id FROM u WHERE u.id = t.id) AS x, (SELECT id FROM v WHERE v.id = t.id) AS y FROM t",
        "SELECT t.id, u.id AS x, v.id AS y FROM t LEFT JOIN u ON u.id = t.id LEFT JOIN v ON v.id = t.id",
    ),
    (
        "SELECT id, (SELECT t2.b FROM t t2 WHERE t2.id = t.id + 1) - b AS d FROM t",
        "SELECT t.id, t2.b - t.b AS d FROM t LEFT JOIN t t2 ON t2.id = t.id + 1",
    ),
    (
        "SELECT count(*) FROM t WHERE (SELECT b FROM u WHERE u.id = t.id) > (SELECT b FROM v WHERE v.id = t.id)",
        "SELECT count(*) FROM t JOIN u ON u.id = t.id JOIN v ON v.id = t.id WHERE u.b > v.b",
    ),
    (
        "SELECT id, CASE WHEN b > 0 THEN (SELECT u.b FROM u WHERE u.id = t.id) ELSE -1 END AS x FROM t",
        "SELECT t.id, CASE WHEN t.b > 0 THEN u.b ELSE -1 END AS x FROM t LEFT JOIN u ON u.id = t.id",
    ),
    (
        "SELECT a, sum((SELECT count(*) FROM u WHERE u.a = t.a)) FILTER (WHERE EXISTS (SELECT 1 FROM v WHERE v.a = \
         t.a)) AS s FROM t GROUP BY a",
        "SELECT t.a, CASE WHEN max(y.a) IS NULL THEN NULL ELSE sum(coalesce(n, 0)) END AS s FROM t LEFT JOIN (SELECT \
         a, count(*) n FROM u GROUP BY a) x ON x.a = t.a LEFT JOIN (SELECT DISTINCT a FROM v) y ON y.a = t.a GROUP BY \
         t.a",
    ),
    (
        "SELECT max(b) AS m FROM t WHERE EXISTS (SELECT 1 FROM e WHERE e.a = t.a) OR id = 3",
        "SELECT max(b) AS m FROM t WHERE id = 3",
    ),
    (
        "SELECT id FROM t WHERE NOT EXISTS (SELECT count(*) FROM u WHERE u.a = t.a)",
        "SELECT id FROM t WHERE false",
    ),
    (
        "SELECT id, (SELECT count(*) FROM e WHERE e.a = t.a) AS c, (SELECT sum(b) FROM e WHERE e.a <> t.a) AS s FROM \
         t",
        "SELECT id, 0 AS c, cast(NULL AS bigint) AS s FROM t",
    ),
    (
        "SELECT id, (SELECT count(*) FROM u GROUP BY u.a HAVING u.a = t.a) AS c FROM t",
        "SELECT t.id, q.n AS c FROM t LEFT JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) q ON q.a = t.a",
    ),
    (
        "SELECT id, (SELECT grouping(u.a) FROM u WHERE u.a = t.a GROUP BY ROLLUP (u.a) LIMIT 1) IS NULL AS c FROM t",
        "SELECT id, false AS c FROM t",
    ),
    (
        "SELECT id, (SELECT max(w.c0) AS c0 FROM (SELECT a AS c0, b AS c1 FROM u) w WHERE w.c0 = t.a) AS x FROM t",
        "SELECT t.id, q.x FROM t LEFT JOIN (SELECT a, max(a) AS x FROM u GROUP BY a) q ON q.a = t.a",
    ),
    (
        "SELECT id FROM t WHERE b IN (SELECT w.c0 + w.c1 AS c0 FROM (SELECT a AS c0, b AS c1 FROM u) w WHERE w.c0 = \
         t.a)",
        "SELECT DISTINCT t.id FROM t JOIN u ON u.a = t.a AND t.b = u.a + u.b",
    ),
    (
        "SELECT t.id, sum(CASE WHEN u.id IN (SELECT v.id FROM v WHERE v.b > 0) THEN 1 ELSE 0 END) AS n FROM t JOIN u \
         ON u.a = t.a GROUP BY t.id",
        "SELECT t.id, count(v.id) AS n FROM t JOIN u ON u.a = t.a LEFT JOIN v ON v.id = u.id AND v.b > 0 GROUP BY \
         t.id",
    ),
    (
        "SELECT q.id, v.id AS o FROM (SELECT t.id, t.a, row_number() OVER (ORDER BY t.id) AS r FROM t) q LEFT JOIN u \
         ON u.id = q.r LEFT JOIN v ON v.a = u.a AND v.id = (SELECT max(w.id) FROM v w WHERE w.a = u.a)",
        "SELECT t.id, v.id AS o FROM t LEFT JOIN u ON u.id = t.id + 1 LEFT JOIN (SELECT a, max(id) AS id FROM v GROUP \
         BY a) v ON v.a = u.a",
    ),
];

/// Values of one row, of which `{a}` and the like are columns of the row around.
const VALUES: [&str; 52] = [
    "(SELECT max(u.b) FROM u WHERE u.a = {a})",
    "(SELECT count(*) FROM u WHERE u.a = {a})",
    "(SELECT count(*) FROM u WHERE u.a > {a})",
    "(SELECT count(*) FROM e WHERE e.a = {a})",
    "(SELECT u.b FROM u WHERE u.id = {id})",
    "(SELECT u.b FROM u WHERE u.a = {a} ORDER BY u.id LIMIT 1)",
    "(SELECT u.b FROM u WHERE u.a = {a} AND u.id <= {id} ORDER BY u.id DESC LIMIT 1)",
    "(SELECT u.a FROM u WHERE u.id < {id} ORDER BY u.id DESC LIMIT 1)",
    "(SELECT u.id FROM u WHERE u.a = {a} AND u.b > {b} ORDER BY u.b, u.id DESC LIMIT 1)",
    "(SELECT u.id FROM u WHERE {b} >= u.b AND u.c = {c} ORDER BY u.b DESC, u.a NULLS FIRST, u.id LIMIT 1)",
    "(SELECT u.id FROM u WHERE u.b >= {b} AND u.b < {b} + 2 ORDER BY u.b, u.a DESC NULLS LAST, u.id LIMIT 1)",
    "(SELECT u.id FROM u WHERE u.b BETWEEN {b} - 1 AND {b} AND u.a = {a} ORDER BY u.b DESC, u.id LIMIT 1)",
    "(SELECT u.id FROM u WHERE u.b < {b} ORDER BY u.b, u.id LIMIT 1)",
    "(SELECT u.id FROM u WHERE u.b < {b} AND u.id > {id} ORDER BY u.b DESC, u.id LIMIT 1)",
    "(SELECT w.y FROM (SELECT u.a AS x, u.b + u.c AS y, u.id FROM u WHERE u.c > 1) w WHERE w.x = {a} AND w.id < {id} ORDER BY w.id DESC LIMIT 1)",
    "(SELECT max(u.id) FROM u WHERE u.a = {a} AND u.b < {b})",
    "(SELECT count(*) FROM u WHERE u.b <= {b})",
    "(SELECT count(u.a) FROM u WHERE u.c = {c} AND u.id > {id})",
    "(SELECT sum(u.b) + count(u.b) * 10 FROM u WHERE u.a = {a} AND u.b >= {b})",
    "(SELECT avg(u.b) FROM u WHERE u.a + 1 = {a} + {c} AND u.b > {b} - {c})",
    "(SELECT min(u.b) FROM u WHERE u.id < {id} AND u.b > 0)",
    "(SELECT sum(DISTINCT u.b) FROM u WHERE u.a = {a} AND u.id < {id})",
    "(SELECT count(*) FROM u WHERE u.b < {b} AND u.id > {id})",
    "(SELECT count(*) FROM e WHERE e.a = {a} AND e.b < {b})",
    "(SELECT u.b FROM u WHERE u.a = {a} ORDER BY u.id DESC LIMIT 1 OFFSET 1)",
    "(SELECT u.b FROM u WHERE u.c = {c} ORDER BY u.b NULLS FIRST, u.id LIMIT 1)",
    "(SELECT sum(u.b) + {b} FROM u WHERE u.a = {a})",
    "(SELECT count(*) + {b} FROM u WHERE u.a = {a} AND u.b < {b})",
    "(SELECT max(u.b) FROM u WHERE u.a = {a} AND u.b = (SELECT max(v.b) FROM v WHERE v.a = u.a))",
    "(SELECT max(u.b) FROM u WHERE u.a = {a} AND u.b > (SELECT min(v.b) FROM v WHERE v.a = {a}))",
    "(SELECT count(*) FROM u WHERE u.a IN (SELECT v.a FROM v WHERE v.b = {b}))",
    "(SELECT count(*) FROM u WHERE u.b = (SELECT v.b FROM v WHERE v.id = {id}))",
    "(SELECT count(*) FROM (SELECT DISTINCT u.b FROM u WHERE u.a = {a}) d)",
    "(SELECT count(DISTINCT u.b) FROM u WHERE u.a = {a})",
    "(SELECT sum(m) FROM (SELECT max(u.b) AS m FROM u WHERE u.a = {a} GROUP BY u.id % 3) d)",
    "(SELECT max(m) FROM (SELECT u.b AS m FROM u WHERE u.a = {a} UNION ALL SELECT v.b FROM v WHERE v.a = {a}) d)",
    "(SELECT count(*) FROM (SELECT u.b FROM u WHERE u.a = {a} UNION SELECT v.b FROM v WHERE v.a = {a}) d)",
    "(SELECT count(*) FROM (SELECT u.b FROM u WHERE u.a = {a} INTERSECT SELECT v.b FROM v) d)",
    "(SELECT count(*) FROM (SELECT u.b FROM u WHERE u.a = {a} EXCEPT SELECT v.b FROM v WHERE v.a = {a}) d)",
    "(SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY u.id) AS r FROM u WHERE u.a = {a}) d)",
    "(SELECT sum(s) FROM (SELECT sum(u.b) OVER (PARTITION BY u.c ORDER BY u.id) AS s FROM u WHERE u.a = {a}) d)",
    "(SELECT sum(b) FROM (SELECT b FROM u WHERE u.a = {a} ORDER BY id LIMIT 2) d)",
    "(SELECT max(u.b + coalesce(v.b, 0)) FROM u LEFT JOIN v ON v.a = u.a AND v.b > {b} WHERE u.a = {a})",
    "(SELECT count(*) FROM u RIGHT JOIN v ON v.a = u.a AND u.b > {b})",
    "(SELECT max(u.b) FROM u JOIN v ON v.a = u.a AND v.b > {b})",
    "(SELECT {a} + 1)",
    "(SELECT {a} WHERE {b} > 0)",
    "(SELECT count(*) FROM u WHERE {a} > 3)",
    "(SELECT count(*) FROM u WHERE u.a = {a} OR u.b = {b})",
    "(SELECT avg(CASE WHEN u.c = {c} THEN u.b END) FROM u WHERE u.a <= {a})",
    "(SELECT sum(x) FROM (VALUES ({a}), ({b} + 1)) AS d(x))",
    "(SELECT min(u.id) FROM u WHERE u.a IS NOT DISTINCT FROM {a} GROUP BY u.a HAVING count(*) > 1)",
];

/// Conditions that a row around fulfils or not, or of which it is not known.
const CONDITIONS: [&str; 24] = [
    "EXISTS (SELECT 1 FROM u WHERE u.a = {a} AND u.b > {b})",
    "EXISTS (SELECT 1 FROM u WHERE u.a = {a} GROUP BY u.b HAVING count(*) > 1)",
    "EXISTS (SELECT sum(b) FROM u WHERE u.a = {a})",
    "EXISTS (SELECT sum(b) FROM u WHERE u.a = {a} HAVING count(*) > 2)",
    "EXISTS (SELECT 1 FROM u WHERE u.a = {a} LIMIT 1)",
    "EXISTS (SELECT 1 FROM u WHERE u.a = {a} LIMIT 1 OFFSET 3)",
    "EXISTS (SELECT 1 FROM e WHERE e.a = {a})",
    "{a} IN (SELECT u.a FROM u WHERE u.b = {b})",
    "{a} IN (SELECT u.a FROM u WHERE u.b > {b})",
    "{a} IN (SELECT u.a FROM u WHERE u.b > {b} AND u.a IS NOT NULL)",
    "{a} IN (SELECT u.a FROM u WHERE u.b = {b} ORDER BY u.id LIMIT 1)",
    "{a} IN (SELECT max(u.a) FROM u WHERE u.b = {b})",
    "{a} IN (SELECT max(u.a) FROM u WHERE u.b = {b} GROUP BY u.id % 2)",
    "{a} IN (SELECT e.a FROM e WHERE e.b = {b})",
    "{c} IN (SELECT u.c FROM u WHERE u.b = {b})",
    "{a} + 1 IN (SELECT u.a FROM u WHERE u.c = {c})",
    "{b} > ALL (SELECT u.b FROM u WHERE u.a = {a})",
    "{b} >= ANY (SELECT u.b FROM u WHERE u.a = {a})",
    "{b} <> ANY (SELECT u.b FROM u WHERE u.a = {a})",
    "{b} <> ALL (SELECT u.b FROM u WHERE u.a = {a})",
    "{b} = ALL (SELECT u.b FROM u WHERE u.a = {a})",
    "{b} < ANY (SELECT e.b FROM e WHERE e.a = {a})",
    "{c} <= ALL (SELECT u.c FROM u WHERE u.a = {a})",
    "EXISTS (SELECT 1 FROM u WHERE u.a = {a} AND NOT EXISTS (SELECT 1 FROM v WHERE v.a = u.a AND v.b = {b}))",
];

/// Whether a query ran in part on the CPU that has nothing which only the CPU knows.
fn runs_elsewhere(run: &QueryRun, query: &str) -> bool {
    const ON_CPU: [&str; 3] = ["unnest(", "WITH RECURSIVE", "grouping("];
    // Values beside the rows of a table, which are not worth to be moved for them.
    let by_price = |why: &String| why.contains("moving the rows costs more");
    !run.metrics.fallbacks.iter().all(by_price) && !ON_CPU.iter().any(|word| query.contains(word))
}

#[test]
fn as_joins() {
    let mut failures = String::new();
    for (rows, nulls) in [
        (0, Nulls::None),
        (1, Nulls::None),
        (32, Nulls::All),
        (33, Nulls::None),
        (300, Nulls::Some),
    ] {
        let fixture = tables(rows, nulls);
        for (query, joins) in PAIRS {
            let difference = match fixture.compare(query) {
                Ok(run) if rows > 0 && runs_elsewhere(&run, query) => {
                    Some(format!("{:?}", run.metrics.fallbacks))
                }
                Ok(run) => fixture.expect(joins).difference(&run),
                Err(message) => Some(message),
            };
            if let Some(difference) = difference {
                let _ = writeln!(failures, "{rows} rows: {query}\n{difference}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The rows of `t`, as texts of constants for `a`, `b`, `c` and `id`.
fn constants(fixture: &Fixture) -> Vec<[String; 4]> {
    let run = fixture.check("SELECT a, b, c, id FROM t ORDER BY id");
    let mut rows = Vec::new();
    for batch in &run.batches {
        for row in 0..batch.num_rows() {
            rows.push([0, 1, 2, 3].map(|column| {
                let values = batch.column(column).as_primitive::<Int64Type>();
                match values.iter().nth(row).flatten() {
                    Some(value) => format!("CAST({value} AS BIGINT)"),
                    None => "CAST(NULL AS BIGINT)".to_string(),
                }
            }));
        }
    }
    rows
}

fn of_row(template: &str, [a, b, c, id]: [&str; 4]) -> String {
    let text = template.replace("{a}", a).replace("{b}", b);
    text.replace("{c}", c).replace("{id}", id)
}

/// What `query` makes of the columns of `t` is, for each of its rows, what `single` makes of constants.
fn compare_rows(
    fixture: &Fixture,
    rows: &[[String; 4]],
    query: &str,
    single: &str,
) -> Option<String> {
    let query = of_row(query, ["t.a", "t.b", "t.c", "t.id"]);
    let each = rows
        .iter()
        .map(|row| of_row(single, row.each_ref().map(String::as_str)));
    let all: Vec<String> = each.collect();
    let difference = match fixture.compare(&query) {
        Ok(run) => fixture.expect(&all.join(" UNION ALL ")).difference(&run),
        Err(message) => Some(message),
    };
    difference.map(|difference| format!("{query}\n{difference}\n"))
}

#[test]
fn values_row_by_row() {
    let fixture = tables(13, Nulls::Some);
    let rows = constants(&fixture);
    let compared = VALUES.iter().filter_map(|value| {
        let query = format!("SELECT t.id, {value} AS x FROM t");
        let single = format!("SELECT {{id}} AS id, {value} AS x");
        compare_rows(&fixture, &rows, &query, &single)
    });
    let failures: String = compared.collect();
    assert!(failures.is_empty(), "{failures}");
}

/// Alone, negated, under OR, under IS NULL, and as a value: where it is not known it is neither true nor false.
#[test]
fn conditions_row_by_row() {
    let fixture = tables(13, Nulls::Some);
    let rows = constants(&fixture);
    let mut failures = String::new();
    for condition in CONDITIONS {
        for place in [
            "{}",
            "NOT ({})",
            "({}) OR {c} = 1",
            "({}) IS NULL",
            "({}) IS NOT TRUE AND {c} > 0",
        ] {
            let condition = place.replace("{}", condition);
            let query = format!("SELECT t.id FROM t WHERE {condition}");
            let single = format!("SELECT {{id}} AS id WHERE {condition}");
            failures.extend(compare_rows(&fixture, &rows, &query, &single));
        }
        let query = format!("SELECT t.id, {condition} AS x FROM t");
        let single = format!("SELECT {{id}} AS id, {condition} AS x");
        failures.extend(compare_rows(&fixture, &rows, &query, &single));
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Where no value is NULL there is no third answer, also where what they are compared beside is.
/// Semi joins that alone relate two tables, by keys that are there several times, NULL, or strings.
#[test]
fn related_by_a_subquery_alone() {
    check_all(
        &super::tables::fixture(),
        [
            "SELECT p.u, l.id FROM p, l WHERE (p.k, l.z) IN (SELECT r.k, r.z FROM r)",
            "SELECT p.u, l.id FROM p, l WHERE (p.s, l.d) IN (SELECT r.s, r.d FROM r WHERE r.b) AND p.z > 2",
            "SELECT p.u, l.id FROM p, l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = p.k AND r.z = l.z)",
            "SELECT p.u, l.id FROM p, l WHERE (p.f, l.k) IN (SELECT r.f, r.k FROM r)",
            "SELECT p.u, l.id FROM p, l WHERE (p.k, p.z, l.z) IN (SELECT r.k, r.z, r.z FROM r) AND l.id > 3",
            "SELECT count(*) AS n FROM p, l, r AS x WHERE (p.k, l.z) IN (SELECT r.k, r.z FROM r) AND (l.k, x.id) IN (SELECT r.k, r.id FROM r)",
            "SELECT p.u, (SELECT count(*) FROM l WHERE l.z > 1 AND l.k IN (SELECT r.k FROM r WHERE r.z = p.z)) AS n FROM p",
            "SELECT p.u, (SELECT sum(l.x) FROM l WHERE l.s IN (SELECT r.s FROM r WHERE r.k = p.u) AND l.d IN (SELECT r.d FROM r)) AS n FROM p",
        ]
        .map(String::from),
    );
}

#[test]
fn values_that_are_never_null() {
    let table = |rows: i64, step: i64| {
        let known = Field::new("x", DataType::Int64, false);
        let schema = Schema::new(vec![known, Field::new("y", DataType::Int64, true)]);
        let x: ArrayRef = Arc::new(Int64Array::from_iter_values(
            (0..rows).map(|row| row * step % 23),
        ));
        let y = (0..rows).map(|row| (row % 4 != 1).then_some(row * step % 7));
        let columns = vec![x, Arc::new(Int64Array::from_iter(y)) as ArrayRef];
        vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]
    };
    let fixture = Fixture::relaxed()
        .batches("n", table(60, 5))
        .batches("m", table(90, 11));
    let exists = "EXISTS (SELECT 1 FROM m WHERE m.y = n.y AND m.x = n.x)";
    let among = "n.x IN (SELECT m.x FROM m WHERE m.y = n.y)";
    let places = [
        "{}",
        "NOT ({})",
        "({}) OR n.x = 3",
        "NOT ({}) OR n.x = 3",
        "({}) IS NULL",
    ];
    for place in places {
        let query = |condition: &str| {
            let condition = place.replace("{}", condition);
            format!("SELECT n.x, n.y FROM n WHERE {condition}")
        };
        let run = fixture.check(&query(among));
        let difference = fixture.expect(&query(exists)).difference(&run);
        assert_eq!(difference, None, "{place}");
    }
    let run = fixture
        .check("SELECT n.x, n.y FROM n WHERE n.x NOT IN (SELECT m.x FROM m WHERE m.y = n.y)");
    let expected = fixture.expect(&format!("SELECT n.x, n.y FROM n WHERE NOT {exists}"));
    assert_eq!(expected.difference(&run), None);
}

#[test]
fn more_than_one_row_is_an_error() {
    let fixture = tables(40, Nulls::Some);
    for sql in [
        "SELECT id, (SELECT u.b FROM u WHERE u.a = t.a) AS x FROM t",
        "SELECT id FROM t WHERE id < 30 AND (SELECT u.b FROM u WHERE u.c > t.c) > 2",
        "SELECT t.id FROM t JOIN v ON v.id = (SELECT u.id FROM u WHERE u.a = t.a)",
    ] {
        let message = fixture.check_error(sql);
        assert!(message.contains("has more than one row"), "{message}");
    }
    // Rows that no row around asks for may be several.
    fixture.check("SELECT id, (SELECT u.b FROM u WHERE u.id = t.id AND u.a = t.a) AS x FROM t");
    fixture.check("SELECT id, (SELECT u.id FROM u WHERE u.a = t.a) AS x FROM t WHERE t.a = 11");
}
