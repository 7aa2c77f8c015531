//! Lets semi and anti joins ask indexes that are kept.
//!
//! An index over all rows of a table outlives the query, one over the rows that meet a condition does not. Where few rows ask, it is
//! cheaper to look them up in the first and to test the condition on what is found than to go over the table:
//!
//! ```text
//! L ⋉k,r σ c T   =   L ⋉k,(r ∧ c) T
//! ```
//!
//! The same holds for anti joins: no row of `T` with the key meets `r` and `c`.

use std::collections::BTreeSet;
use std::sync::Arc;

use warpline_gpu::expr::Expr;

use crate::rel::expr::{as_column, columns, renumber, substitute, substitute_all};
use crate::rel::walk::bottom_up;
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};
use crate::stats::Estimator;

/// `rel` with every such join that pays over the whole table.
pub(super) fn ask_whole_tables(rel: &RelRef, estimator: &Estimator<'_>) -> RelRef {
    bottom_up(rel, |rel| match &rel.kind {
        RelKind::Join(join) => over_whole_table(join, estimator).unwrap_or(rel),
        _ => rel,
    })
}

fn over_whole_table(join: &Join, estimator: &Estimator<'_>) -> Option<RelRef> {
    if !matches!(join.kind, JoinKind::Semi | JoinKind::Anti) || join.null_equal {
        return None;
    }
    if matches!(join.right.kind, RelKind::Scan { .. }) {
        return None;
    }
    let Rows {
        table,
        conjuncts,
        values,
    } = rows_of(&join.right)?;
    // What can fail fails for rows that nobody asks for, too, and does not for those that the condition drops.
    if conjuncts.iter().chain(&join.residual).any(Expr::may_fault) {
        return None;
    }
    let n = join.left.columns.len();
    let of_table = |expr: &Expr| renumber(expr, &|column| column + n);
    let left = join.left.columns.iter().enumerate();
    let left = left.map(|(i, column)| Expr::column(i, column.data_type.clone(), column.nullable));
    let both: Vec<Expr> = left.chain(values.iter().map(of_table)).collect();
    let mut residual = substitute_all(&join.residual, &both).ok()?;
    residual.extend(conjuncts.iter().map(of_table));
    let keys = join.on.iter().map(|(ours, theirs)| {
        let theirs = substitute(theirs, &values).ok()?;
        Some((ours.clone(), theirs))
    });
    let on: Vec<(Expr, Expr)> = keys.collect::<Option<_>>()?;
    let theirs: Vec<Expr> = on.iter().map(|(_, key)| key.clone()).collect();
    let read: BTreeSet<usize> = residual.iter().flat_map(columns).collect();
    let read: Vec<usize> = read.range(n..).map(|column| column - n).collect();
    let asks = estimator.rows(&join.left);
    estimator.asks_kept(asks, &table, &theirs, &read).then(|| {
        Rel::join(Join {
            right: table,
            on,
            residual,
            ..join.clone()
        })
    })
}

/// The rows of a scan that meet conditions, and what is computed of them, over the scan's columns.
struct Rows {
    table: RelRef,
    conjuncts: Vec<Expr>,
    values: Vec<Expr>,
}

fn rows_of(rel: &RelRef) -> Option<Rows> {
    match &rel.kind {
        RelKind::Scan { .. } => {
            let columns = rel.columns.iter().enumerate();
            let columns = columns
                .map(|(i, column)| Expr::column(i, column.data_type.clone(), column.nullable));
            Some(Rows {
                table: Arc::clone(rel),
                conjuncts: vec![],
                values: columns.collect(),
            })
        }
        RelKind::Filter { input, conjuncts } => {
            let mut rows = rows_of(input)?;
            let more = substitute_all(conjuncts, &rows.values).ok()?;
            rows.conjuncts.extend(more);
            Some(rows)
        }
        RelKind::Project { input, exprs } if exprs.iter().all(|e| as_column(e).is_some()) => {
            let mut rows = rows_of(input)?;
            rows.values = substitute_all(exprs, &rows.values).ok()?;
            Some(rows)
        }
        _ => None,
    }
}
