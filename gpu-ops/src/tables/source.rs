//! Sources of scans: a table with an identity, and the mapping of its columns.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::object_store::ObjectMeta;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use super::elements::ElementsOf;
use super::files::FileTable;
use super::input::InputExec;
use super::memory::MemoryTable;
use super::resident::{ResidentExec, ResidentTable};
use super::sealed::SealedScanExec;
use super::struct_fields::StructFields;
use crate::error::Result;

/// A scan, split into its table and the operations on the table's rows.
#[derive(Debug, Clone)]
pub struct ScanAnalysis {
    /// The table.
    pub source: TableSource,
    /// Output column `i` of the scan is table column `column_of_output[i]`.
    pub column_of_output: Vec<usize>,
    /// A predicate that the scan applies exactly and that loading does not: the caller filters by
    /// it. Its columns are table columns, by index and name.
    pub exact_filter: Option<Arc<dyn PhysicalExpr>>,
    /// A limit inside the scan. `source` then stands for the plan itself, limit included, and is
    /// not cached.
    pub limit: Option<usize>,
}

/// A table that device columns are loaded from.
#[derive(Clone)]
pub struct TableSource {
    pub(super) name: Arc<str>,
    pub(super) fields: Arc<StructFields>,
    /// All columns, with those that are computed, as far as they are known.
    pub(super) schema: SchemaRef,
    pub(super) kind: Kind,
}

/// Where the rows come from.
#[derive(Clone)]
pub(super) enum Kind {
    /// Files of a listing table.
    Files(Arc<FileTable>),
    /// Record batches of a memory table.
    Memory(Arc<MemoryTable>),
    /// Columns that were made on the device.
    Resident(Arc<ResidentTable>),
    /// Elements of the lists of another table.
    Elements(Arc<ElementsOf>),
    /// Any plan; run anew for each load.
    Plan(Arc<dyn ExecutionPlan>),
    /// An input of the fragment, which collects its rows.
    Input(usize),
}

impl TableSource {
    /// Split a leaf of a physical plan.
    ///
    /// Scans of files and of memory tables get an identity, so that their columns can be cached;
    /// every other plan, and a scan with a limit, is anonymous.
    ///
    /// # Errors
    /// [`crate::GpuError::Unsupported`] when the scan computes expressions, adds columns that are not
    /// in the files, or reads chosen parts of files.
    pub fn analyze(plan: &Arc<dyn ExecutionPlan>) -> Result<ScanAnalysis> {
        if let Some(exec) = plan.downcast_ref::<ResidentExec>() {
            return Ok(ScanAnalysis {
                column_of_output: exec.projection.clone(),
                source: Self::new(
                    Arc::clone(exec.table.name()),
                    // Columns that were made on the device have no structs.
                    Arc::new(StructFields::none(&exec.table.schema())),
                    Kind::Resident(Arc::clone(&exec.table)),
                ),
                exact_filter: None,
                limit: None,
            });
        }
        if let Some(exec) = plan.downcast_ref::<InputExec>() {
            let schema = exec.schema();
            return Ok(ScanAnalysis {
                column_of_output: (0..schema.fields().len()).collect(),
                source: Self::new(
                    Arc::clone(exec.label()),
                    Arc::new(StructFields::of(&schema)),
                    Kind::Input(exec.number()),
                ),
                exact_filter: None,
                limit: None,
            });
        }
        if let Some(sealed) = plan.downcast_ref::<SealedScanExec>() {
            return Self::analyze(sealed.scan());
        }
        let Some(exec) = plan.downcast_ref::<DataSourceExec>() else {
            return Ok(Self::anonymous(plan, None));
        };
        if let Some(config) = exec.data_source().downcast_ref::<FileScanConfig>() {
            if config.limit.is_some() {
                return Ok(Self::anonymous(plan, config.limit));
            }
            let scan = FileTable::analyze(config)?;
            return Ok(ScanAnalysis {
                column_of_output: scan.column_of_output,
                source: Self::new(
                    scan.table.name().into(),
                    Arc::clone(&scan.table.fields),
                    Kind::Files(Arc::new(scan.table)),
                ),
                exact_filter: scan.exact_filter,
                limit: None,
            });
        }
        if let Some(config) = exec.data_source().downcast_ref::<MemorySourceConfig>() {
            if let Some(limit) = exec.fetch() {
                return Ok(Self::anonymous(plan, Some(limit)));
            }
            let schema = config.original_schema();
            let all = || (0..schema.fields().len()).collect();
            return Ok(ScanAnalysis {
                column_of_output: config.projection().clone().unwrap_or_else(all),
                source: Self::new(
                    "memory table".into(),
                    Arc::new(StructFields::of(&schema)),
                    Kind::Memory(Arc::new(MemoryTable::of(config))),
                ),
                exact_filter: None,
                limit: None,
            });
        }
        Ok(Self::anonymous(plan, exec.fetch()))
    }

