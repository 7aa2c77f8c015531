//! Arithmetic on numbers of rows, as expressions.

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr};

use crate::reason::Reason;
use crate::rel::expr::{binary, case, cast, null};

pub(super) fn int(value: i64) -> Expr {
    Expr::literal(ScalarValue::Int64(Some(value)))
}

pub(super) fn plus(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Add, left, right, DataType::Int64)
}

pub(super) fn minus(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Subtract, left, right, DataType::Int64)
}

pub(super) fn less(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Lt, left, right, DataType::Boolean)
}

/// The greater of two numbers that are not NULL.
pub(super) fn greatest(left: Expr, right: Expr) -> Expr {
    case(less(left.clone(), right.clone()), right, left)
}

pub(super) fn least(left: Expr, right: Expr) -> Expr {
    case(less(left.clone(), right.clone()), left, right)
}

/// `value` where `condition` is true, else NULL.
pub(super) fn only_if(condition: Expr, value: Expr) -> Result<Expr, Reason> {
    let nothing = null(&value.data_type)?;
    Ok(case(condition, value, nothing))
}

pub(super) fn cast_unless(value: Expr, data_type: &DataType) -> Expr {
    match value.data_type == *data_type {
        true => value,
        false => cast(value, data_type.clone()),
    }
}

pub(super) fn quotient(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Divide, left, right, DataType::Float64)
}

/// The tile of a row with so many rows of its partition before it: the first ones have a row more where they do not divide evenly.
pub(super) fn tile(before: Expr, all: Expr, tiles: i64) -> Expr {
    let whole = |op, left, right| binary(op, left, right, DataType::Int64);
    let rows = whole(BinaryOp::Divide, all.clone(), int(tiles));
    let larger = whole(BinaryOp::Modulo, all, int(tiles));
    let in_larger = whole(
        BinaryOp::Multiply,
        larger.clone(),
        plus(rows.clone(), int(1)),
    );
    let among_larger = whole(BinaryOp::Divide, before.clone(), plus(rows.clone(), int(1)));
    // Where tiles have no row but for the larger ones, all rows are among those.
    let behind = minus(before.clone(), in_larger.clone());
    let among_others = whole(BinaryOp::Divide, behind, greatest(rows, int(1)));
    let number = case(
        less(before, in_larger),
        among_larger,
        plus(larger, among_others),
    );
    plus(number, int(1))
}
