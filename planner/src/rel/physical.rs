//! Expressions of the device as DataFusion's again, for what DataFusion is to compute after all.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::functions::datetime::date_part;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
    TryCastExpr, in_list,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};

/// `expr` over columns of `schema`; `None` for what has no counterpart of the same type.
pub fn physical(expr: &Expr, schema: &Schema) -> Option<Arc<dyn PhysicalExpr>> {
    let of = |expr: &Expr| physical(expr, schema);
    let made: Arc<dyn PhysicalExpr> = match &expr.node {
        Node::Column(index) => Arc::new(Column::new(schema.fields().get(*index)?.name(), *index)),
        Node::Literal(value) => Arc::new(Literal::new(value.clone())),
        Node::Binary { op, left, right } => {
            Arc::new(BinaryExpr::new(of(left)?, operator(*op)?, of(right)?))
        }
        Node::Not(value) => Arc::new(NotExpr::new(of(value)?)),
        Node::IsNull(value) => Arc::new(IsNullExpr::new(of(value)?)),
        Node::IsNotNull(value) => Arc::new(IsNotNullExpr::new(of(value)?)),
        Node::Cast { value, safe: false } => {
            Arc::new(CastExpr::new(of(value)?, expr.data_type.clone(), None))
        }
        Node::Cast { value, safe: true } => {
            Arc::new(TryCastExpr::new(of(value)?, expr.data_type.clone()))
        }
        Node::Case {
            branches,
            otherwise,
        } => {
            let branches = branches
                .iter()
                .map(|(when, then)| Some((of(when)?, of(then)?)));
            let otherwise = match otherwise {
                Some(otherwise) => Some(of(otherwise)?),
                None => None,
            };
            let branches = branches.collect::<Option<Vec<_>>>()?;
            Arc::new(CaseExpr::try_new(None, branches, otherwise).ok()?)
        }
        Node::InList {
            value,
            list,
            negated,
        } => {
            let list = list
                .iter()
                .map(|value| Arc::new(Literal::new(value.clone())) as _);
            in_list(of(value)?, list.collect(), negated, schema).ok()?
        }
        Node::DatePart { part, value } => {
            let part = Literal::new(ScalarValue::from(part.name()));
            let arguments: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(part), of(value)?];
            let options = Arc::new(ConfigOptions::default());
            let call = ScalarFunctionExpr::try_new(date_part(), arguments, schema, options);
            Arc::new(call.ok()?)
        }
        Node::PerDistinct { column, function } => {
            let column = Column::new(schema.fields().get(*column)?.name(), *column);
            over(function, &[Arc::new(column)])?
        }
        Node::PerCombination { inputs, function } => {
            let inputs: Vec<_> = inputs.iter().map(of).collect::<Option<_>>()?;
            over(function, &inputs)?
        }
        _ => return None,
    };
    (made.data_type(schema).ok()? == expr.data_type).then_some(made)
}

/// `function` with these in the place of its columns.
pub fn over(
    function: &Arc<dyn PhysicalExpr>,
    values: &[Arc<dyn PhysicalExpr>],
) -> Option<Arc<dyn PhysicalExpr>> {
    let mut complete = true;
    let replaced = Arc::clone(function).transform_down(|e| {
        let Some(column) = e.downcast_ref::<Column>() else {
            return Ok(Transformed::no(e));
        };
        let value = values.get(column.index()).cloned();
        complete &= value.is_some();
        let value = value.unwrap_or(e);
        Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
    });
    replaced
        .ok()
        .filter(|_| complete)
        .map(|replaced| replaced.data)
}

fn operator(op: BinaryOp) -> Option<Operator> {
    Some(match op {
        BinaryOp::Add => Operator::Plus,
        BinaryOp::Subtract => Operator::Minus,
        BinaryOp::Multiply => Operator::Multiply,
        BinaryOp::Divide => Operator::Divide,
        BinaryOp::Modulo => Operator::Modulo,
        BinaryOp::Eq => Operator::Eq,
        BinaryOp::NotEq => Operator::NotEq,
        BinaryOp::Lt => Operator::Lt,
        BinaryOp::LtEq => Operator::LtEq,
        BinaryOp::Gt => Operator::Gt,
        BinaryOp::GtEq => Operator::GtEq,
        BinaryOp::And => Operator::And,
        BinaryOp::Or => Operator::Or,
        BinaryOp::IsDistinctFrom => Operator::IsDistinctFrom,
        BinaryOp::IsNotDistinctFrom => Operator::IsNotDistinctFrom,
        BinaryOp::BitAnd => Operator::BitwiseAnd,
        BinaryOp::BitOr => Operator::BitwiseOr,
        BinaryOp::BitXor => Operator::BitwiseXor,
        BinaryOp::ShiftRight => Operator::BitwiseShiftRight,
        BinaryOp::ShiftLeft => Operator::BitwiseShiftLeft,
        BinaryOp::TotalEq | BinaryOp::TotalLt => return None,
    })
}
