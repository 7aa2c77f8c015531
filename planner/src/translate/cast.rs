//! CAST and TRY_CAST: which pairs of types kernels convert.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;
use warpline_gpu::expr::Node;

use super::{Scope, boxed, is_decimal};
use crate::reason::{Reason, refuse};

pub(super) fn cast(
    operand: &Arc<dyn PhysicalExpr>,
    to: &DataType,
    safe: bool,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let value = boxed(operand, scope)?;
    if supported(&value.data_type, to) {
        return Ok(Node::Cast { value, safe });
    }
    refuse(format!(
        "CAST from {} to {to} runs on the CPU",
        value.data_type
    ))
}

fn supported(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let number = |t: &DataType| t.is_integer() || is_decimal(t);
    let calendar = |t: &DataType| matches!(t, Date32 | Date64 | Timestamp(_, None));
    let float = |t: &DataType| matches!(t, Float32 | Float64);
    let non_negative_scale =
        |t: &DataType| !matches!(t, Decimal32(_, s) | Decimal64(_, s) | Decimal128(_, s) if *s < 0);
    from == to
        || *from == Null
        || (number(from) && number(to) && non_negative_scale(from))
        || ((number(from) || float(from)) && float(to))
        || (float(from) && (to.is_integer() || matches!(to, Decimal128(_, s) if *s >= 0)))
        || (*from == Boolean && to.is_integer())
        || (from.is_integer() && *to == Boolean)
        || (calendar(from) && calendar(to))
        || matches!(
            (from, to),
            (Date32, Int32 | Int64) | (Int32, Date32) | (Date64 | Timestamp(_, None), Int64)
        )
}

/// True when a value of `from` may have no equal in `to`.
pub(super) fn may_fault(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    if from == to || matches!(from, Boolean | Null) || matches!(to, Boolean | Float32 | Float64) {
        return false;
    }
    let bits = |t: &DataType| t.primitive_width().map(|bytes| bytes * 8);
    let widens = from.is_integer()
        && to.is_integer()
        && (from.is_signed_integer() == to.is_signed_integer() || to.is_signed_integer())
        && bits(from) <= bits(to)
        && (from.is_signed_integer() == to.is_signed_integer() || bits(from) < bits(to));
    !widens && !matches!((from, to), (Date32, Int32 | Int64) | (Int32, Date32))
}
