//! Scans as one leaf: what is inside reads rows by a choice that neither rules nor other machines would keep.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, StatisticsArgs, StatisticsContext,
};

use crate::plan_node::leaf;

/// Which rows of a file are read: an extension of the file beside the reader's own, which has the rows. Two files of
/// one state with the same text have the same rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChosenRows(pub Arc<str>);

/// A scan that stays as it is. Rules see a leaf: none of them pushes filters or limits into it, or puts other nodes below. Plans
/// that travel as messages lose the extensions of files, and with them [`ChosenRows`]; this node is refused instead.
#[derive(Debug)]
pub struct SealedScanExec {
    scan: Arc<dyn ExecutionPlan>,
}

impl SealedScanExec {
    /// This scan as a leaf.
    pub fn new(scan: Arc<dyn ExecutionPlan>) -> Self {
        Self { scan }
    }

    /// What is inside.
    pub fn scan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.scan
    }
}

impl DisplayAs for SealedScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(format, DisplayFormatType::TreeRender) {
            write!(f, "SealedScanExec: ")?;
        }
        self.scan.fmt_as(format, f)
    }
}

impl ExecutionPlan for SealedScanExec {
    fn name(&self) -> &str {
        "SealedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    crate::no_expressions!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        leaf(self, &children)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(reset_plan_states(Arc::clone(
            &self.scan,
        ))?)))
    }

    fn repartitioned(
        &self,
        partitions: usize,
        config: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let scan = self.scan.repartitioned(partitions, config)?;
        Ok(scan.map(|scan| Arc::new(Self::new(scan)) as _))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.scan.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        StatisticsContext::new().compute(self.scan.as_ref(), args)
    }

    fn fetch(&self) -> Option<usize> {
        self.scan.fetch()
    }
}
