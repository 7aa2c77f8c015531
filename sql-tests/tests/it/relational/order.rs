//! ORDER BY over every type of key, both directions, NULLs at either end, with and without limits.

use arrow::util::pretty::pretty_format_batches;
use warpline_sql_tests::Fixture;
use warpline_tpch::QueryRun;

use super::tables::fixture;
use crate::operators::support::check_all;

const DIRECTIONS: [&str; 4] = [
    "ASC NULLS FIRST",
    "ASC NULLS LAST",
    "DESC NULLS FIRST",
    "DESC NULLS LAST",
];

/// The last key makes the order unique, so that rows compare one by one.
#[test]
fn by_each_type() {
    let fixture = fixture();
    for direction in DIRECTIONS {
        check_all(
            &fixture,
            ["k", "z", "w", "s", "d", "x", "f", "b", "upper(s)", "-k"].map(|key| {
                format!("SELECT id, k, z, w, s, d, x, f, b FROM l ORDER BY {key} {direction}, id")
            }),
        );
    }
}

/// Plain DataFusion takes a name within an aggregate for the output's, and has no plan.
#[test]
fn by_aggregates_of_what_is_called_like_an_output() {
    let fixture = fixture();
    for (written, meant) in [
        (
            "SELECT s, sum(x) AS x FROM l GROUP BY s ORDER BY sum(x) DESC, s",
            "SELECT s, sum(x) AS y FROM l GROUP BY s ORDER BY y DESC, s",
        ),
        (
            "SELECT max(k) AS k, count(*) FROM l GROUP BY z ORDER BY max(k) NULLS FIRST, z LIMIT 5",
            "SELECT max(k) AS y, count(*) FROM l GROUP BY z ORDER BY y NULLS FIRST, z LIMIT 5",
        ),
        (
            "SELECT b, avg(k) AS k FROM l GROUP BY b ORDER BY min(k), b",
            "SELECT b, y FROM (SELECT b, avg(k) AS y, min(k) AS m FROM l GROUP BY b) ORDER BY m, b",
        ),
    ] {
        let run = fixture.run(written).expect(written);
        let rows = |table: &QueryRun| {
            let table = pretty_format_batches(&table.batches).expect("a table");
            let lines = table.to_string();
            let lines = lines.lines().filter(|line| line.starts_with('|')).skip(1);
            let cells = lines.map(|line| line.split('|').map(|c| c.trim().to_string()).collect());
            cells.collect::<Vec<Vec<String>>>()
        };
        let other = fixture.run(meant).expect(meant);
        assert_eq!(fixture.expect(meant).difference(&other), None, "{meant}");
        assert_eq!(rows(&run), rows(&other), "{written}");
    }
}

#[test]
fn by_several_keys() {
    check_all(
        &fixture(),
        [
            "SELECT id, k, s FROM l ORDER BY s DESC NULLS LAST, k NULLS FIRST, id DESC",
            "SELECT id, w, x, d FROM l ORDER BY w, x DESC, d NULLS FIRST, id",
            "SELECT z, b, s, x, id FROM l ORDER BY z DESC, b, s, x, id",
            "SELECT id, k + z AS t FROM l ORDER BY t DESC NULLS LAST, id",
            "SELECT k, count(*) AS n FROM l GROUP BY k ORDER BY n DESC, k NULLS FIRST",
            "SELECT s, sum(x) AS t FROM l GROUP BY s ORDER BY t NULLS LAST, s",
            "SELECT l.id AS i, r.id AS j FROM l JOIN r ON l.k = r.k ORDER BY r.s NULLS FIRST, l.id, r.id DESC",
            "SELECT id FROM e ORDER BY id",
            "SELECT id, k FROM n ORDER BY k, id DESC",
        ]
        .map(String::from),
    );
}

#[test]
fn top_k() {
    let fixture = fixture();
    let mut queries = Vec::new();
    for direction in DIRECTIONS {
        for (limit, offset) in [
            (1, 0),
            (10, 0),
            (10, 5),
            (1000, 0),
            (5, 298),
            (3, 500),
            (0, 0),
        ] {
            queries.push(format!(
                "SELECT id, k, s FROM l ORDER BY k {direction}, id LIMIT {limit} OFFSET {offset}"
            ));
        }
        queries.push(format!(
            "SELECT s, id FROM l ORDER BY s {direction}, id LIMIT 20"
        ));
        queries.push(format!(
            "SELECT k, sum(x) AS t FROM l GROUP BY k ORDER BY t {direction}, k LIMIT 6"
        ));
    }
    queries.push("SELECT l.id AS i, r.id AS j, l.x FROM l JOIN r ON l.k = r.k ORDER BY l.x DESC, l.id, r.id LIMIT 10".into());
    queries.push(
        "SELECT * FROM (SELECT id, k FROM l ORDER BY k, id LIMIT 50) ORDER BY id DESC LIMIT 7"
            .into(),
    );
    queries.push(
        "SELECT sum(k) AS s FROM (SELECT k FROM l ORDER BY k DESC NULLS LAST, id LIMIT 9)".into(),
    );
    check_all(&fixture, queries);
}

