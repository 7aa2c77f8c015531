//! The first row of an order that a comparison bounds: the latest one before each value around.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{
    Expr, ExprSchemable, FetchType, Join, JoinType, LogicalPlan, Projection, SkipType,
    WindowFunctionDefinition, binary_expr, when,
};
use datafusion::scalar::ScalarValue;

use super::super::domain::Outer;
use super::super::push::{Push, Pushed, filtered};
use super::super::{Made, Names, columns, last_known, named};
use super::meeting::{Range, over, own, projected};
use super::merged::Values;

/// The nearest row of each value around.
struct Nearest {
    /// All values around, each with what windows have of the rows before it.
    plan: LogicalPlan,
    /// Whether there is such a row.
    is_found: Expr,
    /// What the columns of the subquery are of it.
    outputs: Vec<(Column, Expr)>,
    values: Values,
}

/// A lateral join with the nearest row: the left side's rows themselves are put in one order with those of the right side. `None`
/// where the right side is something else.
pub(in crate::decorrelate) fn lateral_join(
    join: &Join,
    condition: Option<&Expr>,
    names: &Names,
) -> Made<Option<LogicalPlan>> {
    let Some((outputs, sorts, input)) = first_row(&join.right)? else {
        return Ok(None);
    };
    let outer = Outer::row_by_row(&join.left)?;
    let push = Push {
        outer: &outer,
        names,
    };
    let Some(nearest) = push.nearest_or_none(sorts, input)? else {
        return Ok(None);
    };
    let mut known: Vec<(Column, Expr)> = Vec::with_capacity(join.schema.fields().len());
    for (column, expr) in outputs {
        known.push((column, over(expr, &nearest.outputs)?));
    }
    let of_left = outer.columns.iter().cloned();
    known.extend(of_left.zip(columns(&nearest.values.columns)));
    let mut is_found = nearest.is_found;
    if let Some(condition) = condition {
        is_found = is_found.and(over(condition.clone(), &known)?);
    }
    let of_right = join.right.schema().columns().len();
    let (rows, exprs) = match join.join_type {
        JoinType::Inner => (filtered(nearest.plan, is_found)?, known),
        JoinType::Left => {
            let found = |(place, (column, expr)): (usize, (Column, Expr))| -> Made<_> {
                Ok(match place < of_right {
                    true => (column, when(is_found.clone(), expr).end()?),
                    false => (column, expr),
                })
            };
            let exprs = known.into_iter().enumerate().map(found);
            (nearest.plan, exprs.collect::<Made<_>>()?)
        }
        _ => return Ok(None),
    };
    let exprs = exprs.into_iter().map(|(column, expr)| named(expr, &column));
    let projection = Projection::try_new(exprs.collect(), Arc::new(rows))?;
    Ok(Some(LogicalPlan::Projection(projection)))
}

type FirstRow<'p> = (Vec<(Column, Expr)>, &'p [SortExpr], &'p LogicalPlan);

/// The columns of a plan that is the first row of an order, by those of what is ordered; the order, and that.
fn first_row(plan: &LogicalPlan) -> Made<Option<FirstRow<'_>>> {
    Ok(match plan {
        LogicalPlan::Subquery(subquery) => first_row(&subquery.subquery)?,
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((outputs, sorts, input)) = first_row(&alias.input)? else {
                return Ok(None);
            };
            let names = alias.schema.columns().into_iter();
            let outputs = names.zip(outputs.into_iter().map(|(_, expr)| expr));
            Some((outputs.collect(), sorts, input))
        }
        LogicalPlan::Projection(projection) => {
            let Some((outputs, sorts, input)) = first_row(&projection.input)? else {
                return Ok(None);
            };
            projected(projection, &outputs)?.map(|outputs| (outputs, sorts, input))
        }
        LogicalPlan::Sort(sort) if sort.fetch == Some(1) => {
            Some((own(&sort.input), &*sort.expr, sort.input.as_ref()))
        }
        LogicalPlan::Limit(limit) => {
            let (skip, fetch) = (limit.get_skip_type()?, limit.get_fetch_type()?);
            let (SkipType::Literal(0), FetchType::Literal(Some(1))) = (skip, fetch) else {
                return Ok(None);
            };
            match limit.input.as_ref() {
                LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                    Some((own(&sort.input), &*sort.expr, sort.input.as_ref()))
                }
                // The columns of a projection may be less than what its rows are ordered by.
                LogicalPlan::Projection(projection) => match projection.input.as_ref() {
                    LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                        projected(projection, &own(&sort.input))?
                            .map(|outputs| (outputs, &*sort.expr, sort.input.as_ref()))
                    }
                    _ => None,
                },
                _ => None,
            }
        }
        _ => None,
    })
}

