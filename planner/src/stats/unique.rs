//! Uniqueness of columns: functional keys of a relation.

use std::collections::BTreeSet;

use warpline_gpu::graph::WindowColumn;

use super::Estimator;
use super::column::base;
use crate::rel::expr::as_column;
use crate::rel::{Join, JoinKind, RelKind, RelRef};

/// How certain a proof of uniqueness must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It follows from exact facts.
    Certain,
    /// The columns have enough distinct combinations, and nothing speaks against it.
    Plausible,
}

impl Estimator<'_> {
    /// True when column `column` of `rel` comes from a table in which it is unique.
    pub fn unique_somewhere(&self, rel: &RelRef, column: usize) -> bool {
        match &rel.kind {
            RelKind::Scan { .. } => self.unique(rel, &BTreeSet::from([column]), Proof::Certain),
            RelKind::Filter { input, .. }
            | RelKind::Sort { input, .. }
            | RelKind::Scalar { input, .. } => {
                column < input.columns.len() && self.unique_somewhere(input, column)
            }
            RelKind::Window { input, window, .. } => {
                match column.checked_sub(input.columns.len()) {
                    None => self.unique_somewhere(input, column),
                    Some(added) => window.columns.get(added) == Some(&WindowColumn::Position),
                }
            }
            RelKind::Project { input, exprs } => exprs
                .get(column)
                .and_then(as_column)
                .is_some_and(|c| self.unique_somewhere(input, c)),
            RelKind::Join(join) => {
                let n = join.left.columns.len();
                let of = |c: usize| {
                    if c < n {
                        self.unique_somewhere(&join.left, c)
                    } else {
                        self.unique_somewhere(&join.right, c - n)
                    }
                };
                of(column)
                    || join.kind == JoinKind::Inner
                        && join
                            .on
                            .iter()
                            .any(|(l, r)| match (as_column(l), as_column(r)) {
                                (Some(l), Some(r)) if l == column => of(r + n),
                                (Some(l), Some(r)) if r + n == column => of(l),
                                _ => false,
                            })
            }
            RelKind::Aggregate { aggregate, .. } => aggregate.keys.len() == 1 && column == 0,
            RelKind::One | RelKind::Union(_) => false,
        }
    }

    /// True when no two rows of `rel` agree in all of `columns` (NULLs count as values).
    pub fn unique(&self, rel: &RelRef, columns: &BTreeSet<usize>, proof: Proof) -> bool {
        match &rel.kind {
            RelKind::One => true,
            RelKind::Scan {
                table,
                columns: scanned,
            } => {
                let rows = self.facts.rows(table);
                if rows <= 1.0 {
                    return true;
                }
                let known: Vec<_> = columns
                    .iter()
                    .filter_map(|c| self.facts.column(table, *scanned.get(*c)?))
                    .collect();
                if known.iter().any(|s| s.unique && s.null_count <= 1) {
                    return true;
                }
                if proof == Proof::Certain || known.len() < columns.len() || known.is_empty() {
                    return false;
                }
                let combinations: f64 = known.iter().map(|s| base(s, rows).distinct).product();
                // A column in order that is not known to be unique has been seen not to be.
                let refuted = known.len() == 1 && known.iter().any(|s| s.sorted);
                combinations >= rows && !refuted
            }
            RelKind::Filter { input, .. }
            | RelKind::Sort { input, .. }
            | RelKind::Scalar { input, .. } => {
                let inner = input.columns.len();
                let below = columns.iter().copied().filter(|c| *c < inner).collect();
                self.unique(input, &below, proof)
            }
            RelKind::Window { input, window, .. } => {
                let inner = input.columns.len();
                let numbered = |c: &usize| {
                    let added = c.checked_sub(inner).and_then(|i| window.columns.get(i));
                    added == Some(&WindowColumn::Position)
                };
                let below = columns.iter().copied().filter(|c| *c < inner).collect();
                columns.iter().any(numbered) || self.unique(input, &below, proof)
            }
            RelKind::Project { input, exprs } => {
                let below = columns
                    .iter()
                    .filter_map(|c| as_column(exprs.get(*c)?))
                    .collect();
                self.unique(input, &below, proof)
            }
            RelKind::Aggregate { aggregate, .. } => {
                (0..aggregate.keys.len()).all(|key| columns.contains(&key))
            }
            RelKind::Join(join) => self.unique_join(join, columns, proof),
            RelKind::Union(inputs) => match inputs.as_slice() {
                [one] => self.unique(one, columns, proof),
                _ => false,
            },
        }
    }

    fn unique_join(&self, join: &Join, columns: &BTreeSet<usize>, proof: Proof) -> bool {
        let n = join.left.columns.len();
        let mut left: BTreeSet<usize> = columns.iter().copied().filter(|c| *c < n).collect();
        if !join.kind.yields_right() {
            return self.unique(&join.left, &left, proof);
        }
        let mut right: BTreeSet<usize> =
            columns.iter().filter(|c| **c >= n).map(|c| c - n).collect();
        let keys: Vec<_> = join
            .on
            .iter()
            .map(|(l, r)| (as_column(l), as_column(r)))
            .collect();
        if join.kind == JoinKind::Inner {
            // Equal columns stand for each other.
            for (l, r) in &keys {
                if let (Some(l), Some(r)) = (l, r) {
                    if left.contains(l) {
                        right.insert(*r);
                    } else if right.contains(r) {
                        left.insert(*l);
                    }
                }
            }
        }
        let left_keys: BTreeSet<usize> = keys.iter().filter_map(|(l, _)| *l).collect();
        let right_keys: BTreeSet<usize> = keys.iter().filter_map(|(_, r)| *r).collect();
        // Each left row has one partner at most, and the other way round.
        let one_right = || self.unique(&join.right, &right_keys, proof);
        let one_left = || self.unique(&join.left, &left_keys, proof);
        let by_left = || self.unique(&join.left, &left, proof);
        let by_right = || self.unique(&join.right, &right, proof);
        match join.kind {
            JoinKind::Inner => {
                (by_left() && (one_right() || by_right())) || (by_right() && one_left())
            }
            JoinKind::Left => by_left() && (one_right() || by_right()),
            _ => false,
        }
    }
}
