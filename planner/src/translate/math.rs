//! Functions of numbers. Only those of DataFusion: a user's function may bear the name of one.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions::math;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, MathFunction, Node};

use super::{Scope, is_decimal, node};
use crate::reason::{Reason, refuse};
use crate::rel::expr::{binary, case, cast, is_nan};

/// The device's form of a call; `None` for what is no function of numbers.
pub(super) fn function(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Option<Node>, Reason> {
    if is(expr, &math::log()) {
        return logarithm(expr, scope).map(Some);
    }
    if is(expr, &math::isnan()) || is(expr, &math::iszero()) {
        return is_special(expr, scope).map(Some);
    }
    let named = MathFunction::ALL.into_iter();
    let mut named = named.filter(|function| function.name() == expr.fun().name());
    let Some(function) = named
        .next()
        .filter(|function| is(expr, &built_in(*function)))
    else {
        return Ok(None);
    };
    match function {
        MathFunction::Abs if !data_type.is_floating() => absolute(expr, data_type, scope),
        MathFunction::Ceil | MathFunction::Floor if is_decimal(data_type) => {
            whole(function, expr, data_type, scope)
        }
        MathFunction::Abs | MathFunction::Ceil | MathFunction::Floor | MathFunction::Signum
            if *data_type == DataType::Float32 =>
        {
            narrow(function, expr.args(), scope)
        }
        MathFunction::Round | MathFunction::Trunc => rounded(function, expr, data_type, scope),
        _ => floats(function, expr.args(), scope),
    }
    .map(Some)
}

fn is(expr: &ScalarFunctionExpr, function: &Arc<ScalarUDF>) -> bool {
    expr.fun() == function.as_ref()
}

/// DataFusion's function.
fn built_in(function: MathFunction) -> Arc<ScalarUDF> {
    match function {
        MathFunction::Abs => math::abs(),
        MathFunction::Acos => math::acos(),
        MathFunction::Acosh => math::acosh(),
        MathFunction::Asin => math::asin(),
        MathFunction::Asinh => math::asinh(),
        MathFunction::Atan => math::atan(),
        MathFunction::Atan2 => math::atan2(),
        MathFunction::Atanh => math::atanh(),
        MathFunction::Cbrt => math::cbrt(),
        MathFunction::Ceil => math::ceil(),
        MathFunction::Cos => math::cos(),
        MathFunction::Cosh => math::cosh(),
        MathFunction::Cot => math::cot(),
        MathFunction::Degrees => math::degrees(),
        MathFunction::Exp => math::exp(),
        MathFunction::Floor => math::floor(),
        MathFunction::Ln => math::ln(),
        MathFunction::Log10 => math::log10(),
        MathFunction::Log2 => math::log2(),
        MathFunction::Nanvl => math::nanvl(),
        MathFunction::Power => math::power(),
        MathFunction::Radians => math::radians(),
        MathFunction::Round => math::round(),
        MathFunction::Signum => math::signum(),
        MathFunction::Sin => math::sin(),
        MathFunction::Sinh => math::sinh(),
        MathFunction::Sqrt => math::sqrt(),
        MathFunction::Tan => math::tan(),
        MathFunction::Tanh => math::tanh(),
        MathFunction::Trunc => math::trunc(),
    }
}

/// A call whose operands are all Float64.
fn floats(
    function: MathFunction,
    arguments: &[Arc<dyn PhysicalExpr>],
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let name = function.name();
    let mut translated = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let argument = node(argument, scope)?;
        if argument.data_type != DataType::Float64 {
            return refuse(format!("{name} of {} runs on the CPU", argument.data_type));
        }
        translated.push(argument);
    }
    if translated.len() != function.arity() {
        return refuse(format!(
            "{name} of {} arguments runs on the CPU",
            translated.len()
        ));
    }
    Ok(Node::Math {
        function,
        arguments: translated,
    })
}

/// A call over Float32 whose value in Float64 is one of Float32 as well.
fn narrow(
    function: MathFunction,
    arguments: &[Arc<dyn PhysicalExpr>],
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let [argument] = arguments else {
        return refuse(format!("{} without one argument", function.name()));
    };
    let value = cast(node(argument, scope)?, DataType::Float64);
    let wide = Expr {
        nullable: value.nullable,
        data_type: DataType::Float64,
        node: Node::Math {
            function,
            arguments: vec![value],
        },
    };
    Ok(cast(wide, DataType::Float32).node)
}

/// isnan and iszero.
fn is_special(expr: &ScalarFunctionExpr, scope: &mut Scope<'_>) -> Result<Node, Reason> {
    let [argument] = expr.args() else {
        return refuse(format!("{} without one argument", expr.name()));
    };
    let value = node(argument, scope)?;
    let data_type = value.data_type.clone();
    let numbers = data_type.is_integer() || is_decimal(&data_type);
    if !numbers && !data_type.is_floating() {
        return refuse(format!("{} of {data_type} runs on the CPU", expr.name()));
    }
    if is(expr, &math::iszero()) {
        let zero = Expr::literal(ScalarValue::new_zero(&data_type)?);
        return Ok(binary(BinaryOp::Eq, value, zero, DataType::Boolean).node);
    }
    if numbers {
        // False, or NULL.
        return Ok(binary(BinaryOp::NotEq, value.clone(), value, DataType::Boolean).node);
    }
    Ok(is_nan(&cast(value, DataType::Float64)).node)
}

