//! Functional dependencies among grouping keys: drops keys that follow from others.
//!
//! `GROUP BY o_orderkey, o_orderdate` has the groups of `GROUP BY o_orderkey` when `o_orderkey` is unique in its
//! table: the other keys are constant within a group and become ANY_VALUE aggregates. Fewer and narrower keys make
//! high-cardinality groups cheaper.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use crate::rel::expr::{as_column, columns};
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};
use crate::stats::{Estimator, Proof};
use crate::translate::is_string;

/// `rel`, an aggregation, without keys that follow from the others.
pub(super) fn fewer_keys(rel: &RelRef, estimator: &Estimator<'_>) -> RelRef {
    let RelKind::Aggregate { input, aggregate } = &rel.kind else {
        return Arc::clone(rel);
    };
    if aggregate.keys.len() < 2 {
        return Arc::clone(rel);
    }
    let reads: Vec<BTreeSet<usize>> = aggregate.keys.iter().map(columns).collect();
    let mut kept: Vec<usize> = (0..aggregate.keys.len()).collect();
    // Strings go first, then what is no plain column, then wide values.
    let mut order = kept.clone();
    order.sort_by_key(|i| {
        let key = &aggregate.keys[*i];
        let bytes = key.data_type.primitive_width().unwrap_or(16);
        let unique = as_column(key).is_some_and(|c| estimator.unique_somewhere(input, c));
        (
            unique,
            !is_string(&key.data_type),
            as_column(key).is_some(),
            std::cmp::Reverse(bytes),
        )
    });
    for candidate in order {
        let known: BTreeSet<usize> = kept
            .iter()
            .filter(|k| **k != candidate)
            .filter_map(|k| determining(&aggregate.keys[*k]))
            .collect();
        if known.is_empty() {
            continue;
        }
        let determined = determined(input, known, estimator);
        if reads[candidate].is_subset(&determined) {
            kept.retain(|k| *k != candidate);
        }
    }
    if kept.len() == aggregate.keys.len() {
        return Arc::clone(rel);
    }
    let mut calls = aggregate.calls.clone();
    let before = calls.len();
    let mut place = vec![0; aggregate.keys.len()];
    for (i, key) in aggregate.keys.iter().enumerate() {
        if let Some(at) = kept.iter().position(|k| *k == i) {
            place[i] = at;
            continue;
        }
        place[i] = kept.len() + calls.len();
        calls.push(AggregateCall {
            function: AggregateFunction::Any,
            argument: Some(key.clone()),
            filter: None,
            distinct: false,
            return_type: key.data_type.clone(),
            name: rel.columns[i].name.clone(),
        });
    }
    let names: Vec<String> = kept.iter().map(|k| rel.columns[*k].name.clone()).collect();
    let keys = kept.iter().map(|k| aggregate.keys[*k].clone()).collect();
    let groups = Rel::aggregate(Arc::clone(input), Aggregate { keys, calls }, &names);
    place.extend(kept.len()..kept.len() + before);
    let exprs = place
        .iter()
        .zip(&rel.columns)
        .map(|(at, column)| {
            let mut expr = groups.column(*at);
            expr.nullable = column.nullable;
            (expr, column.name.clone())
        })
        .collect();
    Rel::project(groups, exprs)
}

/// The column of which all rows of a group by `key` have one value. Not a float: 0.0 and -0.0 are one group, and what is
/// computed from them differs.
pub(super) fn determining(key: &Expr) -> Option<usize> {
    as_column(key).filter(|_| !key.data_type.is_floating())
}

/// The columns of `rel` of which rows that agree in `known` have one value. It holds for the rows of this very tree: another
/// one, of more tables or of fewer, has to be asked itself.
pub(super) fn determined(
    rel: &RelRef,
    known: BTreeSet<usize>,
    estimator: &Estimator<'_>,
) -> BTreeSet<usize> {
    let mut dependencies = Dependencies {
        estimator,
        joins: HashMap::new(),
    };
    dependencies.following(rel, known)
}

/// Columns that follow from others.
struct Dependencies<'a> {
    estimator: &'a Estimator<'a>,
    /// By the address of a join and some of its columns: these and those that follow.
    joins: HashMap<(*const Rel, BTreeSet<usize>), BTreeSet<usize>>,
}

impl Dependencies<'_> {
    fn following(&mut self, rel: &RelRef, mut known: BTreeSet<usize>) -> BTreeSet<usize> {
        match &rel.kind {
            RelKind::Filter { input, .. }
            | RelKind::Sort { input, .. }
            | RelKind::Scalar { input, .. } => {
                let inner = input.columns.len();
                let below = known.iter().copied().filter(|c| *c < inner).collect();
                known.extend(self.following(input, below));
                // A scalar subquery has one row.
                known.extend(inner..rel.columns.len());
            }
            RelKind::Window { input, .. } => {
                let inner = input.columns.len();
                let below = known.iter().copied().filter(|c| *c < inner).collect();
                known.extend(self.following(input, below));
            }
            RelKind::Project { input, exprs } => {
                let below = known
                    .iter()
                    .filter_map(|c| as_column(exprs.get(*c)?))
                    .collect();
                let below = self.following(input, below);
                for (i, expr) in exprs.iter().enumerate() {
                    if columns(expr).is_subset(&below) {
                        known.insert(i);
                    }
                }
            }
            // Rows that a full join pads with NULLs agree with others in NULL keys alone.
            RelKind::Join(join) if join.kind != JoinKind::Full => {
                let key = (Arc::as_ptr(rel), known);
                if let Some(following) = self.joins.get(&key) {
                    return following.clone();
                }
                known = self.through(join, key.1.clone());
                self.joins.insert(key, known.clone());
            }
            RelKind::Aggregate { aggregate, .. }
                if (0..aggregate.keys.len()).all(|k| known.contains(&k)) =>
            {
                known.extend(0..rel.columns.len());
            }
            _ => {}
        }
        if known.len() < rel.columns.len()
            && matches!(rel.kind, RelKind::Scan { .. })
            && self.estimator.unique(rel, &known, Proof::Certain)
        {
            known.extend(0..rel.columns.len());
        }
        known
    }

    /// Through a join that is not full.
    fn through(&mut self, join: &Join, mut known: BTreeSet<usize>) -> BTreeSet<usize> {
        let n = join.left.columns.len();
        loop {
            let before = known.len();
            let left = known.iter().copied().filter(|c| *c < n).collect();
            known.extend(self.following(&join.left, left));
            if join.kind == JoinKind::Inner {
                let right = known.iter().filter(|c| **c >= n).map(|c| c - n).collect();
                let right = self.following(&join.right, right);
                known.extend(right.into_iter().map(|c| c + n));
                for (l, r) in &join.on {
                    if let (Some(l), Some(r)) = (as_column(l), as_column(r)) {
                        if known.contains(&l) {
                            known.insert(r + n);
                        } else if known.contains(&(r + n)) {
                            known.insert(l);
                        }
                    }
                }
            }
            if known.len() == before {
                break;
            }
        }
        known
    }
}
