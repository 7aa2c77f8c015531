//! Values of groups in lists and strings (`array_agg`, `string_agg`) against plain DataFusion: every type, every order, what passes them
//! on, and what has to be left to the CPU.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, LargeStringArray,
    StringArray, StringViewArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Int64Type;
use warpline_sql_tests::Fixture;

use super::tables;
use crate::operators::support::{
    Nulls, booleans, check_all, drawn, primitive, row_numbers, string_views,
};

const WORDS: [&str; 7] = ["", "a", "été", "日本語", "a longer one", "a, b", "😀"];

/// Groups of very different sizes, values of each kind, keys that tell all rows apart.
fn table(rows: usize, nulls: Nulls) -> Vec<(&'static str, ArrayRef)> {
    let known = |row: usize| match nulls {
        Nulls::None => true,
        Nulls::Some => row % 3 != 1,
        Nulls::All => false,
    };
    let numbers = move |f: fn(usize) -> i64| (0..rows).map(move |row| known(row).then_some(f(row)));
    let texts = (0..rows).map(|row| known(row).then(|| format!("row {} of them", row * 7919)));
    let decimals = numbers(|row| row as i64 * 37 - 500).map(|v| v.map(i128::from));
    vec![
        ("id", row_numbers(rows)),
        (
            "g",
            primitive::<Int64Type>(drawn(&[1, 1, 1, 1, 2, 3, 700], rows, nulls, 1)),
        ),
        ("w", string_views(drawn(&WORDS, rows, nulls, 2))),
        ("u", Arc::new(StringArray::from_iter(texts.clone()))),
        ("l", Arc::new(LargeStringArray::from_iter(texts.clone()))),
        ("y", Arc::new(StringViewArray::from_iter(texts))),
        (
            "k",
            Arc::new(Int32Array::from_iter(
                numbers(|row| (row as i64 * 31) % 17).map(|v| v.map(|v| v as i32)),
            )),
        ),
        (
            "f",
            Arc::new(Float64Array::from_iter(
                numbers(|row| row as i64).map(|v| v.map(|v| v as f64 / 3.0)),
            )),
        ),
        (
            "d",
            Arc::new(
                Decimal128Array::from_iter(decimals)
                    .with_precision_and_scale(20, 2)
                    .expect("a decimal"),
            ),
        ),
        ("b", booleans(drawn(&[true, false], rows, nulls, 3))),
        (
            "t",
            Arc::new(Date32Array::from_iter(
                numbers(|row| row as i64 % 500).map(|v| v.map(|v| v as i32)),
            )),
        ),
        (
            "m",
            Arc::new(TimestampMicrosecondArray::from_iter(numbers(|row| {
                row as i64 * 1_000_003
            }))),
        ),
    ]
}

fn fixture() -> Fixture {
    [0, 1, 31, 32, 33, 3000]
        .into_iter()
        .fold(Fixture::device(), |fixture, rows| {
            fixture.table(&format!("t{rows}"), table(rows, Nulls::Some))
        })
        .table("full", table(700, Nulls::None))
        .table("none", table(100, Nulls::All))
}

const TABLES: [&str; 8] = ["t0", "t1", "t31", "t32", "t33", "t3000", "full", "none"];

/// `query` over each table in place of `T`.
fn over_each(query: &str) -> impl Iterator<Item = String> {
    TABLES
        .map(|table| query.replace("FROM T", &format!("FROM {table}")))
        .into_iter()
}

#[test]
fn values_of_every_type() {
    let mut queries = Vec::new();
    for column in ["w", "u", "l", "y", "k", "f", "d", "b", "t", "m", "id"] {
        let call = format!("array_agg({column} ORDER BY id)");
        queries.extend(over_each(&format!(
            "SELECT g, {call} AS v FROM T GROUP BY g"
        )));
        queries.push(format!("SELECT {call} AS v FROM t33"));
        queries.push(format!("SELECT array_agg({column} ORDER BY id DESC) FILTER (WHERE k > 8) AS v, count(*) AS n FROM t3000 GROUP BY g, b"));
    }
    check_all(&fixture(), queries);
}

#[test]
fn strings_of_values() {
    let mut queries = Vec::new();
    for call in [
        "string_agg(w, ', ' ORDER BY id)",
        "string_agg(u, '' ORDER BY k DESC NULLS FIRST, id)",
        "string_agg(l, '→' ORDER BY id DESC)",
        "string_agg(y, ',' ORDER BY y)",
        "string_agg(DISTINCT w, '|' ORDER BY w)",
        "string_agg(DISTINCT w, '|' ORDER BY w DESC)",
        "string_agg(upper(w), ',' ORDER BY id)",
        "array_agg(DISTINCT k ORDER BY k)",
        "array_agg(DISTINCT w ORDER BY w NULLS FIRST)",
        "array_agg(k + 1 ORDER BY id)",
        "array_agg(k) FILTER (WHERE id = 30)",
    ] {
        queries.extend(over_each(&format!(
            "SELECT g, {call} AS v FROM T GROUP BY g"
        )));
        queries.extend(over_each(&format!(
            "SELECT {call} AS v, count(*) AS n FROM T"
        )));
    }
    check_all(&fixture(), queries);
}

