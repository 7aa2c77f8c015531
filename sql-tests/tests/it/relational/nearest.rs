//! The nearest row of another table (as-of joins), and totals of the rows before one, against joins of all pairs.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{Date32Type, Decimal128Type, Int32Type};
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, drawn, primitive, string_views, strings};

/// `t` (trades) and `q` (quotes, three times as many rows), with keys of skew, times that tie, and values of several types.
fn tables(rows: usize, nulls: Nulls) -> Fixture {
    let columns = |rows: usize, seed: u64| -> Vec<(&'static str, ArrayRef)> {
        let symbols = ["A", "A", "A", "A", "B", "C", "größe", "", "語"];
        let span: Vec<i64> = (0..(rows as i64 / 2).max(3)).collect();
        let times = drawn(&span, rows, nulls, seed + 1);
        let days: Vec<i32> = (-20..40).collect();
        let prices: Vec<i128> = (0..90).map(|n| n * 13 - 400).collect();
        let price = drawn(&prices, rows, nulls, seed + 3);
        let price = primitive::<Decimal128Type>(price);
        let price = arrow::compute::cast(&price, &arrow::datatypes::DataType::Decimal128(12, 2));
        vec![
            ("sym", strings(drawn(&symbols, rows, nulls, seed))),
            (
                "ts",
                Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef,
            ),
            (
                "day",
                primitive::<Date32Type>(drawn(&days, rows, nulls, seed + 2)),
            ),
            ("price", price.expect("decimals")),
            (
                "n",
                primitive::<Int32Type>(drawn(&[1, 2, 3, 40], rows, nulls, seed + 4)),
            ),
            (
                "note",
                string_views(drawn(&["x", "yy", "ñ", ""], rows, nulls, seed + 5)),
            ),
            ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
        ]
    };
    Fixture::relaxed()
        .table("t", columns(rows, 5))
        .table("q", columns(rows * 3, 77))
        .table("e", columns(0, 3))
}

