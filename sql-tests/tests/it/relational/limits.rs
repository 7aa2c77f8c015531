//! LIMIT and OFFSET without an order: so many rows, each one of them a row of the answer, and none twice.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use warpline_sql_tests::{Fixture, test_device};

use crate::operators::support::check_all;

const ROWS: i64 = 20_000;

/// `t` has 20,000 rows; each of its keys is there ten times, and ten times in `u`.
fn fixture() -> Fixture {
    let table = |odd: i64| -> [(&'static str, ArrayRef); 2] {
        let id = Int64Array::from_iter_values((0..ROWS).map(|i| i * odd));
        let key = Int64Array::from_iter_values((0..ROWS).map(|i| i % (ROWS / 10)));
        [("id", Arc::new(id)), ("k", Arc::new(key))]
    };
    Fixture::open(test_device(), false, &[("warpline.min_rows", "0")])
        .table("t", table(3))
        .table("u", table(7))
}

/// What any right choice of rows has in common.
#[test]
fn some_of_the_rows() {
    let scan = "SELECT id, id + k AS sum, k FROM t WHERE k % 3 <> 1";
    let pairs = "SELECT t.id, t.id + u.k AS sum, t.k FROM t JOIN u ON t.k = u.k WHERE u.id % 2 = 0 AND t.id >= 0";
    let groups = "SELECT id, sum(id + k) AS sum, max(k) AS k FROM t GROUP BY id";
    let both = "SELECT id, id + k AS sum, k FROM t WHERE k < 100 UNION ALL SELECT -id - 1, k - id - 1, k FROM u WHERE k < 100";
    let mut queries = Vec::new();
    for rows in [scan, pairs, groups, both] {
        for limit in [
            "LIMIT 0",
            "LIMIT 1",
            "LIMIT 33",
            "LIMIT 700 OFFSET 40",
            "LIMIT 1000000",
            "OFFSET 1990",
            "LIMIT 10 OFFSET 10000000",
        ] {
            queries.push(format!(
                "SELECT count(*) AS n, count(*) FILTER (WHERE sum <> id + k) AS wrong FROM ({rows} {limit})"
            ));
        }
    }
    // Rows that are read once limited and once in full.
    queries.push(format!(
        "WITH r AS ({pairs}) SELECT (SELECT count(*) FROM (SELECT * FROM r LIMIT 77)) AS few, count(*) AS n FROM r"
    ));
    queries.push(
        "SELECT count(DISTINCT id) AS n FROM (SELECT id FROM t WHERE k % 5 < 3 LIMIT 5000 OFFSET 3)"
            .to_string(),
    );
    check_all(&fixture(), queries);
}

/// The standard's words for it, which DataFusion does not plan.
#[test]
fn fetch_first() {
    let fixture = fixture();
    for (sql, limit) in [
        (
            "SELECT id FROM t ORDER BY id FETCH FIRST 5 ROWS ONLY",
            "SELECT id FROM t ORDER BY id LIMIT 5",
        ),
        (
            "SELECT id, (SELECT max(k) FROM u FETCH FIRST ROW ONLY) AS m FROM t ORDER BY id DESC OFFSET 3 ROWS FETCH NEXT 40 ROWS ONLY",
            "SELECT id, (SELECT max(k) FROM u) AS m FROM t ORDER BY id DESC LIMIT 40 OFFSET 3",
        ),
    ] {
        let expected = fixture.expect(limit);
        let run = fixture.run(sql).expect("an answer");
        assert_eq!(expected.difference(&run), None);
    }
}
