//! How warps share the work of tree-shaped pipelines, and whether that pays: one probe whose fan-out is skewed, and the
//! queries of JCC-H (Themis, PVLDB 2024, section 8).
//!
//! Every series is the same plan but for one setting: `tile` counts matches and goes over pairs, the others follow matches
//! through the pipeline without balance (`none`), with pieces of a fixed number of matches (`fws`), with the lanes of a warp
//! sharing (`nifs`) and with warps sharing as well (`nifs_aws`), reading values late or early (`eager`). `auto` is what the
//! planner takes. Idle lanes and the busiest warp come from a run of their own, which counts.

use futures::FutureExt;
use warpline_gpu::synthetic::{KeyKind, Numbers, Side, joined, make};
use warpline_tpch::jcch::{Bindings, Seed};
use warpline_tpch::queries::tables_of;
use warpline_tpch::verify::{Answer, compare, ordering_of};
use warpline_tpch::{Benchmark as Queries, QueryRun, Scale, generate};

use super::answered::{Answered, Attempt, Repeat, answered_as_set, register};
use super::{Bench, Benchmark, Emit, Point, Spacing, Sweep, Timing, median, wrong};
use crate::error::{Error, Result};

/// The balance of work.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "load-balance",
    about: "joins with many matches a row under each way to balance the work of warps",
    sweeps: &[
        Sweep {
            name: "fanout",
            about: "how unevenly the matches of 2^24 probing rows are spread; the index is there already",
            x: "Zipf exponent",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { fanout(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "jcch",
            about: "the queries of JCC-H with skewed bindings, at the scale of --scale",
            x: "query",
            spacing: Spacing::Names,
            run: |bench, emit| async move { jcch(bench, emit).await }.boxed(),
        },
    ],
};

/// Probing rows, fewer when fewer are asked for.
const ROWS: u64 = 1 << 24;
const BUILD: &str = "warpline_bench_entries";
const PROBE: &str = "warpline_bench_rows";
/// Scale of JCC-H's data when none is asked for: in the emulator, and on a GPU.
const SCALES: (f64, f64) = (0.01, 1.0);

/// A query that takes longer than this in the run that counts is timed by it: a cold start no longer matters.
const LONG_MS: f64 = 4000.0;
/// Hot runs of a query end when they have taken this many milliseconds together.
const MOST_MS: f64 = 2000.0;

/// A mode that takes longer than this for one exponent, where others take ten milliseconds, is left out for larger ones.
const HOPELESS_MS: f64 = 400.0;

/// A series: its name, and its settings.
struct Mode {
    name: &'static str,
    pipeline: &'static str,
    balance: &'static str,
    threshold: &'static str,
    materialization: &'static str,
}

const fn mode(name: &'static str, pipeline: &'static str, balance: &'static str) -> Mode {
    Mode {
        name,
        pipeline,
        balance,
        threshold: "4096",
        materialization: "lazy",
    }
}

const fn fixed(name: &'static str, threshold: &'static str) -> Mode {
    Mode {
        threshold,
        ..mode(name, "tree", "fws")
    }
}

const MODES: &[Mode] = &[
    mode("tile", "tile", "auto"),
    mode("none", "tree", "none"),
    fixed("fws 1024", "1024"),
    fixed("fws 2048", "2048"),
    fixed("fws 4096", "4096"),
    fixed("fws 8192", "8192"),
    fixed("fws 16384", "16384"),
    mode("nifs", "tree", "nifs"),
    mode("nifs_aws", "tree", "nifs_aws"),
    Mode {
        materialization: "eager",
        ..mode("nifs_aws eager", "tree", "nifs_aws")
    },
    mode("auto", "auto", "auto"),
];

impl Mode {
    async fn set(&self, bench: &Bench) -> Result<()> {
        for (setting, value) in [
            ("warpline.pipeline", self.pipeline),
            ("warpline.load_balance", self.balance),
            ("warpline.fws_threshold", self.threshold),
            ("warpline.materialization", self.materialization),
        ] {
            bench.set(setting, value).await?;
        }
        Ok(())
    }
}

async fn fanout(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    bench.set("warpline.min_rows", "0").await?;
    bench.set("warpline.index_joins", "on").await?;
    bench.set("warpline.join", "nphj").await?;
    let rows = bench.rows().min(ROWS);
    let mut hopeless = [false; MODES.len()];
    for exponent in [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0] {
        let stream = bench.runtime().lease_stream()?;
        // Two probing rows a key, so that neither side is unique; four entries a key on average.
        let keys = (rows / 2).max(1);
        let side = |name, prefix, numbers, rows, seed| Side {
            name,
            rows,
            numbers,
            keys: KeyKind::Dense,
            prefix,
            payload: vec![4],
            seed,
        };
        let in_turn = Numbers::InTurn {
            distinct: keys,
            stride: 1,
        };
        let drawn = Numbers::Drawn {
            values: keys,
            exponent,
        };
        let probe = make(
            bench.runtime(),
            &stream,
            side("rows", "b", in_turn, rows, 1),
        )?;
        let entries = make(
            bench.runtime(),
            &stream,
            side("entries", "p", drawn, 4 * keys, 2),
        )?;
        let want = joined(bench.runtime(), &stream, &probe, &entries)?;
        register(bench, PROBE, &probe)?;
        register(bench, BUILD, &entries)?;
        let sql = format!("SELECT b.k, b.b0, p.p0 FROM {PROBE} b JOIN {BUILD} p ON b.k = p.k");
        // A row of each side and a row of the result.
        let bytes = rows * 8 + 4 * keys * 4 + want.rows * 12;
        for (mode, hopeless) in MODES.iter().zip(&mut hopeless) {
            if *hopeless {
                continue;
            }
            mode.set(bench).await?;
            let timed = answered_as_set(bench, &sql, mode.name, want, Repeat::Timed).await?;
            bench.set("warpline.metrics", "true").await?;
            let counted = answered_as_set(bench, &sql, mode.name, want, Repeat::Once).await;
            bench.set("warpline.metrics", "false").await?;
            let timing = ran(timed)?.timing;
            *hopeless = timing.ms > HOPELESS_MS;
            let point = Point::new(mode.name, exponent, want.rows, bytes, timing);
            emit(point.balanced(ran(counted?)?.balance))?;
        }
        for table in [BUILD, PROBE] {
            bench.context().deregister_table(table)?;
        }
        bench.runtime().drop_indexes();
    }
    Ok(())
}

fn ran(attempt: Attempt) -> Result<Answered> {
    match attempt {
        Attempt::Done(done) => Ok(done),
        Attempt::Impossible(why) => Err(Error::Bench(why)),
    }
}

async fn jcch(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    bench.set("warpline.min_rows", "0").await?;
    let scale = match bench.scale() {
        Some(scale) => scale,
        None => Scale::new(if bench.emulated() { SCALES.0 } else { SCALES.1 })?,
    };
    let benchmark = Queries::Jcch {
        bindings: Bindings::Skewed,
        seed: Seed::default(),
    };
    let dataset = benchmark.dataset(scale)?;
    let queries = benchmark.queries(&bench.queries(), dataset.scale())?;
    let tables = tables_of(&queries);
    let made = tokio::task::spawn_blocking(move || {
        generate::generate(&tables, dataset, generate::available_threads())
    });
    let made = made
        .await
        .map_err(|error| Error::Bench(format!("data was not generated: {error}")))??;
    generate::register(bench.engine(), made)?;
    for query in &queries {
        let plan = bench.context().sql(&query.sql).await?;
        let ordering = ordering_of(plan.logical_plan());
        // Loads the columns, so that no mode is taken for slow because it comes first.
        bench.engine().run(&query.sql).await?;
        let mut expected: Option<Answer> = None;
        for mode in MODES {
            mode.set(bench).await?;
            let Counted { ms, run, answer } = counted(bench, &query.sql).await?;
            let times = match ms > LONG_MS {
                true => vec![ms],
                false => timed(bench, &query.sql).await?,
            };
            let expected = expected.get_or_insert_with(|| answer.clone());
            if let Some(difference) = compare(expected, &answer, &ordering) {
                return Err(wrong(&format!(
                    "Q{} by {}: {difference}",
                    query.number, mode.name
                )));
            }
            let timing = Timing {
                ms: median(times),
                phases: vec![],
            };
            let (rows, bytes) = (run.rows() as u64, run.metrics.bytes.unwrap_or(0));
            let point = Point::new(mode.name, query.number.into(), rows, bytes, timing);
            emit(point.balanced(run.metrics.balance))?;
        }
    }
    Ok(())
}

/// Hot times in milliseconds.
async fn timed(bench: &Bench, sql: &str) -> Result<Vec<f64>> {
    let mut times: Vec<f64> = Vec::new();
    bench.engine().run(sql).await?;
    while times.len() < bench.runs() && times.iter().sum::<f64>() < MOST_MS {
        let start = std::time::Instant::now();
        bench.engine().run(sql).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// A run that counts, compilation included.
struct Counted {
    ms: f64,
    run: QueryRun,
    answer: Answer,
}

async fn counted(bench: &Bench, sql: &str) -> Result<Counted> {
    bench.set("warpline.metrics", "true").await?;
    let start = std::time::Instant::now();
    let run = bench.engine().run(sql).await;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    bench.set("warpline.metrics", "false").await?;
    let run = run?;
    let answer = Answer::new(&run.schema, &run.batches)
        .map_err(|error| Error::Bench(format!("an answer cannot be compared: {error}")))?;
    Ok(Counted { ms, run, answer })
}
