//! Re-entry: fragments above operators that stay on the CPU, which read what these have computed.
//!
//! Where the device runs an operator but not all below it, the CPU computes the largest subtrees below that have to stay there:
//! the inputs. They go to the device where that is cheaper than to let the CPU go on.

use std::sync::Arc;

use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::work_table::WorkTableExec;

use super::source_partitions::is_partitioned_by_source;
use super::surroundings::Surroundings;
use crate::config::Reentry;
use crate::fragment::{FragmentPlanner, InputRows};
use crate::rel::convert::{Inputs, arrivals, exchange, is_constant, stands_alone};

/// Most inputs of a fragment.
pub(super) const MOST_INPUTS: usize = 16;
/// The device has to be so much cheaper: prices of the CPU's operators are rough.
const MARGIN: f64 = 1.5;
/// By how much a guess of an input's rows may be wrong.
const GUESS: f64 = 10.0;

/// What became of a plan of which the device does not run all.
pub(super) enum Attempt {
    /// A fragment above the rest.
    Reentered(Arc<FragmentPlanner>, Inputs),
    /// Over these inputs it would cost more than to let the CPU go on.
    Dear(Inputs),
    /// There is no such fragment.
    Impossible,
}

/// The fragment that computes `plan` above what the CPU has to compute of it.
pub(super) fn reentered(plan: &Arc<dyn ExecutionPlan>, at: &Surroundings<'_>) -> Attempt {
    if at.config.reentry == Reentry::Off {
        return Attempt::Impossible;
    }
    let Some((fragment, inputs)) = cut(plan, at) else {
        return Attempt::Impossible;
    };
    if fragment.real_tables() == 0 && !inputs.plans().any(reads_tables) {
        return Attempt::Impossible;
    }
    if at.config.reentry == Reentry::On || at.config.require_gpu {
        return Attempt::Reentered(Arc::new(fragment), inputs);
    }
    match pays(&fragment, &inputs, at) {
        true => Attempt::Reentered(Arc::new(fragment.priced_for(at.cores)), inputs),
        false => Attempt::Dear(inputs),
    }
}

/// The inputs below `plan`, and the fragment over them. Where a GPU is required, these are constants, which are read and not
/// computed: nothing of the query is left to the CPU.
fn cut(plan: &Arc<dyn ExecutionPlan>, at: &Surroundings<'_>) -> Option<(FragmentPlanner, Inputs)> {
    let mut inputs = arrivals(plan);
    loop {
        let refusal = match FragmentPlanner::over_inputs(plan, &inputs, at.config) {
            Ok(fragment) => return Some((fragment.on(Arc::clone(&at.machine)), inputs)),
            Err(refusal) => refusal,
        };
        let path = path_to(plan, &refusal.at)?;
        let place = above(&path, &inputs)?;
        let mut outer = path.iter().take_while(|node| !Arc::ptr_eq(node, place));
        if is_endless(place) && !outer.any(|node| wants_all(node)) {
            return None;
        }
        if at.config.require_gpu && !are_constants(place) {
            return None;
        }
        inputs.add(Arc::clone(place));
        if inputs.len() > MOST_INPUTS {
            return None;
        }
    }
}

/// The operators from `plan` down to `node`.
fn path_to<'p>(
    plan: &'p Arc<dyn ExecutionPlan>,
    node: &Arc<dyn ExecutionPlan>,
) -> Option<Vec<&'p Arc<dyn ExecutionPlan>>> {
    if Arc::ptr_eq(plan, node) {
        return Some(vec![plan]);
    }
    let mut children = plan.children().into_iter();
    let mut path = children.find_map(|child| path_to(child, node))?;
    path.insert(0, plan);
    Some(path)
}

/// Where to cut: at the last operator of the path or above it, but below the first.
fn above<'p>(
    path: &[&'p Arc<dyn ExecutionPlan>],
    inputs: &Inputs,
) -> Option<&'p Arc<dyn ExecutionPlan>> {
    let candidates = path.get(1..)?;
    // An input that is refused has a column that the device cannot hold: an operator above may drop it.
    let suits = |node: &Arc<dyn ExecutionPlan>| {
        !inputs.contains(node) && stands_alone(node) && !is_partitioned_by_source(node)
    };
    let mut place = candidates.iter().rposition(|node| suits(node))?;
    // What only leaves rows or columns out is done before they move.
    while let Some(next) = (0..place)
        .rev()
        .find(|at| exchange(candidates[*at]).is_none())
        && drops_something(candidates[next])
        && suits(candidates[next])
    {
        place = next;
    }
    Some(candidates[place])
}

/// May it have no end of its own, as a recursive query that a limit above stops? A fragment reads its inputs to the end.
fn is_endless(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RecursiveQueryExec>()
        || (!wants_all(plan) && plan.children().into_iter().any(is_endless))
}

/// Does it yield nothing before it has read everything?
fn wants_all(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<AggregateExec>() || plan.is::<SortExec>()
}

/// Rows, or columns and nothing else.
fn drops_something(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let columns = plan
        .downcast_ref::<ProjectionExec>()
        .is_some_and(|projection| {
            let exprs = projection.expr();
            let before = projection.input().schema().fields().len();
            exprs.len() < before && exprs.iter().all(|p| p.expr.is::<Column>())
        });
    columns
        || plan.is::<FilterExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<GlobalLimitExec>()
}

/// The few rows of a step of a recursive query are no table.
pub(super) fn reads_tables(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    match children.is_empty() {
        true => !is_constant(plan.as_ref()) && !plan.is::<WorkTableExec>(),
        false => children.into_iter().any(reads_tables),
    }
}

/// Rows of `VALUES`, at most computed one by one.
fn are_constants(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    match children.is_empty() {
        true => is_constant(plan.as_ref()),
        false => {
            let by_row = plan.is::<ProjectionExec>() || plan.is::<FilterExec>();
            (by_row || exchange(plan).is_some()) && children.into_iter().all(are_constants)
        }
    }
}

/// Is the device cheaper, inputs and all?
pub(super) fn pays(fragment: &FragmentPlanner, inputs: &Inputs, at: &Surroundings<'_>) -> bool {
    if fragment
        .scanned_rows()
        .is_some_and(|rows| rows < at.config.min_rows)
    {
        return false;
    }
    let factors: &[f64] = match inputs.are_estimated() {
        true => &[1.0],
        false => &[1.0, GUESS],
    };
    factors.iter().all(|factor| {
        let rows = InputRows::Times(*factor);
        let prices = fragment.reentry_prices(at.tables, at.cores, rows);
        prices.device.ms * MARGIN < prices.cpu
    })
}
