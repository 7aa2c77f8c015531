//! Relations that are rows of one scan: which of them, and what is computed of each.

use std::sync::Arc;

use warpline_gpu::expr::Expr;

use crate::rel::expr::substitute_all;
use crate::rel::{RelKind, RelRef};

/// The rows of a scan that meet conditions, and what is computed of them, over the scan's columns.
pub(super) struct Scanned {
    pub(super) scan: RelRef,
    pub(super) conjuncts: Vec<Expr>,
    /// By column of the relation.
    pub(super) values: Vec<Expr>,
}

impl Scanned {
    /// The rows that `rel` is; `None` where it is more than filters and projections over a scan.
    pub(super) fn of(rel: &RelRef) -> Option<Self> {
        match &rel.kind {
            RelKind::Scan { .. } => Some(Self {
                scan: Arc::clone(rel),
                conjuncts: vec![],
                values: rel.all_columns(),
            }),
            RelKind::Filter { input, conjuncts } => {
                let mut rows = Self::of(input)?;
                let more = substitute_all(conjuncts, &rows.values).ok()?;
                rows.conjuncts.extend(more);
                Some(rows)
            }
            RelKind::Project { input, exprs } => {
                let mut rows = Self::of(input)?;
                rows.values = substitute_all(exprs, &rows.values).ok()?;
                Some(rows)
            }
            _ => None,
        }
    }
}
