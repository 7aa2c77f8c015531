//! CASE and IN.

use arrow::datatypes::DataType;
use datafusion::physical_expr::expressions::{CaseExpr, InListExpr, Literal};
use warpline_gpu::expr::{BinaryOp, Expr, Node};

use super::{Scope, boxed, is_string, node};
use crate::reason::{Reason, refuse};
use crate::rel::expr::binary;

/// Searched CASE; a CASE with a base expression compares the base with each WHEN.
pub(super) fn case(
    expr: &CaseExpr,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> Result<Node, Reason> {
    let base = expr.expr().map(|base| node(base, scope)).transpose()?;
    let mut branches = Vec::with_capacity(expr.when_then_expr().len());
    for (when, then) in expr.when_then_expr() {
        let when = node(when, scope)?;
        let condition = match &base {
            None => when,
            Some(base) => equals(base.clone(), when)?,
        };
        branches.push((condition, branch(node(then, scope)?, data_type)?));
    }
    let otherwise = match expr.else_expr() {
        Some(e) => Some(Box::new(branch(node(e, scope)?, data_type)?)),
        None => None,
    };
    Ok(Node::Case {
        branches,
        otherwise,
    })
}

/// `a = b` over values of one type, as CASE with a base expression and NULLIF compare them.
pub(super) fn equals(a: Expr, b: Expr) -> Result<Expr, Reason> {
    if a.data_type != b.data_type && a.data_type != DataType::Null && b.data_type != DataType::Null
    {
        return refuse(format!(
            "a comparison of {} with {} runs on the CPU",
            a.data_type, b.data_type
        ));
    }
    let nullable = a.nullable || b.nullable;
    let floats = a.data_type.is_floating();
    Ok(Expr {
        nullable,
        data_type: DataType::Boolean,
        node: Node::Binary {
            // DataFusion tells the two zeros apart here, as IN does and the operator = does not.
            op: match floats {
                true => BinaryOp::TotalEq,
                false => BinaryOp::Eq,
            },
            left: Box::new(a),
            right: Box::new(b),
        },
    })
}

/// A result of CASE or COALESCE: of the type of the whole, or NULL.
pub(super) fn branch(value: Expr, data_type: &DataType) -> Result<Expr, Reason> {
    if value.data_type == *data_type || value.data_type == DataType::Null {
        return Ok(value);
    }
    refuse(format!(
        "branches of types {} and {data_type} run on the CPU",
        value.data_type
    ))
}

pub(super) fn in_list(expr: &InListExpr, scope: &mut Scope<'_>) -> Result<Node, Reason> {
    let value = boxed(expr.expr(), scope)?;
    if is_string(&value.data_type) || expr.list().iter().any(|item| !item.is::<Literal>()) {
        return any_equals(*value, expr, scope);
    }
    let mut list = Vec::with_capacity(expr.list().len());
    for item in expr.list() {
        let Some(literal) = item.downcast_ref::<Literal>() else {
            return refuse("IN with a list that is not constant runs on the CPU");
        };
        let item = literal.value();
        if item.data_type() != value.data_type && !item.is_null() {
            return refuse(format!(
                "IN of {} over {} runs on the CPU",
                value.data_type,
                item.data_type()
            ));
        }
        list.push(item.clone());
    }
    Ok(Node::InList {
        value,
        list,
        negated: expr.negated(),
    })
}

/// Most values of a list that are compared one by one.
const MOST_COMPARED: usize = 16;

/// IN as comparisons with each of the list, which knows NULL as OR does.
fn any_equals(value: Expr, expr: &InListExpr, scope: &mut Scope<'_>) -> Result<Node, Reason> {
    let items = expr.list();
    if items.len() > MOST_COMPARED {
        return refuse("IN with a long list that is not constant runs on the CPU");
    }
    let mut found: Option<Expr> = None;
    for item in items {
        let item = node(item, scope)?;
        if is_string(&value.data_type) && item.data_type == DataType::Null {
            return refuse("IN of strings with NULL runs on the CPU");
        }
        let equal = equals(value.clone(), item)?;
        found = Some(match found {
            None => equal,
            Some(others) => binary(BinaryOp::Or, others, equal, DataType::Boolean),
        });
    }
    let Some(found) = found else {
        return refuse("IN with an empty list runs on the CPU");
    };
    Ok(match expr.negated() {
        true => Node::Not(Box::new(found)),
        false => found.node,
    })
}
