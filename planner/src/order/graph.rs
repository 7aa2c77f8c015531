//! A join graph in its best order: what is done to its relations before their tree is sought, and after.

use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::Aggregate;

use super::Order;
use super::cost::Index;
use super::flatten::{Classes, JoinGraph, MOST_LEAVES, Semi, Set};
use super::search::{Plan, Search};
use crate::reason::Reason;
use crate::rel::convert::in_order;
use crate::rel::expr::{as_column, renumber, same};
use crate::rel::{Join, JoinKind, Rel, RelRef};
use crate::stats::Estimator;
use crate::translate::is_string;

/// A semi join moves down when it keeps less than this share of the rows.
const SELECTIVE: f64 = 0.7;

/// Most relations of a graph in which builds are reduced, and most reductions tried.
const MOST_REDUCED: usize = 9;
const MOST_TRIED: usize = 6;
/// A relation that keeps less than this share of its table may reduce others.
const FILTERED: f64 = 0.3;
/// A reduction must save this much, since estimates are uncertain.
const PAYS: f64 = 0.8;
/// Bytes that streaming a filtered relation once more reads of a row.
const STREAMED: f64 = 16.0;

impl JoinGraph {
    /// The tree in its best order, with the columns of the tree that the graph was made from.
    pub(super) fn ordered(self, order: &Order<'_>) -> Result<RelRef, Reason> {
        let estimator = order.estimator;
        let mut graph = self.prepared(order)?;
        let plan = graph.reduce_builds(estimator);
        let plan = plan.unwrap_or_else(|| Search::new(&graph, estimator).best(graph.all()));
        let rel = graph.finished(&plan);
        let outputs = graph.outputs.iter().zip(&graph.names);
        let outputs = outputs.map(|(e, name)| (renumber(e, &plan.place()), name.clone()));
        Ok(Rel::project(rel, outputs.collect()))
    }

    /// The graph with its relations ordered and with semi joins where they drop most.
    pub(super) fn prepared(mut self, order: &Order<'_>) -> Result<Self, Reason> {
        self.connect();
        for leaf in &mut self.leaves {
            *leaf = order.of(leaf)?;
        }
        for semi in &mut self.semis {
            semi.right = order.of(&semi.right)?;
        }
        self.push_semis(order.estimator);
        Ok(self)
    }

    /// The best tree of some of the relations, and the graph's number of each of its columns. What semi
    /// joins and conditions read must be among the relations.
    pub(super) fn best(&self, set: Set, estimator: &Estimator<'_>) -> (RelRef, Vec<usize>) {
        let plan = Search::new(self, estimator).best(set);
        (self.finished(&plan), plan.layout)
    }

    /// The tree of a plan with the conditions and semi joins that come after all joins.
    fn finished(&self, plan: &Plan) -> RelRef {
        let late = self.late.iter().map(|c| renumber(c, &plan.place()));
        let rel = Rel::filter(Arc::clone(&plan.rel), in_order(late.collect()));
        let semis = self.semis.iter();
        semis.fold(rel, |rel, semi| semi.over(rel, self.width, &plan.place()))
    }

    /// The relation that a column belongs to, as a set.
    pub(super) fn set_of(&self, column: usize) -> Set {
        1 << self.leaf_of(column)
    }

    /// Do keys connect all relations of `set`?
    pub(super) fn is_connected(&self, set: Set) -> bool {
        self.reached(set & set.wrapping_neg(), set) == set
    }

    /// Those of `set` that keys connect with those `reached`, and these.
    fn reached(&self, mut reached: Set, set: Set) -> Set {
        loop {
            let before = reached;
            for class in &self.classes {
                let members = class.iter().fold(0, |s, m| s | self.set(m)) & set;
                if members & reached != 0 {
                    reached |= members;
                }
            }
            if reached == before {
                return reached;
            }
        }
    }

    /// Makes semi joins that alone connect relations joins with the distinct keys of their right side: all pairs of these relations'
    /// rows would be made before otherwise. `a, b WHERE (a.x, b.y) IN (SELECT …)` has one, and so has a correlated subquery
    /// with another inside of it.
    fn connect(&mut self) {
        while let Some(found) = self.semis.iter().position(|semi| self.is_bridge(semi)) {
            let semi = self.semis.remove(found);
            let (ours, theirs): (Vec<Expr>, Vec<Expr>) = semi.on.into_iter().unzip();
            let names: Vec<String> = (0..theirs.len()).map(|i| format!("key{i}")).collect();
            let calls = vec![];
            let keys = Rel::aggregate(
                semi.right,
                Aggregate {
                    keys: theirs,
                    calls,
                },
                &names,
            );
            let (start, more) = (self.width, keys.columns.len());
            for other in &mut self.semis {
                let residual = other.residual.iter();
                let moved = |i: usize| if i >= start { i + more } else { i };
                other.residual = residual.map(|e| renumber(e, &moved)).collect();
            }
            self.starts.push(start);
            self.width += more;
            for (i, key) in ours.into_iter().enumerate() {
                self.equate(key, renumber(&keys.column(i), &|c| start + c));
            }
            self.leaves.push(keys);
        }
    }

