//! The physical optimiser rule that replaces subtrees by device fragments.

mod causes;
mod classify;
mod outputs;
mod receive;
mod reentry;
mod replace;
mod report;
mod source_partitions;
mod structs;
mod surroundings;

use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use warpline_gpu::GpuError;
use warpline_gpu::exec::{SecondPlan, TimeLimitExec, giving_way};
use warpline_gpu::machine::Machine;
use warpline_gpu::runtime::Runtime;

use crate::config::{ComputedColumns, WarplineConfig};
use crate::error::PlannerError;
use classify::Classification;
use surroundings::Surroundings;

pub use replace::MAX_TAIL_ROWS;
use replace::Second;
pub use report::{CpuOperator, PlacementReportExec, is_report};

/// Places fragments on the device of a runtime. It must be the last rule: later rules must not look into a fragment.
///
/// Without a runtime plans stay as they are. A plan that `warpline.require_gpu` refuses shows the reason in EXPLAIN
/// and returns the error when it is executed.
#[derive(Debug)]
pub struct GpuPlacement {
    runtime: Option<Arc<Runtime>>,
}

impl GpuPlacement {
    /// The rule for a session; `None` when it has no device.
    pub fn new(runtime: Option<Arc<Runtime>>) -> Self {
        Self { runtime }
    }
}

