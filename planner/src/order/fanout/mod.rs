//! Aggregating the sides of joins that multiply each other's rows.
//!
//! `γ(L ⟕ A ⟕ B; k)` has a row of the join for each pair of a row of A and a row of B that belong to one row of L. A side that
//! nothing but calls reads is grouped by its keys of the join instead, with the number of rows in each group, by which calls over
//! the rest of the row are multiplied: the eager count and the double eager aggregation of Yan and Larson ("Eager aggregation and
//! lazy aggregation", VLDB 1995). Where each row of L is a group of its own, no aggregation is left above; for one side that is a
//! groupjoin (Moerkotte and Neumann, "Accelerating queries with group-by and join by groupjoin", VLDB 2011). Groups of one row each
//! need no aggregation at all, whatever they are of.

mod calls;
mod nulls;
mod spine;

use std::collections::BTreeSet;
use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::Aggregate;

use self::calls::Calls;
use self::spine::{Branch, Side, Spine, Step, Tree};
use super::eager::over;
use super::groups::{determined, determining};
use crate::rel::expr::{as_column, columns};
use crate::rel::{JoinKind, Rel, RelKind, RelRef};
use crate::stats::{Estimator, Proof};

/// One side alone is grouped where the join has so many times the rows that are read then.
const ALONE: f64 = 1.5;

/// Sides that multiply each other are grouped up to this share of what is read then: rows that match much on one side often do on
/// the other as well, which estimates do not see.
const SEVERAL: f64 = 0.5;

/// The aggregation `rel` over joins with groups in place of some sides, if that is less work.
pub(super) fn over_groups(rel: &RelRef, estimator: &Estimator<'_>) -> Option<RelRef> {
    let RelKind::Aggregate { input, aggregate } = &rel.kind else {
        return None;
    };
    // It stays as it is where an expression would become too large for a kernel.
    let (spine, layout) = Spine::of(input).ok()??;
    let aggregate = over(aggregate, &layout).ok()?;
    let mut sides: Vec<&Side> = spine
        .sides()
        .filter(|side| may_be_grouped(side, estimator))
        .collect();
    unread_alone(&mut sides, &spine, &aggregate.keys);
    if sides.is_empty() {
        return None;
    }
    let whole = spine.tree(&[])?;
    let following = following(&whole, &aggregate, estimator);
    let calls = loop {
        let mut calls = Calls::new(spine.width(), &sides, &following);
        match aggregate
            .calls
            .iter()
            .find_map(|call| calls.add(call).err())
        {
            None => break calls,
            // Some call does not allow that these are grouped.
            Some(culprits) => sides.retain(|side| !culprits.contains(&side.start)),
        }
        if sides.is_empty() {
            return None;
        }
    };
    let tree = spine.tree(&calls.branches)?;
    let keys = tree.all_over(&aggregate.keys)?;
    let alone = tells_rows_apart(&keys, &tree.rel, estimator);
    if !pays(&sides, &whole, &tree, alone, estimator) {
        return None;
    }
    let each_row = alone.then(|| each_row(rel, &tree, &keys, &calls)).flatten();
    each_row.or_else(|| together(rel, &tree, keys, calls))
}

/// The aggregation `rel` as a projection, where each group is one row.
pub(super) fn over_single_rows(rel: &RelRef, estimator: &Estimator<'_>) -> Option<RelRef> {
    let RelKind::Aggregate { input, aggregate } = &rel.kind else {
        return None;
    };
    if !tells_rows_apart(&aggregate.keys, input, estimator) {
        return None;
    }
    let nothing = BTreeSet::new();
    let mut calls = Calls::new(input.columns.len(), &[], &nothing);
    for call in &aggregate.calls {
        calls.add(call).ok()?;
    }
    each_row(rel, &Tree::of(input), &aggregate.keys, &calls)
}

/// Have no two rows of `rel` the same keys? Without keys there is one group, of no rows as well.
fn tells_rows_apart(keys: &[Expr], rel: &RelRef, estimator: &Estimator<'_>) -> bool {
    let plain: BTreeSet<usize> = keys.iter().filter_map(determining).collect();
    !plain.is_empty() && estimator.unique(rel, &plain, Proof::Certain)
}

