//! Columns of tables that nothing reads any more, since what was made of them is a column of its own.
//!
//! DataFusion leaves such columns out itself; those are left that are read by expressions which tables have columns for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::WindowColumn;

use super::expr::{columns, null};
use super::walk::bottom_up;
use super::{Rel, RelKind, RelRef, ScanTable};

/// Columns of a relation.
type Columns = BTreeSet<usize>;

/// `rel` with scans that leave out what is not read of them, where one has computed columns. In its place is NULL, which nobody looks at.
pub fn without_unread(rel: &RelRef) -> RelRef {
    let mut all = Vec::new();
    let mut computes = false;
    rel.for_each(&mut |rel| {
        all.push(Arc::clone(rel));
        if let RelKind::Scan { table, columns } = &rel.kind {
            computes |= columns.iter().any(|c| table.source.is_computed(*c));
        }
    });
    if !computes {
        return Arc::clone(rel);
    }
    let mut read: HashMap<*const Rel, Columns> = HashMap::new();
    read.insert(Arc::as_ptr(rel), (0..rel.columns.len()).collect());
    // Of tables by their own numbers: a table may be scanned in several places.
    let mut of_tables: HashMap<*const ScanTable, Columns> = HashMap::new();
    // Readers come before what they read.
    for rel in all.iter().rev() {
        let wanted = read.remove(&Arc::as_ptr(rel)).unwrap_or_default();
        if let RelKind::Scan { table, columns } = &rel.kind {
            let of_table = wanted.iter().filter_map(|at| columns.get(*at));
            let known = of_tables.entry(Arc::as_ptr(table)).or_default();
            known.extend(of_table);
        }
        for (input, wanted) in rel.inputs().into_iter().zip(reads(rel, &wanted)) {
            read.entry(Arc::as_ptr(input)).or_default().extend(wanted);
        }
    }
    bottom_up(rel, |rel| {
        let RelKind::Scan { table, columns } = &rel.kind else {
            return rel;
        };
        let of_table = of_tables.get(&Arc::as_ptr(table));
        let is_read = |column: &usize| of_table.is_none_or(|read| read.contains(column));
        let kept: Vec<usize> = columns.iter().copied().filter(is_read).collect();
        if kept.len() == columns.len() {
            return rel;
        }
        let scan = Rel::scan(Arc::clone(table), kept.clone());
        let named = columns.iter().zip(&rel.columns).map(|(column, described)| {
            let value = match kept.iter().position(|kept| kept == column) {
                Some(place) => Some(scan.column(place)),
                None => null(&described.data_type).ok(),
            };
            Some((value?, described.name.clone()))
        });
        match named.collect::<Option<_>>() {
            Some(named) => Rel::project(Arc::clone(&scan), named),
            None => Arc::clone(&rel),
        }
    })
}

/// What a relation of which these columns are wanted reads of each of its inputs.
fn reads(rel: &Rel, wanted: &Columns) -> Vec<Columns> {
    let of =
        |exprs: &mut dyn Iterator<Item = &Expr>| -> Columns { exprs.flat_map(columns).collect() };
    match &rel.kind {
        RelKind::Scan { .. } | RelKind::One => vec![],
        RelKind::Filter { conjuncts, .. } => {
            vec![wanted.union(&of(&mut conjuncts.iter())).copied().collect()]
        }
        RelKind::Project { exprs, .. } => {
            vec![of(&mut wanted.iter().filter_map(|at| exprs.get(*at)))]
        }
        RelKind::Aggregate { aggregate, .. } => {
            let calls = aggregate.calls.iter();
            let calls = calls.flat_map(|call| call.argument.iter().chain(&call.filter));
            vec![of(&mut aggregate.keys.iter().chain(calls))]
        }
        RelKind::Sort { keys, .. } => {
            let keys = keys.iter().map(|key| key.column);
            vec![wanted.iter().copied().chain(keys).collect()]
        }
        RelKind::Window {
            input,
            keys,
            window,
        } => {
            let width = input.columns.len();
            let own = wanted.iter().copied().filter(|at| *at < width);
            let keys = keys.iter().map(|key| key.column);
            let lists = window.lists.iter().map(|list| list.column);
            let added = window.columns.iter().filter_map(|added| match added {
                WindowColumn::RunningCount(of)
                | WindowColumn::Running(_, of)
                | WindowColumn::Extreme(_, of, _)
                | WindowColumn::Squares(of, _) => Some(*of),
                _ => None,
            });
            vec![own.chain(keys).chain(lists).chain(added).collect()]
        }
        RelKind::Union(inputs) => vec![wanted.clone(); inputs.len()],
        RelKind::Scalar { input, .. } => apart(wanted, input.columns.len()),
        RelKind::Join(join) => {
            let left = join.left.columns.len();
            let wanted = match join.kind.yields_right() {
                true => wanted.clone(),
                // A mark is no column of either.
                false => wanted.iter().copied().filter(|at| *at < left).collect(),
            };
            let both = wanted
                .union(&of(&mut join.residual.iter()))
                .copied()
                .collect();
            let mut sides = apart(&both, left);
            sides[0].extend(of(&mut join.on.iter().map(|(key, _)| key)));
            sides[1].extend(of(&mut join.on.iter().map(|(_, key)| key)));
            sides
        }
    }
}

/// Columns of two relations beside each other, the first of which has `left`.
fn apart(wanted: &Columns, left: usize) -> Vec<Columns> {
    let first = wanted.iter().copied().filter(|at| *at < left).collect();
    let second = wanted
        .iter()
        .filter_map(|at| at.checked_sub(left))
        .collect();
    vec![first, second]
}
