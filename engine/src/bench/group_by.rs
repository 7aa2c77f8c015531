//! Grouped aggregation as queries: groups, key widths, skew and decimals (SEEDS A11, C).
//!
//! A table is made once a sweep; each point is a query that groups it and adds up what the groups hold, so that the answer is
//! one row that the CPU checks. Times are those of the kernels: materialising the groups is in them, planning is not.
//! All algorithms are measured, or, with `--set warpline.group_by=NAME`, that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Int32Array, Int64Array, RecordBatch,
};
use datafusion::arrow::datatypes::{Int64Type, Schema};
use futures::FutureExt;
use warpline_planner::{GroupAlgorithm, GroupSetting, WarplineConfig};

use super::data::{Zipf, check, generate, mix};
use super::{Bench, Benchmark, Point, Sweep, Timing, median, wrong};
use crate::error::Result;

/// Group-bys.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "group-by",
    about: "aggregates of groups: 2 x max(int), and sum(decimal)",
    sweeps: &[
        Sweep {
            name: "groups",
            about: "groups of int keys without gaps",
            x: "groups",
            logarithmic: true,
            run: |bench| async move { groups(bench, Keys::Dense).await }.boxed(),
        },
        Sweep {
            name: "sparse",
            about: "groups of int keys all over their range",
            x: "groups",
            logarithmic: true,
            run: |bench| async move { groups(bench, Keys::Sparse).await }.boxed(),
        },
        Sweep {
            name: "wide",
            about: "groups of bigint keys all over their range",
            x: "groups",
            logarithmic: true,
            run: |bench| async move { groups(bench, Keys::Wide).await }.boxed(),
        },
        Sweep {
            name: "skew",
            about: "Zipf exponent of int keys without gaps, over 2^12 and 2^16 groups",
            x: "exponent",
            logarithmic: false,
            run: |bench| async move { skew(bench).await }.boxed(),
        },
        Sweep {
            name: "decimals",
            about: "groups of sums of 128-bit decimals",
            x: "groups",
            logarithmic: true,
            run: |bench| async move { decimals(bench).await }.boxed(),
        },
    ],
};

/// Name of the table while a benchmark runs.
const TABLE: &str = "warpline_bench_group_by";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Dense,
    Sparse,
    Wide,
}

impl Keys {
    /// The key of group `rank`.
    fn key(self, rank: u64) -> i64 {
        match self {
            Self::Dense => rank as i64,
            // An odd factor: different ranks have different keys.
            Self::Sparse => ((rank.wrapping_mul(0x9e37_79b1) & 0xFFFF_FFFF) as u32 as i32).into(),
            Self::Wide => (rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2) as i64,
        }
    }

    fn bytes(self) -> u64 {
        if self == Self::Wide { 8 } else { 4 }
    }
}

/// One grouping of the rows.
struct Grouping {
    series: String,
    x: f64,
    groups: u64,
    exponent: f64,
    keys: Keys,
}

impl Grouping {
    fn ranks(&self, rows: usize) -> Vec<u32> {
        let zipf = Zipf::new(self.groups, self.exponent);
        generate(rows, |row| (zipf.rank(row) - 1) as u32)
    }
}

async fn groups(bench: &Bench, keys: Keys) -> Result<Vec<Point>> {
    let most = bench.rows().ilog2().saturating_sub(2).max(2);
    let list = (2..=most.min(26))
        .step_by(if bench.emulated() { 4 } else { 2 })
        .map(|bits| Grouping {
            series: String::new(),
            x: (1u64 << bits) as f64,
            groups: 1 << bits,
            exponent: 0.0,
            keys,
        });
    maxima(bench, list.collect()).await
}

async fn skew(bench: &Bench) -> Result<Vec<Point>> {
    let mut list = Vec::new();
    for bits in [12u32, 16] {
        let exponents: &[f64] = match bench.emulated() {
            true => &[1.5],
            false => &[0.0, 0.5, 1.0, 1.25, 1.5],
        };
        for exponent in exponents.iter().copied() {
            list.push(Grouping {
                series: format!("2^{bits} "),
                x: exponent,
                groups: 1 << bits,
                exponent,
                keys: Keys::Dense,
            });
        }
    }
    maxima(bench, list).await
}

