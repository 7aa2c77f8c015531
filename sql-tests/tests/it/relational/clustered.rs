//! Indexes over whole tables with repeated keys, whose entries lie side by side by key.

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers, strings};

const ROWS: usize = 1500;

/// Rows `p` that probe and rows `b` with repeated keys: a dense one (`k`), one of which few possible values occur (`w`), a frequent one
/// (`h`), strings (`s`), and columns of every width.
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
        .table("p", columns(200, 50))
        .table("none", columns(0, 90))
}

fn queries() -> Vec<String> {
    let mut queries = Vec::new();
    for key in ["k", "w", "h", "s", "v"] {
        // Strings of few values and wide numbers meet thousands of rows each.
        let few = "p.id <= 40";
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
        queries.push(format!(
            "SELECT count(*) AS n, sum(b.n) AS s FROM none JOIN b ON none.{key} = b.{key}"
        ));
        queries.push(format!(
            "SELECT count(*) AS n, max(none.t) AS t FROM p JOIN none ON none.{key} = p.{key}"
        ));
    }
    queries.extend(
        [
            // Keys of several columns and words.
            "SELECT p.id AS pid, b.id, b.t FROM p JOIN b ON p.k = b.k AND p.h = b.h ORDER BY pid, b.id",
            "SELECT p.id AS pid, b.id, b.n FROM p JOIN b ON p.v = b.v AND p.k = b.k AND p.f = b.f ORDER BY pid, b.id",
            // NULL equals NULL.
            "SELECT p.id AS pid, b.id, b.n FROM p JOIN b ON p.k IS NOT DISTINCT FROM b.k WHERE p.id <= 20 ORDER BY pid, b.id",
            // Marks go by entry.
            "SELECT count(*) AS n, count(p.id) AS m, sum(b.n) AS s FROM p RIGHT JOIN b ON p.k = b.k",
            "SELECT b.id, b.t FROM b WHERE b.k NOT IN (SELECT k FROM p WHERE k IS NOT NULL) ORDER BY b.id",
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
    for nulls in [Nulls::None, Nulls::Some, Nulls::All] {
        let fixture = tables(nulls);
        fixture.set("warpline.index_joins", "on");
        for join in ["perfect", "nphj"] {
            fixture.set("warpline.join", join);
            // The second time, what the first has made is found.
            check_all(&fixture, queries());
            check_all(&fixture, queries());
        }
    }
}

#[test]
fn explain_says_that_entries_are_clustered() {
    let fixture = tables(Nulls::None);
    fixture.set("warpline.index_joins", "on");
    let pairs = "SELECT count(*) AS n, sum(b.n) AS s FROM p JOIN b ON p.k = b.k";
    fixture.check(pairs);
    let plan = fixture.explain(&format!("ANALYZE VERBOSE {pairs}"));
    assert!(plan.contains("entries of a key side by side"), "{plan}");
    fixture.set("warpline.index_joins", "off");
    let plan = fixture.explain(&format!("ANALYZE VERBOSE {pairs}"));
    assert!(!plan.contains("side by side"), "{plan}");
}
