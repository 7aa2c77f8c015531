//! Row-wise operators below an aggregation: what each output column is in terms of the scan.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use super::scan::{self, Scan};
use crate::reason::{Reason, refuse};
use crate::translate::MAX_NODES;

/// Rows of a scan after filters, with the columns that operators above see.
#[derive(Debug)]
pub(super) struct Rows {
    /// Where they come from.
    pub(super) scan: Scan,
    /// Each output column as an expression over the scanned table.
    pub(super) columns: Vec<Arc<dyn PhysicalExpr>>,
    /// Conjuncts over the scanned table, the lowest operator's first.
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
}

impl Rows {
    /// `expr`, over the output columns, as an expression over the scanned table.
    pub(super) fn substitute(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Arc<dyn PhysicalExpr>, Reason> {
        let nodes = self.substituted_nodes(expr)?;
        if nodes > MAX_NODES {
            return refuse(format!(
                "an expression of {nodes} nodes is too large for a kernel"
            ));
        }
        // Down, and not into what was put in: that already speaks of the table.
        let substituted = Arc::clone(expr).transform_down(|e| {
            let Some(column) = e.downcast_ref::<Column>() else {
                return Ok(Transformed::no(e));
            };
            let replacement = self
                .columns
                .get(column.index())
                .map_or(e.clone(), Arc::clone);
            Ok(Transformed::new(replacement, true, TreeNodeRecursion::Jump))
        })?;
        Ok(substituted.data)
    }

    /// Nodes that [`Self::substitute`] would make, before it makes them.
    fn substituted_nodes(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<usize, Reason> {
        let mut nodes = 0usize;
        let mut unknown = None;
        expr.apply(|e| {
            nodes = nodes.saturating_add(match e.downcast_ref::<Column>() {
                None => 1,
                Some(column) => match self.columns.get(column.index()) {
                    Some(replacement) => count(replacement)?,
                    None => {
                        unknown = Some(column.name().to_string());
                        1
                    }
                },
            });
            Ok(TreeNodeRecursion::Continue)
        })?;
        match unknown {
            None => Ok(nodes),
            Some(name) => refuse(format!("column {name} is not one of the operator's input")),
        }
    }
}

fn count(expr: &Arc<dyn PhysicalExpr>) -> datafusion::error::Result<usize> {
    let mut nodes = 0;
    expr.apply(|_| {
        nodes += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(nodes)
}

/// The rows that `plan` yields, if it is a chain of row-wise operators over a scan.
pub(super) fn rows(plan: &Arc<dyn ExecutionPlan>) -> Result<Rows, Reason> {
    if let Some(input) = pass_through(plan) {
        return rows(input);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return filtered(filter);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let mut input = rows(projection.input())?;
        input.columns = projection
            .expr()
            .iter()
            .map(|p| input.substitute(&p.expr))
            .collect::<Result<_, _>>()?;
        return Ok(input);
    }
    if plan.children().is_empty() {
        return scan::scan(plan);
    }
    let limited = if plan.fetch().is_some() {
        " with a limit"
    } else {
        ""
    };
    refuse(format!(
        "{}{limited} below the aggregation runs on the CPU",
        plan.name()
    ))
}

fn filtered(filter: &FilterExec) -> Result<Rows, Reason> {
    if filter.fetch().is_some() {
        return refuse("a limit below the aggregation runs on the CPU");
    }
    let mut input = rows(filter.input())?;
    for conjunct in split_conjunction(filter.predicate()) {
        let conjunct = input.substitute(conjunct)?;
        input.filters.push(conjunct);
    }
    if let Some(projection) = filter.projection() {
        input.columns = projection
            .iter()
            .map(|index| match input.columns.get(*index) {
                Some(column) => Ok(Arc::clone(column)),
                None => refuse("a filter projects a column that its input lacks"),
            })
            .collect::<Result<_, _>>()?;
    }
    Ok(input)
}

/// The input of an operator that changes neither rows nor columns, only their order or partitions.
pub(crate) fn pass_through(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    // Deprecated, but plans built by other rules may still hold it.
    #[expect(deprecated)]
    use datafusion::physical_plan::coalesce_batches::CoalesceBatchesExec;

    #[expect(deprecated)]
    let exchange = plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CoalesceBatchesExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<BufferExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>();
    match plan.children().as_slice() {
        [input] if exchange && plan.fetch().is_none() => Some(*input),
        _ => None,
    }
}
