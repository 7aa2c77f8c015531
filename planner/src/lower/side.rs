//! The sides of a join: what each is, reads and is ordered by.

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::Band;

use super::{Columns, read_by};
use crate::rel::{Join, JoinKind, RelRef};

/// By what the rows of a build side are sorted.
#[derive(Clone)]
pub(super) struct SideOrder {
    pub(super) value: Expr,
    /// Why, for EXPLAIN.
    pub(super) reason: String,
}

/// One side of a join.
#[derive(Clone)]
pub(super) struct Side<'a> {
    pub(super) rel: &'a RelRef,
    pub(super) keys: Vec<Expr>,
    /// Columns that operators above or the residual condition read.
    pub(super) needed: Columns,
    /// It is built in this order.
    pub(super) order: Option<SideOrder>,
    /// It probes a side in order by this band.
    pub(super) band: Option<Band>,
    /// Position of its first column in the join's output.
    pub(super) at: usize,
}

/// The sides of a join whose consumers read the columns `needed`.
pub(super) fn sides<'j>(join: &'j Join, needed: &Columns) -> (Side<'j>, Side<'j>) {
    let n = join.left.columns.len();
    let mut all: Columns = needed.clone();
    if join.kind == JoinKind::Mark {
        all.remove(&n);
    }
    all.extend(read_by(&join.residual));
    let left = Side {
        rel: &join.left,
        keys: join.on.iter().map(|(l, _)| l.clone()).collect(),
        needed: all.iter().copied().filter(|c| *c < n).collect(),
        order: None,
        band: None,
        at: 0,
    };
    let right = Side {
        rel: &join.right,
        keys: join.on.iter().map(|(_, r)| r.clone()).collect(),
        needed: all.iter().filter(|c| **c >= n).map(|c| c - n).collect(),
        order: None,
        band: None,
        at: n,
    };
    (left, right)
}
