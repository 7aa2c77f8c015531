//! Working on device expressions: substitution, renumbering and comparison.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, MathFunction, Node};

use crate::reason::{Reason, refuse};
use crate::translate::{MAX_NODES, is_string};

/// `expr` with every column `i` replaced by `with[i]`.
///
/// # Errors
/// When a string function meets an operand it cannot be moved into, or the expression outgrows a kernel.
pub fn substitute(expr: &Expr, with: &[Expr]) -> Result<Expr, Reason> {
    let result = replace(expr, &mut |i| match with.get(i) {
        Some(expr) => Ok(expr.clone()),
        None => refuse("a column that the input lacks"),
    })?;
    let nodes = count(&result);
    if nodes > MAX_NODES {
        return refuse(format!(
            "an expression of {nodes} nodes is too large for a kernel"
        ));
    }
    Ok(result)
}

/// [`substitute`] for several expressions.
///
/// # Errors
/// As [`substitute`].
pub fn substitute_all(exprs: &[Expr], with: &[Expr]) -> Result<Vec<Expr>, Reason> {
    exprs.iter().map(|e| substitute(e, with)).collect()
}

/// `expr` with every column `i` renumbered to `to(i)`.
pub fn renumber(expr: &Expr, to: &impl Fn(usize) -> usize) -> Expr {
    let mut expr = expr.clone();
    renumber_in_place(&mut expr, to);
    expr
}

fn renumber_in_place(expr: &mut Expr, to: &impl Fn(usize) -> usize) {
    match &mut expr.node {
        Node::Column(index) | Node::PerDistinct { column: index, .. } => *index = to(*index),
        _ => for_each_child(expr, &mut |child| renumber_in_place(child, to)),
    }
}

/// The columns that `expr` reads.
pub fn columns(expr: &Expr) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    expr.for_each_column(&mut |i| {
        found.insert(i);
    });
    found
}

/// The column that `expr` is.
pub fn as_column(expr: &Expr) -> Option<usize> {
    match &expr.node {
        Node::Column(index) => Some(*index),
        _ => None,
    }
}

/// True for the constant TRUE.
pub fn is_true(expr: &Expr) -> bool {
    matches!(&expr.node, Node::Literal(ScalarValue::Boolean(Some(true))))
}

/// A typed NULL.
///
/// # Errors
/// For types without a scalar form.
pub fn null(data_type: &DataType) -> Result<Expr, Reason> {
    Ok(Expr::literal(ScalarValue::try_from(data_type)?))
}

/// `left op right`, NULL where an operand is.
pub fn binary(op: BinaryOp, left: Expr, right: Expr, data_type: DataType) -> Expr {
    Expr {
        nullable: left.nullable || right.nullable,
        data_type,
        node: Node::Binary {
            op,
            left: Box::new(left),
            right: Box::new(right),
        },
    }
}

/// The conjunction of conditions; `None` of none.
pub fn all_of(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    conditions
        .into_iter()
        .reduce(|left, right| binary(BinaryOp::And, left, right, DataType::Boolean))
}

/// Whether `value` is not NULL.
pub fn is_not_null(value: Expr) -> Expr {
    Expr {
        node: Node::IsNotNull(Box::new(value)),
        data_type: DataType::Boolean,
        nullable: false,
    }
}

/// CAST of `value`, which fails where it does not fit.
pub fn cast(value: Expr, data_type: DataType) -> Expr {
    Expr {
        nullable: value.nullable,
        data_type,
        node: Node::Cast {
            value: Box::new(value),
            safe: false,
        },
    }
}

/// CASE WHEN `condition` THEN `then` ELSE `otherwise` END.
pub fn case(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
    Expr {
        nullable: then.nullable || otherwise.nullable,
        data_type: then.data_type.clone(),
        node: Node::Case {
            branches: vec![(condition, then)],
            otherwise: Some(Box::new(otherwise)),
        },
    }
}

