//! Columns that a table has for what no kernel computes of its own: every expression that is else looked up by combination, over values
//! with too many of these, and what operators make of them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::*;
use datafusion::parquet::file::properties::WriterProperties;
use warpline_sql_tests::{Fixture, Random};

use super::combinations::{CONDITIONS, VALUES, table};
use super::support::{
    Nulls, check_all, check_conditions, check_values, row_numbers, write_parquet,
};

#[test]
fn what_is_else_evaluated_by_combination() {
    for nulls in Nulls::EACH {
        for rows in [0, 1, 31, 32, 33, 400] {
            let fixture = table(rows, nulls);
            fixture.set("warpline.value_tables", "false");
            // Of functions that make strings of any length nobody knows the price.
            let known = VALUES.iter().filter(|value| !value.contains("lpad"));
            check_values(&fixture, "t", &known.collect::<Vec<_>>());
            check_conditions(&fixture, "t", &CONDITIONS);
        }
    }
}

/// Numbers and strings of which hardly any two are alike.
fn wide(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let mut random = Random::new(9);
    let mut number = |most: usize| -> Vec<Option<i64>> {
        let values = (0..rows).map(|_| (!random.chance(10)).then(|| random.below(most) as i64));
        values.collect()
    };
    let (a, b, few) = (number(1 << 40), number(1 << 30), number(5));
    let texts = a.iter().zip(&b).map(|(a, b)| match (a, b) {
        (Some(a), Some(b)) if a % 3 == 0 => Some(format!("ключ {}", b % 4_000)),
        (Some(a), _) => Some(format!("{}-{}", a % 97, a % 3_001)),
        _ => None,
    });
    let texts: Vec<Option<String>> = texts.collect();
    let seconds = b.iter().map(|b| b.map(|b| b as f64 + 0.25));
    let seconds = Float64Array::from_iter(seconds);
    let lists = a.iter().map(|a| {
        let length = (a.as_ref()? % 4) as usize;
        Some((0..length).map(|i| Some(i as i64)).collect::<Vec<_>>())
    });
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
    vec![
        ("id", row_numbers(rows)),
        ("a", Arc::new(Int64Array::from(a)) as _),
        ("b", Arc::new(Int64Array::from(b)) as _),
        ("k", Arc::new(Int64Array::from(few)) as _),
        ("s", Arc::new(StringArray::from(texts)) as _),
        ("f", Arc::new(seconds) as _),
        ("l", Arc::new(lists) as _),
    ]
}

const QUERIES: [&str; 28] = [
    "SELECT CAST(a AS VARCHAR) AS k, count(*) AS c FROM t GROUP BY 1",
    "SELECT concat(a, '-', b) AS k, min(id) AS lo FROM t GROUP BY concat(a, '-', b)",
    "SELECT k, count(DISTINCT concat(a, '/', b)) AS c FROM t GROUP BY k",
    "SELECT k, max(length(concat(s, a))) AS c, min(s || b) AS lo FROM t GROUP BY k",
    "SELECT k, string_agg(CAST(a AS VARCHAR), ',' ORDER BY id) AS l FROM t WHERE id < 200 GROUP BY k",
    "SELECT count(*) AS c FROM t WHERE concat(a, ':', s) LIKE '%7:%1%'",
    "SELECT count(*) AS c FROM t WHERE strpos(concat(s, b), CAST(k AS VARCHAR)) > 3",
    "SELECT l.id AS l, r.id AS r FROM t l JOIN t r ON l.a || 'x' || l.b = r.a || 'x' || r.b WHERE l.id < 1500",
    "SELECT l.id AS l, r.b AS r FROM t l LEFT JOIN t r ON CAST(l.id AS VARCHAR) = r.s",
    "SELECT date_trunc('day', to_timestamp(f)) AS d, count(*) AS c FROM t GROUP BY 1",
    "SELECT k, max(to_timestamp(a % 1000000) + CAST(concat(coalesce(b, 7) % 1000, ' seconds') AS INTERVAL)) AS m FROM t GROUP BY k",
    "SELECT k, sum(array_length(l)) AS c, max(array_to_string(l, CAST(a AS VARCHAR))) AS m FROM t GROUP BY k",
    "SELECT md5(concat_ws('-', a, b)) AS k, count(*) AS c FROM t GROUP BY 1",
    "SELECT id, row_number() OVER (PARTITION BY k ORDER BY concat(s, a), id) AS n FROM t",
    "SELECT k, c FROM (SELECT concat(a, b) AS k, count(*) AS c FROM t WHERE k > 1 GROUP BY 1) ORDER BY c DESC, k LIMIT 10",
    "SELECT count(DISTINCT x) AS c FROM (SELECT concat(a, s) AS x FROM t UNION ALL SELECT concat(b, s) FROM t)",
    "SELECT l.k, count(DISTINCT concat(r.a, r.b)) AS c FROM t l LEFT JOIN t r ON l.id = r.id + 7 AND r.k = 2 GROUP BY l.k",
    "SELECT l.k, count(DISTINCT coalesce(concat_ws('', r.a, r.b), '')) AS c FROM t l LEFT JOIN t r ON l.id = r.id + 7 AND r.k = 2 GROUP BY l.k",
    "SELECT sum(CASE WHEN concat(a, b) > concat(b, a) THEN 1 ELSE 0 END) AS c FROM t",
    "SELECT count(*) AS c FROM t WHERE EXISTS (SELECT 1 FROM t r WHERE concat(r.a, 'x') = concat(t.a, 'x') AND r.id <> t.id)",
    "SELECT k, count(*) AS c FROM t WHERE levenshtein(s, CAST(b AS VARCHAR)) < 7 GROUP BY k",
    "SELECT k, string_agg(CAST(a AS VARCHAR), '+' ORDER BY a) AS l FROM (SELECT k, a, count(*) AS n FROM t GROUP BY k, a) g GROUP BY k",
    "SELECT count(DISTINCT concat(a, '-', b)) AS c, sum(n) AS n FROM (SELECT a, b, count(*) AS n FROM t GROUP BY a, b) g",
    "SELECT CAST(a AS VARCHAR) AS s, max(n) AS n FROM (SELECT a, k, count(*) AS n FROM t GROUP BY GROUPING SETS ((a, k), (k))) g GROUP BY 1",
    "SELECT max(CAST(d AS VARCHAR)) AS s FROM (SELECT DISTINCT a + b AS d, k FROM t) g WHERE k < 3",
    "SELECT date_part('epoch', to_timestamp(date_part('epoch', to_timestamp(f)) + k * 3600)) AS e, count(*) AS n FROM t GROUP BY 1",
    "SELECT to_char(to_timestamp(b), '%Y-%m') AS m, count(DISTINCT concat(a, '-', s)) AS c FROM (SELECT a, s, b FROM t GROUP BY a, s, b) g GROUP BY 1",
    "SELECT x.c, count(*) AS n FROM (SELECT a % 10 AS c, reverse(concat(a, s)) AS r FROM t) x WHERE x.r LIKE '1%' GROUP BY x.c",
];

