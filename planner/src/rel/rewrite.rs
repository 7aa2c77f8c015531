//! Rewrites without statistics: remove inner sorts, share scans of one table, share common subexpressions.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_gpu::pipeline::{Aggregate, AggregateCall};

use super::expr::{all_same, same};
use super::walk::bottom_up;
use super::{Join, Rel, RelKind, RelRef, ScanTable};

/// `rel` without sorts below its top: rows have no order until they leave.
pub fn without_inner_orders(rel: &RelRef) -> RelRef {
    match &rel.kind {
        RelKind::Project { input, .. } => rel.with_inputs(vec![without_inner_orders(input)]),
        RelKind::Sort { input, .. } => rel.with_inputs(vec![unordered(input)]),
        _ => unordered(rel),
    }
}

fn unordered(rel: &RelRef) -> RelRef {
    bottom_up(rel, |rel| match &rel.kind {
        RelKind::Sort {
            input,
            keys,
            skip: 0,
            fetch: None,
        } if !keys.is_empty() => Arc::clone(input),
        _ => rel,
    })
}

/// `rel` with one [`ScanTable`] a table, scanned with all columns that any part reads (lowering
/// reads no more of them than it needs), so that equal parts of the tree look equal.
pub fn with_shared_tables(rel: &RelRef) -> RelRef {
    let mut tables: Vec<(Arc<ScanTable>, Vec<usize>)> = Vec::new();
    rel.for_each(&mut |rel| {
        let RelKind::Scan { table, columns } = &rel.kind else {
            return;
        };
        let at = tables
            .iter()
            .position(|(t, _)| is_same_table(t, table))
            .unwrap_or_else(|| {
                tables.push((Arc::clone(table), Vec::new()));
                tables.len() - 1
            });
        // One may know of more computed columns than the other.
        let width = |table: &ScanTable| table.source.schema().fields().len();
        if width(&tables[at].0) < width(table) {
            tables[at].0 = Arc::clone(table);
        }
        let wanted = &mut tables[at].1;
        for column in columns {
            if !wanted.contains(column) {
                wanted.push(*column);
            }
        }
    });
    for (_, columns) in &mut tables {
        columns.sort_unstable();
    }
    let scans: Vec<RelRef> = tables
        .iter()
        .map(|(table, columns)| Rel::scan(Arc::clone(table), columns.clone()))
        .collect();
    let replace = |rel: &RelRef| -> Option<RelRef> {
        let RelKind::Scan { table, columns } = &rel.kind else {
            return None;
        };
        let at = tables.iter().position(|(t, _)| is_same_table(t, table))?;
        let places: Option<Vec<usize>> = columns
            .iter()
            .map(|c| tables[at].1.iter().position(|w| w == c))
            .collect();
        Some(Rel::select(Arc::clone(&scans[at]), &places?))
    };
    bottom_up(rel, |rel| replace(&rel).unwrap_or(rel))
}

/// Do both read the same rows?
pub fn is_same_table(a: &Arc<ScanTable>, b: &Arc<ScanTable>) -> bool {
    Arc::ptr_eq(a, b) || a.source.is_same(&b.source)
}

/// `rel` with common subtrees shared, so that they are computed once.
pub fn interned(rel: &RelRef) -> RelRef {
    // Relations seen so far, by a cheap fingerprint.
    let mut seen: HashMap<(usize, usize), Vec<RelRef>> = HashMap::new();
    bottom_up(rel, |new| {
        let inputs = new.inputs();
        let first = inputs.first().map_or(0, |i| Arc::as_ptr(i) as usize);
        let alike = seen.entry((first, new.columns.len())).or_default();
        match alike.iter().find(|other| equal(other, &new)) {
            Some(other) => Arc::clone(other),
            None => {
                alike.push(Arc::clone(&new));
                new
            }
        }
    })
}

/// Do both compute the same from the same inputs? Names do not count.
fn equal(a: &Rel, b: &Rel) -> bool {
    let types = a.columns.len() == b.columns.len()
        && a.columns
            .iter()
            .zip(&b.columns)
            .all(|(a, b)| a.data_type == b.data_type && a.nullable == b.nullable);
    let (ours, theirs) = (a.inputs(), b.inputs());
    types
        && ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|(a, b)| Arc::ptr_eq(a, b))
        && match (&a.kind, &b.kind) {
            (
                RelKind::Scan { table, columns },
                RelKind::Scan {
                    table: other,
                    columns: others,
                },
            ) => Arc::ptr_eq(table, other) && columns == others,
            (RelKind::One, RelKind::One)
            | (RelKind::Union(_), RelKind::Union(_))
            | (RelKind::Scalar { .. }, RelKind::Scalar { .. }) => true,
            (RelKind::Filter { conjuncts: a, .. }, RelKind::Filter { conjuncts: b, .. })
            | (RelKind::Project { exprs: a, .. }, RelKind::Project { exprs: b, .. }) => {
                all_same(a, b)
            }
            (RelKind::Join(a), RelKind::Join(b)) => equal_joins(a, b),
            (RelKind::Aggregate { aggregate: a, .. }, RelKind::Aggregate { aggregate: b, .. }) => {
                equal_aggregates(a, b)
            }
            (
                RelKind::Sort {
                    keys, skip, fetch, ..
                },
                RelKind::Sort {
                    keys: k,
                    skip: s,
                    fetch: f,
                    ..
                },
            ) => keys == k && skip == s && fetch == f,
            (
                RelKind::Window { keys, window, .. },
                RelKind::Window {
                    keys: k, window: w, ..
                },
            ) => keys == k && window == w,
            _ => false,
        }
}

fn equal_joins(a: &Join, b: &Join) -> bool {
    a.kind == b.kind
        && a.null_equal == b.null_equal
        && a.build == b.build
        && a.on.len() == b.on.len()
        && a.on
            .iter()
            .zip(&b.on)
            .all(|((al, ar), (bl, br))| same(al, bl) && same(ar, br))
        && all_same(&a.residual, &b.residual)
}

fn equal_aggregates(a: &Aggregate, b: &Aggregate) -> bool {
    all_same(&a.keys, &b.keys)
        && a.calls.len() == b.calls.len()
        && a.calls.iter().zip(&b.calls).all(|(a, b)| same_call(a, b))
}

/// True when both calls compute the same.
pub fn same_call(a: &AggregateCall, b: &AggregateCall) -> bool {
    let optional = |a: &Option<_>, b: &Option<_>| match (a, b) {
        (Some(a), Some(b)) => same(a, b),
        (None, None) => true,
        _ => false,
    };
    a.function == b.function
        && a.distinct == b.distinct
        && a.return_type == b.return_type
        && optional(&a.argument, &b.argument)
        && optional(&a.filter, &b.filter)
}
