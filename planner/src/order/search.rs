//! The search for the cheapest tree of a join graph.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use warpline_gpu::expr::Expr;

use super::Order;
use super::cost::Index;
use super::flatten::{JoinGraph, Set};
use crate::reason::Reason;
use crate::rel::convert::in_order;
use crate::rel::expr::{as_column, columns, renumber};
use crate::rel::{BuildSide, Join, JoinKind, Rel, RelKind, RelRef};
use crate::stats::{ColumnEstimate, Estimator, Proof};

/// Most relations for exhaustive search.
const MOST_EXHAUSTIVE: usize = 10;
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

/// The best tree found for a set of relations.
#[derive(Debug, Clone)]
struct Plan {
    rel: RelRef,
    /// The graph's number of each column of `rel`.
    layout: Vec<usize>,
    rows: f64,
    cost: f64,
}

impl JoinGraph {
    /// The tree in its best order, with the columns of the tree that the graph was made from.
    pub(super) fn ordered(self, order: &Order<'_>) -> Result<RelRef, Reason> {
        let estimator = order.estimator;
        let mut graph = self.prepared(order)?;
        graph.reduce_builds(estimator);
        let (rel, layout) = graph.best(graph.all(), estimator);
        let outputs = graph
            .outputs
            .iter()
            .zip(&graph.names)
            .map(|(e, name)| (renumber(e, &place(&layout)), name.clone()))
            .collect();
        Ok(Rel::project(rel, outputs))
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
        let search = Search {
            outside: self.read_outside(),
            graph: self,
            estimator,
        };
        let plan = search.best(set);
        let late = self.late.iter().map(|c| renumber(c, &place(&plan.layout)));
        let mut rel = Rel::filter(plan.rel, in_order(late.collect()));
        for semi in &self.semis {
            rel = semi.over(rel, self.width, &place(&plan.layout));
        }
        (rel, plan.layout)
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
    /// where entering fewer rows pays for them.
    fn reduce_builds(&mut self, estimator: &Estimator<'_>) {
        let cost = |graph: &Self| {
            let outside = graph.read_outside();
            let search = Search {
                outside,
                graph,
                estimator,
            };
            search.best(graph.all()).cost
        };
        if self.leaves.len() > MOST_REDUCED {
            return;
        }
        let mut before = cost(self);
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
            let after = cost(self);
            if after + step < PAYS * before {
                before = after + step;
            } else {
                self.leaves[leaf] = plain;
            }
        }
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

/// Where a column of the graph is among those of a tree.
fn place(layout: &[usize]) -> impl Fn(usize) -> usize {
    let places: HashMap<usize, usize> = layout
        .iter()
        .enumerate()
        .map(|(place, column)| (*column, place))
        .collect();
    move |column| places.get(&column).copied().unwrap_or(usize::MAX)
}

/// The keys of a build side, over its columns.
fn keys_of(build: &Plan, on: &[(Expr, Expr)]) -> Vec<Expr> {
    let to = place(&build.layout);
    on.iter().map(|(_, key)| renumber(key, &to)).collect()
}

struct Search<'a> {
    graph: &'a JoinGraph,
    estimator: &'a Estimator<'a>,
    /// Columns that are read by more than keys.
    outside: BTreeSet<usize>,
}

impl Search<'_> {
    fn best(&self, set: Set) -> Plan {
        let leaves = (0..self.graph.leaves.len()).filter(|i| set & 1 << i != 0);
        let singles: Vec<(Set, Plan)> = leaves.map(|i| (1 << i, self.leaf(i))).collect();
        let mut parts = if singles.len() <= MOST_EXHAUSTIVE {
            self.exhaustive(singles)
        } else {
            self.greedy(singles)
        };
        // What no key connects: the largest part streams, the others are entered whole.
        parts.sort_by(|a, b| b.1.rows.total_cmp(&a.1.rows));
        let mut parts = parts.into_iter();
        let Some((mut set, mut plan)) = parts.next() else {
            return Plan {
                rel: Rel::one(),
                layout: vec![],
                rows: 1.0,
                cost: 0.0,
            };
        };
        for (other, part) in parts {
            plan = self.joined((set, &plan), (other, &part), &[]);
            set |= other;
        }
        plan
    }

