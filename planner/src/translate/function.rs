//! Scalar functions that kernels compute: calendar fields, COALESCE and NULLIF.

use arrow::datatypes::DataType;
use datafusion::functions::core::coalesce::CoalesceFunc;
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::functions::datetime::date_part::DatePartFunc;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{DatePart, Expr, Node};

use super::conditional::{branch, equals};
use super::{Scope, boxed, is_string, math, node};
use crate::reason::{Reason, refuse};

pub(super) fn scalar_function(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let function = expr.fun().inner();
    if function.is::<DatePartFunc>() {
        return date_part(expr, data_type, scope);
    }
    if function.is::<CoalesceFunc>() {
        let list = expr
            .args()
            .iter()
            .map(|arg| branch(node(arg, scope)?, data_type));
        return Ok(Node::Coalesce(list.collect::<Result<_, Reason>>()?));
    }
    if function.is::<NullIfFunc>()
        && let [value, unwanted] = expr.args()
    {
        let value = branch(node(value, scope)?, data_type)?;
        let condition = equals(value.clone(), node(unwanted, scope)?)?;
        let null = Expr::literal(ScalarValue::try_from(data_type)?);
        return Ok(Node::Case {
            branches: vec![(condition, null)],
            otherwise: Some(Box::new(value)),
        });
    }
    if let Some(node) = math::function(expr, data_type, scope)? {
        return Ok(node);
    }
    if is_string(data_type) {
        return refuse(format!(
            "{} over more than one column runs on the CPU",
            expr.name()
        ));
    }
    refuse(format!("the function {} runs on the CPU", expr.name()))
}

fn date_part(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let [part, value] = expr.args() else {
        return refuse("date_part without two arguments");
    };
    let name = part
        .downcast_ref::<Literal>()
        .and_then(|l| l.value().try_as_str().flatten());
    let Some(name) = name else {
        return refuse("date_part of a field that is not constant");
    };
    let Some(part) = field(name).filter(|_| *data_type == DataType::Int32) else {
        return refuse(format!("date_part('{name}') runs on the CPU"));
    };
    let value = boxed(value, scope)?;
    if !matches!(
        value.data_type,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None)
    ) {
        return refuse(format!("date_part of {} runs on the CPU", value.data_type));
    }
    Ok(Node::DatePart { part, value })
}

/// DataFusion's names of calendar fields: Arrow's interval units with their synonyms, then Postgres' own.
fn field(name: &str) -> Option<DatePart> {
    let unquoted = name
        .strip_prefix(['\'', '"'])
        .and_then(|rest| rest.strip_suffix(['\'', '"']))
        .unwrap_or(name);
    Some(match unquoted.to_lowercase().as_str() {
        "y" | "yr" | "yrs" | "year" | "years" => DatePart::Year,
        "mon" | "mons" | "month" | "months" => DatePart::Month,
        "w" | "week" | "weeks" => DatePart::Week,
        "d" | "day" | "days" => DatePart::Day,
        "h" | "hr" | "hrs" | "hour" | "hours" => DatePart::Hour,
        "m" | "min" | "mins" | "minute" | "minutes" => DatePart::Minute,
        "s" | "sec" | "secs" | "second" | "seconds" => DatePart::Second,
        "qtr" | "quarter" => DatePart::Quarter,
        "doy" => DatePart::DayOfYear,
        "dow" => DatePart::DayOfWeek,
        _ => return None,
    })
}
