//! Scans of tables that come in strides: every type, NULLs, strings of uneven length, and every kind of operator above.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, StringArray};
use arrow::datatypes::{Int16Type, Int32Type, Int64Type};
use warpline_sql_tests::{Fixture, test_device};

use super::counter;
use crate::operators::support::{Nulls, Random, booleans, drawn, primitive, row_numbers, strings};

/// Bytes of device memory: a few strides of a few columns.
const BUDGET: &str = "262144";
/// Rows of a stride at least, and of tables around it.
const ROWS: [usize; 8] = [0, 1, 31, 32, 33, 2048, 2049, 30_000];

/// Text that hardly repeats; one row in a thousand is much longer than the others, and all of those lie together.
fn texts(rows: usize) -> ArrayRef {
    let mut random = Random::new(7);
    let text = |row: usize| match row {
        _ if row.is_multiple_of(13) => None,
        5000..5030 => Some("long ".repeat(300 + row % 7)),
        _ => Some(format!("text {} of {row}", random.below(1000))),
    };
    Arc::new(StringArray::from((0..rows).map(text).collect::<Vec<_>>()))
}

fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let keys: Vec<i32> = (0..97).collect();
    let many: Vec<i64> = (0..9973).map(|i| i << 20).collect();
    let words = ["", "a", "Bär", "zz", "日本語"];
    let wide = (0..rows).map(|i| (i as i128 - 7) << (i % 90));
    let wide = Decimal128Array::from_iter_values(wide).with_precision_and_scale(38, 2);
    let (none, some) = (Nulls::None, Nulls::Some);
    vec![
        ("id", row_numbers(rows)),
        ("k", primitive::<Int32Type>(drawn(&keys, rows, none, 1))),
        ("n", primitive::<Int32Type>(drawn(&keys, rows, some, 2))),
        ("l", primitive::<Int64Type>(drawn(&many, rows, some, 3))),
        ("s", strings(drawn(&words, rows, some, 4))),
        (
            "h",
            primitive::<Int16Type>(drawn(&[-3, 0, 9], rows, none, 5)),
        ),
        ("w", Arc::new(wide.expect("values that fit"))),
        (
            "f",
            Arc::new(Float64Array::from_iter_values(
                (0..rows).map(|i| i as f64 / 4.0),
            )),
        ),
        ("b", booleans(drawn(&[true, false], rows, some, 6))),
        ("t", texts(rows)),
    ]
}

fn fixture(settings: &[(&str, &str)]) -> Fixture {
    // What is set last counts.
    let settings: Vec<_> = [("warpline.device_memory", BUDGET)]
        .into_iter()
        .chain(settings.iter().copied())
        .collect();
    let mut fixture = Fixture::open(test_device(), true, &settings);
    for rows in ROWS {
        fixture = fixture.table(&format!("t{rows}"), columns(rows));
    }
    fixture.table("small", columns(100))
}

