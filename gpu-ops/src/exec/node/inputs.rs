//! The inputs of a fragment: CPU plans that run once, all of their partitions at a time, before the fragment is planned over
//! their rows.
//!
//! Rows are kept for every attempt of the run, and for the CPU should it have to answer: they lie in memory, behind that in the
//! spill directory. Where there is none, the CPU answers: it takes what was collected, and the rest as it comes.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use parking_lot::Mutex;

use super::exchange::{in_one_partition, in_partitions_of};
use crate::error::{GpuError, Result};
use crate::memory::{BatchWriter, SpillDirectory};
use crate::tables::{InputExec, InputRows, InputRowsExec, StoredBatch};

/// What inputs may take of the host.
#[derive(Debug, Clone)]
pub(in crate::exec) struct InputLimits {
    /// Bytes of memory, of all inputs of a fragment together.
    pub(in crate::exec) memory: usize,
    /// Takes what is more.
    pub(in crate::exec) spill: Option<Arc<SpillDirectory>>,
}

/// The rows of all inputs of a fragment.
#[derive(Default)]
pub(in crate::exec) struct Collected {
    /// By input.
    pub(in crate::exec) rows: Vec<Arc<InputRows>>,
    /// By input and partition: what was not read, since memory was full.
    rest: Mutex<Vec<Rest>>,
    /// Why the CPU goes on with the rows.
    pub(in crate::exec) left_to_cpu: Option<String>,
    #[allow(
        dead_code,
        reason = "held, not read: the rows count as the session's memory"
    )]
    reservations: Vec<MemoryReservation>,
}

/// By partition: the stream of which rows are left.
type Rest = Vec<Option<SendableRecordBatchStream>>;

/// Run the inputs and keep their rows. When this is dropped, nothing of them runs on.
///
/// # Errors
/// [`GpuError::DataFusion`] with the first error of an input; [`GpuError::Spill`].
pub(in crate::exec) async fn collect(
    inputs: &[Arc<dyn ExecutionPlan>],
    context: &Arc<TaskContext>,
    limits: InputLimits,
) -> Result<Collected> {
    let store = Arc::new(Store::new(inputs, context, limits));
    let mut work: JoinSet<Result<Drained>> = JoinSet::new();
    let mut partitions: Vec<Vec<Option<Drained>>> = Vec::with_capacity(inputs.len());
    for (input, plan) in inputs.iter().enumerate() {
        let count = plan.output_partitioning().partition_count();
        for partition in 0..count {
            let stream = plan.execute(partition, Arc::clone(context))?;
            work.spawn(drain((input, partition), stream, Arc::clone(&store)));
        }
        partitions.push((0..count).map(|_| None).collect());
    }
    while let Some(done) = work.join_next().await {
        let drained = match done {
            Ok(drained) => drained?,
            // A panic is the query's, as it would be without the fragment.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => return Err(DataFusionError::External(error.into()).into()),
        };
        let (input, partition) = drained.place;
        partitions[input][partition] = Some(drained);
    }
    let store = Arc::into_inner(store)
        .ok_or_else(|| GpuError::Internal("an input is still being collected".into()))?;
    store.finish(inputs, partitions)
}

/// What came of a partition.
struct Drained {
    place: (usize, usize),
    batches: Vec<Kept>,
    rows: usize,
    /// The stream, when memory was full before its end.
    rest: Option<SendableRecordBatchStream>,
}

/// A batch in memory, or its number in the file of its input.
enum Kept {
    Memory(RecordBatch),
    File(usize),
}

async fn drain(
    place: (usize, usize),
    mut stream: SendableRecordBatchStream,
    store: Arc<Store>,
) -> Result<Drained> {
    let (mut batches, mut rows) = (Vec::new(), 0);
    loop {
        if store.is_full() {
            let rest = Some(stream);
            return Ok(Drained {
                place,
                batches,
                rows,
                rest,
            });
        }
        let Some(batch) = stream.next().await.transpose()? else {
            break;
        };
        if batch.num_rows() > 0 {
            rows += batch.num_rows();
            batches.push(store.keep(place.0, batch)?);
        }
    }
    Ok(Drained {
        place,
        batches,
        rows,
        rest: None,
    })
}

/// Where the rows of all inputs are counted, and written where they are too many.
struct Store {
    limits: InputLimits,
    state: Mutex<State>,
}

struct State {
    bytes: usize,
    /// By input: their memory, as the session counts it.
    reservations: Vec<MemoryReservation>,
    writers: Vec<Writer>,
    full: bool,
}

struct Writer {
    schema: SchemaRef,
    file: Option<BatchWriter>,
    written: usize,
}

impl Store {
    fn new(
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &Arc<TaskContext>,
        limits: InputLimits,
    ) -> Self {
        let reservation = |number: usize| {
            MemoryConsumer::new(format!("GpuFragmentExec input {number}"))
                .with_can_spill(limits.spill.is_some())
                .register(context.memory_pool())
        };
        let writer = |plan: &Arc<dyn ExecutionPlan>| Writer {
            schema: plan.schema(),
            file: None,
            written: 0,
        };
        let state = State {
            bytes: 0,
            reservations: (0..inputs.len()).map(reservation).collect(),
            writers: inputs.iter().map(writer).collect(),
            full: false,
        };
        Self {
            limits,
            state: Mutex::new(state),
        }
    }

