//! First runs beside the CPU: while columns are loaded and kernels compiled, the CPU's plan of the fragment runs as well, and
//! who has all rows first answers.
//!
//! The rows of the CPU's plan are held until it has ended, or until they are many: then it answers with those and the rest, so
//! that what is held is bounded. An error of one side leaves the answer to the other. When the CPU answers, the device goes on
//! to its end, so that the next run finds columns and kernels.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use futures::stream::{iter, try_unfold};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::error::Result;
use crate::exec::node::device_side::DeviceSide;
use crate::exec::node::fragment::{RunState, in_parts};
use crate::exec::node::inputs::Collected;
use crate::exec::node::report::{ColdStart, FragmentReport};
use crate::exec::node::shared::Shared;
use crate::graph::FirstRun;
use crate::runtime::Raced;

/// Bytes of rows of the CPU's plan that are held back while the device has not ended.
const HELD_BYTES: usize = 64 << 20;

/// Batches on their way from the CPU's plan.
const ON_THEIR_WAY: usize = 2;

/// A first run that is thought to take no longer, in milliseconds, is worth no second plan.
const LEAST_MS: f64 = 50.0;

/// The longest of a query's kernels, for which all wait, against the average.
const LONGEST: f64 = 2.0;

/// So many times as fast as the device the CPU must be thought to be. With 1 it was first in 45 of 59 races over TPC-DS at scale 10 (an
/// H200, 16 cores), which took 19.3 s together; the device alone took 17.1 s for these queries.
const CLEARLY: f64 = 2.0;

impl FirstRun {
    /// Is the CPU clearly thought to be first, where a kernel takes so many milliseconds and `cores` of them are compiled at once? Both
    /// sides want the same cores and take longer than either alone: who is thought to lose only holds up the other.
    fn is_open(&self, kernel_ms: f64, cores: usize) -> bool {
        // The longest begins first; the others share the cores.
        let compile = kernel_ms * LONGEST.max(self.kernels / cores.max(1) as f64);
        let device = self.load + compile;
        let open = device >= LEAST_MS && self.cpu * CLEARLY <= device;
        log::debug!(
            "a first run: {:.0} ms to load, {compile:.0} to compile, {:.0} on the CPU: {}",
            self.load,
            self.cpu,
            if open { "a race" } else { "no race" }
        );
        open
    }
}

/// Is it worth the while to let the CPU's plan run beside the device?
pub(super) fn pays(shared: &Shared) -> bool {
    let options = &shared.options;
    if options.require_gpu || options.cold == ColdStart::Wait || !shared.may_race() {
        return false;
    }
    // What other operators yield might be read twice, with effects that nobody knows.
    let mut scans = shared.policy.scans().iter();
    if !scans.all(|scan| scan.table.is_cacheable()) {
        return false;
    }
    let tables = shared.runtime.tables();
    match options.cold {
        ColdStart::Race => true,
        ColdStart::Wait => false,
        // The emulator's times mean nothing.
        ColdStart::Auto => {
            let runtime = &shared.runtime;
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let open = |first: FirstRun| first.is_open(runtime.module_times().expected(), cores);
            !runtime.device().info().emulated && shared.policy.first_run(tables).is_some_and(open)
        }
    }
}

/// Run both; the first that has all rows answers.
pub(super) async fn answer(
    shared: Arc<Shared>,
    state: Arc<RunState>,
    context: Arc<TaskContext>,
) -> DataFusionResult<SendableRecordBatchStream> {
    let begin = Instant::now();
    let mut device = tokio::spawn(device_side(Arc::clone(&shared), Arc::clone(&context)));
    let mut waited_for = AbortOnDrop(Some(device.abort_handle()));
    let mut cpu = CpuSide::start(&shared, &context);
    loop {
        tokio::select! {
            biased;
            side = &mut device => {
                let (failure, mut report) = match side {
                    Ok(Ok(mut side)) => {
                        if let Some(second) = side.smaller_parts(&shared) {
                            return in_parts(&shared, second, &state, context);
                        }
                        side.raced();
                        match side.failure() {
                            None => return side.rows(&shared, &state),
                            Some(failure) => (failure, side.into_failed()),
                        }
                    }
                    Ok(Err(error)) => (error.to_string(), FragmentReport::default()),
                    Err(error) => (error.to_string(), FragmentReport::default()),
                };
                if let Some(first) = cpu.error.take() {
                    log::info!("neither side of a race has an answer; the device: {failure}");
                    return Err(first);
                }
                log::warn!("the CPU answers instead of the device: {failure}");
                (report.races, report.fallback) = (1, Some(failure));
                state.publish(report);
                return Ok(cpu.rows(&shared.schema));
            }
            next = cpu.next(), if cpu.error.is_none() => {
                let waits = match next {
                    Ok(Some(batch)) => cpu.hold(batch),
                    Ok(None) => false,
                    Err(error) => {
                        log::info!("the device answers alone: {error}");
                        cpu.error = Some(error);
                        true
                    }
                };
                if waits {
                    continue;
                }
                let goes_on = has_threads() && shared.runtime.background().adopt(device.abort_handle());
                if goes_on {
                    waited_for.0 = None;
                }
                let after = begin.elapsed().as_secs_f64() * 1e3;
                let then = match goes_on {
                    true => "the device goes on to be ready for the next run",
                    false => "the device was stopped",
                };
                state.publish(FragmentReport {
                    races: 1,
                    cpu_answers: 1,
                    race: Some(format!("the CPU was first, after {after:.0} ms; {then}")),
                    ..FragmentReport::default()
                });
                return Ok(cpu.rows(&shared.schema));
            }
        }
    }
}

