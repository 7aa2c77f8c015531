//! Late evaluation: expressions of the output that kernels do not compute are computed as rows leave.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use warpline_sql_tests::Fixture;

use super::support::{Nulls, check_all, drawn, primitive, row_numbers, strings};

/// What no kernel computes of a float and a string.
const MADE: &str = "concat('<', CAST(f AS VARCHAR), '|', s, '>')";

fn rows(fixture: Fixture, name: &str, rows: usize) -> Fixture {
    use arrow::datatypes::{Float64Type, Int32Type};
    let words = ["", "a", "Bär", "日本語", "zz top"];
    let floats: Vec<f64> = (0..97).map(|i| f64::from(i) / 7.0 - 3.0).collect();
    let n = Nulls::Some;
    fixture.table(
        name,
        [
            ("id", row_numbers(rows)),
            (
                "k",
                primitive::<Int32Type>(drawn(&[1, 2, 3], rows, n, rows as u64)),
            ),
            (
                "f",
                primitive::<Float64Type>(drawn(&floats, rows, n, rows as u64 + 1)),
            ),
            ("s", strings(drawn(&words, rows, n, rows as u64 + 2))),
        ],
    )
}

fn fixture() -> Fixture {
    let sizes = [0, 1, 31, 32, 33, 300, 20_000];
    sizes.into_iter().fold(Fixture::device(), |fixture, size| {
        rows(fixture, &format!("t{size}"), size)
    })
}

fn queries(t: &str) -> [String; 9] {
    [
        format!("SELECT id, {MADE} AS m FROM {t}"),
        format!("SELECT id, {MADE} AS m, k + 1 AS n FROM {t} WHERE k > 1 ORDER BY id"),
        // Only above the limit, and the order's column is not shown.
        format!("SELECT {MADE} AS m FROM {t} ORDER BY k DESC, id LIMIT 7 OFFSET 2"),
        format!("SELECT {MADE} AS m, {MADE} AS o, f, id AS f2 FROM {t} ORDER BY f2 DESC LIMIT 40"),
        format!("SELECT id, {MADE} AS m, s, s || '!' AS t FROM {t} ORDER BY s NULLS FIRST, id"),
        // Over groups, joins and windows.
        format!(
            "SELECT k, concat(CAST(sum(f) > 1 AS VARCHAR), CAST(max(f) AS VARCHAR), min(s)) AS m FROM {t} GROUP BY k ORDER BY k"
        ),
        format!(
            "SELECT a.id, concat(CAST(a.f AS VARCHAR), CAST(b.f AS VARCHAR)) AS m FROM {t} a JOIN t33 b ON a.id = b.id ORDER BY a.id"
        ),
        format!(
            "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS n, {MADE} AS m FROM {t} ORDER BY id DESC"
        ),
        format!(
            "SELECT id, CASE WHEN f > 1 THEN {MADE} ELSE s END AS m FROM {t} ORDER BY id LIMIT 100"
        ),
    ]
}

/// Under `require_gpu`: what is computed at the output is no fallback, however many rows there are.
#[test]
fn rows_of_every_number() {
    let fixture = fixture();
    for size in [0, 1, 31, 32, 33, 300, 20_000] {
        check_all(&fixture, queries(&format!("t{size}")));
    }
}

#[test]
fn plans_show_it() {
    let fixture = fixture();
    let plan = fixture
        .explain("SELECT id, concat(CAST(f AS VARCHAR), s) AS m FROM t300 ORDER BY id LIMIT 3");
    assert!(
        plan.contains("computed at output, as rows leave the device"),
        "{plan}"
    );
    let at = |part: &str| plan.find(part).unwrap_or(usize::MAX);
    // The order is below it, on the device.
    assert!(
        at("concat(CAST(f@") < at("GpuFragmentExec") && at("GpuFragmentExec") < at("sort ("),
        "{plan}"
    );
    assert!(!plan.contains("SortExec"), "{plan}");
}

/// DataFusion evaluates what is below an order for all rows: an error there is an error however few rows are asked for.
#[test]
fn errors_are_those_of_the_reference() {
    let fixture = rows(Fixture::relaxed(), "t", 100);
    let fails = "to_timestamp(CAST(f AS VARCHAR))";
    for sql in [
        format!("SELECT id, {fails} AS m FROM t"),
        format!("SELECT id, {fails} AS m FROM t ORDER BY id"),
        format!("SELECT id, {fails} AS m FROM t WHERE f IS NOT NULL ORDER BY k, id LIMIT 3"),
    ] {
        fixture.check_error(&sql);
    }
    fixture.check(&format!(
        "SELECT id, {fails} AS m FROM t WHERE f IS NULL ORDER BY id LIMIT 3"
    ));
}

/// An order by what is computed late is the CPU's.
#[test]
fn orders_that_read_it_stay_above() {
    let fixture = rows(Fixture::relaxed(), "t", 500);
    check_all(&fixture, [
        format!("SELECT id, {MADE} AS m FROM t ORDER BY m, id"),
        format!("SELECT id, {MADE} AS m FROM t ORDER BY m DESC, id LIMIT 9"),
        format!("SELECT m, count(*) AS n FROM (SELECT {MADE} AS m FROM t) GROUP BY m"),
        "SELECT id, random() < 2 AS r, concat(CAST(f AS VARCHAR), CAST(random() < 2 AS VARCHAR)) AS m FROM t ORDER BY id".to_string(),
    ]);
}

/// Strings without a dictionary of several columns are fetched together, whatever the number of rows.
#[test]
fn several_texts_leave_together() {
    for rows in [4_095_usize, 4_096, 4_097, 8_192, 12_288] {
        let text = |salt: usize| {
            let each = |row: usize| {
                let filler = "lorem ipsum ".repeat(1 + row % 5);
                (row % 11 != salt).then(|| format!("{filler}{}", row * 7 + salt))
            };
            Arc::new(StringArray::from_iter((0..rows).map(each))) as ArrayRef
        };
        let fixture = Fixture::device().table(
            "t",
            [
                ("id", row_numbers(rows)),
                ("a", text(1)),
                ("b", text(2)),
                ("c", text(3)),
            ],
        );
        check_all(
            &fixture,
            [
                "SELECT id, a, b, c FROM t WHERE id >= 0",
                "SELECT id, b, c FROM t WHERE id % 2 = 0",
            ]
            .map(String::from),
        );
    }
}
