//! Lateral joins, and joins that have subqueries in their conditions.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Subquery,
};

use super::domain::Outer;
use super::native;
use super::place::{Place, filter_on_subqueries, value, without_new};
use super::push::{Push, joined};
use super::scope::{free, free_of, is_asking, subquery};
use super::values::Rows;
use super::{Made, Names, Stop, equal, ordered, row_wise};

/// A join with subqueries in its condition.
pub(super) fn join_on_subqueries(join: &Join, names: &Names) -> Made<Option<LogicalPlan>> {
    let (asking, on): (Vec<_>, Vec<_>) = join
        .on
        .iter()
        .partition(|(left, right)| is_asking(left) || is_asking(right));
    let mut conditions: Vec<Expr> = asking.into_iter().map(|pair| equal(join, pair)).collect();
    let mut others = Vec::new();
    if let Some(filter) = &join.filter {
        for condition in split_conjunction(filter) {
            match is_asking(condition) {
                true => conditions.push(condition.clone()),
                false => others.push(condition.clone()),
            }
        }
    }
    let on: Vec<(Expr, Expr)> = on.into_iter().cloned().collect();
    match join.join_type {
        JoinType::Inner => {
            let below = rejoined(join, &join.left, &join.right, on, others, JoinType::Inner)?;
            let condition = conjunction(conditions).ok_or(Stop::Not)?;
            let filter = Filter::try_new(condition, Arc::new(below))?;
            let made = filter_on_subqueries(&filter, names)?;
            Ok(Some(made.unwrap_or(LogicalPlan::Filter(filter))))
        }
        JoinType::Left => {
            let (left, right) = (&join.left, &join.right);
            left_join(join, (left, right), on, others, conditions, names).map(Some)
        }
        JoinType::Right => {
            let on = on.into_iter().map(|(left, right)| (right, left)).collect();
            let sides = (&join.right, &join.left);
            let made = left_join(join, sides, on, others, conditions, names)?;
            without_new(made, &join.schema.columns()).map(Some)
        }
        _ => Err(Stop::Not),
    }
}

/// A left join, of whose `conditions` those of the right side alone choose its rows. Subqueries of others are values of the side that
/// they refer to; where one refers to both, it is a lateral join with the rows of the right side that fulfil the condition.
fn left_join(
    join: &Join,
    (left, right): (&Arc<LogicalPlan>, &Arc<LogicalPlan>),
    on: Vec<(Expr, Expr)>,
    mut others: Vec<Expr>,
    conditions: Vec<Expr>,
    names: &Names,
) -> Made<LogicalPlan> {
    let (mut of_right, mut of_more, mut of_both) = (Vec::new(), Vec::new(), Vec::new());
    for condition in conditions {
        match lies_in(&condition, right, left)? {
            true => of_right.push(condition),
            false => of_more.push(condition),
        }
    }
    let mut chosen = right.as_ref().clone();
    if let Some(condition) = conjunction(of_right) {
        let filter = Filter::try_new(condition, Arc::clone(right))?;
        let made = filter_on_subqueries(&filter, names)?;
        chosen = made.unwrap_or(LogicalPlan::Filter(filter));
    }
    let mut sides = [
        Rows::new(Arc::clone(left), names),
        Rows::new(Arc::new(chosen), names),
    ];
    for condition in of_more {
        match of_sides(&condition, [left, right], &mut sides)? {
            Some(condition) => others.push(condition),
            None => of_both.push(condition),
        }
    }
    let [left_rows, right_rows] = sides;
    let (wider, chosen) = (left_rows.plan, right_rows.plan);
    let old = [left.schema().columns(), right.schema().columns()].concat();
    if of_both.is_empty() {
        let made = rejoined(join, &wider, &chosen, on, others, JoinType::Left)?;
        return without_new(made, &old);
    }
    let equalities = on.iter().map(|pair| equal(join, pair));
    let all = equalities.chain(others).chain(of_both);
    let outside = |expr: Expr| to_outside(expr, &wider, &chosen);
    let all = all.map(outside).collect::<Made<Vec<_>>>()?;
    let condition = conjunction(all).ok_or(Stop::Not)?;
    let filter = Filter::try_new(condition, chosen)?;
    let inside = filter_on_subqueries(&filter, names)?;
    let inside = inside.unwrap_or(LogicalPlan::Filter(filter));
    let made = beside(&wider, &inside, JoinType::Left, None, names)?;
    without_new(made, &old)
}

