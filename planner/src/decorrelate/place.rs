//! The operators that have subqueries in their expressions.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{
    Exists, InSubquery, SetComparison, SetQuantifier, Sort as SortExpr,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, DistinctOn, Expr, ExprSchemable, Filter, LogicalPlan,
    Operator, Projection, Sort, Window,
};

use super::joins::{is_lateral, join_on_subqueries, lateral_join};
use super::native;
use super::push::filtered;
use super::scope::{free, free_of, has_subqueries, subquery};
use super::values::Rows;
use super::{Made, Names, Stop, columns};

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
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct_on(distinct, names),
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
pub(super) enum Place {
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
pub(super) fn value(expr: Expr, place: Place, rows: &mut Rows<'_>) -> Made<Expr> {
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
            if outer.is_empty() && !nulls {
                return Ok(in_condition);
            }
            // Of others it has a join that knows NULL by one key alone, and a mark that does not know it.
            place == Place::Condition
                && !negated
                && (outer.is_empty() || native::rows(plan, &outer)?)
        }
        _ => false,
    })
}

/// A filter whose conditions have subqueries; `None` where DataFusion makes all joins.
pub(super) fn filter_on_subqueries(filter: &Filter, names: &Names) -> Made<Option<LogicalPlan>> {
    let mut rows = Rows::new(Arc::clone(&filter.input), names);
    let mut conditions = Vec::new();
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
            }
            _ => conditions.push(value(condition.clone(), Place::Condition, &mut rows)?),
        }
    }
    let predicate = conjunction(conditions);
    if !rows.grew() && predicate.as_ref() == Some(&filter.predicate) {
        return Ok(None);
    }
    let plan = rows.plan.as_ref().clone();
    let plan = match predicate {
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

fn distinct_on(distinct: &DistinctOn, names: &Names) -> Made<Option<LogicalPlan>> {
    let node = LogicalPlan::Distinct(Distinct::On(distinct.clone()));
    let mut rows = Rows::new(Arc::clone(&distinct.input), names);
    let outputs = renewed(&node, &distinct.select_expr, Place::Elsewhere, &mut rows)?;
    if outputs == distinct.select_expr {
        return Ok(None);
    }
    // What the schema says of names comes from the outputs, which kept theirs.
    let on = distinct.on_expr.clone();
    let made = DistinctOn::try_new(on, outputs, distinct.sort_expr.clone(), rows.plan)?;
    Ok(Some(LogicalPlan::Distinct(Distinct::On(made))))
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
pub(super) fn without_new(plan: LogicalPlan, old: &[Column]) -> Made<LogicalPlan> {
    if plan.schema().columns() == old {
        return Ok(plan);
    }
    let projection = Projection::try_new(columns(old), Arc::new(plan))?;
    Ok(LogicalPlan::Projection(projection))
}
