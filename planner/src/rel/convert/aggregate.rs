//! Calls of aggregations and their filters, in one phase or two that are together, and the groups that they are of.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::functions_aggregate::any_value::AnyValue;
use datafusion::functions_aggregate::approx_distinct::ApproxDistinct;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf};
use datafusion::functions_aggregate::bool_and_or::{BoolAnd, BoolOr};
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateMode, AggregateOutputMode,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr};
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::grouping::Grouping;
use super::moments::{self, MomentCall};
use super::ranked::{self, RankedCall};
use super::{Converter, Inputs, exchange};
use crate::reason::{Reason, refuse};
use crate::rel::expr::{binary, cast, is_not_null, is_true};
use crate::rel::{Rel, RelRef};
use crate::translate::{Scope, check_order, is_decimal, is_string, is_value, translate};

/// A call of a select list.
#[derive(Debug, Clone)]
pub(super) enum Call {
    /// One that pipelines compute.
    Plain(AggregateCall),
    /// Computed in another type: truths as numbers 0 and 1.
    Cast(AggregateCall, DataType),
    /// Computed in two passes.
    Moment(MomentCall),
    /// Picked from rows in an order.
    Ranked(RankedCall),
}

impl Call {
    /// Does it need the rows of each group in an order?
    fn sorts(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Cast(..) => false,
            Self::Moment(call) => call.distinct,
            Self::Ranked(_) => true,
        }
    }
}

/// Does DataFusion add values of a decimal type up in 128 bits to average them? It has so many digits to spare for that
/// (`AVG_SUM_HEADROOM_DIGITS` of its `average.rs`).
pub(super) fn sums_in_128_bits(argument: &DataType) -> bool {
    const HEADROOM: u8 = 13;
    matches!(argument, DataType::Decimal128(precision, _) if precision + HEADROOM <= DECIMAL128_MAX_PRECISION)
}

/// The average of a sum of decimals over so many rows: brought to the scale of its type, then divided and cut.
pub(super) fn decimal_average(sum: Expr, rows: Expr, data_type: DataType) -> Expr {
    let rows = cast(rows, DataType::Decimal128(20, 0));
    binary(BinaryOp::Divide, sum, rows, data_type)
}

/// What calls compute over rows with the columns of `input`, which gets some for the fields of structs that they read and for what no kernel
/// computes of these.
pub(super) fn calls(
    calls: &[Arc<AggregateFunctionExpr>],
    filters: &[Option<Arc<dyn PhysicalExpr>>],
    input: &mut RelRef,
    converter: &Converter,
) -> Result<Vec<Call>, Reason> {
    let mut read: Vec<_> = filters.iter().flatten().cloned().collect();
    for call in calls {
        read.extend(call.expressions());
        read.extend(call.order_bys().iter().map(|key| Arc::clone(&key.expr)));
    }
    let (with, columns) = converter.read_by(Arc::clone(input), &read)?;
    *input = with;
    let schema = input.schema();
    let mut scope = converter.scope(&schema).with_fields(columns);
    let mut found = Vec::with_capacity(calls.len());
    for (call, filter) in calls.iter().zip(filters) {
        if let Some(ranked) = ranked::call(call, filter.as_ref(), &mut scope, &converter.lists)? {
            found.push(Call::Ranked(ranked));
            continue;
        }
        if let Some(moment) = moments::call(call, filter.as_ref(), &mut scope)? {
            found.push(Call::Moment(moment));
            continue;
        }
        let of = aggregate_call(call, function(call)?, filter.as_ref(), &mut scope)?;
        let field = call.field();
        found.push(match of.return_type == *field.data_type() {
            true => Call::Plain(of),
            false => Call::Cast(of, field.data_type().clone()),
        });
    }
    Ok(found)
}

/// The groups: keys, then what the calls compute.
pub(super) fn grouped(grouping: &Grouping, calls: &[Call]) -> Result<RelRef, Reason> {
    if calls.iter().any(Call::sorts) {
        return ranked::grouped(grouping, calls);
    }
    if calls.iter().any(|call| matches!(call, Call::Moment(_))) {
        return moments::grouped(grouping, calls);
    }
    let first = grouping.keys.len();
    let mut plain = Vec::with_capacity(calls.len());
    let mut casts = Vec::new();
    for call in calls {
        match call {
            Call::Plain(call) => plain.push(call.clone()),
            Call::Cast(call, data_type) => {
                casts.push((first + plain.len(), data_type));
                plain.push(call.clone());
            }
            Call::Moment(_) | Call::Ranked(_) => {}
        }
    }
    let aggregate = Aggregate {
        keys: grouping.keys.clone(),
        calls: plain,
    };
    let groups = Rel::aggregate(Arc::clone(&grouping.input), aggregate, &grouping.names);
    Ok(cast_columns(groups, &casts))
}

