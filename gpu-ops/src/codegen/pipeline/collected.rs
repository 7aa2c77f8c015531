//! Aggregations whose rows are written down and brought together by key first: the pipeline that writes them, and the one
//! that adds them up.

use arrow::datatypes::DataType;

use super::collected_by_hash::hash_tables;
use super::stages::{begin, columns_of, read_by_call};
use super::thread_rows::rows_a_thread;
use crate::codegen::group::calls::AccumulatorPlan;
use crate::codegen::group::distinct::DistinctSets;
use crate::codegen::group::sizes;
use crate::codegen::ir::accumulator::EVERY_ROW;
use crate::codegen::ir::pipeline::{Begun, Context, EmittedPipeline, EmittedSink, Known};
use crate::codegen::ir::program::{
    CollectedLayout, GroupsLayout, RegroupedLayout, ResultLayout, SourceRows,
};
use crate::codegen::ir::range::Range;
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::codegen::key::codes::{
    KeyPlan, code, group_keys, key_plan, pack_keys, packed_bits, packed_key, packed_words,
};
use crate::codegen::key::zero_copy::{self, Borrowed};
use crate::codegen::value::scalar::{Emitter, KernelState, unsupported};
use crate::error::{GpuError, Result};
use crate::expr::{Expr, Node};
use crate::graph::{Pipeline, ResultId, ResultKind, ResultSpec, Sink};
use crate::pipeline::{Aggregate, AggregateCall, GroupPlacement, Regroup};

/// Slots of a table that numbers groups at least.
const LEAST_SLOTS: u64 = 1 << 10;
/// Rows that a thread handles at a time where arguments are gathered, and in partitions, which are short.
const FEW_ROWS: u32 = 4;

/// Has the policy asked for this?
pub(in crate::codegen) fn is_wanted(plan: &EmittedPipeline) -> bool {
    matches!(
        &plan.sink,
        EmittedSink::Aggregate { layout, .. }
            if matches!(layout.placement, GroupPlacement::Regrouped { .. })
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
    let (columns, _, calls) = separated(aggregate, false);

    // The rows.
    let mut begun = begin(context, pipeline)?;
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
        rows,
        how,
        key_bytes,
        bits,
        window: 0,
    };
    let mut begun = collected_rows(context, &collected, regrouped, bound);
    let key_column = begun.scope.len() - 1;
    let mut emitter = Emitter::new(&begun.scope, &mut begun.state);
    let mut aggregates = AccumulatorPlan::default();
    aggregates.grouped = true;
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
    };
    Ok((writer, begun.ended(sink, lines, read, threads)))
}

/// Rows that are written down for an aggregation.
pub(in crate::codegen) struct WrittenRows<'a> {
    /// Its result.
    pub(in crate::codegen) groups: ResultId,
    /// The key of a row, in CUDA C++.
    pub(in crate::codegen) key: String,
    pub(in crate::codegen) layout: &'a CollectedLayout,
    /// By column.
    pub(in crate::codegen) values: Vec<Value>,
}

impl WrittenRows<'_> {
    /// The hidden result that has the rows, and the pipeline that writes them by these statements, which read these columns.
    pub(in crate::codegen) fn ended(
        self,
        context: &mut Context<'_>,
        begun: Begun,
        lines: Vec<String>,
        read: Vec<usize>,
    ) -> (ResultId, EmittedPipeline) {
        let (rows, bound) = (context.known.len(), begun.bound);
        context.known.push(Some(Known {
            layout: ResultLayout::Collected(self.layout.clone()),
            bound,
        }));
        let spec = ResultSpec {
            kind: ResultKind::Rows(vec![]),
            estimate: bound,
            input: bound,
            name: format!("rows of {}", context.graph.results[self.groups].name),
        };
        if let Some(borrowed) = &self.layout.borrowed {
            context.choices.push(borrowed.reason(&spec.name));
        }
        context.hidden.push(spec);
        let sink = EmittedSink::Collect {
            into: rows,
            key: self.key,
            layout: Box::new(self.layout.clone()),
            values: self.values,
        };
        (rows, begun.ended(sink, lines, read, BLOCK_THREADS))
    }
}

/// Bytes of a packed key as it is written down.
pub(in crate::codegen) fn packed_width(keys: &[KeyPlan], words: usize) -> Option<u32> {
    match (words, packed_bits(keys, words)) {
        (1, 0..=31) => Some(4),
        (1, _) => Some(8),
        (2, _) => Some(16),
        _ => None,
    }
}

