//! Tables pinned in device memory.

use std::collections::BTreeMap;
use std::fmt;

use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::TableType;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use warpline_gpu::tables::{self, TableSource};

use crate::device::Device;
use crate::error::Result;

/// The tables that a session pinned, by name.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<BTreeMap<String, PinnedTable>>);

impl Pins {
    /// One more; another of this name is let go of.
    pub(crate) fn insert(&self, name: String, table: PinnedTable) {
        self.0.lock().insert(name, table);
    }

    pub(crate) fn remove(&self, name: &str) -> Option<PinnedTable> {
        self.0.lock().remove(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }
}

/// A table whose columns stay in device memory until this is dropped.
pub struct PinnedTable {
    name: String,
    table: tables::PinnedTable,
}

impl PinnedTable {
    /// The table's name, as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.table.rows()
    }

    /// Columns that are pinned.
    pub fn columns(&self) -> usize {
        self.table.columns()
    }

    /// Bytes of device memory that are pinned.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Columns that are not pinned since the device holds no values of their types (lists, structs …), by name.
    pub fn skipped(&self) -> &[String] {
        self.table.skipped()
    }
}

impl fmt::Debug for PinnedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedTable")
            .field("name", &self.name)
            .field("rows", &self.rows())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Loads a table of a session into device memory and pins it until the result is dropped: its columns are not
    /// evicted, and the first query over them does not wait. Of several devices it is the first, which answers the queries that
    /// are not shared out. `None` when the CPU answers.
    ///
    /// A file that changes is loaded again by the next query without being pinned: pin the table again.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # use datafusion::prelude::SessionContext;
    /// # use warpline::{Device, DeviceChoice, WarplineExt};
    /// # let device = Device::open(DeviceChoice::Auto, None)?;
    /// # let context = SessionContext::new().with_warpline(&device);
    /// context.register_parquet("orders", "orders/", Default::default()).await?;
    /// let pinned = device.pin(&context, "orders").await?;
    /// if let Some(table) = &pinned {
    ///     println!("{} rows in {} bytes of device memory", table.rows(), table.bytes());
    /// }
    /// // Queries over `orders` …
    /// drop(pinned);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::DataFusion`] when there is no such table, it cannot be read, or it is a view;
    /// [`crate::Error::Gpu`] when device memory is too small, and for sources other than files and memory tables,
    /// which every query reads again.
    pub async fn pin(
        &self,
        context: &SessionContext,
        table: impl Into<TableReference>,
    ) -> Result<Option<PinnedTable>> {
        let Some(runtime) = self.runtime() else {
            return Ok(None);
        };
        let name = table.into();
        let provider = context.table_provider(name.clone()).await?;
        if provider.table_type() == TableType::View {
            return Err(DataFusionError::Plan(format!(
                "'{name}' cannot be pinned: it is a view, whose rows every query makes anew; pin the tables that it reads"
            ))
            .into());
        }
        let plan = provider.scan(&context.state(), None, &[], None).await?;
        let source = TableSource::analyze(&plan)?.source;
        let stream = runtime.lease_stream()?;
        let pin = runtime.tables().pin(&source, context.task_ctx(), &stream);
        let table = pin.await?;
        Ok(Some(PinnedTable {
            name: name.to_string(),
            table,
        }))
    }
}
