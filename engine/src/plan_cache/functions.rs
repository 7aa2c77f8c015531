//! The functions of a query, for plans that sessions share.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{
    AggregateUDF, Expr, LogicalPlan, ScalarUDF, WindowFunctionDefinition, WindowUDF,
};

/// What the names of functions in a query stand for.
#[derive(Debug, Default)]
pub(super) struct Functions {
    scalar: Vec<Arc<ScalarUDF>>,
    aggregate: Vec<Arc<AggregateUDF>>,
    window: Vec<Arc<WindowUDF>>,
}

impl Functions {
    /// Those of a plan before it is optimised.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut found = Self::default();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    found.note(part);
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(found)
    }

    fn note(&mut self, expr: &Expr) {
        match expr {
            Expr::ScalarFunction(call) => self.scalar.push(Arc::clone(&call.func)),
            Expr::AggregateFunction(call) => self.aggregate.push(Arc::clone(&call.func)),
            Expr::WindowFunction(call) => match &call.fun {
                WindowFunctionDefinition::AggregateUDF(f) => self.aggregate.push(Arc::clone(f)),
                WindowFunctionDefinition::WindowUDF(f) => self.window.push(Arc::clone(f)),
            },
            _ => {}
        }
    }

    /// Do the names stand for these very functions in a session?
    pub(super) fn are_of(&self, state: &SessionState) -> bool {
        let is_scalar = |f: &Arc<ScalarUDF>| {
            let known = state.scalar_functions().get(f.name());
            known.is_some_and(|known| Arc::ptr_eq(known, f))
        };
        let is_aggregate = |f: &Arc<AggregateUDF>| {
            let known = state.aggregate_functions().get(f.name());
            known.is_some_and(|known| Arc::ptr_eq(known, f))
        };
        let is_window = |f: &Arc<WindowUDF>| {
            let known = state.window_functions().get(f.name());
            known.is_some_and(|known| Arc::ptr_eq(known, f))
        };
        self.scalar.iter().all(is_scalar)
            && self.aggregate.iter().all(is_aggregate)
            && self.window.iter().all(is_window)
    }
}
