//! Indexes over whole tables with repeated keys, whose entries lie side by side by key.

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers, strings};

const ROWS: usize = 700;

/// Rows `p` that probe and rows `b` with repeated keys: one in order (`o`), a dense one (`k`), one of which few possible values occur
/// (`w`), a frequent one (`h`), strings (`s`), and columns of every width.
fn tables(nulls: Nulls) -> Fixture {
    let words = ["", "a", "Bär", "日本語", "a longer text that no word holds"];
    let wide = [i64::MIN, -7, 0, 9, i64::MAX];
    let scattered: Vec<i32> = (0..700).map(|i| i * 1_000_003 % 900_000_000).collect();
    let columns = |rows: usize, seed: u64| {
        let keys: Vec<i32> = (-20..400).collect();
        let hot: Vec<i32> = [3].repeat(30).into_iter().chain(0..30).collect();
        let floats = [-1.5, -0.0, 0.0, 1e300];
        let short: Vec<i16> = (0..300).collect();
        let texts: Vec<String> = (0..rows).map(|i| format!("row {i}")).collect();
        vec![
            ("id", row_numbers(rows)),
            (
                "o",
                primitive::<Int32Type>((0..rows as i32).map(|i| Some(i / 4 * 3 - 50)).collect()),
            ),
            ("k", primitive::<Int32Type>(drawn(&keys, rows, nulls, seed))),
            (
                "w",
                primitive::<Int32Type>(drawn(&scattered, rows, nulls, seed + 1)),
            ),
            (
                "h",
                primitive::<Int32Type>(drawn(&hot, rows, nulls, seed + 2)),
            ),
            ("s", strings(drawn(&words, rows, nulls, seed + 3))),
            (
                "v",
                primitive::<Int64Type>(drawn(&wide, rows, nulls, seed + 4)),
            ),
            (
                "f",
                primitive::<Float64Type>(drawn(&floats, rows, nulls, seed + 5)),
            ),
            (
                "n",
                primitive::<Int16Type>(drawn(&short, rows, nulls, seed + 6)),
            ),
            (
                "t",
                strings(texts.iter().map(|t| Some(t.as_str())).collect()),
            ),
        ]
    };
    Fixture::device()
        .table("b", columns(ROWS, 1))
        .table("p", columns(100, 50))
        .table("none", columns(0, 90))
}

