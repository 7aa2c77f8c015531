//! The node that stands for a part of a plan that several devices run, each over its part of one table.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;

use super::learned::Expected;

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
    /// The rows that the plan is for.
    expected: Expected,
    /// Those that left the devices, of all runs that have not ended and the last that did.
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
        expected: Expected,
    ) -> Result<Self> {
        Ok(Self {
            union: UnionExec::try_new(plans)?,
            shared: Arc::new(Shared {
                devices,
                dealt,
                expected,
                rows: AtomicU64::new(0),
            }),
        })
    }

    /// The devices, with the plan of each.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, &Arc<dyn ExecutionPlan>)> {
        let devices = self.shared.devices.iter().map(String::as_str);
        devices.zip(self.union.children())
    }

    /// Whether so many rows left the devices in the last run that the next plan will be another one.
    pub(crate) fn is_outdated(&self) -> bool {
        let rows = self.shared.rows.load(Ordering::Relaxed);
        self.shared.expected.is_wrong_for(rows)
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

/// Stands for a [`ShardsExec`] while what is above it is placed: nothing is to look into that.
#[derive(Debug)]
pub(super) struct ShardsLeaf {
    number: usize,
    properties: Arc<PlanProperties>,
}

impl ShardsLeaf {
    pub(super) fn of(shards: &Arc<dyn ExecutionPlan>, number: usize) -> Self {
        Self {
            number,
            properties: Arc::clone(shards.properties()),
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }
}

impl DisplayAs for ShardsLeaf {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShardsLeaf")
    }
}

impl ExecutionPlan for ShardsLeaf {
    fn name(&self) -> &str {
        "ShardsLeaf"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    warpline_gpu::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Internal(
            "shards were not put into their place".to_string(),
        ))
    }
}