/// Which rows a limit without an order keeps is not determined; how many is.
#[test]
fn limits_alone() {
    check_all(
        &fixture(),
        [
            "SELECT count(*) AS n FROM (SELECT id FROM l LIMIT 7)",
            "SELECT count(*) AS n FROM (SELECT id FROM l WHERE z > 2 LIMIT 7 OFFSET 3)",
            "SELECT count(*) AS n FROM (SELECT id FROM l LIMIT 1000 OFFSET 290)",
            "SELECT count(*) AS n FROM (SELECT id FROM l OFFSET 299)",
            "SELECT count(*) AS n FROM (SELECT id FROM e LIMIT 5)",
            "SELECT count(*) AS n FROM (SELECT DISTINCT k FROM l LIMIT 11)",
            "SELECT count(*) AS n FROM (SELECT l.id FROM l JOIN r ON l.k = r.k LIMIT 100)",
        ]
        .map(String::from),
    );
}

/// Where a join keeps the order of the rows that probe, DataFusion takes the sort above it away, and counts on that order
/// for the limit.
#[test]
fn limits_over_joins_that_keep_an_order() {
    let fixture = Fixture::device()
        .table_from(
            "a",
            "SELECT 2000 - value AS k, value % 1000 AS v FROM generate_series(1, 1000)",
        )
        .table_from(
            "b",
            "SELECT value AS k, value * 10 AS w FROM generate_series(500, 1600, 3)",
        );
    fixture.set("datafusion.execution.target_partitions", "1");
    let inner = "(SELECT * FROM a ORDER BY k LIMIT 900)";
    check_all(
        &fixture,
        [
            format!(
                "SELECT * FROM (SELECT i.k, i.v, b.w FROM {inner} i LEFT JOIN b ON i.k = b.k) ORDER BY k LIMIT 20"
            ),
            format!(
                "SELECT * FROM (SELECT i.k, b.w FROM b RIGHT JOIN {inner} i ON i.k = b.k) ORDER BY k LIMIT 20 OFFSET 5"
            ),
            format!(
                "SELECT * FROM (SELECT i.k, b.w FROM b JOIN {inner} i ON i.k = b.k WHERE i.v > 3) ORDER BY k LIMIT 20"
            ),
            format!(
                "SELECT count(*), sum(k) FROM (SELECT i.k FROM {inner} i LEFT JOIN b ON i.k = b.k ORDER BY i.k LIMIT 20)"
            ),
        ],
    );
}

/// Windows on the CPU over rows from the device: which columns are constant or equal decides whether their rows come in the
/// order that they need.
#[test]
fn windows_over_constant_and_equal_columns() {
    let fixture = Fixture::relaxed().table_from(
        "t",
        "SELECT value % 3 AS a, value % 7 AS b, value AS c FROM generate_series(1, 500)",
    );
    for partitions in ["1", "3"] {
        fixture.set("datafusion.execution.target_partitions", partitions);
        for sql in [
            "SELECT a, b, c, rank() OVER (PARTITION BY a ORDER BY b) AS r FROM t WHERE a = 1 AND c > 10",
            "SELECT b, c, d, sum(c) OVER (PARTITION BY a, b ORDER BY c ROWS 2 PRECEDING) AS x, \
             sum(c) OVER (PARTITION BY b, d ORDER BY c ROWS 2 PRECEDING) AS y \
             FROM (SELECT a, b, c, a AS d FROM t) ORDER BY c",
        ] {
            let plan = fixture.explain(sql);
            assert!(plan.contains("GpuFragmentExec"), "{plan}");
            fixture.check(sql);
        }
    }
}

#[test]
fn many_rows() {
    let fixture = fixture().table_from(
        "g",
        "SELECT value AS v, (value * 7919) % 100003 AS k, CASE WHEN value % 11 = 0 THEN NULL ELSE value % 5 END AS m, \
         concat('s', value % 1000) AS s FROM generate_series(1, 100000)",
    );
    check_all(
        &fixture,
        [
            "SELECT v, k FROM g ORDER BY k DESC",
            "SELECT v, m, s FROM g ORDER BY m NULLS FIRST, s DESC, v LIMIT 1000",
            "SELECT s, max(v) AS v FROM g GROUP BY s ORDER BY v DESC LIMIT 25 OFFSET 10",
        ]
        .map(String::from),
    );
}

/// Each row as text, in the order of texts.
fn lines(run: &QueryRun) -> Vec<String> {
    let text = pretty_format_batches(&run.batches)
        .expect("text")
        .to_string();
    let rows = text.lines().filter(|line| line.starts_with('|'));
    // The first has the names; the width of a column depends on its values.
    let cells = rows
        .skip(1)
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let mut lines: Vec<String> = cells.map(|cells| cells.join("|")).collect();
    lines.sort();
    lines
}

