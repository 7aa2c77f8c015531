//! Planning of a session with several who run stages: side by side or in stages where that pays, else for the session's own device.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::format::ExplainFormat;
use datafusion::common::tree_node::TreeNode;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{
    Explain, LogicalPlan, PlanType, StringifiedPlan, ToStringifiedPlan, WriteOp,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion_distributed::{
    DistributedExec, DistributedExt, SessionStateBuilderExt, display_plan_ascii,
};
use warpline_gpu::exec::TimeLimitExec;
use warpline_planner::{WarplineConfig, logical_rules};

use super::channel::name;
use super::leaves;
use super::whole;
use super::workers::Workers;
use crate::device::Device;
use crate::guarded::GuardedPlanner;
use crate::lossy::lost_in_encoding;
use crate::rule::WarplineRule;

tokio::task_local! {
    /// While set, plans are those of DataFusion, to be cut into stages.
    static UNPLACED: ();
}

/// Who runs the stages of a session's plans.
#[async_trait]
pub(crate) trait Sites: Send + Sync + 'static {
    /// Looks who is there before a query is planned. False when the session's own device is to run it whole.
    async fn ask(&self, logical: &LogicalPlan, options: &ConfigOptions) -> Result<bool>;

    /// Whether they may run parts of a plan side by side, without stages.
    fn deals(&self) -> bool {
        false
    }

    /// DataFusion's plan with parts that they run side by side; `None` where stages or one device do better.
    ///
    /// # Errors
    /// What placing the parts reports.
    fn dealt(
        &self,
        _plan: &Arc<dyn ExecutionPlan>,
        _options: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        Ok(None)
    }

    /// A plan in stages as it runs.
    fn finished(&self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        plan
    }

    /// Why a plan in stages had better run on the session's own device.
    ///
    /// # Errors
    /// What walking the plan reports.
    fn declines(
        &self,
        _plan: &Arc<dyn ExecutionPlan>,
        _options: &ConfigOptions,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// Those who run stages, a line each.
    fn places(&self) -> String;

    /// Of a query that is not in stages, what is to be said of that.
    fn alone(&self, _options: &ConfigOptions) -> Option<String> {
        None
    }
}

/// A session on `device` that plans for `workers`.
pub(super) fn extend(
    mut builder: SessionStateBuilder,
    device: &Device,
    workers: &Arc<Workers>,
) -> SessionStateBuilder {
    let config = builder.config().get_or_insert_default();
    config.options_mut().extensions.insert(device.config());
    let rule = WarplineRule::new(device);
    // Asked before the one that comes with the planner.
    let builder = builder.with_distributed_scale_up_leaf_node_handler(leaves::whole_files);
    with_planner(builder, Arc::new(rule), Arc::clone(workers))
}

/// A session whose plans are cut into stages for `sites`, or placed by `rule`.
pub(crate) fn with_planner<S: Sites>(
    builder: SessionStateBuilder,
    rule: Arc<WarplineRule>,
    sites: Arc<S>,
) -> SessionStateBuilder {
    let rules = logical_rules::rules().into_iter();
    let mut builder = rules
        .fold(builder, SessionStateBuilder::with_analyzer_rule)
        .with_physical_optimizer_rule(Arc::new(LocalRule(rule)))
        .with_distributed_desired_task_count_handler(whole::in_one_task)
        .with_distributed_planner();
    let distributed = builder.query_planner().take();
    match distributed {
        Some(distributed) => {
            builder.with_query_planner(Arc::new(StagePlanner { distributed, sites }))
        }
        None => builder,
    }
}

/// The rule of the session's own device, which leaves plans alone that are to be cut.
#[derive(Debug)]
struct LocalRule(Arc<WarplineRule>);

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

struct StagePlanner<S> {
    distributed: Arc<dyn QueryPlanner + Send + Sync>,
    sites: Arc<S>,
}

impl<S> fmt::Debug for StagePlanner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StagePlanner")
    }
}

#[async_trait]
impl<S: Sites> QueryPlanner for StagePlanner<S> {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match logical {
            LogicalPlan::Explain(explain) => self.explained(explain, logical, session).await,
            _ => self.plan(logical, session).await,
        }
    }
}

