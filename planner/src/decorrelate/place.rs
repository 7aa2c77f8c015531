//! The operators that have subqueries in their expressions, or a lateral join.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::logical_expr::expr::{
    Exists, InSubquery, SetComparison, SetQuantifier, Sort as SortExpr,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Filter, Join, JoinConstraint, JoinType,
    LogicalPlan, Operator, Projection, Sort, Subquery, Window,
};

use super::domain::Outer;
use super::native;
use super::push::{Push, columns, filtered};
use super::scope::{free, free_of, has_subqueries, refers, subquery};
use super::values::Rows;
use super::{Made, Names, Stop, not_distinct};

/// An operator without the subqueries that DataFusion does not make joins of.
pub(super) fn node(plan: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let lateral = match &plan {
        LogicalPlan::Join(join) => is_lateral(join)?,
        _ => false,
    };
    if !lateral && !has_subqueries(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let made = match &plan {
        LogicalPlan::Join(join) if lateral => lateral_join(join, names),
        LogicalPlan::Join(join) => join_on_subqueries(join, names),
        LogicalPlan::Filter(filter) => filter_on_subqueries(filter, names),
        LogicalPlan::Projection(projection) => project(projection, names),
        LogicalPlan::Aggregate(aggregate) => aggregated(aggregate, names),
        LogicalPlan::Window(window) => windows(window, names),
        LogicalPlan::Sort(sort) => sorted(sort, names),
        _ => Err(Stop::Not),
    };
    match made {
        Ok(Some(made)) => Ok(Transformed::yes(made)),
        Ok(None) | Err(Stop::Not) => Ok(Transformed::no(plan)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Where a subquery stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a condition, under AND and OR alone: NULL is as good as false.
    Condition,
    /// In a condition, but not so.
    Within,
    /// In a value of a projection.
    Value,
    /// In an operator for which DataFusion makes no joins.
    Elsewhere,
}

/// An expression without the subqueries that are made here.
fn value(expr: Expr, place: Place, rows: &mut Rows<'_>) -> Made<Expr> {
    if let (Place::Condition, Expr::BinaryExpr(binary)) = (place, &expr)
        && matches!(binary.op, Operator::And | Operator::Or)
    {
        let left = value(binary.left.as_ref().clone(), place, rows)?;
        let right = value(binary.right.as_ref().clone(), place, rows)?;
        let binary = BinaryExpr::new(Box::new(left), binary.op, Box::new(right));
        return Ok(Expr::BinaryExpr(binary));
    }
    let mut stopped = None;
    let top = match (place, subquery(&expr)) {
        (Place::Condition, Some(_)) => Place::Condition,
        (Place::Condition, None) => Place::Within,
        (place, _) => place,
    };
    let rewritten = expr.transform_up(|part| {
        if stopped.is_some() || subquery(&part).is_none() {
            return Ok(Transformed::no(part));
        }
        let made = match one(&part, top, rows) {
            Ok(Some(made)) if top == Place::Elsewhere => rows.computed(made).map(Some),
            made => made,
        };
        match made {
            Ok(Some(made)) => Ok(Transformed::yes(made)),
            Ok(None) => Ok(Transformed::no(part)),
            Err(stop) => {
                stopped = Some(stop);
                Ok(Transformed::no(part))
            }
        }
    })?;
    match stopped {
        Some(stop) => Err(stop),
        None => Ok(rewritten.data),
    }
}

/// The value of one subquery; `None` where DataFusion makes the join.
fn one(expr: &Expr, place: Place, rows: &mut Rows<'_>) -> Made<Option<Expr>> {
    if is_native(expr, place, rows)? {
        return Ok(None);
    }
    let made = match expr {
        Expr::ScalarSubquery(subquery) => rows.scalar(&subquery.subquery)?,
        Expr::Exists(Exists { subquery, negated }) => rows.exists(&subquery.subquery, *negated)?,
        Expr::InSubquery(InSubquery {
            expr,
            subquery,
            negated,
        }) => {
            let among = rows.any(expr, Operator::Eq, &subquery.subquery)?;
            if *negated { !among } else { among }
        }
        Expr::SetComparison(comparison) => compared(comparison, rows)?,
        _ => return Ok(None),
    };
    Ok(Some(made))
}

fn compared(comparison: &SetComparison, rows: &mut Rows<'_>) -> Made<Expr> {
    let SetComparison {
        expr,
        subquery,
        op,
        quantifier,
    } = comparison;
    Ok(match quantifier {
        SetQuantifier::Any => rows.any(expr, *op, &subquery.subquery)?,
        // All compare so where none compares otherwise.
        SetQuantifier::All => {
            let otherwise = op.negate().ok_or(Stop::Not)?;
            !rows.any(expr, otherwise, &subquery.subquery)?
        }
    })
}

fn is_native(expr: &Expr, place: Place, rows: &Rows<'_>) -> Made<bool> {
    let Some(plan) = subquery(expr) else {
        return Ok(true);
    };
    let outer = free(plan)?;
    let schema = rows.plan.schema();
    if !outer.iter().all(|column| schema.has_column(column)) {
        return Ok(false);
    }
    let in_condition = matches!(place, Place::Condition | Place::Within);
    Ok(match expr {
        Expr::ScalarSubquery(_) => {
            outer.is_empty()
                || (in_condition || place == Place::Value) && native::scalar(plan, &outer)?
        }
        Expr::Exists(_) => in_condition && (outer.is_empty() || native::rows(plan, &outer)?),
        Expr::InSubquery(InSubquery { expr, negated, .. }) => {
            let nulls = expr.nullable(schema)? || plan.schema().field(0).is_nullable();
            let place = match (negated, nulls) {
                (_, false) => in_condition,
                (false, true) => place == Place::Condition,
                (true, true) => false,
            };
            place && (outer.is_empty() || native::rows(plan, &outer)?)
        }
        _ => false,
    })
}

fn filter_on_subqueries(filter: &Filter, names: &Names) -> Made<Option<LogicalPlan>> {
    let mut rows = Rows::new(Arc::clone(&filter.input), names);
    let mut conditions = Vec::new();
    let mut changed = false;
    for condition in split_conjunction(&filter.predicate) {
        let (inner, not) = match condition {
            Expr::Not(inner) => (inner.as_ref(), true),
            condition => (condition, false),
        };
        match inner {
            Expr::Exists(Exists { subquery, negated })
                if !is_native(inner, Place::Condition, &rows)? =>
            {
                rows.keep_existing(&subquery.subquery, *negated != not)?;
                changed = true;
            }
            // DataFusion has a join that knows NULL for a column and a subquery that depends on nothing.
            Expr::InSubquery(among)
                if among.negated != not
                    && matches!(*among.expr, Expr::Column(_))
                    && free(&among.subquery.subquery)?.is_empty() =>
            {
                conditions.push(condition.clone());
            }
            Expr::InSubquery(among)
                if among.negated == not
                    && !is_native(
                        &Expr::InSubquery(InSubquery {
                            negated: false,
                            ..among.clone()
                        }),
                        Place::Condition,
                        &rows,
                    )? =>
            {
                let expr = value(among.expr.as_ref().clone(), Place::Within, &mut rows)?;
                rows.keep_among(&expr, &among.subquery.subquery)?;
                changed = true;
            }
            _ => conditions.push(value(condition.clone(), Place::Condition, &mut rows)?),
        }
    }
    if !rows.grew() && !changed {
        let predicate = conjunction(conditions).ok_or(Stop::Not)?;
        return Ok(match predicate == filter.predicate {
            true => None,
            false => Some(filtered(filter.input.as_ref().clone(), predicate)?),
        });
    }
    let plan = rows.plan.as_ref().clone();
    let plan = match conjunction(conditions) {
        Some(predicate) => filtered(plan, predicate)?,
        None => plan,
    };
    without_new(plan, &filter.input.schema().columns()).map(Some)
}

fn project(projection: &Projection, names: &Names) -> Made<Option<LogicalPlan>> {
    let node = LogicalPlan::Projection(projection.clone());
    let mut rows = Rows::new(Arc::clone(&projection.input), names);
    let exprs = renewed(&node, &projection.expr, Place::Value, &mut rows)?;
    if exprs == projection.expr {
        return Ok(None);
    }
    let projection = Projection::try_new(exprs, rows.plan)?;
    Ok(Some(LogicalPlan::Projection(projection)))
}

fn aggregated(aggregate: &Aggregate, names: &Names) -> Made<Option<LogicalPlan>> {
    let node = LogicalPlan::Aggregate(aggregate.clone());
    let mut rows = Rows::new(Arc::clone(&aggregate.input), names);
    let groups = renewed(&node, &aggregate.group_expr, Place::Elsewhere, &mut rows)?;
    let calls = renewed(&node, &aggregate.aggr_expr, Place::Elsewhere, &mut rows)?;
    if groups == aggregate.group_expr && calls == aggregate.aggr_expr {
        return Ok(None);
    }
    let aggregate = Aggregate::try_new(rows.plan, groups, calls)?;
    Ok(Some(LogicalPlan::Aggregate(aggregate)))
}

fn windows(window: &Window, names: &Names) -> Made<Option<LogicalPlan>> {
    let node = LogicalPlan::Window(window.clone());
    let mut rows = Rows::new(Arc::clone(&window.input), names);
    let calls = renewed(&node, &window.window_expr, Place::Elsewhere, &mut rows)?;
    if calls == window.window_expr {
        return Ok(None);
    }
    let made = LogicalPlan::Window(Window::try_new(calls, rows.plan)?);
    without_new(made, &window.schema.columns()).map(Some)
}

fn sorted(sort: &Sort, names: &Names) -> Made<Option<LogicalPlan>> {
    let input = with_asked(sort)?.map_or_else(|| Arc::clone(&sort.input), Arc::new);
    let mut rows = Rows::new(input, names);
    let mut keys = Vec::with_capacity(sort.expr.len());
    for key in &sort.expr {
        let expr = value(key.expr.clone(), Place::Elsewhere, &mut rows)?;
        keys.push(SortExpr {
            expr,
            ..key.clone()
        });
    }
    if keys == sort.expr {
        return Ok(None);
    }
    let made = LogicalPlan::Sort(Sort {
        expr: keys,
        input: rows.plan,
        fetch: sort.fetch,
    });
    without_new(made, &sort.input.schema().columns()).map(Some)
}

/// The projection below a sort with the columns that subqueries of its keys refer to and it leaves out.
fn with_asked(sort: &Sort) -> Made<Option<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else {
        return Ok(None);
    };
    let mut exprs = projection.expr.clone();
    for key in &sort.expr {
        for column in free_of(&key.expr, &[&sort.input])? {
            let column_expr = Expr::Column(column.clone());
            if projection.input.schema().has_column(&column) && !exprs.contains(&column_expr) {
                exprs.push(column_expr);
            }
        }
    }
    if exprs.len() == projection.expr.len() {
        return Ok(None);
    }
    let wider = Projection::try_new(exprs, Arc::clone(&projection.input))?;
    Ok(Some(LogicalPlan::Projection(wider)))
}

fn renewed(
    node: &LogicalPlan,
    exprs: &[Expr],
    place: Place,
    rows: &mut Rows<'_>,
) -> Made<Vec<Expr>> {
    let names = NamePreserver::new(node);
    let made = exprs.iter().map(|expr| {
        let name = names.save(expr);
        Ok(name.restore(value(expr.clone(), place, rows)?))
    });
    made.collect()
}

/// The columns that were there before.
fn without_new(plan: LogicalPlan, old: &[Column]) -> Made<LogicalPlan> {
    if plan.schema().columns() == old {
        return Ok(plan);
    }
    let projection = Projection::try_new(columns(old), Arc::new(plan))?;
    Ok(LogicalPlan::Projection(projection))
}

/// A join with subqueries in its condition.
fn join_on_subqueries(join: &Join, names: &Names) -> Made<Option<LogicalPlan>> {
    let equal = |(left, right): &(Expr, Expr)| match join.null_equality {
        NullEquality::NullEqualsNothing => left.clone().eq(right.clone()),
        NullEquality::NullEqualsNull => not_distinct(left.clone(), right.clone()),
    };
    let (asking, on): (Vec<_>, Vec<_>) = join
        .on
        .iter()
        .partition(|(left, right)| asks(left) || asks(right));
    let mut conditions: Vec<Expr> = asking.into_iter().map(equal).collect();
    let mut others = Vec::new();
    if let Some(filter) = &join.filter {
        for condition in split_conjunction(filter) {
            match asks(condition) {
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
    let equal = on
        .into_iter()
        .map(|(left, right)| match join.null_equality {
            NullEquality::NullEqualsNothing => left.eq(right),
            NullEquality::NullEqualsNull => not_distinct(left, right),
        });
    let all = equal.chain(others).chain(of_both);
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

fn asks(expr: &Expr) -> bool {
    expr.exists(|part| Ok(subquery(part).is_some()))
        .unwrap_or(false)
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
fn is_lateral(join: &Join) -> Result<bool> {
    let outer = free(&join.right)?;
    let schema = join.left.schema();
    Ok(outer.iter().any(|column| schema.has_column(column)))
}

fn lateral_join(join: &Join, names: &Names) -> Made<Option<LogicalPlan>> {
    let outer = free(&join.right)?;
    let simple = match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) => alias.input.as_ref(),
        plan => plan,
    };
    if let LogicalPlan::Subquery(Subquery { subquery, .. }) = simple
        && matches!(join.join_type, JoinType::Inner | JoinType::Left)
        && outer
            .iter()
            .all(|column| join.left.schema().has_column(column))
        && native::rows(subquery, &outer)?
    {
        return Ok(None);
    }
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Err(Stop::Not);
    }
    let mut conditions: Vec<Expr> = match &join.filter {
        Some(filter) => split_conjunction_owned(filter.clone()),
        None => vec![],
    };
    conditions.extend(
        join.on
            .iter()
            .cloned()
            .map(|(left, right)| match join.null_equality {
                NullEquality::NullEqualsNothing => left.eq(right),
                NullEquality::NullEqualsNull => not_distinct(left, right),
            }),
    );
    let condition = conjunction(conditions);
    if condition.as_ref().is_some_and(asks) {
        return Err(Stop::Not);
    }
    let made = beside(&join.left, &join.right, join.join_type, condition, names)?;
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
    if outer.is_empty() || !refers(right, &outer.columns)? {
        return Err(Stop::Not);
    }
    let mut push = Push {
        outer: &outer,
        names,
    };
    let pushed = push.push(right)?;
    let on = outer.same(&outer.columns, &pushed.values, pushed.known)?;
    let join = Join::try_new(
        Arc::clone(left),
        Arc::new(pushed.plan),
        on,
        condition,
        join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}
