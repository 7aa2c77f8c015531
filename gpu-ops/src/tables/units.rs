//! The work of reading a table, cut into units.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::datasource::source::DataSource;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::input::StoredBatch;
use super::struct_fields::Reads;
use crate::error::Result;

/// Rows of a memory table that one unit of work has at most.
const UNIT_ROWS: usize = 1 << 18;

/// The work of reading a table, in units whose order is the order of the rows.
pub(super) enum Units {
    /// A partition of a scan of the columns that are read; the name of the file of each, for errors.
    Scan(Arc<dyn DataSource>, Vec<String>, Reads),
    /// Slices of record batches each.
    Batches(Vec<RecordBatch>, Reads),
    /// A partition of a plan each.
    Plan(Arc<dyn ExecutionPlan>, Reads),
    /// A batch of an input each.
    Stored(Vec<StoredBatch>, Reads),
}

impl Units {
    /// Slices of these batches.
    pub(super) fn of_batches(batches: &[RecordBatch], reads: Reads) -> Self {
        let slices = batches.iter().flat_map(|batch| {
            (0..batch.num_rows())
                .step_by(UNIT_ROWS)
                .map(|start| batch.slice(start, UNIT_ROWS.min(batch.num_rows() - start)))
        });
        Self::Batches(slices.collect(), reads)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Scan(_, names, _) => names.len(),
            Self::Batches(batches, _) => batches.len(),
            Self::Plan(plan, _) => plan.output_partitioning().partition_count(),
            Self::Stored(batches, _) => batches.len(),
        }
    }

    /// The columns that are read, and what is taken out of them.
    pub(super) fn reads(&self) -> &Reads {
        match self {
            Self::Scan(_, _, reads)
            | Self::Batches(_, reads)
            | Self::Plan(_, reads)
            | Self::Stored(_, reads) => reads,
        }
    }

    /// The batches of a unit, of the columns that are read.
    pub(super) fn open(
        &self,
        unit: usize,
        ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<RecordBatch, DataFusionError>>, DataFusionError> {
        Ok(match self {
            // Not by way of its plan node, which would cut the batches small again.
            Self::Scan(source, ..) => source.open(unit, Arc::clone(ctx))?.boxed(),
            Self::Batches(batches, reads) => {
                let batch = batches[unit]
                    .project(&reads.columns)
                    .map_err(DataFusionError::from);
                futures::stream::iter([batch]).boxed()
            }
            Self::Plan(plan, reads) => {
                let columns = reads.columns.clone();
                let stream = plan.execute(unit, Arc::clone(ctx))?;
                stream
                    .map(move |batch| Ok(batch?.project(&columns)?))
                    .boxed()
            }
            Self::Stored(batches, reads) => {
                let columns = reads.columns.clone();
                match &batches[unit] {
                    StoredBatch::Memory(batch) => {
                        let batch = batch.project(&columns).map_err(DataFusionError::from);
                        futures::stream::iter([batch]).boxed()
                    }
                    file => {
                        let file = file.clone();
                        let read = async move {
                            let read = tokio::task::spawn_blocking(move || file.read()).await;
                            let batch = read.map_err(|e| DataFusionError::External(e.into()))?;
                            Ok(batch?.project(&columns)?)
                        };
                        futures::stream::once(read).boxed()
                    }
                }
            }
        })
    }

    /// Whose rows a unit has, for profiles.
    pub(super) fn name(&self, unit: usize) -> &str {
        match self {
            Self::Scan(_, names, _) => names.get(unit).map_or("a file", String::as_str),
            Self::Batches(..) => "record batches",
            Self::Plan(plan, _) => plan.name(),
            Self::Stored(..) => "an input",
        }
    }

    /// Say where an error comes from.
    pub(super) fn explain(&self, unit: usize, error: DataFusionError) -> DataFusionError {
        match self {
            Self::Scan(_, names, _) => match names.get(unit) {
                Some(name) => error.context(format!("reading {name} to make it resident")),
                None => error,
            },
            Self::Batches(..) | Self::Plan(..) | Self::Stored(..) => error,
        }
    }
}
