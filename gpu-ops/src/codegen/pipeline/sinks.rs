//! A whole pipeline: its stages, and then its sink.

use super::settle::settle;
use super::stages::{Ending, begin, in_tile};
use super::thread_rows::{held_rows, short_rows};
use crate::codegen::group::placement::{SinkRows, aggregate_sink};
use crate::codegen::group::sizes;
use crate::codegen::ir::context::Context;
use crate::codegen::ir::layout::layout_of;
use crate::codegen::ir::pipeline::{EmittedPipeline, EmittedSink};
use crate::codegen::ir::scope::{ScopeColumn, Shape, columns_of};
use crate::codegen::ir::state::MOST_SEARCHES;
use crate::codegen::ir::value::Value;
use crate::codegen::join::index::build_sink;
use crate::codegen::join::matches::matches_sink;
use crate::codegen::kernel::writer::{BLOCK_THREADS, search_bytes};
use crate::codegen::key::zero_copy;
use crate::codegen::value::scalar::Emitter;
use crate::column::Encoding;
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, Pipeline, ResultId, Sink, Source, Stage, Step};
use crate::pipeline::AggregateCall;

/// Threads of a block of a tree-shaped kernel: four warps, as in the paper.
const TREE_THREADS: u32 = 128;

/// Shared memory that its groups may take at most.
const TREE_GROUP_BYTES: usize = 24 << 10;

/// The same of groups that rows come to from the queues of warps.
const REFILLED_GROUP_BYTES: u64 = 48 << 10;

/// Threads of a block in a tile at most.
const LARGEST_BLOCK: u32 = 4 * BLOCK_THREADS;

/// Rows of a thread that are written as vectors have this many bytes at most: they wait in registers.
const IN_PLACE_BYTES: u32 = 256;

/// Statements that put a value into the set of a DISTINCT call.
const SET_STATEMENTS: usize = 24;

/// Emit one pipeline.
pub(in crate::codegen) fn pipeline(
    context: &mut Context<'_>,
    pipeline: &Pipeline,
) -> Result<EmittedPipeline> {
    let mut begun = begin(context, pipeline, Ending::Sink)?;
    let bound = begun.bound;
    let (state, scope, steps) = (&mut begun.state, &mut begun.scope, &mut begun.steps);
    let mut sink_lines = Vec::new();
    let mut sink_columns = Vec::new();
    // Queues take shared memory as well: smaller blocks, and less for groups.
    let tree = begun.tree.is_some();
    let mut device = context.device.clone();
    if tree {
        device.shared_memory_per_block = device.shared_memory_per_block.min(TREE_GROUP_BYTES);
    }
    let in_tile = in_tile(pipeline);
    // Warps that have gathered rows search the strings of these alone.
    let searches = |refill: Option<usize>| (in_tile && refill.is_none()).then(Vec::new);
    if in_tile && scope.iter().any(lies_as_bytes) {
        let searches = MOST_SEARCHES * search_bytes(LARGEST_BLOCK);
        device.shared_memory_per_block = device.shared_memory_per_block.saturating_sub(searches);
    }
    let mut block_threads = if tree { TREE_THREADS } else { BLOCK_THREADS };
    let mut sink = match &pipeline.sink {
        Sink::Rows { into, columns } => {
            let enough = context.graph.results[*into].enough;
            let enough = enough
                .and_then(|rows| i64::try_from(rows).ok())
                .map(|rows| format!("(u64){}", state.arguments.literal(rows.into(), false)));
            state.searches = searches(begun.refill);
            let mut emitter = Emitter::new(scope, state);
            let values = emit_all(&mut emitter, columns)?;
            sink_lines = std::mem::take(&mut emitter.lines);
            sink_columns = columns_of(columns.iter());
            // Each value is read or made, and written with its validity.
            let statements = sink_lines.len() + 2 * values.len();
            if begun.refill.is_none() {
                begun.thread_rows = short_rows(statements, begun.thread_rows);
            }
            let widths = values.iter().zip(columns);
            let bytes = widths.map(|(v, c)| u32::from(layout_of(v, &c.data_type).width));
            let few = bytes.sum::<u32>() * begun.thread_rows <= IN_PLACE_BYTES;
            EmittedSink::Rows {
                into: *into,
                values,
                in_place: matches!(pipeline.source, Source::Picked { .. })
                    || few
                        && steps.is_empty()
                        && enough.is_none()
                        && keeps_all(context.graph, pipeline, *into),
                enough,
            }
        }
        Sink::Matches {
            into,
            probe,
            columns,
        } => {
            let (sink, statements) = matches_sink(context, &mut begun, *into, probe, columns)?;
            (sink_lines, sink_columns) = (statements.lines, statements.columns);
            sink
        }
        Sink::Aggregate { into, aggregate } => {
            state.searches = searches(begun.refill);
            let mut emitter = Emitter::new(scope, state);
            let rows = SinkRows {
                in_place: zero_copy::bare_scan(begun.source_rows, steps.len())
                    .is_some_and(|_| zero_copy::lends(scope)),
                text_bytes: filtered_text(pipeline, scope),
                in_one_pass: !tree && in_one_pass(context.graph, pipeline, *into),
            };
            let sink = aggregate_sink(
                context,
                &mut emitter,
                *into,
                aggregate,
                &device,
                (&pipeline.source, steps.as_slice()),
                (bound, begun.rows_a_thread, rows),
            )?;
            sink_lines = std::mem::take(&mut emitter.lines);
            if !tree {
                block_threads = sizes::block_threads(&sink, context.device);
            }
            if begun.state.searched > 0 && block_threads > BLOCK_THREADS {
                // What a search has of a tile is of so many rows at most.
                begun.thread_rows = 1;
            }
            sink_columns = columns_of(
                aggregate
                    .keys
                    .iter()
                    .chain(aggregate.calls.iter().flat_map(read_by_call)),
            );
            let sets = aggregate.calls.iter().filter(|call| call.distinct).count();
            let kept = match &sink {
                EmittedSink::Aggregate { layout, .. } => 4 * layout.aggregates.accumulators.len(),
                EmittedSink::Collect { values, .. } => 2 * values.len(),
                _ => 0,
            };
            let statements = sink_lines.len() + kept + SET_STATEMENTS * sets;
            if let EmittedSink::Aggregate {
                layout, clustered, ..
            } = &sink
                && (*clustered || sizes::shared_states(layout) > REFILLED_GROUP_BYTES)
            {
                // Neighbouring rows are added up where they are, and large states leave no room for a queue.
                begun.refill = None;
            }
            if begun.refill.is_none() {
                begun.thread_rows = held_rows(scope, &sink_columns, begun.thread_rows);
                begun.thread_rows = short_rows(statements, begun.thread_rows);
            }
            sink
        }
        Sink::Build { into, build } => {
            let mut emitter = Emitter::new(scope, state);
            let scan = zero_copy::bare_scan(begun.source_rows, steps.len())
                .filter(|_| zero_copy::lends(scope));
            let (sink, read) = build_sink(context, &mut emitter, *into, build, bound, scan)?;
            sink_lines = std::mem::take(&mut emitter.lines);
            sink_columns = read;
            sink
        }
        Sink::Discard => EmittedSink::Discard,
    };
    let sink_searches = begun.state.searches.take().unwrap_or_default();
    if !sink_searches.is_empty() {
        // As in front of filters that walk strings.
        begun.thread_rows = 1;
    }
    let tile_rows = u64::from(begun.thread_rows) * u64::from(block_threads);
    sizes::place_runs(&mut sink, tile_rows);
    settle(context, &sink, bound)?;
    let ended = begun.ended(sink, sink_lines, sink_columns, block_threads);
    Ok(EmittedPipeline {
        sink_searches,
        ..ended
    })
}

