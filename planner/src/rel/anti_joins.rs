//! Rewrites left joins of which only rows without a match remain (`… LEFT JOIN r ON l.k = r.k WHERE r.k IS NULL`) to
//! anti joins.
//!
//! An anti join tests an index for the key and carries no columns of the right side, and join ordering can move it; a
//! condition above a left join is tested on rows that the join has made.

use std::sync::Arc;

use warpline_gpu::expr::{Expr, Node};

use super::expr::{as_column, null};
use super::walk::bottom_up;
use super::{Join, JoinKind, Rel, RelKind, RelRef};

/// `rel` with such joins as anti joins.
pub fn with_anti_joins(rel: &RelRef) -> RelRef {
    bottom_up(rel, with_anti_join)
}

fn with_anti_join(rel: RelRef) -> RelRef {
    let RelKind::Filter { input, conjuncts } = &rel.kind else {
        return rel;
    };
    let mut input = Arc::clone(input);
    let mut rest = Vec::with_capacity(conjuncts.len());
    for conjunct in conjuncts {
        match null_column(conjunct).and_then(|column| unmatched(&input, column)) {
            Some(rows) => input = rows,
            None => rest.push(conjunct.clone()),
        }
    }
    match rest.len() == conjuncts.len() {
        true => rel,
        false => Rel::filter(input, rest),
    }
}

/// The column of which a condition asks that it is NULL.
fn null_column(condition: &Expr) -> Option<usize> {
    match &condition.node {
        Node::IsNull(value) => as_column(value),
        _ => None,
    }
}

/// The rows of `rel` in which a column is NULL, when that says that a left join below found no match for them.
fn unmatched(rel: &RelRef, column: usize) -> Option<RelRef> {
    match &rel.kind {
        RelKind::Filter { input, .. } => Some(rel.with_inputs(vec![unmatched(input, column)?])),
        RelKind::Project { input, exprs } => {
            let column = as_column(exprs.get(column)?)?;
            Some(rel.with_inputs(vec![unmatched(input, column)?]))
        }
        RelKind::Join(join) if join.kind == JoinKind::Left => {
            let n = join.left.columns.len();
            match column.checked_sub(n) {
                None => {
                    let left = unmatched(&join.left, column)?;
                    Some(rel.with_inputs(vec![left, Arc::clone(&join.right)]))
                }
                Some(right) if is_known_of_matches(join, right) => without_match(rel, join),
                Some(_) => None,
            }
        }
        _ => None,
    }
}

/// Has a column of the right side a value in every match? Keys are equal, which NULLs are not.
fn is_known_of_matches(join: &Join, column: usize) -> bool {
    let is_key = || join.on.iter().any(|(_, r)| as_column(r) == Some(column));
    !join.right.columns[column].nullable || (!join.null_equal && is_key())
}

/// The left rows of a join without a match, with NULLs for the right side.
fn without_match(rel: &RelRef, join: &Join) -> Option<RelRef> {
    let anti = Rel::join(Join {
        kind: JoinKind::Anti,
        ..join.clone()
    });
    let absent = join.right.columns.iter();
    let absent = absent.map(|column| null(&column.data_type));
    let columns = anti.all_columns().into_iter().map(Ok).chain(absent);
    let columns = columns.collect::<Result<Vec<Expr>, _>>().ok()?;
    let names = rel.columns.iter().map(|column| column.name.clone());
    Some(Rel::project(anti, columns.into_iter().zip(names).collect()))
}
