//! Where the rows of a kernel come from: the scope it begins with and how the rows at hand are found.

use super::emit::Context;
use super::groups;
use super::program::{ColumnLayout, ResultLayout, SourceRows};
use super::scalar::KernelState;
use super::scope::{Access, ScopeColumn, Shape};
use crate::error::{GpuError, Result};
use crate::graph::{IndexKind, ResultId, Source};

/// A source, emitted.
pub(super) struct EmittedSource {
    pub(super) rows: SourceRows,
    /// Upper bound of the rows.
    pub(super) bound: u64,
    /// Rows that one thread handles at a time.
    pub(super) thread_rows: u32,
    /// Statements at the head of each tile.
    pub(super) prologue: Vec<String>,
    pub(super) scope: Vec<ScopeColumn>,
}

/// Emit `source`.
pub(super) fn source(
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
        Source::Groups(result) => groups::source(context, *result, state),
        Source::Pairs(matches) => pairs(context, *matches, state),
        Source::Entries(index, marked) => entries(context, *index, *marked, state),
        Source::One => Ok(EmittedSource {
            rows: SourceRows::One,
            bound: 1,
            thread_rows: 1,
            prologue: vec![],
            scope: vec![],
        }),
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

/// Pair `i` belongs to the row `p` with `pairs[p] <= i < pairs[p + 1]`; its entry is number
/// `i - pairs[p]` of the row's range.
fn pairs(
    context: &Context<'_>,
    matches: ResultId,
    state: &mut KernelState,
) -> Result<EmittedSource> {
    let known = context.known(matches)?;
    let ResultLayout::Matches { columns, index } = &known.layout else {
        return Err(GpuError::Internal(format!(
            "result {matches} is not matches"
        )));
    };
    let layout = context.index(*index)?;
    let (_, outer) = context
        .graph
        .probed_by(matches)
        .ok_or_else(|| GpuError::Internal("matches without a probe".into()))?;
    let arguments = &mut state.arguments;
    let control = arguments.pointer("control", "u64*");
    let capacity = arguments.size(&format!("cap{matches}"));
    let sums = arguments.pointer(&format!("r{matches}pairs"), "const u64*");
    let start = arguments.pointer(&format!("r{matches}start"), "const u32*");
    // A cross join has no ranges and a unique index no list of entries: the range is the entries themselves.
    let listed = !layout.keys.is_empty() && !layout.unique;
    let entry = if listed {
        let rows = arguments.pointer(&format!("r{index}rows"), "const u32*");
        format!("{rows}[at]")
    } else {
        "(u32)at".to_string()
    };
    let count = format!(
        "min_u64({control}[{}], {capacity})",
        matches * super::CONTROL_WORDS
    );
    let prologue = vec![
        "u32 parent_row[WL_ROWS] = {}; u32 pe[WL_ROWS] = {}; u32 pm = 0;".to_string(),
        format!(
            "if (live != 0) {{ const u64 parents = {count}; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {{"
        ),
        format!("  const u64 parent = pair_parent({sums}, parents, row + k);"),
        format!("  const u32 first = {start}[parent];"),
        "  parent_row[k] = (u32)parent;".to_string(),
        format!(
            "  if (first != 0xffffffffu) {{ const u64 at = first + (row + k - {sums}[parent]); pe[k] = {entry}; pm |= 1u << k; }}"
        ),
        "} }".to_string(),
    ];
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
    scope.extend(
        layout
            .columns
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
                nullable: layout.nullable || outer,
            }),
    );
    let built = context.known(*index)?.bound;
    Ok(EmittedSource {
        rows: SourceRows::Pairs(matches),
        bound: known.bound.saturating_mul(built.max(1)),
        thread_rows: 1,
        prologue,
        scope,
    })
}

/// Entries that were marked, or that were not.
fn entries(
    context: &Context<'_>,
    index: ResultId,
    marked: bool,
    state: &mut KernelState,
) -> Result<EmittedSource> {
    let layout = context.index(index)?;
    let bound = context.known(index)?.bound;
    let arguments = &mut state.arguments;
    let marks = arguments.pointer(&format!("r{index}marks"), "const u8*");
    let mut prologue = vec![format!(
        "if (live != 0) live &= {}load_bits<WL_ROWS>({marks}, row);",
        if marked { "" } else { "~" }
    )];
    let rows = if layout.kind == IndexKind::Perfect && layout.unique {
        let bits = arguments.pointer(&format!("r{index}bits"), "const u32*");
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
