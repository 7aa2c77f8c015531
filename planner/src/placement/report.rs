//! The root node of a placed plan: reports what runs where, and passes rows through.

use std::fmt;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use warpline_gpu::exec::{Entry, TimeLimitExec, boxed, indented};
use warpline_gpu::plan_node::only_child;

use crate::error::PlannerError;

/// An operator that stays on the CPU, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuOperator {
    /// Name of the plan node, e.g. `HashJoinExec`.
    pub operator: String,
    /// The reason, for users.
    pub reason: String,
    /// How many operators of the plan share name and reason.
    pub count: usize,
    /// False for operators over few rows that have left the device.
    pub fallback: bool,
}

impl fmt::Display for CpuOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count > 1 {
            write!(f, "{} x{}: {}", self.operator, self.count, self.reason)
        } else {
            write!(f, "{}: {}", self.operator, self.reason)
        }
    }
}

/// Whether a plan node only reports on the plan below it, or limits its time.
pub fn is_report(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<PlacementReportExec>() || node.is::<TimeLimitExec>()
}

/// Root of a plan that [`crate::GpuPlacement`] has processed; rows, partitions and order are its input's.
#[derive(Debug)]
pub struct PlacementReportExec {
    input: Arc<dyn ExecutionPlan>,
    device: String,
    cpu: Vec<CpuOperator>,
    /// Why the plan must not run.
    refusal: Option<PlannerError>,
}

impl PlacementReportExec {
    /// Report on `input`, of which the operators `cpu` stay on the CPU and the rest runs on `device`.
    pub fn new(input: Arc<dyn ExecutionPlan>, device: String, cpu: Vec<CpuOperator>) -> Self {
        Self {
            input,
            device,
            cpu,
            refusal: None,
        }
    }

    /// Report on `input`, which must not run: EXPLAIN shows it, executing it returns the error.
    pub(super) fn refused(
        input: Arc<dyn ExecutionPlan>,
        device: String,
        cpu: Vec<CpuOperator>,
        refusal: PlannerError,
    ) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self {
            refusal: Some(refusal),
            ..Self::new(input, device, cpu)
        })
    }

    /// Why the plan must not run, with the settings that it was planned with.
    pub fn refusal(&self) -> Option<&PlannerError> {
        self.refusal.as_ref()
    }

    /// Id of the device, e.g. `cuda:0`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What stays on the CPU.
    pub fn cpu_operators(&self) -> &[CpuOperator] {
        &self.cpu
    }

    /// The plan reported on.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }
}

impl DisplayAs for PlacementReportExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu: Vec<_> = self.cpu.iter().map(ToString::to_string).collect();
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "PlacementReportExec: device={}, ", self.device)?;
                if self.refusal.is_some() {
                    f.write_str("refused by warpline.require_gpu, ")?;
                }
                f.write_str("cpu=[")?;
                match cpu.as_slice() {
                    [] | [_] => write!(f, "{}]", cpu.concat()),
                    several => write!(f, "{}]", indented(several.iter().map(String::as_str))),
                }
            }
            DisplayFormatType::TreeRender => {
                // Entries come by their key: this one is the first.
                writeln!(f, "00 device={}", self.device)?;
                if self.refusal.is_some() {
                    writeln!(f, "01 refused by=warpline.require_gpu")?;
                }
                let entries = cpu.iter().map(|text| Entry {
                    key: "on the CPU",
                    text,
                });
                boxed(&entries.collect::<Vec<_>>())
                    .iter()
                    .try_for_each(|line| writeln!(f, "{line}"))
            }
        }
    }
}

impl ExecutionPlan for PlacementReportExec {
    fn name(&self) -> &str {
        "PlacementReportExec"
    }

    warpline_gpu::rows_of_input!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = only_child(self.name(), children)?;
        Ok(Arc::new(Self {
            input,
            device: self.device.clone(),
            cpu: self.cpu.clone(),
            refusal: self.refusal.clone(),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone().into());
        }
        self.input.execute(partition, context)
    }
}
