//! Lists taken apart: a join with the elements of all lists that a table's column has.
//!
//! `unnest` of a list that is a column of a table, or computed of one column of strings or lists, yields the rows that a join by
//! the list yields with a table of each list's elements ([`warpline_gpu::tables::TableSource::elements`]).

use std::sync::Arc;

use datafusion::common::NullHandling;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::unnest::UnnestExec;
use warpline_gpu::expr::Node;
use warpline_gpu::tables::TableSource;

use super::super::{Join, JoinKind, Rel, RelKind, RelRef, ScanTable};
use crate::reason::{Reason, refuse};

/// The rows of `input` with the elements of one of its columns in the place of its lists.
pub(super) fn unnest(exec: &UnnestExec, input: &RelRef) -> Result<RelRef, Reason> {
    let ([list], []) = (exec.list_column_indices(), exec.struct_column_indices()) else {
        return refuse("more than one list is taken apart on the CPU");
    };
    if list.depth != 1 {
        return refuse("lists within lists are taken apart on the CPU");
    }
    let kind = match exec.options().null_handling {
        NullHandling::Drop => JoinKind::Inner,
        NullHandling::PreserveAndExpandEmpty => JoinKind::Left,
        NullHandling::Preserve => return refuse("a row for each list that is NULL is the CPU's"),
    };
    let column = list.index_in_input_schema;
    let Some(elements) = elements(input, column) else {
        return refuse("lists that are no column of a table are taken apart on the CPU");
    };
    let width = input.columns.len();
    let elements = Rel::scan(Arc::new(elements), vec![0, 1]);
    let joined = Rel::join(Join {
        on: vec![(input.column(column), elements.column(0))],
        left: Arc::clone(input),
        right: elements,
        kind,
        residual: vec![],
        null_equal: false,
        build: None,
    });
    let in_place = |at: usize| if at == column { width + 1 } else { at };
    let columns = (0..width).map(in_place);
    let schema = exec.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    let columns = columns.map(|at| joined.column(at)).zip(names).collect();
    Ok(Rel::project(joined, columns))
}

/// The elements of the lists that a column of `rel` has.
fn elements(rel: &RelRef, column: usize) -> Option<ScanTable> {
    let (source, rows, column, list) = origin(rel, column)?;
    Some(ScanTable {
        source: source.elements(column, list)?,
        rows,
    })
}

/// The table, about how many rows it has, and the column of it that a column of `rel` is computed of, and by what.
type Origin<'a> = (
    &'a TableSource,
    Option<usize>,
    usize,
    Option<Arc<dyn PhysicalExpr>>,
);

/// Where the values of a column come from: all of them are made of values of one column of a table, or NULL.
fn origin(rel: &RelRef, column: usize) -> Option<Origin<'_>> {
    match &rel.kind {
        RelKind::Scan { table, columns } => {
            let column = *columns.get(column)?;
            Some((&table.source, table.rows, column, None))
        }
        RelKind::Filter { input, .. } | RelKind::Sort { input, .. } => origin(input, column),
        RelKind::Project { input, exprs } => match &exprs.get(column)?.node {
            Node::Column(at) => origin(input, *at),
            Node::PerDistinct { column, function } => match origin(input, *column)? {
                (source, rows, column, None) => {
                    Some((source, rows, column, Some(Arc::clone(function))))
                }
                _ => None,
            },
            _ => None,
        },
        RelKind::Join(join) => match column.checked_sub(join.left.columns.len()) {
            None => origin(&join.left, column),
            Some(column) if join.kind.yields_right() => origin(&join.right, column),
            Some(_) => None,
        },
        RelKind::Scalar { input, .. } | RelKind::Window { input, .. } => {
            (column < input.columns.len()).then(|| origin(input, column))?
        }
        RelKind::Aggregate { input, aggregate } => match &aggregate.keys.get(column)?.node {
            Node::Column(at) => origin(input, *at),
            _ => None,
        },
        RelKind::Union(_) | RelKind::One => None,
    }
}