/// `max(a), max(b)` of each grouping.
async fn maxima(bench: &Bench, list: Vec<Grouping>) -> Result<Vec<Point>> {
    let rows = bench.rows() as usize;
    let a = generate(rows, |row| mix(row ^ 0xa5a5) as i32);
    let b = generate(rows, |row| mix(row ^ 0x5a5a_0000) as i32);
    let mut points = Vec::new();
    for grouping in list {
        let ranks = grouping.ranks(rows);
        let keys: ArrayRef = match grouping.keys {
            Keys::Wide => Arc::new(Int64Array::from(generate(rows, |row| {
                grouping.keys.key(ranks[row as usize].into())
            }))),
            _ => Arc::new(Int32Array::from(generate(rows, |row| {
                grouping.keys.key(ranks[row as usize].into()) as i32
            }))),
        };
        let expected = expected_maxima(&grouping, &ranks, &a, &b)?;
        drop(ranks);
        let columns = vec![
            ("k", keys),
            ("a", Arc::new(Int32Array::from(a.clone())) as ArrayRef),
            ("b", Arc::new(Int32Array::from(b.clone())) as ArrayRef),
        ];
        let sql = format!(
            "SELECT count(*), sum(CAST(k AS BIGINT)), sum(CAST(x AS BIGINT)), sum(CAST(y AS BIGINT)) FROM \
             (SELECT k, max(a) AS x, max(b) AS y FROM {TABLE} GROUP BY k)"
        );
        let bytes = bench.rows() * (grouping.keys.bytes() + 8);
        points.extend(measured(bench, &grouping, columns, &sql, expected, bytes).await?);
    }
    Ok(points)
}

/// Groups, and the sums over them of their keys and maxima.
fn expected_maxima(grouping: &Grouping, ranks: &[u32], a: &[i32], b: &[i32]) -> Result<[i64; 4]> {
    let most = |values: &[i32]| -> Result<Vec<AtomicI64>> {
        let found: Vec<AtomicI64> = (0..grouping.groups)
            .map(|_| AtomicI64::new(i64::MIN))
            .collect();
        check(ranks.len(), |range| {
            for row in range {
                let place = &found[ranks[row] as usize];
                let value = i64::from(values[row]);
                if place.load(Relaxed) < value {
                    place.fetch_max(value, Relaxed);
                }
            }
            Ok(())
        })?;
        Ok(found)
    };
    let (x, y) = (most(a)?, most(b)?);
    let mut sums = [0i64; 4];
    for (rank, (x, y)) in x.into_iter().zip(y).enumerate() {
        let (x, y) = (x.into_inner(), y.into_inner());
        if x != i64::MIN {
            let terms = [1, grouping.keys.key(rank as u64), x, y];
            for (sum, term) in sums.iter_mut().zip(terms) {
                *sum = sum.wrapping_add(term);
            }
        }
    }
    Ok(sums)
}

/// `sum(d)` of few and of many groups.
async fn decimals(bench: &Bench) -> Result<Vec<Point>> {
    let rows = bench.rows() as usize;
    // Wide enough that no column keeps them in 8 bytes.
    let value = |row: u64| i128::from(mix(row ^ 0xdeca) as i64) * 64;
    let mut points = Vec::new();
    for bits in [2u32, 20] {
        let grouping = Grouping {
            series: String::new(),
            x: (1u64 << bits) as f64,
            groups: 1 << bits,
            exponent: 0.0,
            keys: Keys::Dense,
        };
        let ranks = grouping.ranks(rows);
        let seen: Vec<AtomicU64> = (0..grouping.groups).map(|_| AtomicU64::new(0)).collect();
        let total = AtomicI64::new(0);
        check(rows, |range| {
            let mut sum = 0i64;
            for row in range {
                seen[ranks[row] as usize].store(1, Relaxed);
                sum = sum.wrapping_add((value(row as u64) % 1_000_000_007) as i64);
            }
            total.fetch_add(sum, Relaxed);
            Ok(())
        })?;
        let groups: u64 = seen.iter().map(|s| s.load(Relaxed)).sum();
        let keys: i64 = (0i64..)
            .zip(&seen)
            .map(|(k, s)| k * s.load(Relaxed) as i64)
            .sum();
        let sum: i128 = (0..rows as u64).map(value).sum();
        let array = Decimal128Array::from(generate(rows, value))
            .with_precision_and_scale(38, 0)
            .map_err(datafusion::error::DataFusionError::from)?;
        let columns = vec![
            (
                "k",
                Arc::new(Int32Array::from(generate(rows, |row| {
                    ranks[row as usize] as i32
                }))) as ArrayRef,
            ),
            ("d", Arc::new(array) as ArrayRef),
        ];
        // The sum modulo a prime: a remainder of the whole that 64 bits hold.
        let sql = format!(
            "SELECT count(*), sum(CAST(k AS BIGINT)), CAST(sum(x) % 1000000007 AS BIGINT), CAST(0 AS BIGINT) FROM \
             (SELECT k, sum(d) AS x FROM {TABLE} GROUP BY k)"
        );
        let expected = [groups as i64, keys, (sum % 1_000_000_007) as i64, 0];
        let bytes = bench.rows() * 20;
        points.extend(measured(bench, &grouping, columns, &sql, expected, bytes).await?);
    }
    Ok(points)
}