/// Has a row of the spine several of the side's, which groups can stand for?
fn may_be_grouped(side: &Side, estimator: &Estimator<'_>) -> bool {
    let keys: Option<BTreeSet<usize>> = side.on.iter().map(|(_, key)| as_column(key)).collect();
    matches!(side.kind, JoinKind::Inner | JoinKind::Left)
        && !side.null_equal
        && !side.on.is_empty()
        // Floats that are equal are not the same, and rows that no other asks for are computed as well.
        && side.on.iter().all(|(_, key)| !key.data_type.is_floating() && !key.may_fault())
        && !keys.is_some_and(|keys| estimator.unique(&side.rel, &keys, Proof::Certain))
}

/// Leaves only sides of which neither grouping keys nor joins and filters read more than the keys of their own join.
fn unread_alone(sides: &mut Vec<&Side>, spine: &Spine, keys: &[Expr]) {
    let mut read: BTreeSet<usize> = keys.iter().flat_map(columns).collect();
    for step in &spine.steps {
        match step {
            Step::Filter(conjuncts) => read.extend(conjuncts.iter().flat_map(columns)),
            Step::Join(side) => {
                read.extend(side.on.iter().flat_map(|(ours, _)| columns(ours)));
                read.extend(side.residual.iter().flat_map(columns));
            }
        }
    }
    sides.retain(|side| {
        let branch = Branch::new(side);
        let mut own = read.iter().filter(|column| side.has(**column));
        own.all(|column| branch.key(*column).is_some())
    });
}

/// The spine's columns of which each group has one value.
fn following(whole: &Tree, aggregate: &Aggregate, estimator: &Estimator<'_>) -> BTreeSet<usize> {
    let keys = aggregate.keys.iter().filter_map(determining);
    let known = keys.filter_map(|key| whole.place(key)).collect();
    let following = determined(&whole.rel, known, estimator);
    whole.numbers(&following)
}

/// Is grouping the sides first less work than the rows that the whole join has?
fn pays(
    sides: &[&Side],
    whole: &Tree,
    tree: &Tree,
    alone: bool,
    estimator: &Estimator<'_>,
) -> bool {
    let joined = estimator.rows(&whole.rel);
    let grouped: f64 = sides.iter().map(|side| estimator.rows(&side.rel)).sum();
    let left = estimator.rows(&tree.rel);
    match sides {
        // Groups that no row asks for are work for nothing.
        [side] if alone && side.kind == JoinKind::Left => left * 4.0 >= grouped.sqrt(),
        [_] => joined > ALONE * (left + grouped),
        _ => joined > SEVERAL * (left + grouped),
    }
}

/// The groups, each of which is one row of `tree`.
fn each_row(rel: &RelRef, tree: &Tree, keys: &[Expr], calls: &Calls<'_>) -> Option<RelRef> {
    let values = calls.becomes.iter().map(|becomes| becomes.of_row(tree));
    let values: Option<Vec<Expr>> = keys.iter().cloned().map(Some).chain(values).collect();
    Some(named(rel, Arc::clone(&tree.rel), values?))
}

/// The groups of the rows of `tree`.
fn together(rel: &RelRef, tree: &Tree, keys: Vec<Expr>, calls: Calls<'_>) -> Option<RelRef> {
    let n = keys.len();
    let mut partial = vec![];
    for (becomes, column) in calls.becomes.iter().zip(&rel.columns[n..]) {
        partial.push(becomes.of_group(tree, &column.name)?);
    }
    let names: Vec<String> = rel.columns[..n].iter().map(|c| c.name.clone()).collect();
    let flat = partial.iter().flatten().cloned().collect();
    let groups = Rel::aggregate(
        Arc::clone(&tree.rel),
        Aggregate { keys, calls: flat },
        &names,
    );
    let mut at = n;
    let mut values: Vec<Expr> = (0..n).map(|i| groups.column(i)).collect();
    for (becomes, parts) in calls.becomes.iter().zip(&partial) {
        let parts: Vec<Expr> = (at..at + parts.len()).map(|i| groups.column(i)).collect();
        at += parts.len();
        values.push(becomes.of_parts(parts)?);
    }
    Some(named(rel, groups, values))
}

/// `values` over `input` as the columns of `rel`.
fn named(rel: &RelRef, input: RelRef, values: Vec<Expr>) -> RelRef {
    let outputs = values.into_iter().zip(&rel.columns);
    let outputs = outputs.map(|(mut value, column)| {
        value.nullable = column.nullable;
        (value, column.name.clone())
    });
    Rel::project(input, outputs.collect())
}
