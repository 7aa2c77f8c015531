//! Tables pinned in device memory.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::execution::TaskContext;

use super::cache::TableCache;
use super::entries::Pin;
use super::loaded::LoadedTable;
use super::source::TableSource;
use crate::column::is_storable;
use crate::device::Stream;
use crate::error::{GpuError, Result};

/// The columns of a table, which are neither evicted nor moved to host memory while this lives.
pub struct PinnedTable {
    name: Arc<str>,
    table: Arc<LoadedTable>,
    skipped: Vec<String>,
    /// Tell the cache that the columns are not to be moved.
    _pins: Vec<Arc<Pin>>,
}

impl PinnedTable {
    /// The table's name, as its scan knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.table.rows
    }

    /// Columns that are pinned.
    pub fn columns(&self) -> usize {
        self.table.columns.len()
    }

    /// Bytes of device memory that are pinned.
    pub fn bytes(&self) -> usize {
        let columns = self.table.columns.iter();
        columns.map(|column| column.budget_bytes(false)).sum()
    }

    /// Columns that are not pinned since the device holds no values of their types, by name.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }
}

impl fmt::Debug for PinnedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedTable")
            .field("name", &self.name)
            .field("columns", &self.columns())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl TableCache {
    /// Loads all columns of a table that the device can hold, as [`Self::get_or_load`], and keeps them in device memory until
    /// the answer is dropped. Later queries find them there, whatever else needs room.
    ///
    /// Strings are pinned as the cache's policy lays them out; where a query needs another form of a column, that one comes
    /// and goes. Files that change are loaded anew by the next query, which is not pinned then.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] when not all of the table fits beside what others use; [`GpuError::Unsupported`] for
    /// rows without an identity, which are read anew by every query; otherwise those of [`Self::get_or_load`].
    pub async fn pin(
        &self,
        source: &TableSource,
        ctx: Arc<TaskContext>,
        stream: &Stream,
    ) -> Result<PinnedTable> {
        if !source.is_cacheable() {
            return Err(GpuError::Unsupported(format!(
                "{} cannot be pinned: its rows have no identity, so every query reads them anew",
                source.name()
            )));
        }
        let storable = |data_type: &DataType| is_storable(data_type);
        // Structs are held by their fields.
        let fields = source.schema().fields().iter().enumerate();
        let fields = fields.filter(|(_, field)| !matches!(field.data_type(), DataType::Struct(_)));
        let (held, skipped): (Vec<_>, Vec<_>) = fields.partition(|(_, f)| storable(f.data_type()));
        let columns: Vec<usize> = held.iter().map(|(column, _)| *column).collect();
        let table = self.get_or_load(source, &columns, &[], ctx, stream).await?;
        if table.columns.iter().any(|c| c.is_in_host_memory()) {
            let statistics = self.pool.statistics();
            return Err(GpuError::OutOfDeviceMemory {
                requested: table.columns.iter().map(|c| c.budget_bytes(true)).sum(),
                purpose: format!("table {}, which is to be pinned", source.name()),
                in_use: statistics.in_use,
                budget: statistics.budget,
            });
        }
        Ok(PinnedTable {
            name: Arc::clone(&source.name),
            _pins: self.mark(&table),
            table,
            skipped: skipped.iter().map(|(_, f)| f.name().clone()).collect(),
        })
    }

    /// Notes in the cache that columns are pinned.
    fn mark(&self, table: &LoadedTable) -> Vec<Arc<Pin>> {
        let wanted: HashSet<_> = table.columns.iter().map(Arc::as_ptr).collect();
        let mut state = self.state.lock();
        let kept = state
            .tables
            .values_mut()
            .flat_map(|t| t.columns.values_mut());
        let found = kept.filter(|resident| wanted.contains(&Arc::as_ptr(&resident.column)));
        found
            .map(|resident| {
                resident.pin.upgrade().unwrap_or_else(|| {
                    let pin = Arc::new(Pin);
                    resident.pin = Arc::downgrade(&pin);
                    pin
                })
            })
            .collect()
    }
}
