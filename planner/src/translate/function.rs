//! Scalar functions that kernels compute.

use arrow::datatypes::DataType;
use datafusion::functions::core::coalesce::CoalesceFunc;
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{Expr, Node};

use super::conditional::{branch, equals};
use super::{Scope, calendar, is_string, math, node};
use crate::reason::{Reason, refuse};

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
