//! Planning of a session with a cluster: in stages where that pays, else for the session's own device.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNode;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::{
    Explain, LogicalPlan, PlanType, StringifiedPlan, ToStringifiedPlan,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion_distributed::{
    DistributedExec, DistributedExt, SessionStateBuilderExt, display_plan_ascii,
};
use warpline_gpu::exec::TimeLimitExec;
use warpline_planner::WarplineConfig;

use super::channel::name;
use super::leaves;
use super::workers::Workers;
use crate::device::Device;
use crate::rule::WarplineRule;

tokio::task_local! {
    /// While set, plans are those of DataFusion, to be cut into stages.
    static UNPLACED: ();
}

/// A session on `device` that plans for `workers`.
pub(super) fn extend(
    mut builder: SessionStateBuilder,
    device: &Device,
    workers: &Arc<Workers>,
) -> SessionStateBuilder {
    let config = builder.config().get_or_insert_default();
    config.options_mut().extensions.insert(device.config());
    let local = Arc::new(LocalRule(WarplineRule::new(device)));
    let mut builder = builder
        .with_physical_optimizer_rule(Arc::clone(&local) as _)
        .with_distributed_planner()
        // Asked before the one that comes with the planner.
        .with_distributed_scale_up_leaf_node_handler(leaves::whole_files);
    let distributed = builder.query_planner().take();
    match distributed {
        Some(distributed) => builder.with_query_planner(Arc::new(ClusterPlanner {
            distributed,
            local,
            workers: Arc::clone(workers),
        })),
        None => builder,
    }
}

/// The rule of the session's own device, which leaves plans alone that are to be cut.
#[derive(Debug)]
struct LocalRule(WarplineRule);

impl PhysicalOptimizerRule for LocalRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match UNPLACED.try_with(|()| ()) {
            Ok(()) => Ok(plan),
            Err(_) => self.0.optimize(plan, config),
        }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

struct ClusterPlanner {
    distributed: Arc<dyn QueryPlanner + Send + Sync>,
    local: Arc<LocalRule>,
    workers: Arc<Workers>,
}

impl fmt::Debug for ClusterPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterPlanner")
    }
}

#[async_trait]
impl QueryPlanner for ClusterPlanner {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan(self, logical, session).await
    }
}

async fn plan(
    planner: &ClusterPlanner,
    logical: &LogicalPlan,
    session: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    let external = |error| DataFusionError::External(Box::new(error));
    planner.workers.ask().await.map_err(external)?;
    if let LogicalPlan::Explain(explain) = logical {
        return explained(planner, explain, logical, session).await;
    }
    let plan = unplaced(planner, logical, session).await?;
    let options = session.config_options();
    if !is_distributed(&plan)? {
        return planner.local.optimize(plan, options);
    }
    Ok(match WarplineConfig::of(options).time_limit.0 {
        Some(limit) => Arc::new(TimeLimitExec::new(plan, limit)),
        None => plan,
    })
}

/// A plan in stages, or DataFusion's own.
async fn unplaced(
    planner: &ClusterPlanner,
    logical: &LogicalPlan,
    session: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planned = planner.distributed.create_physical_plan(logical, session);
    UNPLACED.scope((), planned).await
}

fn is_distributed(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<DistributedExec>()))
}

/// `EXPLAIN`: the stages and who is there to run them; of a query that is not distributed what it always shows.
async fn explained(
    planner: &ClusterPlanner,
    explain: &Explain,
    logical: &LogicalPlan,
    session: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    let config = &session.config_options().explain;
    let distributed = match explain.logical_optimization_succeeded && !config.logical_plan_only {
        true => Some(unplaced(planner, &explain.plan, session).await?),
        false => None,
    };
    let distributed = match distributed {
        Some(plan) if is_distributed(&plan)? => plan,
        _ => {
            let planner = DefaultPhysicalPlanner::default();
            return planner.create_physical_plan(logical, session).await;
        }
    };
    let mut texts = Vec::new();
    if !config.physical_plan_only {
        texts.clone_from(&explain.stringified_plans);
        texts.push(explain.plan.to_stringified(PlanType::FinalLogicalPlan));
    }
    let text = format!(
        "{}{}",
        display_plan_ascii(distributed.as_ref(), false),
        places(&planner.workers)
    );
    texts.push(StringifiedPlan::new(PlanType::FinalPhysicalPlan, text));
    let schema = Arc::clone(explain.schema.inner());
    Ok(Arc::new(ExplainExec::new(schema, texts, explain.verbose)))
}

/// The workers, a line each.
fn places(workers: &Workers) -> String {
    let up = workers.up().into_iter();
    let up = up.map(|(url, device)| format!("worker {}: {device}\n", name(&url)));
    let down = workers.down().into_iter();
    let down = down.map(|(url, cause)| format!("worker {}: lost, {cause}\n", name(&url)));
    up.chain(down).collect()
}
