//! Scalar, IN and EXISTS subqueries, correlated or not, with the NULLs that make NOT IN hard.

use warpline_sql_tests::Fixture;

use super::tables::fixture;
use crate::operators::support::check_all;

#[test]
fn in_lists_from_tables() {
    check_all(
        &fixture(),
        [
            "SELECT id FROM l WHERE k IN (SELECT k FROM r)",
            "SELECT id FROM l WHERE s IN (SELECT s FROM r WHERE z > 3)",
            "SELECT id FROM l WHERE k IN (SELECT u FROM p) AND s IS NOT NULL",
            "SELECT id FROM l WHERE k IN (SELECT k FROM e)",
            "SELECT id FROM l WHERE k IN (SELECT k FROM n)",
            "SELECT id FROM l WHERE k + 2 IN (SELECT k * 2 FROM r WHERE b)",
            "SELECT id FROM l WHERE k IN (SELECT r.k FROM r WHERE r.s = l.s)",
            "SELECT id FROM l WHERE x IN (SELECT max(x) FROM r GROUP BY k)",
        ]
        .map(String::from),
    );
}

#[test]
fn not_in_with_nulls() {
    check_all(
        &fixture(),
        [
            // A NULL in the list: nothing is known not to be in it.
            "SELECT id FROM l WHERE k NOT IN (SELECT k FROM r)",
            "SELECT id FROM l WHERE k NOT IN (SELECT k FROM r WHERE k IS NOT NULL)",
            "SELECT id FROM l WHERE k NOT IN (SELECT k FROM r WHERE k > 5)",
            // An empty list: everything is not in it, NULL too.
            "SELECT id FROM l WHERE k NOT IN (SELECT k FROM e)",
            "SELECT id FROM l WHERE k NOT IN (SELECT k FROM n)",
            "SELECT id FROM l WHERE s NOT IN (SELECT s FROM p WHERE s > 'a')",
            "SELECT id FROM l WHERE s NOT IN (SELECT s FROM r)",
            "SELECT id FROM l WHERE z NOT IN (SELECT z FROM p WHERE z < 5)",
            "SELECT id FROM n WHERE k NOT IN (SELECT k FROM l WHERE k > 0)",
            "SELECT id FROM n WHERE k NOT IN (SELECT k FROM e)",
            "SELECT count(*) AS n FROM l WHERE z NOT IN (SELECT z FROM r WHERE r.id < 4) AND b",
        ]
        .map(String::from),
    );
}

#[test]
fn exists_and_not_exists() {
    check_all(
        &fixture(),
        [
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k)",
            "SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k)",
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.s = l.s AND r.z > 2)",
            "SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.x <> l.x)",
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.s = l.s AND r.id > l.id + 50)",
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM l m WHERE m.k = l.k AND m.id <> l.id) \
             AND NOT EXISTS (SELECT 1 FROM l m WHERE m.k = l.k AND m.id <> l.id AND m.b)",
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM e)",
            "SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM e WHERE e.k = l.k)",
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.z = 5)",
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k) AND EXISTS (SELECT 1 FROM p WHERE p.u = l.k)",
        ]
        .map(String::from),
    );
}

/// Keys with so many rows that the comparison is asked of the extremes of each key.
#[test]
fn existence_of_other_values() {
    let mut queries = Vec::new();
    for exists in ["EXISTS", "NOT EXISTS"] {
        for condition in [
            "m.b = l.b AND m.id <> l.id",
            "m.b = l.b AND m.x <> l.x",
            "m.b = l.b AND m.w < l.w",
            "m.b = l.b AND l.w <= m.w",
            "m.b = l.b AND m.d > l.d AND m.z > 2",
            "m.b = l.b AND m.x >= l.x AND l.z > 2",
            "m.b = l.b AND m.z <> l.z AND m.z = 5",
            "m.b = l.b AND m.id + 1 < l.id * 2 AND m.x IS NULL",
            // Not of one comparison: two of them, strings, floats.
            "m.b = l.b AND m.id <> l.id AND m.z > l.z",
            "m.b = l.b AND m.s <> l.s",
            "m.b = l.b AND m.f <> l.f",
            "(m.b IS NOT DISTINCT FROM l.b) AND m.id > l.id",
        ] {
            queries.push(format!(
                "SELECT id FROM l WHERE {exists} (SELECT 1 FROM l m WHERE {condition})"
            ));
            queries.push(format!(
                "SELECT id FROM l WHERE {exists} (SELECT 1 FROM r m WHERE {condition}) OR l.z = 8"
            ));
        }
    }
    check_all(&fixture(), queries);
}

