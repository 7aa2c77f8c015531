//! Which columns of outer queries a plan refers to.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

/// The plan of a subquery, where an expression is one.
pub(super) fn subquery(expr: &Expr) -> Option<&Arc<LogicalPlan>> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(&subquery.subquery),
        _ => None,
    }
}

/// Whether an expression is, or has, a subquery.
pub(super) fn is_asking(expr: &Expr) -> bool {
    expr.exists(|part| Ok(subquery(part).is_some()))
        .unwrap_or(false)
}

/// Whether an expression of a node is, or has, a subquery.
pub(super) fn has_subqueries(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= is_asking(expr);
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// Outer references that nothing in the plan resolves, each once, in the order in which they are met.
///
/// A name is that of the nearest query around it, as SQL has it.
pub(super) fn free(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    collect(plan, &mut found)?;
    Ok(found)
}

/// As [`free`], of an expression over the rows of `inputs`.
pub(super) fn free_of(expr: &Expr, inputs: &[&LogicalPlan]) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    collect_of(expr, inputs, &mut found)?;
    Ok(found)
}

/// Whether a plan refers to one of `columns` of an outer query.
pub(super) fn refers(plan: &LogicalPlan, columns: &[Column]) -> Result<bool> {
    Ok(free(plan)?.iter().any(|column| columns.contains(column)))
}

/// Whether an expression has one of `columns` of an outer query. Its subqueries are not looked into.
pub(super) fn has_outer(expr: &Expr, columns: &[Column]) -> Result<bool> {
    expr.exists(|part| {
        Ok(matches!(part, Expr::OuterReferenceColumn(_, column) if columns.contains(column)))
    })
}

/// The sides of an equality.
pub(super) fn sides(condition: &Expr) -> Option<(&Expr, &Expr)> {
    match condition {
        Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
            Some((&binary.left, &binary.right))
        }
        _ => None,
    }
}

/// The expression with columns of an outer query, `from`, as columns of its own input, `to`.
pub(super) fn bound(expr: Expr, from: &[Column], to: &[Column]) -> Result<Expr> {
    let rewritten = expr.transform_up(|part| {
        let Expr::OuterReferenceColumn(_, column) = &part else {
            return Ok(Transformed::no(part));
        };
        let place = from.iter().position(|outer| outer == column);
        Ok(match place.and_then(|place| to.get(place)) {
            Some(column) => Transformed::yes(Expr::Column(column.clone())),
            None => Transformed::no(part),
        })
    })?;
    Ok(rewritten.data)
}

fn collect(plan: &LogicalPlan, found: &mut Vec<Column>) -> Result<()> {
    let inputs = plan.inputs();
    plan.apply_expressions(|expr| {
        collect_of(expr, &inputs, found)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if let LogicalPlan::Join(join) = plan {
        collect(&join.left, found)?;
        // A lateral join: its right side refers to the left one.
        let schema = join.left.schema();
        let outer = free(&join.right)?;
        add(
            outer
                .into_iter()
                .filter(|column| !schema.has_column(column)),
            found,
        );
        return Ok(());
    }
    for input in inputs {
        collect(input, found)?;
    }
    Ok(())
}

fn collect_of(expr: &Expr, inputs: &[&LogicalPlan], found: &mut Vec<Column>) -> Result<()> {
    expr.apply(|part| {
        if let Expr::OuterReferenceColumn(_, column) = part {
            add([column.clone()], found);
        }
        if let Some(plan) = subquery(part) {
            let own =
                |column: &Column| inputs.iter().any(|input| input.schema().has_column(column));
            add(free(plan)?.into_iter().filter(|column| !own(column)), found);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn add(columns: impl IntoIterator<Item = Column>, found: &mut Vec<Column>) {
    for column in columns {
        if !found.contains(&column) {
            found.push(column);
        }
    }
}
