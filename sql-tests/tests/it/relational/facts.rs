//! Facts that rewrites rely on, where they are strongest: tables of no row and of one, columns of one value, NULL keys, columns
//! that are unique but for a NULL, keys that follow from others only through a table that is joined.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray};
use warpline_sql_tests::Fixture;

use crate::operators::support::check_all;

fn ints(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn words(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// Tables to be joined by `k` that carry `name` and `kind`: `one` has one row, `none` no row, `void` one row with NULLs alone,
/// `some` several keys and one NULL, `all` every key of `f`, each once. `f` has facts with the keys `a` and `c`; `c` follows from
/// `a` in no row but those that `pair` joins. `flat` has a column of one value, `alike` equal ones in each of two columns.
fn fixture() -> Fixture {
    let dimension = |keys: &[Option<i64>], names: &[Option<&str>]| {
        let kinds: Vec<Option<i64>> = keys.iter().map(|k| k.map(|k| k % 2)).collect();
        vec![
            ("k", ints(keys)),
            ("name", words(names)),
            ("kind", ints(&kinds)),
        ]
    };
    let nothing = dimension(&[Some(1)], &[Some("one")])
        .into_iter()
        .map(|(name, array)| (name, array.slice(0, 0)));
    Fixture::device()
        .table("one", dimension(&[Some(1)], &[Some("one")]))
        .table("void", dimension(&[None], &[None]))
        .table("none", nothing)
        .table(
            "some",
            dimension(
                &[Some(2), None, Some(3)],
                &[Some("two"), Some("null"), None],
            ),
        )
        .table(
            "all",
            dimension(
                &[Some(1), Some(2), Some(3), Some(4)],
                &[Some("one"), Some("two"), Some("two"), None],
            ),
        )
        .table(
            "pair",
            [
                ("k", ints(&[Some(1), Some(2), Some(3), Some(4)])),
                ("k2", ints(&[Some(1), Some(1), Some(2), None])),
                ("name", words(&[Some("p"), Some("q"), Some("r"), Some("s")])),
            ],
        )
        .table(
            "f",
            [
                ("id", ints(&(0..8).map(Some).collect::<Vec<Option<i64>>>())),
                (
                    "a",
                    ints(&[
                        Some(1),
                        Some(1),
                        Some(2),
                        Some(3),
                        None,
                        Some(2),
                        None,
                        Some(1),
                    ]),
                ),
                (
                    "b",
                    ints(&[
                        Some(1),
                        Some(2),
                        Some(1),
                        Some(2),
                        Some(2),
                        Some(3),
                        None,
                        Some(1),
                    ]),
                ),
                (
                    "c",
                    ints(&[
                        Some(1),
                        Some(2),
                        Some(1),
                        Some(2),
                        Some(1),
                        Some(2),
                        Some(2),
                        Some(1),
                    ]),
                ),
                (
                    "z",
                    Arc::new(Float64Array::from(vec![
                        0.0, -0.0, 1.0, 0.0, -0.0, 1.0, 2.0, -0.0,
                    ])) as ArrayRef,
                ),
            ],
        )
        .table(
            "g",
            [
                ("w", ints(&[Some(1), Some(2), Some(1), Some(2), None])),
                ("z", ints(&[Some(1), Some(1), Some(2), Some(2), Some(1)])),
            ],
        )
        .table(
            "flat",
            [
                ("k", ints(&[Some(1), Some(2), Some(3)])),
                ("v", ints(&[Some(7), Some(7), Some(7)])),
                (
                    "narrow",
                    Arc::new(Int32Array::from(vec![1, 1, 1])) as ArrayRef,
                ),
            ],
        )
}

const DIMENSIONS: [&str; 5] = ["one", "void", "none", "some", "all"];

/// A dimension's columns are constant beside its one row, and follow from its key: not in rows that it is yet to be joined to.
#[test]
fn groups_by_columns_of_a_table_that_is_joined() {
    let mut queries = Vec::new();
    for dimension in DIMENSIONS {
        for (keys, calls) in [
            ("d.name, b", "count(*) AS n"),
            ("d.name, d.kind, b", "sum(f.id) AS s"),
            ("a, d.name", "count(*) AS n, max(c) AS m"),
            ("d.k, d.name, c", "count(*) AS n"),
            ("d.name, d.kind", "count(*) AS n, min(b) AS m"),
            ("a, b, c, d.name", "count(*) AS n"),
            ("f.id, a, d.name", "count(*) AS n"),
        ] {
            let joins = [
                ("JOIN", "a = d.k"),
                ("JOIN", "a = d.k AND c = d.kind"),
                ("LEFT JOIN", "a = d.k"),
                ("RIGHT JOIN", "a = d.k"),
                ("FULL JOIN", "a = d.k"),
                ("JOIN", "a IS NOT DISTINCT FROM d.k"),
                ("LEFT JOIN", "a IS NOT DISTINCT FROM d.k"),
            ];
            // Every join of the table of one row; of the others, those that groups may be made before.
            let several = if dimension == "one" { joins.len() } else { 2 };
            for (join, on) in &joins[..several] {
                queries.push(format!(
                    "SELECT {keys}, {calls} FROM f {join} {dimension} d ON {on} GROUP BY {keys}"
                ));
            }
        }
    }
    check_all(&fixture(), queries);
}

/// Of two tables the first may be joined late only if what it is found by follows from what is grouped without it.
#[test]
fn groups_by_columns_of_several_tables_that_are_joined() {
    let mut queries = Vec::new();
    for first in ["one", "some", "all"] {
        for second in ["one", "void", "all"] {
            let tables = format!("f JOIN {first} x ON a = x.k JOIN {second} y ON c = y.k");
            for keys in [
                "x.name, y.name",
                "a, x.name, y.name",
                "a, c, x.name, y.name",
                "b, x.name, y.kind",
            ] {
                queries.push(format!(
                    "SELECT {keys}, count(*) AS n, sum(f.id) AS s FROM {tables} GROUP BY {keys}"
                ));
            }
            let chain = format!("f JOIN {first} x ON a = x.k JOIN {second} y ON x.kind = y.k");
            for keys in ["a, x.name, y.name", "b, x.name, y.name", "x.k, y.name"] {
                queries.push(format!(
                    "SELECT {keys}, count(*) AS n FROM {chain} GROUP BY {keys}"
                ));
            }
        }
    }
    // Here `g.z` follows from `f.a` by way of `pair` alone, while `f` and `g` are joined by other keys as well.
    for keys in [
        "f.a, g.z, p.name",
        "p.name, p.k, g.z",
        "f.a, p.name",
        "f.a, f.b, g.z, p.name",
    ] {
        queries.push(format!(
            "SELECT {keys}, count(*) AS n, sum(f.id) AS s FROM f JOIN g ON f.c = g.w JOIN pair p ON f.a = p.k AND g.z = p.k2 \
             GROUP BY {keys}"
        ));
    }
    check_all(&fixture(), queries);
}

/// 0.0 and -0.0 are one group and two values.
#[test]
fn zeros_do_not_tell_what_is_computed_from_them() {
    check_all(
        &fixture(),
        [
            "SELECT z, r, count(*) AS n FROM (SELECT z, 1.0 / z AS r FROM f) GROUP BY z, r",
            "SELECT z, r, b, count(*) AS n FROM (SELECT z, b, 1.0 / z AS r FROM f) GROUP BY z, r, b",
            "SELECT DISTINCT z, -z AS m, 1.0 / z AS r FROM f",
            "SELECT z, a, count(*) AS n FROM f GROUP BY z, a",
            "SELECT DISTINCT z, 1.0 / z AS r, b FROM f",
            "SELECT z, 1.0 / z AS r, count(*) AS n FROM (SELECT DISTINCT z FROM f) GROUP BY z, 1.0 / z",
        ]
        .map(String::from),
    );
}

/// A constant column and a table of one row are keys like others.
#[test]
fn columns_of_one_value() {
    let mut queries: Vec<String> = [
        "SELECT v, k, count(*) AS n FROM flat GROUP BY v, k",
        "SELECT v, narrow, count(*) AS n FROM flat GROUP BY v, narrow",
        "SELECT f.id, v FROM f JOIN flat ON f.b = flat.narrow",
        "SELECT f.id FROM f WHERE a IN (SELECT narrow FROM flat)",
        "SELECT f.id FROM f WHERE a NOT IN (SELECT narrow FROM flat)",
        "SELECT f.id, flat.k FROM f LEFT JOIN flat ON f.a = flat.narrow AND f.c = flat.k",
        "SELECT f.id, v FROM f FULL JOIN flat ON f.id = flat.v",
        "SELECT v - 7 AS zero, count(*) AS n FROM flat GROUP BY v - 7",
        "SELECT v, k FROM flat ORDER BY v, k DESC",
        "SELECT max(v) AS m, sum(narrow) AS s, count(DISTINCT v) AS n FROM flat",
    ]
    .map(String::from)
    .into();
    for table in DIMENSIONS {
        queries.extend([
            format!("SELECT f.id FROM f WHERE a IN (SELECT k FROM {table})"),
            format!("SELECT f.id FROM f WHERE a NOT IN (SELECT k FROM {table})"),
            format!("SELECT f.id FROM f WHERE EXISTS (SELECT 1 FROM {table} d WHERE d.k = a AND d.kind <> c)"),
            format!("SELECT f.id FROM f WHERE NOT EXISTS (SELECT 1 FROM {table} d WHERE d.k = a)"),
            format!("SELECT f.id, (SELECT max(name) FROM {table}) AS m FROM f"),
            format!("SELECT f.id, f.b = (SELECT min(k) FROM {table}) AS e FROM f"),
            format!("SELECT f.id, x.name, y.name AS other FROM f JOIN {table} x ON a = x.k LEFT JOIN {table} y ON c = y.k"),
            format!("SELECT d.k, d.name, count(f.id) AS n, sum(f.b) AS s FROM {table} d LEFT JOIN f ON d.k = f.a GROUP BY d.k, d.name"),
            format!("SELECT d.k, count(*) AS n FROM {table} d CROSS JOIN f GROUP BY d.k"),
            format!("SELECT d.name, f.b, count(*) AS n FROM {table} d CROSS JOIN f GROUP BY d.name, f.b"),
            format!("SELECT DISTINCT d.name, f.b FROM {table} d JOIN f ON d.k < f.b"),
            format!("SELECT k, name FROM {table} UNION SELECT a, 'one' FROM f"),
            format!("SELECT k FROM {table} INTERSECT SELECT a FROM f"),
            format!("SELECT a FROM f EXCEPT SELECT k FROM {table}"),
            format!("SELECT d.k, g.n FROM {table} d JOIN (SELECT a, count(*) AS n FROM f GROUP BY a) g ON d.k = g.a"),
            format!("SELECT d.k, g.n FROM {table} d LEFT JOIN (SELECT a, count(*) AS n FROM f GROUP BY a) g ON d.k IS NOT DISTINCT FROM g.a"),
        ]);
    }
    check_all(&fixture(), queries);
}

/// What is NULL throughout has a type nevertheless: constants, branches, keys of joins.
#[test]
fn values_that_are_null_throughout() {
    check_all(
        &fixture(),
        [
            "SELECT min(CASE WHEN 1 = CAST(NULL AS BIGINT) THEN true WHEN nullif(CAST(NULL AS BOOLEAN), kind = 1) THEN true ELSE true END) AS m FROM one",
            "SELECT CASE WHEN kind = 1 THEN CAST(NULL AS BOOLEAN) END AS c, count(*) AS n FROM some GROUP BY 1",
            "SELECT k FROM some WHERE CASE WHEN kind = 1 THEN CAST(NULL AS BOOLEAN) ELSE CAST(NULL AS BOOLEAN) END",
            "SELECT k, 1.5 + coalesce(CAST(NULL AS DOUBLE), CASE WHEN k > 1 THEN CAST(NULL AS DOUBLE) END) AS c FROM some",
            "SELECT k FROM some WHERE coalesce(CAST(NULL AS REAL), CAST(NULL AS REAL)) < CAST(k AS REAL)",
            "SELECT d.k FROM some d JOIN (SELECT k, CAST(NULL AS VARCHAR) AS z FROM some) s ON s.z = d.name",
            "SELECT k FROM some WHERE name IN (SELECT CAST(NULL AS VARCHAR) FROM some)",
            "SELECT k FROM some WHERE name NOT IN (SELECT CAST(NULL AS VARCHAR) FROM some)",
            "SELECT d.k, s.k AS j FROM some d LEFT JOIN (SELECT k, CAST(NULL AS VARCHAR) AS z FROM some) s ON s.z IS NOT DISTINCT FROM d.name",
            "SELECT f.id, s.k FROM f JOIN (SELECT k, CAST(NULL AS BIGINT) AS z FROM some) s ON s.z IS NOT DISTINCT FROM f.a",
        ]
        .map(String::from),
    );
}

/// Two tables without a batch have no array whose address would tell them apart.
#[test]
fn tables_without_batches() {
    let types = [
        "Float64",
        "UInt32",
        "Decimal128(15, 2)",
        "Boolean",
        "Utf8",
        "Date32",
        "Float32",
        "Int8",
    ];
    let fixture = Fixture::device();
    for (i, name) in types.iter().enumerate() {
        let sql =
            format!("CREATE TABLE e{i} AS SELECT arrow_cast(NULL, '{name}') AS b WHERE false");
        fixture
            .run(&sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let mut queries = Vec::new();
    for i in 0..types.len() {
        queries.push(format!("SELECT b, count(*) AS n FROM e{i} GROUP BY b"));
        queries.push(format!(
            "SELECT min(b) AS lo, max(b) AS hi, count(b) AS n FROM e{i}"
        ));
    }
    queries.push("SELECT sum(3) AS s FROM e1 WHERE 1 <= (b - 1)".into());
    queries.push("SELECT DISTINCT 1 AS one FROM e2 WHERE CAST(0 AS DECIMAL(5, 2)) >= b".into());
    check_all(&fixture, queries);
}
