//! Estimates against exact answers, over columns that were encoded and described as resident ones are.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use warpline_gpu::column::{ColumnStatistics, StringPolicy, encode};

use super::{Estimator, TableFacts};
use crate::choose::zipf;
use crate::config::IndexJoins;
use crate::fragment::FragmentPlanner;
use crate::rel::{JoinKind, RelKind, RelRef, ScanTable};
use crate::tests::{plan, runtime};

const ROWS: usize = 40_000;

/// Numbers that repeat from their seed (splitmix64), below 1.
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Keys 0..n by a Zipf distribution, the frequent ones anywhere among them.
    fn zipf(&mut self, rows: usize, n: u64, z: f64) -> Vec<i64> {
        let mut sums = Vec::with_capacity(n as usize);
        let mut sum = 0.0;
        for i in 1..=n {
            sum += (i as f64).powf(-z);
            sums.push(sum);
        }
        (0..rows)
            .map(|_| {
                let at = self.draw() * sum;
                let rank = sums.partition_point(|s| *s < at) as u64;
                (rank.wrapping_mul(0x9e37_79b9) % n) as i64
            })
            .collect()
    }
}

/// Tables of one or more columns, and what is known of them once they are resident.
struct Tables {
    context: SessionContext,
    columns: HashMap<String, (usize, ColumnStatistics)>,
}

impl Tables {
    fn new(tables: &[(&str, Vec<(&str, ArrayRef)>)]) -> Self {
        let config = SessionConfig::new().with_target_partitions(1);
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .build();
        let context = SessionContext::new_with_state(state);
        let runtime = runtime();
        let stream = runtime.device().create_stream().unwrap();
        let mut columns = HashMap::new();
        for (table, arrays) in tables {
            let batch = RecordBatch::try_from_iter(arrays.clone()).unwrap();
            for (name, array) in arrays {
                let column = encode(
                    array,
                    StringPolicy::AlwaysDictionary,
                    runtime.pool(),
                    &stream,
                );
                let statistics = column.unwrap().statistics;
                columns.insert((*name).to_string(), (array.len(), statistics));
            }
            let table_of = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
            context.register_table(*table, Arc::new(table_of)).unwrap();
        }
        Self { context, columns }
    }

    /// The relation of a query that runs on the device as a whole.
    async fn rel(&self, sql: &str) -> RelRef {
        let plan = plan(&self.context, sql).await;
        let planner = FragmentPlanner::try_new(&plan, &crate::WarplineConfig::default());
        let planner = planner.unwrap_or_else(|refusal| panic!("{sql}: {}", refusal.reason));
        Arc::clone(planner.rel())
    }

    async fn count(&self, sql: &str) -> f64 {
        let batches = self
            .context
            .sql(sql)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        batches[0].column(0).as_primitive::<Int64Type>().value(0) as f64
    }

    /// Estimated and exact rows of the joins of a `SELECT count(*)`.
    async fn join(&self, sql: &str) -> (f64, f64) {
        let rel = self.rel(sql).await;
        let estimator = Estimator::new(self);
        let mut rows = None;
        rel.for_each(&mut |rel| {
            if let RelKind::Join(_) = &rel.kind {
                rows = Some(estimator.compute(rel).rows);
            }
        });
        (rows.unwrap(), self.count(sql).await)
    }
}

impl TableFacts for Tables {
    fn rows(&self, table: &Arc<ScanTable>) -> f64 {
        self.columns[table.source.schema().field(0).name()].0 as f64
    }

    fn column(&self, table: &Arc<ScanTable>, column: usize) -> Option<&ColumnStatistics> {
        let name = table.source.schema().field(column).name().clone();
        self.columns.get(&name).map(|(_, statistics)| statistics)
    }
}

fn integers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn within(found: f64, expected: f64, share: f64, what: &str) {
    assert!(
        // No estimate is below one row.
        (found - expected).abs() <= (share * expected).max(1.0),
        "{what}: {found} for {expected}"
    );
}

