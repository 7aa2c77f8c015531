//! Groups of rows in the order of their key: runs within tiles and across them, keys of every width, few rows left.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{Decimal128Type, Float64Type, Int64Type};
use warpline_sql_tests::{Fixture, test_device};

use super::support::{Nulls, Random, booleans, check_all, drawn, primitive, strings};

const CALLS: &str = "count(*) AS n, count(a) AS ka, sum(a) AS s, sum(x) AS sx, min(a) AS lo, max(x) AS hi, avg(x) AS ax, \
                     avg(f) AS m, min(f) AS flo, max(t) AS text, sum(a) FILTER (WHERE b) AS part";

/// Keys in order, one for each run of so many rows.
fn keys(runs: impl IntoIterator<Item = usize>, step: i64) -> Vec<i64> {
    let runs = runs.into_iter().enumerate();
    runs.flat_map(|(number, rows)| std::iter::repeat_n(number as i64 * step - 5, rows))
        .collect()
}

/// A table by these keys, in batches that end within runs.
fn batches(keys: &[i64]) -> Vec<RecordBatch> {
    let rows = keys.len();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int64Array::from(keys.to_vec()))),
        (
            "a",
            primitive::<Int64Type>(drawn(&[-5, 0, 3, 1 << 33], rows, Nulls::Some, 1)),
        ),
        (
            "x",
            primitive::<Decimal128Type>(drawn(
                &[-99_999_999_999_999_999_999, 0, 1, 12_345],
                rows,
                Nulls::Some,
                2,
            )),
        ),
        (
            "f",
            primitive::<Float64Type>(drawn(&[0.25, 1.5, -3.0], rows, Nulls::Some, 3)),
        ),
        (
            "t",
            strings(drawn(&["", "x", "yy", "ß"], rows, Nulls::Some, 4)),
        ),
        ("b", booleans(drawn(&[true, false], rows, Nulls::Some, 5))),
        ("id", Arc::new(Int32Array::from_iter_values(0..rows as i32))),
    ];
    let nullable = |name: &str| !matches!(name, "k" | "id");
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, nullable(name)));
    let whole = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
    let pieces = (0..rows.max(1)).step_by(1_700);
    pieces
        .map(|first| whole.slice(first, 1_700.min(rows - first)))
        .collect()
}

fn fixture() -> Fixture {
    Fixture::open(test_device(), true, &[("warpline.group_by", "runs")])
}

fn queries(table: &str) -> Vec<String> {
    [
        format!("SELECT k, {CALLS} FROM {table} GROUP BY k"),
        format!("SELECT k, count(*) AS n FROM {table} GROUP BY k"),
        format!("SELECT k, sum(id) AS s FROM {table} WHERE id % 97 = 3 GROUP BY k"),
        format!("SELECT k, max(a) AS m FROM {table} WHERE a > 100000 AND b GROUP BY k"),
    ]
    .into()
}

/// Groups of which a filter drops some, all or none. Whether it is asked before they are written down.
fn filtered(table: &str) -> Vec<(String, bool)> {
    let having =
        |condition: &str| format!("SELECT k, {CALLS} FROM {table} GROUP BY k HAVING {condition}");
    let mut queries: Vec<(String, bool)> = [
        ("count(*) = 3", true),
        ("count(*) > 0", false),
        ("count(*) > 1000000", true),
        ("sum(a) > 5 AND count(a) < 4", true),
        ("avg(x) > 0 OR max(a) IS NULL", true),
        ("min(f) < 0.0", true),
        ("sum(a) FILTER (WHERE b) > k", true),
        ("max(t) >= 'x'", false),
        ("max(t) >= 'x' AND sum(a) > 5", false),
    ]
    .map(|(condition, before)| (having(condition), before))
    .into();
    queries.extend([
        (
            format!(
                "SELECT id, a FROM {table} WHERE k IN (SELECT k FROM {table} GROUP BY k HAVING count(*) > 6)"
            ),
            true,
        ),
        (
            format!(
                "SELECT count(*) AS n, sum(s) AS s FROM (SELECT k, sum(a) AS s FROM {table} GROUP BY k) g WHERE s <= 3"
            ),
            true,
        ),
        (
            format!(
                "WITH g AS (SELECT k, sum(a) AS s FROM {table} GROUP BY k) SELECT k, s FROM g WHERE s > (SELECT max(s) FROM g) / 2"
            ),
            false,
        ),
    ]);
    queries
}

