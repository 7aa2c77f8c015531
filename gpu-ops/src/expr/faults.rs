//! Which expressions can fail for some values of their columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::{CastExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;

use super::{BinaryOp, Calendar, Expr, Node};
use crate::column::is_text;

impl Expr {
    /// Can evaluation fail for some values of the columns? Such an expression may only see rows that SQL shows it: it runs
    /// after the conditions that cannot fail, and never for rows that a join or a filter drops.
    pub fn may_fault(&self) -> bool {
        match &self.node {
            Node::Column(_) | Node::Literal(_) | Node::RowNumber => false,
            Node::PerDistinct { function, .. } => function_may_fault(function),
            Node::Binary { op, left, right } => {
                let own = op.may_fault(&self.data_type) && !divides_by_constant(*op, right);
                own || left.may_fault() || right.may_fault()
            }
            Node::Cast { value, safe } => {
                !safe && cast_may_fault(&value.data_type, &self.data_type) || value.may_fault()
            }
            // The smallest number of 128 bits has no other sign.
            Node::Negate(value) => {
                matches!(self.data_type, DataType::Decimal128(..)) || value.may_fault()
            }
            Node::Calendar {
                function: Calendar::Moment { safe: false, .. },
                ..
            } => true,
            Node::Not(value)
            | Node::IsNull(value)
            | Node::IsNotNull(value)
            | Node::InList { value, .. }
            | Node::Calendar { value, .. }
            | Node::DatePart { value, .. } => value.may_fault(),
            Node::Case {
                branches,
                otherwise,
            } => {
                branches
                    .iter()
                    .any(|(when, then)| when.may_fault() || then.may_fault())
                    || otherwise.as_deref().is_some_and(Self::may_fault)
            }
            Node::Coalesce(list) | Node::PerCombination { inputs: list, .. } => {
                list.iter().any(Self::may_fault)
            }
            Node::Math {
                function,
                arguments,
            } => function.may_fault() || arguments.iter().any(Self::may_fault),
        }
    }
}

/// Is it the name of a function of DataFusion's that has no value for some arguments? `constant` tells which of its arguments are constants:
/// with these it is the same for all rows.
pub fn is_fragile(name: &str, constant: &[bool]) -> bool {
    const FRAGILE: [&str; 7] = [
        "arrow_cast",
        "chr",
        "decode",
        "make_date",
        "to_date",
        "to_time",
        "to_unixtime",
    ];
    // A number of characters below zero, and the part of number zero.
    let third = matches!(name, "substr" | "substring" | "split_part");
    let varies = |constant: &bool| !constant;
    match third {
        true => constant.get(2).is_some_and(varies),
        false => {
            (FRAGILE.contains(&name) || name.starts_with("to_timestamp"))
                && constant.iter().any(varies)
        }
    }
}

/// Does a function of one string column cast it to what not every string is, or read it as a time? Others do not fail, as far as is known.
pub(crate) fn function_may_fault(function: &Arc<dyn PhysicalExpr>) -> bool {
    let mut fails = false;
    // The closure never fails, so neither does the walk.
    let _ = function.apply(|part| {
        if let Some(cast) = part.downcast_ref::<CastExpr>() {
            let to = cast.cast_type();
            let schema = Schema::new(vec![Field::new("value", DataType::Utf8, true)]);
            let from = cast.expr().data_type(&schema);
            fails |= !is_text(to)
                && from.map_or(true, |from| is_text(&from) || cast_may_fault(&from, to));
        }
        if let Some(call) = part.downcast_ref::<ScalarFunctionExpr>() {
            let constant: Vec<bool> = call.args().iter().map(|e| e.is::<Literal>()).collect();
            fails |= is_fragile(call.fun().name(), &constant);
        }
        Ok(match fails {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    fails
}

/// Is an integer divided by a constant with which that never fails: neither 0 nor -1?
fn divides_by_constant(op: BinaryOp, divisor: &Expr) -> bool {
    let Node::Literal(value) = &divisor.node else {
        return false;
    };
    let harmless = matches!(op, BinaryOp::Divide | BinaryOp::Modulo)
        && divisor.data_type.is_integer()
        && !value.is_null();
    let zero = ScalarValue::new_zero(&divisor.data_type);
    let one = ScalarValue::new_one(&divisor.data_type);
    harmless
        && zero.is_ok_and(|zero| *value != zero)
        && one.is_ok_and(|one| {
            // Only signed integers have one.
            one.arithmetic_negate()
                .map_or(true, |minus| *value != minus)
        })
}

impl BinaryOp {
    /// Can it fail for some operands, with a result of this type?
    fn may_fault(self, data_type: &DataType) -> bool {
        use DataType::*;
        let decimal = |t: &DataType| {
            matches!(
                t,
                Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..)
            )
        };
        match self {
            Self::Divide | Self::Modulo => !matches!(data_type, Float32 | Float64),
            // Sums and differences of times are checked as well.
            Self::Add | Self::Subtract | Self::Multiply => {
                decimal(data_type) || matches!(data_type, Timestamp(..) | Duration(_))
            }
            _ => false,
        }
    }
}

/// Is there a value of `from` that CAST refuses to turn into `to`?
fn cast_may_fault(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    if from == to || matches!(from, Boolean | Null) || matches!(to, Boolean | Float32 | Float64) {
        return false;
    }
    // Moments: where finer ticks could be too many no kernel is made, and so many days as microseconds can tell there may be.
    if matches!(
        (from, to),
        (Date32 | Date64 | Timestamp(..), Timestamp(..))
            | (Date32, Date64)
            | (Timestamp(..) | Time32(_) | Time64(_), Time32(_) | Time64(_))
            | (
                Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _),
                Date32
            )
    ) {
        return false;
    }
    let bits = |t: &DataType| t.primitive_width().map(|bytes| bytes * 8);
    let widens = from.is_integer()
        && to.is_integer()
        && (from.is_signed_integer() == to.is_signed_integer() || to.is_signed_integer())
        && bits(from) <= bits(to)
        && (from.is_signed_integer() == to.is_signed_integer() || bits(from) < bits(to));
    !widens && !is_same_ticks(from, to)
}

/// Is one the number of ticks that the other stands for, as Arrow casts them?
pub fn is_same_ticks(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    matches!(
        (from, to),
        (Date32, Int32 | Int64)
            | (Int32, Date32 | Time32(_))
            | (Time32(_), Int32)
            | (Date64 | Time64(_) | Timestamp(..) | Duration(_), Int64)
            | (Int64, Date64 | Time64(_) | Timestamp(..) | Duration(_))
    )
}
