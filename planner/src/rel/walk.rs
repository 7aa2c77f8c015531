//! Walks over relations. A relation that several others read is visited once and stays shared.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use warpline_gpu::expr::Expr;

use super::expr::as_column;
use super::{Rel, RelKind, RelRef};

/// What is known of relations, by address; they are held so that addresses stay their own.
#[derive(Debug)]
pub struct Memo<T>(HashMap<*const Rel, (RelRef, T)>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone> Memo<T> {
    /// What is known of `rel`.
    pub fn get(&self, rel: &RelRef) -> Option<T> {
        self.0
            .get(&Arc::as_ptr(rel))
            .map(|(_, known)| known.clone())
    }

    /// From now on this is known of `rel`.
    pub fn insert(&mut self, rel: &RelRef, known: T) {
        self.0.insert(Arc::as_ptr(rel), (Arc::clone(rel), known));
    }
}

/// The relation below the projections that `rel` is, and what `key`, a column, is there; `None` where a projection computes it.
pub fn below_projections<'r>(rel: &'r RelRef, key: &'r Expr) -> Option<(&'r RelRef, &'r Expr)> {
    match &rel.kind {
        RelKind::Project { input, exprs } => below_projections(input, exprs.get(as_column(key)?)?),
        _ => Some((rel, key)),
    }
}

impl Rel {
    /// Call `visit` once with every relation, inputs first.
    pub fn for_each(self: &Arc<Self>, visit: &mut impl FnMut(&RelRef)) {
        each(self, &mut HashSet::new(), visit);
    }
}

fn each(rel: &RelRef, seen: &mut HashSet<*const Rel>, visit: &mut impl FnMut(&RelRef)) {
    if !seen.insert(Arc::as_ptr(rel)) {
        return;
    }
    for input in rel.inputs() {
        each(input, seen, visit);
    }
    visit(rel);
}

/// `rel` rewritten from below: `rewrite` gets every relation once, over inputs that are rewritten.
pub fn bottom_up(rel: &RelRef, mut rewrite: impl FnMut(RelRef) -> RelRef) -> RelRef {
    rewritten(rel, &mut Memo::default(), &mut rewrite)
}

fn rewritten(
    rel: &RelRef,
    known: &mut Memo<RelRef>,
    rewrite: &mut impl FnMut(RelRef) -> RelRef,
) -> RelRef {
    if let Some(known) = known.get(rel) {
        return known;
    }
    let inputs = rel.inputs().into_iter();
    let inputs = inputs.map(|input| rewritten(input, known, rewrite));
    let inputs = inputs.collect();
    let new = rewrite(rel.with_inputs(inputs));
    known.insert(rel, Arc::clone(&new));
    new
}
