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

use super::super::expr::null;
use super::super::walk::bottom_up;
use super::super::{Rel, RelKind, RelRef, ScanTable};
use super::reach::{Target, reach};
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
            let (with, at) = reach(&rel, &Accessed(access))?;
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
        let (with, index) = reach(side, &Accessed(Access { column, ..access }))?;
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

/// What is accessed, of a relation or of a table.
struct Accessed<'a>(Access<'a>);

impl Target for Accessed<'_> {
    fn columns(&self) -> Vec<usize> {
        vec![self.0.column]
    }

    fn at(&self, columns: &[usize]) -> Option<Self> {
        let column = *columns.first()?;
        Some(Self(Access { column, ..self.0 }))
    }

    /// No struct is a key.
    fn is_of_values(&self) -> bool {
        false
    }

    fn may_be_of(&self, rel: &RelRef) -> bool {
        let column = rel.columns.get(self.0.column);
        column.is_some_and(|column| is_struct(&column.data_type))
    }

    fn of_table(&self, table: &Arc<ScanTable>) -> Option<(Arc<ScanTable>, usize)> {
        Some((Arc::clone(table), column_of(table, self.0)?))
    }

    fn of_constants(&self, exprs: &[&Expr]) -> Option<Expr> {
        of_null(exprs.first()?, self.0)
    }

    /// No struct is there where a row has no match.
    fn of_no_match(&self) -> Option<ScalarValue> {
        Some(match self.0.presence {
            true => ScalarValue::from(false),
            false => ScalarValue::Null,
        })
    }

    fn name(&self) -> String {
        self.0.names.join(".")
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
