//! A pipeline as statements: what each step computes, before any text of a kernel is written.
//!
//! Emission knows values, ranges and encodings; it asks the policy which data structure stands behind a
//! build or an aggregation, and it settles the layouts of results. [`crate::codegen::kernel::writer`] turns the outcome
//! into CUDA C++.

use super::sources;
use super::thread_rows::{held_rows, rows_a_thread};
use crate::codegen::group::plan::{aggregate_sink, build_sink, settle};
use crate::codegen::group::sizes;
use crate::codegen::ir::context::Context;
use crate::codegen::ir::layout::layout_of;
use crate::codegen::ir::pipeline::{
    Begun, EmittedPipeline, EmittedProbe, EmittedSink, EmittedStep, Test,
};
use crate::codegen::ir::results::{Borrowed, JoinedMatches, ResultLayout};
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape, columns_of};
use crate::codegen::ir::state::KernelState;
use crate::codegen::ir::value::{CType, Value};
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::codegen::key::codes::{dense_code, packed_words, probe_key};
use crate::codegen::key::zero_copy;
use crate::codegen::value::scalar::Emitter;
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::graph::{
    Graph, IndexKind, Pipeline, Probe, ProbeKind, ResultId, Sink, Source, Stage, Step,
};
use crate::pipeline::AggregateCall;

/// Threads of a block of a tree-shaped kernel: four warps, as in the paper.
const TREE_THREADS: u32 = 128;
/// Shared memory that its groups may take at most.
const TREE_GROUP_BYTES: usize = 24 << 10;

/// Rows of a thread that are written as vectors have this many bytes at most: they wait in registers.
const IN_PLACE_BYTES: u32 = 256;

/// Emit the source and the stages of a pipeline.
pub(in crate::codegen) fn begin(context: &mut Context<'_>, pipeline: &Pipeline) -> Result<Begun> {
    let mut state = KernelState::default();
    state.bases = context.bases.clone();
    let source = sources::source(context, &pipeline.source, &mut state)?;
    let mut scope = source.scope;
    let mut steps = Vec::new();
    let mut probes = 0;
    let mut loops = false;
    let mut bound = source.bound;
    let mut tree = None;
    for stage in &pipeline.stages {
        match stage {
            Stage::Filter(conjuncts) => {
                for group in group_conjuncts(conjuncts) {
                    steps.push(EmittedStep::Filter(test(&group, &scope, &mut state)?));
                }
            }
            Stage::Scalar(result) => scalar(context, *result, &mut scope)?,
            Stage::Mark(index) => steps.push(mark(context, &pipeline.source, *index)?),
            Stage::Probe(probe) => {
                let emitted = emit_probe(context, probe, probes, &mut scope, &mut state)?;
                loops |= emitted.ranges;
                probes += 1;
                steps.push(EmittedStep::Probe(emitted));
            }
            Stage::Expand(probe) => {
                let mut emitted = emit_probe(context, probe, probes, &mut scope, &mut state)?;
                if !matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left)
                    || probe.kind == ProbeKind::Left && !probe.residual.is_empty()
                {
                    return Err(GpuError::Internal("an expansion by this probe".into()));
                }
                emitted.ranges = true;
                probes += 1;
                steps.push(EmittedStep::Expand(emitted));
                let matches = context.known(probe.index)?.bound.max(1);
                bound = bound.saturating_mul(matches);
                tree = Some(context.graph.tree);
            }
        }
    }
    // A loop over matches is unrolled once a row of the thread: one row keeps the kernel small and even.
    // Strings are walked one a thread as well: neighbouring threads then share the sectors they touch.
    // Look-ups wait for memory whether a thread has four rows or eight, and code for four is compiled in half the time.
    // The nodes of a tree come one at a time as well.
    let thread_rows = match (loops || state.text || tree.is_some(), probes > 0) {
        (true, _) => 1,
        (false, true) => source.thread_rows.min(4),
        (false, false) => source.thread_rows,
    };
    Ok(Begun {
        rows_a_thread: match tree {
            // Work moves between threads.
            Some(_) => bound,
            None => rows_a_thread(context, source.bound, thread_rows),
        },
        state,
        source_rows: source.rows,
        source_bound: source.bound,
        bound,
        tree,
        prologue: source.prologue,
        scope,
        steps,
        probes,
        thread_rows,
    })
}

