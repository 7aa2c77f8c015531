//! A session: DataFusion with Warpline's planner, and a plain DataFusion over the same tables as its oracle.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{LogicalPlan, SetVariable, Statement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::BoxFuture;
use warpline_planner::dependencies::RelationDependencies;
use warpline_planner::filter_pushdown::physical_rules;
use warpline_planner::{ByteSize, WarplineConfig, logical_rules};
use warpline_tpch::{QueryEngine, QueryRun};

#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::device::{self, Device, DeviceChoice};
#[cfg(feature = "cluster")]
use crate::devices;
use crate::error::{Error, Result};
use crate::extension::WarplineExt;
use crate::fetch_first::as_limit;
use crate::guard::guarded;
use crate::guarded::GuardedPlanner;
use crate::memory_table::MemoryTable;
use crate::on_device::{self, RowsOnDevice};
use crate::pin::Pins;
use crate::plan_cache::{PlanCache, PlanCacheStats};
use crate::query::{self, PreparedQuery};
use crate::rule::several_at_once;
use crate::stores;

/// SQL over Arrow data, on a device where one is in use.
pub struct WarplineSession {
    context: SessionContext,
    reference: SessionContext,
    device: Device,
    plans: PlanCache,
    pins: Pins,
}

impl WarplineSession {
    /// Starts with device `auto`, all of its memory and the default settings.
    pub fn builder() -> WarplineSessionBuilder {
        WarplineSessionBuilder::default()
    }

    /// The DataFusion session; register tables and run SQL here.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Plain DataFusion without Warpline over the same catalog; only what it refuses, or answers as SQL does not, is as Warpline has
    /// it ([`logical_rules::rules_of_answers`]).
    pub fn reference(&self) -> &SessionContext {
        &self.reference
    }

    /// The device in use.
    pub fn device(&self) -> &Device {
        &self.device
    }

    #[cfg(feature = "serve")]
    pub(crate) fn plans(&self) -> &PlanCache {
        &self.plans
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Runs one query, or a statement as [`Self::statement`] knows it, and says what its parts cost.
    ///
    /// # Errors
    /// [`Error::DataFusion`] with what parsing, planning or execution reports; those of [`Self::statement`].
    pub async fn query(&self, sql: &str) -> Result<QueryRun> {
        if let Some(run) = self.statement(sql).await? {
            return Ok(run);
        }
        Ok(query::run(&self.context, &self.plans, sql).await?)
    }

    /// Plans one query, or finds the plan of an earlier one; plans `INSERT`, `UPDATE`, `DELETE`, `EXECUTE`,
    /// `CREATE TABLE … AS` and `COPY` to local files as well. `None` for any other statement: run those with [`Self::context`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::StreamExt;
    ///
    /// let session = warpline::WarplineSession::builder().open().await?;
    /// if let Some(query) = session.prepare("SELECT value FROM generate_series(1, 3)").await? {
    ///     let mut stream = query.stream()?;
    ///     while let Some(batch) = stream.next().await {
    ///         println!("{:?}", batch?);
    ///     }
    ///     // The plan is kept for the next query of the same text.
    ///     println!("{} kernels", query.finish().kernels);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::DataFusion`] with what parsing or planning reports.
    pub async fn prepare(&self, sql: &str) -> Result<Option<PreparedQuery<'_>>> {
        let start = Instant::now();
        let sql = &*as_limit(sql);
        let planned = guarded(&self.context, sql, self.plans.plan(&self.context, sql)).await?;
        let plan_ms = start.elapsed().as_secs_f64() * 1e3;
        Ok(planned.map(|planned| PreparedQuery::new(&self.plans, planned, plan_ms)))
    }

