//! Rows that stay on the device, for other libraries there.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, collect};
use warpline_gpu::GpuError;
use warpline_gpu::device_batch::DeviceBatch;
use warpline_gpu::exec::GpuFragmentExec;
use warpline_gpu::runtime::Runtime;
use warpline_planner::PlacementReportExec;

use crate::error::Error;

/// The rows of a query in Arrow's layout on a device.
#[derive(Debug)]
pub struct RowsOnDevice {
    /// The rows.
    pub batch: DeviceBatch,
    /// Why they came by way of the host; `None` where they were left where the last kernel wrote them.
    pub by_host: Option<String>,
}

/// Runs a plan and leaves its rows on the device.
///
/// # Errors
/// Those of the run, and of memory for the rows.
pub(crate) async fn run(
    runtime: Option<Arc<Runtime>>,
    plan: &Arc<dyn ExecutionPlan>,
    task: &Arc<TaskContext>,
) -> Result<RowsOnDevice> {
    let runtime = runtime.ok_or_else(|| {
        DataFusionError::External(Box::new(Error::Device(
            "no device is in use, so no rows can stay on one: `warpline devices` shows what was found; read the rows on the host"
                .into(),
        )))
    })?;
    // A plan that is refused says so when it runs.
    let reported = plan.downcast_ref::<PlacementReportExec>();
    let root = reported
        .filter(|report| report.refusal().is_none())
        .map_or(plan, PlacementReportExec::input);
    let by_host = match root.downcast_ref::<GpuFragmentExec>() {
        Some(fragment) => match fragment.batch_on_device(Arc::clone(task)).await {
            Ok((batch, _)) => {
                return Ok(RowsOnDevice {
                    batch,
                    by_host: None,
                });
            }
            // The plan finds other ways, of which it tells.
            Err(
                error @ (GpuError::Unsupported(_)
                | GpuError::LeftToCpu(_)
                | GpuError::OutOfDeviceMemory { .. }),
            ) => error.to_string(),
            Err(error) => return Err(error.into()),
        },
        None => format!(
            "the last operator runs on the CPU: {}",
            root.name().trim_end_matches("Exec")
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
    })
}
