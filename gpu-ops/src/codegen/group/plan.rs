//! What the sinks of a pipeline fill: keys, placements and the layouts of results.

use super::distinct::DistinctSets;
use super::sizes;
use crate::codegen::ir::accumulator::{Accumulator, EVERY_ROW};
use crate::codegen::ir::aggregates::{AccumulatorPlan, Existence};
use crate::codegen::ir::context::{Context, Known};
use crate::codegen::ir::layout::{ColumnLayout, layout_of};
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::results::{Borrowed, GroupsLayout, IndexLayout, JoinKeys, ResultLayout};
use crate::codegen::ir::scope::{Shape, columns_of};
use crate::codegen::ir::value::Value;
use crate::codegen::key::codes::{
    dense_code, dense_strides, group_keys, key_plan, pack_keys, packed_width, packed_words,
};
use crate::codegen::key::zero_copy;
use crate::codegen::value::scalar::Emitter;
use crate::device::DeviceInfo;
use crate::error::{GpuError, Result};
use crate::expr::{Expr, Node};
use crate::graph::{Build, IndexKind, IndexProfile, ResultId, Source};
use crate::pipeline::{Aggregate, GroupPlacement, GroupProfile, rows_queue};

pub(in crate::codegen) fn aggregate_sink(
    context: &mut Context<'_>,
    emitter: &mut Emitter<'_>,
    into: ResultId,
    aggregate: &Aggregate,
    device: &DeviceInfo,
    source: &Source,
    (bound, rows_a_thread, in_place): (u64, u64, bool),
) -> Result<EmittedSink> {
    let mut keys = group_keys(emitter, &aggregate.keys)?;
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
    let profile = GroupProfile {
        rows: bound,
        arriving: context.graph.results[into].input.clamp(1, bound.max(1)),
        dense_domain,
        max_groups: u64::try_from(domain.min(u128::from(bound))).unwrap_or(bound),
        estimate: context.graph.results[into].estimate.max(1),
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
        in_place,
        distinct: !sets.words.is_empty(),
        clustered: clustered(emitter, aggregate),
        collisions: collisions(emitter, aggregate),
        hot: is_hot(emitter, aggregate, context.graph.results[into].estimate),
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
    let mut layout =
        GroupsLayout::new(keys, key_words, &aggregates, (placement, slots), sets.words);
    // Rows in the order of the key are added up in runs, which do not queue.
    let clustered = profile.clustered || of_one_match_row(context, aggregate, source, into);
    if !clustered {
        let groups = profile.estimate.min(profile.max_groups);
        // Rows of few groups queue as those of a hot one do.
        let queues = profile.hot || rows_queue(profile.arriving, bound, groups);
        layout.front = sizes::front_slots(&layout, device, queues, groups);
    }
    Ok(EmittedSink::Aggregate {
        into,
        layout: Box::new(layout),
        clustered,
        profile,
    })
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
fn is_hot(emitter: &Emitter<'_>, aggregate: &Aggregate, groups: u64) -> bool {
    /// Two rows are of the same group more often than this: a group has more than 1 % of the rows, or nearly.
    const LEAST: f64 = 5e-5;
    /// … and this much more often than with groups of one size.
    const TIMES: f64 = 4.0;
    let collisions = |key: &crate::expr::Expr| {
        let Node::Column(index) = &key.node else {
            return None;
        };
        match emitter.columns.get(*index).map(|c| &c.shape) {
            Some(Shape::Resident(column)) => column.statistics.sketch.as_ref()?.collisions(),
            _ => None,
        }
    };
    // All keys together tell more rows apart than any of them.
    let all: Option<Vec<f64>> = aggregate.keys.iter().map(collisions).collect();
    let together = match all {
        Some(all) if all.len() == 1 => all[0],
        _ => return false,
    };
    together > LEAST && together * groups.max(1) as f64 > TIMES
}

/// Does each group's rows' key come from a column in order? Then they follow each other.
fn clustered(emitter: &Emitter<'_>, aggregate: &Aggregate) -> bool {
    let [key] = aggregate.keys.as_slice() else {
        return false;
    };
    let Node::Column(index) = &key.node else {
        return false;
    };
    matches!(
        emitter.columns.get(*index).map(|c| &c.shape),
        Some(Shape::Resident(column)) if column.statistics.sorted
    )
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

/// The sink of a build, and the scope columns that its statements read; `scan`: the rows are those of a bare scan.
pub(in crate::codegen) fn build_sink(
    context: &mut Context<'_>,
    emitter: &mut Emitter<'_>,
    into: ResultId,
    build: &Build,
    bound: u64,
    scan: Option<usize>,
) -> Result<(EmittedSink, Vec<usize>)> {
    let mut keys = Vec::new();
    let mut needed = Vec::new();
    for key in &build.keys {
        let value = emitter.emit(key)?;
        if !build.null_equal {
            needed.extend(value.valid.clone());
        }
        keys.push(key_plan(emitter, value, &key.data_type, build.null_equal)?);
    }
    needed.dedup();
    let has_key = (!needed.is_empty()).then(|| emitter.bind_bool(needed.join(" && ")));
    let keep_without_key = build.track_matches && has_key.is_some();
    let domain = dense_strides(&mut keys).filter(|_| !keys.is_empty() && !keep_without_key);
    let key_words = if keys.is_empty() {
        0
    } else {
        pack_keys(&mut keys)
    };
    let join_keys = build.join.map(|join| {
        let bits: u32 = keys.iter().map(|key| key.bits).sum();
        // Codes below the two that stand for rows without a key that could match; of several words the first has
        // a bit to spare.
        let narrow = match keys.as_slice() {
            [key] => key.domain < u128::from(u32::MAX),
            _ => bits < 32,
        };
        let width = match key_words {
            1 if narrow => Some(4),
            1 => Some(8),
            2 => Some(16),
            _ => None,
        };
        let bits = if key_words == 2 { 127 } else { bits };
        width.map(|width| JoinKeys { join, width, bits })
    });
    let raw: Vec<String> = keys.iter().map(crate::codegen::key::codes::code).collect();
    // Rows without a key are left out unless somebody asks for them.
    let all = has_key.is_none() || keep_without_key;
    let scan = scan.filter(|_| all && matches!(join_keys, Some(Some(_))));
    let key = match join_keys {
        Some(Some(join)) if has_key.is_none() && scan.is_some() => {
            zero_copy::lent_key(emitter.columns, &build.keys, &keys, join.width, None)
        }
        _ => None,
    };
    let mut read = columns_of(&build.keys);
    if key.is_some() {
        emitter.forget();
        read.clear();
    }
    let kept = zero_copy::keep(emitter, &build.payload, scan.is_some())?;
    read.extend(kept.read);
    let (values, columns) = (kept.values, kept.layouts);
    let borrowed = scan.map(|scan| Borrowed {
        scan,
        key,
        columns: kept.borrowed,
    });
    let existence = build.existence && !build.track_matches;
    let spec = &context.graph.results[into];
    let profile = IndexProfile {
        domain,
        max_entries: bound,
        estimate: spec.estimate,
        payload_bytes: columns
            .iter()
            .map(|c| usize::from(c.width) + usize::from(c.nullable))
            .sum(),
        key_words,
        unique: build.unique,
        existence,
        prefer_hash: build.prefer_hash,
    };
    let (kind, mut reason) = if let Some(Some(keys)) = join_keys {
        (IndexKind::Materialized(keys.join), String::new())
    } else if keys.is_empty() {
        (IndexKind::Hash, "no keys: every entry matches".to_string())
    } else {
        let mut choice = context.policy.place_index(&profile, context.device);
        if let Some(join) = build.join {
            choice.reason += &format!("; keys of {key_words} words are too wide for {join}");
        }
        if choice.kind == IndexKind::Perfect && domain.is_none() {
            (IndexKind::Hash, "keys without a moderate range".to_string())
        } else {
            (choice.kind, choice.reason)
        }
    };
    if !build.reason.is_empty() {
        if !reason.is_empty() {
            reason += "; ";
        }
        reason += &build.reason;
    }
    context
        .choices
        .push(format!("index {} is {kind}: {reason}", spec.name));
    let unique = build.unique && !keys.is_empty();
    let codes = match kind {
        _ if keys.is_empty() => vec![],
        IndexKind::Perfect => vec![dense_code(&keys, &raw)],
        IndexKind::Hash | IndexKind::Materialized(_) => packed_words(&keys, &raw, key_words),
    };
    let key_words = match kind {
        _ if keys.is_empty() => 0,
        IndexKind::Perfect => 1,
        IndexKind::Hash | IndexKind::Materialized(_) => key_words,
    };
    let layout = IndexLayout {
        kind,
        join_keys: match kind {
            IndexKind::Materialized(_) => join_keys.flatten(),
            _ => None,
        },
        domain: if kind == IndexKind::Perfect {
            domain.unwrap_or(0)
        } else {
            0
        },
        key_words,
        keys,
        unique,
        null_equal: build.null_equal,
        existence,
        track_matches: build.track_matches,
        columns: if existence { vec![] } else { columns },
        borrowed,
    };
    let sink = EmittedSink::Build {
        into,
        layout,
        has_key,
        codes,
        values: if existence { vec![] } else { values },
        keep_without_key,
    };
    Ok((sink, read))
}

/// Record the layout of what the sink fills; rows that several pipelines append are settled by the last.
pub(in crate::codegen) fn settle(
    context: &mut Context<'_>,
    sink: &EmittedSink,
    bound: u64,
) -> Result<()> {
    let graph = context.graph;
    if let Some((into, borrowed)) = sink.borrowed() {
        let reason = borrowed.reason(&graph.results[into].name);
        context.choices.push(reason);
    }
    let types = |id: ResultId| graph.results[id].kind.columns();
    let layouts = |id: ResultId, values: &[Value]| -> Vec<ColumnLayout> {
        values
            .iter()
            .zip(types(id))
            .map(|(value, column)| layout_of(value, &column.data_type))
            .collect()
    };
    match sink {
        EmittedSink::Rows { into, values, .. } => {
            let mut new = layouts(*into, values);
            let mut total = bound;
            if let Some(Known {
                layout: ResultLayout::Rows(old),
                bound,
            }) = &context.known[*into]
            {
                new = old
                    .iter()
                    .zip(new)
                    .map(|(a, b)| crate::codegen::pipeline::union::layouts(a, &b))
                    .collect::<Result<_>>()?;
                total = total.saturating_add(*bound);
            }
            context.known[*into] = Some(Known {
                layout: ResultLayout::Rows(new),
                bound: total,
            });
        }
        EmittedSink::Matches {
            into,
            joined,
            columns,
            borrowed,
            twins,
            ..
        } => {
            let index = graph
                .probed_by(*into)
                .map(|probe| probe.index)
                .ok_or_else(|| GpuError::Internal("matches without a probe".into()))?;
            context.known[*into] = Some(Known {
                layout: ResultLayout::Matches {
                    columns: columns.clone(),
                    index,
                    joined: *joined,
                    borrowed: borrowed.clone(),
                    twins: twins.clone(),
                },
                bound,
            });
        }
        EmittedSink::Aggregate {
            into,
            layout,
            profile,
            ..
        } => {
            context.known[*into] = Some(Known {
                bound: if layout.keys.is_empty() {
                    1
                } else {
                    profile.max_groups.max(1)
                },
                layout: ResultLayout::Groups(layout.as_ref().clone()),
            });
        }
        EmittedSink::Build { into, layout, .. } => {
            context.known[*into] = Some(Known {
                layout: ResultLayout::Index(layout.clone()),
                bound,
            });
        }
        EmittedSink::Collect { .. } | EmittedSink::Discard => {}
    }
    Ok(())
}
