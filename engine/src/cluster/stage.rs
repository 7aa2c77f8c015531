//! A stage on the worker's device: runs the placed plan, and shows the nodes that the coordinator knows.
//!
//! The coordinator matches metrics with its own plan node by node. So a placed stage has the tree of the stage as it came, and
//! each node tells what was measured for it, by the fragment that took its place where there is one.

use std::fmt;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use datafusion_distributed::BroadcastExec;
use warpline_gpu::exec::{GpuFragmentExec, in_partitions_of};
use warpline_gpu::tables::InputExec;

/// The plan of a stage, with what the device runs of it.
pub(crate) fn place(
    plan: Arc<dyn ExecutionPlan>,
    rule: &dyn PhysicalOptimizerRule,
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    // Who reads the stage may ask for another head than this.
    let (head, gathers) = match plan.is::<RepartitionExec>() {
        true => (true, true),
        false => (plan.is::<BroadcastExec>(), false),
    };
    if !head {
        return below_head(&plan, rule, options, gathers);
    }
    let child = match plan.children().as_slice() {
        [child] => Arc::clone(child),
        _ => return Ok(plan),
    };
    let placed = below_head(&child, rule, options, gathers)?;
    match Arc::ptr_eq(&placed, &child) {
        true => Ok(plan),
        false => replace_children_if_necessary(plan, vec![placed]),
    }
}

/// A stage without a head, for one who takes any number of partitions.
pub(crate) fn place_merging(
    stage: &Arc<dyn ExecutionPlan>,
    rule: &dyn PhysicalOptimizerRule,
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    below_head(stage, rule, options, true)
}

/// What runs of a stage that [`place`] made: what the device took, with what is above it.
pub(crate) fn placed(stage: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if let Some(stage) = stage.downcast_ref::<StageExec>() {
        return Some(Arc::clone(&stage.placed));
    }
    match stage.children().as_slice() {
        // Its head.
        [only] => placed(only),
        _ => None,
    }
}

/// `gathers`: what is above takes any number of partitions.
fn below_head(
    plan: &Arc<dyn ExecutionPlan>,
    rule: &dyn PhysicalOptimizerRule,
    options: &ConfigOptions,
    gathers: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut placed = rule.optimize(Arc::clone(plan), options)?;
    if Arc::ptr_eq(&placed, plan) {
        return Ok(placed);
    }
    let partitioning = plan.output_partitioning();
    let partitions = placed.output_partitioning().partition_count();
    if !gathers && partitions != partitioning.partition_count() {
        placed = in_partitions_of(placed, partitioning)?;
    }
    let shown = shown(plan, &placed, &[]);
    Ok(Arc::new(StageExec { placed, shown }))
}

/// `original` with the metrics of `placed`; `inputs` are those of the fragment that `placed` is the CPU plan of.
fn shown(
    original: &Arc<dyn ExecutionPlan>,
    placed: &Arc<dyn ExecutionPlan>,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Arc<dyn ExecutionPlan> {
    if Arc::ptr_eq(original, placed) {
        return Arc::clone(original);
    }
    if let Some(input) = placed.downcast_ref::<InputExec>() {
        return match inputs.get(input.number()) {
            Some(input) => shown(original, input, &[]),
            None => Arc::clone(original),
        };
    }
    if let Some(fragment) = placed.downcast_ref::<GpuFragmentExec>() {
        let inputs: Vec<_> = fragment.children().into_iter().map(Arc::clone).collect();
        let children = shown_children(original, fragment.original(), &inputs);
        return measured(original, placed, children);
    }
    let below = placed.children();
    if placed.name() == original.name() && below.len() == original.children().len() {
        let children = shown_children(original, placed, inputs);
        return measured(original, placed, children);
    }
    match below.as_slice() {
        // A node that placement added.
        [only] => shown(original, only, inputs),
        _ => Arc::clone(original),
    }
}

/// The children of `original` with the metrics of those of `placed`, or of the nearest node below that is like `original`.
fn shown_children(
    original: &Arc<dyn ExecutionPlan>,
    placed: &Arc<dyn ExecutionPlan>,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Vec<Arc<dyn ExecutionPlan>> {
    let (own, below) = (original.children(), placed.children());
    if placed.name() == original.name() && own.len() == below.len() {
        let pairs = own.into_iter().zip(below);
        return pairs
            .map(|(own, below)| shown(own, below, inputs))
            .collect();
    }
    match below.as_slice() {
        [only] => shown_children(original, only, inputs),
        _ => own.into_iter().map(Arc::clone).collect(),
    }
}

fn measured(
    original: &Arc<dyn ExecutionPlan>,
    source: &Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Arc<dyn ExecutionPlan> {
    // Which of its children a task runs is known by the node itself.
    if original.name() == "ChildrenIsolatorUnionExec" {
        let with = replace_children_if_necessary(Arc::clone(original), children);
        return with.unwrap_or_else(|_| Arc::clone(original));
    }
    Arc::new(ShownExec {
        original: Arc::clone(original),
        source: Arc::clone(source),
        children,
    })
}

/// Runs `placed`; everyone else sees `shown`.
#[derive(Debug)]
struct StageExec {
    placed: Arc<dyn ExecutionPlan>,
    shown: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for StageExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown.fmt_as(format, f)
    }
}

impl ExecutionPlan for StageExec {
    fn name(&self) -> &str {
        "StageExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.placed.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.shown.children()
    }

    warpline_gpu::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(unchangeable())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.placed.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.shown.metrics()
    }
}

/// A node of a stage as it came, with the metrics of what runs in its place.
#[derive(Debug)]
struct ShownExec {
    original: Arc<dyn ExecutionPlan>,
    source: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
}

impl DisplayAs for ShownExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt_as(format, f)
    }
}

impl ExecutionPlan for ShownExec {
    fn name(&self) -> &str {
        self.original.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.original.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.children.iter().collect()
    }

    warpline_gpu::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(unchangeable())
    }

    fn execute(
        &self,
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Internal(
            "a node that only shows metrics does not run".to_string(),
        ))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.source.metrics()
    }
}

fn unchangeable() -> DataFusionError {
    DataFusionError::Internal("a placed stage is not planned again".to_string())
}
