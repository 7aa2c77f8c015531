//! Selectivity of conditions: the share of rows that pass.

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};

use super::{ColumnEstimate, Estimate, of_expr};

/// A comparison without statistics (a third, as usual).
const UNKNOWN: f64 = 1.0 / 3.0;
/// A pattern match on strings.
const LIKE: f64 = 0.1;
/// Distinct values of a function of strings.
const FEW: f64 = 30.0;

/// The share of `input` for which `expr` is true.
pub(super) fn selectivity(expr: &Expr, input: &Estimate) -> f64 {
    let share = match &expr.node {
        Node::Literal(ScalarValue::Boolean(Some(true))) => 1.0,
        Node::Literal(_) => 0.0,
        Node::Column(_) => 0.5,
        Node::Not(e) => 1.0 - selectivity(e, input),
        Node::IsNull(e) => of_expr(e, input).nulls,
        Node::IsNotNull(e) => 1.0 - of_expr(e, input).nulls,
        Node::InList {
            value,
            list,
            negated,
        } => {
            let hit = (list.len() as f64 / of_expr(value, input).distinct).min(1.0);
            if *negated { 1.0 - hit } else { hit }
        }
        Node::Binary { op, left, right } => binary(*op, left, right, input),
        Node::PerDistinct { column, function } => {
            let distinct = input.columns.get(*column).map_or(100.0, |c| c.distinct);
            of_string(function, distinct)
        }
        _ => UNKNOWN,
    };
    share.clamp(0.0, 1.0)
}

/// The share of `input` for which all conditions are true, and `input` with the ranges that they leave.
///
/// Each is of what the ones before leave: both ends of a range are on one column.
pub(super) fn of_all<'a>(
    conjuncts: impl IntoIterator<Item = &'a Expr>,
    input: &Estimate,
) -> (f64, Estimate) {
    let mut rest = input.clone();
    let mut share = 1.0;
    for conjunct in conjuncts {
        share *= selectivity(conjunct, &rest);
        narrow(conjunct, &mut rest.columns);
    }
    (share, rest)
}

fn binary(op: BinaryOp, left: &Expr, right: &Expr, input: &Estimate) -> f64 {
    match op {
        BinaryOp::And => of_all([left, right], input).0,
        BinaryOp::Or => {
            let (a, b) = (selectivity(left, input), selectivity(right, input));
            a + b - a * b
        }
        BinaryOp::Eq | BinaryOp::IsNotDistinctFrom | BinaryOp::NotEq | BinaryOp::IsDistinctFrom => {
            let (l, r) = (of_expr(left, input), of_expr(right, input));
            let equal = 1.0 / l.distinct.max(r.distinct).max(1.0);
            let outside = |c: &ColumnEstimate, e: &Expr| match (c.range, constant(e)) {
                (Some((low, high)), Some(value)) => value < low || value > high,
                _ => false,
            };
            let equal = if outside(&l, right) || outside(&r, left) {
                0.0
            } else {
                equal
            };
            if matches!(op, BinaryOp::Eq | BinaryOp::IsNotDistinctFrom) {
                equal
            } else {
                1.0 - equal
            }
        }
        BinaryOp::Lt | BinaryOp::LtEq => below(left, right, input),
        BinaryOp::Gt | BinaryOp::GtEq => below(right, left, input),
        _ => UNKNOWN,
    }
}

/// The share of rows with `left < right`, one of which should be a constant.
fn below(left: &Expr, right: &Expr, input: &Estimate) -> f64 {
    let share = |range: Option<(f64, f64)>, value: Option<f64>| {
        let ((low, high), value) = (range?, value?);
        Some(if high > low {
            ((value - low) / (high - low)).clamp(0.0, 1.0)
        } else if value > low {
            1.0
        } else {
            0.0
        })
    };
    if let Some(share) = share(of_expr(left, input).range, constant(right)) {
        return share;
    }
    if let Some(share) = share(of_expr(right, input).range, constant(left)) {
        return 1.0 - share;
    }
    // Sums of groups are taken to be exponential: few are several times the mean.
    let over = |mean: Option<f64>, value: Option<f64>| {
        let (mean, value) = (mean?, value?);
        (mean > 0.0 && value >= 0.0).then(|| (-value / mean).exp())
    };
    if let Some(over) = over(of_expr(left, input).mean, constant(right)) {
        return 1.0 - over;
    }
    if let Some(over) = over(of_expr(right, input).mean, constant(left)) {
        return over;
    }
    let computed = |e: &Expr| !matches!(e.node, Node::Column(_) | Node::Literal(_));
    if computed(left) || computed(right) {
        return UNKNOWN;
    }
    0.5
}

/// The number that a constant is in a column's range.
fn constant(expr: &Expr) -> Option<f64> {
    match &expr.node {
        Node::Literal(value) => number(value),
        _ => None,
    }
}

