//! Runs one query and collects what its plan measured.

use std::sync::Arc;
use std::time::Instant;

use datafusion::error::DataFusionError;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use warpline_tpch::QueryRun;

use crate::device;

/// Runs SQL from its text to the last Arrow batch on the host.
///
/// # Errors
/// What parsing, planning or execution reports.
pub(crate) async fn run(context: &SessionContext, sql: &str) -> Result<QueryRun, DataFusionError> {
    let start = Instant::now();
    let frame = context.sql(sql).await?;
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let plan_ms = start.elapsed().as_secs_f64() * 1e3;
    let schema = plan.schema();
    let batches = collect(Arc::clone(&plan), task).await?;
    let mut metrics = device::metrics_of(&plan);
    metrics.plan_ms = plan_ms;
    Ok(QueryRun {
        schema,
        batches,
        metrics,
    })
}