/// Two conditions on one column are the two ends of a range, not independent of each other.
#[tokio::test]
async fn both_ends_of_a_range_are_one_condition() {
    let mut numbers = Numbers(5);
    let tables = Tables::new(&[(
        "t",
        vec![("uniform", integers(numbers.zipf(ROWS, 1000, 0.0)))],
    )]);
    for condition in [
        "uniform >= 300 AND uniform < 340",
        "uniform BETWEEN 10 AND 29",
        "uniform > 900",
        "uniform >= 300 AND (uniform < 340 AND uniform > 320)",
        "uniform = 7 AND uniform < 500",
    ] {
        let rel = tables
            .rel(&format!("SELECT uniform FROM t WHERE {condition}"))
            .await;
        let found = Estimator::new(&tables).estimate(&rel).rows;
        let expected = tables
            .count(&format!("SELECT count(*) FROM t WHERE {condition}"))
            .await;
        within(found, expected, 0.4, condition);
    }
}

#[tokio::test]
async fn skew_is_seen_in_samples_of_uniform_zipf_and_clustered_columns() {
    let mut numbers = Numbers(1);
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("uniform", integers(numbers.zipf(ROWS, 1000, 0.0))),
        ("wide", integers(numbers.zipf(ROWS, 30_000, 0.0))),
        (
            "unique",
            integers((0..ROWS as i64).map(|i| i * 7919 % ROWS as i64)),
        ),
        ("clustered", integers((0..ROWS as i64).map(|i| i / 100))),
    ];
    let zipfs = [("z10", 1.0), ("z15", 1.5), ("z20", 2.0)];
    for (name, z) in zipfs {
        columns.push((name, integers(numbers.zipf(ROWS, 4096, z))));
    }
    let text = numbers.zipf(ROWS, 4096, 1.5);
    let text = text.iter().map(|v| format!("name {v}"));
    columns.push(("text", Arc::new(StringArray::from_iter_values(text))));
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let tables = Tables::new(&[("t", columns.clone())]);
    let rel = tables
        .rel(&format!(
            "SELECT {} FROM t WHERE uniform >= 0",
            names.join(", ")
        ))
        .await;
    let estimator = Estimator::new(&tables);
    let estimate = estimator.estimate(&rel);
    let skew = |name: &str| {
        let at = rel.columns.iter().position(|c| c.name == name).unwrap();
        estimate.columns[at].skew
    };
    for name in ["uniform", "wide", "unique", "clustered"] {
        assert_eq!(skew(name), 0.0, "{name}");
    }
    for (name, z) in zipfs {
        within(skew(name), z, 0.15, name);
    }
    within(skew("text"), 1.5, 0.15, "strings with codes");
}

#[tokio::test]
async fn groups_are_counted_exactly_or_closely() {
    let mut numbers = Numbers(2);
    // Far apart: no bitmap holds the range.
    let far = |values: Vec<i64>| integers(values.into_iter().map(|v| v.wrapping_mul(1 << 40)));
    let tables = Tables::new(&[(
        "t",
        vec![
            ("near", integers(numbers.zipf(ROWS, 1000, 1.0))),
            ("far", far(numbers.zipf(ROWS, 5000, 0.0))),
            ("far_skewed", far(numbers.zipf(ROWS, 5000, 1.2))),
        ],
    )]);
    for (key, share) in [("near", 0.0), ("far", 0.05), ("far_skewed", 0.05)] {
        let rel = tables
            .rel(&format!("SELECT {key}, count(*) FROM t GROUP BY {key}"))
            .await;
        let exact = tables
            .count(&format!("SELECT count(DISTINCT {key}) FROM t"))
            .await;
        within(Estimator::new(&tables).rows(&rel), exact, share + 1e-9, key);
    }
}

