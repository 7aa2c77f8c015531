//! Uniqueness of columns: functional keys of a relation.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use warpline_gpu::graph::WindowColumn;

use super::Estimator;
use super::column::base;
use crate::rel::expr::as_column;
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};

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
        Uniqueness::new(self, Proof::Certain).somewhere(rel, column)
    }

    /// True when no two rows of `rel` agree in all of `columns` (NULLs count as values).
    pub fn unique(&self, rel: &RelRef, columns: &BTreeSet<usize>, proof: Proof) -> bool {
        Uniqueness::new(self, proof).of(rel, columns)
    }
}

/// What is unique, by proofs of one kind.
struct Uniqueness<'a> {
    estimator: &'a Estimator<'a>,
    proof: Proof,
    /// By the address of a join and its columns.
    joins: RefCell<HashMap<(*const Rel, BTreeSet<usize>), bool>>,
    /// By the address of a join and one of its columns.
    somewhere: RefCell<HashMap<(*const Rel, usize), bool>>,
}

impl<'a> Uniqueness<'a> {
    fn new(estimator: &'a Estimator<'a>, proof: Proof) -> Self {
        Self {
            estimator,
            proof,
            joins: RefCell::default(),
            somewhere: RefCell::default(),
        }
    }

    /// As [`Estimator::unique_somewhere`].
    fn somewhere(&self, rel: &RelRef, column: usize) -> bool {
        match &rel.kind {
            RelKind::Scan { .. } => self.of(rel, &BTreeSet::from([column])),
            RelKind::Filter { input, .. }
            | RelKind::Sort { input, .. }
            | RelKind::Scalar { input, .. } => {
                column < input.columns.len() && self.somewhere(input, column)
            }
            RelKind::Window { input, window, .. } => {
                match column.checked_sub(input.columns.len()) {
                    None => self.somewhere(input, column),
                    Some(added) => window.columns.get(added) == Some(&WindowColumn::Position),
                }
            }
            RelKind::Project { input, exprs } => exprs
                .get(column)
                .and_then(as_column)
                .is_some_and(|c| self.somewhere(input, c)),
            RelKind::Join(join) => {
                let key = (Arc::as_ptr(rel), column);
                if let Some(known) = self.somewhere.borrow().get(&key) {
                    return *known;
                }
                let unique = self.somewhere_in_join(join, column);
                self.somewhere.borrow_mut().insert(key, unique);
                unique
            }
            RelKind::Aggregate { aggregate, .. } => aggregate.keys.len() == 1 && column == 0,
            RelKind::One | RelKind::Union(_) => false,
        }
    }

    fn somewhere_in_join(&self, join: &Join, column: usize) -> bool {
        let n = join.left.columns.len();
        let of = |c: usize| {
            if c < n {
                self.somewhere(&join.left, c)
            } else {
                self.somewhere(&join.right, c - n)
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

    /// As [`Estimator::unique`].
    fn of(&self, rel: &RelRef, columns: &BTreeSet<usize>) -> bool {
        match &rel.kind {
            RelKind::One => true,
            RelKind::Scan {
                table,
                columns: scanned,
            } => {
                let rows = self.estimator.facts.rows(table);
                if rows <= 1.0 {
                    return true;
                }
                let known: Vec<_> = columns
                    .iter()
                    .filter_map(|c| self.estimator.facts.column(table, *scanned.get(*c)?))
                    .collect();
                if known.iter().any(|s| s.unique && s.null_count <= 1) {
                    return true;
                }
                if self.proof == Proof::Certain || known.len() < columns.len() || known.is_empty() {
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
                self.of(input, &below)
            }
            RelKind::Window { input, window, .. } => {
                let inner = input.columns.len();
                let numbered = |c: &usize| {
                    let added = c.checked_sub(inner).and_then(|i| window.columns.get(i));
                    added == Some(&WindowColumn::Position)
                };
                let below = columns.iter().copied().filter(|c| *c < inner).collect();
                columns.iter().any(numbered) || self.of(input, &below)
            }
            RelKind::Project { input, exprs } => {
                let below = columns
                    .iter()
                    .filter_map(|c| as_column(exprs.get(*c)?))
                    .collect();
                self.of(input, &below)
            }
            RelKind::Aggregate { aggregate, .. } => {
                (0..aggregate.keys.len()).all(|key| columns.contains(&key))
            }
            RelKind::Join(join) => {
                let key = (Arc::as_ptr(rel), columns.clone());
                if let Some(known) = self.joins.borrow().get(&key) {
                    return *known;
                }
                let unique = self.of_join(join, columns);
                self.joins.borrow_mut().insert(key, unique);
                unique
            }
            RelKind::Union(inputs) => match inputs.as_slice() {
                [one] => self.of(one, columns),
                _ => false,
            },
        }
    }

    fn of_join(&self, join: &Join, columns: &BTreeSet<usize>) -> bool {
        let n = join.left.columns.len();
        let mut left: BTreeSet<usize> = columns.iter().copied().filter(|c| *c < n).collect();
        if !join.kind.yields_right() {
            return self.of(&join.left, &left);
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
        let one_right = || self.of(&join.right, &right_keys);
        let one_left = || self.of(&join.left, &left_keys);
        let by_left = || self.of(&join.left, &left);
        let by_right = || self.of(&join.right, &right);
        match join.kind {
            JoinKind::Inner => {
                (by_left() && (one_right() || by_right())) || (by_right() && one_left())
            }
            JoinKind::Left => by_left() && (one_right() || by_right()),
            _ => false,
        }
    }
}
