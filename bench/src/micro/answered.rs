//! Queries whose result stays on the device: their time, the chosen algorithm and its price, and a check of the
//! result.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use warpline_gpu::GpuError;
use warpline_gpu::exec::{FragmentReport, GpuFragmentExec};
use warpline_gpu::synthetic::{self, Made, Outcome};
use warpline_gpu::tables::ResidentProvider;
use warpline_planner::metrics::balance_of;
use warpline_planner::{GroupAlgorithm, JoinAlgorithm, Setting, is_report};
use warpline_tpch::WorkBalance;

use super::report::LinkBytes;
use super::{Bench, Emit, Point, Timing, median, wrong};
use crate::error::{Error, Result};

/// Timed runs of a query end when they have taken this many milliseconds together.
const MOST_MS: f64 = 1500.0;
/// Runs of short queries go on until they have taken this many milliseconds together, …
const LEAST_MS: f64 = 3.0;
/// … or this many times as many runs as were asked for.
const MOST_TIMES: usize = 4;

/// A query that ran.
#[derive(Debug)]
pub(super) struct Answered {
    /// Medians: of the whole, and of one run by kind of work.
    pub(super) timing: Timing,
    /// What was chosen.
    pub(super) choice: Choice,
    /// How evenly the work was spread, if that was counted.
    pub(super) balance: Option<WorkBalance>,
    /// What crossed the link in the last run.
    pub(super) link: LinkBytes,
}

/// What a plan says of a choice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    /// The algorithm.
    pub(super) algorithm: String,
    /// The prices of all that are possible, the chosen one first, in milliseconds.
    pub(super) prices: Vec<(String, f64)>,
    /// All of it in words.
    pub(super) reason: String,
}

impl Choice {
    /// The price of the chosen algorithm.
    pub(super) fn price(&self) -> Option<f64> {
        self.prices.first().map(|(_, ms)| *ms)
    }

    /// Reads what [`warpline_planner::choose::Decision`] wrote: names, each before its milliseconds.
    fn of(reason: &str) -> Option<Self> {
        let names: Vec<&str> = JoinAlgorithm::ALL
            .iter()
            .map(|a| a.name())
            .chain(GroupAlgorithm::ALL.iter().map(|a| a.name()))
            .collect();
        let words: Vec<&str> = reason.split_whitespace().collect();
        let mut prices = Vec::new();
        for three in words.windows(3) {
            if names.contains(&three[0])
                && three[2].trim_end_matches([',', ';']) == "ms"
                && let Ok(ms) = three[1].parse()
            {
                prices.push((three[0].to_string(), ms));
            }
        }
        Some(Self {
            algorithm: prices.first()?.0.clone(),
            prices,
            reason: reason.to_string(),
        })
    }
}

/// What became of an algorithm that was asked for.
pub(super) enum Attempt {
    /// It ran.
    Done(Answered),
    /// It cannot run this query, or there is no room for it.
    Impossible(String),
}

/// The algorithms to measure: the one that is asked for, or the planner's choice and then all; in the emulator, where only
/// answers count, `few` of them.
pub(super) fn settings<A: Copy>(
    bench: &Bench,
    asked: Setting<A>,
    all: &[A],
    few: &[A],
) -> Vec<Setting<A>> {
    match asked {
        Setting::Auto => {
            let rivals = if bench.emulated() { few } else { all };
            let forced = rivals.iter().copied().map(Setting::Force);
            [Setting::Auto].into_iter().chain(forced).collect()
        }
        forced => vec![forced],
    }
}

/// Gives `emit` the point of each series for which the query can run by its algorithm.
pub(super) fn emit_if_possible(
    attempt: Attempt,
    (series, x): (String, f64),
    (rows, bytes): (u64, u64),
    emit: &mut Emit<'_>,
) -> Result<()> {
    match attempt {
        Attempt::Done(done) => {
            let point = Point::new(series, x, rows, bytes, done.timing);
            emit(point.chosen(done.choice.price(), &done.choice.algorithm))
        }
        Attempt::Impossible(why) => {
            log::info!("{series}: {why}");
            Ok(())
        }
    }
}

/// Lets queries name tables that were made on the device.
pub(super) fn register(bench: &Bench, name: &str, made: &Made) -> Result<()> {
    let provider = Arc::new(ResidentProvider(Arc::clone(made.table())));
    bench.context().register_table(name, provider)?;
    Ok(())
}