#[tokio::test]
async fn columns_of_one_dimension_have_no_more_combinations_than_it_has_rows() {
    const ITEMS: i64 = 200;
    let mut numbers = Numbers(5);
    let sold = (0..ROWS).map(|_| (numbers.draw() * ITEMS as f64) as i64);
    let sold = integers(sold.collect::<Vec<_>>());
    let item = vec![
        ("k", integers(0..ITEMS)),
        ("name", integers((0..ITEMS).map(|i| i * 7))),
        ("brand", integers((0..ITEMS).map(|i| i / 2))),
        ("class", integers((0..ITEMS).map(|i| i % 20))),
    ];
    let tables = Tables::new(&[("sales", vec![("i", sold)]), ("item", item)]);
    let rows = async |sql: &str| Estimator::new(&tables).rows(&tables.rel(sql).await);
    let of_one = "FROM sales JOIN item ON i = k GROUP BY name, brand, class";
    let found = rows(&format!("SELECT name, brand, class, count(*) {of_one}")).await;
    assert!(
        (ITEMS as f64 * 0.9..ITEMS as f64 * 1.1).contains(&found),
        "{found}"
    );
    let of_expressions = "FROM sales JOIN item ON i = k GROUP BY name + brand, class";
    let found = rows(&format!(
        "SELECT name + brand, class, count(*) {of_expressions}"
    ))
    .await;
    assert!(found < ITEMS as f64 * 1.1, "{found}");
    // Ten classes are left of a filtered dimension.
    let filtered = "FROM sales JOIN item ON i = k WHERE brand < 10 GROUP BY name, brand, class";
    let found = rows(&format!("SELECT name, brand, class, count(*) {filtered}")).await;
    assert!(found < ITEMS as f64 / 5.0, "{found}");
    // The same table twice has pairs of its rows.
    let twice = "FROM sales JOIN item a ON i = a.k JOIN item b ON a.class = b.class \
                 GROUP BY a.name, b.brand";
    let found = rows(&format!("SELECT a.name, b.brand, count(*) {twice}")).await;
    assert!(found > ITEMS as f64 * 2.0, "{found}");
}

#[tokio::test]
async fn match_ratios_come_from_sketches_and_ranges() {
    let mut numbers = Numbers(3);
    // Keys of r; s refers to them, to some of them, or to none.
    let rows = ROWS as i64;
    let keys = integers((0..rows).map(|i| i * 3));
    let shares = [
        ("whole", 1.0),
        ("half", 0.5),
        ("quarter", 0.25),
        ("few", 0.05),
    ];
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    for (name, share) in shares {
        let values = (0..rows).map(|_| {
            let key = (numbers.draw() * rows as f64) as i64 * 3;
            // Keys that r lacks lie between its own.
            if (key / 3) as f64 >= share * rows as f64 {
                key + 1
            } else {
                key
            }
        });
        columns.push((name, integers(values.collect::<Vec<_>>())));
    }
    columns.push(("beyond", integers((0..rows).map(|i| i + 4 * rows))));
    columns.push((
        "skewed",
        integers(
            numbers
                .zipf(ROWS, ROWS as u64, 1.2)
                .into_iter()
                .map(|v| v * 3),
        ),
    ));
    let tables = Tables::new(&[("r", vec![("k", keys)]), ("s", columns)]);
    for (name, tolerance) in [
        ("whole", 0.02),
        ("half", 0.1),
        ("quarter", 0.15),
        ("few", 0.4),
        // No estimate is below one row.
        ("beyond", 1.0),
        ("skewed", 0.02),
    ] {
        let sql = format!("SELECT count(*) FROM r JOIN s ON k = {name}");
        let (found, exact) = tables.join(&sql).await;
        within(found, exact, tolerance + 1e-4, &sql);
        let sql = format!("SELECT count(*) FROM s WHERE {name} IN (SELECT k FROM r)");
        let (found, exact) = tables.join(&sql).await;
        within(found, exact, tolerance + 1e-4, &sql);
    }
    // A condition on the referred side keeps its share of the pairs, roughly: the estimate takes rows to be left out
    // at random, a range leaves out all rows of a key.
    let sql = "SELECT count(*) FROM r JOIN s ON k = whole WHERE k < 30000";
    let (found, exact) = tables.join(sql).await;
    within(found, exact, 0.5, sql);
}

