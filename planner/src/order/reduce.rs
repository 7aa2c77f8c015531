//! Semi-join reduction of aggregations: groups that no probe row needs are not computed.
//!
//! In `X ⋈ γ(R; k)` on `k`, where the groups are not preserved, only groups whose key occurs in `X`
//! matter. When some small filtered table bounds the keys of `X`, a semi join with it goes below the
//! aggregation. Where it has each key once and an index over all of `R` is kept, that is an inner join, whose
//! order is free: the few keys ask the index, and `R` is not read.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use warpline_gpu::expr::Expr;

use crate::rel::expr::as_column;
use crate::rel::walk::{Memo, below_projections};
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};
use crate::stats::{Estimator, Proof};

/// Share of remaining groups at which the semi join pays.
const PAYS: f64 = 0.5;

/// `rel` with aggregations reduced.
pub(super) fn reduce(rel: &RelRef, estimator: &Estimator<'_>) -> RelRef {
    reduced(rel, estimator, &mut Memo::default())
}

fn reduced(rel: &RelRef, estimator: &Estimator<'_>, known: &mut Memo<RelRef>) -> RelRef {
    if let Some(known) = known.get(rel) {
        return known;
    }
    let joined = match &rel.kind {
        RelKind::Join(join) if !join.null_equal && !join.on.is_empty() => {
            let (left, right) = sides(join, estimator);
            rel.with_inputs(vec![left, right])
        }
        _ => Arc::clone(rel),
    };
    let inputs = joined.inputs().into_iter();
    let inputs = inputs.map(|input| reduced(input, estimator, known));
    let inputs = inputs.collect();
    let new = joined.with_inputs(inputs);
    known.insert(rel, Arc::clone(&new));
    new
}

fn sides(join: &Join, estimator: &Estimator<'_>) -> (RelRef, RelRef) {
    let (mut left, mut right) = (Arc::clone(&join.left), Arc::clone(&join.right));
    if matches!(
        join.kind,
        JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::Mark
    ) {
        right = side(
            &right,
            &left,
            join.on.iter().map(|(l, r)| (r, l)),
            estimator,
        );
    }
    if matches!(join.kind, JoinKind::Inner | JoinKind::Semi) {
        left = side(
            &left,
            &join.right,
            join.on.iter().map(|(l, r)| (l, r)),
            estimator,
        );
    }
    (left, right)
}

/// `groups` reduced to the keys that `asking` can have; pairs are (key of groups, key of asking).
fn side<'a>(
    groups: &RelRef,
    asking: &RelRef,
    on: impl Iterator<Item = (&'a Expr, &'a Expr)>,
    estimator: &Estimator<'_>,
) -> RelRef {
    let mut best: Option<(f64, RelRef)> = None;
    for (theirs, ours) in on {
        let (Some(theirs), Some(ours)) = (as_column(theirs), as_column(ours)) else {
            continue;
        };
        let Some((input, key)) = group_key(groups, theirs) else {
            continue;
        };
        let mut sources = Sources::default();
        sources.collect(asking, ours);
        let all = estimator.of_expr(&input, &key).distinct;
        for (source, column) in sources.found {
            let some = estimator.estimate(&source).columns[column].distinct;
            let share = some / all.max(1.0);
            if share >= PAYS || best.as_ref().is_some_and(|(best, _)| *best <= share) {
                continue;
            }
            let wanted = source.column(column);
            if wanted.data_type != key.data_type {
                continue;
            }
            let reduced = with_keys_of(&input, &key, (&source, column), estimator);
            best = Some((share, with_group_input(groups, &reduced)));
        }
    }
    best.map_or_else(|| Arc::clone(groups), |(_, reduced)| reduced)
}