/// What is written down of each row for the calls, with the keys or without, and keys and calls over these columns.
pub(in crate::codegen) fn separated(
    aggregate: &Aggregate,
    with_keys: bool,
) -> (Vec<Expr>, Vec<Expr>, Vec<AggregateCall>) {
    let mut columns: Vec<Expr> = Vec::new();
    let mut place = |expr: Expr| -> Expr {
        if columns_of([&expr]).is_empty() {
            // A constant.
            return expr;
        }
        let (data_type, nullable) = (expr.data_type.clone(), expr.nullable);
        let text = format!("{expr:?}");
        let at = columns
            .iter()
            .position(|c| format!("{c:?}") == text)
            .unwrap_or_else(|| {
                columns.push(expr);
                columns.len() - 1
            });
        Expr::column(at, data_type, nullable)
    };
    let keys = match with_keys {
        true => aggregate.keys.iter().cloned().map(&mut place).collect(),
        false => vec![],
    };
    let mut calls = Vec::new();
    for call in &aggregate.calls {
        let mut call = call.clone();
        // An argument that may fault is evaluated where its FILTER holds, and nowhere else.
        if let (Some(filter), Some(argument)) = (&call.filter, &mut call.argument)
            && !matches!(argument.node, Node::Column(_) | Node::Literal(_))
        {
            *argument = Expr {
                data_type: argument.data_type.clone(),
                nullable: true,
                node: Node::Case {
                    branches: vec![(filter.clone(), argument.clone())],
                    otherwise: None,
                },
            };
        }
        call.argument = call.argument.map(&mut place);
        call.filter = call.filter.map(&mut place);
        calls.push(call);
    }
    (columns, keys, calls)
}

/// Collected rows as a source: their columns, then the packed key.
pub(in crate::codegen) fn collected_rows(
    context: &Context<'_>,
    layout: &CollectedLayout,
    regrouped: RegroupedLayout,
    bound: u64,
) -> Begun {
    let RegroupedLayout { rows, how, .. } = regrouped;
    let mut state = KernelState::default();
    state.bases = context.bases.clone();
    let mut prologue = Vec::new();
    if how.gathers() {
        let numbers = state
            .arguments
            .pointer(Slot::Result(rows, Part::Numbers), "const u32*");
        prologue.push(format!(
            "u32 from_row[WL_ROWS] = {{}}; if (live != 0) load_vec_stream<u32, WL_ROWS>({numbers} + row, from_row);"
        ));
    }
    let keys = state
        .arguments
        .pointer(Slot::Result(rows, Part::KeyWord(0)), layout.key_pointer());
    if how.numbers() {
        let numbers = state
            .arguments
            .pointer(Slot::Result(rows, Part::Ids), "const u32*");
        prologue.push(format!(
            "u32 group_of[WL_ROWS] = {{}}; if (live != 0) load_vec_stream<u32, WL_ROWS>({numbers} + row, group_of);"
        ));
    } else if how.sorts_keys() {
        let starts = state
            .arguments
            .pointer(Slot::Result(rows, Part::Starts), "const u32*");
        let t = layout.key_type();
        prologue.extend([
            "u32 group_of[WL_ROWS] = {};".to_string(),
            format!("if (live != 0) {{ {t} run_key[WL_ROWS]; load_vec_stream<{t}, WL_ROWS>({keys} + row, run_key);"),
            format!("  u32 run = run_of({starts}, groups, row);"),
            "  WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {".to_string(),
            "    if (k > 0 && (live >> k & 1) != 0 && run_key[k] != run_key[k - (k > 0)]) ++run;".to_string(),
            "    group_of[k] = run;".to_string(),
            "} }".to_string(),
        ]);
    }
    let mut scope: Vec<ScopeColumn> = layout
        .columns
        .iter()
        .enumerate()
        .map(|(column, stored)| ScopeColumn {
            nullable: stored.nullable,
            shape: Shape::Stored(stored.clone()),
            access: if how.gathers() {
                Access::Gather {
                    result: rows,
                    column,
                    entry: "from_row".into(),
                    mask: "live".into(),
                }
            } else {
                Access::Direct {
                    result: rows,
                    column,
                }
            },
        })
        .collect();
    // Sorted numbers have left the keys behind; they tell groups apart as well.
    let (text, bits) = if how.numbers() {
        ("group_of[k]".to_string(), 32)
    } else {
        (format!("{keys}[row + k]"), layout.key_bits)
    };
    let range = Range::new(0, (u128::MAX >> (128 - bits.max(1))) as i128);
    let c_type = CType::for_range(range);
    scope.push(ScopeColumn {
        shape: Shape::Computed {
            data_type: DataType::Null,
            c_type,
            range,
            meaning: Meaning::Number,
        },
        access: Access::Lines(vec![format!("{{c}}[k] = ({}){text};", c_type.name())]),
        nullable: false,
    });
    let thread_rows = if how.gathers() || how.partitions() {
        FEW_ROWS
    } else {
        8
    };
    Begun {
        rows_a_thread: rows_a_thread(context, bound, thread_rows),
        state,
        source_rows: SourceRows::Rows(rows),
        source_bound: bound,
        bound,
        tree: None,
        prologue,
        scope,
        steps: vec![],
        probes: 0,
        thread_rows,
    }
}