#[tokio::test]
async fn conditions_keep_keys_of_the_range_that_is_referred_to() {
    let mut numbers = Numbers(5);
    let days = 73_000i64;
    let years = integers((0..days).map(|day| day / 365));
    let sold = (0..ROWS).map(|_| 51_100 + (numbers.draw() * 1_825.0) as i64);
    let sold = integers(sold.collect::<Vec<_>>());
    let tables = Tables::new(&[
        ("days", vec![("k", integers(0..days)), ("year", years)]),
        ("sales", vec![("day", sold)]),
    ]);
    for year in ["year = 141", "year IN (140, 142)"] {
        let sql = format!("SELECT count(*) FROM sales JOIN days ON day = k WHERE {year}");
        let (found, exact) = tables.join(&sql).await;
        within(found, exact, 0.4, &sql);
    }
    let sql = "SELECT count(*) FROM sales JOIN days ON day = k";
    let (found, exact) = tables.join(sql).await;
    within(found, exact, 0.1, sql);
}

#[test]
fn the_zipf_of_these_tests_is_the_zipf_of_prices() {
    let values = Numbers(4).zipf(200_000, 1000, 1.0);
    let mut counts = HashMap::new();
    for value in values {
        *counts.entry(value).or_insert(0u32) += 1;
    }
    let most = f64::from(*counts.values().max().unwrap()) / 200_000.0;
    within(
        most,
        zipf::hottest(1000.0, 1.0),
        0.05,
        "the most frequent key",
    );
}

#[tokio::test]
async fn an_index_over_a_table_is_kept_only_where_it_has_room() {
    let dense = integers(0..1000);
    let sparse = integers((0..1000).map(|i| i * 1_000_003));
    let tables = Tables::new(&[("t", vec![("dense", dense), ("sparse", sparse)])]);
    let rel = tables.rel("SELECT dense, sparse FROM t").await;
    let mut scan = None;
    rel.for_each(&mut |rel| {
        if let RelKind::Scan { .. } = &rel.kind {
            scan = Some(Arc::clone(rel));
        }
    });
    let scan = scan.unwrap();
    let key = |i: usize| {
        let column = &scan.columns[i];
        vec![warpline_gpu::expr::Expr::column(
            i,
            column.data_type.clone(),
            column.nullable,
        )]
    };
    let cost = |how: IndexJoins, i: usize, room: u64, payload: Option<f64>| {
        let estimator = Estimator::new(&tables).with_kept_indexes(how, room);
        estimator.kept_cost(&scan, &key(i), payload)
    };
    for how in [IndexJoins::Auto, IndexJoins::On] {
        let kept = |i, room, payload| cost(how, i, room, payload).is_some();
        // An array with 8 bytes for each of 1000 keys; 2048 slots of 12 bytes and 1000 entries of 16.
        assert!(kept(0, 8000, None) && !kept(0, 7999, None));
        assert!(kept(1, 40_576, None) && !kept(1, 40_575, None));
        // With the columns that are wanted: entries of 20 bytes.
        assert!(kept(0, 20_000, Some(20.0)) && !kept(0, 19_999, Some(20.0)));
        assert!(kept(1, 52_576, Some(20.0)) && !kept(1, 52_575, Some(20.0)));
    }
    assert_eq!(cost(IndexJoins::Auto, 0, 8000, None), Some(0.0));
    assert!(cost(IndexJoins::On, 0, 8000, None) < Some(0.0));
    assert_eq!(cost(IndexJoins::Off, 0, 8000, None), None);
}

