//! The sink of an aggregation: its keys and accumulators, and where the policy places its groups.

use super::distinct::DistinctSets;
use super::kept::kept_groups;
use super::sizes;
use crate::codegen::ir::accumulator::{Accumulator, EVERY_ROW};
use crate::codegen::ir::aggregates::{AccumulatorPlan, Existence};
use crate::codegen::ir::context::Context;
use crate::codegen::ir::pipeline::{EmittedSink, EmittedStep};
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::results::{GroupsLayout, RegroupedLayout, ResultLayout};
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape};
use crate::codegen::key::codes::{dense_strides, group_keys, pack_keys, packed_width};
use crate::codegen::value::scalar::Emitter;
use crate::device::DeviceInfo;
use crate::error::Result;
use crate::expr::{Expr, Node};
use crate::graph::{ResultId, Source};
use crate::pipeline::{Aggregate, GroupPlacement, GroupProfile, Regroup, rows_queue};

pub(in crate::codegen) fn aggregate_sink(
    context: &mut Context<'_>,
    emitter: &mut Emitter<'_>,
    into: ResultId,
    aggregate: &Aggregate,
    device: &DeviceInfo,
    (source, steps): (&Source, &[EmittedStep]),
    (bound, rows_a_thread, rows): (u64, u64, SinkRows),
) -> Result<EmittedSink> {
    let mut keys = group_keys(emitter, &aggregate.keys)?;
    let key_lines = emitter.lines.len();
    let mut aggregates = AccumulatorPlan::default();
    if !keys.is_empty() {
        aggregates.grouped = true;
        // Tells the groups that exist from empty slots of dense placements.
        aggregates.seen(EVERY_ROW);
    }
    let mut sets = DistinctSets::new(into, &keys);
    for call in &aggregate.calls {
        aggregates.call(emitter, call, bound, rows_a_thread, &mut sets)?;
    }
    let dense_domain = dense_strides(&mut keys);
    let key_words = pack_keys(&mut keys);
    let domain = keys
        .iter()
        .try_fold(1u128, |p, k| p.checked_mul(k.domain))
        .unwrap_or(u128::MAX);
    let dense = aggregates.finished(Existence::OfCopies);
    let estimate = context.graph.results[into].estimate;
    let hot = is_hot((emitter, steps), aggregate, estimate);
    // Rows that look keys up in their order follow each other as well; where a group has few of them, they had better be gathered.
    let looked_up_in_order = hot
        && key_index(aggregate)
            .and_then(|key| looked_up_by(steps, key))
            .and_then(|by| emitter.columns.get(by))
            .is_some_and(in_order);
    let profile = GroupProfile {
        rows: bound,
        arriving: context.graph.results[into].input.clamp(1, bound.max(1)),
        dense_domain,
        max_groups: u64::try_from(domain.min(u128::from(bound))).unwrap_or(bound),
        estimate: estimate.max(1),
        state_bytes: dense.bytes,
        state_registers: dense.accumulators.iter().map(|a| a.registers()).sum(),
        key_bytes: packed_width(&keys, key_words).unwrap_or(8 * key_words as u32),
        key_words,
        payload: aggregates
            .arguments
            .iter()
            .map(|(_, bytes)| *bytes)
            .collect(),
        adds: dense.accumulators.iter().map(Accumulator::adds).sum(),
        words: dense.accumulators.iter().map(Accumulator::words).sum(),
        tests: tests(&dense),
        telling: tests(&dense).saturating_sub(tests(&aggregates.finished(Existence::Known))),
        text_bytes: rows.text_bytes,
        in_place: rows.in_place,
        distinct: !sets.words.is_empty(),
        clustered: key_column(emitter, aggregate).is_some_and(clustered) || looked_up_in_order,
        in_order: rows.in_one_pass
            && key_words == 1
            && sets.words.is_empty()
            && key_column(emitter, aggregate).is_some_and(in_order),
        collisions: collisions(emitter, aggregate),
        hot,
        room: context.graph.group_room,
        registers_possible: true,
        shared_possible: true,
    };
    let name = &context.graph.results[into].name;
    let mut placement = GroupPlacement::Registers;
    let mut slots = 1;
    if !keys.is_empty() {
        let choice = context.policy.place_groups(&profile, device);
        placement = choice.placement;
        slots = match placement {
            GroupPlacement::GlobalHash { capacity } => capacity,
            GroupPlacement::Regrouped { groups, .. } => groups,
            _ => match dense_domain {
                Some(domain) => domain,
                None => {
                    return unsupported("a dense group placement for keys without a small domain");
                }
            },
        };
        context.choices.push(format!(
            "groups of {name} in {placement}: {}",
            choice.reason
        ));
    }
    if let (
        GroupPlacement::Regrouped {
            how: Regroup::Runs, ..
        },
        Some(key_bytes),
    ) = (placement, packed_width(&keys, key_words))
    {
        let regrouped = RegroupedLayout {
            rows: None,
            how: Regroup::Runs,
            key_bytes,
            bits: 0,
            window: 0,
            tile_rows: 0,
        };
        let placement = (placement, slots);
        let layout = GroupsLayout::regrouped(
            keys,
            key_words,
            &aggregates,
            placement,
            regrouped,
            sets.words,
        );
        let kept = kept_groups(context, into, &layout, emitter.state)?;
        if kept.is_some() {
            let how =
                format!("groups of {name} are written down where they pass the filter behind");
            context.choices.push(how);
        }
        return Ok(EmittedSink::Aggregate {
            into,
            layout: Box::new(layout),
            clustered: true,
            key_lines,
            kept,
            profile,
        });
    }
    let placed = |placement| {
        let (keys, sets) = (keys.clone(), sets.words.clone());
        GroupsLayout::new(keys, key_words, &aggregates, (placement, slots), sets)
    };
    let mut layout = placed(placement);
    // Rows in the order of the key are added up in runs, which do not queue.
    let clustered = profile.clustered || of_one_match_row(context, aggregate, source, into);
    if !clustered {
        let groups = profile.estimate.min(profile.max_groups);
        // Rows of few groups queue as those of a hot one do.
        let queues = profile.hot
            || rows_queue(bound, groups)
            || may_be_hot(aggregate, profile.arriving, groups);
        layout.front = sizes::front_slots(&layout, device, queues, groups);
        if layout.front > 0 && placement == GroupPlacement::GlobalDense {
            // A table in front that takes more than all states would: these have places without a search.
            let shared = placed(GroupPlacement::Shared);
            if sizes::shared_states(&shared) <= sizes::shared_states(&layout) {
                layout = shared;
            }
        }
    }
    Ok(EmittedSink::Aggregate {
        into,
        layout: Box::new(layout),
        clustered,
        key_lines,
        kept: None,
        profile,
    })
}

