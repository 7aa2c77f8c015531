//! Fields of structs: what reads one reads a column that the scan of its table yields beside the others.
//!
//! A column of structs goes through a plan untouched, up to what takes a field out of it. The field is therefore looked for
//! below: in the table that the column is of, past all operators that pass the column on. Then nothing reads the column itself.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::JoinSide;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{Expr, Node};

use super::super::expr::{as_column, null, renumber};
use super::super::walk::bottom_up;
use super::super::{Join, JoinKind, Rel, RelKind, RelRef, ScanTable};
use crate::reason::Reason;
use crate::translate::{Access, FieldColumns, with_columns};

/// `expr` over the columns of a table, with fields of structs as columns of their own.
///
/// # Errors
/// Of DataFusion's rewriting.
pub(super) fn of_table(
    expr: &Arc<dyn PhysicalExpr>,
    table: &ScanTable,
) -> Result<Arc<dyn PhysicalExpr>, Reason> {
    with_columns(expr, &mut |access| {
        let at = column_of(table, access)?;
        Some((table.source.schema().field(at).name().clone(), at))
    })
}

fn column_of(table: &ScanTable, access: Access<'_>) -> Option<usize> {
    match access.presence {
        true => table.source.presence_of_struct(access.column, access.names),
        false => table.source.field_of_struct(access.column, access.names),
    }
}

/// Expressions over `rel`, with fields of structs as columns beside those that it has.
///
/// # Errors
/// Of DataFusion's rewriting.
pub(super) fn beside(
    rel: RelRef,
    exprs: &[Arc<dyn PhysicalExpr>],
) -> Result<(RelRef, Vec<Arc<dyn PhysicalExpr>>), Reason> {
    let (rel, columns) = read_by(rel, exprs)?;
    let replaced = exprs.iter().map(|expr| columns.replaced(expr));
    let replaced = replaced.collect::<Result<_, _>>()?;
    Ok((rel, replaced))
}

/// `rel` with columns for the fields of structs that expressions over it read, and which those are.
///
/// # Errors
/// Of DataFusion's rewriting.
pub(super) fn read_by(
    rel: RelRef,
    exprs: &[Arc<dyn PhysicalExpr>],
) -> Result<(RelRef, FieldColumns), Reason> {
    let mut columns = FieldColumns::default();
    let mut rel = rel;
    if !rel
        .columns
        .iter()
        .any(|column| is_struct(&column.data_type))
    {
        return Ok((rel, columns));
    }
    for expr in exprs {
        with_columns(expr, &mut |access| {
            let (with, at) = reach(&rel, access)?;
            rel = with;
            let name = rel.columns[at].name.clone();
            columns.add(access, &name, at);
            Some((name, at))
        })?;
    }
    Ok((rel, columns))
}

/// The condition of a join, over columns of its own.
pub(super) struct Condition {
    pub(super) expr: Arc<dyn PhysicalExpr>,
    pub(super) schema: Schema,
    /// Where its columns are.
    pub(super) places: Vec<ColumnIndex>,
}

/// The condition of a join with fields of structs as columns of the sides, which get them.
///
/// # Errors
/// Of DataFusion's rewriting.
pub(super) fn of_condition(
    filter: &JoinFilter,
    left: &mut RelRef,
    right: &mut RelRef,
) -> Result<Condition, Reason> {
    let mut columns = filter.schema().fields().to_vec();
    let mut places = filter.column_indices().to_vec();
    let expr = with_columns(filter.expression(), &mut |access| {
        let from = places.get(access.column)?.clone();
        let side = match from.side {
            JoinSide::Left => &mut *left,
            JoinSide::Right => &mut *right,
            JoinSide::None => return None,
        };
        let column = from.index;
        let (with, index) = reach(side, Access { column, ..access })?;
        let found = &with.columns[index];
        let name = found.name.clone();
        columns.push(Arc::new(Field::new(
            &name,
            found.data_type.clone(),
            found.nullable,
        )));
        *side = with;
        places.push(ColumnIndex { index, ..from });
        Some((name, places.len() - 1))
    })?;
    Ok(Condition {
        expr,
        schema: Schema::new(columns),
        places,
    })
}

/// Structs pass, but nothing is computed of one.
pub(super) fn is_struct(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(_))
}