#[tokio::test]
async fn rows_that_an_outer_join_finds_no_match_for_are_null() {
    let rows = ROWS as i64;
    let sometimes = (0..rows / 4).map(|i| (i % 50 != 0).then_some(i));
    let tables = Tables::new(&[
        (
            "s",
            vec![("a", integers(0..rows)), ("v", integers(0..rows))],
        ),
        (
            "r",
            vec![
                ("b", integers((0..rows / 4).map(|i| i * 4))),
                ("c", Arc::new(Int64Array::from_iter(sometimes)) as ArrayRef),
                ("d", integers(0..rows / 4)),
            ],
        ),
    ]);
    let estimated = async |sql: &str| {
        let rel = tables.rel(sql).await;
        let estimator = Estimator::new(&tables);
        let mut rows = Vec::new();
        rel.for_each(&mut |rel| match &rel.kind {
            RelKind::Filter { .. } => rows.push(("filter", estimator.compute(rel).rows)),
            RelKind::Join(join) => rows.push((
                match join.kind {
                    JoinKind::Anti => "anti",
                    _ => "join",
                },
                estimator.compute(rel).rows,
            )),
            _ => {}
        });
        rows.pop().unwrap()
    };
    // A column that may be NULL in a match too: a condition above the join.
    for condition in ["c IS NULL", "c IS NOT NULL"] {
        let sql = format!("SELECT count(*) FROM s LEFT JOIN r ON a = b WHERE {condition} OR v < 0");
        let (operator, found) = estimated(&sql).await;
        assert_eq!(operator, "filter", "{sql}");
        within(found, tables.count(&sql).await, 0.05, &sql);
    }
    // Columns that have a value in every match: an anti join.
    for column in ["b", "d"] {
        let sql = format!("SELECT count(*) FROM s LEFT JOIN r ON a = b WHERE {column} IS NULL");
        let (operator, found) = estimated(&sql).await;
        assert_eq!(operator, "anti", "{sql}");
        within(found, tables.count(&sql).await, 0.05, &sql);
    }
}

