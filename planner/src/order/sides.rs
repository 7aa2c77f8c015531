//! What a part of a tree is worth as one side of a join. The same part is tried with many others, so each fact is found out once.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use warpline_gpu::expr::Expr;

use super::cost::Index;
use super::flatten::{Classes, JoinGraph, Set};
use super::search::{Part, Plan, Search};
use crate::rel::RelKind;
use crate::rel::expr::{as_column, columns, renumber};
use crate::stats::{ColumnEstimate, Proof};
use crate::translate::is_string;

/// What is known by the set of a part and the classes that it is joined by.
#[derive(Default)]
pub(super) struct Known {
    pub(super) sides: HashMap<(Set, Classes), Rc<Side>>,
    pub(super) wholes: HashMap<(Set, Classes), Option<Rc<Whole>>>,
}

/// An expression of a class.
struct Member<'a> {
    expr: &'a Expr,
    /// The relations that it reads.
    reads: Set,
    /// The columns that it reads.
    columns: BTreeSet<usize>,
}

/// The classes of a graph, and the columns that more than keys read.
pub(super) struct Members<'a> {
    classes: Vec<Vec<Member<'a>>>,
    outside: BTreeSet<usize>,
}

impl<'a> Members<'a> {
    pub(super) fn of(graph: &'a JoinGraph) -> Self {
        let member = |expr: &'a Expr| Member {
            expr,
            reads: graph.set(expr),
            columns: columns(expr),
        };
        let classes = graph.classes.iter();
        Self {
            classes: classes
                .map(|class| class.iter().map(member).collect())
                .collect(),
            outside: graph.read_outside(),
        }
    }

    /// The classes that have a member over the relations of `set`.
    pub(super) fn held(&self, set: Set) -> Classes {
        let held = |class: &[Member<'_>]| class.iter().any(|m| m.reads & !set == 0);
        let classes = self.classes.iter().enumerate();
        classes.fold(0, |all, (i, class)| all | Classes::from(held(class)) << i)
    }

    /// Those of the classes `held`, of which both sides have a member, whose members can be compared.
    pub(super) fn keys(&self, held: Classes, probe: Set, build: Set) -> Classes {
        let comparable = |class: &usize| {
            let types = |side| Some(&self.member(*class, side)?.data_type);
            let (l, r) = (types(probe), types(build));
            l == r || l.is_some_and(is_string)
        };
        let keys = bits(held).filter(comparable);
        keys.fold(0, |keys, class| keys | 1 << class)
    }

    /// The member of a class that a part is joined by: a column, if there is one.
    fn member(&self, class: usize, set: Set) -> Option<&'a Expr> {
        let within = || self.classes[class].iter().filter(|m| m.reads & !set == 0);
        let column = within().find(|m| as_column(m.expr).is_some());
        column.or_else(|| within().next()).map(|m| m.expr)
    }

    /// Columns of a part that are needed beyond `keys`, columns of the graph: what is read in the end, and one member of each class
    /// that joins with others.
    fn needed_beyond(&self, keys: &BTreeSet<usize>, part: Part<'_>) -> BTreeSet<usize> {
        let within = |c: &&usize| part.plan.layout.contains(c);
        let mut needed: BTreeSet<usize> = self.outside.iter().filter(within).copied().collect();
        for class in &self.classes {
            if class.iter().all(|m| m.reads & !part.set == 0) {
                continue;
            }
            let mut members = class.iter().filter(|m| m.reads & !part.set == 0).peekable();
            let first = members.peek().map(|m| &m.columns);
            let known = |m: &Member<'_>| {
                let mut columns = m.columns.iter();
                columns.all(|c| needed.contains(c) || keys.contains(c))
            };
            if let Some(first) = first
                && !members.any(known)
            {
                needed.extend(first);
            }
        }
        &needed - keys
    }
}

/// The numbers of the classes in a set, upwards.
fn bits(classes: Classes) -> impl Iterator<Item = usize> {
    (0..Classes::BITS as usize).filter(move |i| classes >> i & 1 != 0)
}

/// A part of a tree with the keys that it is joined by.
#[derive(Default)]
pub(super) struct Side {
    /// One for each class, over the columns of the part.
    pub(super) keys: Vec<Expr>,
    /// The columns that they are, if each is one.
    columns: Option<BTreeSet<usize>>,
    /// The columns of the graph that they read.
    read: BTreeSet<usize>,
    certain: OnceCell<bool>,
    plausible: OnceCell<bool>,
    base_rows: OnceCell<f64>,
    ordered: OnceCell<bool>,
    payload: OnceCell<f64>,
    /// Without and with the assumption that no two rows have the same keys.
    indexes: [OnceCell<Index>; 2],
}

impl Side {
    pub(super) fn new(search: &Search<'_>, part: Part<'_>, keys: Classes) -> Self {
        let members = bits(keys).filter_map(|class| search.members.member(class, part.set));
        let members: Vec<&Expr> = members.collect();
        let place = part.plan.place();
        Self::by(
            members.iter().map(|key| renumber(key, &place)).collect(),
            members.iter().flat_map(|key| columns(key)).collect(),
        )
    }

