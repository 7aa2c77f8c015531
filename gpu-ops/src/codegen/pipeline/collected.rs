//! Aggregations whose rows are written down and brought together by key first: the pipeline that writes them, and the one
//! that adds them up.

use arrow::datatypes::DataType;

use super::collected_by_hash::hash_tables;
use super::sinks::read_by_call;
use super::stages::{Ending, begin};
use super::thread_rows::rows_in_partitions;
use super::written_rows::{WrittenRows, collected_rows, separated};
use crate::codegen::group::distinct::DistinctSets;
use crate::codegen::group::sizes;
use crate::codegen::ir::accumulator::EVERY_ROW;
use crate::codegen::ir::aggregates::AccumulatorPlan;
use crate::codegen::ir::context::{Context, Known};
use crate::codegen::ir::pipeline::{EmittedPipeline, EmittedSink};
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::results::{
    Borrowed, CollectedLayout, GroupsLayout, RegroupedLayout, ResultLayout,
};
use crate::codegen::ir::scope::columns_of;
use crate::codegen::key::codes::{
    code, group_keys, key_plan, pack_keys, packed_bits, packed_key, packed_width, packed_words,
};
use crate::codegen::key::zero_copy;
use crate::codegen::value::scalar::Emitter;
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::graph::{Pipeline, Sink};
use crate::pipeline::{GroupPlacement, Regroup};

/// Slots of a table that numbers groups at least.
const LEAST_SLOTS: u64 = 1 << 10;
/// Has the policy asked for this?
pub(in crate::codegen) fn is_wanted(plan: &EmittedPipeline) -> bool {
    matches!(
        &plan.sink,
        EmittedSink::Aggregate { layout, .. }
            if matches!(layout.placement, GroupPlacement::Regrouped { how, .. } if how != Regroup::Runs)
    )
}

/// The two pipelines of an aggregation that the policy wants done so.
pub(in crate::codegen) fn pipelines(
    context: &mut Context<'_>,
    pipeline: &Pipeline,
    plan: EmittedPipeline,
) -> Result<(EmittedPipeline, EmittedPipeline)> {
    let Sink::Aggregate { into, aggregate } = &pipeline.sink else {
        return Err(GpuError::Internal(
            "rows collected for no aggregation".into(),
        ));
    };
    let EmittedSink::Aggregate {
        layout, profile, ..
    } = plan.sink
    else {
        return Err(GpuError::Internal("the sink is no aggregation".into()));
    };
    let GroupPlacement::Regrouped { how, bits, groups } = layout.placement else {
        return Err(GpuError::Internal("rows are not to be collected".into()));
    };
    if how == Regroup::Table {
        return hash_tables(context, pipeline, (*into, aggregate), (profile, groups));
    }
    // The rows.
    let mut begun = begin(context, pipeline, Ending::Written)?;
    let (columns, _, calls) = separated(aggregate, false, &begun.scope);
    let bound = begun.bound;
    let mut emitter = Emitter::new(&begun.scope, &mut begun.state);
    let mut keys = group_keys(&mut emitter, &aggregate.keys)?;
    let key_words = pack_keys(&mut keys);
    let (Some(key_bytes), key_bits) = (
        packed_width(&keys, key_words),
        packed_bits(&keys, key_words),
    ) else {
        return unsupported("keys of more than 16 bytes cannot be partitioned or sorted");
    };
    let codes: Vec<String> = keys.iter().map(code).collect();
    let words = packed_words(&keys, &codes, key_words);
    let scan = zero_copy::bare_scan(begun.source_rows, begun.steps.len())
        .filter(|_| zero_copy::lends(&begun.scope));
    let key = scan
        .and_then(|_| zero_copy::lent_key(&begun.scope, &aggregate.keys, &keys, key_bytes, None));
    let mut read = columns_of(&aggregate.keys);
    if key.is_some() {
        emitter.forget();
        read.clear();
    }
    let kept = zero_copy::keep(&mut emitter, &columns, scan.is_some())?;
    read.extend(kept.read);
    let lines = std::mem::take(&mut emitter.lines);
    let collected = CollectedLayout {
        columns: kept.layouts,
        borrowed: scan.map(|scan| Borrowed {
            scan,
            key,
            columns: kept.borrowed,
        }),
        key_bytes,
        key_bits,
        how,
        bits,
        slots: groups
            .saturating_mul(2)
            .clamp(LEAST_SLOTS, 1 << 40)
            .next_power_of_two(),
    };
    let written = WrittenRows {
        groups: *into,
        key: packed_key(&words, collected.key_type()),
        layout: &collected,
        values: kept.values,
    };
    let (rows, writer) = written.ended(context, begun, lines, read);

    // The groups.
    let regrouped = RegroupedLayout {
        rows: Some(rows),
        how,
        key_bytes,
        bits,
        window: 0,
        tile_rows: 0,
    };
    let mut begun = collected_rows(context, rows, &collected, bound);
    let key_column = begun.scope.len() - 1;
    let mut emitter = Emitter::new(&begun.scope, &mut begun.state);
    let mut aggregates = AccumulatorPlan {
        grouped: true,
        ..AccumulatorPlan::default()
    };
    aggregates.seen(EVERY_ROW);
    // A group's packed key stands for all of its keys.
    let distinct = calls.iter().any(|c| c.distinct);
    let group = if distinct {
        let value = emitter.emit(&Expr::column(key_column, DataType::Null, false))?;
        vec![key_plan(&mut emitter, value, &DataType::Null, false)?]
    } else {
        vec![]
    };
    let mut sets = DistinctSets::new(*into, &group);
    for call in &calls {
        aggregates.call(&mut emitter, call, bound, begun.rows_a_thread, &mut sets)?;
    }
    let lines = std::mem::take(&mut emitter.lines);
    let mut read = columns_of(calls.iter().flat_map(read_by_call));
    if distinct || how.partitions() {
        read.push(key_column);
    }
    let mut layout = GroupsLayout::regrouped(
        keys,
        key_words,
        &aggregates,
        (layout.placement, groups),
        regrouped,
        sets.words,
    );
    let threads = sizes::place_regrouped(&mut layout, context.device)?;
    if how.partitions() {
        let rows = profile.arriving.max(1) >> bits;
        begun.thread_rows = rows_in_partitions(rows, threads, begun.thread_rows);
    }
    let bound = profile.max_groups.max(1);
    context.known[*into] = Some(Known {
        layout: ResultLayout::Groups(layout.clone()),
        bound,
    });
    let sink = EmittedSink::Aggregate {
        into: *into,
        layout: Box::new(layout),
        profile,
        clustered: how.sorts_keys() || how == Regroup::SortNumbers,
        key_lines: 0,
        kept: None,
    };
    Ok((writer, begun.ended(sink, lines, read, threads)))
}
