//! A join graph in its best order: what is done to its relations before their tree is sought, and after.

use std::sync::Arc;

use warpline_gpu::expr::Expr;

use super::Order;
use super::cost::Index;
use super::flatten::{JoinGraph, Set};
use super::search::{Plan, Search};
use crate::reason::Reason;
use crate::rel::convert::in_order;
use crate::rel::expr::{as_column, renumber};
use crate::rel::{Join, JoinKind, Rel, RelRef};
use crate::stats::Estimator;

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
        let mut reached = set & set.wrapping_neg();
        loop {
            let before = reached;
            for class in &self.classes {
                let members = class.iter().fold(0, |s, m| s | self.set(m)) & set;
                if members & reached != 0 {
                    reached |= members;
                }
            }
            if reached == before {
                return reached == set;
            }
        }
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