/// Any rows will do without an order, but they must be of the answer, none more often than there, and as many as there are.
#[test]
fn any_rows_but_of_the_answer() {
    let fixture = fixture();
    for all in [
        "SELECT id, s FROM l",
        "SELECT id, x FROM l WHERE z > 2",
        "SELECT k, k + z AS t FROM l WHERE k > 100",
        "SELECT l.id, r.s FROM l JOIN r ON l.k = r.k",
        "SELECT l.id, r.id AS j FROM l LEFT JOIN r ON l.k = r.u",
        "SELECT l.id, r.id AS j FROM l FULL JOIN r ON l.u = r.u AND l.z > r.z",
        "SELECT l.id FROM l, p WHERE l.k < p.k",
        "SELECT k FROM l UNION ALL SELECT u FROM p UNION ALL SELECT k FROM e",
        "SELECT s FROM l UNION SELECT s FROM r",
        "SELECT k, count(*) AS n, max(s) AS m FROM l GROUP BY k",
        "SELECT DISTINCT z, b FROM l",
        "SELECT count(*) AS n FROM l WHERE z > 2",
        "SELECT id FROM l WHERE k IN (SELECT k FROM r LIMIT 100000)",
        "SELECT id, s FROM e",
    ] {
        let rows = lines(&fixture.check(all));
        for (limit, offset) in [
            (0, 0),
            (1, 0),
            (7, 3),
            (20, 0),
            (1_000_000, 0),
            (5, 1_000_000),
            (1_000_000, 9),
        ] {
            let sql = format!("SELECT * FROM ({all}) LIMIT {limit} OFFSET {offset}");
            let some = lines(&fixture.run(&sql).unwrap_or_else(|e| panic!("{sql}: {e}")));
            assert_eq!(
                some.len(),
                rows.len().saturating_sub(offset).min(limit),
                "{sql}"
            );
            let mut rest = rows.iter();
            for line in &some {
                assert!(
                    rest.any(|row| row == line),
                    "{sql}: {line} is no row, or too often"
                );
            }
        }
    }
    // A limit over a limit: the smaller one counts, after the rows that are left out.
    for (inner, outer, rows) in [
        ("LIMIT 10 OFFSET 2", "LIMIT 20 OFFSET 4", 6),
        ("LIMIT 10", "LIMIT 3", 3),
        ("LIMIT 3", "LIMIT 10", 3),
        ("LIMIT 3", "OFFSET 5", 0),
        ("OFFSET 290", "LIMIT 100", 10),
    ] {
        for from in ["l", "(SELECT l.id FROM l LEFT JOIN p ON l.u = p.u)"] {
            let sql = format!("SELECT * FROM (SELECT id FROM {from} {inner}) {outer}");
            let some = fixture.run(&sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
            assert_eq!(some.rows(), rows, "{sql}");
        }
    }
}

/// Keys with the names of outputs that are something else, which DataFusion finds ambiguous.
#[test]
fn by_columns_behind_outputs_of_their_names() {
    let fixture = fixture();
    for (sql, expected) in [
        (
            "SELECT l.id, coalesce(l.k, 0) AS k FROM l ORDER BY l.k DESC NULLS LAST, l.id LIMIT 40",
            "SELECT id, y AS k FROM (SELECT id, coalesce(k, 0) AS y, k AS o FROM l) q \
             ORDER BY o DESC NULLS LAST, id LIMIT 40",
        ),
        (
            "SELECT id, upper(l.s) AS S, -l.z AS \"Z\" FROM l ORDER BY l.z + 1, \"Z\", 2, id",
            "SELECT id, y AS s, x AS \"Z\" FROM (SELECT id, upper(s) AS y, -z AS x, z + 1 AS o FROM l) q \
             ORDER BY o, x, y, id",
        ),
        (
            "WITH g AS (SELECT l.k, coalesce(sum(l.x), 0) AS x FROM l GROUP BY l.k, l.x ORDER BY l.x, l.k LIMIT 9) \
             SELECT count(*) AS n, sum(x) AS x FROM g",
            "SELECT count(*) AS n, sum(y) AS x FROM (SELECT k, coalesce(t, 0) AS y, x FROM \
             (SELECT k, x, sum(x) AS t FROM l GROUP BY k, x) a ORDER BY x, k LIMIT 9) q",
        ),
    ] {
        let expected = fixture.expect(expected);
        let run = fixture.run(sql).expect(sql);
        assert_eq!(expected.difference(&run), None, "{sql}");
        let explained = fixture.run(&format!("EXPLAIN {sql}"));
        assert!(explained.is_ok(), "{explained:?}");
    }
    // Ambiguous in truth.
    let error = fixture.check_error("SELECT k FROM l JOIN r ON l.id = r.id ORDER BY l.id");
    assert!(error.contains("mbiguous"), "{error}");
}
