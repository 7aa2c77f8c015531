//! Aggregations by keys of any width whose rows are written down: with a hash of their keys, by which they can be done in parts,
//! and with the keys themselves, which a hash table of the groups of a part compares.

use super::sinks::read_by_call;
use super::stages::{Ending, begin};
use super::written_rows::{WrittenRows, collected_rows, separated};
use crate::codegen::group::distinct::DistinctSets;
use crate::codegen::group::sizes;
use crate::codegen::ir::accumulator::EVERY_ROW;
use crate::codegen::ir::aggregates::AccumulatorPlan;
use crate::codegen::ir::context::{Context, Known};
use crate::codegen::ir::pipeline::{EmittedPipeline, EmittedSink};
use crate::codegen::ir::results::{Borrowed, CollectedLayout, GroupsLayout, ResultLayout};
use crate::codegen::ir::scope::columns_of;
use crate::codegen::key::codes::{code, group_keys, pack_keys, packed_words};
use crate::codegen::key::zero_copy;
use crate::codegen::value::scalar::Emitter;
use crate::error::Result;
use crate::graph::{Pipeline, ResultId};
use crate::pipeline::{Aggregate, GroupPlacement, GroupProfile, Regroup};

/// Bytes of the hash of a row's keys.
const HASH_BYTES: u32 = 8;

/// The pipeline that writes the rows down, and the one that enters them into a hash table.
pub(in crate::codegen) fn hash_tables(
    context: &mut Context<'_>,
    pipeline: &Pipeline,
    (into, aggregate): (ResultId, &Aggregate),
    (profile, groups): (GroupProfile, u64),
) -> Result<(EmittedPipeline, EmittedPipeline)> {
    // The rows.
    let mut begun = begin(context, pipeline, Ending::Written)?;
    let (columns, keys, calls) = separated(aggregate, true, &begun.scope);
    let bound = begun.bound;
    let mut emitter = Emitter::new(&begun.scope, &mut begun.state);
    let mut plans = group_keys(&mut emitter, &aggregate.keys)?;
    let key_words = pack_keys(&mut plans);
    let codes: Vec<String> = plans.iter().map(code).collect();
    let words = packed_words(&plans, &codes, key_words);
    let scan = zero_copy::bare_scan(begun.source_rows, begun.steps.len())
        .filter(|_| zero_copy::lends(&begun.scope));
    let mut read = columns_of(&aggregate.keys);
    let kept = zero_copy::keep(&mut emitter, &columns, scan.is_some())?;
    read.extend(kept.read);
    let mut lines = std::mem::take(&mut emitter.lines);
    lines.push(format!(
        "const u64 all_keys[{key_words}] = {{{}}};",
        words.join(", ")
    ));
    let collected = CollectedLayout {
        columns: kept.layouts,
        borrowed: scan.map(|scan| Borrowed {
            scan,
            key: None,
            columns: kept.borrowed,
        }),
        key_bytes: HASH_BYTES,
        key_bits: HASH_BYTES * 8,
        how: Regroup::Table,
        bits: 0,
        slots: 0,
    };
    let written = WrittenRows {
        groups: into,
        key: format!("hash_words<{key_words}>(all_keys)"),
        layout: &collected,
        values: kept.values,
    };
    let (rows, writer) = written.ended(context, begun, lines, read);

    // The groups.
    let mut begun = collected_rows(context, rows, &collected, bound);
    let mut emitter = Emitter::new(&begun.scope, &mut begun.state);
    let mut plans = group_keys(&mut emitter, &keys)?;
    let key_words = pack_keys(&mut plans);
    let mut aggregates = AccumulatorPlan {
        grouped: true,
        ..AccumulatorPlan::default()
    };
    aggregates.seen(EVERY_ROW);
    let mut sets = DistinctSets::new(into, &plans);
    for call in &calls {
        aggregates.call(&mut emitter, call, bound, begun.rows_a_thread, &mut sets)?;
    }
    let lines = std::mem::take(&mut emitter.lines);
    let read = columns_of(keys.iter().chain(calls.iter().flat_map(read_by_call)));
    let slots = groups
        .saturating_mul(2)
        .clamp(1, 1 << 40)
        .next_power_of_two();
    let placement = GroupPlacement::GlobalHash { capacity: slots };
    let mut layout = GroupsLayout::new(
        plans,
        key_words,
        &aggregates,
        (placement, slots),
        sets.words,
    );
    layout.collected = Some(rows);
    context.known[into] = Some(Known {
        layout: ResultLayout::Groups(layout.clone()),
        bound: profile.max_groups.max(1),
    });
    let sink = EmittedSink::Aggregate {
        into,
        layout: Box::new(layout),
        profile,
        clustered: false,
        key_lines: 0,
        kept: None,
    };
    let threads = sizes::block_threads(&sink, context.device);
    Ok((writer, begun.ended(sink, lines, read, threads)))
}
