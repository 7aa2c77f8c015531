//! A session's way to tables of Delta Lake without SQL.

use std::sync::Arc;

use datafusion::catalog::TableProvider;

use super::open::{DeltaOptions, open};
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
        let table = open(&state, None, location, options).await?;
        Ok(Arc::new(table))
    }
}
