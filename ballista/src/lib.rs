//! An execution engine for executors of Ballista, which runs stages of queries on a device.
//!
//! Ballista's scheduler cuts plans into stages and knows nothing of devices. An executor that is made with [`WarplineEngine`] places
//! what its device runs better of each stage that it is given; the rest of the stage, and stages that no device gains
//! from, run as they came. Executors with and without a device work together.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ballista_core::registry::BallistaFunctionRegistry;
//! use ballista_core::serde::protobuf::ExecutorRegistration;
//! use ballista_executor::executor::Executor;
//! use ballista_executor::metrics::LoggingMetricsCollector;
//! use warpline::{Device, DeviceChoice};
//! use warpline_ballista::{WarplineEngine, configured};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(DeviceChoice::Auto, None)?;
//! let config = configured(&device);
//! let runtime = Arc::default();
//! let executor = Executor::new(
//!     ExecutorRegistration::default(),
//!     "/var/lib/ballista",
//!     Arc::new(move |_| Ok(Arc::clone(&runtime))),
//!     Arc::new(move || config.clone()),
//!     Arc::new(BallistaFunctionRegistry::default()),
//!     Arc::new(LoggingMetricsCollector::default()),
//!     4,
//!     Arc::new(WarplineEngine::new(&device)),
//! );
//! # drop(executor); Ok(()) }
//! ```
//!
//! # Partitions
//! A device makes one partition of several. Under a sort shuffle, which deals rows out by their keys whatever partition they come
//! in, that changes nothing. A stage that hands its partitions on as they are keeps them, so it is placed only where it is one partition.
//! Stages that report to the scheduler what they saw of their rows (statistics, states of windows over ranges) run as they came.

use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::client_pool::BallistaClientPool;
use ballista_core::execution_plans::{
    PartitionedBoundedWindowAggExec, RangeShuffleReaderExec, RangeShuffleWriterExec,
    RuntimeStatsExec, ShuffleReaderExec, ShuffleWriterExec, SortShuffleWriterExec,
};
use ballista_core::extension::SessionConfigExt;
use ballista_executor::execution_engine::{
    DefaultQueryStageExec, ExecutionEngine, QueryStageExecutor, ShuffleWriterVariant,
};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use warpline::{Device, WarplineRule};

/// Makes executors of stages, whose plans run on a device as far as it gains from them.
pub struct WarplineEngine {
    rule: WarplineRule,
    clients: Option<Arc<dyn BallistaClientPool>>,
}

/// What an executor's sessions begin with: Ballista's settings, and those of the device, so that clients may set `warpline.*`.
pub fn configured(device: &Device) -> SessionConfig {
    SessionConfig::new_with_ballista().with_option_extension(device.config())
}

impl WarplineEngine {
    /// For an executor that has this device to itself, or shares it with others of its process.
    pub fn new(device: &Device) -> Self {
        Self {
            rule: WarplineRule::new(device),
            clients: None,
        }
    }

    /// Connections to other executors come from this pool.
    #[must_use]
    pub fn with_client_pool(self, clients: Arc<dyn BallistaClientPool>) -> Self {
        Self {
            clients: Some(clients),
            ..self
        }
    }

    /// The plan, whose readers find the rows of other stages in the executor's folder and by its connections.
    fn with_readers(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        folder: &str,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let connected = plan.transform(|node| {
            let clients = self.clients.clone();
            if let Some(reader) = node.downcast_ref::<ShuffleReaderExec>() {
                let reader = reader.with_work_dir(folder.to_string());
                return Ok(Transformed::yes(Arc::new(match clients {
                    Some(clients) => reader.with_client_pool(clients),
                    None => reader,
                })));
            }
            if let Some(reader) = node.downcast_ref::<RangeShuffleReaderExec>() {
                let reader = reader.with_work_dir(folder.to_string());
                return Ok(Transformed::yes(Arc::new(match clients {
                    Some(clients) => reader.with_client_pool(clients),
                    None => reader,
                })));
            }
            Ok(Transformed::no(node))
        });
        Ok(connected?.data)
    }

    /// The stage below its writer, on the device where that gains. `merges`: rows may come in any number of partitions.
    fn place(
        &self,
        stage: &Arc<dyn ExecutionPlan>,
        merges: bool,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = stage.output_partitioning().partition_count();
        if (partitions > 1 && !merges) || reports(stage)? {
            return Ok(Arc::clone(stage));
        }
        self.rule.place_stage(Arc::clone(stage), options)
    }
}

/// Does a node of the plan tell the scheduler what it saw? It is looked for in the plan that ran.
fn reports(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= node.is::<RuntimeStatsExec>() || node.is::<PartitionedBoundedWindowAggExec>();
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

impl ExecutionEngine for WarplineEngine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let plan = self.with_readers(plan, work_dir)?;
        let [stage] = plan.children()[..] else {
            return internal_err!("{} writes no rows of a stage", plan.name());
        };
        let merges = plan.is::<SortShuffleWriterExec>();
        let stage = self.place(stage, merges, config.options())?;
        let folder = work_dir.to_string();
        let writer = if let Some(writer) = plan.downcast_ref::<SortShuffleWriterExec>() {
            let partitioning = writer.shuffle_output_partitioning().clone();
            let shuffle = writer.config().clone();
            let writer = SortShuffleWriterExec::try_new(
                job_id,
                stage_id,
                stage,
                folder,
                partitioning,
                shuffle,
            )?;
            let writer = writer.with_task_id(task_id);
            ShuffleWriterVariant::Sort(
                writer.with_global_output_partition_ids(global_output_partition_ids),
            )
        } else if plan.is::<ShuffleWriterExec>() {
            let writer = ShuffleWriterExec::try_new(job_id, stage_id, stage, folder)?;
            let writer = writer.with_task_id(task_id);
            ShuffleWriterVariant::Passthrough(
                writer.with_global_output_partition_ids(global_output_partition_ids),
            )
        } else if plan.is::<RangeShuffleWriterExec>() {
            let writer = RangeShuffleWriterExec::try_new(job_id, stage_id, stage, folder)?;
            ShuffleWriterVariant::Range(writer.with_task_id(task_id))
        } else {
            return internal_err!("{} is no writer of a stage that is known here", plan.name());
        };
        Ok(Arc::new(DefaultQueryStageExec::new(writer)))
    }
}
