//! Rewrites that need no statistics: orders that nobody sees, tables that are scanned twice, and
//! relations that occur twice.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_gpu::pipeline::{Aggregate, AggregateCall};

use super::expr::same;
use super::{Join, Rel, RelKind, RelRef, ScanTable};

/// `rel` without orders below its top: rows are in no order until they leave.
pub fn without_inner_orders(rel: &RelRef) -> RelRef {
    match &rel.kind {
        RelKind::Project { input, .. } => rel.with_inputs(vec![without_inner_orders(input)]),
        RelKind::Sort { input, .. } => rel.with_inputs(vec![unordered(input)]),
        _ => unordered(rel),
    }
}

fn unordered(rel: &RelRef) -> RelRef {
    match &rel.kind {
        RelKind::Sort {
            input,
            keys,
            skip: 0,
            fetch: None,
        } if !keys.is_empty() => unordered(input),
        _ => rel.with_inputs(rel.inputs().into_iter().map(unordered).collect()),
    }
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
    replaced(rel, &replace)
}

fn is_same_table(a: &Arc<ScanTable>, b: &Arc<ScanTable>) -> bool {
    Arc::ptr_eq(a, b) || a.source.is_same(&b.source)
}

fn replaced(rel: &RelRef, replace: &impl Fn(&RelRef) -> Option<RelRef>) -> RelRef {
    if let Some(new) = replace(rel) {
        return new;
    }
    let inputs = rel.inputs().into_iter().map(|i| replaced(i, replace));
    rel.with_inputs(inputs.collect())
}

/// `rel` with equal parts made one, so that they are computed once.
pub fn interned(rel: &RelRef) -> RelRef {
    Interner::default().intern(rel)
}

#[derive(Default)]
struct Interner {
    /// What has been seen, by a cheap fingerprint.
    seen: HashMap<(usize, usize), Vec<RelRef>>,
    /// By address, what each relation became; held so that addresses stay.
    known: HashMap<*const Rel, (RelRef, RelRef)>,
}

impl Interner {
    fn intern(&mut self, rel: &RelRef) -> RelRef {
        if let Some((_, known)) = self.known.get(&Arc::as_ptr(rel)) {
            return Arc::clone(known);
        }
        let inputs: Vec<RelRef> = rel.inputs().into_iter().map(|i| self.intern(i)).collect();
        let first = inputs.first().map_or(0, |i| Arc::as_ptr(i) as usize);
        let new = rel.with_inputs(inputs);
        let alike = self.seen.entry((first, new.columns.len())).or_default();
        let result = match alike.iter().find(|other| equal(other, &new)) {
            Some(other) => Arc::clone(other),
            None => {
                alike.push(Arc::clone(&new));
                new
            }
        };
        self.known
            .insert(Arc::as_ptr(rel), (Arc::clone(rel), Arc::clone(&result)));
        result
    }
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
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
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
        && a.residual.len() == b.residual.len()
        && a.residual.iter().zip(&b.residual).all(|(a, b)| same(a, b))
}

fn equal_aggregates(a: &Aggregate, b: &Aggregate) -> bool {
    let optional = |a: &Option<_>, b: &Option<_>| match (a, b) {
        (Some(a), Some(b)) => same(a, b),
        (None, None) => true,
        _ => false,
    };
    let calls = |a: &AggregateCall, b: &AggregateCall| {
        a.function == b.function
            && a.distinct == b.distinct
            && a.return_type == b.return_type
            && optional(&a.argument, &b.argument)
            && optional(&a.filter, &b.filter)
    };
    a.keys.len() == b.keys.len()
        && a.keys.iter().zip(&b.keys).all(|(a, b)| same(a, b))
        && a.calls.len() == b.calls.len()
        && a.calls.iter().zip(&b.calls).all(|(a, b)| calls(a, b))
}