    fn leaf(&self, leaf: usize) -> Plan {
        let rel = Arc::clone(&self.graph.leaves[leaf]);
        let start = self.graph.starts[leaf];
        Plan {
            layout: (start..start + rel.columns.len()).collect(),
            rows: self.estimator.rows(&rel),
            rel,
            cost: 0.0,
        }
    }

    /// Dynamic programming over all subsets; the best tree of each connected part.
    fn exhaustive(&self, singles: Vec<(Set, Plan)>) -> Vec<(Set, Plan)> {
        let all: Set = singles.iter().fold(0, |s, (one, _)| s | one);
        let mut plans: HashMap<Set, Plan> = singles.into_iter().collect();
        // All subsets, smaller numbers first: a set comes after its parts.
        let mut set: Set = 0;
        while set != all {
            set = set.wrapping_sub(all) & all;
            if set.count_ones() < 2 {
                continue;
            }
            let mut best: Option<Plan> = None;
            // Every way to split, each half once as the probing side.
            let mut probe = (set - 1) & set;
            while probe != 0 {
                let build = set & !probe;
                if let (Some(p), Some(b)) = (plans.get(&probe), plans.get(&build)) {
                    let on = self.keys(probe, build);
                    if !on.is_empty() {
                        let filtered = self.cost((probe, p), (build, b), &on, &best);
                        let whole = self.over_whole_table((probe, p), (build, b), &on, filtered);
                        let step = whole.as_ref().map_or(filtered, |whole| whole.cost);
                        let cost = p.cost + b.cost + step;
                        if best.as_ref().is_none_or(|best| cost < best.cost) {
                            let rows = best.as_ref().map(|best| best.rows);
                            let mut plan =
                                whole.unwrap_or_else(|| self.joined((probe, p), (build, b), &on));
                            plan.cost = cost;
                            // All trees of a set have the same rows, whatever their estimates say.
                            plan.rows = rows.unwrap_or(plan.rows);
                            best = Some(plan);
                        }
                    }
                }
                probe = (probe - 1) & set;
            }
            if let Some(best) = best {
                plans.insert(set, best);
            }
        }
        let mut parts: Vec<(Set, Plan)> = Vec::new();
        let mut rest = all;
        while rest != 0 {
            // The largest connected set that holds the first relation left.
            let first = rest & rest.wrapping_neg();
            let part = plans
                .keys()
                .copied()
                .filter(|s| s & first != 0 && s & !rest == 0)
                .max_by_key(|s| s.count_ones())
                .unwrap_or(first);
            rest &= !part;
            if let Some(plan) = plans.remove(&part) {
                parts.push((part, plan));
            }
        }
        parts
    }

    /// Join the cheapest pair until no key connects any two parts.
    fn greedy(&self, singles: Vec<(Set, Plan)>) -> Vec<(Set, Plan)> {
        let mut parts = singles;
        loop {
            let mut best: Option<(usize, usize, Plan)> = None;
            for i in 0..parts.len() {
                for j in 0..parts.len() {
                    if i == j {
                        continue;
                    }
                    let ((probe, p), (build, b)) = (&parts[i], &parts[j]);
                    let on = self.keys(*probe, *build);
                    if on.is_empty() {
                        continue;
                    }
                    let (probe, build) = ((*probe, p), (*build, b));
                    let mut plan = self.joined(probe, build, &on);
                    plan.cost = self.cost(probe, build, &on, &Some(plan.clone()));
                    if let Some(whole) = self.over_whole_table(probe, build, &on, plan.cost) {
                        plan = whole;
                    }
                    // Small results first; among equal ones the cheaper step.
                    let better = best
                        .as_ref()
                        .is_none_or(|(_, _, best)| (plan.rows, plan.cost) < (best.rows, best.cost));
                    if better {
                        best = Some((i, j, plan));
                    }
                }
            }
            let Some((i, j, plan)) = best else {
                return parts;
            };
            let set = parts[i].0 | parts[j].0;
            parts.remove(i.max(j));
            parts.remove(i.min(j));
            parts.push((set, plan));
        }
    }

