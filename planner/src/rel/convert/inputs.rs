//! The parts of a plan that the CPU computes below a fragment.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, StatisticsArgs, StatisticsContext,
};
use warpline_gpu::tables::{InputExec, ResidentExec, SealedScanExec};

use super::scan::is_constant;

/// Plans whose rows the CPU computes and a fragment above them reads, by number; none of them is below another.
#[derive(Debug, Default, Clone)]
pub struct Inputs(Vec<Input>);

#[derive(Debug, Clone)]
struct Input {
    plan: Arc<dyn ExecutionPlan>,
    rows: ExpectedRows,
}

/// How many rows a plan yields, as far as anybody knows before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExpectedRows {
    /// About so many.
    pub rows: usize,
    /// By DataFusion's statistics; else it is a guess by what the plan reads.
    pub estimated: bool,
}

impl Inputs {
    /// None: the fragment reads tables alone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is `plan` one of them?
    pub fn contains(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        self.0.iter().any(|input| Arc::ptr_eq(&input.plan, plan))
    }

    /// The CPU computes `plan`, and with it all inputs below.
    pub fn add(&mut self, plan: Arc<dyn ExecutionPlan>) {
        self.0.retain(|input| !is_below(&plan, &input.plan));
        let rows = expected_rows(&plan);
        self.0.push(Input { plan, rows });
    }

    /// The plans.
    pub fn plans(&self) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
        self.0.iter().map(|input| &input.plan)
    }

    /// Are all of them in `plan`?
    pub fn are_below(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        self.plans().all(|input| is_below(plan, input))
    }

    /// Are the rows of all of them estimated, rather than guessed?
    pub fn are_estimated(&self) -> bool {
        self.0.iter().all(|input| input.rows.estimated)
    }

    /// What stands for `plan` in the plan of a fragment, when it is one of them.
    pub fn leaf(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut inputs = self.0.iter().enumerate();
        let (number, input) = inputs.find(|(_, input)| Arc::ptr_eq(&input.plan, plan))?;
        let leaf = InputExec::new(number, &input.plan, Some(input.rows.rows));
        Some(Arc::new(leaf))
    }
}

/// The leaves below `plan` that are operators of somebody else's: an exchange's reader and the working table of a recursive query
/// yield their rows once, so they are kept for whoever reads them again.
pub(crate) fn arrivals(plan: &Arc<dyn ExecutionPlan>) -> Inputs {
    let mut inputs = Inputs::default();
    let mut below = plan.children();
    while let Some(node) = below.pop() {
        match is_arrival(node) {
            true => inputs.add(Arc::clone(node)),
            false => below.extend(node.children()),
        }
    }
    inputs
}

/// Is it a leaf of which only its owner knows whether it can be read again?
pub(crate) fn is_arrival(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let table = plan.is::<DataSourceExec>()
        || plan.is::<StreamingTableExec>()
        || plan.is::<LazyMemoryExec>()
        || plan.is::<ResidentExec>()
        || plan.is::<SealedScanExec>()
        || plan.is::<InputExec>()
        || is_constant(plan.as_ref());
    plan.children().is_empty() && !table && !plan.boundedness().is_unbounded()
}

/// Is `node` somewhere in `plan`?
fn is_below(plan: &Arc<dyn ExecutionPlan>, node: &Arc<dyn ExecutionPlan>) -> bool {
    Arc::ptr_eq(plan, node)
        || plan
            .children()
            .into_iter()
            .any(|child| is_below(child, node))
}

/// The rows of a plan by its statistics, else those of the largest plan below it.
fn expected_rows(plan: &Arc<dyn ExecutionPlan>) -> ExpectedRows {
    /// Of a leaf of which nothing is known: a series, the working table of a recursive query.
    const UNKNOWN: usize = 1000;
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    let known = statistics
        .ok()
        .and_then(|s| s.num_rows.get_value().copied());
    if let Some(rows) = known {
        return ExpectedRows {
            rows,
            estimated: true,
        };
    }
    let below = plan
        .children()
        .into_iter()
        .map(|child| expected_rows(child).rows);
    ExpectedRows {
        rows: below.max().unwrap_or(UNKNOWN),
        estimated: false,
    }
}

/// Can the CPU run `plan` by itself, without the operators above it?
pub(crate) fn stands_alone(plan: &Arc<dyn ExecutionPlan>) -> bool {
    !plan.boundedness().is_unbounded() && is_closed(plan, false)
}

/// `answered`: an operator above, within what stands alone, runs the scalar subqueries that expressions refer to. The working table of
/// a recursive query is filled from outside, wherever the operator is that reads it.
fn is_closed(plan: &Arc<dyn ExecutionPlan>, answered: bool) -> bool {
    let mut open = false;
    let visited = plan.apply_expressions(&mut |expr| {
        let subquery = expr.exists(|part| Ok(part.is::<ScalarSubqueryExpr>()))?;
        open |= subquery && !answered;
        Ok(TreeNodeRecursion::Continue)
    });
    if visited.is_err() || open {
        return false;
    }
    let answered = answered || plan.is::<ScalarSubqueryExec>();
    let mut children = plan.children().into_iter();
    children.all(|child| is_closed(child, answered))
}
