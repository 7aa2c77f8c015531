//! Rows that are written down for an aggregation: the pipeline that writes them, and they as a source.

use arrow::datatypes::DataType;

use super::thread_rows::rows_a_thread;
use crate::codegen::ir::context::{Context, Known};
use crate::codegen::ir::pipeline::{Begun, EmittedPipeline, EmittedSink};
use crate::codegen::ir::program::SourceRows;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::results::{CollectedLayout, ResultLayout};
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape, columns_of};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::state::KernelState;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::expr::{Expr, Node};
use crate::graph::{ResultId, ResultKind, ResultSpec};
use crate::pipeline::{Aggregate, AggregateCall, AggregateFunction};

/// Rows that a thread handles at a time where arguments are gathered, and in partitions, which are short.
const FEW_ROWS: u32 = 4;

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
            enough: None,
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

/// What is written down of each row for the calls, with the keys or without, and keys and calls over these columns. `scope` has the
/// columns that they are over now.
pub(in crate::codegen) fn separated(
    aggregate: &Aggregate,
    with_keys: bool,
    scope: &[ScopeColumn],
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
        if counts_rows(&call, scope) {
            call.argument = None;
        }
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

/// Does a call count rows, since its argument is a column without NULL?
fn counts_rows(call: &AggregateCall, scope: &[ScopeColumn]) -> bool {
    let column = match call.argument.as_ref().map(|argument| &argument.node) {
        Some(Node::Column(index)) => scope.get(*index),
        _ => None,
    };
    call.function == AggregateFunction::Count
        && !call.distinct
        && column.is_some_and(|column| !column.nullable)
}

/// Collected rows as a source: their columns, then the packed key.
pub(in crate::codegen) fn collected_rows(
    context: &Context<'_>,
    rows: ResultId,
    layout: &CollectedLayout,
    bound: u64,
) -> Begun {
    let how = layout.how;
    let mut state = KernelState {
        bases: context.bases.clone(),
        evaluated: context.evaluated.clone(),
        ..KernelState::default()
    };
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
        prologue.push(format!(
            "u32 group_of[WL_ROWS] = {{}}; run_numbers({starts}, groups, {keys}, row, live, group_of);"
        ));
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
        refill: None,
        thread_rows,
    }
}
