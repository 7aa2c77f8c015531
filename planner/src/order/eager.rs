//! Aggregating before joining.
//!
//! A table that only contributes values which follow from the grouping keys is joined to the groups instead of to the rows. It
//! may still drop groups, all rows of which it would have dropped. One of the shapes of Yan and Larson's "Eager aggregation and
//! lazy aggregation" (VLDB 1995), without a second aggregation above.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::Order;
use super::flatten::{JoinGraph, Set, flatten};
use super::groups::{determined, determining};
use crate::reason::{Reason, refuse};
use crate::rel::expr::{as_column, columns, renumber, substitute, substitute_all};
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};
use crate::stats::{Estimator, Proof};

/// A table may drop this share of the rows and still be joined late.
const KEEPS: f64 = 0.8;

/// A table to be joined to the groups: its number, and the pairs (column elsewhere, its column).
struct Late {
    leaf: usize,
    on: Vec<(usize, usize)>,
}

/// Relations that are joined before they are grouped: the tree that runs, from which all facts about their rows come.
struct Joined {
    set: Set,
    tree: RelRef,
    /// The graph's number of each column of the tree.
    layout: Vec<usize>,
}

impl Joined {
    fn new(graph: &JoinGraph, set: Set, estimator: &Estimator<'_>) -> Self {
        let (tree, layout) = graph.best(set, estimator);
        Self { set, tree, layout }
    }

    /// The columns of the graph that follow from `keys`, by what the tree alone says of its rows.
    fn following(&self, keys: &[Expr], estimator: &Estimator<'_>) -> BTreeSet<usize> {
        let place = |key| {
            let column = determining(key)?;
            self.layout.iter().position(|c| *c == column)
        };
        let known = keys.iter().filter_map(place).collect();
        determined(&self.tree, known, estimator)
            .into_iter()
            .filter_map(|p| self.layout.get(p).copied())
            .collect()
    }
}

/// The aggregation `rel` with tables joined to its groups, if there are any that can be.
pub(super) fn pull_up(rel: &RelRef, order: &Order<'_>) -> Result<Option<RelRef>, Reason> {
    let estimator = order.estimator;
    let RelKind::Aggregate { input, aggregate } = &rel.kind else {
        return Ok(None);
    };
    // Without keys there is a group of no rows as well, which a join could drop.
    if aggregate.keys.is_empty() || !aggregate.calls.iter().any(is_carried) {
        return Ok(None);
    }
    let Some(graph) = flatten(input)? else {
        return Ok(None);
    };
    let mut aggregate = over(aggregate, &graph.outputs)?;
    let graph = graph.prepared(order)?;
    let mut joined: Option<Joined> = None;
    let mut late: Vec<Late> = Vec::new();
    loop {
        let rest = joined.as_ref().map_or(graph.all(), |joined| joined.set);
        let leaves = (0..graph.leaves.len()).filter(|leaf| rest & 1 << leaf != 0);
        let found = leaves
            .filter_map(|leaf| candidate(&graph, &aggregate, leaf, rest, &late, estimator))
            .find_map(|(found, keys)| {
                let left = Joined::new(&graph, rest & !(1 << found.leaf), estimator);
                let follows = left.following(&keys, estimator);
                let pairs = late.iter().chain([&found]);
                follow(&graph, &aggregate, left.set, pairs, &follows).then_some((found, keys, left))
            });
        let Some((found, keys, left)) = found else {
            break;
        };
        aggregate.keys = keys;
        joined = Some(left);
        late.push(found);
    }
    match joined {
        Some(joined) => joined_late(rel, &graph, &aggregate, joined, &late).map(Some),
        None => Ok(None),
    }
}

/// Has the call one value for all rows of a group?
fn is_carried(call: &AggregateCall) -> bool {
    call.function == AggregateFunction::Any && call.filter.is_none()
}