/// Queries, and the same by pairs.
const PAIRS: [(&str, &str); 12] = [
    (
        "SELECT t.id, x.id AS i, x.price, x.note, x.day FROM t LEFT JOIN LATERAL (SELECT * FROM q WHERE q.sym = t.sym AND q.ts <= t.ts \
         ORDER BY q.ts DESC, q.id LIMIT 1) x ON true",
        "SELECT t.id, x.id AS i, x.price, x.note, x.day FROM t LEFT JOIN (SELECT * FROM (SELECT t.id AS k, q.*, row_number() OVER (PARTITION BY \
         t.id ORDER BY q.ts DESC, q.id) AS r FROM t JOIN q ON q.sym = t.sym AND q.ts <= t.ts) WHERE r = 1) x ON x.k = t.id",
    ),
    (
        "SELECT t.id, x.id AS i, x.n FROM t, LATERAL (SELECT q.id, q.n + 1 AS n FROM q WHERE q.sym = t.sym AND q.ts > t.ts AND q.n < 40 \
         ORDER BY q.ts, q.id DESC LIMIT 1) x",
        "SELECT k AS id, i, n FROM (SELECT t.id AS k, q.id AS i, q.n + 1 AS n, row_number() OVER (PARTITION BY t.id ORDER BY q.ts, q.id DESC) \
         AS r FROM t JOIN q ON q.sym = t.sym AND q.ts > t.ts AND q.n < 40) WHERE r = 1",
    ),
    (
        "SELECT t.id, (SELECT q.note FROM q WHERE q.day >= t.day ORDER BY q.day, q.id LIMIT 1) AS x FROM t",
        "SELECT t.id, x.note AS x FROM t LEFT JOIN (SELECT * FROM (SELECT t.id AS k, q.note, row_number() OVER (PARTITION BY t.id ORDER BY \
         q.day, q.id) AS r FROM t JOIN q ON q.day >= t.day) WHERE r = 1) x ON x.k = t.id",
    ),
    (
        "SELECT t.id, (SELECT q.id FROM q WHERE q.sym = t.sym AND q.ts BETWEEN t.ts - INTERVAL '2 microseconds' AND t.ts ORDER BY q.ts DESC, \
         q.id LIMIT 1) AS x FROM t",
        "SELECT t.id, x.i AS x FROM t LEFT JOIN (SELECT * FROM (SELECT t.id AS k, q.id AS i, row_number() OVER (PARTITION BY t.id ORDER BY q.ts \
         DESC, q.id) AS r FROM t JOIN q ON q.sym = t.sym AND q.ts BETWEEN t.ts - INTERVAL '2 microseconds' AND t.ts) WHERE r = 1) x ON x.k = t.id",
    ),
    (
        "SELECT t.id, (SELECT q.id FROM q WHERE q.note < t.note ORDER BY q.note DESC, q.price DESC NULLS LAST, q.id LIMIT 1) AS x FROM t",
        "SELECT t.id, x.i AS x FROM t LEFT JOIN (SELECT * FROM (SELECT t.id AS k, q.id AS i, row_number() OVER (PARTITION BY t.id ORDER BY \
         q.note DESC, q.price DESC NULLS LAST, q.id) AS r FROM t JOIN q ON q.note < t.note) WHERE r = 1) x ON x.k = t.id",
    ),
    (
        "SELECT t.id, (SELECT count(*) FROM q WHERE q.sym = t.sym AND q.ts < t.ts) AS c, (SELECT sum(q.price) FROM q WHERE q.sym = t.sym AND \
         q.ts < t.ts) AS s FROM t",
        "SELECT t.id, count(q.id) AS c, sum(q.price) AS s FROM t LEFT JOIN q ON q.sym = t.sym AND q.ts < t.ts GROUP BY t.id",
    ),
    (
        "SELECT t.id, (SELECT max(q.n) - min(q.n) FROM q WHERE q.day >= t.day AND q.n = t.n) AS d FROM t",
        "SELECT t.id, max(q.n) - min(q.n) AS d FROM t LEFT JOIN q ON q.day >= t.day AND q.n = t.n GROUP BY t.id",
    ),
    (
        "SELECT id FROM t WHERE price > (SELECT avg(q.price) FROM q WHERE q.sym = t.sym AND q.ts <= t.ts)",
        "SELECT t.id FROM t JOIN q ON q.sym = t.sym AND q.ts <= t.ts GROUP BY t.id, t.price HAVING t.price > avg(q.price)",
    ),
    (
        "SELECT t.id, (SELECT count(*) FROM t s WHERE s.price > t.price) + 1 AS place FROM t WHERE t.price IS NOT NULL",
        "SELECT id, CAST(rank() OVER (ORDER BY price DESC) AS BIGINT) AS place FROM t WHERE price IS NOT NULL",
    ),
    (
        "SELECT t.id, (SELECT e.id FROM e WHERE e.sym = t.sym AND e.ts <= t.ts ORDER BY e.ts DESC LIMIT 1) AS x, (SELECT count(*) FROM e WHERE \
         e.ts <= t.ts) AS c FROM t",
        "SELECT id, CAST(NULL AS BIGINT) AS x, 0 AS c FROM t",
    ),
    (
        "SELECT x.sym, x.ts, (SELECT max(q.id) FROM q WHERE q.sym = x.sym AND q.ts <= x.ts) AS m FROM (SELECT sym, max(ts) AS ts FROM t GROUP BY \
         sym) x",
        "SELECT x.sym, x.ts, max(q.id) AS m FROM (SELECT sym, max(ts) AS ts FROM t GROUP BY sym) x LEFT JOIN q ON q.sym = x.sym AND q.ts <= x.ts \
         GROUP BY x.sym, x.ts",
    ),
    (
        "SELECT t.id, (SELECT s.id FROM t s WHERE s.sym = t.sym AND s.id < t.id ORDER BY s.id DESC LIMIT 1) AS before FROM t WHERE t.sym IS NOT \
         NULL",
        "SELECT id, lag(id) OVER (PARTITION BY sym ORDER BY id) AS before FROM t WHERE sym IS NOT NULL",
    ),
];

