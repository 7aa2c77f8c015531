//! The node that stands for a part of a plan that several devices run, each over its part of one table.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;

use super::deal::Limit;

/// Yields the rows of all devices. Its children are the plans of the devices, in their order.
#[derive(Debug)]
pub(crate) struct ShardsExec {
    /// The rows of all, one partition after the other.
    union: Arc<dyn ExecutionPlan>,
    shared: Arc<Shared>,
}

/// What stays the same however often the plan is reset.
#[derive(Debug)]
struct Shared {
    /// `cuda:0`, `cuda:1`.
    devices: Vec<String>,
    /// What is dealt out, for `EXPLAIN`.
    dealt: String,
    /// The rows that may leave the devices; `None` where any number is as good.
    limit: Option<Limit>,
    /// Those that left them, of all runs that have not ended and the last that did.
    rows: AtomicU64,
}

impl ShardsExec {
    /// The rows of `plans`, each of which runs on the device at its place in `devices`.
    ///
    /// # Errors
    /// When their schemas differ.
    pub(super) fn try_new(
        plans: Vec<Arc<dyn ExecutionPlan>>,
        devices: Vec<String>,
        dealt: String,
        limit: Option<Limit>,
    ) -> Result<Self> {
        Ok(Self {
            union: UnionExec::try_new(plans)?,
            shared: Arc::new(Shared {
                devices,
                dealt,
                limit,
                rows: AtomicU64::new(0),
            }),
        })
    }

    /// The devices, with the plan of each.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, &Arc<dyn ExecutionPlan>)> {
        let devices = self.shared.devices.iter().map(String::as_str);
        devices.zip(self.union.children())
    }

    /// Whether so many rows left the devices in the last run that one would have done better, which is remembered.
    pub(crate) fn had_too_many(&self) -> bool {
        let rows = self.shared.rows.load(Ordering::Relaxed);
        let limit = self.shared.limit.as_ref();
        limit.is_some_and(|limit| limit.exceeded_by(rows))
    }
}

impl DisplayAs for ShardsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.shared.devices.join(", ");
        match format {
            DisplayFormatType::TreeRender => {
                writeln!(f, "devices={devices}")?;
                writeln!(f, "dealt={}", self.shared.dealt)
            }
            _ => write!(f, "ShardsExec: {}; on {devices}", self.shared.dealt),
        }
    }
}

impl ExecutionPlan for ShardsExec {
    fn name(&self) -> &str {
        "ShardsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.union.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.union.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.union.maintains_input_order()
    }

    warpline_gpu::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            union: UnionExec::try_new(children)?,
            shared: Arc::clone(&self.shared),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition == 0 {
            self.shared.rows.store(0, Ordering::Relaxed);
        }
        let rows = self.union.execute(partition, context)?;
        let shared = Arc::clone(&self.shared);
        let counted = rows.inspect_ok(move |batch| {
            let rows = batch.num_rows() as u64;
            shared.rows.fetch_add(rows, Ordering::Relaxed);
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            counted,
        )))
    }
}