/// Do the groups of `set` have one value each of all that late tables are found by, and of all that is carried along? What
/// followed from a late table no longer does: its rows are not there when groups are made.
fn follow<'a>(
    graph: &JoinGraph,
    aggregate: &Aggregate,
    set: Set,
    mut late: impl Iterator<Item = &'a Late>,
    follows: &BTreeSet<usize>,
) -> bool {
    let one_value = |column: usize| graph.set_of(column) & set == 0 || follows.contains(&column);
    let carried = aggregate.calls.iter().filter(|call| is_carried(call));
    late.all(|table| table.on.iter().all(|(other, _)| one_value(*other)))
        && carried
            .filter_map(|call| call.argument.as_ref())
            .all(|argument| columns(argument).into_iter().all(one_value))
}

/// `leaf` and the grouping keys without it, if it can be joined to the groups of the other relations in `rest`, provided that
/// these groups have one value each of what it is found by.
fn candidate(
    graph: &JoinGraph,
    aggregate: &Aggregate,
    leaf: usize,
    rest: Set,
    late: &[Late],
    estimator: &Estimator<'_>,
) -> Option<(Late, Vec<Expr>)> {
    let bit: Set = 1 << leaf;
    let without = rest & !bit;
    let rel = &graph.leaves[leaf];
    if without == 0 || estimator.rows(rel) < KEEPS * estimator.base_rows(rel) {
        return None;
    }
    let reads = |e: &Expr| graph.set(e) & bit != 0;
    // Its keys, and what they are equal to among the relations that stay.
    let mut on = Vec::new();
    for class in &graph.classes {
        let Some(own) = class.iter().find(|m| reads(m)) else {
            continue;
        };
        // A class that only ties relations which are joined late to this one has been seen to.
        let stays = |m: &&Expr| graph.set(m) & without != 0;
        let Some(other) = class.iter().find(|m| stays(m) && as_column(m).is_some()) else {
            if class.iter().any(|m| stays(&m)) {
                return None;
            }
            continue;
        };
        if own.data_type != other.data_type {
            return None;
        }
        on.push((as_column(other)?, as_column(own)?));
    }
    let start = graph.starts[leaf];
    let keys: BTreeSet<usize> = on.iter().map(|(_, own)| own - start).collect();
    if on.is_empty()
        || !estimator.unique(rel, &keys, Proof::Certain)
        || !graph.is_connected(without)
        || graph.conditions.iter().chain(&graph.late).any(reads)
        || graph
            .semis
            .iter()
            .any(|s| s.on.iter().any(|(l, _)| reads(l)) || s.residual.iter().any(reads))
    {
        return None;
    }
    // It must carry values along, not only exist.
    let ties = |l: &Late| l.on.iter().any(|(other, _)| graph.leaf_of(*other) == leaf);
    let useful = late.iter().any(ties)
        || aggregate
            .calls
            .iter()
            .any(|c| is_carried(c) && c.argument.as_ref().is_some_and(reads));
    let alone = |c: &AggregateCall| {
        let argument = c.argument.as_ref();
        match is_carried(c) {
            true => argument.is_none_or(|e| !reads(e) || graph.set(e) == bit),
            false => !argument.is_some_and(reads) && !c.filter.as_ref().is_some_and(reads),
        }
    };
    if !useful || !aggregate.calls.iter().all(alone) {
        return None;
    }
    // Group by what its keys are equal to.
    let mut grouped = aggregate.keys.clone();
    for key in &mut grouped {
        if !reads(key) {
            continue;
        }
        let own = as_column(key)?;
        let (other, _) = on.iter().find(|(_, o)| *o == own)?;
        *key = renumber(key, &|_| *other);
    }
    Some((Late { leaf, on }, grouped))
}

