//! What expressions are where every column is NULL: what calls read in rows without a match.

use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, MathFunction, Node};

use crate::rel::Rel;
use crate::rel::expr::at_constant;

/// The value of `expr` over `rel` where all columns are NULL, of the type of `expr`; `None` where that takes more than looking at it.
pub(super) fn of_nulls(expr: &Expr, rel: &Rel) -> Option<ScalarValue> {
    let null = || ScalarValue::try_from(&expr.data_type).ok();
    let of = |expr: &Expr| of_nulls(expr, rel);
    let strict = |operands: &[&Expr]| {
        let values: Option<Vec<_>> = operands.iter().map(|e| of(e)).collect();
        let missing = values?.iter().any(ScalarValue::is_null);
        missing.then(null).flatten()
    };
    match &expr.node {
        Node::Column(_) => null(),
        Node::Literal(value) => Some(value.clone()),
        Node::Binary { op, left, right } => match op {
            BinaryOp::And => logic(of(left), of(right), false),
            BinaryOp::Or => logic(of(left), of(right), true),
            BinaryOp::IsDistinctFrom | BinaryOp::IsNotDistinctFrom | BinaryOp::TotalEq => None,
            _ => strict(&[left.as_ref(), right.as_ref()])
                .or_else(|| compared(*op, &of(left)?, &of(right)?)),
        },
        Node::Not(value) => match of(value)? {
            ScalarValue::Boolean(truth) => Some(ScalarValue::Boolean(truth.map(|truth| !truth))),
            _ => None,
        },
        Node::IsNull(value) => Some(ScalarValue::from(of(value)?.is_null())),
        Node::IsNotNull(value) => Some(ScalarValue::from(!of(value)?.is_null())),
        Node::Cast { value, .. } => of(value)?.cast_to(&expr.data_type).ok(),
        Node::Case {
            branches,
            otherwise,
        } => {
            for (condition, value) in branches {
                if of(condition)? == ScalarValue::from(true) {
                    return of(value);
                }
            }
            otherwise.as_ref().map_or_else(null, |value| of(value))
        }
        Node::Coalesce(values) => {
            for value in values {
                let value = of(value)?;
                if !value.is_null() {
                    return Some(value);
                }
            }
            null()
        }
        Node::Negate(value)
        | Node::InList { value, .. }
        | Node::DatePart { value, .. }
        | Node::Calendar { value, .. } => strict(&[value.as_ref()]),
        Node::Math {
            function,
            arguments,
        } if !matches!(function, MathFunction::Nanvl) => {
            strict(&arguments.iter().collect::<Vec<_>>())
        }
        Node::PerDistinct { column, function } => {
            let data_type = &rel.columns.get(*column)?.data_type;
            let null = ScalarValue::try_from(data_type).ok()?;
            at_constant(function, &null, data_type).ok()
        }
        Node::Math { .. } | Node::PerCombination { .. } | Node::RowNumber => None,
    }
}

/// AND, which is false where one operand is, or OR, which is true where one is.
fn logic(
    left: Option<ScalarValue>,
    right: Option<ScalarValue>,
    decides: bool,
) -> Option<ScalarValue> {
    let decisive = ScalarValue::from(decides);
    if left.as_ref() == Some(&decisive) || right.as_ref() == Some(&decisive) {
        return Some(decisive);
    }
    let (left, right) = (left?, right?);
    Some(if left.is_null() { left } else { right })
}

/// A comparison of two values that are not NULL.
fn compared(op: BinaryOp, left: &ScalarValue, right: &ScalarValue) -> Option<ScalarValue> {
    // Floats have orders of their own.
    if left.is_null() || right.is_null() || left.data_type().is_floating() {
        return None;
    }
    let order = left.partial_cmp(right)?;
    let holds = match op {
        BinaryOp::Eq => order.is_eq(),
        BinaryOp::NotEq => order.is_ne(),
        BinaryOp::Lt => order.is_lt(),
        BinaryOp::LtEq => order.is_le(),
        BinaryOp::Gt => order.is_gt(),
        BinaryOp::GtEq => order.is_ge(),
        _ => return None,
    };
    Some(ScalarValue::from(holds))
}