/// The rows that an aggregation adds up.
#[derive(Debug, Clone, Copy)]
pub(in crate::codegen) struct SinkRows {
    /// They are those of a bare scan.
    pub(in crate::codegen) in_place: bool,
    /// Bytes of the strings that filters have read of each row of the table.
    pub(in crate::codegen) text_bytes: u64,
    /// They come in the order of a table, each once, and nothing else is added to the groups.
    pub(in crate::codegen) in_one_pass: bool,
}

/// Cells that a row of a group reads and seldom writes.
fn tests(aggregates: &AccumulatorPlan) -> u32 {
    aggregates.accumulators.iter().map(Accumulator::tests).sum()
}

/// The probability that two rows have equal keys, taken to be independent of each other.
fn collisions(emitter: &Emitter<'_>, aggregate: &Aggregate) -> Option<f64> {
    let of = |key: &crate::expr::Expr| {
        let Node::Column(index) = &key.node else {
            return None;
        };
        match &emitter.columns.get(*index)?.shape {
            Shape::Resident(column) => {
                let known = &column.statistics;
                let sampled = known.sketch.as_ref().and_then(|s| s.collisions());
                sampled.or_else(|| Some(1.0 / known.distinct_estimate?.max(1) as f64))
            }
            _ => None,
        }
    };
    aggregate.keys.iter().map(of).product()
}