/// The rows of `input` whose `key` occurs in column `column` of `source`.
fn with_keys_of(
    input: &RelRef,
    key: &Expr,
    (source, column): (&RelRef, usize),
    estimator: &Estimator<'_>,
) -> RelRef {
    let once = || estimator.unique(source, &BTreeSet::from([column]), Proof::Certain);
    let kind = match has_kept_index(input, key, estimator) && once() {
        true => JoinKind::Inner,
        false => JoinKind::Semi,
    };
    let keys = Rel::select(Arc::clone(source), &[column]);
    let wanted = keys.column(0);
    let joined = Rel::join(Join {
        left: Arc::clone(input),
        right: keys,
        kind,
        on: vec![(key.clone(), wanted)],
        residual: vec![],
        null_equal: false,
        build: None,
    });
    let columns: Vec<usize> = (0..input.columns.len()).collect();
    Rel::select(joined, &columns)
}

/// Is an index over the table that `rel` is, by its column `key`, one that is kept?
fn has_kept_index(rel: &RelRef, key: &Expr, estimator: &Estimator<'_>) -> bool {
    // The order of joins looks through projections.
    below_projections(rel, key).is_some_and(|(table, key)| {
        estimator
            .kept_cost(table, std::slice::from_ref(key), None)
            .is_some()
    })
}

/// The input of the aggregation that `rel` selects from, and the key that column `column` is there.
fn group_key(rel: &RelRef, column: usize) -> Option<(RelRef, Expr)> {
    match &rel.kind {
        RelKind::Filter { input, .. } => group_key(input, column),
        RelKind::Project { input, exprs } => group_key(input, as_column(exprs.get(column)?)?),
        RelKind::Aggregate { input, aggregate } => {
            Some((Arc::clone(input), aggregate.keys.get(column)?.clone()))
        }
        _ => None,
    }
}

/// `rel` with another input below its aggregation.
fn with_group_input(rel: &RelRef, new: &RelRef) -> RelRef {
    match &rel.kind {
        RelKind::Aggregate { .. } => rel.with_inputs(vec![Arc::clone(new)]),
        RelKind::Filter { input, .. } | RelKind::Project { input, .. } => {
            rel.with_inputs(vec![with_group_input(input, new)])
        }
        _ => Arc::clone(rel),
    }
}

/// Filtered tables with a column that holds every value that some column has.
#[derive(Default)]
struct Sources {
    found: Vec<(RelRef, usize)>,
    /// Columns that were followed, by the address of their relation.
    seen: HashSet<(*const Rel, usize)>,
}

impl Sources {
    /// Follow column `column` of `rel`.
    fn collect(&mut self, rel: &RelRef, column: usize) {
        if !self.seen.insert((Arc::as_ptr(rel), column)) {
            return;
        }
        match &rel.kind {
            RelKind::Filter { input, .. } => {
                if is_table(input) {
                    self.found.push((Arc::clone(rel), column));
                } else {
                    self.collect(input, column);
                }
            }
            RelKind::Project { input, exprs } => {
                if let Some(column) = exprs.get(column).and_then(as_column) {
                    self.collect(input, column);
                }
            }
            RelKind::Join(join) => {
                let n = join.left.columns.len();
                let keeps_left = join.kind != JoinKind::Full;
                if column < n && keeps_left {
                    self.collect(&join.left, column);
                } else if column >= n && join.kind == JoinKind::Inner {
                    self.collect(&join.right, column - n);
                }
                if join.null_equal {
                    return;
                }
                // The other side of a key has it too.
                for (l, r) in &join.on {
                    let (Some(l), Some(r)) = (as_column(l), as_column(r)) else {
                        continue;
                    };
                    if l == column && matches!(join.kind, JoinKind::Inner | JoinKind::Semi) {
                        self.collect(&join.right, r);
                    } else if join.kind == JoinKind::Inner && r + n == column {
                        self.collect(&join.left, l);
                    }
                }
            }
            RelKind::Aggregate { input, aggregate } => {
                if let Some(column) = aggregate.keys.get(column).and_then(as_column) {
                    self.collect(input, column);
                }
            }
            _ => {}
        }
    }
}

fn is_table(rel: &RelRef) -> bool {
    match &rel.kind {
        RelKind::Scan { .. } => true,
        RelKind::Filter { input, .. } | RelKind::Project { input, .. } => is_table(input),
        _ => false,
    }
}