/// Is this a column whose strings a block may search?
fn lies_as_bytes(column: &ScopeColumn) -> bool {
    let Shape::Resident(resident) = &column.shape else {
        return false;
    };
    matches!(resident.encoding, Encoding::Bytes { .. })
}

/// Is a pipeline over a table the only one that adds to the groups `into`, once over all rows in their order?
fn in_one_pass(graph: &Graph, pipeline: &Pipeline, into: ResultId) -> bool {
    let fills = |step: &&Step| matches!(step, Step::Pipeline(Pipeline { sink: Sink::Aggregate { into: of, .. }, .. }) if *of == into);
    matches!(pipeline.source, Source::Scan(_))
        && !graph.parts.allowed()
        && graph.group_room.is_none()
        && graph.steps.iter().filter(fills).count() == 1
}

/// Is a pipeline without steps the only one that fills `into`, from a source that leaves out none of its rows?
fn keeps_all(graph: &Graph, pipeline: &Pipeline, into: ResultId) -> bool {
    let fills = |step: &&Step| matches!(step, Step::Pipeline(Pipeline { sink: Sink::Rows { into: of, .. }, .. }) if *of == into);
    let whole = match pipeline.source {
        Source::Scan(_) | Source::Rows(_) => true,
        Source::Pairs(_) => !graph.parts.allowed(),
        _ => false,
    };
    whole && graph.steps.iter().filter(fills).count() == 1
}

/// The expressions of a call.
pub(in crate::codegen) fn read_by_call(call: &AggregateCall) -> impl Iterator<Item = &Expr> {
    call.argument.iter().chain(&call.filter)
}

pub(in crate::codegen) fn emit_all(
    emitter: &mut Emitter<'_>,
    columns: &[Expr],
) -> Result<Vec<Value>> {
    columns.iter().map(|column| emitter.emit(column)).collect()
}

/// Bytes of the strings that the filters of a pipeline read of each row of its table, with where they begin.
fn filtered_text(pipeline: &Pipeline, scope: &[ScopeColumn]) -> u64 {
    /// Bytes of an offset.
    const OFFSET: u64 = 8;
    let filters = pipeline.stages.iter().filter_map(|stage| match stage {
        Stage::Filter(conjuncts) => Some(conjuncts),
        _ => None,
    });
    let mut read = columns_of(filters.flatten());
    read.sort_unstable();
    read.dedup();
    let bytes = |index: usize| match &scope.get(index)?.shape {
        Shape::Resident(column) if matches!(column.encoding, Encoding::Bytes { .. }) => {
            let each = column.data.len() as u64 / (column.rows as u64).max(1);
            Some(each + OFFSET)
        }
        _ => None,
    };
    read.into_iter().filter_map(bytes).sum()
}
