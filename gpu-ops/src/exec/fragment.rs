//! The physical plan node that stands for a fragment.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::report::{FragmentOptions, FragmentReport};
use super::{display, run};
use crate::error::{GpuError, Result};
use crate::pipeline::{Fragment, PlacementPolicy};
use crate::runtime::Runtime;

/// Most rows of one RecordBatch that leaves a fragment.
const BATCH_ROWS: usize = 8192;

/// Runs a [`Fragment`] on the device of a [`Runtime`]; a leaf with one output partition.
#[derive(Debug)]
pub struct GpuFragmentExec {
    inner: Arc<Inner>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) fragment: Fragment,
    pub(super) original: Arc<dyn ExecutionPlan>,
    pub(super) runtime: Arc<Runtime>,
    pub(super) policy: Arc<dyn PlacementPolicy>,
    pub(super) options: FragmentOptions,
    pub(super) report: Mutex<FragmentReport>,
}

impl GpuFragmentExec {
    /// A node for `fragment`, which computes what `original` computes on the CPU.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when the schemas differ: a fragment never changes a plan's types.
    pub fn try_new(
        fragment: Fragment,
        original: Arc<dyn ExecutionPlan>,
        runtime: Arc<Runtime>,
        policy: Arc<dyn PlacementPolicy>,
        options: FragmentOptions,
    ) -> Result<Self> {
        if fragment.schema != original.schema() {
            return Err(GpuError::Internal(
                "a fragment's schema differs from its plan's".into(),
            ));
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&fragment.schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let report = Mutex::default();
        Ok(Self {
            inner: Arc::new(Inner {
                fragment,
                original,
                runtime,
                policy,
                options,
                report,
            }),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// What runs on the device.
    pub fn fragment(&self) -> &Fragment {
        &self.inner.fragment
    }

    /// The CPU plan that the fragment stands for.
    pub fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.inner.original
    }

    /// What the last run did; all zero before the first.
    pub fn report(&self) -> FragmentReport {
        self.inner.report.lock().clone()
    }
}

impl DisplayAs for GpuFragmentExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display::fragment(&self.inner, format, f)
    }
}

impl ExecutionPlan for GpuFragmentExec {
    fn name(&self) -> &str {
        "GpuFragmentExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        // The fragment's expressions are not DataFusion's: rules must not rewrite them.
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            Err(DataFusionError::Internal(
                "GpuFragmentExec has no children".into(),
            ))
        }
    }

    /// The same node for another run: what was prepared stays, the metrics begin anew.
    fn reset_state(self: Arc<Self>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            inner: Arc::clone(&self.inner),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!(
                "GpuFragmentExec has no partition {partition}"
            )));
        }
        let inner = Arc::clone(&self.inner);
        let metrics = self.metrics.clone();
        let schema: SchemaRef = Arc::clone(&inner.fragment.schema);
        let stream = futures::stream::once(answer(inner, context, metrics)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Run on the device; where that is impossible and allowed, let the CPU plan answer.
async fn answer(
    inner: Arc<Inner>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
) -> DataFusionResult<SendableRecordBatchStream> {
    let outcome = run::run(Arc::clone(&inner), Arc::clone(&context)).await;
    let schema = Arc::clone(&inner.fragment.schema);
    match outcome {
        Ok((batch, mut report)) => {
            if let Some(limit) = inner
                .options
                .max_tail_rows
                .filter(|limit| batch.num_rows() > *limit)
            {
                let tail = inner
                    .options
                    .tail
                    .as_deref()
                    .unwrap_or("the operators above");
                let reason = format!(
                    "{tail} ran on the CPU over {} rows that left the device (limit {limit})",
                    batch.num_rows()
                );
                if inner.options.require_gpu {
                    return Err(required(&reason));
                }
                report.fallback = Some(reason);
            }
            publish(&metrics, &report);
            *inner.report.lock() = report;
            let slices: Vec<_> = (0..batch.num_rows())
                .step_by(BATCH_ROWS)
                .map(|at| Ok(batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at))))
                .collect();
            Ok(Box::pin(RecordBatchStreamAdapter::new(
                schema,
                futures::stream::iter(slices),
            )))
        }
        // The CPU would read the same data: its errors are the user's answer.
        Err(GpuError::DataFusion(error)) => Err(error),
        Err(error) if inner.options.require_gpu => Err(required(&error.to_string())),
        Err(error) => {
            log::warn!("the CPU answers instead of the device: {error}");
            let report = FragmentReport {
                fallback: Some(error.to_string()),
                ..Default::default()
            };
            *inner.report.lock() = report;
            let original = Arc::clone(&inner.original);
            let single: Arc<dyn ExecutionPlan> =
                if original.output_partitioning().partition_count() == 1 {
                    original
                } else {
                    Arc::new(CoalescePartitionsExec::new(original))
                };
            Ok(single.execute(0, context)?.boxed_stream(schema))
        }
    }
}

fn required(reason: &str) -> DataFusionError {
    DataFusionError::Execution(format!(
        "warpline.require_gpu is set, but the query cannot run on the device: {reason}; \
         SET warpline.require_gpu = false to let the CPU answer"
    ))
}

/// Put the report where EXPLAIN ANALYZE shows it.
fn publish(metrics: &ExecutionPlanMetricsSet, report: &FragmentReport) {
    let add = |name: &'static str, value: usize| {
        MetricBuilder::new(metrics).global_counter(name).add(value)
    };
    MetricBuilder::new(metrics)
        .output_rows(0)
        .add(report.output_rows);
    add("load_us", (report.load_ms * 1e3) as usize);
    add("compile_us", (report.compile_ms * 1e3) as usize);
    add("kernel_us", (report.kernel_ms * 1e3) as usize);
    add("kernels", report.kernels);
    add("bytes_read", report.bytes);
    if report.kernel_ms > 0.0 {
        add(
            "gigabytes_per_second",
            (report.bytes as f64 / report.kernel_ms / 1e6) as usize,
        );
    }
}

/// Give a CPU stream the fragment's schema object.
trait BoxedStream {
    fn boxed_stream(self, schema: SchemaRef) -> SendableRecordBatchStream;
}

impl BoxedStream for SendableRecordBatchStream {
    fn boxed_stream(self, schema: SchemaRef) -> SendableRecordBatchStream {
        Box::pin(RecordBatchStreamAdapter::new(
            schema,
            self.map(|batch| batch),
        ))
    }
}