/// The run on the device. Where it fails, later ones are waited for: that is how users learn why.
async fn device_side(shared: Arc<Shared>, context: Arc<TaskContext>) -> Result<DeviceSide> {
    let _raced = Raced::new(&shared.runtime);
    let side = DeviceSide::run(Arc::clone(&shared), vec![], context).await?;
    if let Some(failure) = side.failure() {
        log::info!("the device's side of a race: {failure}");
        shared.race_was_in_vain();
    }
    Ok(side)
}

/// Does work go on that nobody waits for? An executor of one thread runs while it is waited for.
fn has_threads() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

/// Ends a task when nobody waits for it any more.
struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// The CPU's plan in a task of its own, which sends its batches and then that there are no more.
struct CpuSide {
    batches: mpsc::Receiver<DataFusionResult<Option<RecordBatch>>>,
    _task: AbortOnDrop,
    held: Vec<RecordBatch>,
    bytes: usize,
    /// It has ended.
    ended: bool,
    /// Why it does not answer.
    error: Option<DataFusionError>,
}

impl CpuSide {
    /// Begin; an error of that is kept as any other of it.
    fn start(shared: &Shared, context: &Arc<TaskContext>) -> Self {
        let plan = shared.original_ready(&Collected::default());
        let rows = plan.and_then(|plan| plan.execute(0, Arc::clone(context)));
        let (sender, batches) = mpsc::channel(ON_THEIR_WAY);
        let (task, error) = match rows {
            Err(error) => (None, Some(error)),
            Ok(mut rows) => {
                let task = tokio::spawn(async move {
                    loop {
                        let next = rows.next().await.transpose();
                        let last = !matches!(next, Ok(Some(_)));
                        if sender.send(next).await.is_err() || last {
                            return;
                        }
                    }
                });
                (Some(task.abort_handle()), None)
            }
        };
        Self {
            batches,
            _task: AbortOnDrop(task),
            held: Vec::new(),
            bytes: 0,
            ended: false,
            error,
        }
    }

    /// The next batch; `None` behind the last.
    async fn next(&mut self) -> DataFusionResult<Option<RecordBatch>> {
        if self.ended {
            return Ok(None);
        }
        let next = self.batches.recv().await.unwrap_or_else(|| {
            let message = "the task of the CPU's plan ended early";
            Err(DataFusionError::Execution(message.into()))
        });
        self.ended = !matches!(next, Ok(Some(_)));
        next
    }

    /// Keep a batch; false when there are too many.
    fn hold(&mut self, batch: RecordBatch) -> bool {
        self.bytes += batch.get_array_memory_size();
        self.held.push(batch);
        self.bytes <= HELD_BYTES
    }

    /// What is held, then what comes.
    fn rows(mut self, schema: &SchemaRef) -> SendableRecordBatchStream {
        let held = std::mem::take(&mut self.held).into_iter().map(Ok);
        let rest = try_unfold(self, |mut side| async move {
            Ok(side.next().await?.map(|batch| (batch, side)))
        });
        let rows = iter(held).chain(rest);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_clearly_first_is_let_run() {
        let first = |load: f64, kernels: f64, cpu: f64| FirstRun { load, kernels, cpu };
        // Two kernels' time is what any query waits for.
        assert!(first(0.0, 3.0, 100.0).is_open(150.0, 16));
        assert!(!first(0.0, 3.0, 200.0).is_open(150.0, 16));
        assert!(first(200.0, 3.0, 200.0).is_open(150.0, 16));
        // One core compiles them one by one.
        assert!(first(0.0, 6.0, 400.0).is_open(150.0, 1));
        assert!(!first(0.0, 6.0, 400.0).is_open(150.0, 16));
        // Kernels that are on disk and a few rows are worth no second plan.
        assert!(!first(10.0, 10.0, 1.0).is_open(5.0, 16));
    }
}
