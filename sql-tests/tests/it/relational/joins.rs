//! Every kind of join over every kind of key.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use warpline_sql_tests::Fixture;

use super::tables::{fixture, with_tables};
use crate::operators::support::check_all;

/// Conditions between `a` and `b`, with what is special about them.
pub(super) const CONDITIONS: [&str; 20] = [
    // One key of each type.
    "a.k = b.k",
    "a.z = b.z",
    "a.w = b.w",
    "a.s = b.s",
    "a.d = b.d",
    "a.x = b.x",
    "a.b = b.b",
    // At most one match.
    "a.k = b.u",
    "a.u = b.u",
    // Several keys.
    "a.k = b.k AND a.s = b.s",
    "a.d = b.d AND a.b = b.b AND a.z = b.z",
    "a.w = b.w AND a.x = b.x AND a.s = b.s",
    // More than the keys.
    "a.k = b.k AND a.x < b.x",
    "a.k = b.u AND a.s <> b.s",
    "a.s = b.s AND a.id % 2 = 0 AND b.id % 3 = 0",
    // NULL equals NULL.
    "a.k IS NOT DISTINCT FROM b.k",
    "(a.s IS NOT DISTINCT FROM b.s) AND a.k = b.k",
    // Computed keys, and keys of different types.
    "a.k + 1 = b.k",
    "a.k = b.z",
    "upper(a.s) = b.s",
];

fn each_condition(kind: &str, left: &str, right: &str) -> impl Iterator<Item = String> {
    CONDITIONS.into_iter().map(move |condition| {
        format!(
            "SELECT a.id AS i, b.id AS j, a.s AS s, b.x AS x, b.d AS d FROM {left} a {kind} JOIN {right} b ON {condition}"
        )
    })
}

#[test]
fn inner() {
    check_all(&fixture(), each_condition("INNER", "l", "r"));
}

#[test]
fn left() {
    check_all(&fixture(), each_condition("LEFT", "l", "r"));
}

/// Asked of a column that has a value in every match, and of one that may be NULL there too.
#[test]
fn left_rows_without_a_match() {
    let queries = CONDITIONS.into_iter().flat_map(|condition| {
        let column = condition.rsplit("b.").next();
        let column = column.and_then(|rest| rest.split(|c: char| !c.is_alphabetic()).next());
        let columns = ["id", column.unwrap_or("id"), "x"].into_iter();
        columns.map(move |column| {
            format!(
                "SELECT a.id AS i, a.s AS s, b.id AS j, upper(b.s) AS t, b.x + 1 AS x, b.k IS NULL AS k \
                 FROM l a LEFT JOIN r b ON {condition} WHERE b.{column} IS NULL"
            )
        })
    });
    check_all(&fixture(), queries);
}

#[test]
fn right() {
    check_all(&fixture(), each_condition("RIGHT", "l", "p"));
}

#[test]
fn full() {
    check_all(&fixture(), each_condition("FULL", "l", "r"));
}

#[test]
fn semi_and_anti() {
    let fixture = fixture();
    for kind in ["LEFT SEMI", "LEFT ANTI", "RIGHT SEMI", "RIGHT ANTI"] {
        let side = if kind.starts_with("LEFT") { "a" } else { "b" };
        check_all(
            &fixture,
            CONDITIONS.into_iter().map(|condition| {
                format!(
                    "SELECT {side}.id AS i, {side}.s AS s FROM l a {kind} JOIN r b ON {condition}"
                )
            }),
        );
    }
}

#[test]
fn without_keys() {
    check_all(
        &fixture(),
        [
            "SELECT a.id AS i, b.id AS j FROM p a CROSS JOIN one b",
            "SELECT a.id AS i, b.id AS j, b.s FROM p a, r b WHERE a.x IS NOT NULL AND b.z = 5",
            "SELECT count(*) AS n, sum(a.id * b.id) AS s FROM l a CROSS JOIN r b",
            "SELECT a.id AS i, b.id AS j FROM p a JOIN p b ON a.k < b.k",
            "SELECT a.id AS i, b.id AS j FROM p a LEFT JOIN p b ON a.k > b.k AND a.x <= b.x",
            "SELECT a.id AS i, b.id AS j FROM p a RIGHT JOIN p b ON a.d > b.d",
            "SELECT a.id AS i, b.id AS j FROM p a FULL JOIN p b ON a.k > b.k + 30",
            "SELECT a.id AS i FROM p a LEFT SEMI JOIN r b ON a.k > b.k AND a.x < b.x",
            "SELECT a.id AS i FROM p a LEFT ANTI JOIN r b ON a.k > b.k AND a.x < b.x",
            "SELECT a.id AS i, b.id AS j FROM p a CROSS JOIN e b",
            "SELECT a.id AS i, b.id AS j FROM p a LEFT JOIN e b ON true",
        ]
        .map(String::from),
    );
}