/// The number that the device has for a constant of a number, a date or a time.
pub(super) fn number(value: &ScalarValue) -> Option<f64> {
    Some(match value {
        ScalarValue::Float32(v) => f64::from((*v)?),
        ScalarValue::Float64(v) => (*v)?,
        ScalarValue::Boolean(v) => f64::from(u8::from((*v)?)),
        ScalarValue::Int8(v) => f64::from((*v)?),
        ScalarValue::Int16(v) => f64::from((*v)?),
        ScalarValue::Int32(v) | ScalarValue::Date32(v) => f64::from((*v)?),
        ScalarValue::Time32Second(v) | ScalarValue::Time32Millisecond(v) => f64::from((*v)?),
        ScalarValue::Int64(v)
        | ScalarValue::Date64(v)
        | ScalarValue::Time64Microsecond(v)
        | ScalarValue::Time64Nanosecond(v) => (*v)? as f64,
        ScalarValue::UInt8(v) => f64::from((*v)?),
        ScalarValue::UInt16(v) => f64::from((*v)?),
        ScalarValue::UInt32(v) => f64::from((*v)?),
        ScalarValue::UInt64(v) => (*v)? as f64,
        ScalarValue::Decimal32(v, ..) => f64::from((*v)?),
        ScalarValue::Decimal64(v, ..) => (*v)? as f64,
        ScalarValue::Decimal128(v, ..) => (*v)? as f64,
        ScalarValue::TimestampSecond(v, _)
        | ScalarValue::TimestampMillisecond(v, _)
        | ScalarValue::TimestampMicrosecond(v, _)
        | ScalarValue::TimestampNanosecond(v, _) => (*v)? as f64,
        _ => return None,
    })
}

/// Narrow the ranges of the columns that `conjunct` compares with constants.
pub(super) fn narrow(conjunct: &Expr, columns: &mut [ColumnEstimate]) {
    let Node::Binary { op, left, right } = &conjunct.node else {
        return;
    };
    let (column, value, op) = match (&left.node, constant(right), &right.node, constant(left)) {
        (Node::Column(c), Some(v), ..) => (*c, v, *op),
        (_, _, Node::Column(c), Some(v)) => {
            let mirrored = match op {
                BinaryOp::Lt => BinaryOp::Gt,
                BinaryOp::LtEq => BinaryOp::GtEq,
                BinaryOp::Gt => BinaryOp::Lt,
                BinaryOp::GtEq => BinaryOp::LtEq,
                same => *same,
            };
            (*c, v, mirrored)
        }
        _ => return,
    };
    let Some(column) = columns.get_mut(column) else {
        return;
    };
    let Some((low, high)) = column.range else {
        return;
    };
    let (new_low, new_high) = match op {
        BinaryOp::Eq => (value, value),
        BinaryOp::Lt | BinaryOp::LtEq => (low, high.min(value)),
        BinaryOp::Gt | BinaryOp::GtEq => (low.max(value), high),
        _ => return,
    };
    if new_high < new_low {
        return;
    }
    let kept = (new_high - new_low + 1.0) / (high - low + 1.0);
    column.distinct = (column.distinct * kept).max(1.0);
    column.range = Some((new_low, new_high));
}

/// The share of `distinct` strings for which a condition over them is true.
fn of_string(function: &Arc<dyn PhysicalExpr>, distinct: f64) -> f64 {
    // Functions of the strings have fewer values, nobody knows how many.
    let computed = |e: &Arc<dyn PhysicalExpr>| !e.is::<Column>() && !e.is::<Literal>();
    let few = |e: &Arc<dyn PhysicalExpr>| {
        if computed(e) {
            distinct.min(FEW)
        } else {
            distinct
        }
    };
    let share = if let Some(e) = function.downcast_ref::<BinaryExpr>() {
        let of = |e: &Arc<dyn PhysicalExpr>| of_string(e, distinct);
        match e.op() {
            Operator::And => of(e.left()) * of(e.right()),
            Operator::Or => of(e.left()) + of(e.right()) - of(e.left()) * of(e.right()),
            Operator::Eq => 1.0 / few(e.left()).min(few(e.right())),
            Operator::NotEq => 1.0 - 1.0 / few(e.left()).min(few(e.right())),
            Operator::NotLikeMatch | Operator::NotILikeMatch => 1.0 - LIKE,
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => UNKNOWN,
            _ => LIKE,
        }
    } else if let Some(e) = function.downcast_ref::<InListExpr>() {
        let hit = (e.list().len() as f64 / few(e.expr())).min(1.0);
        if e.negated() { 1.0 - hit } else { hit }
    } else if let Some(e) = function.downcast_ref::<LikeExpr>() {
        if e.negated() { 1.0 - LIKE } else { LIKE }
    } else if let Some(e) = function.downcast_ref::<NotExpr>() {
        1.0 - of_string(e.arg(), distinct)
    } else if function.is::<IsNullExpr>() {
        0.01
    } else if function.is::<IsNotNullExpr>() {
        0.99
    } else {
        LIKE
    };
    share.clamp(0.0, 1.0)
}
