//! Parallel reader of a table: decodes and packs batches on all cores, and hands on packed units while others are
//! read.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use futures::TryStreamExt;
use tokio::task::{JoinError, JoinSet};

use super::entries::Wanted;
use super::source::TableSource;
use super::units::Units;
use crate::column::{ChunkEncoder, ColumnRoom, Segment, StringPolicy, StringSorter};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::parquet::ParquetReader;
use crate::query::Query;
use crate::trace::{Trace, Track, Work};

/// Columns, and of which of them the strings must be codes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnRequest<'a> {
    pub(crate) columns: &'a [usize],
    pub(crate) needs_codes: &'a [bool],
}

/// Columns of a table that are to be read.
#[derive(Clone, Copy)]
pub(super) struct LoadRequest<'a> {
    pub(super) source: &'a TableSource,
    /// Which, and in which form.
    pub(super) columns: &'a [Wanted],
    /// Device memory that they may take.
    pub(super) room: &'a ColumnRoom,
    pub(super) ctx: &'a Arc<TaskContext>,
    /// On whose behalf.
    pub(super) work: &'a LoadFor,
}

/// For whom columns are loaded.
#[derive(Clone)]
pub(crate) struct LoadFor {
    /// The stream that copies them.
    pub(crate) stream: Stream,
    /// The query whose memory they count as.
    pub(crate) query: Option<Arc<Query>>,
    /// Who decodes the columns of parquet files.
    pub(crate) parquet: ParquetReader,
    /// Sorts the strings of columns that the device decodes; without one the host does.
    pub(crate) sorter: Option<Arc<dyn StringSorter>>,
}

/// What was read, packed.
pub(super) struct Packed {
    pub(super) rows: usize,
    /// By column: the segments in row order.
    pub(super) columns: Vec<Vec<Segment>>,
}

/// One unit, packed.
pub(super) struct PackedUnit {
    pub(super) unit: usize,
    pub(super) rows: usize,
    /// By column.
    pub(super) segments: Vec<Segment>,
}

/// What is done with a unit once it is packed, on a thread that may block. False: it is not what was expected.
pub(super) type WriteUnit = Arc<dyn Fn(&mut PackedUnit) -> Result<bool> + Send + Sync>;

/// How a table is read.
pub(super) struct Reader {
    pub(super) units: Arc<Units>,
    /// Types of the columns, and how their strings lie.
    pub(super) encodings: Arc<[(DataType, StringPolicy)]>,
    pub(super) ctx: Arc<TaskContext>,
    /// What is done with each unit while the next ones are read.
    pub(super) write: Option<WriteUnit>,
    /// Notes which unit was read when, if a trace is taken.
    pub(super) trace: Option<Arc<Trace>>,
    /// The query for which it is read, by its number.
    pub(super) query: u64,
}

impl Reader {
    /// Read all units, `target_partitions` of the session at a time, and pack and place each as it comes. As many again wait to
    /// be placed at most. `None` when a unit is not what was expected.
    ///
    /// # Errors
    /// [`GpuError::DataFusion`] of the scan, naming the file; [`GpuError::Unsupported`] for values
    /// without a device encoding; those of placing. All readers have stopped then.
    pub(super) async fn read(self) -> Result<Option<Packed>> {
        let mut work = InWork::default();
        let outcome = self.run(&mut work).await;
        if !matches!(outcome, Ok(Some(_))) {
            work.end().await;
        }
        outcome
    }

    async fn run(&self, work: &mut InWork) -> Result<Option<Packed>> {
        let count = self.units.count();
        let partitions = self.ctx.session_config().target_partitions();
        let readers = partitions.clamp(1, count.max(1));
        let mut idle: Vec<usize> = (0..readers).rev().collect();
        let mut begun = 0;
        let mut packed: Vec<PackedUnit> = Vec::with_capacity(count);
        loop {
            while work.placing.len() < readers
                && let Some(mut unit) = work.packed.pop_front()
            {
                let Some(write) = self.write.clone() else {
                    packed.push(unit);
                    continue;
                };
                work.placing
                    .spawn_blocking(move || Ok(write(&mut unit)?.then_some(unit)));
            }
            // Where one reads, it goes on while what it has read is placed.
            while begun < count
                && work.packed.len() + work.placing.len() <= readers
                && let Some(reader) = idle.pop()
            {
                work.reading.spawn(self.unit(begun, reader));
                begun += 1;
            }
            tokio::select! {
                Some(read) = work.reading.join_next() => {
                    let (reader, unit) = read.map_err(stopped)??;
                    idle.push(reader);
                    work.packed.push_back(unit);
                }
                Some(placed) = work.placing.join_next() => match placed.map_err(stopped)?? {
                    Some(unit) => packed.push(unit),
                    None => return Ok(None),
                },
                else => break,
            }
        }
        packed.sort_unstable_by_key(|unit| unit.unit);
        let mut columns: Vec<Vec<Segment>> = self
            .encodings
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
        Ok(Some(Packed { rows, columns }))
    }

    /// Reads a unit, in the name of one of the readers.
    fn unit(
        &self,
        unit: usize,
        reader: usize,
    ) -> impl Future<Output = Result<(usize, PackedUnit)>> + Send + 'static {
        let (units, encodings) = (Arc::clone(&self.units), Arc::clone(&self.encodings));
        let (ctx, trace) = (Arc::clone(&self.ctx), self.trace.clone());
        let track = Track::Reader {
            query: self.query,
            reader,
        };
        async move {
            let mut span = trace.map(|trace| {
                let name = format!("decode {}", units.name(unit));
                trace.host(track, Work::Load, name)
            });
            let packed = read_unit(&units, unit, &encodings, &ctx).await?;
            if let Some(span) = &mut span {
                span.number("unit", unit as u64);
                span.number("rows", packed.rows as u64);
            }
            Ok((reader, packed))
        }
    }
}

/// The units that are on their way. When it is dropped, nothing more is begun.
#[derive(Default)]
struct InWork {
    reading: JoinSet<Result<(usize, PackedUnit)>>,
    /// These wait to be placed.
    packed: VecDeque<PackedUnit>,
    placing: JoinSet<Result<Option<PackedUnit>>>,
}

impl InWork {
    /// Stop, and wait until nothing runs any more.
    async fn end(&mut self) {
        self.packed.clear();
        self.reading.abort_all();
        self.placing.abort_all();
        while self.reading.join_next().await.is_some() {}
        while self.placing.join_next().await.is_some() {}
    }
}

/// The error of a load of which nothing was expected and that is not as expected.
pub(super) fn unexpected() -> GpuError {
    GpuError::Internal("columns of which nothing was expected are not as expected".into())
}

/// The error of a load of files that are no longer what they were when it began.
pub(super) fn changed_meanwhile(source: &TableSource) -> GpuError {
    GpuError::DataFusion(DataFusionError::Execution(format!(
        "table {} changed while it was read; run the query again",
        source.name()
    )))
}

pub(super) fn stopped(error: JoinError) -> GpuError {
    GpuError::Internal(format!("a table reader stopped: {error}"))
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
        let columns = units.reads().take(&batch).map_err(|error| match error {
            DataFusionError::NotImplemented(what) => GpuError::Unsupported(what),
            other => explain(other).into(),
        })?;
        for (encoder, column) in encoders.iter_mut().zip(&columns) {
            encoder.push(column)?;
        }
        // Files are read without waiting for anything: here is where a reader is told to stop.
        tokio::task::yield_now().await;
    }
    Ok(PackedUnit {
        unit,
        rows,
        segments: encoders.into_iter().map(ChunkEncoder::finish).collect(),
    })
}