/// A condition with its subqueries as values of the sides that they refer to; `None` where one refers to both.
fn of_sides(
    condition: &Expr,
    [left, right]: [&LogicalPlan; 2],
    sides: &mut [Rows<'_>; 2],
) -> Made<Option<Expr>> {
    let mut subqueries = Vec::new();
    condition.apply(|part| {
        if subquery(part).is_none() {
            return Ok(TreeNodeRecursion::Continue);
        }
        subqueries.push(part.clone());
        Ok(TreeNodeRecursion::Jump)
    })?;
    let mut made = Vec::with_capacity(subqueries.len());
    for part in subqueries {
        let side = match (lies_in(&part, left, right)?, lies_in(&part, right, left)?) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => return Ok(None),
        };
        made.push(value(part, Place::Elsewhere, &mut sides[side])?);
    }
    let mut made = made.into_iter();
    let rewritten = condition.clone().transform_down(|part| {
        if subquery(&part).is_none() {
            return Ok(Transformed::no(part));
        }
        let value = made.next().unwrap_or(part);
        Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
    })?;
    Ok(Some(rewritten.data))
}

/// Whether what an expression and its subqueries refer to of two sides is all of the one.
fn lies_in(expr: &Expr, one: &LogicalPlan, other: &LogicalPlan) -> Made<bool> {
    let mut used: Vec<Column> = expr.column_refs().into_iter().cloned().collect();
    used.extend(free_of(expr, &[])?);
    let in_one = |column: &Column| one.schema().has_column(column);
    Ok(used
        .iter()
        .all(|column| in_one(column) || !other.schema().has_column(column)))
}

/// A condition of two sides as one over the right side, to which the left one is outside.
fn to_outside(expr: Expr, left: &LogicalPlan, right: &LogicalPlan) -> Made<Expr> {
    let rewritten = expr.transform_up(|part| {
        let Expr::Column(column) = &part else {
            return Ok(Transformed::no(part));
        };
        if right.schema().has_column(column) || !left.schema().has_column(column) {
            return Ok(Transformed::no(part));
        }
        let field = Arc::clone(left.schema().field_from_column(column)?);
        let outside = Expr::OuterReferenceColumn(field, column.clone());
        Ok(Transformed::yes(outside))
    })?;
    Ok(rewritten.data)
}

fn rejoined(
    join: &Join,
    left: &Arc<LogicalPlan>,
    right: &Arc<LogicalPlan>,
    on: Vec<(Expr, Expr)>,
    others: Vec<Expr>,
    join_type: JoinType,
) -> Made<LogicalPlan> {
    let join = Join::try_new(
        Arc::clone(left),
        Arc::clone(right),
        on,
        conjunction(others),
        join_type,
        JoinConstraint::On,
        join.null_equality,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}

/// Whether the right side of a join refers to the left one.
pub(super) fn is_lateral(join: &Join) -> Result<bool> {
    let outer = free(&join.right)?;
    let schema = join.left.schema();
    Ok(outer.iter().any(|column| schema.has_column(column)))
}

/// A lateral join as a join; `None` where DataFusion makes it.
pub(super) fn lateral_join(join: &Join, names: &Names) -> Made<Option<LogicalPlan>> {
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Err(Stop::Not);
    }
    let outer = free(&join.right)?;
    let simple = match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) => alias.input.as_ref(),
        plan => plan,
    };
    if let LogicalPlan::Subquery(Subquery { subquery, .. }) = simple
        && outer
            .iter()
            .all(|column| join.left.schema().has_column(column))
        && native::rows(subquery, &outer)?
    {
        return Ok(None);
    }
    let mut conditions: Vec<Expr> = match &join.filter {
        Some(filter) => split_conjunction_owned(filter.clone()),
        None => vec![],
    };
    conditions.extend(join.on.iter().map(|pair| equal(join, pair)));
    let condition = conjunction(conditions);
    if condition.as_ref().is_some_and(is_asking) {
        return Err(Stop::Not);
    }
    let made = match row_wise::lateral_join(join, condition.as_ref(), names)? {
        Some(made) => Some(made),
        None => ordered::lateral_join(join, condition.as_ref(), names)?,
    };
    let made = match made {
        Some(made) => made,
        None => beside(&join.left, &join.right, join.join_type, condition, names)?,
    };
    without_new(made, &join.schema.columns()).map(Some)
}

/// The rows of the left side, each with those that the right side has for it.
fn beside(
    left: &Arc<LogicalPlan>,
    right: &LogicalPlan,
    join_type: JoinType,
    condition: Option<Expr>,
    names: &Names,
) -> Made<LogicalPlan> {
    let outer = Outer::new(left, free(right)?)?;
    if outer.is_empty() {
        return Err(Stop::Not);
    }
    let mut push = Push {
        outer: &outer,
        names,
    };
    let pushed = push.push(right)?;
    let on = outer.same(&outer.columns, &pushed.values, pushed.known)?;
    joined(
        Arc::clone(left),
        Arc::new(pushed.plan),
        join_type,
        on,
        condition,
    )
}