/// A query's kernels by each algorithm; the answer is one row of four numbers.
async fn measured(
    bench: &Bench,
    grouping: &Grouping,
    columns: Vec<(&str, ArrayRef)>,
    sql: &str,
    expected: [i64; 4],
    bytes: u64,
) -> Result<Vec<Point>> {
    const SETTING: &str = "warpline.group_by";
    let session = bench.session();
    let batch =
        RecordBatch::try_from_iter(columns).map_err(datafusion::error::DataFusionError::from)?;
    let batch = RecordBatch::try_new(
        Arc::new(Schema::new(batch.schema().fields().clone())),
        batch.columns().to_vec(),
    )
    .map_err(datafusion::error::DataFusionError::from)?;
    session.context().register_batch(TABLE, batch)?;
    // However few rows, it is the device that is measured.
    session.set("warpline.min_rows", "0").await?;
    let asked = WarplineConfig::of(session.context().state().config_options()).group_by;
    let algorithms: Vec<GroupSetting> = match asked {
        // In the emulator only answers count.
        GroupSetting::Auto if bench.emulated() => vec![
            GroupSetting::Auto,
            GroupSetting::Force(GroupAlgorithm::PgbTr),
        ],
        GroupSetting::Auto => [GroupSetting::Auto]
            .into_iter()
            .chain(GroupAlgorithm::ALL.map(GroupSetting::Force))
            .collect(),
        forced => vec![forced],
    };
    let mut points = Vec::new();
    for algorithm in algorithms {
        session.set(SETTING, &algorithm.to_string()).await?;
        // What is impossible would be measured as auto.
        let plan = session.query(&format!("EXPLAIN ANALYZE {sql}")).await?;
        let plan = format!("{:?}", plan.batches);
        if plan.contains(" is impossible") {
            continue;
        }
        let mut times = Vec::new();
        // The first run reads sizes, the second uses them.
        for run in 0..bench.runs() + 2 {
            let answer = session.query(sql).await?;
            let row: Vec<i64> = answer
                .batches
                .iter()
                .filter(|batch| batch.num_rows() > 0)
                .flat_map(|batch| batch.columns())
                .map(|column| column.as_primitive::<Int64Type>())
                .filter(|column| !column.is_empty() && column.is_valid(0))
                .map(|column| column.value(0))
                .collect();
            if row != expected {
                return Err(wrong(&format!(
                    "{algorithm} over {} groups gave {row:?} in place of {expected:?}",
                    grouping.groups
                )));
            }
            if let Some(fallback) = answer.metrics.fallbacks.first() {
                return Err(crate::error::Error::Bench(format!(
                    "the CPU answered in place of {algorithm}: {fallback}"
                )));
            }
            if run >= 2 {
                times.push(answer.metrics.kernel_ms);
            }
        }
        let ms = median(times);
        let timing = Timing {
            phases: vec![("kernels", ms)],
            ms,
        };
        let series = format!("{}{algorithm}", grouping.series);
        points.push(Point::new(series, grouping.x, bench.rows(), bytes, timing));
    }
    session.set(SETTING, &asked.to_string()).await?;
    session.context().deregister_table(TABLE)?;
    Ok(points)
}
