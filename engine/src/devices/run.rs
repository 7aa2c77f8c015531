//! A query on several devices: takes its settings to them, and keeps the stages as they were placed, for metrics.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

use super::shards::ShardsExec;
use crate::fragments::{self, StageOnDevice, devices_of};

/// What the devices run of a query.
#[derive(Debug, Default)]
pub(super) struct Stages {
    placed: Mutex<Vec<StageOnDevice>>,
    /// The fragments of a run before.
    earlier: Arc<[Learned]>,
}

/// The fragments of a task, which know kernels and sizes of results.
#[derive(Debug, Clone)]
struct Learned {
    device: String,
    task: (usize, usize),
    fragments: Vec<Arc<dyn ExecutionPlan>>,
}

impl Stages {
    /// A stage was placed, and begins with what a run before it left.
    pub(super) fn add(&self, stage: StageOnDevice) {
        let same =
            |earlier: &&Learned| earlier.device == stage.device && earlier.task == stage.task;
        if let Some(earlier) = self.earlier.iter().find(same) {
            fragments::take_over(&stage.plan, &earlier.fragments);
        }
        self.placed.lock().push(stage);
    }

    fn all(&self) -> Vec<StageOnDevice> {
        self.placed.lock().clone()
    }

    fn learned(&self) -> Arc<[Learned]> {
        let stages = self.all().into_iter();
        let learned = stages.map(|stage| Learned {
            fragments: fragments::fragments(&stage.plan),
            device: stage.device,
            task: stage.task,
        });
        learned.collect()
    }
}

/// The root of a plan in stages of several devices; rows and order are its input's.
#[derive(Debug)]
pub(super) struct DevicesExec {
    input: Arc<dyn ExecutionPlan>,
    /// Of the last run.
    stages: Mutex<Arc<Stages>>,
    /// What the next run begins with.
    learned: Mutex<Arc<[Learned]>>,
}

impl DevicesExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            input,
            stages: Mutex::default(),
            learned: Mutex::new(Arc::new([])),
        }
    }

    /// Whether the rows are those of `EXPLAIN ANALYZE`.
    fn explains(&self) -> bool {
        self.input.name() == "DistributedAnalyzeExec"
    }
}

/// The root of what several devices share of a plan. What is above it has one child: limits of time, and what writes rows.
fn root_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&DevicesExec> {
    if let Some(root) = plan.downcast_ref::<DevicesExec>() {
        return Some(root);
    }
    match plan.children().as_slice() {
        [only] => root_of(only),
        _ => None,
    }
}

/// The stages of the last run of a plan, where several devices shared it.
pub(crate) fn stages_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<StageOnDevice> {
    root_of(plan).map_or(vec![], |root| root.stages.lock().all())
}

/// What devices run side by side of a plan; its nodes are among those of the plan.
pub(crate) fn shards_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<StageOnDevice> {
    let mut found = Vec::new();
    for (stage, node) in shards_in(plan).into_iter().enumerate() {
        if let Some(shards) = node.downcast_ref::<ShardsExec>() {
            for (task, (device, plan)) in shards.parts().enumerate() {
                found.push(StageOnDevice {
                    device: device.to_string(),
                    task: (stage, task),
                    plan: Arc::clone(plan),
                });
            }
        }
    }
    found
}

fn shards_in(plan: &Arc<dyn ExecutionPlan>) -> Vec<&Arc<dyn ExecutionPlan>> {
    match plan.is::<ShardsExec>() {
        true => vec![plan],
        false => plan.children().into_iter().flat_map(shards_in).collect(),
    }
}

/// Whether devices run parts of a plan side by side.
pub(crate) fn has_shards(plan: &Arc<dyn ExecutionPlan>) -> bool {
    !shards_in(plan).is_empty()
}

/// Whether other numbers of rows met on the host in the last run than the plan is for: the next one is made anew.
pub(crate) fn are_outdated(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let shards = shards_in(plan).into_iter();
    shards
        .filter_map(|node| node.downcast_ref::<ShardsExec>())
        .any(ShardsExec::is_outdated)
}

/// What the last run of a plan in stages left for another plan of the same query: fragments, and no rows.
pub(crate) fn left_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let root = root_of(plan)?;
    let left = DevicesExec::new(Arc::new(EmptyExec::new(root.schema())));
    *left.learned.lock() = root.stages.lock().learned();
    Some(Arc::new(left))
}

/// Lets a plan in stages begin with what [`left_of`] an earlier one; false where they are no such plans.
pub(crate) fn take_over(plan: &Arc<dyn ExecutionPlan>, earlier: &Arc<dyn ExecutionPlan>) -> bool {
    match (root_of(plan), earlier.downcast_ref::<DevicesExec>()) {
        (Some(root), Some(earlier)) => {
            let learned = Arc::clone(&earlier.learned.lock());
            *root.learned.lock() = learned;
            true
        }
        _ => false,
    }
}

/// What each device did, a line each.
fn told(stages: &Stages) -> String {
    let mut text = String::new();
    for work in devices_of(&stages.all()) {
        let written = write!(
            text,
            "device {}: {} fragments, {} kernels in {:.3} ms, {} bytes",
            work.device, work.fragments, work.kernels, work.kernel_ms, work.bytes
        );
        let fallbacks = match work.fallbacks {
            0 => String::new(),
            count => format!(", {count} on the CPU"),
        };
        // Writing to a string does not fail.
        let _ = written.and_then(|()| writeln!(text, "{fallbacks}"));
    }
    text
}

impl DisplayAs for DevicesExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => f.write_str("DevicesExec"),
        }
    }
}

impl ExecutionPlan for DevicesExec {
    fn name(&self) -> &str {
        "DevicesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    warpline_gpu::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input))),
            Err(_) => Err(DataFusionError::Internal(
                "a query on several devices has one input".to_string(),
            )),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let stages = Arc::new(Stages {
            placed: Mutex::default(),
            earlier: Arc::clone(&self.learned.lock()),
        });
        *self.stages.lock() = Arc::clone(&stages);
        let config = context.session_config().clone();
        let context = TaskContext::new(
            context.task_id(),
            context.session_id(),
            config.with_extension(Arc::clone(&stages)),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            context.runtime_env(),
        );
        let rows = self.input.execute(partition, Arc::new(context))?;
        if !self.explains() {
            return Ok(rows);
        }
        let schema = self.schema();
        let more = {
            let schema = Arc::clone(&schema);
            stream::once(async move {
                let kind: ArrayRef = Arc::new(StringArray::from(vec!["Devices"]));
                let text: ArrayRef = Arc::new(StringArray::from(vec![told(&stages)]));
                Ok(RecordBatch::try_new(schema, vec![kind, text])?)
            })
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            rows.chain(more),
        )))
    }
}