#[test]
fn with_an_empty_side_or_null_keys_alone() {
    let fixture = fixture();
    let mut queries = Vec::new();
    for kind in ["INNER", "LEFT", "RIGHT", "FULL"] {
        for (a, b) in [
            ("l", "e"),
            ("e", "l"),
            ("e", "e"),
            ("p", "n"),
            ("n", "p"),
            ("n", "n"),
        ] {
            for condition in ["a.k = b.k", "a.s = b.s AND a.k = b.k"] {
                queries.push(format!(
                    "SELECT a.id AS i, b.id AS j, b.s FROM {a} a {kind} JOIN {b} b ON {condition}"
                ));
            }
        }
        queries.push(format!(
            "SELECT a.id AS i, b.id AS j FROM n a {kind} JOIN n b ON a.k IS NOT DISTINCT FROM b.k"
        ));
        // Keys of which none matches.
        queries.push(format!(
            "SELECT a.id AS i, b.id AS j FROM l a {kind} JOIN p b ON a.k + 1000 = b.k"
        ));
    }
    for kind in ["LEFT SEMI", "LEFT ANTI"] {
        for (a, b) in [("l", "e"), ("e", "l"), ("p", "n"), ("n", "p")] {
            queries.push(format!(
                "SELECT a.id AS i FROM {a} a {kind} JOIN {b} b ON a.k = b.k"
            ));
        }
    }
    check_all(&fixture, queries);
}

#[test]
fn several_in_a_row() {
    check_all(
        &fixture(),
        [
            "SELECT a.id AS i, b.id AS j, c.id AS m FROM l a JOIN r b ON a.k = b.k JOIN p c ON b.u = c.u",
            "SELECT a.id AS i, b.id AS j, c.id AS m FROM l a LEFT JOIN r b ON a.k = b.k AND b.z > 2 \
             LEFT JOIN p c ON b.u = c.u",
            "SELECT a.id AS i, c.s FROM l a JOIN (SELECT k, max(s) AS s FROM r GROUP BY k) c ON a.k = c.k",
            "SELECT c.s, count(*) AS n, sum(a.x) AS x FROM l a JOIN p c ON a.k = c.u JOIN r b ON b.s = c.s \
             WHERE b.x > 0 AND a.b GROUP BY c.s",
            "SELECT count(*) AS n FROM l a JOIN r b ON a.k = b.k JOIN r c ON a.k = c.k AND b.id < c.id",
            // The same table three times.
            "SELECT count(*) AS n, sum(a.id) AS i, sum(c.id) AS m FROM p a, p b, p c WHERE a.z = b.z AND b.k = c.u",
            // A triangle, and a star.
            "SELECT count(*) AS n FROM l a, r b, p c WHERE a.k = b.k AND b.z = c.z AND c.s = a.s",
            "SELECT count(*) AS n, min(b.s) AS lo, max(c.x) AS hi, sum(d.id) AS t FROM l a, r b, p c, p d \
             WHERE a.k = b.u AND a.u = c.u AND a.k = d.u",
            "SELECT a.id AS i, b.id AS j FROM l a FULL JOIN r b ON a.k = b.u FULL JOIN p c ON a.u = c.u \
             WHERE c.id IS NULL OR a.id < 50",
            "SELECT a.s, b.s AS t, count(*) AS n FROM l a RIGHT JOIN r b ON a.k = b.k AND a.x = b.x GROUP BY a.s, b.s",
            // Filters on either side of an outer join.
            "SELECT a.id AS i, b.id AS j FROM l a LEFT JOIN r b ON a.k = b.k WHERE b.id IS NULL",
            "SELECT a.id AS i, b.id AS j FROM l a LEFT JOIN r b ON a.k = b.k AND a.z = 3 WHERE coalesce(b.z, 2) = 2",
            "SELECT a.id AS i, b.id AS j FROM l a FULL JOIN r b ON a.s = b.s AND a.k = b.k WHERE a.id IS NULL OR b.id IS NULL",
        ]
        .map(String::from),
    );
}