#[test]
fn expressions_of_too_many_combinations() {
    for rows in [0, 1, 33, 2_500] {
        check_all(
            &Fixture::device().table("t", wide(rows)),
            QUERIES.map(String::from),
        );
    }
}

/// The first query computes the column, others find it, whatever they are and whoever asks.
#[test]
fn a_column_is_computed_once() {
    let fixture = Fixture::device().table("t", wide(2_000));
    let loaded = |sql: &str| {
        let run = fixture.check(sql);
        run.metrics.columns_loaded
    };
    assert!(loaded("SELECT count(DISTINCT concat(a, '/', b)) AS c FROM t") > 0);
    assert_eq!(
        loaded("SELECT max(concat(a, '/', b)) AS m FROM t WHERE concat(a, '/', b) < '5'"),
        0
    );
}

/// Of a row that the query leaves out DataFusion would not ask: then nothing is computed of all rows.
#[test]
fn what_fails_for_other_rows_is_the_cpus() {
    let fixture = Fixture::relaxed().table("t", wide(2_000));
    let sql = "SELECT k, sum(CAST(substr(concat(s, a), 1, 2) AS INT)) AS n FROM t WHERE s LIKE '__-%' GROUP BY k";
    for _ in 0..3 {
        fixture.check(sql);
    }
    let error = fixture.check_error("SELECT sum(CAST(substr(concat(s, a), 1, 2) AS INT)) FROM t");
    assert!(error.contains("Cannot cast string"), "{error}");
}

/// Files that come later have their rows computed as well.
#[test]
fn columns_grow_with_their_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, rows: usize| {
        let batch = RecordBatch::try_from_iter(wide(rows)).expect("a batch");
        write_parquet(
            &folder.path().join(name),
            &batch,
            WriterProperties::default(),
        );
    };
    write("a.parquet", 1_500);
    let fixture = Fixture::device().parquet("t", folder.path());
    let sql = "SELECT k, count(DISTINCT concat(a, '/', b)) AS c, max(concat(a, s)) AS m FROM t GROUP BY k";
    fixture.check(sql);
    write("b.parquet", 900);
    for _ in 0..2 {
        fixture.check(sql);
    }
    write("a.parquet", 700);
    fixture.check(sql);
}

#[test]
fn they_can_be_switched_off() {
    let fixture = Fixture::relaxed().table("t", wide(500));
    fixture.set("warpline.computed_columns", "off");
    let sql = "SELECT k, sum(length(concat(s, f))) AS c FROM t GROUP BY k";
    let explained = fixture.explain(sql);
    assert!(explained.contains("runs on the CPU"), "{explained}");
    fixture.set("warpline.computed_columns", "auto");
    let explained = fixture.explain(sql);
    assert!(explained.contains("cpu=[]"), "{explained}");
    // What the column is made of is not loaded.
    assert!(
        explained.contains("scan memory table(k, character_length("),
        "{explained}"
    );
}
