//! Windows of which only the first rows of each partition are asked for (`rank() OVER (PARTITION BY … ORDER BY …) <= 100`).
//!
//! Such rows are the same whether the window is over all rows or over them alone: the others are left out once they are in order,
//! before columns are moved and numbers made. The condition stays above the window.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};
use warpline_gpu::graph::{FirstRows, Numbering, Window, WindowColumn};

use super::expr::{as_column, substitute_all};
use super::walk::bottom_up;
use super::{Rel, RelKind, RelRef};

/// `rel` with windows over no more rows than conditions above them ask for.
pub fn with_first_rows(rel: &RelRef) -> RelRef {
    bottom_up(rel, |rel| {
        let RelKind::Filter { input, conjuncts } = &rel.kind else {
            return rel;
        };
        match limited(input, conjuncts) {
            Some(input) => rel.with_inputs(vec![input]),
            None => rel,
        }
    })
}

/// The rows of `rel` that can pass the conditions, where these leave the first rows of a window's partitions.
fn limited(rel: &RelRef, conditions: &[Expr]) -> Option<RelRef> {
    match &rel.kind {
        RelKind::Project { input, exprs } => {
            let conditions = substitute_all(conditions, exprs).ok()?;
            Some(rel.with_inputs(vec![limited(input, &conditions)?]))
        }
        RelKind::Window {
            input,
            keys,
            window,
        } => {
            let of_rows_before = |column: &WindowColumn| column.is_of_rows_before();
            let whole = window.first.is_none()
                && window.lists.is_empty()
                && window.columns.iter().all(of_rows_before);
            if !whole || keys.is_empty() {
                return None;
            }
            let width = input.columns.len();
            let first = conditions
                .iter()
                .find_map(|c| first_rows(c, width, window))?;
            Some(Arc::new(Rel {
                columns: rel.columns.clone(),
                kind: RelKind::Window {
                    input: Arc::clone(input),
                    keys: keys.clone(),
                    window: Window {
                        first: Some(first),
                        ..window.clone()
                    },
                },
            }))
        }
        _ => None,
    }
}

/// The rows that a condition over a window leaves, whose columns begin at `width`.
fn first_rows(condition: &Expr, width: usize, window: &Window) -> Option<FirstRows> {
    let Node::Binary { op, left, right } = &condition.node else {
        return None;
    };
    let (number, constant, op) = match (&left.node, &right.node) {
        (_, Node::Literal(constant)) => (left, constant, *op),
        (Node::Literal(constant), _) => {
            let mirrored = match op {
                BinaryOp::GtEq => BinaryOp::LtEq,
                BinaryOp::Gt => BinaryOp::Lt,
                BinaryOp::Eq => BinaryOp::Eq,
                _ => return None,
            };
            (right, constant, mirrored)
        }
        _ => return None,
    };
    let last = match op {
        BinaryOp::LtEq | BinaryOp::Eq => whole(constant)?,
        BinaryOp::Lt => whole(constant)?.checked_sub(1)?,
        _ => return None,
    };
    let most = u64::try_from(last).ok().filter(|most| *most > 0)?;
    let numbering = numbering(number, width, window)?;
    Some(FirstRows { numbering, most })
}

/// By what an expression numbers the rows of a partition from 1.
fn numbering(expr: &Expr, width: usize, window: &Window) -> Option<Numbering> {
    let column = |expr: &Expr| {
        let of_window = as_column(expr)?.checked_sub(width)?;
        window.columns.get(of_window).copied()
    };
    match &expr.node {
        // Numbers of rows are far from the ends of any type that they are cast to.
        Node::Cast { value, .. } if expr.data_type.is_integer() && is_long(expr) => {
            numbering(value, width, window)
        }
        Node::Binary {
            op: BinaryOp::Add,
            left,
            right,
        } => {
            let Node::Binary {
                op: BinaryOp::Subtract,
                left: row,
                right: start,
            } = &left.node
            else {
                return None;
            };
            let one = matches!(right.node, Node::Literal(ScalarValue::Int64(Some(1))));
            if !one || column(start)? != WindowColumn::PartitionStart {
                return None;
            }
            match column(row)? {
                WindowColumn::Position => Some(Numbering::Row),
                WindowColumn::PeerStart => Some(Numbering::Rank),
                _ => None,
            }
        }
        _ => (column(expr)? == WindowColumn::DenseRank).then_some(Numbering::DenseRank),
    }
}

/// Has the type of an integer at least 64 bits?
fn is_long(expr: &Expr) -> bool {
    expr.data_type.primitive_width() == Some(8)
}

fn whole(constant: &ScalarValue) -> Option<i128> {
    match constant {
        ScalarValue::Int64(value) => value.map(i128::from),
        ScalarValue::UInt64(value) => value.map(i128::from),
        ScalarValue::Int32(value) => value.map(i128::from),
        _ => None,
    }
}