/// Is one group so much larger than the others that its rows would queue at one place in memory?
fn is_hot(
    (emitter, steps): (&Emitter<'_>, &[EmittedStep]),
    aggregate: &Aggregate,
    groups: u64,
) -> bool {
    /// Two rows are of the same group more often than this: a group has more than 1 % of the rows, or nearly.
    const LEAST: f64 = 5e-5;
    /// … and this much more often than with groups of one size.
    const TIMES: f64 = 4.0;
    // All keys together tell more rows apart than any of them.
    let Some(key) = key_index(aggregate) else {
        return false;
    };
    // Rows that look up the same entry are of the same group.
    let sampled = emitter
        .columns
        .get(looked_up_by(steps, key).unwrap_or(key))
        .and_then(|column| match &column.shape {
            Shape::Resident(column) => column.statistics.sketch.as_ref()?.collisions(),
            _ => None,
        });
    sampled.is_some_and(|together| together > LEAST && together * groups.max(1) as f64 > TIMES)
}

/// The column that rows look the entry up by which has column `index`, if it is one alone.
fn looked_up_by(steps: &[EmittedStep], index: usize) -> Option<usize> {
    steps.iter().find_map(|step| {
        let EmittedStep::Probe(probe) = step else {
            return None;
        };
        let (first, columns) = probe.payload;
        match probe.columns.as_slice() {
            [by] if (first..first + columns).contains(&index) => Some(*by),
            _ => None,
        }
    })
}

/// Are rows grouped by what is computed of their columns, with many rows a group? A function leads many values to few, some of which
/// have far more rows than others (addresses to their hosts), and nobody has counted them: 100 million rows of 79 thousand hosts took
/// 12.6 ms on an H200, and 8.5 by a table of the block in front.
fn may_be_hot(aggregate: &Aggregate, rows: u64, groups: u64) -> bool {
    const ROWS_A_GROUP: u64 = 256;
    let computed = |key: &Expr| !matches!(key.node, Node::Column(_) | Node::Literal(_));
    aggregate.keys.iter().any(computed) && rows / groups.max(1) >= ROWS_A_GROUP
}

/// The column that rows are grouped by, if it is one alone.
fn key_column<'a>(emitter: &'a Emitter<'_>, aggregate: &Aggregate) -> Option<&'a ScopeColumn> {
    emitter.columns.get(key_index(aggregate)?)
}

/// Its number.
fn key_index(aggregate: &Aggregate) -> Option<usize> {
    match aggregate.keys.as_slice() {
        [
            Expr {
                node: Node::Column(index),
                ..
            },
        ] => Some(*index),
        _ => None,
    }
}

/// Does each group's rows' key come from a column in order? Then they follow each other.
fn clustered(key: &ScopeColumn) -> bool {
    matches!(&key.shape, Shape::Resident(column) if column.statistics.sorted)
}

/// Do rows in the order of the scanned table have all of a group one behind the other? Only where the key is a column of that
/// table itself, is in order and has no NULL, whose rows may lie anywhere.
fn in_order(key: &ScopeColumn) -> bool {
    clustered(key) && !key.nullable && matches!(key.access, Access::Scan)
}

/// Are rows pairs, those of one probing row one behind the other, and about as many groups as probing rows wanted, by columns
/// of these alone? Then the rows of a group follow each other, however many a frequent key has.
fn of_one_match_row(
    context: &Context<'_>,
    aggregate: &Aggregate,
    source: &Source,
    into: ResultId,
) -> bool {
    let Source::Pairs(matches) = source else {
        return false;
    };
    let Some(ResultLayout::Matches {
        columns,
        joined: None,
        ..
    }) = context.known(*matches).ok().map(|known| &known.layout)
    else {
        return false;
    };
    let of_row = |key: &Expr| matches!(key.node, Node::Column(index) if index < columns.len());
    let results = &context.graph.results;
    aggregate.keys.iter().all(of_row)
        && results[into].estimate.saturating_mul(2) >= results[*matches].estimate
}