fn all(table: &str) -> Vec<String> {
    let filtered = filtered(table).into_iter().map(|(sql, _)| sql);
    queries(table).into_iter().chain(filtered).collect()
}

/// All are right, and their groups were made of runs.
#[track_caller]
fn check(fixture: &Fixture, table: &str) {
    let queries = all(table);
    check_all(fixture, queries.clone());
    // The columns are resident now, so that plans show the choice.
    for sql in queries {
        let plan = fixture.explain(&sql);
        assert!(plan.contains(" in runs"), "{sql}\n{plan}");
    }
}

/// Groups are tested before they are written down where that is possible.
#[track_caller]
fn check_tests(fixture: &Fixture, table: &str) {
    for (sql, tested) in filtered(table) {
        let plan = fixture.explain(&sql);
        let words: Vec<&str> = plan.split_whitespace().collect();
        let told = words.join(" ").contains("are written down where they pass");
        assert_eq!(told, tested, "{sql}\n{plan}");
    }
}

#[test]
fn around_warps_and_tiles() {
    let mut fixture = fixture();
    let sizes: [usize; 7] = [1, 31, 32, 33, 257, 2048, 2049];
    for rows in sizes {
        // Were no key there twice, nothing would be left to group.
        let each = std::iter::repeat_n(1, rows.saturating_sub(2));
        let each = keys([rows.min(2)].into_iter().chain(each), 3);
        let pairs = keys(std::iter::repeat_n(2, rows.div_ceil(2)), 1 << 40);
        fixture = fixture
            .batches(&format!("each{rows}"), batches(&each))
            .batches(&format!("pairs{rows}"), batches(&pairs[..rows]))
            .batches(&format!("one{rows}"), batches(&keys([rows], 1)));
    }
    for rows in sizes {
        for name in ["each", "pairs", "one"] {
            let table = format!("{name}{rows}");
            match rows {
                1 => check_all(&fixture, all(&table)),
                _ => check(&fixture, &table),
            }
        }
    }
}

#[test]
fn of_any_length() {
    let mut random = Random::new(11);
    let mut mixed: Vec<usize> = (0..3_000).map(|_| 1 + random.below(9)).collect();
    // One that fills several tiles, and single rows behind it.
    mixed.insert(1_500, 9_000);
    mixed.extend(std::iter::repeat_n(1, 5_000));
    let fixture = fixture()
        .batches("mixed", batches(&keys(mixed.iter().copied(), 7)))
        .batches("sparse", batches(&keys(mixed, 1 << 47)));
    for table in ["mixed", "sparse"] {
        check(&fixture, table);
        check_tests(&fixture, table);
    }
}

#[test]
fn more_groups_than_were_expected() {
    // Sorted by itself, of as many values as rows where a tile is thought to have few.
    let mut lengths = vec![4_000; 4];
    lengths.extend(std::iter::repeat_n(1, 9_000));
    let fixture = Fixture::open(
        test_device(),
        true,
        &[("warpline.group_by", "runs"), ("warpline.group_slots", "0")],
    )
    .batches("late", batches(&keys(lengths, 1)));
    check(&fixture, "late");
    check(&fixture, "late");
}

