//! How the rows of a subquery and the values around it meet.

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection,
};

use super::super::Made;
use super::super::push::{Push, filtered, is_outer};
use super::super::scope::{free, has_outer, refers};
use super::super::values::replaced;

/// How the rows of a subquery and the values around it meet.
pub(super) struct Meeting {
    /// The rows, under their own conditions.
    pub(super) rows: LogicalPlan,
    /// The columns that the subquery has of them, and what these are.
    pub(super) outputs: Vec<(Column, Expr)>,
    /// Values of the rows, and those around that equal them.
    pub(super) keys: Vec<(Expr, Expr)>,
    /// Comparisons that are no equalities.
    pub(super) ranges: Vec<Range>,
}

/// A value of a row below that lies on one side of a value around.
#[derive(Clone)]
pub(super) struct Range {
    pub(super) below: Expr,
    pub(super) op: Operator,
    pub(super) around: Expr,
}

impl Range {
    /// Are the rows chosen those up to a value, and not those from there?
    pub(super) fn is_up_to(&self) -> bool {
        matches!(self.op, Operator::Lt | Operator::LtEq)
    }

    /// Do rows of the value itself belong to them?
    pub(super) fn is_inclusive(&self) -> bool {
        matches!(self.op, Operator::LtEq | Operator::GtEq)
    }
}

impl Push<'_> {
    /// How the rows of a plan meet the values around, if by equalities and comparisons alone.
    pub(super) fn meeting(&self, plan: &LogicalPlan) -> Made<Option<Meeting>> {
        let outer = &self.outer.columns;
        // What a query further out has is not known here.
        if !free(plan)?.iter().all(|column| outer.contains(column)) {
            return Ok(None);
        }
        let Some((rows, outputs, conditions)) = opened(plan, outer)? else {
            return Ok(None);
        };
        let (mut own, mut keys, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for condition in conditions {
            if !has_outer(&condition, outer)? {
                own.push(condition);
                continue;
            }
            let Some(range) = range_of(&condition) else {
                return Ok(None);
            };
            let data_type = range.below.get_type(rows.schema())?;
            let same = range.around.get_type(rows.schema())? == data_type;
            if !same || range.below.is_volatile() || range.around.is_volatile() {
                return Ok(None);
            }
            match range.op {
                Operator::Eq if has_one_form(&data_type) => keys.push((range.below, range.around)),
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                    if has_one_form(&data_type) =>
                {
                    ranges.push(range);
                }
                _ => return Ok(None),
            }
        }
        let there = keys.iter().map(|(below, _)| below);
        let there = there.chain(ranges.iter().map(|range| &range.below));
        own.extend(there.map(|below| below.clone().is_not_null()));
        let rows = match conjunction(own) {
            Some(own) => filtered(rows, own)?,
            None => rows,
        };
        Ok(Some(Meeting {
            rows,
            outputs,
            keys,
            ranges,
        }))
    }

    /// Whether a row meets no outer value that is NULL: comparisons leave none.
    pub(super) fn meets_no_null(&self, meeting: &Meeting) -> bool {
        let keys = meeting.keys.iter().map(|(_, around)| around);
        let around: Vec<&Expr> = keys
            .chain(meeting.ranges.iter().map(|range| &range.around))
            .collect();
        let mut columns = self.outer.columns.iter();
        self.outer.known
            || columns.all(|column| around.iter().any(|around| is_outer(around, column)))
    }
}

impl Meeting {
    /// An expression over the plan as one over the rows.
    pub(super) fn over_rows(&self, expr: Expr) -> Made<Expr> {
        over(expr, &self.outputs)
    }
}

type Opened = (LogicalPlan, Vec<(Column, Expr)>, Vec<Expr>);

/// A plan as columns of rows that do not depend on values around, under conditions that may.
fn opened(plan: &LogicalPlan, outer: &[Column]) -> Made<Option<Opened>> {
    if !refers(plan, outer)? {
        return Ok(Some((plan.clone(), own(plan), vec![])));
    }
    Ok(match plan {
        LogicalPlan::Subquery(subquery) => opened(&subquery.subquery, outer)?,
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((rows, outputs, conditions)) = opened(&alias.input, outer)? else {
                return Ok(None);
            };
            let names = alias.schema.columns().into_iter();
            let outputs = names.zip(outputs.into_iter().map(|(_, expr)| expr));
            Some((rows, outputs.collect(), conditions))
        }
        LogicalPlan::Projection(projection) => {
            let Some((rows, below, conditions)) = opened(&projection.input, outer)? else {
                return Ok(None);
            };
            let Some(outputs) = projected(projection, &below)? else {
                return Ok(None);
            };
            Some((rows, outputs, conditions))
        }
        LogicalPlan::Filter(filter) => {
            let Some((rows, outputs, mut conditions)) = opened(&filter.input, outer)? else {
                return Ok(None);
            };
            for condition in split_conjunction(&filter.predicate) {
                if condition.is_volatile() {
                    return Ok(None);
                }
                match over(condition.clone(), &outputs)? {
                    Expr::Between(between) if !between.negated => {
                        let value = *between.expr;
                        conditions.push(value.clone().gt_eq(*between.low));
                        conditions.push(value.lt_eq(*between.high));
                    }
                    condition => conditions.push(condition),
                }
            }
            Some((rows, outputs, conditions))
        }
        _ => None,
    })
}

/// An expression over columns as one over what they are.
pub(super) fn over(expr: Expr, outputs: &[(Column, Expr)]) -> Made<Expr> {
    replaced(expr, |column| {
        let (_, expr) = outputs.iter().find(|(known, _)| known == column)?;
        Some(expr.clone())
    })
}

/// A comparison of something below with something around.
fn range_of(condition: &Expr) -> Option<Range> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return None;
    };
    let is_below = |expr: &Expr| !expr.contains_outer() && expr.any_column_refs();
    let is_around = |expr: &Expr| expr.contains_outer() && !expr.any_column_refs();
    let (below, op, around) = if is_below(left) && is_around(right) {
        (left, *op, right)
    } else if is_around(left) && is_below(right) {
        (right, op.swap()?, left)
    } else {
        return None;
    };
    Some(Range {
        below: below.as_ref().clone(),
        op,
        around: around.as_ref().clone(),
    })
}

/// Are values that compare as equal one in an order, and among keys? The two zeros of floats are not.
fn has_one_form(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_decimal()
        || data_type.is_string()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(_, _)
                | DataType::Duration(_)
        )
}

/// The columns of a plan as what they are.
pub(super) fn own(plan: &LogicalPlan) -> Vec<(Column, Expr)> {
    let columns = plan.schema().columns().into_iter();
    columns
        .map(|column| (column.clone(), Expr::Column(column)))
        .collect()
}

/// The columns of a projection by those of what `below` says of its input; `None` where they depend on more.
pub(super) fn projected(
    projection: &Projection,
    below: &[(Column, Expr)],
) -> Made<Option<Vec<(Column, Expr)>>> {
    let mut outputs = Vec::with_capacity(projection.expr.len());
    for (column, expr) in projection
        .schema
        .columns()
        .into_iter()
        .zip(&projection.expr)
    {
        let expr = expr.clone().unalias();
        if expr.contains_outer() || expr.is_volatile() {
            return Ok(None);
        }
        outputs.push((column, over(expr, below)?));
    }
    Ok(Some(outputs))
}