    /// One pair of equal expressions a class that has members on both sides.
    fn keys(&self, probe: Set, build: Set) -> Vec<(Expr, Expr)> {
        let member = |class: &[Expr], side: Set| -> Option<Expr> {
            let within = || class.iter().filter(|m| self.graph.set(m) & !side == 0);
            within()
                .find(|m| as_column(m).is_some())
                .or_else(|| within().next())
                .cloned()
        };
        self.graph
            .classes
            .iter()
            .filter_map(|class| Some((member(class, probe)?, member(class, build)?)))
            .filter(|(l, r)| {
                l.data_type == r.data_type || crate::translate::is_string(&l.data_type)
            })
            .collect()
    }

    /// The join of two parts on `on`, with the conditions that it makes possible.
    fn joined(
        &self,
        (probe, p): (Set, &Plan),
        (build, b): (Set, &Plan),
        on: &[(Expr, Expr)],
    ) -> Plan {
        let set = probe | build;
        let rel = Rel::join(Join {
            left: Arc::clone(&p.rel),
            right: Arc::clone(&b.rel),
            kind: JoinKind::Inner,
            on: on
                .iter()
                .map(|(l, r)| {
                    (
                        renumber(l, &place(&p.layout)),
                        renumber(r, &place(&b.layout)),
                    )
                })
                .collect(),
            residual: vec![],
            null_equal: false,
            build: Some(BuildSide::Right),
        });
        let mut layout = p.layout.clone();
        layout.extend(&b.layout);
        let conditions: Vec<Expr> = self
            .graph
            .conditions
            .iter()
            .filter(|c| {
                let needs = self.graph.set(c);
                needs & !set == 0 && needs & !probe != 0 && needs & !build != 0
            })
            .map(|c| renumber(c, &place(&layout)))
            .collect();
        let rel = Rel::filter(rel, in_order(conditions));
        Plan {
            rows: self.estimator.rows(&rel),
            rel,
            layout,
            cost: f64::INFINITY,
        }
    }

    /// The join of a part with a filtered table by an index over all of the table, which outlives the query, and the filter behind it.
    /// `None` where `filtered`, the cost of an index over the rows that meet the condition, is not clearly more. The cost is that of this
    /// join alone, less what going over the table for its condition would read.
    fn over_whole_table(
        &self,
        (probe, p): (Set, &Plan),
        (build, b): (Set, &Plan),
        on: &[(Expr, Expr)],
        filtered: f64,
    ) -> Option<Plan> {
        let RelKind::Filter { input, conjuncts } = &b.rel.kind else {
            return None;
        };
        // What can fail fails for rows that nobody asks for, too.
        let table = matches!(input.kind, RelKind::Scan { .. });
        if !table || build.count_ones() != 1 || conjuncts.iter().any(Expr::may_fault) {
            return None;
        }
        let estimate = self.estimator.estimate(input);
        let width = |column: &usize| {
            estimate
                .columns
                .get(*column)
                .map_or(0.0, ColumnEstimate::width)
        };
        let conditions: BTreeSet<usize> = conjuncts.iter().flat_map(columns).collect();
        let tested: f64 = conditions.iter().map(width).sum();
        let spared = estimate.rows * tested;
        let keys = keys_of(b, on);
        let payload = self.bytes((b, build), &keys) + tested;
        self.estimator.kept_cost(input, &keys, Some(payload))?;
        let whole = Plan {
            rel: Arc::clone(input),
            layout: b.layout.clone(),
            rows: estimate.rows,
            cost: 0.0,
        };
        let joined = self.joined((probe, p), (build, &whole), on);
        // More rows are asked for than the table has: going over it is no more. Nobody knows whether frequent keys are asked for.
        if joined.rows > estimate.rows || self.estimator.has_frequent_keys(input, &keys) {
            return None;
        }
        let unique = self.unique((p, probe), (&whole, build), on);
        let index = Index::new(self.estimator, input, &keys, payload, unique);
        let cost = self.asked(&index, (probe, p), on, joined.rows);
        let n = p.layout.len();
        let behind = conjuncts.iter().map(|c| renumber(c, &|column| column + n));
        (cost < PAYS * (filtered + spared)).then(|| Plan {
            rel: Rel::filter(joined.rel, in_order(behind.collect())),
            layout: joined.layout,
            // Behind the filter there are as many rows as where the table is filtered first, whatever is thought of each tree.
            rows: self.joined((probe, p), (build, b), on).rows,
            cost: cost - spared,
        })
    }