/// Equalities over several tables, and NULLs that are equal in one join alone.
#[test]
fn conditions_outlive_another_order() {
    let fixture = fixture();
    for (written, meant) in [
        (
            "SELECT a.id AS i, b.id AS j, c.id AS m FROM p a CROSS JOIN p b JOIN p c ON a.z = c.z AND a.k + b.k = c.k",
            "SELECT a.id AS i, b.id AS j, c.id AS m FROM p a, p b, p c WHERE a.z = c.z AND a.k + b.k - c.k = 0",
        ),
        (
            "SELECT a.id AS i, b.id AS j, c.id AS m FROM p a JOIN p c ON a.k IS NOT DISTINCT FROM c.k JOIN p b ON c.u = b.u",
            "SELECT a.id AS i, b.id AS j, c.id AS m FROM p a, p b, p c WHERE (a.k = c.k OR a.k IS NULL AND c.k IS NULL) AND c.u = b.u",
        ),
    ] {
        let expected = fixture.expect(meant);
        let run = fixture.run(written);
        let run = run.unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(expected.difference(&run), None, "{written}");
    }
}

#[test]
fn using_and_natural() {
    let fixture = fixture();
    check_all(
        &fixture,
        [
            "SELECT k, a.id AS i, b.id AS j FROM l a JOIN p b USING (k)",
            "SELECT count(*) AS n FROM (SELECT k, s FROM l) a NATURAL JOIN (SELECT k, s, id FROM r) b",
        ]
        .map(String::from),
    );
    // DataFusion takes the columns from the left side, which has none where it finds no match.
    let expected = fixture.expect(
        "SELECT coalesce(a.k, b.k) AS k, coalesce(a.s, b.s) AS s, a.id AS i, b.id AS j FROM l a FULL JOIN p b ON a.k = b.k AND a.s = b.s",
    );
    let run = fixture.run("SELECT k, s, a.id AS i, b.id AS j FROM l a FULL JOIN p b USING (k, s)");
    assert_eq!(expected.difference(&run.expect("an answer")), None);
}

/// One key matches everything, far more pairs than rows; others match nothing.
#[test]
fn fan_out_of_a_million() {
    let fixture = fixture()
        .table_from(
            "many",
            "SELECT CASE WHEN value % 1000 = 7 THEN value ELSE 5 END AS k, value AS v FROM generate_series(1, 1000)",
        )
        .table_from(
            "wide",
            "SELECT CASE WHEN value % 1000 = 9 THEN value ELSE 5 END AS k, value AS v FROM generate_series(1, 1002)",
        )
        .table_from("million", "SELECT 5 AS k, value AS v FROM generate_series(1, 1000000)")
        .table_from("few", "SELECT value AS k, value * 10 AS v FROM generate_series(4, 6)");
    check_all(
        &fixture,
        [
            "SELECT count(*) AS n, sum(a.v) AS s, sum(a.v * b.v) AS t FROM many a JOIN wide b ON a.k = b.k",
            "SELECT count(*) AS n, count(b.v) AS m, sum(b.v) AS s FROM many a LEFT JOIN wide b ON a.k = b.k",
            "SELECT count(*) AS n, sum(m.v + f.v) AS s FROM few f JOIN million m ON f.k = m.k",
            "SELECT count(*) AS n, count(m.v) AS k, sum(f.v) AS s FROM few f LEFT JOIN million m ON f.k = m.k",
            "SELECT f.k, count(*) AS n FROM few f FULL JOIN million m ON f.k = m.k AND m.v > 10 GROUP BY f.k",
            "SELECT f.k FROM few f WHERE EXISTS (SELECT 1 FROM million m WHERE m.k = f.k AND m.v > f.v)",
        ]
        .map(String::from),
    );
}