/// Several of these, of one table and of others, which may be asked of the same groups.
#[test]
fn existence_of_several_other_values() {
    let mut queries = Vec::new();
    for (one, other) in [
        (
            "l m WHERE m.b = l.b AND m.id <> l.id",
            "l m WHERE m.b = l.b AND m.id <> l.id AND m.z > 2",
        ),
        (
            "l m WHERE m.b = l.b AND m.x < l.x AND m.z = 5",
            "l m WHERE m.b = l.b AND m.w > l.w AND m.x IS NULL",
        ),
        (
            "l m WHERE m.b = l.b AND m.x <> l.x AND l.z > 2",
            "l m WHERE m.b = l.b AND m.x + 1 <> l.x AND m.z < 0",
        ),
        (
            "l m WHERE m.b = l.b AND m.d > l.d",
            "r m WHERE m.b = l.b AND m.x <> l.x",
        ),
        (
            "r m WHERE m.b = l.b AND m.z <> l.z AND m.id > 7",
            "r m WHERE m.b = l.b AND m.z <> l.z AND m.x > 0",
        ),
        (
            "l m WHERE m.b = l.b AND m.id <> l.id",
            "l m WHERE m.b = NOT l.b AND m.id <> l.id",
        ),
        (
            "l m WHERE m.b = l.b AND m.z = l.z AND m.id <> l.id",
            "l m WHERE m.b = l.b AND m.id <> l.id",
        ),
    ] {
        for (first, second) in [("", ""), ("", "NOT "), ("NOT ", ""), ("NOT ", "NOT ")] {
            queries.push(format!(
                "SELECT id, s FROM l WHERE {first}EXISTS (SELECT 1 FROM {one}) AND {second}EXISTS (SELECT 1 FROM {other})"
            ));
            queries.push(format!(
                "SELECT p.s, count(*) AS n FROM p JOIN l ON p.u = l.k WHERE l.x > -3 \
                 AND {first}EXISTS (SELECT 1 FROM {one}) AND {second}EXISTS (SELECT 1 FROM {other}) GROUP BY p.s"
            ));
        }
    }
    check_all(&fixture(), queries);
}

/// The rows that one existence test has marked, or left unmarked, go through ranges of matches in the next.
#[test]
fn existence_after_existence() {
    let small = "SELECT 1 FROM r WHERE r.z = p.z AND r.x <> p.x AND r.id < 20";
    let queries = ["EXISTS", "NOT EXISTS"].into_iter().flat_map(|first| {
        ["EXISTS", "NOT EXISTS"].map(|second| {
            format!(
                "SELECT id, s FROM p WHERE {first} (SELECT 1 FROM l WHERE l.z = p.z AND l.x < p.x) AND {second} ({small})"
            )
        })
    });
    check_all(&fixture(), queries);
}

#[test]
fn existence_as_a_value() {
    check_all(
        &fixture(),
        [
            "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k) OR l.z = 8",
            "SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.z < l.z) OR l.s IS NULL",
            "SELECT id FROM l WHERE k IN (SELECT u FROM p) OR s = 'ab'",
            "SELECT id FROM l WHERE (k IN (SELECT u FROM p) OR EXISTS (SELECT 1 FROM r WHERE r.s = l.s AND r.k = l.k)) AND z > 1",
            "SELECT count(*) AS n, sum(id) AS s FROM l WHERE EXISTS (SELECT 1 FROM e WHERE e.k = l.k) OR b",
        ]
        .map(String::from),
    );
}

#[test]
fn scalars() {
    check_all(
        &fixture(),
        [
            "SELECT id FROM l WHERE x > (SELECT avg(x) FROM r)",
            "SELECT id, x - (SELECT min(x) FROM r WHERE z = 5) AS y FROM l WHERE z = 2",
            "SELECT id FROM l WHERE k = (SELECT max(k) FROM e)",
            "SELECT id, (SELECT s FROM one) AS s FROM p",
            "SELECT id, (SELECT s FROM e) AS s FROM p",
            "SELECT id FROM l WHERE x > (SELECT 0.2 * avg(x) FROM r WHERE r.k = l.k)",
            "SELECT id FROM l WHERE x = (SELECT min(r.x) FROM r WHERE r.s = l.s AND r.x IS NOT NULL)",
            "SELECT id, (SELECT count(*) FROM r WHERE r.k = l.k) AS n FROM l",
            "SELECT id, (SELECT sum(r.x) FROM r WHERE r.k = l.k AND r.z > 2) AS n FROM l WHERE b",
            "SELECT k, sum(x) AS s FROM l GROUP BY k HAVING sum(x) > (SELECT sum(x) / 20 FROM l)",
            "SELECT s, count(*) AS n FROM l GROUP BY s HAVING count(*) > (SELECT count(*) FROM r WHERE r.z = 13)",
            "SELECT (SELECT max(id) FROM l) - (SELECT max(id) FROM r) AS difference, count(*) AS n FROM p",
            "SELECT id FROM l WHERE id = (SELECT max(id) FROM l WHERE k = (SELECT min(k) FROM p))",
        ]
        .map(String::from),
    );
}

