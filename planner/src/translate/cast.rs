//! CAST and TRY_CAST: which pairs of types kernels convert.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;
use warpline_gpu::expr::{Calendar, Expr, Node, is_same_ticks};

use super::calendar::{local, zone};
use super::{Scope, is_decimal, node};
use crate::reason::{Reason, refuse};

pub(super) fn cast(
    operand: &Arc<dyn PhysicalExpr>,
    to: &DataType,
    safe: bool,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    converted(node(operand, scope)?, to, safe).map(|value| value.node)
}

/// `value` as one of the type `to`.
pub(super) fn converted(value: Expr, to: &DataType, safe: bool) -> Result<Expr, Reason> {
    let from = value.data_type.clone();
    if from == *to {
        return Ok(value);
    }
    // From a zone Arrow keeps the moment, but for dates and times of day; into one it keeps what the clocks show.
    let (zone_from, zone_to) = (zone(&from)?, zone(to)?);
    let of_clocks = matches!(
        to,
        DataType::Date32 | DataType::Time32(_) | DataType::Time64(_)
    );
    if zone_from.is_some() && of_clocks {
        return converted(local(value)?, to, safe);
    }
    let (DataType::Timestamp(unit, _), Some(zone), None) = (to, zone_to, zone_from) else {
        return ticks(value, to, safe);
    };
    let calendar = matches!(
        from,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
    );
    if !calendar || zone.is_utc() {
        return ticks(value, to, safe);
    }
    let value = ticks(value, &DataType::Timestamp(*unit, None), safe)?;
    let function = Calendar::Moment { zone, safe };
    Ok(Expr {
        nullable: value.nullable || safe,
        data_type: to.clone(),
        node: Node::Calendar {
            function,
            value: Box::new(value),
        },
    })
}

/// `value` as one of the type `to`, in UTC where it is a time.
fn ticks(value: Expr, to: &DataType, safe: bool) -> Result<Expr, Reason> {
    let from = value.data_type.clone();
    let step = |value: Expr, to: &DataType| {
        let nullable = value.nullable || safe;
        let value = Box::new(value);
        Expr {
            node: Node::Cast { value, safe },
            data_type: to.clone(),
            nullable,
        }
    };
    if supported(&from, to) {
        return Ok(step(value, to));
    }
    // Arrow takes the ticks of times for numbers of 64 bits, or of 32.
    let number = |t: &DataType| t.is_integer() || t.is_floating() || is_decimal(t);
    let between = match (&from, to) {
        (DataType::Timestamp(..) | DataType::Duration(_), to) if number(to) => DataType::Int64,
        (from, DataType::Timestamp(..) | DataType::Duration(_)) if number(from) => DataType::Int64,
        (DataType::Int64, DataType::Date32) => DataType::Int32,
        (DataType::Time32(_), DataType::Int64) => DataType::Int32,
        _ => DataType::Null,
    };
    if supported(&from, &between) && supported(&between, to) {
        return Ok(step(step(value, &between), to));
    }
    refuse(format!("CAST from {from} to {to} runs on the CPU"))
}

fn supported(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let number = |t: &DataType| t.is_integer() || is_decimal(t);
    let calendar = |t: &DataType| matches!(t, Date32 | Date64 | Timestamp(..));
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
            (Timestamp(..) | Time32(_) | Time64(_), Time32(_) | Time64(_))
        )
        || is_same_ticks(from, to)
}