#[test]
fn skewed_keys() {
    let fixture = with_tables(Fixture::device())
        .table_from(
            "fact",
            "SELECT CASE WHEN value % 10 < 8 THEN 1 ELSE value % 997 END AS k, value AS v FROM generate_series(1, 60000)",
        )
        .table_from("dim", "SELECT value AS k, value % 7 AS g, concat('name ', value % 13) AS s FROM generate_series(0, 800)");
    check_all(
        &fixture,
        [
            "SELECT d.g, count(*) AS n, sum(f.v) AS s FROM fact f JOIN dim d ON f.k = d.k GROUP BY d.g",
            "SELECT d.s, count(*) AS n FROM fact f RIGHT JOIN dim d ON f.k = d.k AND f.v % 100 = 3 GROUP BY d.s",
            "SELECT count(*) AS n, sum(f.v) AS s FROM fact f LEFT JOIN dim d ON f.k = d.k WHERE d.k IS NULL",
        ]
        .map(String::from),
    );
}

/// Zeros of both signs are one key, NaN is another; values keep their signs.
#[test]
fn float_keys() {
    let floats = |rows: usize, step: usize| {
        format!(
            "SELECT value AS id, CASE value * {step} % 8 WHEN 0 THEN 0.0 WHEN 1 THEN -0.0 WHEN 2 THEN CAST('NaN' AS DOUBLE) \
             WHEN 3 THEN CAST('inf' AS DOUBLE) WHEN 4 THEN -1.5 WHEN 5 THEN 0.25 WHEN 6 THEN cast(value AS double) END AS f, \
             arrow_cast(CASE WHEN value % 3 = 0 THEN -0.0 ELSE value % 5 END, 'Float32') AS g FROM generate_series(1, {rows})"
        )
    };
    let fixture = fixture()
        .table_from("fa", &floats(40, 1))
        .table_from("fb", &floats(33, 3));
    let kinds = ["INNER", "LEFT", "RIGHT", "FULL"];
    let mut queries: Vec<String> = kinds
        .iter()
        .flat_map(|kind| {
            ["a.f = b.f", "a.g = b.g", "a.f = b.f AND a.g = b.g"].map(|condition| {
                format!(
                    "SELECT a.id AS i, b.id AS j, a.f AS f, b.f AS h, a.g AS g FROM fa a {kind} JOIN fb b ON {condition}"
                )
            })
        })
        .collect();
    queries.extend(
        [
            "SELECT id, f FROM fa WHERE f IN (SELECT f FROM fb)",
            "SELECT id, f FROM fa a WHERE NOT EXISTS (SELECT 1 FROM fb b WHERE a.f = b.f)",
            "SELECT id FROM fa WHERE g NOT IN (SELECT g FROM fb WHERE id > 5)",
            "SELECT a.id, c.id FROM fa a JOIN fb b ON a.f = b.f JOIN l c ON b.f = c.f",
            "SELECT b.f, count(*) AS n, sum(a.id) AS s FROM fa a JOIN fb b ON a.f = b.f GROUP BY b.f",
            "SELECT a.id, b.id FROM fa a JOIN fb b ON a.f IS NOT DISTINCT FROM b.f",
        ]
        .map(String::from),
    );
    check_all(&fixture, queries);
}

/// Comparisons without a key: some row of the other side is less, greater or another.
#[test]
fn existence_by_comparison_alone() {
    let queries = ["<", "<=", ">", ">=", "<>"].into_iter().flat_map(|op| {
        ["l", "e", "n", "one"].into_iter().flat_map(move |right| {
            ["EXISTS", "NOT EXISTS"].map(|exists| {
                format!(
                    "SELECT id, k FROM r a WHERE {exists} (SELECT 1 FROM {right} b WHERE a.k {op} b.k AND b.z > 1)"
                )
            })
        })
    });
    check_all(&fixture(), queries);
}

