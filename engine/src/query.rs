//! Runs one query and collects what its plan measured.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use datafusion::prelude::SessionContext;
use warpline_planner::statements;
use warpline_tpch::{QueryMetrics, QueryRun};

use crate::fetch_first::as_limit;
use crate::guard::guarded;
use crate::metrics;
use crate::plan_cache::{PlanCache, Planned};

/// Runs SQL from its text to the last Arrow batch on the host.
///
/// # Errors
/// What parsing, planning or execution reports.
pub(crate) async fn run(
    context: &SessionContext,
    cache: &PlanCache,
    sql: &str,
) -> Result<QueryRun, DataFusionError> {
    let sql = &*as_limit(sql);
    guarded(context, sql, run_unguarded(context, cache, sql)).await
}

async fn run_unguarded(
    context: &SessionContext,
    cache: &PlanCache,
    sql: &str,
) -> Result<QueryRun, DataFusionError> {
    let start = Instant::now();
    let planned = match cache.plan(context, sql).await? {
        Some(planned) => planned,
        None => {
            let plan = statements::plan_text(&context.state(), sql).await?;
            let frame = context.execute_logical_plan(plan).await?;
            let task = Arc::new(frame.task_ctx());
            Planned::once(frame.create_physical_plan().await?, task)
        }
    };
    let plan_ms = start.elapsed().as_secs_f64() * 1e3;
    let schema = planned.plan.schema();
    let batches = collect(Arc::clone(&planned.plan), Arc::clone(&planned.task)).await?;
    let mut metrics = metrics::metrics_of(&planned.plan);
    metrics.plan_ms = plan_ms;
    metrics.plan_cached = planned.cached;
    let clean = metrics::kept_to_its_plan(&planned.plan);
    cache.finished(planned, clean);
    Ok(QueryRun {
        schema,
        batches,
        metrics,
    })
}

/// A planned query, for callers that stream its rows.
#[derive(Debug)]
pub struct PreparedQuery<'a> {
    cache: &'a PlanCache,
    planned: Planned,
    plan_ms: f64,
}

impl<'a> PreparedQuery<'a> {
    /// `plan_ms` is the time from SQL text to the plan, in milliseconds.
    pub(crate) fn new(cache: &'a PlanCache, planned: Planned, plan_ms: f64) -> Self {
        Self {
            cache,
            planned,
            plan_ms,
        }
    }

    /// The schema of its rows.
    pub fn schema(&self) -> SchemaRef {
        self.planned.plan.schema()
    }

    /// Whether the plan came from the cache.
    pub fn is_cached(&self) -> bool {
        self.planned.cached
    }

    /// The plan of this run.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.planned.plan
    }

    /// What it runs with.
    pub fn task(&self) -> &Arc<TaskContext> {
        &self.planned.task
    }

    /// Starts execution.
    ///
    /// # Errors
    /// What the plan reports before its first row.
    pub fn stream(&self) -> Result<SendableRecordBatchStream, DataFusionError> {
        execute_stream(
            Arc::clone(&self.planned.plan),
            Arc::clone(&self.planned.task),
        )
    }

    /// Returns the plan to the cache, after its stream was read to the end without an error, and returns its metrics.
    pub fn finish(self) -> QueryMetrics {
        let mut metrics = metrics::metrics_of(&self.planned.plan);
        metrics.plan_ms = self.plan_ms;
        metrics.plan_cached = self.planned.cached;
        let clean = metrics::kept_to_its_plan(&self.planned.plan);
        self.cache.finished(self.planned, clean);
        metrics
    }
}
