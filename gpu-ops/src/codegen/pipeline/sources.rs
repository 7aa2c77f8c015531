//! Where the rows of a kernel come from: the scope it begins with and how the rows at hand are found.

use crate::codegen::group::finish;
use crate::codegen::ir::context::Context;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::pipeline::EmittedSource;
use crate::codegen::ir::program::SourceRows;
use crate::codegen::ir::results::{IndexLayout, ResultLayout};
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::state::KernelState;
use crate::error::{GpuError, Result};
use crate::graph::{IndexKind, ProbeKind, ResultId, Source};

/// Listed pairs that one thread handles at a time.
const LISTED_ROWS: u32 = 4;

/// Pairs of ranges that one thread handles at a time: it waits for the rows of both at once, and for their ranges mostly once.
const RANGED_ROWS: u32 = 2;

/// Emit `source`.
pub(in crate::codegen) fn source(
    context: &Context<'_>,
    source: &Source,
    state: &mut KernelState,
) -> Result<EmittedSource> {
    match source {
        Source::Scan(scan) => {
            let table = context
                .tables
                .get(*scan)
                .ok_or_else(|| GpuError::Internal(format!("no table {scan}")))?;
            Ok(EmittedSource {
                rows: SourceRows::Scan(*scan),
                bound: table.rows as u64,
                thread_rows: 8,
                prologue: vec![],
                scope: table.columns.iter().map(ScopeColumn::resident).collect(),
            })
        }
        Source::Rows(result) => {
            let known = context.known(*result)?;
            let (ResultLayout::Rows(columns) | ResultLayout::Sorted(columns)) = &known.layout
            else {
                return Err(GpuError::Internal(format!("result {result} is not rows")));
            };
            Ok(EmittedSource {
                rows: SourceRows::Rows(*result),
                bound: known.bound,
                thread_rows: 8,
                prologue: vec![],
                scope: direct(*result, columns),
            })
        }
        Source::Groups(result) => finish::source(context, *result, state),
        Source::Pairs(matches) => pairs(context, *matches, state),
        Source::Entries(index, marked) => entries(context, *index, marked, state),
        Source::Picked { of, by } => {
            let known = context.known(*by)?;
            let inner = self::source(context, of, state)?;
            Ok(EmittedSource {
                rows: SourceRows::Picked {
                    scan: match inner.rows {
                        SourceRows::Scan(scan) => Some(scan),
                        _ => None,
                    },
                    by: *by,
                },
                bound: known.bound,
                thread_rows: 1,
                ..inner
            })
        }
        Source::One => Ok(EmittedSource {
            rows: SourceRows::One,
            bound: 1,
            thread_rows: 1,
            prologue: vec![],
            scope: vec![],
        }),
    }
}

/// About how many rows the source has, by the planner.
pub(in crate::codegen) fn estimate(context: &Context<'_>, source: &Source) -> u64 {
    let of_result = |result: ResultId| {
        let known = context.graph.results.get(result);
        known.map_or(u64::MAX, |known| known.estimate)
    };
    match source {
        Source::Scan(_) => u64::MAX,
        Source::Rows(result) | Source::Groups(result) | Source::Pairs(result) => of_result(*result),
        // Slots, of which there are more than entries.
        Source::Entries(..) => u64::MAX,
        Source::Picked { by, .. } => of_result(*by),
        Source::One => 1,
    }
}

fn direct(result: ResultId, columns: &[ColumnLayout]) -> Vec<ScopeColumn> {
    columns
        .iter()
        .enumerate()
        .map(|(column, layout)| ScopeColumn {
            shape: Shape::Stored(layout.clone()),
            access: Access::Direct { result, column },
            nullable: layout.nullable,
        })
        .collect()
}