#[tokio::test]
async fn conditions_are_asked_of_samples() {
    let rows = ROWS as i64;
    let mut numbers = Numbers(9);
    let years = numbers.zipf(ROWS, 100, 0.0);
    // Depends on the year, which decides the kind, and is NULL in a tenth of the rows.
    let price = years.iter().zip(0..rows);
    let price = price.map(|(year, i)| (i % 10 != 0).then_some(year * 100 + i % 50));
    let hot = numbers.zipf(ROWS, 5000, 1.2);
    let word = |(year, i): (&i64, i64)| {
        let kind = ["tv series", "movie", "video"][(*year % 3) as usize];
        (i % 7 != 3).then(|| format!("{kind} of {year}, number {}", i % 1000))
    };
    let words: StringArray = years.iter().zip(0..rows).map(word).collect();
    let floats: Float64Array = hot.iter().map(|v| Some(*v as f64 / 4.0)).collect();
    let amounts = hot.iter().map(|v| i128::from(*v) * 25);
    let amounts = Decimal128Array::from_iter_values(amounts);
    let amounts = amounts.with_precision_and_scale(12, 2).unwrap();
    let tables = Tables::new(&[
        (
            "t",
            vec![
                ("id", integers(0..rows)),
                ("year", integers(years.clone())),
                ("price", Arc::new(price.collect::<Int64Array>()) as ArrayRef),
                ("hot", integers(hot)),
                ("word", Arc::new(words) as ArrayRef),
                ("real", Arc::new(floats) as ArrayRef),
                ("amount", Arc::new(amounts) as ArrayRef),
            ],
        ),
        (
            "s",
            vec![
                ("k", integers(0..100)),
                ("v", integers((0..100).map(|k| k % 7))),
            ],
        ),
    ]);
    for condition in [
        // Each of the second ones is implied by the first, or contradicts it.
        "year < 30 AND price < 3000",
        "year < 30 AND price > 2500",
        "year = 33 AND word LIKE 'tv%'",
        "year = 33 AND word NOT LIKE 'tv%' AND price > 10",
        "hot BETWEEN 0 AND 40",
        "hot < 100 OR price IS NULL",
        "hot IN (0, 1, 2, 3) AND year <> 5",
        "hot NOT IN (0, 1, 2, 3)",
        "word LIKE '%number 7%'",
        "word IS NULL AND price IS NOT NULL",
        "coalesce(word, 'video of 3') LIKE 'video%'",
        "real < 12.5 AND year >= 50",
        "amount > 25.00 AND amount * 2 < 100.00",
        "year + hot < 40",
        "CASE WHEN year < 10 THEN hot ELSE price END < 100",
        "NOT (year > 10 OR price > 900)",
        "id < 1000 AND year > 50",
        "cast(hot AS double) / 3 < 20",
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let rel = tables.rel(&sql).await;
        let mut found = None;
        rel.for_each(&mut |rel| {
            if let RelKind::Filter { .. } = &rel.kind {
                found = Some(Estimator::new(&tables).estimate(rel).rows);
            }
        });
        let expected = tables.count(&sql).await;
        // Three standard errors, of what is drawn from the sample.
        let error = 3.0 * (expected / ROWS as f64 / 2857.0).sqrt() * ROWS as f64;
        let found = found.unwrap();
        assert!(
            (found - expected).abs() <= error.max(20.0),
            "{condition}: {found} for {expected}"
        );
    }
    // A small table is known whole.
    let rel = tables.rel("SELECT k FROM s WHERE v = 3 AND k < 50").await;
    let found = Estimator::new(&tables).estimate(&rel).rows;
    within(found, 7.0, 0.0, "v = 3 AND k < 50");
}

#[tokio::test]
async fn groups_of_expressions_and_of_columns_that_go_together_are_seen_in_samples() {
    let mut numbers = Numbers(11);
    let values: Vec<f64> = (0..ROWS).map(|_| numbers.draw() * 2.0).collect();
    let cities = numbers.zipf(ROWS, 3000, 0.0);
    let tables = Tables::new(&[(
        "t",
        vec![
            (
                "f",
                Arc::new(Float64Array::from_iter_values(values)) as ArrayRef,
            ),
            ("n", integers(numbers.zipf(ROWS, 30_000, 0.0))),
            ("city", integers(cities.iter().map(|city| city % 300))),
            (
                "country",
                integers(cities.iter().map(|city| city % 300 / 10)),
            ),
            (
                "text",
                Arc::new(StringArray::from_iter_values(
                    cities.iter().map(|city| format!("{}-{city}", city % 7)),
                )),
            ),
        ],
    )]);
    for (keys, share) in [
        ("floor(f / 0.25) * 0.25", 0.0),
        ("n % 10", 0.0),
        ("city, country", 0.1),
        ("substr(text, 1, 1)", 0.0),
        (
            "CASE WHEN n > 7 THEN 'many' WHEN n > 2 THEN 'some' END",
            0.0,
        ),
        ("least(city, 5), greatest(country, 25)", 0.1),
        // Nothing is known of these but that there are many.
        ("n", 0.05),
        ("f", 0.05),
        ("n, city", 0.4),
    ] {
        let rel = tables
            .rel(&format!("SELECT {keys}, count(*) FROM t GROUP BY {keys}"))
            .await;
        let exact = tables
            .count(&format!(
                "SELECT count(*) FROM (SELECT {keys} FROM t GROUP BY {keys})"
            ))
            .await;
        within(
            Estimator::new(&tables).rows(&rel),
            exact,
            share + 1e-9,
            keys,
        );
    }
}
