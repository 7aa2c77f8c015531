//! What the encoding of plans for other machines leaves out, without an error of its own.
//!
//! `datafusion-proto` 55 writes of a window function neither the `FILTER` of an aggregate, nor `IGNORE NULLS` and the direction
//! of `first_value`, `lag` and their like. The plan that is read on the other side has other answers.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

/// The first window function of `plan` that would not arrive as it is, and why.
pub(crate) fn lost_in_encoding(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<String>> {
    let mut lost = None;
    plan.apply(|node| {
        let window = node.downcast_ref::<WindowAggExec>();
        let bounded = node.downcast_ref::<BoundedWindowAggExec>();
        let exprs = match (window, bounded) {
            (Some(window), _) => window.window_expr(),
            (_, Some(bounded)) => bounded.window_expr(),
            _ => &[],
        };
        lost = exprs.iter().find_map(lost_of);
        Ok(match lost {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(lost)
}

fn lost_of(expr: &Arc<dyn WindowExpr>) -> Option<String> {
    // None of the three is part of the interface.
    let described = format!("{expr:?}");
    let what = [
        ("filter: Some(", "the FILTER"),
        ("ignore_nulls: true", "IGNORE NULLS"),
        ("is_reversed: true", "the direction"),
    ];
    let (_, what) = what
        .into_iter()
        .find(|(sign, _)| described.contains(sign))?;
    Some(format!(
        "DataFusion's encoding of plans leaves out {what} of {}",
        expr.name()
    ))
}