/// Every pair of a probing row and an entry.
fn pairs(
    context: &Context<'_>,
    matches: ResultId,
    state: &mut KernelState,
) -> Result<EmittedSource> {
    let known = context.known(matches)?;
    let ResultLayout::Matches {
        columns,
        index,
        joined,
        ..
    } = &known.layout
    else {
        return Err(GpuError::Internal(format!(
            "result {matches} is not matches"
        )));
    };
    let layout = context.index(*index)?;
    let kind = context
        .graph
        .probed_by(matches)
        .map(|probe| probe.kind)
        .ok_or_else(|| GpuError::Internal("matches without a probe".into()))?;
    let prologue = match joined {
        Some(_) => listed_pairs(matches, state),
        None => ranges_of_pairs(matches, *index, layout, state),
    };
    let mut scope: Vec<ScopeColumn> = columns
        .iter()
        .enumerate()
        .map(|(column, layout)| ScopeColumn {
            shape: Shape::Stored(layout.clone()),
            access: Access::Gather {
                result: matches,
                column,
                entry: "parent_row".into(),
                mask: "live".into(),
            },
            nullable: layout.nullable,
        })
        .collect();
    let payload: &[ColumnLayout] = match kind.appends_payload() {
        true => &layout.columns,
        false => &[],
    };
    scope.extend(
        payload
            .iter()
            .enumerate()
            .map(|(column, layout)| ScopeColumn {
                shape: Shape::Stored(layout.clone()),
                access: Access::Gather {
                    result: *index,
                    column,
                    entry: "pe".into(),
                    mask: "pm".into(),
                },
                nullable: layout.nullable || kind == ProbeKind::Left,
            }),
    );
    let built = context.known(*index)?.bound;
    let (bound, thread_rows) = match (kind.appends_payload() && !layout.unique, joined) {
        (false, Some(_)) => (known.bound, LISTED_ROWS),
        (true, Some(_)) => (known.bound.saturating_mul(built.max(1)), LISTED_ROWS),
        (_, None) => (known.bound.saturating_mul(built.max(1)), RANGED_ROWS),
    };
    Ok(EmittedSource {
        rows: SourceRows::Pairs(matches),
        bound,
        thread_rows,
        prologue,
        scope,
    })
}

/// Pairs that have been listed: a row and an entry each.
fn listed_pairs(matches: ResultId, state: &mut KernelState) -> Vec<String> {
    let arguments = &mut state.arguments;
    let rows = arguments.pointer(Slot::Result(matches, Part::PairRow), "const u32*");
    let entries = arguments.pointer(Slot::Result(matches, Part::PairEntry), "const u32*");
    vec![
        "u32 parent_row[WL_ROWS] = {}; u32 pe[WL_ROWS] = {};".to_string(),
        format!(
            "const u32 pm = listed_pairs({rows} + row, {entries} + row, live, parent_row, pe);"
        ),
    ]
}

/// Pairs of ranges: pair `i` belongs to the row `p` with `pairs[p] <= i < pairs[p + 1]`; its entry is number
/// `i - pairs[p]` of the row's range.
fn ranges_of_pairs(
    matches: ResultId,
    index: ResultId,
    layout: &IndexLayout,
    state: &mut KernelState,
) -> Vec<String> {
    let arguments = &mut state.arguments;
    let control = arguments.pointer(Slot::Control, "u64*");
    let capacity = arguments.size(Slot::Capacity(matches));
    let sums = arguments.pointer(Slot::Result(matches, Part::Pairs), "const u64*");
    let start = arguments.pointer(Slot::Result(matches, Part::Start), "const u32*");
    // A cross join has no ranges and a unique index no list of entries: the range is the entries themselves.
    // Of a set nothing but the rows themselves is listed.
    let listed = layout.is_listed() && !layout.existence;
    let entries = match listed {
        true => arguments.pointer(Slot::Result(index, Part::Entries), "const u32*"),
        false => "(const u32*)0".to_string(),
    };
    let count = format!(
        "min_u64({control}[{}], {capacity})",
        matches * crate::codegen::CONTROL_WORDS
    );
    vec![
        "u32 parent_row[WL_ROWS] = {}; u32 pe[WL_ROWS] = {};".to_string(),
        format!(
            "const u32 pm = ranged_pairs({sums}, {count}, {start}, {entries}, row, live, parent_row, pe);"
        ),
    ]
}

/// Entries that were marked, or that were not, in each set.
fn entries(
    context: &Context<'_>,
    index: ResultId,
    marked: &[bool],
    state: &mut KernelState,
) -> Result<EmittedSource> {
    let layout = context.index(index)?;
    let bound = context.known(index)?.bound;
    let arguments = &mut state.arguments;
    let mut prologue = Vec::new();
    for (set, marked) in marked.iter().enumerate() {
        let marks = arguments.pointer(Slot::Result(index, Part::Marks(set)), "const u8*");
        let not = if *marked { "" } else { "~" };
        prologue.push(format!(
            "if (live != 0) live &= {not}load_bits<WL_ROWS>({marks}, row);"
        ));
    }
    let rows = if layout.kind == IndexKind::Perfect && layout.unique {
        let bits = arguments.pointer(Slot::Result(index, Part::Bits), "const u32*");
        prologue.push(format!(
            "if (live != 0) live &= load_bits<WL_ROWS>((const u8*){bits}, row);"
        ));
        SourceRows::Domain(index)
    } else {
        SourceRows::Rows(index)
    };
    Ok(EmittedSource {
        rows,
        bound,
        thread_rows: 8,
        prologue,
        scope: direct(index, &layout.columns),
    })
}