/// Each query twice: the second run does not read sizes. What was streamed and spilled.
#[track_caller]
fn check(fixture: &Fixture, queries: &[&str], tables: &[usize]) -> (u64, u64) {
    let (mut streamed, mut spilled) = (0, 0);
    let mut failures = Vec::new();
    for query in queries {
        for rows in tables {
            let sql = query.replace("{t}", &format!("t{rows}"));
            for _ in 0..2 {
                match fixture.compare(&sql) {
                    Ok(run) => {
                        streamed += run.metrics.streamed_bytes;
                        spilled += run.metrics.spilled_bytes;
                    }
                    Err(message) => failures.push(format!("{sql}\n{message}")),
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} queries differ\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    (streamed, spilled)
}

#[test]
fn aggregates_over_strides() {
    let queries = [
        "SELECT count(*) AS a, count(n) AS b, sum(l) AS c, min(w) AS d, max(f) AS e, sum(h) AS g, min(s) AS m, \
         count(*) FILTER (WHERE b) AS x, count(*) FILTER (WHERE b IS NULL) AS y FROM {t}",
        "SELECT k, count(*) AS c, sum(n) AS s, max(w) AS w, min(f) AS f FROM {t} WHERE id % 7 <> 3 GROUP BY k",
        "SELECT s, b, count(l) AS c, sum(id) AS i FROM {t} GROUP BY s, b",
        "SELECT l, count(*) AS c, max(id) AS m FROM {t} GROUP BY l",
        "SELECT count(DISTINCT l) AS d, count(DISTINCT k) AS e FROM {t} WHERE n > 5",
        "SELECT DISTINCT n, h FROM {t}",
    ];
    let (streamed, _) = check(&fixture(&[]), &queries, &ROWS);
    assert!(streamed > 0, "nothing was streamed");
}

#[test]
fn rows_of_strides() {
    let queries = [
        "SELECT id, k, n, l, s, h, w, f, b FROM {t} WHERE n = 11 OR id > 29990",
        "SELECT id, t FROM {t} WHERE n = 12",
        "SELECT id, n, t FROM {t} ORDER BY n NULLS FIRST, id DESC LIMIT 50",
        "SELECT id, w, f FROM {t} ORDER BY l, id LIMIT 20 OFFSET 7",
        "SELECT id, l FROM {t} WHERE b UNION ALL SELECT id, l FROM {t} WHERE NOT b",
    ];
    let (streamed, _) = check(&fixture(&[]), &queries, &ROWS);
    assert!(streamed > 0, "nothing was streamed");
}

#[test]
fn strings_of_strides() {
    let queries = [
        "SELECT count(*) AS c, sum(length(t)) AS l, count(t) AS n FROM {t} WHERE t LIKE '%3 of%' OR t LIKE 'long%'",
        "SELECT length(t) AS l, count(*) AS c FROM {t} GROUP BY length(t)",
        "SELECT substr(t, 1, 3) AS p, count(*) AS c, min(id) AS i FROM {t} WHERE k < 50 GROUP BY substr(t, 1, 3)",
        "SELECT a.id, a.t FROM {t} a JOIN {t} b ON a.id = b.id + 1 WHERE a.k = 3 AND b.t LIKE '%1%'",
    ];
    let (streamed, _) = check(&fixture(&[]), &queries, &ROWS);
    assert!(streamed > 0, "nothing was streamed");
}

const JOINS: [&str; 6] = [
    "SELECT count(*) AS c, sum(x.id) AS s, sum(y.l) AS l FROM {t} x JOIN t30000 y ON x.id = y.id WHERE x.h = 9",
    "SELECT x.k, count(*) AS c, max(y.f) AS f FROM {t} x JOIN small y ON x.k = y.k GROUP BY x.k",
    "SELECT x.id, y.id AS j FROM small x LEFT JOIN {t} y ON x.id = y.id AND y.n > 3",
    "SELECT count(*) AS c FROM {t} x WHERE EXISTS (SELECT 1 FROM t30000 y WHERE y.l = x.l AND y.id <> x.id)",
    "SELECT count(*) AS c, sum(id) AS s FROM {t} WHERE k NOT IN (SELECT id FROM small WHERE b)",
    "SELECT count(*) AS c, count(x.id) AS a, count(y.id) AS b FROM {t} x FULL JOIN t2049 y ON x.id = y.id + 7",
];

#[test]
fn joins_over_strides() {
    let (streamed, _) = check(&fixture(&[]), &JOINS, &ROWS);
    assert!(streamed > 0, "nothing was streamed");
}

#[test]
fn joins_over_strides_by_each_algorithm() {
    for join in ["perfect", "nphj", "phj_ur", "phj_tr", "smj_ur", "smj_tr"] {
        let fixture = fixture(&[("warpline.join", join)]);
        let (streamed, _) = check(&fixture, &JOINS, &[33, 30_000]);
        assert!(streamed > 0, "nothing was streamed");
    }
    for balance in ["none", "nifs_aws"] {
        let fixture = fixture(&[("warpline.load_balance", balance)]);
        let (streamed, _) = check(&fixture, &JOINS, &[33, 30_000]);
        assert!(streamed > 0, "nothing was streamed");
    }
}

/// Also where memory is plenty: both sides in partitions, joined pair by pair.
#[test]
fn joins_in_partitions() {
    let kinds = [
        "SELECT x.id, y.id AS j, y.w, x.s FROM {t} x LEFT JOIN t2049 y ON x.l = y.l AND x.n < y.n",
        "SELECT x.id, y.id AS j, y.f FROM t2049 x RIGHT JOIN {t} y ON x.l = y.l",
        "SELECT count(*) AS c, sum(x.id) AS a, sum(y.id) AS b FROM {t} x FULL JOIN t2049 y ON x.l = y.l AND x.k = y.k",
        "SELECT id, k FROM {t} x WHERE NOT EXISTS (SELECT 1 FROM t2049 y WHERE y.l = x.l)",
        "SELECT id, s, t FROM {t} x WHERE EXISTS (SELECT 1 FROM t2049 y WHERE y.l = x.l AND y.k > x.k)",
        "SELECT id FROM {t} WHERE l NOT IN (SELECT l FROM t2049 WHERE l IS NOT NULL)",
        "SELECT x.s, y.s AS z, count(*) AS c, max(x.w) AS w FROM {t} x JOIN t30000 y ON x.l = y.l AND x.k = y.k \
         JOIN small z ON z.id = x.k GROUP BY x.s, y.s",
        "SELECT x.id, z.id AS i FROM {t} x JOIN {t} y ON x.id = y.id + 1 JOIN {t} z ON y.id = z.id + 2 \
         ORDER BY x.id DESC LIMIT 40",
    ];
    let queries: Vec<&str> = JOINS.into_iter().chain(kinds).collect();
    let fixture = fixture(&[("warpline.join", "triton")]);
    let (streamed, _) = check(&fixture, &queries, &[0, 1, 33, 2049, 30_000]);
    assert!(streamed > 0, "nothing was streamed");
    let settings = [
        ("warpline.join", "triton"),
        ("warpline.device_memory", "268435456"),
    ];
    let (streamed, _) = check(&self::fixture(&settings), &queries, &[33, 2049]);
    assert_eq!(streamed, 0, "everything fits");
}

#[test]
fn groups_over_strides_by_each_algorithm() {
    let queries = [
        "SELECT l, count(*) AS c, max(id) AS m, sum(w) AS w FROM {t} GROUP BY l",
        "SELECT k, s, min(f) AS f, count(DISTINCT n) AS d FROM {t} GROUP BY k, s",
    ];
    for group_by in [
        "private",
        "shared",
        "global",
        "hgb",
        "sgb_ur",
        "sgb_tr",
        "sgb_de_tr",
        "pgb_ur",
        "pgb_tr",
    ] {
        let fixture = fixture(&[("warpline.group_by", group_by)]);
        let (streamed, _) = check(&fixture, &queries, &[33, 30_000]);
        assert!(streamed > 0, "nothing was streamed");
    }
}

#[test]
fn joins_come_in_parts() {
    // Both sides are large.
    let both = "SELECT sum(x.id + y.id) AS s, max(x.w) AS w, max(y.w) AS v FROM t30000 x JOIN t30000 y ON x.l = y.l";
    let fixture = fixture(&[("warpline.join", "triton")]);
    fixture.check(both);
    assert!(counter(&fixture, both, "join_parts") >= 4);
    // The probing side alone.
    let fixture = self::fixture(&[("warpline.join", "phj_tr")]);
    let one = "SELECT sum(x.id) AS s, max(x.w) AS w, max(x.f) AS f, min(x.l) AS l, max(y.id) AS m \
               FROM t30000 x JOIN small y ON x.k = y.k";
    fixture.check(one);
    fixture.check(one);
    assert!(counter(&fixture, one, "join_parts") > 1);
    assert_eq!(
        counter(&fixture, "SELECT sum(id) AS s FROM small", "join_parts"),
        0
    );
}

/// By price: an index that is accessed across the link takes longer than partitions that cross it twice.
#[test]
fn large_sides_are_joined_in_pairs_of_partitions_unasked() {
    let both = "SELECT sum(x.id + y.id) AS s, max(x.w) AS w, max(y.w) AS v FROM t30000 x JOIN t30000 y ON x.l = y.l";
    let pairs = |plan: &str| plan.contains("in pairs of partitions (triton)");
    let short = fixture(&[]);
    short.check(both);
    let plan = short.explain(both);
    assert!(pairs(&plan), "{plan}");
    assert!(plan.contains("link "), "no price of the link in {plan}");
    assert!(counter(&short, both, "join_parts") >= 4);
    let plenty = fixture(&[("warpline.device_memory", "268435456")]);
    plenty.check(both);
    let plan = plenty.explain(both);
    assert!(!pairs(&plan), "{plan}");
    assert_eq!(counter(&plenty, both, "join_parts"), 0);
}

#[test]
fn a_plan_says_what_is_streamed() {
    let fixture = fixture(&[]);
    let sql =
        "SELECT sum(w) AS a, sum(f) AS b, count(l) AS c, sum(id) AS d, min(t) AS e FROM t30000";
    for _ in 0..2 {
        let run = fixture.check(sql);
        assert!(run.metrics.streamed_bytes > 0, "{:?}", run.metrics);
    }
    let plan = fixture.explain(sql);
    assert!(plan.contains("is streamed"), "{plan}");
    let plan = fixture.explain("SELECT sum(id) AS d FROM small");
    assert!(!plan.contains("is streamed"), "{plan}");
}
