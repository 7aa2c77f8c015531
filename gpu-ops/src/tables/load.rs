//! Reads the columns of a table on all cores and packs each batch as it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::datasource::source::DataSource;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;

use crate::column::{ChunkEncoder, Segment, StringPolicy};
use crate::error::{GpuError, Result};

/// Rows of a memory table that one unit of work has at most.
const UNIT_ROWS: usize = 1 << 18;

/// The work of reading a table, in units whose order is the order of the rows.
pub(super) enum Units {
    /// A partition of a scan each; the name of its file, for errors.
    Scan(Arc<dyn DataSource>, Vec<String>),
    /// Slices of record batches each, and the wanted columns.
    Batches(Vec<RecordBatch>, Vec<usize>),
    /// A partition of a plan each, and the wanted columns.
    Plan(Arc<dyn ExecutionPlan>, Vec<usize>),
}

/// What was read, packed.
pub(super) struct Packed {
    pub(super) rows: usize,
    /// By column: the segments in row order.
    pub(super) columns: Vec<Vec<Segment>>,
}

/// One unit, packed.
struct PackedUnit {
    unit: usize,
    rows: usize,
    segments: Vec<Segment>,
}

impl Units {
    /// Slices of these batches.
    pub(super) fn of_batches(batches: &[RecordBatch], columns: &[usize]) -> Self {
        let slices = batches.iter().flat_map(|batch| {
            (0..batch.num_rows())
                .step_by(UNIT_ROWS)
                .map(|start| batch.slice(start, UNIT_ROWS.min(batch.num_rows() - start)))
        });
        Self::Batches(slices.collect(), columns.to_vec())
    }

    fn count(&self) -> usize {
        match self {
            Self::Scan(_, names) => names.len(),
            Self::Batches(batches, _) => batches.len(),
            Self::Plan(plan, _) => plan.output_partitioning().partition_count(),
        }
    }

    fn open(
        &self,
        unit: usize,
        ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<RecordBatch, DataFusionError>>, DataFusionError> {
        Ok(match self {
            // Not by way of its plan node, which would cut the batches small again.
            Self::Scan(source, _) => source.open(unit, Arc::clone(ctx))?.boxed(),
            Self::Batches(batches, columns) => {
                let batch = batches[unit]
                    .project(columns)
                    .map_err(DataFusionError::from);
                futures::stream::iter([batch]).boxed()
            }
            Self::Plan(plan, columns) => {
                let columns = columns.clone();
                let stream = plan.execute(unit, Arc::clone(ctx))?;
                stream
                    .map(move |batch| Ok(batch?.project(&columns)?))
                    .boxed()
            }
        })
    }

    /// Say where an error comes from.
    fn explain(&self, unit: usize, error: DataFusionError) -> DataFusionError {
        match self {
            Self::Scan(_, names) => match names.get(unit) {
                Some(name) => error.context(format!("reading {name} to make it resident")),
                None => error,
            },
            Self::Batches(..) | Self::Plan(..) => error,
        }
    }
}

/// Read all units, `target_partitions` of the session at a time, and pack columns of these types, their
/// strings by these policies.
///
/// # Errors
/// [`GpuError::DataFusion`] of the scan, naming the file; [`GpuError::Unsupported`] for values
/// without a device encoding. The other readers are stopped.
pub(super) async fn read(
    units: Units,
    encodings: Vec<(DataType, StringPolicy)>,
    ctx: &Arc<TaskContext>,
) -> Result<Packed> {
    let count = units.count();
    let readers = ctx
        .session_config()
        .target_partitions()
        .clamp(1, count.max(1));
    let units = Arc::new(units);
    let encodings: Arc<[(DataType, StringPolicy)]> = encodings.into();
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..readers {
        let (units, encodings) = (Arc::clone(&units), Arc::clone(&encodings));
        let (next, ctx) = (Arc::clone(&next), Arc::clone(ctx));
        tasks.spawn(async move {
            let mut packed = Vec::new();
            loop {
                let unit = next.fetch_add(1, Ordering::Relaxed);
                if unit >= count {
                    return Ok(packed);
                }
                packed.push(read_unit(&units, unit, &encodings, &ctx).await?);
                tokio::task::yield_now().await;
            }
        });
    }
    let mut packed: Vec<PackedUnit> = Vec::with_capacity(count);
    while let Some(done) = tasks.join_next().await {
        let done: Result<Vec<PackedUnit>> =
            done.map_err(|error| GpuError::Internal(format!("a table reader stopped: {error}")))?;
        packed.extend(done?);
    }
    packed.sort_unstable_by_key(|unit| unit.unit);
    let mut columns: Vec<Vec<Segment>> = encodings
        .iter()
        .map(|_| Vec::with_capacity(count))
        .collect();
    let mut rows = 0;
    for unit in packed {
        rows += unit.rows;
        for (column, segment) in columns.iter_mut().zip(unit.segments) {
            column.push(segment);
        }
    }
    Ok(Packed { rows, columns })
}

async fn read_unit(
    units: &Units,
    unit: usize,
    encodings: &[(DataType, StringPolicy)],
    ctx: &Arc<TaskContext>,
) -> Result<PackedUnit> {
    let mut encoders = encodings
        .iter()
        .map(|(data_type, policy)| ChunkEncoder::new(data_type.clone(), *policy))
        .collect::<Result<Vec<_>>>()?;
    let explain = |error| units.explain(unit, error);
    let mut stream = units.open(unit, ctx).map_err(explain)?;
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await.map_err(explain)? {
        rows += batch.num_rows();
        for (encoder, column) in encoders.iter_mut().zip(batch.columns()) {
            encoder.push(column)?;
        }
    }
    Ok(PackedUnit {
        unit,
        rows,
        segments: encoders.into_iter().map(ChunkEncoder::finish).collect(),
    })
}
