//! Arithmetic, comparisons and logic.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, NegativeExpr};
use warpline_gpu::expr::{BinaryOp, Expr, Node};

use super::{Scope, boxed, calendar, check_order, is_decimal};
use crate::reason::{Reason, refuse};

pub(super) fn binary(
    expr: &BinaryExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    if let Some(node) = calendar::arithmetic(expr, data_type, scope)? {
        return Ok(node);
    }
    let Some(op) = operator(*expr.op()) else {
        return refuse(format!(
            "the operator {} runs on the CPU outside string expressions",
            expr.op()
        ));
    };
    let (left, right) = (boxed(expr.left(), scope)?, boxed(expr.right(), scope)?);
    if is_arithmetic(op) {
        check_arithmetic(op, &left, &right, data_type)?;
        // BinaryExpr does not tell, but compares, whether overflow is an error.
        let plain = BinaryExpr::new(
            Arc::clone(expr.left()),
            *expr.op(),
            Arc::clone(expr.right()),
        );
        if data_type.is_integer() && *expr != plain {
            return refuse("integer arithmetic with checks for overflow runs on the CPU");
        }
    } else if is_bitwise(op) {
        if !(left.data_type.is_integer() && left.data_type == right.data_type) {
            return refuse(format!(
                "{} of {} and {}",
                expr.op(),
                left.data_type,
                right.data_type
            ));
        }
    } else if !matches!(op, BinaryOp::And | BinaryOp::Or) {
        check_comparison(op, &left, &right)?;
    }
    Ok(Node::Binary { op, left, right })
}

pub(super) fn negate(expr: &NegativeExpr, scope: &mut Scope<'_>) -> Result<Node, Reason> {
    let value = boxed(expr.arg(), scope)?;
    if !matches!(value.data_type, DataType::Float32 | DataType::Float64)
        && !is_decimal(&value.data_type)
        && !value.data_type.is_signed_integer()
    {
        return refuse(format!("negation of {}", value.data_type));
    }
    Ok(Node::Negate(value))
}

fn operator(op: Operator) -> Option<BinaryOp> {
    Some(match op {
        Operator::Plus => BinaryOp::Add,
        Operator::Minus => BinaryOp::Subtract,
        Operator::Multiply => BinaryOp::Multiply,
        Operator::Divide => BinaryOp::Divide,
        Operator::Modulo => BinaryOp::Modulo,
        Operator::Eq => BinaryOp::Eq,
        Operator::NotEq => BinaryOp::NotEq,
        Operator::Lt => BinaryOp::Lt,
        Operator::LtEq => BinaryOp::LtEq,
        Operator::Gt => BinaryOp::Gt,
        Operator::GtEq => BinaryOp::GtEq,
        Operator::And => BinaryOp::And,
        Operator::Or => BinaryOp::Or,
        Operator::IsDistinctFrom => BinaryOp::IsDistinctFrom,
        Operator::IsNotDistinctFrom => BinaryOp::IsNotDistinctFrom,
        Operator::BitwiseAnd => BinaryOp::BitAnd,
        Operator::BitwiseOr => BinaryOp::BitOr,
        Operator::BitwiseXor => BinaryOp::BitXor,
        Operator::BitwiseShiftRight => BinaryOp::ShiftRight,
        Operator::BitwiseShiftLeft => BinaryOp::ShiftLeft,
        _ => return None,
    })
}

fn is_arithmetic(op: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(op, Add | Subtract | Multiply | Divide | Modulo)
}

fn is_bitwise(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::BitAnd
            | BinaryOp::BitOr
            | BinaryOp::BitXor
            | BinaryOp::ShiftLeft
            | BinaryOp::ShiftRight
    )
}

/// Numbers of one kind, and durations with timestamps; intervals are not numbers.
fn check_arithmetic(
    op: BinaryOp,
    left: &Expr,
    right: &Expr,
    data_type: &DataType,
) -> Result<(), Reason> {
    let (l, r) = (&left.data_type, &right.data_type);
    let same = l == r && r == data_type;
    let integers = same && data_type.is_integer();
    let floats = same && matches!(data_type, DataType::Float32 | DataType::Float64);
    let durations = match (l, r) {
        (DataType::Timestamp(a, _), DataType::Duration(b)) => a == b && l == data_type,
        (DataType::Duration(_), DataType::Duration(_)) => same,
        _ => false,
    };
    if durations && matches!(op, BinaryOp::Add | BinaryOp::Subtract) {
        return Ok(());
    }
    if integers || floats || (same_decimal_width(l, r) && same_decimal_width(l, data_type)) {
        return Ok(());
    }
    refuse(format!("arithmetic of {l} and {r} runs on the CPU"))
}

/// Both decimals of the same native integer; precision and scale may differ.
fn same_decimal_width(a: &DataType, b: &DataType) -> bool {
    is_decimal(a) && std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn check_comparison(op: BinaryOp, left: &Expr, right: &Expr) -> Result<(), Reason> {
    let (l, r) = (&left.data_type, &right.data_type);
    if l != r && *l != DataType::Null && *r != DataType::Null {
        return refuse(format!("a comparison of {l} with {r} runs on the CPU"));
    }
    if matches!(
        op,
        BinaryOp::Lt | BinaryOp::LtEq | BinaryOp::Gt | BinaryOp::GtEq
    ) {
        check_order(left)?;
    }
    Ok(())
}
