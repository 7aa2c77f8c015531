//! Inputs of fragments: rows that a CPU plan computes, and the leaves that stand for them in other plans.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, StatisticsArgs,
};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::error::{GpuError, Result};
use crate::memory::BatchFile;
use crate::plan_node::leaf;

/// Stands for an input in the plan that a fragment computes: it has the input's columns, partitions and order, and no rows.
#[derive(Debug)]
pub struct InputExec {
    number: usize,
    name: Arc<str>,
    properties: Arc<PlanProperties>,
    statistics: Arc<Statistics>,
}

impl InputExec {
    /// A leaf for the `number`-th input of a fragment, which `plan` computes, and about how many rows that yields.
    pub fn new(number: usize, plan: &Arc<dyn ExecutionPlan>, rows: Option<usize>) -> Self {
        let mut statistics = Statistics::new_unknown(&plan.schema());
        statistics.num_rows = rows.map_or(Precision::Absent, Precision::Inexact);
        Self {
            number,
            name: format!("input {}", number + 1).into(),
            properties: Arc::clone(plan.properties()),
            statistics: Arc::new(statistics),
        }
    }

    /// Its name in plans.
    pub(super) fn label(&self) -> &Arc<str> {
        &self.name
    }

    /// Which of the fragment's inputs.
    pub fn number(&self) -> usize {
        self.number
    }

    /// About how many rows it yields, as far as was known.
    pub fn rows(&self) -> Option<usize> {
        self.statistics.num_rows.get_value().copied()
    }
}

impl DisplayAs for InputExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InputExec: {}", self.name)
    }
}

impl ExecutionPlan for InputExec {
    fn name(&self) -> &str {
        "InputExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    crate::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        leaf(self, &children)
    }

    fn execute(
        &self,
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        Err(DataFusionError::Internal(format!(
            "{} is read by its fragment alone",
            self.name
        )))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }
}

/// A batch of an input.
#[derive(Debug, Clone)]
pub(crate) enum StoredBatch {
    /// In memory.
    Memory(RecordBatch),
    /// In a file, by its number.
    File(Arc<BatchFile>, usize),
}

impl StoredBatch {
    /// The rows. Blocks where they are in a file.
    pub(crate) fn read(&self) -> Result<RecordBatch> {
        match self {
            Self::Memory(batch) => Ok(batch.clone()),
            Self::File(file, number) => file
                .batch(*number)?
                .ok_or_else(|| GpuError::Internal("a batch of an input is gone".into())),
        }
    }
}

/// The rows of an input, which were computed once: for every attempt of a run, and for the CPU should it have to answer.
#[derive(Debug)]
pub(crate) struct InputRows {
    /// By partition, in the order in which they came.
    pub(crate) partitions: Vec<Vec<StoredBatch>>,
    /// The partitions and the order that the rows have.
    pub(crate) properties: Arc<PlanProperties>,
    /// Rows of all partitions.
    pub(crate) rows: usize,
    /// Those in memory count as the session's.
    pub(crate) reservation: MemoryReservation,
}

/// The rows of an input as a plan, in place of the [`InputExec`].
pub(crate) struct InputRowsExec {
    rows: Arc<InputRows>,
    /// What of the input had not been collected, by partition: it comes after what was.
    rest: Mutex<Vec<Option<SendableRecordBatchStream>>>,
}

impl InputRowsExec {
    /// The rows, and behind those of each partition what has not been collected of it.
    pub(crate) fn new(rows: Arc<InputRows>, rest: Vec<Option<SendableRecordBatchStream>>) -> Self {
        Self {
            rows,
            rest: Mutex::new(rest),
        }
    }
}

impl fmt::Debug for InputRowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputRowsExec").finish_non_exhaustive()
    }
}

impl DisplayAs for InputRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InputRows {
            rows, reservation, ..
        } = self.rows.as_ref();
        write!(
            f,
            "InputRowsExec: rows={rows}, bytes={}",
            reservation.size()
        )
    }
}

impl ExecutionPlan for InputRowsExec {
    fn name(&self) -> &str {
        "InputRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.rows.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    crate::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        leaf(self, &children)
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let stored = self.rows.partitions.get(partition).cloned();
        let read = |stored: StoredBatch| async move {
            match stored {
                StoredBatch::Memory(batch) => Ok(batch),
                file => tokio::task::spawn_blocking(move || file.read())
                    .await
                    .map_err(|error| DataFusionError::External(error.into()))?
                    .map_err(DataFusionError::from),
            }
        };
        let stored = futures::stream::iter(stored.unwrap_or_default()).then(read);
        let rest = self.rest.lock().get_mut(partition).and_then(Option::take);
        let rest = futures::stream::iter(rest.map(Ok::<_, DataFusionError>)).try_flatten();
        let schema = self.schema();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            stored.chain(rest),
        )))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        let statistics = Statistics::new_unknown(&self.schema());
        Ok(Arc::new(
            statistics.with_num_rows(Precision::Inexact(self.rows.rows)),
        ))
    }
}