/// `value`, 0 where it is NULL.
///
/// # Errors
/// For types without a zero.
pub fn or_zero(value: Expr) -> Result<Expr, Reason> {
    if !value.nullable {
        return Ok(value);
    }
    let zero = Expr::literal(ScalarValue::new_zero(&value.data_type)?);
    Ok(Expr {
        nullable: false,
        data_type: value.data_type.clone(),
        node: Node::Coalesce(vec![value, zero]),
    })
}

/// Is a float not a number?
pub fn is_nan(value: &Expr) -> Expr {
    // What stands for NaN is one and zero at once only where there is one.
    let stands = |number: f64| {
        let number = Expr::literal(ScalarValue::Float64(Some(number)));
        let replaced = Expr {
            nullable: value.nullable,
            data_type: DataType::Float64,
            node: Node::Math {
                function: MathFunction::Nanvl,
                arguments: vec![value.clone(), number.clone()],
            },
        };
        binary(BinaryOp::Eq, replaced, number, DataType::Boolean)
    };
    binary(BinaryOp::And, stands(1.0), stands(0.0), DataType::Boolean)
}

/// A float with one zero instead of two, so that floats that SQL calls equal are the same; other values as they are. NaN is equal
/// to NaN.
pub fn one_zero(value: Expr) -> Expr {
    let zero = match value.data_type {
        DataType::Float64 => ScalarValue::Float64(Some(0.0)),
        DataType::Float32 => ScalarValue::Float32(Some(0.0)),
        _ => return value,
    };
    let zero = Expr::literal(zero);
    if let Node::Case { branches, .. } = &value.node
        && let [(_, then)] = branches.as_slice()
        && same(then, &zero)
    {
        return value;
    }
    let is_zero = binary(BinaryOp::Eq, value.clone(), zero.clone(), DataType::Boolean);
    case(is_zero, zero, value)
}

/// The conjuncts of a tree of ANDs.
pub fn split(expr: Expr, conjuncts: &mut Vec<Expr>) {
    match expr.node {
        Node::Binary {
            op: BinaryOp::And,
            left,
            right,
        } => {
            split(*left, conjuncts);
            split(*right, conjuncts);
        }
        _ if is_true(&expr) => {}
        _ => conjuncts.push(expr),
    }
}