/// Truths are numbers inside: 0 and 1.
pub(super) const TRUTH: DataType = DataType::Int8;

/// The columns, those in `casts` in their own types again.
fn cast_columns(groups: RelRef, casts: &[(usize, &DataType)]) -> RelRef {
    if casts.is_empty() {
        return groups;
    }
    let column = |i: usize| match casts.iter().find(|(at, _)| *at == i) {
        Some((_, data_type)) => cast(groups.column(i), (*data_type).clone()),
        None => groups.column(i),
    };
    let named = groups.columns.iter().enumerate();
    let exprs = named.map(|(i, of)| (column(i), of.name.clone())).collect();
    Rel::project(Arc::clone(&groups), exprs)
}

/// The phase that reads rows, where it and all between are here and not below one of `inputs`: `root` itself, or a partial one
/// below it.
pub(crate) fn raw_aggregate<'a>(
    root: &'a AggregateExec,
    inputs: &Inputs,
) -> Option<&'a AggregateExec> {
    if root.mode().input_mode() == AggregateInputMode::Raw {
        return Some(root);
    }
    let mut above = root;
    let mut below = root.input();
    while !inputs.contains(below) {
        if let Some(input) = exchange(below).or_else(|| identity_projection(below)) {
            below = input;
            continue;
        }
        let phase = below.downcast_ref::<AggregateExec>()?;
        if !continues(above, phase) {
            return None;
        }
        match phase.mode() {
            AggregateMode::Partial => return Some(phase),
            _ => (above, below) = (phase, phase.input()),
        }
    }
    None
}

/// Does `phase` merge states by the keys and for the calls that those `below` have?
fn continues(phase: &AggregateExec, below: &AggregateExec) -> bool {
    let keys = phase.group_expr().expr();
    // Grouping sets add a column with the set's number.
    let same_keys = keys.len() == below.group_expr().num_group_exprs()
        && keys.iter().enumerate().all(|(i, (key, _))| {
            key.downcast_ref::<Column>()
                .is_some_and(|column| column.index() == i)
        });
    same_keys
        && !phase.group_expr().has_grouping_set()
        && phase.aggr_expr().len() == below.aggr_expr().len()
        && below.mode().output_mode() == AggregateOutputMode::Partial
}

/// The input of a projection that passes every column on in its place.
fn identity_projection(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let input = projection.input();
    let all = projection.expr().len() == input.schema().fields().len()
        && projection.expr().iter().enumerate().all(|(i, p)| {
            p.expr
                .downcast_ref::<Column>()
                .is_some_and(|column| column.index() == i)
        });
    all.then_some(input)
}

/// The device's aggregate for a call, for which the order of rows does not matter; by type, since a user's function may bear a built-in's name.
pub(super) fn function(call: &AggregateFunctionExpr) -> Result<AggregateFunction, Reason> {
    let implementation = call.fun().inner();
    let name = call.fun().name();
    let function = if implementation.is::<Count>() || implementation.is::<ApproxDistinct>() {
        AggregateFunction::Count
    } else if implementation.is::<Sum>() {
        AggregateFunction::Sum
    } else if implementation.is::<Min>()
        || implementation.is::<BoolAnd>()
        || implementation.is::<AnyValue>()
    {
        // False is less than true. The least value that is not NULL is one of those that are not NULL.
        AggregateFunction::Min
    } else if implementation.is::<Max>() || implementation.is::<BoolOr>() {
        AggregateFunction::Max
    } else if implementation.is::<Avg>() {
        AggregateFunction::Avg
    } else if call.fun() == bit_and_udaf().as_ref() {
        AggregateFunction::BitAnd
    } else if call.fun() == bit_or_udaf().as_ref() {
        AggregateFunction::BitOr
    } else if call.fun() == bit_xor_udaf().as_ref() {
        AggregateFunction::BitXor
    } else if !call.order_bys().is_empty() {
        return refuse(format!("{name}(… ORDER BY …) runs on the CPU"));
    } else {
        return refuse(format!("{name} is not a device aggregate"));
    };
    Ok(function)
}