impl Push<'_> {
    /// The first row by `sorts` of those that a comparison chooses; `None` where it does not bound what they are sorted by.
    pub(in crate::decorrelate) fn nearest(
        &mut self,
        sorts: &[SortExpr],
        input: &LogicalPlan,
    ) -> Made<Option<Pushed>> {
        let Some(nearest) = self.nearest_or_none(sorts, input)? else {
            return Ok(None);
        };
        let plan = filtered(nearest.plan, nearest.is_found)?;
        let outputs = nearest.outputs.into_iter();
        let outputs = outputs.map(|(column, value)| named(value, &column));
        self.answered(&nearest.values, plan, outputs.collect())
            .map(Some)
    }

    /// The same beside every value around, also where there is no such row.
    fn nearest_or_none(&self, sorts: &[SortExpr], input: &LogicalPlan) -> Made<Option<Nearest>> {
        let Some((first, ties)) = sorts.split_first() else {
            return Ok(None);
        };
        let Some(meeting) = self.meeting(input)? else {
            return Ok(None);
        };
        let order = meeting.over_rows(first.expr.clone())?;
        // The last up to a value comes first where the order is a descending one.
        let (towards, beyond): (Vec<&Range>, Vec<&Range>) = meeting
            .ranges
            .iter()
            .partition(|range| range.is_up_to() != first.asc);
        let [range] = *towards else {
            return Ok(None);
        };
        if meeting.ranges.iter().any(|range| range.below != order) {
            return Ok(None);
        }
        let ties = ties.iter().map(|tie| {
            let expr = meeting.over_rows(tie.expr.clone())?;
            // The last one is taken.
            Ok(expr.sort(!tie.asc, !tie.nulls_first))
        });
        let ties = ties.collect::<Made<Vec<_>>>()?;
        if ties.iter().any(|tie| tie.expr.contains_outer()) {
            return Ok(None);
        }

        let mut payload = vec![order];
        let mut places = Vec::with_capacity(meeting.outputs.len());
        for (_, expr) in &meeting.outputs {
            let schema = meeting.rows.schema();
            places.push((payload.len(), expr.nullable(schema)?));
            if !expr.nullable(schema)? {
                payload.push(expr.clone());
                continue;
            }
            // A value that is NULL must not be passed over.
            let Ok(default) = ScalarValue::new_default(&expr.get_type(schema)?) else {
                return Ok(None);
            };
            payload.push(coalesce(vec![expr.clone(), Expr::Literal(default, None)]));
            payload.push(expr.clone().is_not_null());
        }
        let first_tie = payload.len();
        payload.extend(ties.iter().map(|tie| tie.expr.clone()));
        let merged = self.merged(&meeting, range, payload)?;
        let ties: Vec<SortExpr> = ties
            .iter()
            .zip(&merged.payload[first_tie..])
            .map(|(tie, column)| Expr::Column(column.clone()).sort(tie.asc, tie.nulls_first))
            .collect();
        let calls = merged.payload[..first_tie].iter().map(|column| {
            let function = WindowFunctionDefinition::WindowUDF(last_known());
            let argument = vec![Expr::Column(column.clone())];
            merged.before(function, argument, range, ties.clone())
        });
        let calls: Vec<_> = calls.collect();
        let names = calls.iter().map(|_| self.names.next("nearest")).collect();
        let (plan, results) = self.windowed(&merged, calls, names)?;

        // A value around that is NULL comes behind all rows.
        let is_there = Expr::Column(merged.order.clone()).is_not_null();
        let mut is_found = is_there.and(Expr::Column(results[0].clone()).is_not_null());
        for range in beyond {
            let around = self.bound(&range.around, &merged.values)?;
            is_found = is_found.and(binary_expr(
                Expr::Column(results[0].clone()),
                range.op,
                around,
            ));
        }
        let mut outputs = Vec::with_capacity(places.len());
        for ((column, _), (place, nullable)) in meeting.outputs.iter().zip(places) {
            let value = Expr::Column(results[place].clone());
            let value = match nullable {
                true => when(Expr::Column(results[place + 1].clone()), value).end()?,
                false => value,
            };
            outputs.push((column.clone(), value));
        }
        Ok(Some(Nearest {
            plan: filtered(plan, merged.is_around())?,
            is_found,
            outputs,
            values: Values {
                known: self.meets_no_null(&meeting),
                columns: merged.values,
            },
        }))
    }
}