#[test]
fn a_scalar_of_two_rows_is_an_error() {
    let fixture = fixture();
    fixture.check_error("SELECT id FROM l WHERE k = (SELECT k FROM r WHERE id < 2)");
    // The session lives on.
    fixture.check("SELECT count(*) AS n FROM l WHERE k = (SELECT max(k) FROM r WHERE id < 2)");
}

#[test]
fn common_table_expressions_and_derived_tables() {
    check_all(
        &fixture(),
        [
            "WITH t AS (SELECT k, sum(x) AS s, count(*) AS n FROM l GROUP BY k) \
             SELECT a.k, a.s, b.n FROM t a JOIN t b ON a.n = b.n AND a.k <> b.k",
            "WITH t AS (SELECT k, sum(x) AS s FROM l GROUP BY k) SELECT k FROM t WHERE s = (SELECT max(s) FROM t)",
            "SELECT n, count(*) AS m FROM (SELECT l.k, count(r.id) AS n FROM l LEFT JOIN r ON l.k = r.k AND r.s IS NOT NULL \
             GROUP BY l.k) GROUP BY n",
            "SELECT avg(n) AS a, max(n) AS b FROM (SELECT count(*) AS n FROM l GROUP BY k, z)",
            "SELECT a.k, a.t, b.t AS u FROM (SELECT k, sum(z) AS t FROM l GROUP BY k) a \
             FULL JOIN (SELECT k, sum(z) AS t FROM r GROUP BY k) b ON a.k = b.k",
            "SELECT DISTINCT a.k FROM (SELECT k FROM l WHERE z > 2) a WHERE a.k NOT IN (SELECT u FROM p WHERE u > 3)",
        ]
        .map(String::from),
    );
}

/// Two and three existence tests of one table by the same keys: a scan marks for all of them.
#[test]
fn existence_of_one_table_in_one_scan() {
    let rows = |step: u32, rows: u32| {
        format!(
            "SELECT value AS id, CASE WHEN value % 11 = 0 THEN NULL ELSE value * {step} % 97 END AS k, value % 7 AS v, \
             CASE WHEN value % 5 = 0 THEN NULL ELSE concat('ü', value % 3) END AS s FROM generate_series(1, {rows})"
        )
    };
    let fixture = Fixture::device()
        .table_from("few", &rows(5, 33))
        .table_from("one", &rows(3, 1))
        .table_from("many", &rows(3, 3000))
        .table_from("none", "SELECT value AS id, value AS k, value AS v, 'a' AS s FROM generate_series(1, 9) WHERE value < 0")
        .table_from("nulls", "SELECT value AS id, CAST(NULL AS BIGINT) AS k, value % 7 AS v, CAST(NULL AS VARCHAR) AS s FROM generate_series(1, 40)");
    let marked = "SELECT id, s FROM few x WHERE EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v <> x.v) \
                  AND NOT EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v <> x.v AND y.id > 2500)";
    fixture.check(marked);
    let plan = fixture.explain(marked);
    assert!(plan.contains(", again if"), "{plan}");
    let conditions = [
        "y.v <> x.v",
        "y.v > x.v AND y.id < 40",
        "y.id % 3 = 1",
        "y.s = 'ü1' AND x.v > 2",
        "y.s < x.s AND y.id < 1000",
    ];
    let mut queries = Vec::new();
    for (at, first) in conditions.iter().enumerate() {
        let second = conditions[(at + 2) % conditions.len()];
        let third = conditions[(at + 1) % conditions.len()];
        for keys in ["y.k = x.k", "y.id = x.id", "y.k = x.k AND y.s = x.s"] {
            let test = |not: &str, condition: &str| {
                format!("{not} EXISTS (SELECT 1 FROM {{right}} y WHERE {keys} AND {condition})")
            };
            queries.push(format!("{} AND {}", test("", first), test("NOT", second)));
            queries.push(format!(
                "{} AND {} AND {}",
                test("NOT", first),
                test("NOT", second),
                test("", third)
            ));
            queries.push(format!("{} AND {}", test("", first), test("", first)));
        }
    }
    let sides = [
        ("few", "many"),
        ("one", "many"),
        ("few", "none"),
        ("none", "many"),
        ("nulls", "many"),
        ("few", "nulls"),
    ];
    let queries = queries.iter().enumerate().flat_map(|(at, tests)| {
        // Every query of the first sides, and in turn of one of the others.
        [sides[0], sides[1 + at % (sides.len() - 1)]].map(|(left, right)| {
            let tests = tests.replace("{right}", right);
            format!("SELECT id, k, s FROM {left} x WHERE {tests}")
        })
    });
    let queries: Vec<String> = queries.collect();
    check_all(&fixture, queries);
    check_all(
        &fixture,
        [
            // Divides by zero for rows that the first test leaves out: that is no error.
            "SELECT id FROM few x WHERE EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v < x.v) \
             AND NOT EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND 10 / x.v < y.v)",
            // Other keys, another table, a condition on what the first test left.
            "SELECT id FROM few x WHERE EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v <> x.v) \
             AND NOT EXISTS (SELECT 1 FROM many y WHERE y.id = x.id AND y.v = x.v)",
            "SELECT id FROM few x WHERE EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v <> x.v) \
             AND NOT EXISTS (SELECT 1 FROM nulls y WHERE y.k = x.k AND y.v <> x.v)",
            "SELECT n, count(*) AS c FROM (SELECT id % 4 AS n, k, v FROM few x WHERE EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v <> x.v)) z \
             WHERE NOT EXISTS (SELECT 1 FROM many y WHERE y.k = z.k AND y.v < z.v AND y.id > 2000) AND n > 0 GROUP BY n",
            "SELECT x.id, z.id FROM few x JOIN few z ON x.k = z.k WHERE EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v <> z.v) \
             AND NOT EXISTS (SELECT 1 FROM many y WHERE y.k = x.k AND y.v <> z.v AND y.id > 2990)",
        ]
        .map(String::from),
    );
}

