//! Tables of Delta Lake: `CREATE EXTERNAL TABLE … STORED AS DELTATABLE`, at their latest version or at one of the past.
//!
//! The crate `deltalake-core` reads the log. What the files of a version then are is scanned as any table of parquet files ([`files`]),
//! so that the device keeps their columns, unless a version has what only that crate reads.

mod files;
mod open;
mod table;

pub use self::open::DeltaOptions;
use self::open::{DeltaFactory, FILE_TYPES};
pub(crate) use self::table::DeltaProvider;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use deltalake_core::DeltaTableError;

use crate::error::Result;
use crate::session::WarplineSession;

impl WarplineSession {
    /// The table of Delta Lake in a local folder or at a URL, to register or to read. Queries read its latest version, unless the
    /// options name one; `INSERT INTO` adds rows to it.
    ///
    /// In SQL: `CREATE EXTERNAL TABLE t STORED AS DELTATABLE LOCATION '…'`, with `OPTIONS('version' '3')` or
    /// `OPTIONS('timestamp' '2026-01-31 12:00:00')` for the past.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use warpline::{DeltaOptions, WarplineSession};
    ///
    /// let session = WarplineSession::builder().open().await?;
    /// let orders = session.delta_table("lake/orders", &DeltaOptions::default()).await?;
    /// session.context().register_table("orders", orders)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::DataFusion`] when there is no table, it has no such version, or its log asks for what is not known here.
    pub async fn delta_table(
        &self,
        location: &str,
        options: &DeltaOptions,
    ) -> Result<Arc<dyn TableProvider>> {
        let state = self.context().state();
        let table = open::open(&state, None, location, options).await?;
        Ok(Arc::new(table))
    }
}

/// The session with `CREATE EXTERNAL TABLE … STORED AS DELTATABLE`.
pub(crate) fn with_tables(session: SessionStateBuilder) -> SessionStateBuilder {
    FILE_TYPES.iter().fold(session, |session, file_type| {
        session.with_table_factory(file_type.to_string(), Arc::new(DeltaFactory))
    })
}

/// Does `STORED AS` name a table of Delta Lake?
pub(crate) fn is_file_type(name: &str) -> bool {
    FILE_TYPES
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

/// An error of the table's log, with the table.
fn failed(location: &str, error: DeltaTableError) -> DataFusionError {
    DataFusionError::from(error).context(format!("Delta table {location}"))
}
