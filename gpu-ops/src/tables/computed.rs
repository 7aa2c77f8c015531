//! Columns that are computed of a table's own, by DataFusion, once for all of its rows: what no kernel computes is then read like
//! any other column, and kept like one.
//!
//! They have the numbers behind the table's columns and the fields of its structs, in the order in which they were asked for first. All
//! tables with the same columns number them alike, so that a query finds what an earlier one had computed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use parking_lot::Mutex;

/// Most computed columns of a table that are told apart: those of more are not kept.
const MOST: usize = 1024;

/// The computed columns of tables with the same columns.
#[derive(Debug, Default)]
pub(super) struct ComputedColumns(Mutex<Vec<Arc<ComputedColumn>>>);

/// One of them.
#[derive(Debug)]
pub(super) struct ComputedColumn {
    /// Over the table's columns, by number.
    expr: Arc<dyn PhysicalExpr>,
    /// The columns that it reads, ascending.
    pub(super) reads: Vec<usize>,
    field: FieldRef,
    /// It was an error for a row: which rows a query has, it does not know.
    failed: AtomicBool,
}

impl ComputedColumns {
    /// Those of all tables with these columns.
    pub(super) fn of(schema: &SchemaRef) -> Arc<Self> {
        static KNOWN: LazyLock<Mutex<HashMap<Fields, Weak<ComputedColumns>>>> =
            LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock();
        if let Some(found) = known.get(schema.fields()).and_then(Weak::upgrade) {
            return found;
        }
        known.retain(|_, columns| columns.strong_count() > 0);
        let new = Arc::new(Self::default());
        known.insert(schema.fields().clone(), Arc::downgrade(&new));
        new
    }

    pub(super) fn get(&self, at: usize) -> Option<Arc<ComputedColumn>> {
        self.0.lock().get(at).cloned()
    }

    /// The fields of those up to `at`.
    fn fields(&self, at: usize) -> Vec<FieldRef> {
        let columns = self.0.lock();
        let columns = columns.iter().take(at + 1);
        columns.map(|column| Arc::clone(&column.field)).collect()
    }

    /// `expr`, which is over a table's columns by number, with what computed columns are in their place: those come behind the first
    /// `known`.
    fn of_others(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        known: usize,
    ) -> Option<Arc<dyn PhysicalExpr>> {
        let expr = Arc::clone(expr).transform_down(|e| {
            let column = e.downcast_ref::<Column>().map(Column::index);
            let found = column.and_then(|column| self.get(column.checked_sub(known)?));
            Ok(match found {
                Some(found) => {
                    Transformed::new(Arc::clone(&found.expr), true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(e),
            })
        });
        Some(expr.ok()?.data)
    }

    /// The columns of a table, `own` of which are its own and the others fields of its structs, with one more that `expr` computes, and
    /// that one's number; `None` where `expr` reads another than its own, and where it failed before.
    pub(super) fn with(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        known: &SchemaRef,
        own: usize,
    ) -> Option<(SchemaRef, usize)> {
        let behind = known.fields().len();
        let expr = self.of_others(expr, behind)?;
        if collect_columns(&expr).iter().any(|c| c.index() >= own) {
            return None;
        }
        let at = self.place(&expr, known)?;
        let fields = known.fields().iter().cloned();
        let fields: Fields = fields.chain(self.fields(at)).collect();
        Some((Arc::new(Schema::new(fields)), behind + at))
    }

    /// The place of the column that `expr` computes; `None` where it failed before, and where there are too many.
    fn place(&self, expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<usize> {
        let data_type = expr.data_type(schema).ok()?;
        let nullable = expr.nullable(schema).ok()?;
        let mut columns = self.0.lock();
        let same = |column: &Arc<ComputedColumn>| {
            column.expr.eq(expr) && *column.field.data_type() == data_type
        };
        if let Some(at) = columns.iter().position(same) {
            let failed = columns[at].failed.load(Ordering::Relaxed);
            return (!failed).then_some(at);
        }
        if columns.len() == MOST {
            return None;
        }
        let mut reads: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
        reads.sort_unstable();
        reads.dedup();
        let name = fmt_sql(expr.as_ref()).to_string();
        columns.push(Arc::new(ComputedColumn {
            expr: Arc::clone(expr),
            reads,
            field: Arc::new(Field::new(name, data_type, nullable)),
            failed: AtomicBool::new(false),
        }));
        Some(columns.len() - 1)
    }
}

impl ComputedColumn {
    pub(super) fn name(&self) -> &str {
        self.field.name()
    }

    /// The expression over batches that have the column which it reads `n`th at `places[n]`.
    ///
    /// # Errors
    /// Of DataFusion's rewriting.
    pub(super) fn over(&self, places: &[usize]) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        let moved = Arc::clone(&self.expr).transform_up(|e| {
            let Some(column) = e.downcast_ref::<Column>() else {
                return Ok(Transformed::no(e));
            };
            let read = self.reads.binary_search(&column.index());
            let place = read.ok().and_then(|n| places.get(n));
            let Some(place) = place else {
                return Err(DataFusionError::Internal(format!(
                    "{} reads a column that it does not have",
                    self.name()
                )));
            };
            Ok(Transformed::yes(
                Arc::new(Column::new(column.name(), *place)) as _,
            ))
        })?;
        Ok(moved.data)
    }

    /// What `expr`, which is its own over the columns of `batch`, comes to.
    ///
    /// # Errors
    /// [`DataFusionError::NotImplemented`], which says for whom it is: over rows that a query leaves out it may fail.
    pub(super) fn evaluate(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> Result<ArrayRef, DataFusionError> {
        let values = expr.evaluate(batch);
        let values = values.and_then(|values| values.into_array(batch.num_rows()));
        values.map_err(|error| {
            self.failed.store(true, Ordering::Relaxed);
            DataFusionError::NotImplemented(format!(
                "{}, which fails for a row of the table ({error}), runs on the CPU",
                self.name()
            ))
        })
    }
}
