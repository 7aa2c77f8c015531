//! Join ordering by cost.
//!
//! Trees of inner joins are flattened into a join graph (`flatten`): relations, classes of equal columns, and
//! conditions. Dynamic programming over its subsets finds the cheapest tree, bushy ones included (`search`); beyond
//! ten relations the search is greedy. Semi and anti joins above such a tree move down to the relation whose rows
//! they drop when they drop many (`graph`).
//!
//! The cost of a tree is its work on the device (`cost`): every relation is streamed once in any order, so only
//! builds, probes and the expansion of many matches count. Subsets are tried in many pairs, so what they cost as one side of a join
//! is found out once (`sides`).

mod cost;
mod distinct;
mod eager;
mod extremes;
mod extremes_together;
mod fanout;
mod flatten;
mod graph;
mod groups;
mod kept;
mod reduce;
mod scanned;
mod search;
mod sides;

use std::cell::RefCell;
use std::sync::Arc;

use crate::reason::Reason;
use crate::rel::rewrite::interned;
use crate::rel::walk::Memo;
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};
use crate::stats::Estimator;

/// `rel` rewritten to the cheapest form: reduced aggregations, ordered joins, few grouping keys.
///
/// # Errors
/// When an expression becomes too large for a kernel once projections are substituted into it.
pub fn optimize(rel: &RelRef, estimator: &Estimator<'_>) -> Result<RelRef, Reason> {
    let rel = extremes::by_extremes(rel, estimator);
    let reduced = reduce::reduce(&rel, estimator);
    let order = Order {
        estimator,
        known: RefCell::default(),
    };
    let ordered = order.of(&reduced)?;
    Ok(interned(&kept::ask_whole_tables(&ordered, estimator)))
}

/// Puts joins in order, those of each relation once.
struct Order<'a> {
    estimator: &'a Estimator<'a>,
    /// Relations in order.
    known: RefCell<Memo<RelRef>>,
}

impl Order<'_> {
    /// `rel` with its joins ordered.
    fn of(&self, rel: &RelRef) -> Result<RelRef, Reason> {
        if let Some(known) = self.known.borrow().get(rel) {
            return Ok(known);
        }
        let ordered = match flatten::flatten(rel)? {
            Some(graph) => graph.ordered(self)?,
            None if matches!(rel.kind, RelKind::Aggregate { .. }) => self.aggregation(rel)?,
            None => self.inputs(rel)?,
        };
        self.known.borrow_mut().insert(rel, Arc::clone(&ordered));
        Ok(ordered)
    }

    fn inputs(&self, rel: &RelRef) -> Result<RelRef, Reason> {
        let inputs = rel.inputs().into_iter().map(|input| self.of(input));
        Ok(rel.with_inputs(inputs.collect::<Result<_, _>>()?))
    }

    fn aggregation(&self, rel: &RelRef) -> Result<RelRef, Reason> {
        if let Some(told) = distinct::told(rel, self.estimator) {
            return self.of(&told);
        }
        let simpler = fanout::over_single_rows(rel, self.estimator)
            .or_else(|| fanout::over_groups(rel, self.estimator));
        if let Some(simpler) = simpler {
            return self.of(&simpler);
        }
        let fewer = groups::fewer_keys(rel, self.estimator);
        // Dropped keys leave a projection above the groups.
        let (groups, above) = match &fewer.kind {
            RelKind::Project { input, .. } => (Arc::clone(input), Some(&fewer)),
            _ => (Arc::clone(&fewer), None),
        };
        let groups = match eager::pull_up(&groups, self)? {
            Some(joined) => self.of(&joined)?,
            None => self.inputs(&groups)?,
        };
        Ok(match above {
            Some(projection) => projection.with_inputs(vec![groups]),
            None => groups,
        })
    }
}

/// Does `rel` hold an inner join below operators that a join graph absorbs?
fn is_join_tree(rel: &RelRef) -> bool {
    match &rel.kind {
        RelKind::Join(join) if join.kind == JoinKind::Inner => !join.null_equal,
        RelKind::Join(Join {
            left,
            kind: JoinKind::Semi | JoinKind::Anti,
            ..
        }) => is_join_tree(left),
        RelKind::Filter { input, .. } | RelKind::Project { input, .. } => is_join_tree(input),
        _ => false,
    }
}

impl Rel {
    /// The same operator over other inputs, which have the same columns.
    pub fn with_inputs(self: &Arc<Self>, mut inputs: Vec<RelRef>) -> RelRef {
        let unchanged = self
            .inputs()
            .into_iter()
            .zip(&inputs)
            .all(|(old, new)| Arc::ptr_eq(old, new));
        if unchanged {
            return Arc::clone(self);
        }
        let mut kind = self.kind.clone();
        match &mut kind {
            RelKind::Scan { .. } | RelKind::One => {}
            RelKind::Filter { input, .. }
            | RelKind::Project { input, .. }
            | RelKind::Aggregate { input, .. }
            | RelKind::Sort { input, .. }
            | RelKind::Window { input, .. } => {
                if let Some(new) = inputs.pop() {
                    *input = new;
                }
            }
            RelKind::Join(join) => {
                if let (Some(right), Some(left)) = (inputs.pop(), inputs.pop()) {
                    join.left = left;
                    join.right = right;
                }
            }
            RelKind::Union(old) => *old = inputs,
            RelKind::Scalar { input, subquery } => {
                if let (Some(right), Some(left)) = (inputs.pop(), inputs.pop()) {
                    *input = left;
                    *subquery = right;
                }
            }
        }
        Arc::new(Self {
            kind,
            columns: self.columns.clone(),
        })
    }
}