/// The groups of the relations in `joined`, joined with the late ones.
fn joined_late(
    rel: &RelRef,
    graph: &JoinGraph,
    aggregate: &Aggregate,
    joined: Joined,
    late: &[Late],
) -> Result<RelRef, Reason> {
    let (rest, input, layout) = (joined.set, joined.tree, joined.layout);
    let place: HashMap<usize, usize> = layout.iter().enumerate().map(|(p, c)| (*c, p)).collect();
    let to = |c: usize| place.get(&c).copied().unwrap_or(usize::MAX);
    let mut calls: Vec<AggregateCall> = Vec::new();
    // Where each call of the aggregation is among those kept.
    let mut kept = Vec::new();
    for call in &aggregate.calls {
        let stays = call
            .argument
            .as_ref()
            .is_none_or(|e| graph.set(e) & !rest == 0);
        kept.push(stays.then_some(calls.len()));
        if stays {
            calls.push(AggregateCall {
                argument: call.argument.as_ref().map(|e| renumber(e, &to)),
                filter: call.filter.as_ref().map(|e| renumber(e, &to)),
                ..call.clone()
            });
        }
    }
    // Keys of the late tables travel with the groups.
    let n = aggregate.keys.len();
    let mut carried: HashMap<usize, usize> = HashMap::new();
    for (i, key) in aggregate.keys.iter().enumerate() {
        if let Some(column) = as_column(key) {
            carried.entry(column).or_insert(i);
        }
    }
    for (other, _) in late.iter().flat_map(|l| &l.on) {
        if graph.set_of(*other) & rest == 0 || carried.contains_key(other) {
            continue;
        }
        let argument = input.column(to(*other));
        let name = input.columns[to(*other)].name.clone();
        carried.insert(*other, n + calls.len());
        calls.push(AggregateCall {
            function: AggregateFunction::Any,
            return_type: argument.data_type.clone(),
            argument: Some(argument),
            filter: None,
            distinct: false,
            name,
        });
    }
    let names: Vec<String> = rel.columns[..n].iter().map(|c| c.name.clone()).collect();
    let keys = aggregate.keys.iter().map(|k| renumber(k, &to)).collect();
    let mut joined = Rel::aggregate(input, Aggregate { keys, calls }, &names);
    // The last to be found late is tied to the groups, earlier ones perhaps to it.
    for table in late.iter().rev() {
        let right = Arc::clone(&graph.leaves[table.leaf]);
        let start = graph.starts[table.leaf];
        let on = table
            .on
            .iter()
            .map(|(other, own)| {
                let Some(left) = carried.get(other) else {
                    return refuse("a key of a table that is joined late is lost");
                };
                Ok((joined.column(*left), right.column(own - start)))
            })
            .collect::<Result<_, Reason>>()?;
        let at = joined.columns.len();
        for i in 0..right.columns.len() {
            carried.entry(start + i).or_insert(at + i);
        }
        joined = Rel::join(Join {
            left: joined,
            right,
            kind: JoinKind::Inner,
            on,
            residual: vec![],
            null_equal: false,
            build: None,
        });
    }
    let to = |c: usize| carried.get(&c).copied().unwrap_or(usize::MAX);
    let outputs = rel
        .columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let mut expr = match i.checked_sub(n) {
                None => joined.column(i),
                Some(call) => match (kept[call], &aggregate.calls[call].argument) {
                    (Some(place), _) => joined.column(n + place),
                    (None, Some(argument)) => renumber(argument, &to),
                    (None, None) => return refuse("a call without an argument is joined late"),
                },
            };
            expr.nullable = column.nullable;
            Ok((expr, column.name.clone()))
        })
        .collect::<Result<_, Reason>>()?;
    Ok(Rel::project(joined, outputs))
}

/// `aggregate` over what its input's columns are.
pub(super) fn over(aggregate: &Aggregate, columns: &[Expr]) -> Result<Aggregate, Reason> {
    let within = |e: &Option<Expr>| e.as_ref().map(|e| substitute(e, columns)).transpose();
    let calls = aggregate
        .calls
        .iter()
        .map(|call| {
            Ok(AggregateCall {
                argument: within(&call.argument)?,
                filter: within(&call.filter)?,
                ..call.clone()
            })
        })
        .collect::<Result<_, Reason>>()?;
    Ok(Aggregate {
        keys: substitute_all(&aggregate.keys, columns)?,
        calls,
    })
}