#[test]
fn what_passes_them_on() {
    let listed = "SELECT g, string_agg(w, ', ' ORDER BY id) AS v, array_agg(k ORDER BY id DESC) AS a, count(*) AS n, median(f) AS m FROM t3000 GROUP BY g";
    let queries = [
        format!("SELECT v, g, n, a, m FROM ({listed}) ORDER BY n DESC, g LIMIT 2"),
        format!("SELECT * FROM ({listed}) WHERE n > 10 AND v IS NOT NULL"),
        format!("SELECT t.id, t.w, s.v, s.a FROM t33 t LEFT JOIN ({listed}) s ON t.g = s.g ORDER BY t.id"),
        format!("SELECT t.id, s.v FROM t3000 t JOIN ({listed}) s ON t.g = s.g WHERE t.k = 3"),
        format!("SELECT a.v, b.v AS other FROM ({listed}) a JOIN (SELECT k, string_agg(u, ';' ORDER BY id) AS v FROM t33 GROUP BY k) b ON a.g = b.k"),
        format!("SELECT g, v, row_number() OVER (ORDER BY n, g) AS r, sum(n) OVER (PARTITION BY m) AS s FROM ({listed})"),
        "SELECT id, array_agg(k) OVER (PARTITION BY g) AS a FROM t1".to_string(),
        "SELECT x, string_agg(v, '/' ORDER BY g) AS v FROM (SELECT g, k AS x, max(w) AS v FROM t3000 GROUP BY g, k) GROUP BY x".to_string(),
        "SELECT g, string_agg(u, ',' ORDER BY id) AS a, string_agg(l, ';' ORDER BY id) AS b, array_agg(d ORDER BY id) AS c FROM t3000 GROUP BY g HAVING count(*) > 3".to_string(),
        "SELECT r.id, (SELECT string_agg(o.w, ',' ORDER BY o.id) FROM t33 o WHERE o.g = r.g) AS v FROM t31 r".to_string(),
    ];
    check_all(&fixture(), queries);
}

/// What is computed of lists is left to the CPU, with what is above.
#[test]
fn what_is_computed_of_them() {
    let fixture = [31, 3000]
        .into_iter()
        .fold(Fixture::relaxed(), |fixture, rows| {
            fixture.table(&format!("t{rows}"), table(rows, Nulls::Some))
        });
    let listed = "SELECT g, string_agg(w, ', ' ORDER BY id) AS v, array_agg(k ORDER BY id) AS a, count(*) AS n FROM t3000 GROUP BY g";
    let queries = [
        format!("SELECT g, coalesce(v, 'none') AS v, cardinality(a) AS c FROM ({listed})"),
        format!("SELECT g FROM ({listed}) WHERE v LIKE '%a%'"),
        format!("SELECT g, v FROM ({listed}) ORDER BY v, g"),
        format!("SELECT g, n FROM ({listed}) WHERE v = 'a' OR v BETWEEN '' AND 'b'"),
        "SELECT g, string_agg(w, '|' ORDER BY id) AS v FROM t31 GROUP BY g HAVING string_agg(w, '|' ORDER BY id) >= 'a'".to_string(),
        "SELECT id FROM t31 WHERE 'a' < (SELECT string_agg(w, '|' ORDER BY id) FROM t3000)".to_string(),
        format!("SELECT v, count(*) AS n FROM ({listed}) GROUP BY v"),
        format!("SELECT g, v FROM ({listed}) UNION ALL SELECT g, v FROM ({listed})"),
        "SELECT g, k, string_agg(w, ',' ORDER BY id) AS v FROM t3000 GROUP BY ROLLUP (g, k)".to_string(),
        "SELECT id, array_agg(k) OVER (PARTITION BY g ORDER BY id) AS v FROM t31".to_string(),
        "SELECT id, array_agg(k) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS v FROM t31".to_string(),
        "SELECT (SELECT string_agg(w, ',' ORDER BY id) FROM t31) AS v, id FROM t31".to_string(),
        "SELECT g, unnest(array_agg(k ORDER BY id)) AS v FROM t3000 GROUP BY g".to_string(),
    ];
    check_all(&fixture, queries);
}

/// The same rows twice, kept plans, another order of the values between.
#[test]
fn plans_are_used_again() {
    let fixture = fixture();
    for _ in 0..3 {
        for sql in [
            "SELECT g, string_agg(w, ', ' ORDER BY id) AS v FROM t3000 GROUP BY g ORDER BY g",
            "SELECT g, string_agg(w, ', ' ORDER BY id DESC) AS v FROM t3000 GROUP BY g ORDER BY g",
        ] {
            fixture.check(sql);
        }
    }
}

/// Over the tables that other tests of groups have.
#[test]
fn other_tables() {
    let queries = ["l", "one", "e", "n"].map(|table| {
        format!("SELECT z, array_agg(x ORDER BY x) AS a, string_agg(s, ',' ORDER BY s) AS v, sum(x) AS t FROM {table} GROUP BY z")
    });
    check_all(&tables::fixture(), queries);
}