/// `rel` with what is accessed as a column of it, the last one unless it had it before; and which.
fn reach(rel: &RelRef, access: Access<'_>) -> Option<(RelRef, usize)> {
    if !is_struct(&rel.columns.get(access.column)?.data_type) {
        return None;
    }
    let width = rel.columns.len();
    match &rel.kind {
        RelKind::Scan { table, columns } => {
            let column = *columns.get(access.column)?;
            let wanted = column_of(table, Access { column, ..access })?;
            let mut columns = columns.clone();
            let at = columns.iter().position(|c| *c == wanted);
            let at = at.unwrap_or_else(|| {
                columns.push(wanted);
                width
            });
            Some((Rel::scan(Arc::clone(table), columns), at))
        }
        RelKind::Filter { input, conjuncts } => {
            let (input, at) = reach(input, access)?;
            Some((Rel::filter(input, conjuncts.clone()), at))
        }
        RelKind::Sort {
            input,
            keys,
            skip,
            fetch,
        } => {
            let (input, at) = reach(input, access)?;
            Some((Rel::sort(input, keys.clone(), *skip, *fetch), at))
        }
        RelKind::Project { input, exprs } => {
            let passed = exprs.get(access.column)?;
            let (input, added) = match as_column(passed) {
                Some(column) => {
                    let (input, at) = reach(input, Access { column, ..access })?;
                    let added = input.column(at);
                    (input, added)
                }
                None => (Arc::clone(input), of_null(passed, access)?),
            };
            let names = rel.columns.iter().map(|column| column.name.clone());
            let mut named: Vec<_> = exprs.iter().cloned().zip(names).collect();
            let had = as_column(&added)
                .and_then(|added| exprs.iter().position(|e| as_column(e) == Some(added)));
            let at = had.unwrap_or_else(|| {
                named.push((added, access.names.join(".")));
                width
            });
            Some((Rel::project(input, named), at))
        }
        RelKind::Join(join) => of_join(rel, join, access),
        RelKind::Scalar { input, subquery } => {
            let left = input.columns.len();
            if access.column >= left {
                return None;
            }
            let (input, at) = reach(input, access)?;
            let added = input.columns.len() - left;
            let with = Rel::scalar(input, Arc::clone(subquery));
            Some(behind(&with, left, added, width, at))
        }
        RelKind::Window {
            input,
            keys,
            window,
        } => {
            let left = input.columns.len();
            if access.column >= left {
                return None;
            }
            let (input, at) = reach(input, access)?;
            let added = input.columns.len() - left;
            let own = rel.columns[left..].iter();
            let own = own.map(|column| (column.name.clone(), column.data_type.clone()));
            let with = Rel::window(input, keys.clone(), window.clone(), own.collect());
            Some(behind(&with, left, added, width, at))
        }
        RelKind::Union(inputs) => {
            let with = inputs.iter().map(|input| {
                let (with, at) = reach(input, access)?;
                let columns: Vec<usize> = (0..width).chain([at]).collect();
                Some(Rel::select(with, &columns))
            });
            Some((Rel::union(with.collect::<Option<_>>()?), width))
        }
        RelKind::Aggregate { .. } | RelKind::One => None,
    }
}

/// What is read of a struct that is NULL in every row.
fn of_null(expr: &Expr, access: Access<'_>) -> Option<Expr> {
    let Node::Literal(value) = &expr.node else {
        return None;
    };
    if !value.is_null() {
        return None;
    }
    if access.presence {
        return Some(Expr::literal(ScalarValue::from(false)));
    }
    let mut data_type = &expr.data_type;
    for name in access.names {
        let DataType::Struct(fields) = data_type else {
            return None;
        };
        data_type = fields.find(name)?.1.data_type();
    }
    null(data_type).ok()
}

fn of_join(rel: &RelRef, join: &Join, access: Access<'_>) -> Option<(RelRef, usize)> {
    let (left, width) = (join.left.columns.len(), rel.columns.len());
    let on_left = access.column < left;
    let padded = match on_left {
        true => join.kind == JoinKind::Full,
        false => matches!(join.kind, JoinKind::Left | JoinKind::Full),
    };
    let (with, at) = if on_left {
        let (with, at) = reach(&join.left, access)?;
        let added = with.columns.len() - left;
        let moved = |column: usize| {
            if column < left {
                column
            } else {
                column + added
            }
        };
        let residual = join.residual.iter().map(|e| renumber(e, &moved)).collect();
        let with = Rel::join(Join {
            left: with,
            residual,
            ..join.clone()
        });
        behind(&with, left, added, width, at)
    } else {
        if !join.kind.yields_right() {
            return None;
        }
        let column = access.column - left;
        let (right, at) = reach(&join.right, Access { column, ..access })?;
        let with = Rel::join(Join {
            right,
            ..join.clone()
        });
        (with, left + at)
    };
    match access.presence && padded {
        true => Some(or_false(&with, at)),
        false => Some((with, at)),
    }
}

/// `rel` with one more column, which is false where column `at` is NULL: no struct is there where a row has no match.
fn or_false(rel: &RelRef, at: usize) -> (RelRef, usize) {
    let there = Expr {
        node: Node::Coalesce(vec![
            rel.column(at),
            Expr::literal(ScalarValue::from(false)),
        ]),
        data_type: DataType::Boolean,
        nullable: false,
    };
    let names = rel.columns.iter().map(|column| column.name.clone());
    let mut named: Vec<_> = rel.all_columns().into_iter().zip(names).collect();
    named.push((there, rel.columns[at].name.clone()));
    (Rel::project(Arc::clone(rel), named), rel.columns.len())
}

/// `with` is a relation of `width` columns that has `added` more behind the first `left`: the same with these at its end.
fn behind(with: &RelRef, left: usize, added: usize, width: usize, at: usize) -> (RelRef, usize) {
    let columns = (0..left).chain(left + added..width + added);
    let columns: Vec<usize> = columns.chain(left..left + added).collect();
    let at = if at < left { at } else { at - left + width };
    (Rel::select(Arc::clone(with), &columns), at)
}

/// `rel` with tables that are not read for columns of structs: what is left of them passes, and is never looked at.
pub(super) fn without_structs(rel: &RelRef) -> RelRef {
    bottom_up(rel, |rel| {
        let RelKind::Scan { table, columns } = &rel.kind else {
            return rel;
        };
        let is_read = |at: &usize| !is_struct(&rel.columns[*at].data_type);
        let read: Vec<usize> = (0..columns.len()).filter(is_read).collect();
        if read.len() == columns.len() {
            return rel;
        }
        let of_table = read.iter().map(|at| columns[*at]).collect();
        let scan = Rel::scan(Arc::clone(table), of_table);
        let named = rel.columns.iter().enumerate().map(|(at, column)| {
            let value = match read.iter().position(|r| *r == at) {
                Some(place) => Some(scan.column(place)),
                None => null(&column.data_type).ok(),
            };
            Some((value?, column.name.clone()))
        });
        match named.collect::<Option<_>>() {
            Some(named) => Rel::project(Arc::clone(&scan), named),
            None => Arc::clone(&rel),
        }
    })
}
