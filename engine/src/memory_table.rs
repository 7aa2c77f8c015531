//! A table in memory that knows whether it was ever written to, so that a cached plan over it is checked at once.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Constraints;
use datafusion::datasource::{MemTable, TableType};
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;

/// DataFusion's [`MemTable`], whose rows nobody else reaches.
///
/// The batches of a bare [`MemTable`] can be changed by whoever holds it, so a plan over it is reused only after all of them
/// were compared, which takes longer than many queries over large tables do. This one notes when a statement that could
/// write to it is planned; as long as none was, its rows are those that it was made of.
#[derive(Debug)]
pub struct MemoryTable {
    table: MemTable,
    written: AtomicBool,
}

impl MemoryTable {
    /// A table of partitions of batches.
    ///
    /// # Errors
    /// When a batch has other columns than `schema`.
    pub fn try_new(schema: SchemaRef, partitions: Vec<Vec<RecordBatch>>) -> Result<Self> {
        Ok(MemTable::try_new(schema, partitions)?.into())
    }

    /// Has no statement ever been planned that could write to it? Once false it stays so, since such a plan may run later and
    /// more than once.
    pub fn is_as_made(&self) -> bool {
        !self.written.load(Ordering::Acquire)
    }

    /// The table behind it, to look at.
    pub(crate) fn table(&self) -> &MemTable {
        &self.table
    }

    /// To be called before a plan is made that writes.
    fn note_write(&self) {
        self.written.store(true, Ordering::Release);
    }
}

impl From<MemTable> for MemoryTable {
    fn from(table: MemTable) -> Self {
        Self {
            table,
            written: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl TableProvider for MemoryTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.table.constraints()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.table.get_table_definition()
    }

    fn get_logical_plan(&'_ self) -> Option<Cow<'_, LogicalPlan>> {
        self.table.get_logical_plan()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.table.get_column_default(column)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.table.scan(state, projection, filters, limit).await
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.note_write();
        self.table.insert_into(state, input, insert_op).await
    }

    async fn delete_from(
        &self,
        state: &dyn Session,
        filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.note_write();
        self.table.delete_from(state, filters).await
    }

    async fn update(
        &self,
        state: &dyn Session,
        assignments: Vec<(String, Expr)>,
        filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.note_write();
        self.table.update(state, assignments, filters).await
    }
}
