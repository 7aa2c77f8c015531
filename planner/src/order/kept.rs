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

use warpline_gpu::expr::Expr;

use super::scanned::Scanned;
use crate::rel::expr::{as_column, renumber, substitute, substitute_all};
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
    let semi = matches!(join.kind, JoinKind::Semi | JoinKind::Anti);
    if !semi || matches!(join.right.kind, RelKind::Scan { .. }) {
        return None;
    }
    let Scanned {
        scan,
        conjuncts,
        values,
    } = Scanned::of(&join.right)?;
    // What can fail fails for rows that nobody asks for, too, and does not for those that the condition drops.
    let may_fault = conjuncts.iter().chain(&join.residual).any(Expr::may_fault);
    if may_fault || values.iter().any(|value| as_column(value).is_none()) {
        return None;
    }
    let n = join.left.columns.len();
    let of_table = |expr: &Expr| renumber(expr, &|column| column + n);
    let mut both = join.left.all_columns();
    both.extend(values.iter().map(of_table));
    let mut residual = substitute_all(&join.residual, &both).ok()?;
    residual.extend(conjuncts.iter().map(of_table));
    let keys = join
        .on
        .iter()
        .map(|(ours, theirs)| Some((ours.clone(), substitute(theirs, &values).ok()?)));
    let asked = Join {
        right: scan,
        on: keys.collect::<Option<_>>()?,
        residual,
        ..join.clone()
    };
    estimator.asks_kept(&asked).then(|| Rel::join(asked))
}
