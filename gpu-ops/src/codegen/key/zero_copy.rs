//! Results whose rows are those of a scanned table, each at its own place: what is a column already is not copied.
//!
//! A side of a join in memory, or the rows of an aggregation that are brought together by key, is written down by a
//! pipeline. Where that pipeline is a bare scan, it has nothing to do for columns of the table: whoever arranges or
//! gathers the rows reads them there. Only what is computed is written, and where that is nothing no kernel runs.

use std::sync::Arc;

use arrow::datatypes::DataType;

use crate::codegen::ir::key::KeyPlan;
use crate::codegen::ir::layout::{ColumnLayout, layout_of};
use crate::codegen::ir::program::SourceRows;
use crate::codegen::ir::results::JoinKeys;
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape, columns_of};
use crate::codegen::ir::value::{Meaning, Value};
use crate::codegen::value::scalar::Emitter;
use crate::column::{Column, Encoding};
use crate::error::Result;
use crate::expr::{Expr, Node};

/// The scan that a pipeline is without any step, `steps` being how many it has.
pub(in crate::codegen) fn bare_scan(source: SourceRows, steps: usize) -> Option<usize> {
    match source {
        SourceRows::Scan(scan) if steps == 0 => Some(scan),
        _ => None,
    }
}

/// Does a table lend its columns? Not when some of them come in strides: the rows of a stride lie at places of their own.
pub(in crate::codegen) fn lends(scope: &[ScopeColumn]) -> bool {
    let streamed = |column: &ScopeColumn| match &column.shape {
        Shape::Resident(resident) => {
            matches!(column.access, Access::Scan) && resident.is_in_host_memory()
        }
        _ => false,
    };
    !scope.iter().any(streamed)
}

/// What is kept of each row.
pub(in crate::codegen) struct Kept {
    /// By column.
    pub(in crate::codegen) values: Vec<Value>,
    /// By column.
    pub(in crate::codegen) layouts: Vec<ColumnLayout>,
    /// Scope columns that the statements of what is written read.
    pub(in crate::codegen) read: Vec<usize>,
    /// By column, as [`Borrowed::columns`].
    pub(in crate::codegen) borrowed: Vec<Option<usize>>,
}

/// Emit the columns of a result; with `lend` those that are columns of the table as they are get no statements.
pub(in crate::codegen) fn keep(
    emitter: &mut Emitter<'_>,
    columns: &[Expr],
    lend: bool,
) -> Result<Kept> {
    let mut kept = Kept {
        values: Vec::with_capacity(columns.len()),
        layouts: Vec::with_capacity(columns.len()),
        read: Vec::new(),
        borrowed: Vec::with_capacity(columns.len()),
    };
    for expr in columns {
        let in_table = zero_copy_column(emitter.columns, expr).filter(|_| lend);
        let coded = in_table.and_then(|(index, column)| Some((index, code_of(column)?)));
        let (value, layout) = match coded {
            Some((_, (width, base))) => {
                // For its range and its meaning: nothing reads the row's value.
                let value = Emitter::new(emitter.columns, emitter.state).emit(expr)?;
                let layout = ColumnLayout {
                    width,
                    base,
                    ..layout_of(&value, &expr.data_type)
                };
                (value, layout)
            }
            None => {
                kept.read.extend(columns_of([expr]));
                let value = emitter.emit(expr)?;
                let layout = layout_of(&value, &expr.data_type);
                (value, layout)
            }
        };
        kept.values.push(value);
        kept.layouts.push(layout);
        kept.borrowed.push(coded.map(|(index, _)| index));
    }
    Ok(kept)
}

/// The column of the table, without NULLs, that an expression is.
fn zero_copy_column<'a>(scope: &'a [ScopeColumn], expr: &Expr) -> Option<(usize, &'a Arc<Column>)> {
    let Node::Column(index) = expr.node else {
        return None;
    };
    match scope.get(index)? {
        ScopeColumn {
            shape: Shape::Resident(column),
            access: Access::Scan,
            nullable: false,
            // What is arranged is read in any order: not across the link.
        } if !column.is_in_host_memory() => Some((index, column)),
        _ => None,
    }
}

/// Are the rows of the table in the order of the only key, an integer?
pub(in crate::codegen) fn in_order_of(scope: &[ScopeColumn], keys: &[Expr]) -> bool {
    let [key] = keys else {
        return false;
    };
    zero_copy_column(scope, key).is_some_and(|(_, column)| {
        matches!(column.encoding, Encoding::Integer { .. }) && column.statistics.sorted
    })
}

