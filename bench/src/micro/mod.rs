//! Micro-benchmarks of the device: sweeps of one parameter, every result checked on the CPU.
//!
//! A [`Benchmark`] has [`Sweep`]s; running one gives [`Point`]s, and a [`Report`] of them prints as a table, as JSON or
//! as line charts. To add a benchmark, write a module with a `BENCHMARK` like those here and list it in [`BENCHMARKS`].

mod answered;
pub(crate) mod chart;
pub mod choice;
mod compare;
mod data;
mod gather;
mod group_by;
mod join;
mod load_balance;
mod output;
mod parquet;
mod partition;
mod report;
mod sort;
mod triton;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::logical_expr::{LogicalPlan, SetVariable, Statement};
use datafusion::prelude::SessionContext;
use futures::future::BoxFuture;
use serde::Serialize;
use warpline_gpu::device::{Event, Stream};
use warpline_gpu::machine::Machine;
use warpline_gpu::memory::MemoryPool;
use warpline_gpu::runtime::Runtime;
use warpline_planner::ByteSize;
use warpline_tpch::environment::Environment;
use warpline_tpch::{QueryEngine, Scale};

pub use compare::EarlierReport;
pub use report::{LinkBytes, Point, Report, SweepReport};

use crate::error::{Error, Result};

/// All benchmarks.
pub const BENCHMARKS: &[&Benchmark] = &[
    &partition::BENCHMARK,
    &gather::BENCHMARK,
    &sort::BENCHMARK,
    &group_by::BENCHMARK,
    &join::BENCHMARK,
    &load_balance::BENCHMARK,
    &triton::BENCHMARK,
    &parquet::BENCHMARK,
];

/// Rows of the largest inputs: on a GPU, and in the emulator, whose times mean nothing.
const ROWS: u64 = 1 << 27;
const ROWS_EMULATED: u64 = 1 << 11;

/// Sweeps about one operation.
#[derive(Debug)]
pub struct Benchmark {
    /// The name on the command line.
    pub name: &'static str,
    /// What is measured, in a sentence.
    pub about: &'static str,
    /// In the order in which they run.
    pub sweeps: &'static [Sweep],
}

/// What lies between the values of a parameter, and so how they are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// It grows by steps: lines over a linear axis.
    Steps,
    /// It grows by factors: lines over a logarithmic axis.
    Factors,
    /// Nothing, for they are names: bars in groups.
    Names,
}

/// A parameter that is varied while everything else stays.
pub struct Sweep {
    /// The name on the command line.
    pub name: &'static str,
    /// What is varied, in a sentence.
    pub about: &'static str,
    /// The parameter, with its unit.
    pub x: &'static str,
    /// What lies between the parameter's values.
    pub spacing: Spacing,
    /// Measures all points and hands each over as it comes.
    pub run: for<'a> fn(&'a Bench, &'a mut Emit<'a>) -> BoxFuture<'a, Result<()>>,
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep").field("name", &self.name).finish()
    }
}

/// Takes a point; an error ends the sweep.
pub type Emit<'a> = dyn FnMut(Point) -> Result<()> + Send + 'a;

/// What a sweep runs on.
pub struct Bench {
    engine: Box<dyn QueryEngine>,
    environment: Option<Environment>,
    runtime: Arc<Runtime>,
    rows: Option<u64>,
    runs: usize,
    scale: Option<Scale>,
    queries: Option<Vec<u8>>,
    budget: Option<ByteSize>,
    limit: Duration,
    on_peers: bool,
}

/// Time for all runs of a point of a benchmark that has a limit.
const LIMIT: Duration = Duration::from_secs(60);

impl Bench {
    /// A benchmark on `runtime`, the device of `engine`, with inputs of `rows` rows (by default 2^27, in the emulator 2^11)
    /// and the median of `runs` timed runs after one that is not counted.
    pub fn new(
        engine: impl QueryEngine + 'static,
        runtime: Arc<Runtime>,
        rows: Option<u64>,
        runs: usize,
    ) -> Self {
        Self {
            engine: Box::new(engine),
            environment: None,
            runtime,
            rows,
            runs: runs.max(1),
            scale: None,
            queries: None,
            budget: None,
            limit: LIMIT,
            on_peers: false,
        }
    }

