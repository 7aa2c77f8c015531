//! Which correlated subqueries DataFusion turns into joins itself, and rightly.
//!
//! Its rules pull conditions up through a plan. They lose their way where a condition lies below the name of a derived table, and
//! do not see that a window, a limit or a second aggregation counts other rows once the condition is gone.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan};

use super::scope::{free, has_outer, refers, sides};

/// Whether the subquery is an aggregate of all its rows, of which equalities choose those of each outer row.
pub(super) fn scalar(plan: &LogicalPlan, outer: &[Column]) -> Result<bool> {
    Ok(aggregated(plan, outer)? && named_apart(plan, outer)?)
}

/// Whether the subquery is rows of tables under conditions: for EXISTS, and for IN.
pub(super) fn rows(plan: &LogicalPlan, outer: &[Column]) -> Result<bool> {
    Ok(selected(plan, outer)? && named_apart(plan, outer)?)
}

/// Whether no column that a condition compares with the outer row has the name of an output that is something else: they come to lie
/// side by side.
fn named_apart(plan: &LogicalPlan, outer: &[Column]) -> Result<bool> {
    let schema = plan.schema();
    let unqualified = schema.iter().filter(|(table, _)| table.is_none());
    let outputs: Vec<&str> = unqualified
        .map(|(_, field)| field.name().as_str())
        .collect();
    let mut apart = true;
    plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            for condition in split_conjunction(&filter.predicate) {
                let columns = condition.column_refs();
                let same = |column: &&Column| outputs.contains(&column.name.as_str());
                apart &= !(has_outer(condition, outer)? && columns.iter().any(same));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(apart)
}

fn aggregated(plan: &LogicalPlan, outer: &[Column]) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let own = none_has_outer(&projection.expr, outer)?;
            Ok(own && aggregated(&projection.input, outer)?)
        }
        LogicalPlan::Aggregate(aggregate) => Ok(aggregate.group_expr.is_empty()
            && none_has_outer(&aggregate.aggr_expr, outer)?
            && filtered(&aggregate.input, outer, is_key)?),
        _ => Ok(false),
    }
}

fn selected(plan: &LogicalPlan, outer: &[Column]) -> Result<bool> {
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => selected(input, outer),
        LogicalPlan::Projection(projection) => {
            let own = none_has_outer(&projection.expr, outer)?;
            Ok(own && selected(&projection.input, outer)?)
        }
        _ => filtered(plan, outer, |_| true),
    }
}

/// Rows under conditions, all outer references of which are such as `allowed` says.
fn filtered(plan: &LogicalPlan, outer: &[Column], allowed: fn(&Expr) -> bool) -> Result<bool> {
    if !refers(plan, outer)? {
        return Ok(free(plan)?.is_empty());
    }
    match plan {
        LogicalPlan::Filter(filter) => {
            for condition in split_conjunction(&filter.predicate) {
                if has_outer(condition, outer)? && !allowed(condition) {
                    return Ok(false);
                }
            }
            filtered(&filter.input, outer, allowed)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            let keys = join.on.iter().flat_map(|(left, right)| [left, right]);
            Ok(none_has_outer(keys.chain(&join.filter), outer)?
                && filtered(&join.left, outer, allowed)?
                && filtered(&join.right, outer, allowed)?)
        }
        _ => Ok(false),
    }
}

/// A column of the subquery that equals something of the outer row.
fn is_key(condition: &Expr) -> bool {
    let column = |side: &Expr| match side {
        Expr::Column(_) => true,
        Expr::Cast(cast) => matches!(*cast.expr, Expr::Column(_)),
        _ => false,
    };
    sides(condition).is_some_and(|(left, right)| {
        column(left) && !right.any_column_refs() || column(right) && !left.any_column_refs()
    })
}

fn none_has_outer<'a>(exprs: impl IntoIterator<Item = &'a Expr>, outer: &[Column]) -> Result<bool> {
    for expr in exprs {
        if has_outer(expr, outer)? {
            return Ok(false);
        }
    }
    Ok(true)
}
