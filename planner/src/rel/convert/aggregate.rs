//! Aggregations: grouping keys, calls and their filters, in one or two phases.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::projection::ProjectionExec;
use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::{Converter, exchange};
use crate::reason::{Reason, refuse};
use crate::rel::expr::is_true;
use crate::rel::{Rel, RelRef};
use crate::translate::{Scope, is_decimal, is_string, is_value, translate};

/// The groups of `root` over `input`, the rows below its first phase.
pub(super) fn aggregate(
    root: &AggregateExec,
    input: RelRef,
    converter: &Converter,
) -> Result<RelRef, Reason> {
    let raw = raw_aggregate(root)?;
    if raw.group_expr().has_grouping_set() || raw.group_expr().groups().len() > 1 {
        return refuse("GROUPING SETS, CUBE and ROLLUP run on the CPU");
    }
    let functions = raw
        .aggr_expr()
        .iter()
        .map(|call| function(call))
        .collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<_> = raw
        .group_expr()
        .expr()
        .iter()
        .map(|(key, _)| Arc::clone(key))
        .collect();
    let names: Vec<String> = raw
        .group_expr()
        .expr()
        .iter()
        .map(|(_, name)| name.clone())
        .collect();
    let (input, keys) = converter.translate_all(input, &keys)?;
    for (key, name) in keys.iter().zip(&names) {
        check_key(key, name)?;
    }
    let schema = input.schema();
    let mut scope = Scope::whole(&schema);
    let mut calls = Vec::new();
    for ((call, function), filter) in raw.aggr_expr().iter().zip(functions).zip(raw.filter_expr()) {
        calls.push(aggregate_call(call, function, filter.as_ref(), &mut scope)?);
    }
    Ok(Rel::aggregate(input, Aggregate { keys, calls }, &names))
}

/// The aggregation that reads rows: `root` itself, or the partial phase below a final one.
pub(crate) fn raw_aggregate(root: &AggregateExec) -> Result<&AggregateExec, Reason> {
    match root.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => return Ok(root),
        AggregateMode::Final | AggregateMode::FinalPartitioned => {}
        AggregateMode::Partial | AggregateMode::PartialReduce => {
            return refuse("a partial aggregation without its final phase runs on the CPU");
        }
    }
    let mut below = root.input();
    while let Some(input) = exchange(below).or_else(|| identity_projection(below)) {
        below = input;
    }
    let Some(partial) = below
        .downcast_ref::<AggregateExec>()
        .filter(|a| *a.mode() == AggregateMode::Partial)
    else {
        return refuse(format!(
            "a final aggregation over {} runs on the CPU",
            below.name()
        ));
    };
    let keys = root.group_expr().expr();
    // Grouping sets add a column with the set's number.
    let same_keys = keys.len() == partial.group_expr().num_group_exprs()
        && keys.iter().enumerate().all(|(i, (key, _))| {
            key.downcast_ref::<Column>()
                .is_some_and(|column| column.index() == i)
        });
    if !same_keys || root.aggr_expr().len() != partial.aggr_expr().len() {
        return refuse("the phases of the aggregation differ in keys or calls");
    }
    Ok(partial)
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

/// The device's aggregate for a call; by type, since a user's function may bear a built-in's name.
fn function(call: &AggregateFunctionExpr) -> Result<AggregateFunction, Reason> {
    let implementation = call.fun().inner();
    let name = call.fun().name();
    let function = if implementation.is::<Count>() {
        AggregateFunction::Count
    } else if implementation.is::<Sum>() {
        AggregateFunction::Sum
    } else if implementation.is::<Min>() {
        AggregateFunction::Min
    } else if implementation.is::<Max>() {
        AggregateFunction::Max
    } else if implementation.is::<Avg>() {
        AggregateFunction::Avg
    } else {
        return refuse(format!("{name} is not a device aggregate"));
    };
    if !call.order_bys().is_empty() {
        return refuse(format!("{name}(… ORDER BY …) runs on the CPU"));
    }
    Ok(function)
}

fn aggregate_call(
    call: &AggregateFunctionExpr,
    function: AggregateFunction,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    scope: &mut Scope<'_>,
) -> Result<AggregateCall, Reason> {
    let return_type = call.field().data_type().clone();
    let name = call
        .human_display()
        .unwrap_or_else(|| call.name())
        .to_string();
    let arguments = call.expressions();
    let [argument] = arguments.as_slice() else {
        return refuse(format!(
            "{} of {} arguments runs on the CPU",
            call.fun().name(),
            arguments.len()
        ));
    };
    let argument = if function == AggregateFunction::Count && is_constant(argument) {
        None
    } else {
        let argument = translate(argument, scope)?;
        check_argument(function, &argument, &return_type, call.fun().name())?;
        Some(argument)
    };
    let extreme = matches!(function, AggregateFunction::Min | AggregateFunction::Max);
    let filter = match filter {
        None => None,
        Some(filter) => Some(translate(filter, scope)?).filter(|f| !is_true(f)),
    };
    Ok(AggregateCall {
        function,
        argument,
        filter,
        distinct: call.is_distinct() && !extreme,
        return_type,
        name,
    })
}

/// True for the argument of COUNT(*) and of COUNT of any other constant that is not NULL.
fn is_constant(argument: &Arc<dyn PhysicalExpr>) -> bool {
    argument
        .downcast_ref::<Literal>()
        .is_some_and(|literal| !literal.value().is_null())
}

fn check_argument(
    function: AggregateFunction,
    argument: &Expr,
    return_type: &DataType,
    name: &str,
) -> Result<(), Reason> {
    use DataType::{Boolean, Duration, Float64, Int64, UInt64};
    let data_type = &argument.data_type;
    let supported = match function {
        AggregateFunction::Count | AggregateFunction::Any => true,
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
                && (is_string(data_type)
                    || is_value(data_type) && !matches!(data_type, Boolean | Duration(_)))
        }
    };
    if supported {
        return Ok(());
    }
    refuse(format!("{name} of {data_type} runs on the CPU"))
}

fn check_key(key: &Expr, name: &str) -> Result<(), Reason> {
    let data_type = &key.data_type;
    if is_string(data_type) || is_value(data_type) {
        return Ok(());
    }
    refuse(format!(
        "grouping by {name} of type {data_type} runs on the CPU"
    ))
}