/// Rows that a whole table has keys of, or not: the set of these keys stays on the device.
#[test]
fn the_keys_of_a_table_are_kept() {
    let fixture = Fixture::device()
        .table_from(
            "few",
            "SELECT value AS id, CASE WHEN value % 5 <> 0 THEN value * 7 END AS k FROM generate_series(1, 300)",
        )
        .table_from(
            "many",
            "SELECT value AS id, CASE WHEN value % 11 <> 3 THEN (value * 13) % 2500 END AS k FROM generate_series(1, 20000)",
        );
    let queries = [
        "SELECT id, k FROM few WHERE NOT EXISTS (SELECT 1 FROM many WHERE many.k = few.k) ORDER BY id",
        "SELECT id, k FROM few WHERE k IN (SELECT k FROM many) ORDER BY id",
        "SELECT count(*) AS n FROM few WHERE EXISTS (SELECT 1 FROM many WHERE many.k = few.k AND few.id > 7)",
    ];
    let kept = |sql: &str| {
        let plan = fixture.explain(&format!("ANALYZE {sql}"));
        plan.contains("build set (k)") && plan.contains("kept for later queries")
    };
    for sql in queries {
        // Built, then found.
        fixture.check(sql);
        fixture.check(sql);
        assert!(kept(sql), "{sql}");
    }
    fixture.set("warpline.index_joins", "off");
    for sql in queries {
        fixture.check(sql);
        assert!(!kept(sql), "{sql}");
    }
}

/// A subquery without a row is NULL, also where its column never is: plain DataFusion believes the column.
#[test]
fn no_row_of_a_column_without_nulls() {
    let fixture = fixture().table_from(
        "known",
        "SELECT value AS v FROM generate_series(1, 40) t(value)",
    );
    for (written, meant) in [
        ("(SELECT v FROM known WHERE v > 90)", "CAST(NULL AS BIGINT)"),
        ("(SELECT v FROM known WHERE v > 90) IS NULL", "true"),
        (
            "coalesce((SELECT v FROM known WHERE v > 90), k)",
            "CAST(k AS BIGINT)",
        ),
        ("(SELECT v FROM known WHERE v = 7) + k", "7 + k"),
        (
            "(SELECT v FROM known WHERE v = l.k) IS NULL",
            "k IS NULL OR k NOT BETWEEN 1 AND 40",
        ),
        (
            "coalesce((SELECT count(*) FROM known WHERE v = l.k GROUP BY v), -1)",
            "CASE WHEN k BETWEEN 1 AND 40 THEN 1 ELSE -1 END",
        ),
    ] {
        let expected = fixture.expect(&format!("SELECT id, {meant} AS x FROM l"));
        let run = fixture.run(&format!("SELECT id, {written} AS x FROM l"));
        assert_eq!(expected.difference(&run.expect(written)), None, "{written}");
    }
}
