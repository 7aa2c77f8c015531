//! The fingerprint of a relation: equal for relations that compute the same of the columns of their scans.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_gpu::graph::Fingerprint;

use super::{Rel, RelKind, RelRef, ScanTable};

/// The fingerprint of a relation over these tables, which are told by their places.
pub fn fingerprint(rel: &RelRef, tables: &[Arc<ScanTable>]) -> Fingerprint {
    let mut all = Fingerprint::default();
    add(&mut all, rel, tables, &mut HashMap::new());
    all.finished()
}

/// `known` has the numbers of relations that are added already: another use of one is its number.
fn add(
    all: &mut Fingerprint,
    rel: &Rel,
    tables: &[Arc<ScanTable>],
    known: &mut HashMap<*const Rel, usize>,
) {
    let number = known.len();
    if let Some(number) = known.get(&std::ptr::from_ref(rel)) {
        all.word(format!("again {number}"));
        return;
    }
    known.insert(rel, number);
    all.word("{");
    match &rel.kind {
        RelKind::Scan { table, columns } => {
            let at = tables.iter().position(|other| Arc::ptr_eq(other, table));
            all.word(format!("scan {at:?} {columns:?}"));
        }
        RelKind::One => all.word("one"),
        RelKind::Filter { conjuncts, .. } => {
            all.word("filter");
            all.exprs(conjuncts);
        }
        RelKind::Project { exprs, .. } => {
            all.word("project");
            all.exprs(exprs);
        }
        RelKind::Join(join) => {
            let (kind, nulls, build) = (join.kind, join.null_equal, join.build);
            all.word(format!("join {kind:?} {nulls} {build:?}"));
            all.exprs(join.on.iter().flat_map(|(left, right)| [left, right]));
            all.exprs(&join.residual);
        }
        RelKind::Aggregate { aggregate, .. } => {
            all.word("aggregate");
            all.exprs(&aggregate.keys);
            for call in &aggregate.calls {
                let (function, distinct) = (call.function, call.distinct);
                all.word(format!("{function:?} {distinct} {:?}", call.return_type));
                all.exprs(&call.argument);
                all.exprs(&call.filter);
            }
        }
        RelKind::Sort {
            keys, skip, fetch, ..
        } => all.word(format!("sort {keys:?} {skip} {fetch:?}")),
        RelKind::Window { keys, window, .. } => all.word(format!("window {keys:?} {window:?}")),
        RelKind::Union(_) => all.word("union"),
        RelKind::Scalar { .. } => all.word("scalar"),
    }
    for column in &rel.columns {
        all.word(format!("{:?} {}", column.data_type, column.nullable));
    }
    for input in rel.inputs() {
        add(all, input, tables, known);
    }
    all.word("}");
}