/// Are these columns of the table that can be read there?
pub(in crate::codegen) fn has_all(scope: &[ScopeColumn], columns: &[Expr]) -> bool {
    let readable = |expr| zero_copy_column(scope, expr).and_then(|(_, column)| code_of(column));
    columns.iter().all(|expr| readable(expr).is_some())
}

/// Width and base of the codes of a column that lie as those of a result do.
fn code_of(column: &Column) -> Option<(u8, i128)> {
    match &column.encoding {
        Encoding::Integer { width, base } => Some((*width, *base)),
        Encoding::Float { width } | Encoding::Dictionary { width, .. } => Some((*width, 0)),
        Encoding::Bits | Encoding::Bytes { .. } => None,
    }
}

/// Columns that are the key itself, of rows all of which have one that the index may have: their codes are made
/// those of the packed keys of `width` bytes.
pub(in crate::codegen) fn key_aliases(
    columns: &[Expr],
    layouts: &mut [ColumnLayout],
    keys: &[Expr],
    plans: &[KeyPlan],
    width: u32,
) -> Vec<usize> {
    let ([key], [plan]) = (keys, plans) else {
        return vec![];
    };
    let Node::Column(of) = key.node else {
        return vec![];
    };
    let mut key_aliases = Vec::new();
    for (i, (expr, layout)) in columns.iter().zip(layouts).enumerate() {
        let same = matches!(expr.node, Node::Column(column) if column == of);
        let coded = match (&layout.meaning, &plan.meaning) {
            (Meaning::Number, Meaning::Number) => {
                !layout.float && layout.data_type != DataType::Boolean
            }
            (Meaning::Code(mine), Meaning::Code(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        };
        if same && coded && !layout.nullable && !plan.nullable && width <= 8 {
            layout.width = width as u8;
            layout.base = plan.min;
            key_aliases.push(i);
        }
    }
    key_aliases
}

/// The column of the table whose codes are the packed keys of `width` bytes: the only key, coded alike. Where its values
/// are not those that `plans` are for, all of its codes must lie below `limit`.
pub(in crate::codegen) fn lent_key(
    scope: &[ScopeColumn],
    keys: &[Expr],
    plans: &[KeyPlan],
    width: u32,
    limit: Option<u128>,
) -> Option<usize> {
    let ([key], [plan]) = (keys, plans) else {
        return None;
    };
    let (index, column) = zero_copy_column(scope, key)?;
    let (bytes, base) = match (&column.encoding, &plan.meaning) {
        (Encoding::Integer { width, base }, Meaning::Number) if *width <= 8 => (*width, *base),
        (Encoding::Dictionary { width, dictionary }, Meaning::Code(same))
            if Arc::ptr_eq(same, dictionary) =>
        {
            (*width, 0)
        }
        _ => return None,
    };
    let below = limit.is_none_or(|limit| match column.statistics.range {
        Some((_, most)) => (most.wrapping_sub(base) as u128) < limit,
        None => column.rows == 0,
    });
    let alike = !plan.nullable && plan.min == base && u32::from(bytes) == width && below;
    alike.then_some(index)
}

/// Codes below this can be those of probing rows, whatever their values: none is a mark, and sorts by the bits of the
/// index's codes and one more bring them into order.
pub(in crate::codegen) fn code_limit(keys: &JoinKeys) -> u128 {
    let bits = match keys.join.sorts() {
        true => (keys.bits + 1).min(keys.width * 8),
        false => keys.width * 8,
    };
    (1u128 << bits.min(64)) - 2
}

/// Do most values of the column that is the only key lie between the least and the greatest of the index?
pub(in crate::codegen) fn mostly_within(
    scope: &[ScopeColumn],
    keys: &[Expr],
    plans: &[KeyPlan],
) -> bool {
    let ([key], [plan]) = (keys, plans) else {
        return false;
    };
    let known = zero_copy_column(scope, key).and_then(|(_, column)| column.statistics.range);
    let Some((low, high)) = known else {
        return false;
    };
    let most = plan.min.saturating_add_unsigned(plan.domain - 1);
    let both = high.min(most).saturating_sub(low.max(plan.min));
    both >= high.saturating_sub(low) / 2
}