impl<S: Sites> StagePlanner<S> {
    async fn plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = session.config_options();
        if acts_when_planned(logical)? || !self.sites.ask(logical, options).await? {
            return placed(logical, session).await;
        }
        if let Some(plan) = self.dealt(logical, session).await? {
            return Ok(limited(plan, options));
        }
        let plan = self.unplaced(logical, session).await?;
        if !is_distributed(&plan)? {
            return placed(logical, session).await;
        }
        if self.stays_whole(&plan, options)?.is_some() {
            return placed(logical, session).await;
        }
        Ok(limited(self.sites.finished(plan), options))
    }

    /// A plan of which those who run stages run parts side by side.
    async fn dealt(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let state = session.as_any().downcast_ref::<SessionState>();
        let Some(state) = state.filter(|_| self.sites.deals()) else {
            return Ok(None);
        };
        // Filters that operators hand each other at run time end at one device, and keep a plan from running again.
        let mut state = state.clone();
        let optimizer = &mut state.config_mut().options_mut().optimizer;
        optimizer.enable_dynamic_filter_pushdown = false;
        optimizer.enable_topk_dynamic_filter_pushdown = false;
        optimizer.enable_join_dynamic_filter_pushdown = false;
        optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        let plan = UNPLACED.scope((), placed(logical, &state)).await?;
        self.sites.dealt(&plan, state.config_options())
    }

    /// Why a plan in stages is not run as such.
    fn stays_whole(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Option<String>> {
        match lost_in_encoding(plan)? {
            Some(lost) => Ok(Some(lost)),
            None => self.sites.declines(plan, options),
        }
    }

    /// A plan in stages, or DataFusion's own.
    async fn unplaced(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = self.distributed.create_physical_plan(logical, session);
        UNPLACED.scope((), planned).await
    }

    /// `EXPLAIN`: the stages and who is there to run them; of a query that is not distributed what it always shows.
    async fn explained(
        &self,
        explain: &Explain,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = session.config_options();
        let config = &options.explain;
        let wanted = explain.logical_optimization_succeeded
            && !config.logical_plan_only
            && has_plan(&explain.plan)
            && !acts_when_planned(&explain.plan)?;
        let several = wanted && self.sites.ask(&explain.plan, options).await?;
        if several && let Some(plan) = self.dealt(&explain.plan, session).await? {
            let display = displayable(plan.as_ref());
            let text = match config.format {
                ExplainFormat::Tree => display.tree_render().to_string(),
                _ => display.indent(explain.verbose).to_string(),
            };
            return Ok(self.shown(explain, config.physical_plan_only, text));
        }
        let distributed = match several {
            true => Some(self.unplaced(&explain.plan, session).await?),
            false => None,
        };
        let distributed = match distributed {
            Some(plan) if is_distributed(&plan)? => plan,
            _ => {
                let plan = placed(logical, session).await?;
                return Ok(match self.sites.alone(options) {
                    Some(text) if wanted => with_line(plan, &text),
                    _ => plan,
                });
            }
        };
        if let Some(why) = self.stays_whole(&distributed, options)? {
            let plan = placed(logical, session).await?;
            return Ok(with_line(plan, &format!("not distributed: {why}")));
        }
        let text = display_plan_ascii(distributed.as_ref(), false);
        Ok(self.shown(explain, config.physical_plan_only, text))
    }

    /// What `EXPLAIN` shows of a plan that those who run stages share, with a line for each of them.
    fn shown(
        &self,
        explain: &Explain,
        physical_plan_only: bool,
        plan: String,
    ) -> Arc<dyn ExecutionPlan> {
        let mut texts = Vec::new();
        if !physical_plan_only {
            texts.clone_from(&explain.stringified_plans);
            texts.push(explain.plan.to_stringified(PlanType::FinalLogicalPlan));
        }
        let text = plan + &self.sites.places();
        texts.push(StringifiedPlan::new(PlanType::FinalPhysicalPlan, text));
        let schema = Arc::clone(explain.schema.inner());
        Arc::new(ExplainExec::new(schema, texts, explain.verbose))
    }
}

/// Has it a physical plan? `EXPLAIN EXECUTE`, say, shows why there is none.
fn has_plan(logical: &LogicalPlan) -> bool {
    !matches!(logical, LogicalPlan::Statement(_) | LogicalPlan::Ddl(_))
}

/// Statements that change a table do so when their physical plan is made, and are planned once: DELETE, UPDATE and TRUNCATE of a table
/// in memory (`TableProvider::delete_from`).
fn acts_when_planned(logical: &LogicalPlan) -> Result<bool> {
    logical.exists(|node| {
        Ok(match node {
            LogicalPlan::Dml(statement) => !matches!(statement.op, WriteOp::Insert(_)),
            _ => false,
        })
    })
}

/// The plan with the time limit of the session.
fn limited(plan: Arc<dyn ExecutionPlan>, options: &ConfigOptions) -> Arc<dyn ExecutionPlan> {
    match WarplineConfig::of(options).time_limit.0 {
        Some(limit) => Arc::new(TimeLimitExec::new(plan, limit)),
        None => plan,
    }
}

/// The plan for the session's own device: its rule is among those of the session.
async fn placed(logical: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
    GuardedPlanner.create_physical_plan(logical, session).await
}

/// What `EXPLAIN` shows, with a line more below the plan that runs.
fn with_line(plan: Arc<dyn ExecutionPlan>, line: &str) -> Arc<dyn ExecutionPlan> {
    let Some(explain) = plan.downcast_ref::<ExplainExec>() else {
        return plan;
    };
    let mut texts = explain.stringified_plans().to_vec();
    for text in &mut texts {
        if text.plan_type == PlanType::FinalPhysicalPlan {
            let longer = format!("{}\n{line}", text.plan.trim_end());
            text.plan = Arc::new(longer);
        }
    }
    Arc::new(ExplainExec::new(plan.schema(), texts, explain.verbose()))
}

fn is_distributed(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<DistributedExec>()))
}

#[async_trait]
impl Sites for Workers {
    async fn ask(&self, _logical: &LogicalPlan, _options: &ConfigOptions) -> Result<bool> {
        let asked = Self::ask(self).await;
        asked.map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(true)
    }

    fn places(&self) -> String {
        let up = self.up().into_iter();
        let up = up.map(|(url, device)| format!("worker {}: {device}\n", name(&url)));
        let down = self.down().into_iter();
        let down = down.map(|(url, cause)| format!("worker {}: lost, {cause}\n", name(&url)));
        up.chain(down).collect()
    }
}