pub(super) fn aggregate_call(
    call: &AggregateFunctionExpr,
    function: AggregateFunction,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    scope: &mut Scope<'_>,
) -> Result<AggregateCall, Reason> {
    let mut return_type = call.field().data_type().clone();
    let name = call
        .human_display()
        .unwrap_or_else(|| call.name())
        .to_string();
    let arguments = call.expressions();
    // The exact number is within any error.
    let approximate = call.fun().inner().is::<ApproxDistinct>();
    if approximate {
        return_type = DataType::Int64;
    }
    let distinct = call.is_distinct() || approximate;
    let extreme = matches!(function, AggregateFunction::Min | AggregateFunction::Max);
    let bits = matches!(
        function,
        AggregateFunction::BitAnd | AggregateFunction::BitOr
    );
    if call.is_distinct() && function == AggregateFunction::BitXor {
        return refuse("bit_xor(DISTINCT …) runs on the CPU");
    }
    let mut filter = match filter {
        None => None,
        Some(filter) => Some(translate(filter, scope)?).filter(|f| !is_true(f)),
    };
    let argument = match arguments.as_slice() {
        // Of a constant in every row, any will do: it is one value.
        [argument] if function == AggregateFunction::Count && is_constant(argument) => {
            distinct.then(|| Expr::literal(ScalarValue::Boolean(Some(true))))
        }
        [argument] => {
            let mut argument = translate(argument, scope)?;
            if extreme
                && argument.data_type == DataType::Boolean
                && return_type == DataType::Boolean
            {
                (argument, return_type) = (cast(argument, TRUTH), TRUTH);
            }
            if approximate && argument.data_type.is_floating() {
                return refuse("approx_distinct of floats runs on the CPU");
            }
            check_argument(call, function, &argument, &return_type)?;
            Some(argument)
        }
        [_, _, ..] if function == AggregateFunction::Count && !distinct => {
            for argument in &arguments {
                filter = Some(counted_if(argument, filter, scope)?);
            }
            None
        }
        several => {
            return refuse(format!(
                "{} of {} arguments runs on the CPU",
                call.fun().name(),
                several.len()
            ));
        }
    };
    Ok(AggregateCall {
        function,
        argument,
        filter,
        distinct: distinct && !extreme && !bits,
        return_type,
        name,
    })
}

/// A filter with the condition of COUNT over several arguments: rows count where none of them is NULL.
fn counted_if(
    argument: &Arc<dyn PhysicalExpr>,
    filter: Option<Expr>,
    scope: &mut Scope<'_>,
) -> Result<Expr, Reason> {
    let argument = translate(argument, scope)?;
    // A filter may be evaluated for rows that the argument would not be.
    if argument.may_fault() {
        return refuse("COUNT of several arguments that can fail runs on the CPU");
    }
    let known = is_not_null(argument);
    Ok(match filter {
        None => known,
        Some(filter) => binary(BinaryOp::And, filter, known, DataType::Boolean),
    })
}

/// True for the argument of COUNT(*) and of COUNT of any other constant that is not NULL.
fn is_constant(argument: &Arc<dyn PhysicalExpr>) -> bool {
    argument
        .downcast_ref::<Literal>()
        .is_some_and(|literal| !literal.value().is_null())
}

pub(super) fn check_argument(
    call: &AggregateFunctionExpr,
    function: AggregateFunction,
    argument: &Expr,
    return_type: &DataType,
) -> Result<(), Reason> {
    use DataType::{Boolean, Float64, Int64, UInt64};
    let extreme = matches!(function, AggregateFunction::Min | AggregateFunction::Max);
    // The least one in some order is any one.
    if extreme && !call.fun().inner().is::<AnyValue>() {
        check_order(argument)?;
    }
    let data_type = &argument.data_type;
    let supported = match function {
        AggregateFunction::Count | AggregateFunction::Any => true,
        AggregateFunction::BitAnd | AggregateFunction::BitOr | AggregateFunction::BitXor => {
            data_type.is_integer() && data_type == return_type
        }
        AggregateFunction::Sum => {
            matches!(data_type, Int64 | UInt64 | Float64) && data_type == return_type
                || is_decimal(data_type) && is_decimal(return_type)
        }
        AggregateFunction::Avg => {
            *data_type == Float64 && *return_type == Float64
                || is_decimal(data_type) && is_decimal(return_type)
        }
        AggregateFunction::Min | AggregateFunction::Max => {
            data_type == return_type
                && (is_string(data_type) || is_value(data_type) && *data_type != Boolean)
        }
    };
    if supported {
        return Ok(());
    }
    refuse(format!(
        "{} of {data_type} runs on the CPU",
        call.fun().name()
    ))
}