#[test]
fn as_pairs() {
    let mut failures = String::new();
    for (rows, nulls) in [
        (0, Nulls::None),
        (1, Nulls::None),
        (31, Nulls::All),
        (33, Nulls::Some),
        (700, Nulls::None),
        (900, Nulls::Some),
    ] {
        let fixture = tables(rows, nulls);
        for (query, pairs) in PAIRS {
            let difference = match fixture.compare(query) {
                Ok(run) if rows > 100 && !run.metrics.fallbacks.is_empty() => {
                    Some(format!("{:?}", run.metrics.fallbacks))
                }
                Ok(run) => fixture.expect(pairs).difference(&run),
                Err(message) => Some(message),
            };
            if let Some(difference) = difference {
                let _ = writeln!(failures, "{rows} rows: {query}\n{difference}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// `ASOF JOIN`, and the same as a lateral join.
const JOINS: [(&str, &str); 6] = [
    (
        "SELECT t.id, x.id AS i FROM t ASOF JOIN (SELECT sym, ts, max(id) AS id FROM q GROUP BY sym, ts) x MATCH_CONDITION (t.ts >= x.ts) ON \
         t.sym = x.sym",
        "SELECT t.id, (SELECT q.id FROM q WHERE q.sym = t.sym AND q.ts <= t.ts ORDER BY q.ts DESC, q.id DESC LIMIT 1) AS i FROM t",
    ),
    (
        "SELECT t.id, q.id AS i FROM t ASOF JOIN q MATCH_CONDITION (t.id > q.id) ON t.sym = q.sym AND q.n < 3",
        "SELECT t.id, (SELECT q.id FROM q WHERE q.sym = t.sym AND q.n < 3 AND q.id < t.id ORDER BY q.id DESC LIMIT 1) AS i FROM t",
    ),
    (
        "SELECT t.id, q.id AS i FROM t ASOF JOIN q MATCH_CONDITION (t.id <= q.id) USING (sym)",
        "SELECT t.id, (SELECT q.id FROM q WHERE q.sym = t.sym AND q.id >= t.id ORDER BY q.id LIMIT 1) AS i FROM t",
    ),
    (
        "SELECT t.id, Q.id AS i FROM t ASOF JOIN q MATCH_CONDITION (q.id < t.id) ON t.n = q.n ORDER BY 1",
        "SELECT t.id, (SELECT q.id FROM q WHERE q.n = t.n AND q.id < t.id ORDER BY q.id DESC LIMIT 1) AS i FROM t ORDER BY 1",
    ),
    (
        "SELECT count(*) AS c, sum(u.id) AS s FROM (SELECT t.id, q.id AS i FROM t ASOF JOIN q MATCH_CONDITION (t.id >= q.id)) s LEFT JOIN t u ON \
         u.id = s.i",
        "SELECT count(*) AS c, sum(id) AS s FROM t",
    ),
    (
        "SELECT t.id, a.id AS i, b.id AS j FROM t ASOF JOIN q a MATCH_CONDITION (t.id >= a.id) ON a.n = t.n ASOF JOIN q b MATCH_CONDITION \
         (a.id > b.id) ON b.n = a.n",
        "SELECT id, i, (SELECT max(q.id) FROM q WHERE q.n = x.n AND q.id < x.i) AS j FROM (SELECT t.id, t.n, (SELECT max(q.id) FROM q WHERE q.n = \
         t.n AND q.id <= t.id) AS i FROM t) x",
    ),
];

#[test]
fn as_of_joins() {
    let mut failures = String::new();
    for (rows, nulls) in [(1, Nulls::None), (33, Nulls::Some), (700, Nulls::None)] {
        let fixture = tables(rows, nulls);
        for (query, lateral) in JOINS {
            let difference = match fixture.run(query) {
                Ok(run) if rows > 100 && !run.metrics.fallbacks.is_empty() => {
                    Some(format!("{:?}", run.metrics.fallbacks))
                }
                Ok(run) => fixture.expect(lateral).difference(&run),
                Err(error) => Some(error.to_string()),
            };
            if let Some(difference) = difference {
                let _ = writeln!(failures, "{rows} rows: {query}\n{difference}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// What such a join may not say is an error that says so, and the session goes on.
#[test]
fn what_is_no_as_of_join() {
    let fixture = tables(33, Nulls::None);
    for query in [
        "SELECT t.id FROM t ASOF JOIN q MATCH_CONDITION (t.ts = q.ts) ON t.sym = q.sym",
        "SELECT t.id FROM t ASOF JOIN q MATCH_CONDITION (t.ts) ON t.sym = q.sym",
    ] {
        let error = fixture.run(query).expect_err(query).to_string();
        assert!(error.contains("AsOf"), "{error}");
    }
    fixture.check("SELECT count(*) AS c FROM t");
}
