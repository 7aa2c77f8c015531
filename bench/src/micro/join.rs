//! Joins as queries whose result stays on the device, fully materialised, by each algorithm and by the planner's
//! choice.
//!
//! Both sides have a key and some columns; the result has the key and the columns of both. Both tables are made on the
//! device ([`warpline_gpu::synthetic`]), with the statistics that loading them would have brought: ranges and uniqueness
//! exactly, distinct keys, the share of keys with a match and skew from sketches and samples. Times are those of the
//! kernels, with everything from the resident columns to the resident result; planning is not in them. With
//! `--set warpline.join=NAME` that algorithm alone is measured (Wu et al., SIGMOD 2025; Rui and Tu, SSDBM 2017).

use futures::FutureExt;
use warpline_gpu::synthetic::{KeyKind, Made, Numbers, Outcome, Side, joined, make};
use warpline_planner::JoinAlgorithm;
use warpline_planner::{JoinSetting, WarplineConfig};

use super::answered::{self, Attempt, answered, emit_if_possible, register};
use super::output::output;
use super::{Bench, Benchmark, Emit, Spacing, Sweep};
use crate::error::Result;

/// Joins.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "join",
    about: "joins of two tables in device memory, all columns materialised",
    sweeps: &[
        Sweep {
            name: "skew",
            about: "how unevenly often the probing keys occur; two columns of 4 bytes a side",
            x: "Zipf exponent",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { skew(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "matched",
            about: "share of the probing rows that have a match; two columns of 4 bytes a side",
            x: "matched rows in %",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { matched(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "widths",
            about: "bytes of keys and columns: 4 and 4, 4 and 8, 8 and 4, 8 and 8; two columns a side",
            x: "bytes of a row",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { widths(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "repeats",
            about: "rows of each key on the build side, which as the probing side has half the rows",
            x: "rows of a key",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { repeats(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "columns",
            about: "columns of each side; none is the narrow join",
            x: "columns a side",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { columns(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "sizes",
            about: "build rows for each probing row; two columns of 4 bytes a side",
            x: "build rows / probe rows",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { sizes(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "output",
            about: "pairs of partitioned sides of half the rows, written at once or counted first",
            x: "rows of a key",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { output(bench, emit) }.boxed(),
        },
    ],
};

const SETTING: &str = "warpline.join";
const BUILD: &str = "warpline_bench_build";
const PROBE: &str = "warpline_bench_probe";

/// What is joined.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) build_rows: u64,
    pub(super) probe_rows: u64,
    /// Different build keys; as many as rows: every key once.
    pub(super) distinct: u64,
    /// Probing keys are drawn from this many times as many numbers; one in so many has a match.
    pub(super) times: u64,
    pub(super) zipf: f64,
    pub(super) keys: KeyKind,
    /// Bytes of each column of a side.
    pub(super) build_columns: Vec<u32>,
    pub(super) probe_columns: Vec<u32>,
}

impl Workload {
    /// Rows of both sides alike, every key once and without gaps, every probing row matched, two columns a side.
    fn even(rows: u64) -> Self {
        Self {
            build_rows: rows,
            probe_rows: rows,
            distinct: rows.max(1),
            times: 1,
            zipf: 0.0,
            keys: KeyKind::Dense,
            build_columns: vec![4, 4],
            probe_columns: vec![4, 4],
        }
    }

    /// Every column of both sides read once, every column of the result written once.
    pub(super) fn bytes(&self, pairs: u64) -> u64 {
        let key = if self.keys == KeyKind::Wide { 8 } else { 4 };
        let of = |columns: &[u32]| columns.iter().map(|w| u64::from(*w)).sum::<u64>();
        let (build, probe) = (of(&self.build_columns), of(&self.probe_columns));
        self.build_rows * (key + build)
            + self.probe_rows * (key + probe)
            + pairs * (key + build + probe)
    }
}

/// A workload's tables, registered, and what the join must give.
pub(super) struct Joining {
    pub(super) workload: Workload,
    pub(super) want: Outcome,
    sql: String,
    #[expect(
        dead_code,
        reason = "held, not read: the registered tables go with them"
    )]
    sides: (Made, Made),
}

impl Joining {
    pub(super) async fn new(bench: &Bench, workload: Workload) -> Result<Self> {
        let runtime = bench.runtime();
        let stream = runtime.lease_stream()?;
        let build = Side {
            name: "build",
            rows: workload.build_rows,
            numbers: Numbers::InTurn {
                distinct: workload.distinct,
                stride: workload.times,
            },
            keys: workload.keys,
            prefix: "b",
            payload: workload.build_columns.clone(),
            seed: 1,
        };
        let probe = Side {
            name: "probe",
            rows: workload.probe_rows,
            numbers: Numbers::Drawn {
                values: workload.distinct * workload.times,
                exponent: workload.zipf,
            },
            keys: workload.keys,
            prefix: "p",
            payload: workload.probe_columns.clone(),
            seed: 2,
        };
        let build = make(runtime, &stream, build)?;
        let probe = make(runtime, &stream, probe)?;
        let want = joined(runtime, &stream, &build, &probe)?;
        register(bench, BUILD, &build)?;
        register(bench, PROBE, &probe)?;
        // However few rows, it is the device that is measured.
        bench.set("warpline.min_rows", "0").await?;
        let mut columns = vec!["b.k".to_string()];
        columns.extend((0..workload.build_columns.len()).map(|i| format!("b.b{i}")));
        columns.extend((0..workload.probe_columns.len()).map(|i| format!("p.p{i}")));
        let sql = format!(
            "SELECT {} FROM {PROBE} p JOIN {BUILD} b ON p.k = b.k",
            columns.join(", ")
        );
        Ok(Self {
            workload,
            want,
            sql,
            sides: (build, probe),
        })
    }

    pub(super) async fn run(&self, bench: &Bench, algorithm: JoinSetting) -> Result<Attempt> {
        let algorithm = algorithm.to_string();
        answered(bench, &self.sql, (SETTING, &algorithm), self.want).await
    }

    pub(super) fn forget(&self, bench: &Bench) -> Result<()> {
        for table in [BUILD, PROBE] {
            bench.context().deregister_table(table)?;
        }
        Ok(())
    }
}

/// The settings to measure.
pub(super) fn settings(bench: &Bench, asked: JoinSetting) -> Vec<JoinSetting> {
    let few = [JoinAlgorithm::Nphj, JoinAlgorithm::PhjTr];
    answered::settings(bench, asked, &JoinAlgorithm::ALL, &few)
}

async fn point(
    bench: &Bench,
    workload: Workload,
    prefix: &str,
    x: f64,
    emit: &mut Emit<'_>,
) -> Result<()> {
    let joining = Joining::new(bench, workload).await?;
    let workload = &joining.workload;
    let state = bench.context().state();
    let asked = WarplineConfig::of(state.config_options()).join;
    let rows = workload.build_rows + workload.probe_rows;
    for algorithm in settings(bench, asked.algorithm) {
        let attempt = joining.run(bench, algorithm).await?;
        let bytes = workload.bytes(joining.want.rows);
        let series = (format!("{prefix}{algorithm}"), x);
        emit_if_possible(attempt, series, (rows, bytes), emit)?;
    }
    bench.set(SETTING, &asked.to_string()).await?;
    joining.forget(bench)
}

async fn matched(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for times in bench.some(&[1, 2, 4, 8, 16, 32]) {
        let workload = Workload {
            times,
            ..Workload::even(bench.rows())
        };
        point(bench, workload, "", 100.0 / times as f64, emit).await?;
    }
    Ok(())
}

async fn skew(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for zipf in bench.some(&[0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0]) {
        let workload = Workload {
            zipf,
            ..Workload::even(bench.rows())
        };
        point(bench, workload, "", zipf, emit).await?;
    }
    Ok(())
}

async fn widths(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for (keys, bytes) in [
        (KeyKind::Dense, 4),
        (KeyKind::Sparse, 4),
        (KeyKind::Dense, 8),
        (KeyKind::Wide, 4),
        (KeyKind::Wide, 8),
    ] {
        let (name, key) = match keys {
            KeyKind::Dense => ("dense int", 4),
            KeyKind::Sparse => ("sparse int", 4),
            KeyKind::Wide => ("bigint", 8),
        };
        let workload = Workload {
            keys,
            build_columns: vec![bytes; 2],
            probe_columns: vec![bytes; 2],
            ..Workload::even(bench.rows())
        };
        let prefix = format!("{name} keys: ");
        point(bench, workload, &prefix, f64::from(key + 2 * bytes), emit).await?;
    }
    Ok(())
}

async fn columns(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for columns in bench.some(&[0, 1, 2, 3, 4, 5, 6]) {
        let workload = Workload {
            build_columns: vec![4; columns],
            probe_columns: vec![4; columns],
            ..Workload::even(bench.rows())
        };
        point(bench, workload, "", columns as f64, emit).await?;
    }
    Ok(())
}

async fn sizes(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for parts in bench.some(&[64, 16, 4, 2, 1]) {
        let rows = (bench.rows() / parts).max(1);
        let workload = Workload {
            probe_rows: bench.rows(),
            ..Workload::even(rows)
        };
        point(bench, workload, "", 1.0 / parts as f64, emit).await?;
    }
    Ok(())
}

async fn repeats(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    let rows = (bench.rows() / 2).max(1);
    for times in bench.some(&[1, 2, 4, 8]) {
        let workload = Workload {
            distinct: (rows / times).max(1),
            ..Workload::even(rows)
        };
        point(bench, workload, "", times as f64, emit).await?;
    }
    Ok(())
}