    fn is_full(&self) -> bool {
        self.state.lock().full
    }

    fn keep(&self, input: usize, batch: RecordBatch) -> Result<Kept> {
        let bytes = bytes_of(&batch);
        let mut state = self.state.lock();
        let fits = state.bytes.saturating_add(bytes) <= self.limits.memory;
        if fits && state.reservations[input].try_grow(bytes).is_ok() {
            state.bytes += bytes;
            return Ok(Kept::Memory(batch));
        }
        let writer = &mut state.writers[input];
        let directory = self.limits.spill.as_ref();
        let Some(directory) = directory.filter(|_| BatchWriter::takes(&writer.schema)) else {
            // This one was taken: it stays in memory.
            state.full = true;
            return Ok(Kept::Memory(batch));
        };
        let file = match &mut writer.file {
            Some(file) => file,
            none => none.insert(BatchWriter::create(directory, &writer.schema)?),
        };
        file.write(&batch)?;
        writer.written += 1;
        Ok(Kept::File(writer.written - 1))
    }

    fn finish(
        self,
        inputs: &[Arc<dyn ExecutionPlan>],
        partitions: Vec<Vec<Option<Drained>>>,
    ) -> Result<Collected> {
        let state = self.state.into_inner();
        let mut collected = Collected {
            left_to_cpu: state.full.then(|| {
                format!(
                    "the inputs that the CPU computes take more than {} bytes of host memory; raise warpline.host_memory, or \
                     set warpline.spill_directory",
                    self.limits.memory
                )
            }),
            ..Collected::default()
        };
        let kept = state.writers.into_iter().zip(state.reservations);
        for ((plan, drained), (writer, reservation)) in inputs.iter().zip(partitions).zip(kept) {
            let file = writer.file.map(BatchWriter::finish).transpose()?;
            let file = file.map(Arc::new);
            let (mut rows, mut batches, mut rest) = (0, Vec::new(), Vec::new());
            for drained in drained {
                let drained = drained
                    .ok_or_else(|| GpuError::Internal("a partition was not collected".into()))?;
                rows += drained.rows;
                rest.push(drained.rest);
                let kept = drained.batches.into_iter().map(|kept| match (kept, &file) {
                    (Kept::Memory(batch), _) => Ok(StoredBatch::Memory(batch)),
                    (Kept::File(number), Some(file)) => {
                        Ok(StoredBatch::File(Arc::clone(file), number))
                    }
                    (Kept::File(_), None) => {
                        Err(GpuError::Internal("an input's file is gone".into()))
                    }
                });
                batches.push(kept.collect::<Result<Vec<_>>>()?);
            }
            collected.rows.push(Arc::new(InputRows {
                partitions: batches,
                properties: Arc::clone(plan.properties()),
                rows,
                reservation,
            }));
            collected.rest.get_mut().push(rest);
        }
        Ok(collected)
    }
}

/// Bytes of the rows alone: batches of a table in memory are slices of others.
fn bytes_of(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let bytes = columns.map(|column| {
        let sliced = column.to_data().get_slice_memory_size();
        sliced.unwrap_or_else(|_| column.get_array_memory_size())
    });
    bytes.sum()
}

/// The plans of the inputs, ready to run: `ran` tells that they have, and may keep state of that.
pub(in crate::exec) fn ready(
    inputs: &[Arc<dyn ExecutionPlan>],
    ran: bool,
) -> DataFusionResult<Vec<Arc<dyn ExecutionPlan>>> {
    let inputs = inputs.iter().map(Arc::clone);
    match ran {
        false => Ok(inputs.collect()),
        true => inputs.map(reset_plan_states).collect(),
    }
}

impl Collected {
    /// The CPU plan of a fragment over the rows of its inputs. What was not read of them goes into it, so that it can be made once.
    pub(in crate::exec) fn plan(
        &self,
        original: Arc<dyn ExecutionPlan>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let mut rest = std::mem::take(&mut *self.rest.lock());
        rest.resize_with(self.rows.len(), Vec::new);
        let rows = self.rows.iter().zip(rest);
        let inputs: Vec<Arc<dyn ExecutionPlan>> = rows
            .map(|(rows, rest)| Arc::new(InputRowsExec::new(Arc::clone(rows), rest)) as _)
            .collect();
        over_inputs(original, &inputs)
    }
}

/// The CPU plan of a fragment with its inputs in place of the [`InputExec`]s.
///
/// # Errors
/// When there are fewer inputs than it reads.
pub fn over_inputs(
    original: Arc<dyn ExecutionPlan>,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let replaced = original.transform_up(|node| {
        let Some(leaf) = node.downcast_ref::<InputExec>() else {
            return Ok(Transformed::no(node));
        };
        let number = leaf.number();
        let input = inputs.get(number).ok_or_else(|| {
            DataFusionError::Internal(format!("a fragment has no input {number}"))
        })?;
        let wants = leaf.properties().output_partitioning();
        if input.output_partitioning() == wants {
            return Ok(Transformed::yes(Arc::clone(input)));
        }
        // Operators of the input that run on a device have other partitions than those that it was planned with.
        let one = in_one_partition(Arc::clone(input));
        Ok(Transformed::yes(in_partitions_of(one, wants)?))
    })?;
    Ok(replaced.data)
}