impl PhysicalOptimizerRule for GpuPlacement {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let config = WarplineConfig::of(options);
        if plan.is::<PlacementReportExec>() || plan.is::<TimeLimitExec>() {
            return Ok(plan);
        }
        let plan = self.place(plan, &config, options.execution.target_partitions)?;
        let plan = giving_way(plan)?;
        Ok(match config.time_limit.0 {
            // What a statement such as SET leaves to do when it is done: it is not to be told that it was stopped.
            Some(_) if plan.is::<EmptyExec>() => plan,
            Some(limit) => Arc::new(TimeLimitExec::new(plan, limit)),
            None => plan,
        })
    }

    fn name(&self) -> &str {
        "gpu_placement"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl GpuPlacement {
    /// The plan, with fragments in place of the subtrees that the device runs.
    fn place(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &WarplineConfig,
        cores: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.runtime.is_none() && !config.require_gpu {
            return Ok(plan);
        }
        let machine = match &self.runtime {
            Some(runtime) => Arc::clone(runtime.machine()),
            None => Arc::new(Machine::h200()),
        };
        let surroundings = Surroundings {
            config,
            machine,
            tables: self.runtime.as_ref().map(|runtime| &**runtime.tables()),
            cores,
        };
        let classification = classified(&plan, &surroundings)?;
        if !classification.reads_tables() {
            return Ok(plan);
        }
        let Some(runtime) = &self.runtime else {
            return Ok(PlacementReportExec::refused(
                plan,
                "none".into(),
                vec![],
                PlannerError::NoDevice,
            ));
        };
        if let Some(cause) = runtime.lost() {
            let device = runtime.device().info().id.clone();
            let lost = GpuError::DeviceLost {
                device: device.clone(),
                cause,
            };
            if config.require_gpu {
                return Err(lost.into());
            }
            let all = CpuOperator {
                operator: "all operators".into(),
                reason: lost.to_string(),
                count: 1,
                fallback: true,
            };
            return Ok(Arc::new(PlacementReportExec::new(plan, device, vec![all])));
        }
        let operators = causes::cpu_operators(&classification);
        let device = runtime.device().info().id.clone();
        let fallbacks: Vec<String> = operators
            .iter()
            .filter(|o| o.fallback)
            .map(ToString::to_string)
            .collect();
        if config.require_gpu && !fallbacks.is_empty() {
            let refusal = PlannerError::Fallback {
                reasons: fallbacks.join("; "),
            };
            return Ok(PlacementReportExec::refused(
                plan, device, operators, refusal,
            ));
        }
        // Combinations that are too many are computed for the rows of their table where they are of one, and looked up else; where
        // these are too many as well, the CPU computes them.
        let third = |plan: &Arc<dyn ExecutionPlan>| {
            let config = WarplineConfig {
                value_tables: false,
                ..config.clone()
            };
            in_parts(plan, &surroundings.with(&config), runtime, &|_| Ok(None))
        };
        let second = |plan: &Arc<dyn ExecutionPlan>| {
            if config.computed_columns == ComputedColumns::Auto {
                let config = WarplineConfig {
                    computed_columns: ComputedColumns::On,
                    ..config.clone()
                };
                let surroundings = surroundings.with(&config);
                if classified(plan, &surroundings)?.computes()
                    && let Some(second) = in_parts(plan, &surroundings, runtime, &third)?
                {
                    return Ok(Some(second));
                }
            }
            third(plan)
        };
        let plan = replace::replace(classification, runtime, config, &second)?;
        Ok(Arc::new(PlacementReportExec::new(plan, device, operators)))
    }
}

/// What each operator is; where tables may have columns for what no kernel computes of theirs, of the plan with these if fewer operators
/// stay on the CPU then.
fn classified(
    plan: &Arc<dyn ExecutionPlan>,
    surroundings: &Surroundings<'_>,
) -> Result<Classification> {
    let without = with_outputs_apart(plan, surroundings)?;
    if surroundings.config.computed_columns != ComputedColumns::Auto || without.is_device_output() {
        return Ok(without);
    }
    let config = computing(surroundings.config);
    let with = with_outputs_apart(plan, &surroundings.with(&config))?;
    Ok(match with.on_the_cpu() < without.on_the_cpu() {
        true => with,
        false => without,
    })
}

/// The same settings, where tables get columns for what no kernel computes of theirs.
fn computing(config: &WarplineConfig) -> WarplineConfig {
    WarplineConfig {
        computed_columns: match config.computed_columns {
            ComputedColumns::Auto => ComputedColumns::Rest,
            other => other,
        },
        ..config.clone()
    }
}

/// What each operator is; where the device does not run all, of the plan that computes the rest of its output above order and limit.
fn with_outputs_apart(
    plan: &Arc<dyn ExecutionPlan>,
    surroundings: &Surroundings<'_>,
) -> Result<Classification> {
    let whole = with_structs_apart(plan, surroundings)?;
    if whole.is_on_device() {
        return Ok(whole);
    }
    let pulled = outputs::pulled_up(plan, surroundings.config)?;
    match Arc::ptr_eq(&pulled, plan) {
        true => Ok(whole),
        false => with_structs_apart(&pulled, surroundings),
    }
}

/// What each operator is; where the device delivers the fields of structs that the plan yields, of the plan that puts them together.
fn with_structs_apart(
    plan: &Arc<dyn ExecutionPlan>,
    surroundings: &Surroundings<'_>,
) -> Result<Classification> {
    if let Some(apart) = structs::apart(plan)? {
        let classification = Classification::of(&apart, surroundings);
        if classification.is_device_output() {
            return Ok(classification);
        }
    }
    Ok(Classification::of(plan, surroundings))
}

/// The plan with smaller fragments than one for all of it; `None` where there are none, or where they would not do. `next` makes the
/// plans of those that look up what may turn out to be too much.
fn in_parts(
    plan: &Arc<dyn ExecutionPlan>,
    surroundings: &Surroundings<'_>,
    runtime: &Arc<Runtime>,
    next: Second<'_>,
) -> Result<Option<SecondPlan>> {
    let classification = classified(plan, surroundings)?;
    let fallbacks = causes::cpu_operators(&classification);
    let fallbacks = fallbacks.iter().filter(|operator| operator.fallback);
    let fallbacks: Vec<String> = fallbacks.map(ToString::to_string).collect();
    let config = surroundings.config;
    if !classification.has_fragments() || config.require_gpu && !fallbacks.is_empty() {
        return Ok(None);
    }
    let plan = replace::replace(classification, runtime, config, next)?;
    Ok(Some(SecondPlan {
        plan: giving_way(plan)?,
        fallback: (!fallbacks.is_empty()).then(|| fallbacks.join("; ")),
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
