//! Fragments of other sessions, placed again on the local device.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use warpline_gpu::GpuError;
use warpline_gpu::exec::{FragmentOptions, GpuFragmentExec, in_one_partition, over_inputs};

use super::replace::options_of;
use super::report::{CpuOperator, PlacementReportExec};
use super::{GpuPlacement, MAX_TAIL_ROWS, computing};
use crate::config::WarplineConfig;
use crate::error::PlannerError;
use crate::fragment::FragmentPlanner;

impl GpuPlacement {
    /// Places a fragment that another session made of `original` over `inputs`, whatever the size of its tables, since that
    /// session has decided. `tail` names the operators above it that run on the CPU.
    ///
    /// The plan has one partition, as the operators above expect of a fragment. Without a device the CPU runs it; a
    /// subtree that this device does not run stays on the CPU too, below a [`PlacementReportExec`] with the reason.
    ///
    /// # Errors
    /// [`PlannerError::NoDevice`] and [`PlannerError::Fallback`] where `config` requires a GPU; [`GpuError::DeviceLost`] then
    /// when the device is.
    pub fn place_received(
        &self,
        original: Arc<dyn ExecutionPlan>,
        inputs: &[Arc<dyn ExecutionPlan>],
        config: &WarplineConfig,
        tail: Option<String>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(runtime) = &self.runtime else {
            return match config.require_gpu {
                true => Err(PlannerError::NoDevice.into()),
                false => Ok(in_one_partition(over_inputs(original, inputs)?)),
            };
        };
        let device = runtime.device().info().id.clone();
        let refused = if let Some(cause) = runtime.lost() {
            let device = device.clone();
            let lost = GpuError::DeviceLost { device, cause };
            if config.require_gpu {
                return Err(lost.into());
            }
            ("all operators".to_string(), lost.to_string())
        } else {
            match FragmentPlanner::try_new(&original, &computing(config)) {
                Ok(fragment) => {
                    let fragment = Arc::new(fragment.on(Arc::clone(runtime.machine())));
                    let options = FragmentOptions {
                        max_tail_rows: tail.is_some().then_some(MAX_TAIL_ROWS),
                        tail,
                        ..options_of(config)?
                    };
                    let runtime = Arc::clone(runtime);
                    let node = GpuFragmentExec::try_new(fragment, original, runtime, options)?;
                    return Ok(Arc::new(node.over(inputs.to_vec())));
                }
                Err(refusal) => (refusal.at.name().to_string(), refusal.reason.to_string()),
            }
        };
        let (operator, reason) = refused;
        let operator = CpuOperator {
            operator,
            reason,
            count: 1,
            fallback: true,
        };
        if config.require_gpu {
            let reasons = operator.to_string();
            return Err(PlannerError::Fallback { reasons }.into());
        }
        let plan = in_one_partition(over_inputs(original, inputs)?);
        Ok(Arc::new(PlacementReportExec::new(
            plan,
            device,
            vec![operator],
        )))
    }

    /// Id of the device, e.g. `cuda:0`; `None` without one.
    pub fn device(&self) -> Option<&str> {
        let runtime = self.runtime.as_ref()?;
        Some(&runtime.device().info().id)
    }
}
