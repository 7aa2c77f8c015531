//! A run of a fragment on the device for the rows that leave it, and what is told of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{Either, ready};
use futures::{StreamExt, TryStreamExt};
use tokio::task::spawn_blocking;

use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::node::attempts::{FragmentRun, Sharing};
use crate::exec::node::fragment::RunState;
use crate::exec::node::inputs::Collected;
use crate::exec::node::report::{FragmentReport, SecondPlan};
use crate::exec::node::shared::Shared;
use crate::exec::node::threads::on_thread;
use crate::exec::output::chunks::OutputChunks;
use crate::exec::output::host::{Delivered, Host};
use crate::memory::BatchFile;

/// Most rows of one RecordBatch that leaves a fragment.
const BATCH_ROWS: usize = 8192;

/// A run that has ended.
pub(super) struct DeviceSide {
    outcome: Result<(Delivered, FragmentReport)>,
    /// What is told of it where it failed.
    failed: FragmentReport,
    /// It failed, and the CPU may answer, …
    falls_back: bool,
    /// … or the CPU was chosen when the rows of the inputs were counted.
    chosen: bool,
    /// The device does not run it as it is, and there is a plan in smaller parts.
    splits: bool,
    /// The rows of the inputs.
    collected: Arc<Collected>,
}

impl DeviceSide {
    /// Run the inputs, then the fragment, its rows delivered to the host.
    ///
    /// # Errors
    /// Those of inputs: what an input says is the query's answer, and where its rows cannot be kept, nothing can be repeated.
    pub(super) async fn run(
        shared: Arc<Shared>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        context: Arc<TaskContext>,
    ) -> Result<Self> {
        let to_host = {
            let (schema, runtime) = (Arc::clone(&shared.schema), Arc::clone(&shared.runtime));
            move |frame: &Frame<'_>, host: &Host| host.delivered(frame, &schema, &runtime)
        };
        let sharing = Sharing {
            copy: Delivered::clone,
            take: |delivered| delivered,
        };
        let mut fragment = FragmentRun::new(&shared, Arc::clone(&context), shared.options.profile);
        let collected = fragment.gather(&inputs, &context).await?;
        let outcome = match collected.left_to_cpu.clone() {
            Some(reason) => Err(GpuError::LeftToCpu(reason)),
            None => fragment.run(to_host, Some(sharing)).await,
        };
        let falls_back = match &outcome {
            // The CPU would read the same data: its errors are the user's answer. And nobody waits for a stopped query.
            Ok(_) | Err(GpuError::DataFusion(_) | GpuError::Stopped) => false,
            Err(_) => !shared.options.require_gpu,
        };
        let chosen = matches!(outcome, Err(GpuError::LeftToCpu(_)));
        let splits =
            shared.options.second.is_some() && matches!(outcome, Err(GpuError::Unsupported(_)));
        if falls_back && !chosen && !splits {
            fragment.ladder.leave();
        }
        let failed = FragmentReport {
            ladder: fragment.ladder.counts(&fragment.query),
            peak_bytes: fragment.query.peak(),
            ..FragmentReport::default()
        };
        Ok(Self {
            outcome: fragment.finish(outcome),
            failed,
            falls_back,
            chosen,
            splits,
            collected,
        })
    }

    /// Why it has no rows.
    pub(super) fn failure(&self) -> Option<String> {
        self.outcome.as_ref().err().map(ToString::to_string)
    }