    /// Is it a semi join by keys of several relations that no other key connects?
    fn is_bridge(&self, semi: &Semi) -> bool {
        let set = semi
            .on
            .iter()
            .fold(0, |set, (ours, _)| set | self.set(ours));
        let connected = self.reached(set & set.wrapping_neg(), self.all());
        let may_be_key = |key: &Expr| !key.data_type.is_floating() && !key.may_fault();
        // Floats that are equal are not the same, and a class has one key of a relation.
        let keys = semi.on.iter().enumerate().all(|(i, (ours, theirs))| {
            let (o, t) = (&ours.data_type, &theirs.data_type);
            let mut others = semi.on[..i].iter().map(|(other, _)| other);
            let class = self.class_of(ours);
            self.set(ours).count_ones() == 1
                && (o == t || is_string(o) && is_string(t))
                && may_be_key(ours)
                && may_be_key(theirs)
                && !others.any(|e| same(e, ours) || class.is_some() && self.class_of(e) == class)
        });
        semi.kind == JoinKind::Semi
            && semi.residual.is_empty()
            && !semi.null_equal
            && keys
            && set & !connected != 0
            && self.leaves.len() < MOST_LEAVES
            && self.classes.len() + semi.on.len() <= Classes::BITS as usize
    }

    /// All relations.
    pub(super) fn all(&self) -> Set {
        (0..self.leaves.len()).fold(0, |s, i| s | 1 << i)
    }

    /// Semi joins of large relations with small filtered ones that they are only related to through others,
    /// where entering fewer rows pays for them; and the best tree of the relations then, where it was sought.
    fn reduce_builds(&mut self, estimator: &Estimator<'_>) -> Option<Plan> {
        let best = |graph: &Self| Search::new(graph, estimator).best(graph.all());
        if self.leaves.len() > MOST_REDUCED {
            return None;
        }
        let mut plan = best(self);
        let mut before = plan.cost;
        for (leaf, by, on) in self.reductions(estimator) {
            let reduced = Rel::join(Join {
                left: Arc::clone(&self.leaves[leaf]),
                right: Arc::clone(&self.leaves[by]),
                kind: JoinKind::Semi,
                on: vec![on.clone()],
                residual: vec![],
                null_equal: false,
                build: None,
            });
            let set = Index::new(estimator, &self.leaves[by], &[on.1], 0.0, true);
            // The small relation is streamed once more unless the same set serves its own join.
            let rows = estimator.rows(&self.leaves[leaf]);
            let again = estimator.base_rows(&self.leaves[by]) * STREAMED + set.build();
            let step = set.probe(rows, 0.0, false) + again;
            let plain = std::mem::replace(&mut self.leaves[leaf], reduced);
            let after = best(self);
            if after.cost + step < PAYS * before {
                before = after.cost + step;
                plan = after;
            } else {
                self.leaves[leaf] = plain;
            }
        }
        Some(plan)
    }

    /// What [`Self::reduce_builds`] tries: a large relation, a small filtered one, and the key over each.
    fn reductions(&self, estimator: &Estimator<'_>) -> Vec<(usize, usize, (Expr, Expr))> {
        let mut found = Vec::new();
        let rows = |leaf: usize| estimator.rows(&self.leaves[leaf]);
        // The largest relation streams whatever happens.
        let largest = (0..self.leaves.len()).max_by(|a, b| rows(*a).total_cmp(&rows(*b)));
        for class in &self.classes {
            for ours in class {
                for theirs in class {
                    let (a, b) = (self.set(ours), self.set(theirs));
                    if a == b || as_column(ours).is_none() || as_column(theirs).is_none() {
                        continue;
                    }
                    let (leaf, by) = (a.trailing_zeros() as usize, b.trailing_zeros() as usize);
                    let (large, small) = (&self.leaves[leaf], &self.leaves[by]);
                    let kept = estimator.rows(small) / estimator.base_rows(small).max(1.0);
                    if kept < FILTERED
                        && largest != Some(leaf)
                        && estimator.base_rows(small) < estimator.rows(large)
                        && class.len() > 2
                    {
                        let on = (self.local(ours, leaf), self.local(theirs, by));
                        found.push((leaf, by, on));
                    }
                }
            }
        }
        found.truncate(MOST_TRIED);
        found
    }

    /// Move semi and anti joins down to the relation whose rows they drop, where they drop many.
    fn push_semis(&mut self, estimator: &Estimator<'_>) {
        for semi in std::mem::take(&mut self.semis) {
            // A member of the class will do as well as the key itself.
            let mut left = semi.on.iter().map(|(l, _)| l).chain(&semi.residual);
            let set: Set = left
                .try_fold(0, |s: Set, e| Some(s | self.set(e)))
                .unwrap_or(0);
            let alone = set.count_ones() == 1 && semi.residual.is_empty();
            if !alone {
                self.semis.push(semi);
                continue;
            }
            let leaf = set.trailing_zeros() as usize;
            let start = self.starts[leaf];
            let pushed = semi.over(Arc::clone(&self.leaves[leaf]), self.width, &|i| i - start);
            let kept = estimator.rows(&pushed) / estimator.rows(&self.leaves[leaf]).max(1.0);
            if kept < SELECTIVE {
                self.leaves[leaf] = pushed;
            } else {
                self.semis.push(semi);
            }
        }
    }
}