/// Keys of a wide range of which few occur, several rows each: they are numbered by a bitmap. Ends of the range, NULLs, rows
/// beyond it, every kind of join, conditions beside the key, matches that are marked.
#[test]
fn sparse_keys_with_several_rows() {
    let spread = |source: &str, step: u32, rows: u32| {
        format!(
            "SELECT value AS id, CASE WHEN value % 11 = 0 THEN NULL ELSE value * {step} % 37 * 400009 END AS k, value % 7 AS v \
             FROM {source}(1, {rows})"
        )
    };
    let fixture = Fixture::device()
        .table_from("a", &spread("generate_series", 5, 500))
        .table_from("b", &spread("generate_series", 3, 170))
        .table_from("c", &spread("generate_series", 1, 33))
        .table_from("none", "SELECT value AS id, value * 400009 AS k, value AS v FROM generate_series(1, 40) WHERE value < 0");
    let joined = "SELECT a.id, b.id FROM a JOIN b ON a.k = b.k";
    fixture.check(joined);
    // Ranges are known once the columns are there.
    let plan = fixture.explain(joined);
    assert!(plan.contains("numbered by a bitmap"), "{plan}");
    let mut queries = Vec::new();
    for right in ["b", "c", "none", "a"] {
        for kind in ["INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"] {
            for beside in ["", " AND x.v < y.v", " AND x.id % 3 = y.id % 3"] {
                let columns = match kind {
                    "LEFT SEMI" | "LEFT ANTI" => "x.id AS i, x.k AS k",
                    _ => "x.id AS i, y.id AS j, x.k AS k, y.v AS v",
                };
                queries.push(format!(
                    "SELECT {columns} FROM a x {kind} JOIN {right} y ON x.k = y.k{beside}"
                ));
            }
        }
        for exists in ["EXISTS", "NOT EXISTS"] {
            queries.push(format!(
                "SELECT x.id FROM a x WHERE {exists} (SELECT 1 FROM {right} y WHERE y.k = x.k AND y.v <> x.v)"
            ));
            queries.push(format!(
                "SELECT y.v, count(*) AS n, sum(x.id) AS s FROM a x JOIN {right} y ON x.k = y.k \
                 WHERE {exists} (SELECT 1 FROM b z WHERE z.k = x.k AND z.v <> x.v) GROUP BY y.v"
            ));
        }
    }
    check_all(&fixture, queries);
}

/// Two columns of one name lie side by side above a join: a condition on one of them is none on the other.
#[test]
fn columns_of_one_name() {
    let fixture = Fixture::device()
        .table_from(
            "a",
            "SELECT value AS id, value % 5 AS k, 'y' || value AS s, value AS amount FROM generate_series(1, 100)",
        )
        .table_from(
            "b",
            "SELECT value AS id, value % 5 AS k, 'x' || value AS s, 101 - value AS amount FROM generate_series(1, 100)",
        )
        .table_from("c", "SELECT value AS id FROM generate_series(1, 100)");
    let rows = |sql: &str| -> usize {
        let run = fixture.check(sql);
        run.batches.iter().map(RecordBatch::num_rows).sum()
    };
    // Every row of `b` begins with an x, and none of `a`.
    for (join, expected) in [("FULL", 1_000), ("RIGHT", 1_000), ("INNER", 1_000)] {
        let sql = format!(
            "SELECT a.s AS x, b.s AS y FROM b {join} JOIN a ON a.k = b.k \
             WHERE a.id <= 50 AND coalesce(b.s, 'x') LIKE 'x%'"
        );
        assert_eq!(rows(&sql), expected, "{sql}");
    }
    let sql = "SELECT a.s AS x, b.s AS y FROM a LEFT JOIN b ON a.id = b.id + 50 WHERE coalesce(b.s, 'none') = 'none'";
    assert_eq!(rows(sql), 50);
    let least = "SELECT a.amount AS x, b.amount AS y FROM a JOIN b ON a.id = b.id JOIN c ON b.id = c.id \
                 ORDER BY b.amount LIMIT 1";
    let run = fixture.check(least);
    let number = |at: usize| {
        let column = run.batches[0].column(at);
        column.as_primitive::<Int64Type>().value(0)
    };
    assert_eq!([number(0), number(1)], [100, 1]);
}

/// A total has a row also where the join has none: no left row stands for it.
#[test]
fn totals_of_joins_without_rows() {
    let mut queries = Vec::new();
    for left in ["e", "one", "n", "l"] {
        for right in ["e", "one", "p"] {
            for kind in ["LEFT", "INNER", "FULL"] {
                let from = format!("{left} a {kind} JOIN {right} b ON a.k = b.u");
                queries.push(format!(
                    "SELECT sum(b.x) AS s, count(b.f) AS c, min(b.d) AS lo FROM {from}"
                ));
                queries.push(format!(
                    "SELECT a.u AS u, sum(b.x) AS s, count(b.f) AS c FROM {from} GROUP BY a.u"
                ));
            }
        }
    }
    check_all(&fixture(), queries);
}