    /// The same with what reports are to say of machine, versions and settings.
    #[must_use]
    pub fn with_environment(self, environment: Environment) -> Self {
        Self {
            environment: Some(environment),
            ..self
        }
    }

    /// The same with data of `scale` for benchmarks that run queries of JCC-H.
    #[must_use]
    pub fn with_scale(self, scale: Option<Scale>) -> Self {
        Self { scale, ..self }
    }

    /// The same with these queries of JCC-H alone, for benchmarks that run them.
    #[must_use]
    pub fn with_queries(self, queries: Option<Vec<u8>>) -> Self {
        Self { queries, ..self }
    }

    /// The same with this much device memory for benchmarks of what is larger than that.
    #[must_use]
    pub fn with_budget(self, budget: Option<ByteSize>) -> Self {
        Self { budget, ..self }
    }

    /// The same with a limit on the time of all runs of a point, for benchmarks with lines that leave all bounds; a minute
    /// when not given.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The same with what does not fit in the memory of other devices, not in the host's: tables of the benchmark, and what joins
    /// spill.
    #[must_use]
    pub fn on_peers(self, on_peers: bool) -> Self {
        Self { on_peers, ..self }
    }

    /// Whether what does not fit lies in the memory of other devices.
    pub(crate) fn spills_to_peers(&self) -> bool {
        self.on_peers
    }

    /// The memory of what does not fit.
    ///
    /// # Errors
    /// [`Error::Bench`] without another device that this one reaches, if that was asked for.
    pub(crate) fn far_pool(&self) -> Result<&Arc<MemoryPool>> {
        if !self.on_peers {
            return Ok(self.runtime.host_pool());
        }
        let without = || {
            let device = &self.runtime.device().info().id;
            Error::Bench(format!(
                "{device} reaches no other device: open two, for example with --device cuda:0,1"
            ))
        };
        self.runtime.peer_pool().ok_or_else(without)
    }

    /// The scale of data for queries of JCC-H, when one was asked for.
    pub fn scale(&self) -> Option<Scale> {
        self.scale
    }

    /// The numbers of the queries of JCC-H to run: all when none were asked for.
    pub fn queries(&self) -> Vec<u8> {
        self.queries.clone().unwrap_or_else(|| (1..=22).collect())
    }

    /// The engine, for benchmarks that run queries.
    pub fn engine(&self) -> &dyn QueryEngine {
        self.engine.as_ref()
    }

    /// Its session.
    pub fn context(&self) -> &SessionContext {
        self.engine.session()
    }

    /// Sets a setting of `warpline.*`, as `SET key = value` does.
    ///
    /// # Errors
    /// [`Error::DataFusion`] when there is no such setting or the value does not fit.
    pub async fn set(&self, key: &str, value: &str) -> Result<()> {
        let statement = LogicalPlan::Statement(Statement::SetVariable(SetVariable {
            variable: key.to_string(),
            value: value.to_string(),
        }));
        self.context().execute_logical_plan(statement).await?;
        Ok(())
    }

    /// The device, for benchmarks of its primitives.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// The device's constants.
    pub fn machine(&self) -> &Machine {
        self.runtime.machine()
    }

    /// Rows of an input.
    pub fn rows(&self) -> u64 {
        let emulated = self.runtime.device().info().emulated;
        self.rows
            .unwrap_or(if emulated { ROWS_EMULATED } else { ROWS })
    }

