//! Tables whose columns were made on the device, scanned like any other table.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, Statistics,
    StatisticsArgs,
};

use super::loaded::LoadedTable;
use crate::column::{Column, is_text};
use crate::device::Streams;
use crate::error::{GpuError, Result};
use crate::memory::MemoryPool;
use crate::plan_node::leaf;

/// Columns in the memory of one device; they stay there as long as the table lives.
pub struct ResidentTable {
    name: Arc<str>,
    schema: SchemaRef,
    rows: usize,
    columns: Vec<Arc<Column>>,
    pool: Arc<MemoryPool>,
    /// For copies to the host.
    streams: Arc<Streams>,
}

impl ResidentTable {
    /// A table of named columns of equally many rows, which are in `pool`.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] for columns of strings, and for columns of different lengths.
    pub fn try_new(
        pool: Arc<MemoryPool>,
        streams: Arc<Streams>,
        name: &str,
        columns: Vec<(String, Column)>,
    ) -> Result<Self> {
        let rows = columns.first().map_or(0, |(_, column)| column.rows);
        if let Some((name, _)) = columns
            .iter()
            .find(|(_, c)| c.rows != rows || is_text(&c.data_type))
        {
            return Err(GpuError::Unsupported(format!(
                "column {name} of a table in device memory: strings, or not as many rows as the first column"
            )));
        }
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, column)| {
                Field::new(name, column.data_type.clone(), column.validity.is_some())
            })
            .collect();
        Ok(Self {
            name: name.into(),
            schema: Arc::new(Schema::new(fields)),
            rows,
            columns: columns.into_iter().map(|(_, c)| Arc::new(c)).collect(),
            pool,
            streams,
        })
    }

    /// Its name, for people.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Names and types of its columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// All columns.
    pub fn columns(&self) -> &[Arc<Column>] {
        &self.columns
    }

    /// Some of the columns, as a load into `pool` would have brought them.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] when they are in another pool; [`GpuError::Internal`] for columns that there are not.
    pub(super) fn loaded(&self, columns: &[usize], pool: &Arc<MemoryPool>) -> Result<LoadedTable> {
        if !Arc::ptr_eq(pool, &self.pool) {
            return Err(GpuError::Unsupported(format!(
                "table {} was made on another device",
                self.name
            )));
        }
        let columns = columns
            .iter()
            .map(|column| self.columns.get(*column).cloned())
            .collect::<Option<_>>()
            .ok_or_else(|| GpuError::Internal("a table in device memory lacks a column".into()))?;
        Ok(LoadedTable {
            rows: self.rows,
            columns,
            load_ms: 0.0,
            bytes_uploaded: 0,
            columns_loaded: 0,
            ..LoadedTable::default()
        })
    }
}

impl fmt::Debug for ResidentTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResidentTable")
            .field("name", &self.name)
            .field("schema", &self.schema)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

/// A table of DataFusion's over a [`ResidentTable`].
#[derive(Debug, Clone)]
pub struct ResidentProvider(pub Arc<ResidentTable>);

#[async_trait]
impl TableProvider for ResidentProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.0.columns.len()).collect();
        let projection = projection.map_or_else(all, Clone::clone);
        Ok(Arc::new(ResidentExec::try_new(
            Arc::clone(&self.0),
            projection,
        )?))
    }

    fn statistics(&self) -> Option<Statistics> {
        let statistics = Statistics::new_unknown(&self.0.schema);
        Some(statistics.with_num_rows(Precision::Exact(self.0.rows)))
    }
}

/// A scan of some columns of a [`ResidentTable`]; on the CPU it copies them to the host.
#[derive(Debug)]
pub struct ResidentExec {
    pub(super) table: Arc<ResidentTable>,
    pub(super) projection: Vec<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl ResidentExec {
    fn try_new(table: Arc<ResidentTable>, projection: Vec<usize>) -> DataFusionResult<Self> {
        let schema = Arc::new(table.schema.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self {
            table,
            projection,
            schema,
            properties: Arc::new(properties),
        })
    }
}

impl DisplayAs for ResidentExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResidentExec: {}", self.table.name)
    }
}

impl ExecutionPlan for ResidentExec {
    fn name(&self) -> &str {
        "ResidentExec"
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
        let (table, projection) = (Arc::clone(&self.table), self.projection.clone());
        let schema = Arc::clone(&self.schema);
        let batch = async move {
            let copy = move || -> DataFusionResult<RecordBatch> {
                let external = |error: GpuError| DataFusionError::External(Box::new(error));
                let stream = table.streams.lease().map_err(external)?;
                let columns = projection
                    .iter()
                    .map(|column| table.columns[*column].to_arrow(&stream))
                    .collect::<Result<_>>()
                    .map_err(external)?;
                let options = RecordBatchOptions::new().with_row_count(Some(table.rows));
                let schema = Arc::new(table.schema.project(&projection)?);
                Ok(RecordBatch::try_new_with_options(
                    schema, columns, &options,
                )?)
            };
            tokio::task::spawn_blocking(copy)
                .await
                .map_err(|error| DataFusionError::External(Box::new(error)))?
        };
        let stream = futures::stream::once(batch);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        let statistics = Statistics::new_unknown(&self.schema);
        Ok(Arc::new(
            statistics.with_num_rows(Precision::Exact(self.table.rows)),
        ))
    }
}