fn queries() -> Vec<String> {
    let mut queries = Vec::new();
    for key in ["o", "k", "w", "h"] {
        // Frequent keys meet many rows each.
        let few = "p.id <= 20";
        queries.push(format!(
            "SELECT p.id AS pid, b.id, b.v, b.f, b.n, b.s FROM p JOIN b ON p.{key} = b.{key} WHERE {few} ORDER BY pid, b.id"
        ));
        queries.push(format!(
            "SELECT p.id AS pid, b.id, b.t FROM p LEFT JOIN b ON p.{key} = b.{key} WHERE {few} ORDER BY pid, b.id"
        ));
        queries.push(format!(
            "SELECT p.s, count(*) AS n, sum(b.v / 8) AS v, min(b.f) AS f, max(b.t) AS t FROM p JOIN b ON p.{key} = b.{key} GROUP BY p.s ORDER BY p.s"
        ));
        queries.push(format!(
            "SELECT p.id FROM p WHERE EXISTS (SELECT 1 FROM b WHERE b.{key} = p.{key} AND b.n > p.n) ORDER BY p.id"
        ));
        queries.push(format!(
            "SELECT p.id FROM p WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.{key} = p.{key} AND b.v <> p.v) ORDER BY p.id"
        ));
        // Few ask, and what is asked of is a condition on rows of the whole table.
        for condition in [
            "b.v > 0",
            "b.n < 100 AND b.s <> 'a'",
            "b.f IS NULL",
            "b.t LIKE '%7%'",
        ] {
            for exists in ["EXISTS", "NOT EXISTS"] {
                queries.push(format!(
                    "SELECT p.id, p.n FROM p WHERE p.id < 5 AND {exists} (SELECT 1 FROM b WHERE b.{key} = p.{key} AND {condition}) ORDER BY p.id"
                ));
            }
        }
        queries.push(format!(
            "SELECT p.id FROM p WHERE p.id < 5 AND EXISTS (SELECT 1 FROM b WHERE b.{key} = p.{key} AND b.n <> p.n) AND NOT EXISTS (SELECT 1 FROM b WHERE b.{key} = p.{key} AND b.n <> p.n AND b.v > b.n) ORDER BY p.id"
        ));
        queries.push(format!(
            "SELECT p.id FROM p WHERE p.id < 5 AND p.{key} NOT IN (SELECT b.{key} FROM b WHERE b.n > 250) ORDER BY p.id"
        ));
        queries.push(format!(
            "SELECT count(*) AS n, sum(b.n) AS s FROM none JOIN b ON none.{key} = b.{key}"
        ));
        queries.push(format!(
            "SELECT count(*) AS n, max(none.t) AS t FROM p JOIN none ON none.{key} = p.{key}"
        ));
    }
    queries.extend(
        [
            "SELECT p.id AS pid, b.id, b.n FROM p JOIN b ON p.s = b.s WHERE p.id <= 3 ORDER BY pid, b.id",
            // Keys of several columns and words.
            "SELECT p.id AS pid, b.id, b.t FROM p JOIN b ON p.k = b.k AND p.h = b.h ORDER BY pid, b.id",
            "SELECT p.id AS pid, b.id, b.n FROM p JOIN b ON p.v = b.v AND p.k = b.k AND p.f = b.f ORDER BY pid, b.id",
            // NULL equals NULL.
            "SELECT p.id AS pid, b.id, b.n FROM p JOIN b ON p.k IS NOT DISTINCT FROM b.k WHERE p.id <= 10 ORDER BY pid, b.id",
            // Marks go by entry.
            "SELECT count(*) AS n, count(p.id) AS m, sum(b.n) AS s FROM p RIGHT JOIN b ON p.k = b.k",
            "SELECT b.id, b.t FROM b WHERE b.k NOT IN (SELECT k FROM p WHERE k IS NOT NULL) ORDER BY b.id",
            // What can fail sees the rows that the condition leaves, and all of those.
            "SELECT p.id FROM p WHERE p.id < 5 AND EXISTS (SELECT 1 FROM b WHERE b.o = p.o AND b.n <> 0 AND 100 / b.n > p.n) ORDER BY p.id",
            "SELECT p.id FROM p WHERE p.id < 5 AND EXISTS (SELECT 1 FROM b WHERE b.o = p.o AND 1000 / (b.n + 1) > 3) ORDER BY p.id",
            // Two indexes behind one another, and a table with itself.
            "SELECT count(*) AS n, sum(c.n + b.n) AS s FROM p JOIN b ON p.w = b.w JOIN b c ON b.id = c.k",
            "SELECT a.h, count(*) AS n FROM b a JOIN b c ON a.w = c.w WHERE a.n < c.n GROUP BY a.h ORDER BY a.h",
        ]
        .map(String::from),
    );
    queries
}

#[test]
fn every_index_with_ranges_kept_and_found_again() {
    // Every so many-th query: all of them once.
    for (nulls, joins) in [
        (Nulls::None, [("perfect", 2)].as_slice()),
        (Nulls::Some, &[("perfect", 1), ("nphj", 3)]),
        (Nulls::All, &[("auto", 4)]),
    ] {
        let fixture = tables(nulls);
        fixture.set("warpline.index_joins", "on");
        for (join, step) in joins {
            fixture.set("warpline.join", join);
            // The second time, what the first has made is found.
            check_all(&fixture, queries().into_iter().step_by(*step));
            check_all(&fixture, queries().into_iter().step_by(5 * step));
        }
    }
}

#[test]
fn explain_says_how_entries_lie() {
    let fixture = tables(Nulls::None);
    fixture.set("warpline.index_joins", "on");
    let plan = |sql: &str| {
        fixture.check(sql);
        fixture.explain(&format!("ANALYZE VERBOSE {sql}"))
    };
    let pairs = "SELECT count(*) AS n, sum(b.n) AS s FROM p JOIN b ON p.k = b.k";
    assert!(plan(pairs).contains("entries of a key side by side"));
    let in_order = "SELECT count(*) AS n, sum(b.n) AS s FROM p JOIN b ON p.o = b.o";
    assert!(plan(in_order).contains("in the order of keys"));
    // Another query asks the same index for other columns.
    let other = "SELECT count(*) AS n, sum(b.v / 8) AS s, max(b.k) AS m FROM p JOIN b ON p.o = b.o";
    assert!(plan(other).contains("in the order of keys"));
    // The condition is tested on what is found: no index is made of the rows that meet it.
    let asked = "SELECT p.id FROM p WHERE p.id < 5 AND EXISTS (SELECT 1 FROM b WHERE b.o = p.o AND b.v > b.n)";
    let asked = plan(asked);
    assert!(asked.contains("in the order of keys"), "{asked}");
    fixture.set("warpline.index_joins", "off");
    assert!(!plan(pairs).contains("side by side"));
    assert!(!plan(in_order).contains("in the order of keys"));
}
