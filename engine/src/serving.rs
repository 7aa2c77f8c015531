//! What servers of `warpline_serve` need: sessions that share one device.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::prelude::SessionContext;
use warpline_serve::{DeviceTable, Engine, EngineSession, EngineStatus, Planned, StoreFolder};

use crate::client_settings::CLIENT_SETTINGS;
#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::device::Device;
use crate::guard::guarded;
use crate::memory_table::MemoryTable;
use crate::metrics;
use crate::plan_cache::{self, CommonPlans};
use crate::session::WarplineSession;
use crate::stores;

/// Opens a session for each client of a server, over one device.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use warpline::serve::{ServeOptions, Server};
/// use warpline::{Device, DeviceChoice, DeviceEngine};
///
/// let engine = DeviceEngine::new(Device::open(DeviceChoice::Auto, None)?);
/// let options = ServeOptions {
///     postgres: Some("127.0.0.1:5432".parse()?),
///     data: vec!["data".into()],
///     ..ServeOptions::default()
/// };
/// let server = Server::start(options, Arc::new(engine)).await?;
/// server.stop().await;
/// # Ok(()) }
/// ```
pub struct DeviceEngine {
    device: Device,
    #[cfg(feature = "cluster")]
    cluster: Option<Cluster>,
    settings: Vec<(String, String)>,
    plans: Arc<CommonPlans>,
}

impl DeviceEngine {
    /// Sessions over this device, with the default settings.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            #[cfg(feature = "cluster")]
            cluster: None,
            settings: vec![],
            plans: Arc::default(),
        }
    }

    /// Queries of all sessions are distributed over these workers where that pays.
    #[cfg(feature = "cluster")]
    #[must_use]
    pub fn cluster(mut self, cluster: &Cluster) -> Self {
        self.cluster = Some(cluster.clone());
        self
    }

    /// A setting of `datafusion.*` or `warpline.*` of every session. Clients change those of
    /// [`Engine::client_settings`] for themselves.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }
}

/// A folder in an object store for a server's clients, such as `s3://bucket/tables`: the store is opened by the environment, as those of
/// sessions are (`docs/TABLES.md` lists the variables).
///
/// # Errors
/// [`crate::Error::DataFusion`] for a location that names no object store, and for one that the environment does not describe.
pub fn store_folder(location: &str) -> crate::error::Result<StoreFolder> {
    let slash = if location.ends_with('/') { "" } else { "/" };
    let location = ListingTableUrl::parse(format!("{location}{slash}"))?;
    let store = stores::opened(&location)?;
    Ok(StoreFolder { location, store })
}

#[async_trait]
impl Engine for DeviceEngine {
    async fn open(&self, runtime: Arc<RuntimeEnv>) -> Result<Arc<dyn EngineSession>> {
        let mut builder = WarplineSession::builder()
            .shared_device(&self.device)
            .runtime(runtime);
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &self.cluster {
            builder = builder.cluster(cluster);
        }
        for (key, value) in &self.settings {
            builder = builder.set(key, value);
        }
        let session = builder.open().await.map_err(external)?;
        Ok(Arc::new(ServedSession {
            session: Arc::new(session),
            plans: Arc::clone(&self.plans),
        }))
    }

    async fn register_folder(&self, session: &dyn EngineSession, folder: &Path) -> Result<()> {
        let context = session.context();
        warpline_bench::folder::register_in(context, folder)
            .await
            .map_err(external)?;
        Ok(())
    }

    async fn register_location(
        &self,
        session: &dyn EngineSession,
        location: &ListingTableUrl,
    ) -> Result<()> {
        warpline_bench::folder::register_at(session.context(), location)
            .await
            .map_err(external)?;
        Ok(())
    }

    fn client_settings(&self) -> &[&str] {
        CLIENT_SETTINGS
    }

    fn version(&self) -> String {
        format!("Warpline {}", env!("CARGO_PKG_VERSION"))
    }

    fn status(&self) -> EngineStatus {
        let mut status = EngineStatus {
            device: self.device.name(),
            usable: self.device.is_in_use(),
            ..EngineStatus::default()
        };
        if let Some(memory) = self.device.memory() {
            status.memory_budget = memory.budget as u64;
            status.memory_used = memory.in_use as u64;
            status.memory_peak = memory.peak as u64;
            status.column_bytes = memory.column_bytes as u64;
            status.counters = vec![
                ("refusals", memory.refusals),
                ("evictions", memory.ladder.evictions),
                ("waits", memory.ladder.memory_waits),
                ("repeats", memory.ladder.repeats),
                ("out_of_core", memory.ladder.out_of_core),
                ("cpu_fallbacks", memory.ladder.cpu_fallbacks),
            ];
            status.lost = memory.lost;
        }
        let mut tables: BTreeMap<String, DeviceTable> = BTreeMap::new();
        for column in self.device.resident_columns() {
            let table = tables.entry(column.table).or_default();
            table.columns += 1;
            table.bytes += column.bytes as u64;
        }
        status.tables = tables
            .into_iter()
            .map(|(name, table)| DeviceTable { name, ..table })
            .collect();
        status
    }

    fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> String {
        DisplayableExecutionPlan::with_metrics(plan.as_ref())
            .indent(false)
            .to_string()
    }
}

/// A client's session.
struct ServedSession {
    session: Arc<WarplineSession>,
    /// Those of all clients.
    plans: Arc<CommonPlans>,
}

#[async_trait]
impl EngineSession for ServedSession {
    fn context(&self) -> &SessionContext {
        self.session.context()
    }

    fn is_in_memory(&self, table: &Arc<dyn TableProvider>) -> bool {
        table.is::<MemoryTable>() || table.is::<MemTable>()
    }

    fn has_tables_of_all(&self, tables: &[Arc<dyn TableProvider>]) {
        self.session
            .plans()
            .share(&self.plans, tables, self.session.context());
    }

    async fn kept(self: Arc<Self>, sql: &str) -> Result<Option<Planned>> {
        let session = &self.session;
        let kept = session.plans().kept(session.context(), sql).await?;
        Ok(kept.map(|planned| runnable(session, planned)))
    }

    async fn plan(self: Arc<Self>, sql: &str) -> Result<Option<Planned>> {
        let session = &self.session;
        let context = session.context();
        let planned = guarded(context, sql, session.plans().plan(context, sql)).await?;
        Ok(planned.map(|planned| runnable(session, planned)))
    }

    async fn plan_logical(self: Arc<Self>, sql: &str, plan: LogicalPlan) -> Result<Planned> {
        let session = &self.session;
        let context = session.context();
        let planned = guarded(context, sql, session.plans().plan_logical(context, plan)).await?;
        Ok(runnable(session, planned))
    }
}

/// The plan as a server runs it; after its run it goes back to the session.
fn runnable(session: &Arc<WarplineSession>, planned: plan_cache::Planned) -> Planned {
    let session = Arc::clone(session);
    Planned {
        plan: Arc::clone(&planned.plan),
        task: Arc::clone(&planned.task),
        finished: Box::new(move || {
            let clean = metrics::kept_to_its_plan(&planned.plan);
            session.plans().finished(planned, clean);
        }),
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