/// True when both are as many, and each computes the same as the other at its place.
pub fn all_same(a: &[Expr], b: &[Expr]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// True when both compute the same: same nodes, types and columns.
pub fn same(a: &Expr, b: &Expr) -> bool {
    if a.data_type != b.data_type || a.nullable != b.nullable {
        return false;
    }
    match (&a.node, &b.node) {
        (Node::Column(a), Node::Column(b)) => a == b,
        (Node::Literal(a), Node::Literal(b)) => a == b,
        (Node::RowNumber, Node::RowNumber) => true,
        (
            Node::Binary { op, left, right },
            Node::Binary {
                op: other,
                left: l,
                right: r,
            },
        ) => op == other && same(left, l) && same(right, r),
        (Node::Not(a), Node::Not(b))
        | (Node::Negate(a), Node::Negate(b))
        | (Node::IsNull(a), Node::IsNull(b))
        | (Node::IsNotNull(a), Node::IsNotNull(b)) => same(a, b),
        (
            Node::Cast { value, safe },
            Node::Cast {
                value: other,
                safe: other_safe,
            },
        ) => safe == other_safe && same(value, other),
        (
            Node::Case {
                branches,
                otherwise,
            },
            Node::Case {
                branches: others,
                otherwise: other,
            },
        ) => {
            branches.len() == others.len()
                && branches
                    .iter()
                    .zip(others)
                    .all(|((w, t), (ow, ot))| same(w, ow) && same(t, ot))
                && match (otherwise, other) {
                    (Some(a), Some(b)) => same(a, b),
                    (None, None) => true,
                    _ => false,
                }
        }
        (
            Node::InList {
                value,
                list,
                negated,
            },
            Node::InList {
                value: other,
                list: others,
                negated: other_negated,
            },
        ) => negated == other_negated && list == others && same(value, other),
        (Node::Coalesce(a), Node::Coalesce(b)) => all_same(a, b),
        (
            Node::Math {
                function,
                arguments,
            },
            Node::Math {
                function: other,
                arguments: others,
            },
        ) => function == other && all_same(arguments, others),
        (
            Node::DatePart { part, value },
            Node::DatePart {
                part: other_part,
                value: other,
            },
        ) => part == other_part && same(value, other),
        (
            Node::Calendar { function, value },
            Node::Calendar {
                function: other_function,
                value: other,
            },
        ) => function == other_function && same(value, other),
        (
            Node::PerDistinct { column, function },
            Node::PerDistinct {
                column: other,
                function: other_function,
            },
        ) => column == other && function == other_function,
        (
            Node::PerCombination { inputs, function },
            Node::PerCombination {
                inputs: others,
                function: other_function,
            },
        ) => function == other_function && all_same(inputs, others),
        _ => false,
    }
}

/// Call `visit` with every direct operand.
fn for_each_child(expr: &mut Expr, visit: &mut impl FnMut(&mut Expr)) {
    match &mut expr.node {
        Node::Column(_) | Node::Literal(_) | Node::RowNumber | Node::PerDistinct { .. } => {}
        Node::Binary { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Node::Not(e)
        | Node::Negate(e)
        | Node::IsNull(e)
        | Node::IsNotNull(e)
        | Node::Cast { value: e, .. }
        | Node::InList { value: e, .. }
        | Node::Calendar { value: e, .. }
        | Node::DatePart { value: e, .. } => visit(e),
        Node::Case {
            branches,
            otherwise,
        } => {
            for (when, then) in branches {
                visit(when);
                visit(then);
            }
            if let Some(e) = otherwise {
                visit(e);
            }
        }
        Node::Coalesce(list)
        | Node::PerCombination { inputs: list, .. }
        | Node::Math {
            arguments: list, ..
        } => list.iter_mut().for_each(visit),
    }
}

/// The direct operands.
pub fn children(expr: &Expr) -> Vec<&Expr> {
    match &expr.node {
        Node::Column(_) | Node::Literal(_) | Node::RowNumber | Node::PerDistinct { .. } => vec![],
        Node::Binary { left, right, .. } => vec![left, right],
        Node::Not(e)
        | Node::Negate(e)
        | Node::IsNull(e)
        | Node::IsNotNull(e)
        | Node::Cast { value: e, .. }
        | Node::InList { value: e, .. }
        | Node::Calendar { value: e, .. }
        | Node::DatePart { value: e, .. } => vec![e],
        Node::Case {
            branches,
            otherwise,
        } => {
            let both = branches.iter().flat_map(|(when, then)| [when, then]);
            both.chain(otherwise.as_deref()).collect()
        }
        Node::Coalesce(list)
        | Node::PerCombination { inputs: list, .. }
        | Node::Math {
            arguments: list, ..
        } => list.iter().collect(),
    }
}

fn count(expr: &Expr) -> usize {
    1 + children(expr).into_iter().map(count).sum::<usize>()
}

fn replace(
    expr: &Expr,
    column: &mut impl FnMut(usize) -> Result<Expr, Reason>,
) -> Result<Expr, Reason> {
    match &expr.node {
        Node::Column(index) => column(*index),
        Node::PerDistinct {
            column: index,
            function,
        } => compose(column(*index)?, function, expr),
        _ => {
            let mut result = expr.clone();
            let mut failure = None;
            for_each_child(&mut result, &mut |child| match replace(child, column) {
                Ok(replaced) => *child = replaced,
                Err(reason) => failure = Some(reason),
            });
            match failure {
                Some(reason) => Err(reason),
                None => of_one_string(result),
            }
        }
    }
}

/// `expr` as a function of one string where it is one of that and of what is computed of the same: there are as many values as the
/// string has, not as many as there would be combinations.
fn of_one_string(expr: Expr) -> Result<Expr, Reason> {
    let Node::PerCombination { inputs, function } = &expr.node else {
        return Ok(expr);
    };
    let mut string = None;
    for input in inputs {
        match &input.node {
            Node::PerDistinct { column, .. } => string = Some(*column),
            Node::Column(_) => {}
            _ => return Ok(expr),
        }
    }
    let of_it = |input: &Expr| match input.node {
        Node::PerDistinct { column, .. } => Some(column) == string,
        Node::Column(column) => Some(column) == string,
        _ => false,
    };
    let Some(column) = string.filter(|_| inputs.iter().all(of_it)) else {
        return Ok(expr);
    };
    let composed = Arc::clone(function).transform_down(|e| {
        let Some(input) = e.downcast_ref::<Column>() else {
            return Ok(Transformed::no(e));
        };
        let value = match inputs.get(input.index()).map(|input| &input.node) {
            Some(Node::PerDistinct { function, .. }) => Arc::clone(function),
            _ => Arc::new(Column::new(input.name(), 0)) as _,
        };
        Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
    })?;
    Ok(Expr {
        node: Node::PerDistinct {
            column,
            function: composed.data,
        },
        ..expr
    })
}

/// The string function of `outer` over `inner`.
fn compose(inner: Expr, function: &Arc<dyn PhysicalExpr>, outer: &Expr) -> Result<Expr, Reason> {
    let result = |node| Expr {
        node,
        data_type: outer.data_type.clone(),
        nullable: outer.nullable || inner.nullable,
    };
    match &inner.node {
        Node::Column(column) => Ok(result(Node::PerDistinct {
            column: *column,
            function: Arc::clone(function),
        })),
        Node::PerDistinct {
            column,
            function: first,
        } => {
            let composed = Arc::clone(function)
                .transform_down(|e| {
                    Ok(if e.is::<Column>() {
                        Transformed::new(Arc::clone(first), true, TreeNodeRecursion::Jump)
                    } else {
                        Transformed::no(e)
                    })
                })?
                .data;
            Ok(result(Node::PerDistinct {
                column: *column,
                function: composed,
            }))
        }
        Node::Literal(value) => at_constant(function, value, &inner.data_type).map(Expr::literal),
        Node::Case {
            branches,
            otherwise,
        } => {
            let nothing = null(&inner.data_type)?;
            let branches = branches
                .iter()
                .map(|(when, then)| Ok((when.clone(), compose(then.clone(), function, outer)?)))
                .collect::<Result<_, Reason>>()?;
            let otherwise = otherwise.as_deref().cloned().unwrap_or(nothing);
            let otherwise = Some(Box::new(compose(otherwise, function, outer)?));
            Ok(result(Node::Case {
                branches,
                otherwise,
            }))
        }
        _ if is_string(&inner.data_type) => {
            let function = Arc::clone(function);
            Ok(result(Node::PerCombination {
                inputs: vec![inner.clone()],
                function,
            }))
        }
        _ => refuse("a string function over a computed string runs on the CPU"),
    }
}

/// `function`, over one column, at a constant of `data_type`.
///
/// # Errors
/// Those of the function.
pub fn at_constant(
    function: &Arc<dyn PhysicalExpr>,
    value: &ScalarValue,
    data_type: &DataType,
) -> Result<ScalarValue, Reason> {
    let schema = Arc::new(Schema::new(vec![Field::new("x", data_type.clone(), true)]));
    let array = value.cast_to(data_type)?.to_array_of_size(1)?;
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(schema, vec![array], &options)
        .map_err(datafusion::error::DataFusionError::from)?;
    let answer = function.evaluate(&batch)?.into_array(1)?;
    Ok(ScalarValue::try_from_array(&answer, 0)?)
}