#[test]
fn rows_that_are_not_in_order_are_grouped_otherwise() {
    let rows = 5_000;
    let disorder = drawn(&[3, 1, 2], rows, Nulls::None, 1);
    let with_nulls: Vec<Option<i64>> = (0..rows as i64)
        .map(|i| (i % 7 > 0).then_some(i / 9))
        .collect();
    let ordered: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..rows as i64).map(|i| i / 9),
    ));
    let fixture = fixture().table(
        "t",
        vec![
            ("d", primitive::<Int64Type>(disorder)),
            ("n", primitive::<Int64Type>(with_nulls)),
            ("k", ordered),
            (
                "a",
                primitive::<Int64Type>(drawn(&[1, 2, 3], rows, Nulls::Some, 2)),
            ),
        ],
    );
    for sql in [
        "SELECT d, count(*) AS n FROM t GROUP BY d",
        "SELECT n, count(*) AS c, sum(a) AS s FROM t GROUP BY n",
        "SELECT k, count(DISTINCT a) AS c FROM t GROUP BY k",
        "SELECT k, a, count(*) AS c FROM t GROUP BY k, a",
        "SELECT k, count(*) AS c FROM (SELECT k FROM t UNION ALL SELECT d FROM t) u GROUP BY k",
        "SELECT r.k, count(*) AS c FROM t l JOIN t r ON l.d = r.a GROUP BY r.k",
    ] {
        fixture.check(sql);
        let plan = fixture.explain(sql);
        assert!(!plan.contains(" in runs"), "{sql}\n{plan}");
    }
    // Behind a join that keeps the order of the rows that look keys up.
    let sql = "SELECT l.k, count(*) AS c, sum(r.a) AS s FROM t l JOIN (SELECT DISTINCT d, d * 2 AS a FROM t) r ON l.a = r.d GROUP BY l.k";
    fixture.check(sql);
}

/// Groups of thousands of rows beside such of a few, which warps add up from tile to tile, by keys of the rows, by keys that they
/// look up, and over the pairs of a join.
#[test]
fn hot_groups_go_on_from_tile_to_tile() {
    let mut lengths = vec![3, 9_000, 1, 1, 300, 31, 33, 20_000];
    lengths.extend(std::iter::repeat_n(2, 2_000));
    lengths.extend([700, 64, 32, 12_000]);
    let fixture = Fixture::open(test_device(), true, &[])
        .batches("l", batches(&keys(lengths.iter().copied(), 1)))
        .table_from(
            "o",
            "SELECT value - 5 AS k, value % 7 AS c, (value * 37 % 1500)::INT AS g, 's' || (value % 3) AS s \
             FROM generate_series(0, 2100) WHERE value % 5 < 4",
        );
    let queries = || {
        [
            format!("SELECT k, {CALLS} FROM l GROUP BY k"),
            format!("SELECT k, {CALLS} FROM l WHERE id % 3 = 1 AND id % 2048 > 300 GROUP BY k"),
            format!("SELECT g, {CALLS} FROM l JOIN o ON l.k = o.k GROUP BY g"),
            "SELECT g, sum(a) AS s, count(*) AS n FROM l JOIN o ON l.k = o.k WHERE b AND o.c < 5 GROUP BY g".to_string(),
            "SELECT c, s, sum(a) AS t, min(f) AS f FROM l JOIN o ON l.k = o.k GROUP BY c, s".to_string(),
            "SELECT o.k, o.g, sum(l.a) AS s, max(l.x) AS x, min(o.s) AS w FROM o JOIN l ON l.k = o.k WHERE o.g > 40 GROUP BY o.k, o.g".to_string(),
            "SELECT o.g, avg(l.x) AS a FROM o JOIN l ON l.k = o.k WHERE o.c = 3 GROUP BY o.g".to_string(),
            "SELECT sum(l.a) AS s FROM l, o WHERE l.k = o.k AND o.c < 2 AND l.a < (SELECT avg(r.a) FROM l r WHERE r.k = o.k)".to_string(),
        ]
    };
    for group_by in [
        "auto",
        "global",
        "hgb",
        "shared",
        "sgb_ur",
        "sgb_tr",
        "sgb_de_tr",
        "pgb_tr",
    ] {
        fixture.set("warpline.group_by", group_by);
        for index in ["auto", "off"] {
            fixture.set("warpline.index_joins", index);
            check_all(&fixture, queries());
        }
    }
}
