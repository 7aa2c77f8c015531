//! Lateral joins whose right side makes its rows of one row of the left side: a list that is taken apart, VALUES, what is computed.
//!
//! Each operator of such a side has the columns of the left row among its own. Nothing is asked for distinct values, and nothing
//! joined: `FROM t, unnest(t.list)` is `t` with its list taken apart.

use std::sync::Arc;

use datafusion::common::NullHandling;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{
    Expr, Join, JoinType, LogicalPlan, Projection, SubqueryAlias, Unnest,
};

use super::domain::Outer;
use super::push::{Push, filtered};
use super::{Made, Names, columns, named};

/// A lateral join on `condition` without one, if its right side is of that kind.
pub(super) fn lateral_join(
    join: &Join,
    condition: Option<&Expr>,
    names: &Names,
) -> Made<Option<LogicalPlan>> {
    let right = match join.join_type {
        JoinType::Inner if is_row_wise(&join.right) => LogicalPlan::clone(&join.right),
        JoinType::Left if condition.is_none() && has_rows(&join.right) => {
            LogicalPlan::clone(&join.right)
        }
        JoinType::Left if condition.is_none() && makes_one_list(&join.right) => {
            preserving(LogicalPlan::clone(&join.right))?
        }
        _ => return Ok(None),
    };
    let outer = Outer::row_by_row(&join.left)?;
    let mut push = Push {
        outer: &outer,
        names,
    };
    let pushed = push.push(&right)?;
    let left = pushed.values.into_iter().map(Expr::Column);
    let left = left.zip(&outer.columns);
    let mut exprs: Vec<Expr> = left.map(|(value, column)| named(value, column)).collect();
    exprs.extend(columns(&right.schema().columns()));
    let rows = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(pushed.plan))?);
    Ok(Some(match condition {
        Some(condition) => filtered(rows, condition.clone())?,
        None => rows,
    }))
}

/// Comes each row of the plan of a row around it alone?
fn is_row_wise(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => {
            empty.produce_one_row && empty.schema.fields().is_empty()
        }
        LogicalPlan::Values(_) => true,
        LogicalPlan::Subquery(subquery) => is_row_wise(&subquery.subquery),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
        | LogicalPlan::Unnest(Unnest { input, .. }) => is_row_wise(input),
        LogicalPlan::Projection(projection) => is_row_wise(&projection.input),
        LogicalPlan::Filter(filter) => is_row_wise(&filter.input),
        _ => false,
    }
}

/// Has a plan that is row-wise a row, whatever the row around it is?
fn has_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => is_row_wise(plan),
        LogicalPlan::Subquery(subquery) => has_rows(&subquery.subquery),
        LogicalPlan::SubqueryAlias(alias) => has_rows(&alias.input),
        LogicalPlan::Projection(projection) => has_rows(&projection.input),
        _ => false,
    }
}

/// Are the plan's rows the elements of one list, and nothing that is computed of them?
fn makes_one_list(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(subquery) => makes_one_list(&subquery.subquery),
        LogicalPlan::SubqueryAlias(alias) => makes_one_list(&alias.input),
        LogicalPlan::Projection(projection) => {
            let is_column =
                |expr: &Expr| matches!(expr.clone().unalias_nested().data, Expr::Column(_));
            projection.expr.iter().all(is_column) && makes_one_list(&projection.input)
        }
        LogicalPlan::Unnest(unnest) => {
            let one = unnest.list_type_columns.len() == 1 && unnest.struct_type_columns.is_empty();
            let below = unnest.input.as_ref();
            one && matches!(below, LogicalPlan::Projection(below)
                if matches!(below.input.as_ref(), LogicalPlan::EmptyRelation(_)))
                && is_row_wise(below)
        }
        _ => false,
    }
}

/// The same with a row of NULL for a list without elements.
fn preserving(plan: LogicalPlan) -> Made<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Unnest(mut unnest) = node else {
            return Ok(Transformed::no(node));
        };
        unnest.options.null_handling = NullHandling::PreserveAndExpandEmpty;
        Ok(Transformed::yes(LogicalPlan::Unnest(unnest)))
    })?;
    Ok(changed.data)
}
