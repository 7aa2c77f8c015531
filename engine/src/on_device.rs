//! Rows that stay on the device, for other libraries there.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, collect};
use futures::future::BoxFuture;
use warpline_gpu::GpuError;
use warpline_gpu::device_batch::DeviceBatch;
use warpline_gpu::exec::GpuFragmentExec;
use warpline_gpu::runtime::Runtime;
use warpline_planner::{PlacementReportExec, WarplineConfig};
use warpline_tpch::QueryMetrics;

use crate::error::Error;
use crate::metrics::metrics_of;

/// The rows of a query in Arrow's layout on a device.
#[derive(Debug)]
pub struct RowsOnDevice {
    /// The rows.
    pub batch: DeviceBatch,
    /// Why they came by way of the host; `None` where they were left where the last kernel wrote them.
    pub by_host: Option<String>,
    /// What the run did.
    pub metrics: QueryMetrics,
}

/// The fragment that a plan is, if the device computes all of it.
fn whole(plan: &Arc<dyn ExecutionPlan>) -> Option<&GpuFragmentExec> {
    // A plan that is refused says so when it runs.
    let reported = plan.downcast_ref::<PlacementReportExec>();
    reported
        .filter(|report| report.refusal().is_none())
        .map_or(plan, PlacementReportExec::input)
        .downcast_ref::<GpuFragmentExec>()
}

/// Plans a query so that the device computes all of it, whatever that costs: prices count what it takes to bring rows back, and these
/// stay. `None` where the device cannot.
///
/// # Errors
/// What planning reports.
async fn planned(
    state: SessionState,
    logical: &LogicalPlan,
) -> Result<Option<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)>> {
    let mut state = state;
    let options = state.config_mut().options_mut();
    let mut settings = WarplineConfig::of(options);
    settings.require_gpu = true;
    options.extensions.insert(settings);
    let plan = state.create_physical_plan(logical).await?;
    Ok(match whole(&plan).is_some() {
        true => Some((plan, Arc::new(TaskContext::from(&state)))),
        false => None,
    })
}

/// Runs a plan and leaves its rows on the device; where not all of it is the device's, the query is planned again from `logical`.
///
/// # Errors
/// Those of the run, and of memory for the rows.
pub(crate) async fn run(
    runtime: Option<Arc<Runtime>>,
    state: SessionState,
    logical: Option<BoxFuture<'_, Result<LogicalPlan>>>,
    plan: &Arc<dyn ExecutionPlan>,
    task: &Arc<TaskContext>,
) -> Result<RowsOnDevice> {
    let runtime = runtime.ok_or_else(|| {
        DataFusionError::External(Box::new(Error::Device(
            "no device is in use, so no rows can stay on one: `warpline devices` shows what was found; read the rows on the host"
                .into(),
        )))
    })?;
    let again = match (whole(plan), logical) {
        (None, Some(logical)) => planned(state, &logical.await?).await?,
        _ => None,
    };
    let (ran, ran_with) = again.as_ref().map_or((plan, task), |(p, t)| (p, t));
    let by_host = match whole(ran) {
        Some(fragment) => match fragment.batch_on_device(Arc::clone(ran_with)).await {
            Ok((batch, _)) => {
                return Ok(RowsOnDevice {
                    batch,
                    by_host: None,
                    metrics: metrics_of(ran),
                });
            }
            // The plan as it was finds other ways, of which it tells.
            Err(
                error @ (GpuError::Unsupported(_)
                | GpuError::LeftToCpu(_)
                | GpuError::OutOfDeviceMemory { .. }),
            ) => error.to_string(),
            Err(error) => return Err(error.into()),
        },
        None => format!(
            "the last operator runs on the CPU: {}",
            plan.downcast_ref::<PlacementReportExec>()
                .map_or(plan, PlacementReportExec::input)
                .name()
                .trim_end_matches("Exec")
        ),
    };
    let batches = collect(Arc::clone(plan), Arc::clone(task)).await?;
    let schema = plan.schema();
    let work = move || DeviceBatch::upload(&runtime, &schema, &batches);
    let batch = tokio::task::spawn_blocking(work).await;
    let batch = batch.map_err(|error| DataFusionError::External(Box::new(error)))??;
    Ok(RowsOnDevice {
        batch,
        by_host: Some(by_host),
        metrics: metrics_of(plan),
    })
}