/// Runs a query by the algorithm that `setting` asks for, and checks its rows.
///
/// # Errors
/// [`Error::Bench`] when the rows are not those that they must be; [`Error::Gpu`] and [`Error::DataFusion`].
pub(super) async fn answered(
    bench: &Bench,
    sql: &str,
    setting: (&str, &str),
    want: Outcome,
) -> Result<Attempt> {
    bench.set(setting.0, setting.1).await?;
    // A kept index would be measured without its build.
    bench.set("warpline.index_joins", "off").await?;
    let name = format!("{} = {}", setting.0, setting.1);
    answered_as_set(bench, sql, &name, want, Repeat::Timed).await
}

/// How often a query runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Until the median of its times says something.
    Timed,
    /// Once, for what it counts.
    Once,
}

/// The same under the settings as they are, which `name` stands for in messages.
pub(super) async fn answered_as_set(
    bench: &Bench,
    sql: &str,
    name: &str,
    want: Outcome,
    repeat: Repeat,
) -> Result<Attempt> {
    let frame = bench.context().sql(sql).await?;
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let fragment = fragment(&plan).ok_or_else(|| {
        Error::Bench(format!(
            "the device does not answer all of the query: {sql}"
        ))
    })?;
    let runs = bench.runs();
    let mut times = Vec::new();
    let mut last = FragmentReport::default();
    // A first run reads sizes, the next uses them; the last one is timed by kind of work.
    let warm = if bench.emulated() { 1 } else { 2 };
    for run in 0..MOST_TIMES * runs + 3 {
        let spent: f64 = times.iter().sum();
        let enough = times.len() >= runs && (spent > LEAST_MS || bench.emulated());
        let long = !times.is_empty() && spent > MOST_MS;
        let profiled = repeat == Repeat::Once || enough || long || run == MOST_TIMES * runs + 2;
        let checked = run == 0 || profiled;
        let visit = move |rows: &warpline_gpu::exec::DeviceRows<'_>| match checked {
            true => synthetic::sum(rows).map(Some),
            false => Ok(None),
        };
        let (outcome, report) = match fragment
            .on_device(Arc::clone(&context), profiled, visit)
            .await
        {
            Ok(done) => done,
            Err(error @ (GpuError::OutOfDeviceMemory { .. } | GpuError::Unsupported(_))) => {
                return Ok(Attempt::Impossible(error.to_string()));
            }
            Err(other) => return Err(other.into()),
        };
        if outcome.is_some_and(|outcome| outcome != want) {
            return Err(wrong(&format!(
                "{name}: {outcome:?} in place of {want:?} by {sql}"
            )));
        }
        if run == 0
            && let Some(refusal) = report.choices.iter().find(|c| c.contains(" is impossible"))
        {
            return Ok(Attempt::Impossible(refusal.clone()));
        }
        if profiled {
            last = report;
            break;
        } else if run >= warm {
            times.push(report.kernel_ms);
        }
    }
    let choice = last.choices.iter().find_map(|reason| Choice::of(reason));
    let choice = choice.ok_or_else(|| {
        let shown = last.choices.join("; ");
        Error::Bench(format!("a plan without a choice of an algorithm: {shown}"))
    })?;
    let counted = last.steps.into_iter();
    let trees: Vec<_> = counted
        .filter_map(|step| Some((step.label, step.tree?)))
        .collect();
    Ok(Attempt::Done(Answered {
        balance: balance_of(&trees).map(|balance| WorkBalance {
            pipelines: balance.pipelines,
            iir: balance.iir,
            ilif: balance.ilif,
        }),
        timing: Timing {
            phases: last.phases,
            ms: median(times),
        },
        choice,
        link: LinkBytes {
            streamed: last.streamed_bytes,
            spilled: last.spilled_bytes,
        },
    }))
}

/// The part of a plan that runs on the device, when that is all of it.
fn fragment(plan: &Arc<dyn ExecutionPlan>) -> Option<&GpuFragmentExec> {
    if let Some(fragment) = plan.downcast_ref::<GpuFragmentExec>() {
        return Some(fragment);
    }
    match plan.children()[..] {
        [below] if is_report(plan) => fragment(below),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_from_reasons() {
        let reason = "index r: 2^10 keys; phj_tr 9.86 ms (write 1.20 ms, transform 5.10 ms); perfect 12.0 ms, nphj 30.1 ms, \
                      smj_ur impossible; tree: wide: phj_tr or smj_tr; default constants";
        let choice = Choice::of(reason).unwrap();
        assert_eq!(choice.algorithm, "phj_tr");
        assert_eq!(choice.price(), Some(9.86));
        let names: Vec<&str> = choice
            .prices
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["phj_tr", "perfect", "nphj"]);
        assert_eq!(Choice::of("dense groups"), None);
    }
}
