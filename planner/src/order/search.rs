//! The search for the cheapest tree of a join graph: dynamic programming over its subsets, or joining the best pair first where there
//! are many relations.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use warpline_gpu::expr::Expr;

use super::cost::Index;
use super::flatten::{Classes, JoinGraph, Set};
use super::sides::{Known, Members, Side, Whole};
use crate::rel::convert::in_order;
use crate::rel::expr::renumber;
use crate::rel::{BuildSide, Join, JoinKind, Rel, RelRef};
use crate::stats::Estimator;

/// Most relations for exhaustive search.
const MOST_EXHAUSTIVE: usize = 10;
/// An index over a whole table must save this much, since estimates are uncertain.
const PAYS: f64 = 0.8;

/// The best tree found for a set of relations.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) rel: RelRef,
    /// The graph's number of each column of `rel`.
    pub(super) layout: Vec<usize>,
    pub(super) rows: f64,
    pub(super) cost: f64,
}

impl Plan {
    /// Where a column of the graph is among those of the tree.
    pub(super) fn place(&self) -> impl Fn(usize) -> usize + '_ {
        let at = |column| self.layout.iter().position(|c| *c == column);
        move |column| at(column).unwrap_or(usize::MAX)
    }
}

/// Some of the relations, and their tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) set: Set,
    pub(super) plan: &'p Plan,
}

/// Two parts to join, by the classes of which both have members that can be compared: at least one.
#[derive(Debug, Clone, Copy)]
struct Split<'p> {
    probe: Part<'p>,
    build: Part<'p>,
    keys: Classes,
}

/// The search in one graph. A set of relations has one tree as part of larger ones, so what is known of a part is kept by its set.
pub(super) struct Search<'a> {
    pub(super) graph: &'a JoinGraph,
    pub(super) estimator: &'a Estimator<'a>,
    pub(super) members: Members<'a>,
    /// Conditions that come as soon as all that they read is joined, and what that is.
    conditions: Vec<(Set, &'a Expr)>,
    known: RefCell<Known>,
}

impl<'a> Search<'a> {
    pub(super) fn new(graph: &'a JoinGraph, estimator: &'a Estimator<'a>) -> Self {
        let conditions = graph.conditions.iter();
        Self {
            members: Members::of(graph),
            conditions: conditions.map(|c| (graph.set(c), c)).collect(),
            known: RefCell::default(),
            graph,
            estimator,
        }
    }

    /// The best tree of the relations of `set`.
    pub(super) fn best(&self, set: Set) -> Plan {
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
            let (probe, build) = (Part { set, plan: &plan }, Part::of(other, &part));
            plan = self.joined_on(probe, build, vec![]);
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
        // Subsets by the places of their relations among `singles`, bit `i` for the `i`th.
        let subsets = 1usize << singles.len();
        let mut sets: Vec<Set> = vec![0; subsets];
        for subset in 1..subsets {
            let rest = subset & (subset - 1);
            sets[subset] = sets[rest] | singles[subset.trailing_zeros() as usize].0;
        }
        let held: Vec<Classes> = sets.iter().map(|set| self.members.held(*set)).collect();
        let mut plans: Vec<Option<Plan>> = vec![None; subsets];
        for (place, (_, plan)) in singles.into_iter().enumerate() {
            plans[1 << place] = Some(plan);
        }
        // Smaller numbers first: a set comes after its parts.
        for subset in 1..subsets {
            if subset.is_power_of_two() {
                continue;
            }
            let mut best: Option<Plan> = None;
            // Every way to split, each half once as the probing side.
            let mut probe = (subset - 1) & subset;
            while probe != 0 {
                let build = subset & !probe;
                let held = held[probe] & held[build];
                if held != 0
                    && let (Some(p), Some(b)) = (&plans[probe], &plans[build])
                    && let (p, b) = (Part::of(sets[probe], p), Part::of(sets[build], b))
                    && let Some(split) = self.split(p, b, held)
                    && let Some(plan) = self.better(split, best.as_ref())
                {
                    best = Some(plan);
                }
                probe = (probe - 1) & subset;
            }
            plans[subset] = best;
        }
        let mut parts: Vec<(Set, Plan)> = Vec::new();
        let mut rest = subsets - 1;
        while rest != 0 {
            // The largest connected set that holds the first relation left.
            let first = rest & rest.wrapping_neg();
            let part = (1..subsets)
                .filter(|s| s & first != 0 && s & !rest == 0 && plans[*s].is_some())
                .max_by_key(|s| s.count_ones())
                .unwrap_or(first);
            rest &= !part;
            if let Some(plan) = plans[part].take() {
                parts.push((sets[part], plan));
            }
        }
        parts
    }

