//! Scalar functions that kernels compute.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions::core::coalesce::CoalesceFunc;
use datafusion::functions::core::greatest::GreatestFunc;
use datafusion::functions::core::least::LeastFunc;
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};

use super::conditional::{branch, equals};
use super::{Scope, calendar, check_order, is_string, math, node};
use crate::decorrelate::one_row;
use crate::reason::{Reason, refuse};
use crate::rel::expr::{binary, case};

pub(super) fn scalar_function(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let function = expr.fun().inner();
    if let Some(node) = calendar::function(expr, data_type, scope)? {
        return Ok(node);
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
    if expr.fun() == one_row().as_ref()
        && let [value, rows] = expr.args()
    {
        return one_of(value, rows, data_type, scope);
    }
    if function.is::<GreatestFunc>() || function.is::<LeastFunc>() {
        return extreme(expr, data_type, function.is::<GreatestFunc>(), scope);
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

/// The value, with a fault where there is more than one row: then the CPU has the error.
fn one_of(
    value: &Arc<dyn PhysicalExpr>,
    rows: &Arc<dyn PhysicalExpr>,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let number = |number: i64| Expr::literal(ScalarValue::from(number));
    let several = binary(
        BinaryOp::Gt,
        node(rows, scope)?,
        number(1),
        DataType::Boolean,
    );
    let divisor = case(several, number(0), number(1));
    let checked = binary(BinaryOp::Divide, number(1), divisor, DataType::Int64);
    let condition = binary(BinaryOp::Eq, checked, number(1), DataType::Boolean);
    let value = branch(node(value, scope)?, data_type)?;
    Ok(Node::Case {
        branches: vec![(condition, value)],
        otherwise: None,
    })
}

/// The greatest or least argument that is not NULL, floats in their total order.
fn extreme(
    expr: &ScalarFunctionExpr,
    data_type: &DataType,
    greatest: bool,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let mut best: Option<Expr> = None;
    for argument in expr.args() {
        let next = branch(node(argument, scope)?, data_type)?;
        check_order(&next)?;
        best = Some(match best {
            None => next,
            Some(best) => {
                let (less, more) = match greatest {
                    true => (&best, &next),
                    false => (&next, &best),
                };
                let better = binary(
                    BinaryOp::TotalLt,
                    less.clone(),
                    more.clone(),
                    DataType::Boolean,
                );
                // Not better, or one of the two is NULL.
                let known = Expr {
                    nullable: best.nullable && next.nullable,
                    data_type: data_type.clone(),
                    node: Node::Coalesce(vec![best, next.clone()]),
                };
                Expr {
                    nullable: known.nullable,
                    ..case(better, next, known)
                }
            }
        });
    }
    match best {
        // Every argument is repeated in the comparisons after it.
        Some(best) if expr.args().len() <= 6 => Ok(best.node),
        _ => refuse(format!(
            "{} of so many arguments runs on the CPU",
            expr.name()
        )),
    }
}