    /// The plan in smaller parts that is to answer in its place, from now on.
    pub(super) fn smaller_parts<'a>(&self, shared: &'a Shared) -> Option<&'a SecondPlan> {
        let second = shared.options.second.as_ref().filter(|_| self.splits)?;
        let reason = self.failure().unwrap_or_default();
        log::info!("a fragment runs in smaller parts: {reason}");
        shared.in_parts.store(true, Ordering::Relaxed);
        Some(second)
    }

    /// The CPU's plan ran beside it.
    pub(super) fn raced(&mut self) {
        self.failed.races = 1;
        if let Ok((_, report)) = &mut self.outcome {
            report.races = 1;
            report.race = Some("the device was first; the CPU's plan was begun beside it".into());
        }
    }

    /// What is told of a run that failed.
    pub(super) fn into_failed(self) -> FragmentReport {
        self.failed
    }

    /// Its rows, or those of the CPU's plan where it failed and that may answer.
    pub(super) fn answer(
        self,
        shared: &Arc<Shared>,
        state: &RunState,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let Some(error) = self.failure().filter(|_| self.falls_back) else {
            return self.rows(shared, state);
        };
        if !self.chosen {
            log::warn!("the CPU answers instead of the device: {error}");
        }
        let collected = Arc::clone(&self.collected);
        state.publish(FragmentReport {
            fallback: Some(error),
            ..self.failed
        });
        let stream = shared.original_ready(&collected)?.execute(0, context)?;
        let schema = Arc::clone(&shared.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    /// Its rows, or why there are none.
    pub(super) fn rows(
        self,
        shared: &Arc<Shared>,
        state: &RunState,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let schema = Arc::clone(&shared.schema);
        match self.outcome {
            Ok((delivered, mut report)) => {
                let options = &shared.options;
                let over = |limit: &usize| delivered.rows() > *limit;
                if let Some(limit) = options.max_tail_rows.filter(over) {
                    let tail = options.tail.as_deref().unwrap_or("the operators above");
                    let reason = format!(
                        "{tail} ran on the CPU over {} rows that left the device (limit {limit})",
                        delivered.rows()
                    );
                    if options.require_gpu {
                        return Err(required(&reason));
                    }
                    report.fallback = Some(reason);
                }
                state.publish(report);
                Ok(match delivered {
                    Delivered::Batches(batches) => {
                        let slices = futures::stream::iter(slices(&batches));
                        Box::pin(RecordBatchStreamAdapter::new(schema, slices))
                    }
                    Delivered::Chunks(first, rest) => {
                        let chunks = in_chunks(first, rest);
                        Box::pin(RecordBatchStreamAdapter::new(schema, chunks))
                    }
                    Delivered::File(file) => {
                        Box::pin(RecordBatchStreamAdapter::new(schema, from_file(file)))
                    }
                })
            }
            Err(error) => {
                state.publish(self.failed);
                Err(match error {
                    GpuError::DataFusion(_) | GpuError::Stopped => error.into(),
                    other => required(&other.to_string()),
                })
            }
        }
    }
}

/// Batches in pieces of moderate size.
fn slices(batches: &[RecordBatch]) -> Vec<DataFusionResult<RecordBatch>> {
    let mut slices = Vec::new();
    for batch in batches {
        let rows = batch.num_rows();
        let slice = |at: usize| Ok(batch.slice(at, BATCH_ROWS.min(rows - at)));
        slices.extend((0..rows).step_by(BATCH_ROWS).map(slice));
    }
    slices
}

/// Rows that come chunk by chunk: one more while a chunk is read.
fn in_chunks(
    first: Vec<RecordBatch>,
    rest: Arc<OutputChunks>,
) -> impl futures::Stream<Item = DataFusionResult<RecordBatch>> + Send {
    let first = std::iter::once(Either::Left(ready(Ok(Ok(first)))));
    let rest = std::iter::from_fn(move || rest.next());
    // Chunks are asked for in their order, whichever thread is the first to run.
    let rest = rest.map(|chunk| Either::Right(on_thread(move || chunk.decode())));
    futures::stream::iter(first.chain(rest))
        .buffered(2)
        .map(|batches| {
            let batches = batches.map_err(|error| DataFusionError::External(error.into()))?;
            Ok::<_, DataFusionError>(futures::stream::iter(slices(&batches?)))
        })
        .try_flatten()
}

/// The rows of a file, of which one batch at a time lies in memory; the file goes with the stream.
fn from_file(
    file: Arc<BatchFile>,
) -> impl futures::Stream<Item = DataFusionResult<RecordBatch>> + Send {
    let next = |(file, number): (Arc<BatchFile>, usize)| async move {
        let read = spawn_blocking(move || (file.batch(number), file)).await;
        let (batch, file) = read.map_err(|error| DataFusionError::External(error.into()))?;
        let pieces = batch?.map(|batch| futures::stream::iter(slices(&[batch])));
        Ok::<_, DataFusionError>(pieces.map(|pieces| (pieces, (file, number + 1))))
    };
    futures::stream::try_unfold((file, 0), next).try_flatten()
}

fn required(reason: &str) -> DataFusionError {
    DataFusionError::Execution(format!(
        "warpline.require_gpu is set, but the query cannot run on the device: {reason}; \
         SET warpline.require_gpu = false to let the CPU answer"
    ))
}