    /// Two parts that both have members of the classes `held`, unless no two of these can be compared.
    fn split<'p>(&self, probe: Part<'p>, build: Part<'p>, held: Classes) -> Option<Split<'p>> {
        let keys = self.members.keys(held, probe.set, build.set);
        (keys != 0).then_some(Split { probe, build, keys })
    }

    /// The join of two parts, where it is cheaper than the best tree of their relations so far.
    fn better(&self, split: Split<'_>, best: Option<&Plan>) -> Option<Plan> {
        let rows = best.map(|best| best.rows);
        let filtered = self.cost(split, rows);
        let whole = self.over_whole_table(split, filtered);
        let step = whole.as_ref().map_or(filtered, |whole| whole.cost);
        let cost = split.probe.plan.cost + split.build.plan.cost + step;
        if best.is_some_and(|best| cost >= best.cost) {
            return None;
        }
        let plan = whole.unwrap_or_else(|| self.joined(split));
        Some(Plan {
            cost,
            // All trees of a set have the same rows, whatever their estimates say.
            rows: rows.unwrap_or(plan.rows),
            ..plan
        })
    }

    /// Join the cheapest pair until no key connects any two parts.
    fn greedy(&self, singles: Vec<(Set, Plan)>) -> Vec<(Set, Plan)> {
        let mut parts = singles;
        // By the sets of both sides: their join, if a key connects them.
        let mut joins: HashMap<(Set, Set), Option<Plan>> = HashMap::new();
        loop {
            let mut best: Option<(usize, usize, &Plan)> = None;
            for (i, j) in pairs(parts.len()) {
                joins.entry((parts[i].0, parts[j].0)).or_insert_with(|| {
                    let (probe, build) = (Part::from(&parts[i]), Part::from(&parts[j]));
                    self.pair(probe, build)
                });
            }
            for (i, j) in pairs(parts.len()) {
                let Some(Some(plan)) = joins.get(&(parts[i].0, parts[j].0)) else {
                    continue;
                };
                // Small results first; among equal ones the cheaper step.
                let better =
                    best.is_none_or(|(_, _, best)| (plan.rows, plan.cost) < (best.rows, best.cost));
                if better {
                    best = Some((i, j, plan));
                }
            }
            let Some((i, j, plan)) = best else {
                return parts;
            };
            let part = (parts[i].0 | parts[j].0, plan.clone());
            parts.remove(i.max(j));
            parts.remove(i.min(j));
            parts.push(part);
        }
    }

    /// The join of two parts and its cost alone, if a key connects them.
    fn pair(&self, probe: Part<'_>, build: Part<'_>) -> Option<Plan> {
        let held = self.members.held(probe.set) & self.members.held(build.set);
        let split = self.split(probe, build, held)?;
        let plan = self.joined(split);
        let cost = self.cost(split, Some(plan.rows));
        let whole = self.over_whole_table(split, cost);
        Some(whole.unwrap_or(Plan { cost, ..plan }))
    }

    /// The join of two parts, with the conditions that it makes possible.
    fn joined(&self, Split { probe, build, keys }: Split<'_>) -> Plan {
        self.joined_by(
            probe,
            build,
            &self.side(probe, keys),
            &self.side(build, keys),
        )
    }

    /// The same with the keys of these sides.
    fn joined_by(&self, probe: Part<'_>, build: Part<'_>, left: &Side, right: &Side) -> Plan {
        let on = left.keys.iter().cloned().zip(right.keys.iter().cloned());
        self.joined_on(probe, build, on.collect())
    }

    /// The join of two parts by keys over the columns of each.
    fn joined_on(&self, probe: Part<'_>, build: Part<'_>, on: Vec<(Expr, Expr)>) -> Plan {
        let set = probe.set | build.set;
        let rel = Rel::join(Join {
            left: Arc::clone(&probe.plan.rel),
            right: Arc::clone(&build.plan.rel),
            kind: JoinKind::Inner,
            on,
            residual: vec![],
            null_equal: false,
            build: Some(BuildSide::Right),
        });
        let mut plan = Plan {
            layout: [probe.plan.layout.as_slice(), &build.plan.layout].concat(),
            rows: 0.0,
            cost: f64::INFINITY,
            rel,
        };
        let possible = self.conditions.iter().filter(|(needs, _)| {
            needs & !set == 0 && needs & !probe.set != 0 && needs & !build.set != 0
        });
        let possible = possible.map(|(_, c)| renumber(c, &plan.place())).collect();
        plan.rel = Rel::filter(Arc::clone(&plan.rel), in_order(possible));
        plan.rows = self.estimator.rows(&plan.rel);
        plan
    }