    /// The cost of the last join of a tree.
    fn cost(
        &self,
        (probe, p): (Set, &Plan),
        (build, b): (Set, &Plan),
        on: &[(Expr, Expr)],
        known: &Option<Plan>,
    ) -> f64 {
        let pairs = match known {
            Some(plan) => plan.rows,
            None => self.joined((probe, p), (build, b), on).rows,
        };
        let keys = keys_of(b, on);
        let unique = self.unique((p, probe), (b, build), on);
        let payload = self.bytes((b, build), &keys);
        let index = Index::new(self.estimator, &b.rel, &keys, payload, unique);
        self.asked(&index, (probe, p), on, pairs)
    }

    /// The cost of building an index and of looking up a part in it.
    fn asked(
        &self,
        index: &Index,
        (probe, p): (Set, &Plan),
        on: &[(Expr, Expr)],
        pairs: f64,
    ) -> f64 {
        let ordered = match on {
            [(l, _)] => as_column(&renumber(l, &place(&p.layout)))
                .is_some_and(|c| self.estimator.clustered(&p.rel, c)),
            _ => false,
        };
        let hits = pairs / p.rows.max(1.0);
        index.build()
            + index.probe(p.rows, hits, ordered)
            + index.expand(p.rows, pairs, self.bytes((p, probe), &[]))
    }

    /// May the build side be assumed unique? When both sides could be, the one over smaller tables is: foreign keys
    /// are in the larger.
    fn unique(&self, (p, _): (&Plan, Set), (b, _): (&Plan, Set), on: &[(Expr, Expr)]) -> bool {
        let keys = |side: &Plan, build: bool| -> Option<BTreeSet<usize>> {
            let of = |pair: &(Expr, Expr)| {
                as_column(&renumber(
                    if build { &pair.1 } else { &pair.0 },
                    &place(&side.layout),
                ))
            };
            on.iter().map(of).collect()
        };
        let Some(build) = keys(b, true) else {
            return false;
        };
        if self.estimator.unique(&b.rel, &build, Proof::Certain) {
            return true;
        }
        if !self.estimator.unique(&b.rel, &build, Proof::Plausible) {
            return false;
        }
        let Some(probe) = keys(p, false) else {
            return true;
        };
        !self.estimator.unique(&p.rel, &probe, Proof::Plausible)
            || self.estimator.base_rows(&b.rel) < self.estimator.base_rows(&p.rel)
    }

    /// Bytes of a row of `plan` that are needed beyond `keys`: what is read in the end, and one member of
    /// each class that joins with others.
    fn bytes(&self, (plan, set): (&Plan, Set), keys: &[Expr]) -> f64 {
        let estimate = self.estimator.estimate(&plan.rel);
        let to = place(&plan.layout);
        let mut needed: BTreeSet<usize> = self.outside.iter().map(|c| to(*c)).collect();
        for class in &self.graph.classes {
            let within = |m: &&Expr| self.graph.set(m) & !set == 0;
            if class.iter().all(|m| within(&m)) {
                continue;
            }
            let members: Vec<BTreeSet<usize>> = class
                .iter()
                .filter(within)
                .map(|m| columns(m).into_iter().map(&to).collect())
                .collect();
            let known = |c: &BTreeSet<usize>| {
                c.iter()
                    .all(|c| needed.contains(c) || keys.iter().any(|k| columns(k).contains(c)))
            };
            if let Some(first) = members.first()
                && !members.iter().any(known)
            {
                needed.extend(first);
            }
        }
        let keys: BTreeSet<usize> = keys.iter().flat_map(columns).collect();
        needed
            .difference(&keys)
            .filter_map(|place| estimate.columns.get(*place))
            .map(ColumnEstimate::width)
            .sum()
    }
}