/// abs of decimals and integers.
fn absolute(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let [argument] = expr.args() else {
        return refuse("abs without one argument");
    };
    let value = node(argument, scope)?;
    if value.data_type != *data_type {
        return refuse(format!("abs of {} runs on the CPU", value.data_type));
    }
    if data_type.is_unsigned_integer() {
        return Ok(value.node);
    }
    let zero = Expr::literal(ScalarValue::new_zero(data_type)?);
    let negative = binary(BinaryOp::Lt, value.clone(), zero, DataType::Boolean);
    let negated = |value: Expr| Expr {
        node: Node::Negate(Box::new(value.clone())),
        ..value
    };
    // Negation wraps around where abs of the least integer has to fail: the cast back does.
    let positive = match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => cast(
            negated(cast(value.clone(), DataType::Int64)),
            data_type.clone(),
        ),
        DataType::Int64 => {
            let wide = cast(value.clone(), DataType::Decimal128(20, 0));
            cast(negated(wide), DataType::Int64)
        }
        decimal if is_decimal(decimal) => negated(value.clone()),
        _ => return refuse(format!("abs of {data_type} runs on the CPU")),
    };
    Ok(Node::Case {
        branches: vec![(negative, positive)],
        otherwise: Some(Box::new(value)),
    })
}

/// ceil and floor of decimals, which keep their type.
fn whole(
    function: MathFunction,
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let name = function.name();
    let reason = || Reason::new(format!("{name} of {data_type} runs on the CPU"));
    let [argument] = expr.args() else {
        return Err(reason());
    };
    let value = node(argument, scope)?;
    let DataType::Decimal128(precision, scale) = *data_type else {
        return Err(reason());
    };
    if value.data_type != *data_type {
        return Err(reason());
    }
    if scale <= 0 {
        return Ok(value.node);
    }
    // In a type of more digits, so that the cast back finds what has too many.
    let wide = DataType::Decimal128(38, scale);
    let one = u32::try_from(scale)
        .ok()
        .and_then(|s| 10i128.checked_pow(s));
    let (Some(one), true) = (one, precision < 38) else {
        return Err(reason());
    };
    let constant = |n: i128| Expr::literal(ScalarValue::Decimal128(Some(n), 38, scale));
    let rest = binary(BinaryOp::Modulo, value.clone(), constant(one), wide.clone());
    let towards_zero = binary(BinaryOp::Subtract, value, rest.clone(), wide.clone());
    let (beyond, op) = match function {
        MathFunction::Ceil => (BinaryOp::Gt, BinaryOp::Add),
        _ => (BinaryOp::Lt, BinaryOp::Subtract),
    };
    let inexact = binary(beyond, rest, constant(0), DataType::Boolean);
    let next = binary(op, towards_zero.clone(), constant(one), wide);
    Ok(cast(case(inexact, next, towards_zero), data_type.clone()).node)
}

/// round and trunc to a constant number of decimal places.
fn rounded(
    function: MathFunction,
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let name = function.name();
    let (value, places) = match expr.args() {
        [value] => (value, 0),
        [value, places] => match constant(places) {
            Some(places) => (value, places),
            None => {
                return refuse(format!(
                    "{name} to a number of places that is not constant runs on the CPU"
                ));
            }
        },
        _ => return refuse(format!("{name} without one or two arguments")),
    };
    let value = node(value, scope)?;
    if value.data_type == DataType::Float64 && *data_type == DataType::Float64 {
        let factor = 10_f64.powi(places);
        return Ok(Node::Math {
            function,
            arguments: vec![value, Expr::literal(ScalarValue::Float64(Some(factor)))],
        });
    }
    let rounds = function == MathFunction::Round;
    if rounds && places >= 0 && data_type.is_integer() && value.data_type == *data_type {
        return Ok(value.node);
    }
    if let (true, DataType::Decimal128(precision, scale), DataType::Decimal128(..)) =
        (rounds && places >= 0, &value.data_type, data_type)
    {
        let (precision, scale) = (i32::from(*precision), i32::from(*scale));
        if places >= scale {
            return Ok(cast(value, data_type.clone()).node);
        }
        // A cast rounds halves away from zero, as round does. Rounding up can take one digit more.
        let digits = precision - scale + places + 1;
        if let (Ok(digits @ 1..=38), Ok(places)) = (u8::try_from(digits), i8::try_from(places)) {
            let rounded = cast(value, DataType::Decimal128(digits, places));
            return Ok(cast(rounded, data_type.clone()).node);
        }
    }
    refuse(format!("{name} of {} runs on the CPU", value.data_type))
}

/// The value of an integer constant.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<i32> {
    match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Int32(value) => *value,
        ScalarValue::Int64(value) => i32::try_from((*value)?).ok(),
        _ => None,
    }
}

/// log of a number to the base 10, or to a base that comes first.
fn logarithm(expr: &ScalarFunctionExpr, scope: &mut Scope<'_>) -> Result<Node, Reason> {
    match expr.args() {
        [_] => floats(MathFunction::Log10, expr.args(), scope),
        [base, value] => {
            let mut ln = |argument: &Arc<dyn PhysicalExpr>| -> Result<Expr, Reason> {
                let node = floats(MathFunction::Ln, std::slice::from_ref(argument), scope)?;
                let Node::Math { arguments, .. } = &node else {
                    return refuse("log without an argument");
                };
                Ok(Expr {
                    nullable: arguments.iter().any(|argument| argument.nullable),
                    data_type: DataType::Float64,
                    node,
                })
            };
            let (base, value) = (ln(base)?, ln(value)?);
            Ok(binary(BinaryOp::Divide, value, base, DataType::Float64).node)
        }
        _ => refuse("log without one or two arguments"),
    }
}