    /// The join of a part with a filtered table by an index over all of the table, which outlives the query, and the filter behind it.
    /// `None` where `filtered`, the cost of an index over the rows that meet the condition, is not clearly more. The cost is that of this
    /// join alone, less what going over the table for its condition would read.
    fn over_whole_table(&self, split: Split<'_>, filtered: f64) -> Option<Plan> {
        let Split { probe, build, keys } = split;
        let whole = self.whole(build, keys)?;
        let asking = self.side(probe, keys);
        let unique = self.unique((probe, &asking), (whole.part(), &whole.side));
        let index = whole.side.index(self, whole.part(), unique);
        let most = PAYS * (filtered + whole.spared);
        // No pair is expanded and nothing is found: it takes no less.
        let ordered = asking.ordered(self, probe);
        if index.build() + index.probe(probe.plan.rows, 0.0, ordered) >= most {
            return None;
        }
        let joined = self.joined_by(probe, whole.part(), &asking, &whole.side);
        // More rows are asked for than the table has: going over it is no more. Nobody knows whether frequent keys are asked for.
        if joined.rows > whole.plan.rows || whole.frequent {
            return None;
        }
        let cost = self.asked(&index, probe, &asking, joined.rows);
        let n = probe.plan.layout.len();
        let behind = whole.conjuncts.iter();
        let behind = behind.map(|c| renumber(c, &|column| column + n));
        (cost < most).then(|| Plan {
            rel: Rel::filter(joined.rel, in_order(behind.collect())),
            layout: joined.layout,
            // Behind the filter there are as many rows as where the table is filtered first, whatever is thought of each tree.
            rows: self.joined(split).rows,
            cost: cost - whole.spared,
        })
    }

    /// The cost of the last join of a tree, which yields `pairs` rows if that is known.
    fn cost(&self, split: Split<'_>, pairs: Option<f64>) -> f64 {
        let pairs = pairs.unwrap_or_else(|| self.joined(split).rows);
        let Split { probe, build, keys } = split;
        let (asking, asked) = (self.side(probe, keys), self.side(build, keys));
        let unique = self.unique((probe, &asking), (build, &asked));
        let index = asked.index(self, build, unique);
        self.asked(&index, probe, &asking, pairs)
    }

    /// The cost of building an index and of looking up a part in it.
    fn asked(&self, index: &Index, probe: Part<'_>, asking: &Side, pairs: f64) -> f64 {
        let rows = probe.plan.rows;
        let hits = pairs / rows.max(1.0);
        let bytes = self.side(probe, 0).payload(self, probe);
        index.build()
            + index.probe(rows, hits, asking.ordered(self, probe))
            + index.expand(rows, pairs, bytes)
    }

    /// May the build side be assumed unique? When both sides could be, the one over smaller tables is: foreign keys
    /// are in the larger.
    fn unique(
        &self,
        (probe, asking): (Part<'_>, &Side),
        (build, asked): (Part<'_>, &Side),
    ) -> bool {
        if !asked.are_columns() {
            return false;
        }
        if asked.certainly_unique(self, build) {
            return true;
        }
        if !asked.plausibly_unique(self, build) {
            return false;
        }
        !asking.are_columns()
            || !asking.plausibly_unique(self, probe)
            || asked.base_rows(self, build) < asking.base_rows(self, probe)
    }

    /// A part as the side of a join by classes.
    fn side(&self, part: Part<'_>, keys: Classes) -> Rc<Side> {
        let key = (part.set, keys);
        if let Some(known) = self.known.borrow().sides.get(&key) {
            return Rc::clone(known);
        }
        let side = Rc::new(Side::new(self, part, keys));
        let mut known = self.known.borrow_mut();
        known.sides.insert(key, Rc::clone(&side));
        side
    }

    /// The table below a part without its filter, where an index over all of it by classes would be kept.
    fn whole(&self, part: Part<'_>, keys: Classes) -> Option<Rc<Whole>> {
        let key = (part.set, keys);
        if let Some(known) = self.known.borrow().wholes.get(&key) {
            return known.clone();
        }
        let side = self.side(part, keys);
        let whole = Whole::new(self, part, &side).map(Rc::new);
        let mut known = self.known.borrow_mut();
        known.wholes.insert(key, whole.clone());
        whole
    }
}

impl<'p> Part<'p> {
    pub(super) fn of(set: Set, plan: &'p Plan) -> Self {
        Self { set, plan }
    }
}

impl<'p> From<&'p (Set, Plan)> for Part<'p> {
    fn from((set, plan): &'p (Set, Plan)) -> Self {
        Self::of(*set, plan)
    }
}

/// All pairs of different numbers below `n`.
fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (0..n).filter(move |j| *j != i).map(move |j| (i, j)))
}
