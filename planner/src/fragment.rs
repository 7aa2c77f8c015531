//! Fragments: maximal subtrees that the device runs, cut out of a physical plan.
//!
//! The shape is an aggregation over any number of row-wise operators over a scan of one table:
//!
//! ```text
//! Aggregate(single) | Aggregate(final) <- exchange* <- Aggregate(partial)
//!   <- (Filter | Projection | exchange)*  <- Scan
//! ```
//!
//! Exchanges (repartitioning, coalescing, merging, sorting without a limit) move rows between CPU
//! threads and mean nothing to a device, so they vanish. Projections are substituted into the
//! expressions above them.

mod aggregate;
mod rows;
mod scan;

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use warpline_gpu::pipeline::Fragment;

use crate::reason::{Reason, refuse};

pub(crate) use aggregate::raw_aggregate;
pub(crate) use rows::pass_through;
pub(crate) use scan::is_constant;

/// A subtree that the device runs.
#[derive(Debug)]
pub struct Candidate {
    /// What takes its place.
    pub fragment: Fragment,
    /// Rows of the scanned table, as far as its statistics know.
    pub rows: Option<usize>,
}

/// The fragment that computes what `plan` computes.
///
/// # Errors
/// The [`Reason`] why the plan's root cannot run on the device.
pub fn candidate(plan: &Arc<dyn ExecutionPlan>) -> Result<Candidate, Reason> {
    match plan.downcast_ref::<AggregateExec>() {
        Some(root) => aggregate::candidate(root, plan.schema()),
        None => refuse(format!("{} runs on the CPU", plan.name())),
    }
}

/// True for an aggregation whose output is final, the only root a fragment has.
pub fn is_root(plan: &dyn ExecutionPlan) -> bool {
    plan.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| {
            !matches!(
                aggregate.mode(),
                AggregateMode::Partial | AggregateMode::PartialReduce
            )
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