/// Emit one pipeline.
pub(in crate::codegen) fn pipeline(
    context: &mut Context<'_>,
    pipeline: &Pipeline,
) -> Result<EmittedPipeline> {
    let mut begun = begin(context, pipeline)?;
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
    let mut block_threads = if tree { TREE_THREADS } else { BLOCK_THREADS };
    let sink = match &pipeline.sink {
        Sink::Rows { into, columns } => {
            let mut emitter = Emitter::new(scope, state);
            let values = emit_all(&mut emitter, columns)?;
            sink_lines = std::mem::take(&mut emitter.lines);
            sink_columns = columns_of(columns.iter());
            let widths = values.iter().zip(columns);
            let bytes = widths.map(|(v, c)| u32::from(layout_of(v, &c.data_type).width));
            let few = bytes.sum::<u32>() * begun.thread_rows <= IN_PLACE_BYTES;
            EmittedSink::Rows {
                into: *into,
                values,
                in_place: few && steps.is_empty() && keeps_all(context.graph, pipeline, *into),
            }
        }
        Sink::Matches {
            into,
            probe,
            columns,
        } => {
            let kept = scope.len();
            let mut emitted = emit_probe(context, probe, begun.probes, scope, state)?;
            let joined = context
                .index(probe.index)?
                .join_keys
                .map(|keys| JoinedMatches {
                    keys,
                    kind: probe.kind,
                    marks: probe.mark_entries,
                });
            // Whatever the index, pairs are enumerated from ranges.
            emitted.ranges = joined.is_none();
            scope.truncate(kept);
            emitted.payload = (kept, 0);
            let number = emitted.number;
            // Rows that cannot match are left out where they are not wanted.
            let possible = emitted.possible == "true";
            let left_out = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi);
            let mut scan = zero_copy::bare_scan(begun.source_rows, steps.len())
                .filter(|_| zero_copy::lends(scope));
            let (mut key, mut twin_of) = (None, None);
            if let Some(JoinedMatches { keys, .. }) = joined {
                let plans = &context.index(probe.index)?.keys;
                let limit = (!possible).then(|| zero_copy::code_limit(&keys));
                key = zero_copy::lent_key(scope, &probe.keys, plans, keys.width, limit);
                // Rows that cannot match are left out where that is worth a copy of the others.
                let stay = possible
                    || !left_out
                    || key.is_some() && zero_copy::mostly_within(scope, &probe.keys, plans);
                scan = scan.filter(|_| stay);
                if (possible || left_out) && keys.join.transforms() {
                    twin_of = Some((plans, keys.width));
                }
            } else {
                scan = None;
            }
            key = key.filter(|_| scan.is_some());
            let mut emitter = Emitter::new(scope, state);
            let mut kept = zero_copy::keep(&mut emitter, columns, scan.is_some())?;
            sink_lines = std::mem::take(&mut emitter.lines);
            sink_columns = kept.read;
            let twins = match twin_of {
                Some((plans, width)) => {
                    zero_copy::twins(columns, &mut kept.layouts, &probe.keys, plans, width)
                }
                None => vec![],
            };
            let borrowed = scan.map(|scan| Borrowed {
                scan,
                key,
                columns: kept.borrowed,
            });
            if borrowed.as_ref().is_none_or(|b| b.key.is_none()) {
                steps.push(EmittedStep::Probe(emitted));
            }
            EmittedSink::Matches {
                into: *into,
                values: kept.values,
                probe: number,
                kind: probe.kind,
                joined,
                columns: kept.layouts,
                borrowed,
                twins,
            }
        }
        Sink::Aggregate { into, aggregate } => {
            let mut emitter = Emitter::new(scope, state);
            let in_place = zero_copy::bare_scan(begun.source_rows, steps.len())
                .is_some_and(|_| zero_copy::lends(scope));
            let sink = aggregate_sink(
                context,
                &mut emitter,
                *into,
                aggregate,
                &device,
                &pipeline.source,
                (bound, begun.rows_a_thread, in_place),
            )?;
            sink_lines = std::mem::take(&mut emitter.lines);
            if !tree {
                block_threads = sizes::block_threads(&sink, context.device);
            }
            sink_columns = columns_of(
                aggregate
                    .keys
                    .iter()
                    .chain(aggregate.calls.iter().flat_map(read_by_call)),
            );
            begun.thread_rows = held_rows(scope, &sink_columns, begun.thread_rows);
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
    settle(context, &sink, bound)?;
    Ok(begun.ended(sink, sink_lines, sink_columns, block_threads))
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

/// Adjacent conjuncts over the same columns are tested together.
fn group_conjuncts(conjuncts: &[Expr]) -> Vec<Vec<&Expr>> {
    let mut groups: Vec<(Vec<usize>, Vec<&Expr>)> = Vec::new();
    for conjunct in conjuncts {
        let needs = columns_of([conjunct]);
        match groups.last_mut() {
            Some((have, list)) if needs.iter().all(|c| have.contains(c)) => list.push(conjunct),
            _ => groups.push((needs, vec![conjunct])),
        }
    }
    groups.into_iter().map(|(_, list)| list).collect()
}

/// The conjuncts as one test of the row at hand.
fn test(conjuncts: &[&Expr], scope: &[ScopeColumn], state: &mut KernelState) -> Result<Test> {
    let mut emitter = Emitter::new(scope, state);
    let mut tests = Vec::new();
    for conjunct in conjuncts {
        let value = emitter.emit(conjunct)?;
        if value.is_null() {
            tests.push("false".to_string());
            continue;
        }
        if value.c_type != CType::Bool {
            return Err(GpuError::Internal("a filter that is not boolean".into()));
        }
        tests.push(emitter.is_true(&value));
    }
    Ok(Test {
        columns: columns_of(conjuncts.iter().copied()),
        lines: emitter.lines,
        passes: if tests.is_empty() {
            "true".into()
        } else {
            tests.join(" && ")
        },
    })
}

/// Mark the entries of the pairs at hand.
fn mark(context: &Context<'_>, source: &Source, index: ResultId) -> Result<EmittedStep> {
    let probe = match source {
        Source::Pairs(matches) => context.graph.probed_by(*matches),
        _ => None,
    };
    let entries = probe.is_some_and(|probe| probe.index == index && probe.kind.appends_payload());
    match entries {
        true => Ok(EmittedStep::Mark(index)),
        false => Err(GpuError::Internal("marks of other than pairs".into())),
    }
}

/// Append the columns of a scalar subquery's result.
fn scalar(context: &Context<'_>, result: ResultId, scope: &mut Vec<ScopeColumn>) -> Result<()> {
    let ResultLayout::Rows(columns) = &context.known(result)?.layout else {
        return Err(GpuError::Internal(
            "a scalar subquery that is not rows".into(),
        ));
    };
    for (column, layout) in columns.iter().enumerate() {
        scope.push(ScopeColumn {
            shape: Shape::Stored(layout.clone()),
            access: Access::Broadcast { result, column },
            nullable: true,
        });
    }
    Ok(())
}

fn emit_probe(
    context: &Context<'_>,
    probe: &Probe,
    number: usize,
    scope: &mut Vec<ScopeColumn>,
    state: &mut KernelState,
) -> Result<EmittedProbe> {
    let layout = context.index(probe.index)?;
    if layout.keys.len() != probe.keys.len() {
        return Err(GpuError::Internal(
            "a probe with another number of keys than its index".into(),
        ));
    }
    let mut emitter = Emitter::new(scope, state);
    let mut possible = Vec::new();
    let mut known = Vec::new();
    let mut codes = Vec::new();
    for (key, built) in probe.keys.iter().zip(&layout.keys) {
        let value = emitter.emit(key)?;
        known.extend(value.valid.clone());
        let probing = probe_key(&mut emitter, value, built, layout.null_equal)?;
        possible.extend(probing.possible);
        codes.push(probing.code);
    }
    let lines = std::mem::take(&mut emitter.lines);
    let codes = match layout.kind {
        IndexKind::Perfect => vec![dense_code(&layout.keys, &codes)],
        IndexKind::Hash if layout.keys.is_empty() => vec![],
        IndexKind::Hash | IndexKind::Materialized(_) => {
            packed_words(&layout.keys, &codes, layout.key_words)
        }
    };
    let possible = if possible.is_empty() {
        "true".to_string()
    } else {
        possible.join(" && ")
    };
    let known = if known.is_empty() {
        "true".to_string()
    } else {
        known.join(" && ")
    };
    let columns = columns_of(&probe.keys);
    let existence_only = matches!(
        probe.kind,
        ProbeKind::Semi | ProbeKind::Anti | ProbeKind::Mark | ProbeKind::NullAwareAnti
    ) && probe.residual.is_empty()
        && !probe.mark_entries;
    let ranges = !layout.unique && !layout.existence && !existence_only;

    // The payload follows the scope while the residual is tested, and stays for Inner and Left.
    let first = scope.len();
    let mask = format!("h{number}");
    let outer = probe.kind == ProbeKind::Left;
    for (column, stored) in layout.columns.iter().enumerate() {
        scope.push(ScopeColumn {
            shape: Shape::Stored(stored.clone()),
            access: Access::Gather {
                result: probe.index,
                column,
                entry: format!("e{number}"),
                mask: mask.clone(),
            },
            nullable: stored.nullable || outer,
        });
    }
    let payload = (first, layout.columns.len());
    let residual = if probe.residual.is_empty() {
        None
    } else {
        let conjuncts: Vec<&Expr> = probe.residual.iter().collect();
        Some(test(&conjuncts, scope, state)?)
    };
    let mut hidden = Vec::new();
    match probe.kind {
        ProbeKind::Inner | ProbeKind::Left => {}
        ProbeKind::Mark => {
            hidden = scope.split_off(first);
            scope.push(ScopeColumn {
                shape: Shape::Mask(mask),
                access: Access::None,
                nullable: false,
            });
        }
        _ => hidden = scope.split_off(first),
    }
    Ok(EmittedProbe {
        hidden,
        number,
        index: probe.index,
        kind: probe.kind,
        columns,
        lines,
        possible,
        known,
        codes,
        ranges,
        residual,
        payload,
        mark_entries: probe.mark_entries,
    })
}