    fn by(keys: Vec<Expr>, read: BTreeSet<usize>) -> Self {
        Self {
            columns: keys.iter().map(as_column).collect(),
            keys,
            read,
            ..Self::default()
        }
    }

    /// Is every key a column?
    pub(super) fn are_columns(&self) -> bool {
        self.columns.is_some()
    }

    /// Is it proven that no two rows have the same keys?
    pub(super) fn certainly_unique(&self, search: &Search<'_>, part: Part<'_>) -> bool {
        *self
            .certain
            .get_or_init(|| self.is_unique(search, part, Proof::Certain))
    }

    /// May no two rows have the same keys?
    pub(super) fn plausibly_unique(&self, search: &Search<'_>, part: Part<'_>) -> bool {
        *self
            .plausible
            .get_or_init(|| self.is_unique(search, part, Proof::Plausible))
    }

    fn is_unique(&self, search: &Search<'_>, part: Part<'_>, proof: Proof) -> bool {
        let columns = self.columns.as_ref();
        columns.is_some_and(|c| search.estimator.unique(&part.plan.rel, c, proof))
    }

    /// Rows of the largest table of the part.
    pub(super) fn base_rows(&self, search: &Search<'_>, part: Part<'_>) -> f64 {
        let rows = || search.estimator.base_rows(&part.plan.rel);
        *self.base_rows.get_or_init(rows)
    }

    /// Do rows come in the order of the only key?
    pub(super) fn ordered(&self, search: &Search<'_>, part: Part<'_>) -> bool {
        let clustered = |c: &usize| search.estimator.clustered(&part.plan.rel, *c);
        *self.ordered.get_or_init(|| match &self.columns {
            Some(columns) if self.keys.len() == 1 => columns.iter().all(clustered),
            _ => false,
        })
    }

    /// Bytes of a row that are needed beyond the keys.
    pub(super) fn payload(&self, search: &Search<'_>, part: Part<'_>) -> f64 {
        *self.payload.get_or_init(|| {
            let estimate = search.estimator.estimate(&part.plan.rel);
            let needed = search.members.needed_beyond(&self.read, part);
            let mut places: Vec<usize> = needed.into_iter().map(part.plan.place()).collect();
            // Sums of floats depend on their order.
            places.sort_unstable();
            let columns = places.iter().filter_map(|at| estimate.columns.get(*at));
            columns.map(ColumnEstimate::width).sum()
        })
    }

    /// An index over the part by the keys.
    pub(super) fn index(&self, search: &Search<'_>, part: Part<'_>, unique: bool) -> Index {
        *self.indexes[usize::from(unique)].get_or_init(|| {
            let payload = self.payload(search, part);
            Index::new(
                search.estimator,
                &part.plan.rel,
                &self.keys,
                payload,
                unique,
            )
        })
    }
}

/// A table without the filter that a part has over it, as the build side of a join by an index that outlives the query.
pub(super) struct Whole {
    set: Set,
    pub(super) plan: Plan,
    pub(super) side: Side,
    /// The filter, over the columns of the table.
    pub(super) conjuncts: Vec<Expr>,
    /// What going over the table for the filter would read.
    pub(super) spared: f64,
    /// Do some keys occur far more often than others?
    pub(super) frequent: bool,
}

impl Whole {
    /// `None` unless the part is a filtered table of which such an index may be kept.
    pub(super) fn new(search: &Search<'_>, part: Part<'_>, side: &Side) -> Option<Self> {
        let RelKind::Filter { input, conjuncts } = &part.plan.rel.kind else {
            return None;
        };
        // What can fail fails for rows that nobody asks for, too.
        let table = matches!(input.kind, RelKind::Scan { .. });
        if !table || part.set.count_ones() != 1 || conjuncts.iter().any(Expr::may_fault) {
            return None;
        }
        let estimate = search.estimator.estimate(input);
        let width = |column: &usize| {
            let column = estimate.columns.get(*column);
            column.map_or(0.0, ColumnEstimate::width)
        };
        let conditions: BTreeSet<usize> = conjuncts.iter().flat_map(columns).collect();
        let tested: f64 = conditions.iter().map(width).sum();
        let payload = side.payload(search, part) + tested;
        search
            .estimator
            .kept_cost(input, &side.keys, Some(payload))?;
        let whole = Side::by(side.keys.clone(), side.read.clone());
        // Entries hold what the condition reads as well.
        let _ = whole.payload.set(payload);
        Some(Self {
            set: part.set,
            plan: Plan {
                rel: Arc::clone(input),
                layout: part.plan.layout.clone(),
                rows: estimate.rows,
                cost: 0.0,
            },
            frequent: search.estimator.has_frequent_keys(input, &side.keys),
            side: whole,
            conjuncts: conjuncts.clone(),
            spared: estimate.rows * tested,
        })
    }

    pub(super) fn part(&self) -> Part<'_> {
        Part::of(self.set, &self.plan)
    }
}
