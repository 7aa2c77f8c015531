//! Grouped aggregation as queries whose groups stay on the device: groups, key widths, skew, decimals, aggregates.
//!
//! Tables are made on the device ([`warpline_gpu::synthetic`]) with the statistics that loading would have brought. Times
//! are those of the kernels, with everything from the resident columns to the resident groups; planning is not in them. All
//! algorithms are measured, or, with `--set warpline.group_by=NAME`, that one (Wu et al., SIGMOD 2025; Karnagel et al., DaMoN 2015).

use futures::FutureExt;
use warpline_gpu::synthetic::{Grouped, KeyKind, Made, Numbers, Outcome, Returned, Side, make};
use warpline_planner::{GroupAlgorithm, GroupSetting, WarplineConfig};

use super::answered::{self, Attempt, answered, emit_if_possible, register};
use super::{Bench, Benchmark, Emit, Spacing, Sweep};
use crate::error::Result;

/// Group-bys.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "group-by",
    about: "aggregates of groups: 2 x max(int), sums of decimals, and others",
    sweeps: &[
        Sweep {
            name: "groups",
            about: "groups of int keys without gaps",
            x: "groups",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { groups(bench, KeyKind::Dense, emit).await }.boxed(),
        },
        Sweep {
            name: "sparse",
            about: "groups of int keys all over their range",
            x: "groups",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { groups(bench, KeyKind::Sparse, emit).await }.boxed(),
        },
        Sweep {
            name: "wide",
            about: "groups of bigint keys all over their range",
            x: "groups",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { groups(bench, KeyKind::Wide, emit).await }.boxed(),
        },
        Sweep {
            name: "skew",
            about: "Zipf exponent of int keys without gaps, over 2^12 and 2^16 groups",
            x: "exponent",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { skew(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "decimals",
            about: "groups of sums of 128-bit decimals",
            x: "groups",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { decimals(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "calls",
            about: "groups of count, sum, min and max of a bigint, and of the sum alone",
            x: "groups",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { calls(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "fill",
            about: "how full a hash table in device memory becomes, by its slots: bigint keys, sum of a bigint",
            x: "groups in % of the slots",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { fill(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "grid",
            about: "blocks a multiprocessor, by the groups of a table in device memory and in shared memory",
            x: "blocks a multiprocessor",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { grid(bench, emit).await }.boxed(),
        },
    ],
};

const SETTING: &str = "warpline.group_by";
const TABLE: &str = "warpline_bench_group_by";

/// What is grouped.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) rows: u64,
    pub(super) groups: u64,
    pub(super) zipf: f64,
    pub(super) keys: KeyKind,
    /// Bytes of each payload column.
    pub(super) payload: Vec<u32>,
    /// What is computed of each group.
    pub(super) returned: Vec<Returned>,
}

impl Workload {
    /// The greatest values of two columns of 4 bytes.
    fn maxima(rows: u64, groups: u64, keys: KeyKind) -> Self {
        Self {
            rows,
            groups,
            zipf: 0.0,
            keys,
            payload: vec![4, 4],
            returned: vec![Returned::Greatest(0), Returned::Greatest(1)],
        }
    }

    /// Every column read once.
    pub(super) fn bytes(&self) -> u64 {
        let key = match (self.keys, self.groups) {
            (KeyKind::Wide, _) => 8,
            (KeyKind::Dense, 0..=0x100) => 1,
            (KeyKind::Dense, 0x101..=0x1_0000) => 2,
            _ => 4,
        };
        self.rows * (key + self.payload.iter().map(|w| u64::from(*w)).sum::<u64>())
    }
}

/// A workload's table, registered, and what its groups must be.
pub(super) struct Grouping {
    pub(super) workload: Workload,
    want: Outcome,
    sql: String,
    #[expect(
        dead_code,
        reason = "held, not read: the registered table goes with it"
    )]
    made: Made,
}

impl Grouping {
    pub(super) async fn new(bench: &Bench, workload: Workload) -> Result<Self> {
        let runtime = bench.runtime();
        let stream = runtime.lease_stream()?;
        let side = Side {
            name: "rows",
            rows: workload.rows,
            numbers: Numbers::Drawn {
                values: workload.groups,
                exponent: workload.zipf,
            },
            keys: workload.keys,
            prefix: "v",
            payload: workload.payload.clone(),
            seed: 3,
        };
        let made = make(runtime, &stream, side)?;
        let returned = &workload.returned;
        let want = Grouped::of(runtime, &stream, &made, returned)?;
        let want = want.outcome(runtime, &stream, returned)?;
        register(bench, TABLE, &made)?;
        // However few rows, it is the device that is measured.
        bench.set("warpline.min_rows", "0").await?;
        let calls: Vec<String> = returned
            .iter()
            .map(|call| match call {
                Returned::Count => "count(*)".to_string(),
                Returned::Least(column) => format!("min(v{column})"),
                Returned::Greatest(column) => format!("max(v{column})"),
                Returned::Sum(column) => format!("sum(v{column})"),
            })
            .collect();
        let sql = format!("SELECT k, {} FROM {TABLE} GROUP BY k", calls.join(", "));
        Ok(Self {
            workload,
            want,
            sql,
            made,
        })
    }

    pub(super) async fn run(&self, bench: &Bench, algorithm: GroupSetting) -> Result<Attempt> {
        let algorithm = algorithm.to_string();
        answered(bench, &self.sql, (SETTING, &algorithm), self.want).await
    }

    pub(super) fn forget(&self, bench: &Bench) -> Result<()> {
        bench.context().deregister_table(TABLE)?;
        Ok(())
    }
}

/// The settings to measure.
pub(super) fn settings(bench: &Bench, asked: GroupSetting) -> Vec<GroupSetting> {
    let few = [GroupAlgorithm::Global, GroupAlgorithm::PgbTr];
    answered::settings(bench, asked, &GroupAlgorithm::ALL, &few)
}

async fn point(
    bench: &Bench,
    workload: Workload,
    prefix: &str,
    x: f64,
    emit: &mut Emit<'_>,
) -> Result<()> {
    let grouping = Grouping::new(bench, workload).await?;
    let workload = &grouping.workload;
    let state = bench.context().state();
    let asked = WarplineConfig::of(state.config_options()).group_by;
    for algorithm in settings(bench, asked) {
        let attempt = grouping.run(bench, algorithm).await?;
        let series = (format!("{prefix}{algorithm}"), x);
        emit_if_possible(attempt, series, (workload.rows, workload.bytes()), emit)?;
    }
    bench.set(SETTING, &asked.to_string()).await?;
    grouping.forget(bench)
}

/// One algorithm's point of a sweep over a setting.
async fn forced(
    bench: &Bench,
    grouping: &Grouping,
    algorithm: GroupAlgorithm,
    (series, x): (String, f64),
    emit: &mut Emit<'_>,
) -> Result<()> {
    let attempt = grouping.run(bench, GroupSetting::Force(algorithm)).await?;
    let of = (grouping.workload.rows, grouping.workload.bytes());
    emit_if_possible(attempt, (series, x), of, emit)
}

/// C5: tables of 2^16 slots (in the L2 cache), 2^21 and 2^25 slots, more and more of them taken.
async fn fill(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    const SLOTS: &str = "warpline.group_slots";
    let asked = WarplineConfig::of(bench.context().state().config_options());
    let sizes: &[u32] = if bench.emulated() {
        &[8]
    } else {
        &[16, 21, 25]
    };
    for bits in sizes
        .iter()
        .copied()
        .filter(|bits| 1 << bits <= bench.rows())
    {
        for percent in bench.some(&[5u64, 12, 25, 40, 50, 65, 75, 85]) {
            let slots = 1u64 << bits;
            let workload = Workload {
                payload: vec![8],
                returned: vec![Returned::Sum(0)],
                ..Workload::maxima(bench.rows(), (slots * percent / 100).max(1), KeyKind::Wide)
            };
            let grouping = Grouping::new(bench, workload).await?;
            bench.set(SLOTS, &slots.to_string()).await?;
            let series = (format!("2^{bits} slots"), percent as f64);
            forced(bench, &grouping, GroupAlgorithm::Global, series, emit).await?;
            grouping.forget(bench)?;
        }
    }
    bench.set(SLOTS, &asked.group_slots.to_string()).await?;
    bench.set(SETTING, &asked.group_by.to_string()).await
}

/// C5: few and many blocks.
async fn grid(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    const BLOCKS: &str = "warpline.blocks";
    let asked = WarplineConfig::of(bench.context().state().config_options());
    for (bits, algorithm) in [
        (8u32, GroupAlgorithm::Shared),
        (12, GroupAlgorithm::Shared),
        (16, GroupAlgorithm::Global),
        (22, GroupAlgorithm::Global),
    ] {
        if 1 << bits > bench.rows() {
            continue;
        }
        let workload = Workload::maxima(bench.rows(), 1 << bits, KeyKind::Dense);
        let grouping = Grouping::new(bench, workload).await?;
        for blocks in bench.some(&[1u64, 2, 3, 4, 6, 8]) {
            bench.set(BLOCKS, &blocks.to_string()).await?;
            let series = (format!("2^{bits} groups, {algorithm}"), blocks as f64);
            forced(bench, &grouping, algorithm, series, emit).await?;
        }
        grouping.forget(bench)?;
    }
    bench.set(BLOCKS, &asked.blocks.to_string()).await?;
    bench.set(SETTING, &asked.group_by.to_string()).await
}

async fn groups(bench: &Bench, keys: KeyKind, emit: &mut Emit<'_>) -> Result<()> {
    let most = bench.rows().max(16).ilog2() - 2;
    let all: Vec<u32> = (2..=most.min(26)).step_by(2).collect();
    for bits in bench.some(&all) {
        let workload = Workload::maxima(bench.rows(), 1 << bits, keys);
        point(bench, workload, "", (1u64 << bits) as f64, emit).await?;
    }
    Ok(())
}

async fn skew(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for bits in [12u32, 16] {
        for zipf in bench.some(&[0.0, 0.5, 1.0, 1.25, 1.5, 2.0]) {
            let workload = Workload {
                zipf,
                ..Workload::maxima(bench.rows(), 1 << bits, KeyKind::Dense)
            };
            point(bench, workload, &format!("2^{bits} "), zipf, emit).await?;
        }
    }
    Ok(())
}

async fn decimals(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for bits in [2u32, 8, 12, 16, 20, 24] {
        if bench.rows() < 4 << bits && bits > 2 {
            continue;
        }
        let workload = Workload {
            payload: vec![16],
            returned: vec![Returned::Sum(0)],
            ..Workload::maxima(bench.rows(), 1 << bits, KeyKind::Dense)
        };
        point(bench, workload, "", (1u64 << bits) as f64, emit).await?;
    }
    Ok(())
}

async fn calls(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    let all = vec![
        Returned::Sum(0),
        Returned::Count,
        Returned::Least(0),
        Returned::Greatest(0),
    ];
    for (name, returned) in [("sum: ", vec![Returned::Sum(0)]), ("all: ", all)] {
        for bits in [2u32, 20] {
            if bench.rows() < 4 << bits && bits > 2 {
                continue;
            }
            let workload = Workload {
                payload: vec![8],
                returned: returned.clone(),
                ..Workload::maxima(bench.rows(), 1 << bits, KeyKind::Dense)
            };
            point(bench, workload, name, (1u64 << bits) as f64, emit).await?;
        }
    }
    Ok(())
}
