//! What a server needs of an engine: sessions, plans, and what to show of the device.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;

/// Opens sessions that share a device, its columns and its kernels.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// A session for one client. `runtime` has the object stores that clients may reach; no others may be added.
    ///
    /// # Errors
    /// What opening a session reports.
    async fn open(&self, runtime: Arc<RuntimeEnv>) -> Result<Arc<dyn EngineSession>>;

    /// Registers the files of a folder as tables of a session.
    ///
    /// # Errors
    /// A folder or file that cannot be read, or two tables of a name.
    async fn register_folder(&self, session: &dyn EngineSession, folder: &Path) -> Result<()>;

    /// The same of a folder in an object store of the session's runtime.
    ///
    /// # Errors
    /// As [`Self::register_folder`]; an engine that knows no object stores says so.
    async fn register_location(
        &self,
        session: &dyn EngineSession,
        location: &ListingTableUrl,
    ) -> Result<()> {
        let _ = session;
        Err(DataFusionError::NotImplemented(format!(
            "tables of {location}: this server reads local folders alone"
        )))
    }

    /// Settings that a client may change for itself: those that reach nothing of the host and nobody else's queries.
    fn client_settings(&self) -> &[&str];

    /// The name and version of the engine, for clients that ask.
    fn version(&self) -> String;

    /// The device at this moment.
    fn status(&self) -> EngineStatus;

    /// What a plan that has run tells of itself; empty if nothing more than its operators.
    fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> String;
}

/// One client's session.
#[async_trait]
pub trait EngineSession: Send + Sync {
    /// Where the client's tables and settings are.
    fn context(&self) -> &SessionContext;

    /// The plan that an earlier query of this text left in the session, or in one with the same tables and settings, if it is still
    /// right; `None` where it has to be planned.
    ///
    /// # Errors
    /// What looking at its tables reports.
    async fn kept(self: Arc<Self>, sql: &str) -> Result<Option<Planned>> {
        let _ = sql;
        Ok(None)
    }

    /// The plan of a query, which may be that of an earlier one; `None` for a statement that is no query.
    ///
    /// # Errors
    /// What parsing and planning report.
    async fn plan(self: Arc<Self>, sql: &str) -> Result<Option<Planned>>;

    /// The same of a statement that is planned so far, the values of its parameters in their places. `sql` is its text.
    ///
    /// # Errors
    /// What planning reports, and for a statement that changes tables, which runs here, what that reports.
    async fn plan_logical(self: Arc<Self>, sql: &str, plan: LogicalPlan) -> Result<Planned> {
        let _ = sql;
        let frame = self.context().execute_logical_plan(plan).await?;
        let task = Arc::new(frame.task_ctx());
        Ok(Planned {
            plan: frame.create_physical_plan().await?,
            task,
            finished: Box::new(|| {}),
        })
    }

    /// Told once, before the first query: every session of the server has these tables, so plans over them may be shared.
    fn has_tables_of_all(&self, tables: &[Arc<dyn TableProvider>]) {
        let _ = tables;
    }

    /// Is this a table in memory, as CREATE TABLE makes them?
    fn is_in_memory(&self, table: &Arc<dyn TableProvider>) -> bool {
        table.is::<MemTable>()
    }
}

/// A plan, ready to run once.
pub struct Planned {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// What it runs in.
    pub task: Arc<TaskContext>,
    /// Called after the plan ran to its end without an error.
    pub finished: Box<dyn FnOnce() + Send>,
}

/// What a device is and holds. Sizes are in bytes.
#[derive(Debug, Clone, Default)]
pub struct EngineStatus {
    /// The device's name.
    pub device: String,
    /// Whether it answers queries; otherwise the CPU does.
    pub usable: bool,
    /// Why the device is lost.
    pub lost: Option<String>,
    /// The limit of its memory.
    pub memory_budget: u64,
    /// In use by columns, indexes and running queries.
    pub memory_used: u64,
    /// Peak usage.
    pub memory_peak: u64,
    /// Of that, columns kept for later queries.
    pub column_bytes: u64,
    /// What lies there, by table.
    pub tables: Vec<DeviceTable>,
    /// Counts since the start, by name, for metrics.
    pub counters: Vec<(&'static str, u64)>,
}

/// A table's share of device memory.
#[derive(Debug, Clone, Default)]
pub struct DeviceTable {
    /// Its name.
    pub name: String,
    /// Columns that are there.
    pub columns: u64,
    /// Their bytes.
    pub bytes: u64,
}
