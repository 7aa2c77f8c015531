//! A query on several devices: takes its settings to them, and keeps the stages as they were placed, for metrics.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

use crate::device::{StageOnDevice, devices_of};

/// What the devices ran of a query.
#[derive(Debug, Default)]
pub(super) struct Stages(Mutex<Vec<StageOnDevice>>);

impl Stages {
    pub(super) fn add(&self, device: &str, plan: Arc<dyn ExecutionPlan>) {
        let device = device.to_string();
        self.0.lock().push(StageOnDevice { device, plan });
    }

    fn all(&self) -> Vec<StageOnDevice> {
        self.0.lock().clone()
    }
}

/// The root of a plan in stages of several devices; rows and order are its input's.
#[derive(Debug)]
pub(super) struct DevicesExec {
    input: Arc<dyn ExecutionPlan>,
    /// Of the last run.
    stages: Mutex<Arc<Stages>>,
}

impl DevicesExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            input,
            stages: Mutex::default(),
        }
    }

    /// Whether the rows are those of `EXPLAIN ANALYZE`.
    fn explains(&self) -> bool {
        self.input.name() == "DistributedAnalyzeExec"
    }
}

/// The stages of the last run of a plan, where several devices shared it.
pub(crate) fn stages_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<StageOnDevice> {
    if let Some(root) = plan.downcast_ref::<DevicesExec>() {
        return root.stages.lock().all();
    }
    // What is above it has one child: limits of time, and what writes rows.
    match plan.children().as_slice() {
        [only] => stages_of(only),
        _ => vec![],
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
        let stages = Arc::new(Stages::default());
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