    fn anonymous(plan: &Arc<dyn ExecutionPlan>, limit: Option<usize>) -> ScanAnalysis {
        let schema = plan.schema();
        ScanAnalysis {
            column_of_output: (0..schema.fields().len()).collect(),
            source: Self::new(
                plan.name().into(),
                Arc::new(StructFields::of(&schema)),
                Kind::Plan(Arc::clone(plan)),
            ),
            exact_filter: None,
            limit,
        }
    }

    /// Name for people: the table's if the scan knows it, else its first file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All columns of the table, behind them the fields of its structs, and then those that are computed; column indexes count in it.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn new(name: Arc<str>, fields: Arc<StructFields>, kind: Kind) -> Self {
        Self {
            name,
            schema: Arc::clone(fields.schema()),
            fields,
            kind,
        }
    }

    /// The column of the field that `names` lead to within a column of structs; `None` where they lead to none. One that may not be
    /// NULL is NULL where the next struct around it is that may be. A field of structs has a column that is not loaded.
    pub fn field_of_struct(&self, column: usize, names: &[&str]) -> Option<usize> {
        self.fields.field(column, names)
    }

    /// The column of Booleans that tell where the struct is not NULL that `names` lead to within a column of structs; the column
    /// itself without any.
    pub fn presence_of_struct(&self, column: usize, names: &[&str]) -> Option<usize> {
        self.fields.presence(column, names)
    }

    /// The same table with one more column, of what `expr`, which is over its columns by number, comes to for each row; and the
    /// column's number. It is computed when it is loaded. Columns that are computed themselves may be among those.
    ///
    /// `None` where the table's columns are not kept, where `expr` reads a field of structs by a number of its own, and where it
    /// failed for one of the rows before.
    #[must_use]
    pub fn with_computed(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<(Self, usize)> {
        if !matches!(self.kind, Kind::Files(_) | Kind::Memory(_)) {
            return None;
        }
        let (own, known) = (self.fields.own(), self.fields.schema());
        let (schema, column) = self.fields.computed().with(expr, known, own)?;
        let mut with = self.clone();
        if schema.fields().len() > self.schema.fields().len() {
            with.schema = schema;
        }
        Some((with, column))
    }

    /// Is the column computed of others?
    pub fn is_computed(&self, column: usize) -> bool {
        column >= self.fields.schema().fields().len()
    }

    /// Do both stand for the same rows, in one fragment? Anonymous plans are never the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.fields.schema() == other.fields.schema()
            && match (&self.kind, &other.kind) {
                (Kind::Files(a), Kind::Files(b)) => a.is_same(b),
                (Kind::Memory(a), Kind::Memory(b)) => a.key() == b.key(),
                (Kind::Resident(a), Kind::Resident(b)) => Arc::ptr_eq(a, b),
                (Kind::Elements(a), Kind::Elements(b)) => a.is_same(b),
                (Kind::Input(a), Kind::Input(b)) => a == b,
                _ => false,
            }
    }

    /// Bytes of its files, as they were listed; `None` for what is no table of files.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Files(table) => Some(table.bytes()),
            _ => None,
        }
    }

    /// See [`FileTable::note_looks`].
    pub(crate) fn note_looks(&self, looked_at: &dyn Fn(&ObjectMeta) -> bool) {
        if let Kind::Files(table) = &self.kind {
            table.note_looks(looked_at);
        }
    }

    /// See [`FileTable::note_unchanged`].
    pub(crate) fn note_unchanged(&self) {
        if let Kind::Files(table) = &self.kind {
            table.note_unchanged();
        }
    }

    /// Which input of its fragment it is; `None` for tables.
    pub fn input(&self) -> Option<usize> {
        match self.kind {
            Kind::Input(number) => Some(number),
            _ => None,
        }
    }

    /// Are its rows in files?
    pub fn is_of_files(&self) -> bool {
        matches!(self.kind, Kind::Files(_))
    }

    /// Are its rows in parquet files?
    pub fn is_parquet(&self) -> bool {
        matches!(&self.kind, Kind::Files(table) if table.is_parquet())
    }

    /// Will loaded columns be kept for later queries?
    pub fn is_cacheable(&self) -> bool {
        !matches!(self.kind, Kind::Plan(_) | Kind::Input(_))
    }
}

impl fmt::Debug for TableSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSource")
            .field("name", &self.name)
            .field("cacheable", &self.is_cacheable())
            .finish_non_exhaustive()
    }
}