    /// The same of a statement that is planned so far: of a DataFrame, or of a text whose parameters have got their values.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use datafusion::common::ParamValues;
    ///
    /// let session = warpline::WarplineSession::builder().open().await?;
    /// let sql = "SELECT value FROM generate_series(1, 10) WHERE value < $1";
    /// let plan = session.context().state().create_logical_plan(sql).await?;
    /// let plan = plan.with_param_values(ParamValues::List(vec![datafusion::scalar::ScalarValue::from(3_i64).into()]))?;
    /// let query = session.prepare_plan(sql, plan).await?;
    /// assert_eq!(query.schema().fields().len(), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// `sql` is its text, for errors that name files; it may be empty.
    ///
    /// # Errors
    /// [`Error::DataFusion`] with what planning reports, and for a statement that changes tables or settings, which runs here, what
    /// that reports.
    pub async fn prepare_plan(&self, sql: &str, plan: LogicalPlan) -> Result<PreparedQuery<'_>> {
        let start = Instant::now();
        let planned = self.plans.plan_logical(&self.context, plan);
        let planned = guarded(&self.context, sql, planned).await?;
        let plan_ms = start.elapsed().as_secs_f64() * 1e3;
        Ok(PreparedQuery::new(&self.plans, planned, plan_ms))
    }

    /// Runs a query of this session and leaves its rows on the device, for libraries that go on there. A plan that leaves the last
    /// operator to the CPU is made again from the query, where that is given, so that the device computes all of it; where it
    /// cannot, the rows are copied to the device, which the answer tells. Nothing is kept of them here.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = warpline::WarplineSession::builder()
    ///     .device(warpline::DeviceChoice::Emulator)
    ///     .open()
    ///     .await?;
    /// if let Some(query) = session.prepare("SELECT value FROM generate_series(1, 3)").await? {
    ///     let rows = session.rows_on_device(query.plan(), query.task(), None).await?;
    ///     assert_eq!(rows.batch.rows(), 3);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What planning and the run report; [`Error::Device`] where the CPU answers; what the device says where the rows find no room.
    pub async fn rows_on_device(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        task: &Arc<TaskContext>,
        query: Option<BoxFuture<'_, Result<LogicalPlan, DataFusionError>>>,
    ) -> Result<RowsOnDevice, DataFusionError> {
        let runtime = self.device.runtime();
        on_device::run(runtime, self.context.state(), query, plan, task).await
    }

    /// Waits for work that is done for a statement, for callers that run it by themselves: a panic below is an error, and
    /// errors name the files that the statement names.
    ///
    /// # Errors
    /// Those of the work, and [`Error::DataFusion`] with [`Error::Panicked`] for a panic.
    pub async fn guard<T>(
        &self,
        sql: &str,
        work: impl Future<Output = Result<T, DataFusionError>>,
    ) -> Result<T> {
        Ok(guarded(&self.context, sql, work).await?)
    }

    /// Failures that `warpline.inject_failures` has caused since it was set.
    pub fn injected_failures(&self) -> u64 {
        let config = self.context.copied_config();
        let settings = WarplineConfig::of(config.options());
        let plan = settings.inject_failures.plan();
        plan.map_or(0, |plan| plan.injected())
    }

    /// How often queries ran the plan of an earlier one.
    pub fn plan_cache_stats(&self) -> PlanCacheStats {
        self.plans.stats()
    }

    /// Forgets the plans of earlier queries, and with them the data of dropped tables that they keep in memory.
    pub fn clear_plan_cache(&self) {
        self.plans.clear();
    }

    /// Sets a setting of `datafusion.*` or `warpline.*`, as `SET key = value` does; the reference follows, but for
    /// `warpline.*` and `distributed.*`, which it does not have.
    ///
    /// # Errors
    /// [`Error::DataFusion`] when there is no such setting or the value does not fit.
    pub async fn set(&self, key: &str, value: &str) -> Result<()> {
        let statement = || {
            LogicalPlan::Statement(Statement::SetVariable(SetVariable {
                variable: key.to_string(),
                value: value.to_string(),
            }))
        };
        self.context.execute_logical_plan(statement()).await?;
        let own = ["warpline.", "distributed."];
        if !own.iter().any(|prefix| key.starts_with(prefix)) {
            self.reference.execute_logical_plan(statement()).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl QueryEngine for WarplineSession {
    fn device(&self) -> String {
        self.device.name()
    }

    fn copy_bandwidth(&self) -> Option<f64> {
        self.device.copy_bandwidth()
    }

    fn session(&self) -> &SessionContext {
        &self.context
    }

    fn reference(&self) -> &SessionContext {
        &self.reference
    }

    fn table_in_memory(
        &self,
        schema: SchemaRef,
        partitions: Vec<Vec<RecordBatch>>,
    ) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        Ok(Arc::new(MemoryTable::try_new(schema, partitions)?))
    }

    async fn run(&self, sql: &str) -> Result<QueryRun, DataFusionError> {
        query::run(&self.context, &self.plans, sql).await
    }
}

/// Collects what a session is made of.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use warpline::{DeviceChoice, WarplineSession};
///
/// let session = WarplineSession::builder()
///     .device(DeviceChoice::Auto)
///     .device_memory("4GiB".parse()?)
///     .local_files(true)
///     .set("datafusion.execution.target_partitions", "8")
///     .set("warpline.time_limit", "30s")
///     .open()
///     .await?;
/// let run = session.query("SELECT sum(value) FROM generate_series(1, 100)").await?;
/// println!("{} rows by {}: {:?}", run.rows(), session.device().name(), run.metrics);
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct WarplineSessionBuilder {
    device: Option<DeviceChoice>,
    shared: Option<Device>,
    #[cfg(feature = "cluster")]
    cluster: Option<Cluster>,
    device_memory: Option<ByteSize>,
    require_gpu: bool,
    local_files: bool,
    settings: Vec<(String, String)>,
    config: Option<SessionConfig>,
    runtime: Option<Arc<RuntimeEnv>>,
}

impl WarplineSessionBuilder {
    /// The device, or several that share queries out; it wins over the setting `warpline.device`.
    #[must_use]
    pub fn device(mut self, choice: DeviceChoice) -> Self {
        self.device = Some(choice);
        self
    }

    /// A device that is open already, which this session shares with others: its memory, resident columns and kernels. It wins
    /// over [`Self::device`] and [`Self::device_memory`].
    #[must_use]
    pub fn shared_device(mut self, device: &Device) -> Self {
        self.shared = Some(device.clone());
        self
    }

    /// Workers that answer queries of files together, where that pays. Others run on the session's device.
    #[cfg(feature = "cluster")]
    #[must_use]
    pub fn cluster(mut self, cluster: &Cluster) -> Self {
        self.cluster = Some(cluster.clone());
        self
    }

    /// The budget of the device's memory pool; all that is free when not given.
    #[must_use]
    pub fn device_memory(mut self, size: ByteSize) -> Self {
        self.device_memory = Some(size);
        self
    }

    /// Makes a query fail rather than run in part on the CPU, and the session fail to open without a device.
    #[must_use]
    pub fn require_gpu(mut self, require: bool) -> Self {
        self.require_gpu = require;
        self
    }

    /// Lets SQL name files in place of tables: `SELECT * FROM 'data.parquet'`.
    #[must_use]
    pub fn local_files(mut self, allow: bool) -> Self {
        self.local_files = allow;
        self
    }

    /// A setting of `datafusion.*` or `warpline.*`, set when the session opens.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// DataFusion's configuration to start from.
    #[must_use]
    pub fn config(mut self, config: SessionConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// DataFusion's memory pool, disk manager and object stores. Without it, S3, Google Cloud Storage, Azure and HTTP are opened by the
    /// environment's variables (`AWS_…`, `GOOGLE_…`, `AZURE_…`) when a location names them.
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<RuntimeEnv>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Opens the device and the session.
    ///
    /// # Errors
    /// [`Error::Device`] when the device cannot be used, or several are given beside a cluster, [`Error::NoGpu`] when one is required and none is in use,
    /// [`Error::DataFusion`] for a setting that does not exist or does not fit.
    pub async fn open(self) -> Result<WarplineSession> {
        let setting = |name| {
            self.settings
                .iter()
                .rev()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        let choice = match (self.device, setting(device::DEVICE_SETTING)) {
            (Some(choice), _) => choice,
            (None, Some(name)) => name
                .parse()
                .map_err(|error| Error::device_name(name, &error))?,
            (None, None) => DeviceChoice::Auto,
        };
        let memory = match (self.device_memory, setting(device::MEMORY_SETTING)) {
            (Some(size), _) => Some(size),
            (None, Some("0") | None) => None,
            (None, Some(text)) => Some(text.parse()?),
        };
        let device = match self.shared {
            Some(device) => device,
            None => Device::open(choice, memory)?,
        };
        if self.require_gpu && !device.is_in_use() {
            return Err(Error::NoGpu {
                device: choice.to_string(),
            });
        }
        #[cfg(feature = "cluster")]
        let shares = self.cluster.is_none();
        #[cfg(not(feature = "cluster"))]
        let shares = false;
        if device.is_several() && !shares {
            return Err(several_at_once(device.config().device.choice));
        }
        let config = self
            .config
            .unwrap_or_default()
            .with_information_schema(true);
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => stores::runtime()?,
        };
        let builder = |config: SessionConfig| {
            SessionStateBuilder::new()
                .with_config(config)
                .with_runtime_env(Arc::clone(&runtime))
                .with_relation_planners(vec![Arc::new(RelationDependencies)])
                .with_optimizer_rules(logical_rules::optimizer_rules())
                .with_physical_optimizer_rules(physical_rules())
                .with_query_planner(Arc::new(GuardedPlanner))
                .with_default_features()
        };
        let state = builder(config.clone());
        #[cfg(feature = "delta")]
        let state = crate::delta::with_tables(state);
        #[cfg(feature = "cluster")]
        let state = match &self.cluster {
            Some(cluster) => cluster.extend(state, &device),
            None if device.is_several() => devices::extend(state, &device, &runtime),
            None => state.with_warpline(&device),
        };
        #[cfg(not(feature = "cluster"))]
        let state = state.with_warpline(&device);
        let state = state.build();
        let mut context = SessionContext::new_with_state(state);
        if self.local_files {
            context = context.enable_url_table();
        }
        // Building a state would otherwise put a new, empty default catalog into the shared list.
        let config = config.with_create_default_catalog_and_schema(false);
        let rules = logical_rules::rules_of_answers().into_iter();
        let reference = rules
            .fold(builder(config), SessionStateBuilder::with_analyzer_rule)
            .with_catalog_list(Arc::clone(context.state().catalog_list()))
            .build();
        let session = WarplineSession {
            context,
            reference: SessionContext::new_with_state(reference),
            plans: PlanCache::new(device.runtimes()),
            device,
            pins: Pins::default(),
        };
        for (key, value) in &self.settings {
            // These two are in the settings since the device is open.
            if key != device::DEVICE_SETTING && key != device::MEMORY_SETTING {
                session.set(key, value).await?;
            }
        }
        if self.require_gpu {
            session.set("warpline.require_gpu", "true").await?;
        }
        Ok(session)
    }
}