    /// The values of a parameter: in the emulator, where only answers count, the first and the last.
    fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match all {
            [first, .., last] if self.emulated() => vec![*first, *last],
            all => all.to_vec(),
        }
    }

    /// Timed runs of each point.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Whether times mean nothing, and sizes are to stay small.
    pub fn emulated(&self) -> bool {
        self.runtime.device().info().emulated
    }

    /// Times `run`, which queues work on the stream and ends each phase with [`Clock::phase`].
    ///
    /// # Errors
    /// What `run` reports, and [`Error::Gpu`] from the device's clock.
    pub fn measure(
        &self,
        stream: &Stream,
        mut run: impl FnMut(&mut Clock<'_>) -> Result<()>,
    ) -> Result<Timing> {
        let mut phases: Vec<(&'static str, Vec<f64>)> = Vec::new();
        let mut totals = Vec::new();
        for number in 0..=self.runs {
            let mut clock = Clock {
                runtime: &self.runtime,
                stream,
                start: self.runtime.device().record_event(stream)?,
                ends: Vec::new(),
            };
            run(&mut clock)?;
            let Clock { start, ends, .. } = clock;
            self.runtime.device().synchronize(stream)?;
            if number == 0 {
                // Compiles the kernels and fills the pool.
                phases = ends.iter().map(|(name, _)| (*name, Vec::new())).collect();
                continue;
            }
            let mut last = &start;
            let mut total = 0.0;
            for ((_, event), (_, times)) in ends.iter().zip(&mut phases) {
                let ms = self.runtime.device().elapsed_ms(last, event)?;
                times.push(ms);
                total += ms;
                last = event;
            }
            totals.push(total);
        }
        Ok(Timing {
            phases: phases
                .into_iter()
                .map(|(name, times)| (name, median(times)))
                .collect(),
            ms: median(totals),
        })
    }
}

/// The phases of a run that is being timed.
pub struct Clock<'a> {
    runtime: &'a Runtime,
    stream: &'a Stream,
    start: Event,
    ends: Vec<(&'static str, Event)>,
}

impl Clock<'_> {
    /// What was queued since the start or the last phase was the phase `name`.
    ///
    /// # Errors
    /// [`Error::Gpu`] from the device's clock.
    pub fn phase(&mut self, name: &'static str) -> Result<()> {
        let event = self.runtime.device().record_event(self.stream)?;
        self.ends.push((name, event));
        Ok(())
    }
}

/// Medians in milliseconds.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Of each phase.
    pub phases: Vec<(&'static str, f64)>,
    /// Of the whole run.
    pub ms: f64,
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Runs a benchmark's sweeps, or those that are named. After each point `progress` sees what there is: the point is the last
/// one of the last sweep.
///
/// # Errors
/// [`Error::Bench`] for names of no benchmark or sweep, and for a wrong result; [`Error::Gpu`] from the device.
pub async fn run(
    bench: &Bench,
    benchmark: &str,
    sweeps: &[String],
    mut progress: impl FnMut(&Report) -> Result<()> + Send,
) -> Result<Report> {
    let benchmark = find(benchmark)?;
    let names = || list(benchmark.sweeps.iter().map(|s| s.name));
    for wanted in sweeps {
        if benchmark.sweeps.iter().all(|sweep| sweep.name != wanted) {
            return Err(Error::Bench(format!(
                "'{wanted}' is no sweep of '{}': there are {}",
                benchmark.name,
                names()
            )));
        }
    }
    let chosen = |sweep: &&Sweep| sweeps.is_empty() || sweeps.iter().any(|s| s == sweep.name);
    let mut report = Report {
        benchmark: benchmark.name.to_string(),
        device: bench.engine.device(),
        copy_gb_per_s: bench.runtime.copy_bandwidth()? / 1e9,
        rows: bench.rows(),
        runs: bench.runs,
        environment: bench.environment.clone(),
        sweeps: Vec::new(),
    };
    for sweep in benchmark.sweeps.iter().filter(chosen) {
        report.sweeps.push(SweepReport::new(sweep));
        let mut emit = |point: Point| {
            report.push(point);
            progress(&report)
        };
        (sweep.run)(bench, &mut emit).await?;
    }
    Ok(report)
}

/// The benchmark of a name.
///
/// # Errors
/// [`Error::Bench`] with the names there are.
pub fn find(name: &str) -> Result<&'static Benchmark> {
    BENCHMARKS
        .iter()
        .find(|benchmark| benchmark.name == name)
        .copied()
        .ok_or_else(|| {
            Error::Bench(format!(
                "'{name}' is no benchmark: there are {}",
                list(BENCHMARKS.iter().map(|b| b.name))
            ))
        })
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A result of the device that differs from the CPU's.
fn wrong(what: &str) -> Error {
    Error::Bench(format!(
        "the device's result is wrong: {what}; run the tests with the same device to find the kernel"
    ))
}
