//! The scope of a kernel's expressions: where each column's values come from and how they are decoded.
//!
//! Column `i` is an array `c{i}` of one raw value for each of the thread's rows `k`, and, when it can be
//! NULL, a mask `n{i}` of one bit a row. The writer loads both when the first step needs them.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::layout::ColumnLayout;
use super::range::Range;
use super::value::{CType, Meaning};
use crate::column::Column;
use crate::expr::Expr;
use crate::graph::ResultId;

/// One column of a kernel's scope.
#[derive(Debug, Clone)]
pub(in crate::codegen) struct ScopeColumn {
    pub(in crate::codegen) shape: Shape,
    pub(in crate::codegen) access: Access,
    /// There is a mask `n{i}`.
    pub(in crate::codegen) nullable: bool,
}

/// What the raw values of a column are.
#[derive(Debug, Clone)]
pub(in crate::codegen) enum Shape {
    /// Codes of a resident column.
    Resident(Arc<Column>),
    /// Codes of a result's column.
    Stored(ColumnLayout),
    /// The values themselves.
    Computed {
        data_type: DataType,
        c_type: CType,
        range: Range,
        meaning: Meaning,
    },
    /// A bit mask variable, one bit a row.
    Mask(String),
}

/// How raw values get into `c{i}`.
#[derive(Debug, Clone)]
pub(in crate::codegen) enum Access {
    /// The thread's rows of the scanned table: pointers `c{i}`, `n{i}`.
    Scan,
    /// The thread's rows of a result.
    Direct { result: ResultId, column: usize },
    /// Rows `entry[k]` of a result, for the rows in `mask`.
    Gather {
        result: ResultId,
        column: usize,
        entry: String,
        mask: String,
    },
    /// Row 0 of a result, NULL when it has none.
    Broadcast { result: ResultId, column: usize },
    /// Computed by statements; `{c}` and `{n}` stand for the array and the mask.
    Lines(Vec<String>),
    /// Nothing to load.
    None,
}

impl ScopeColumn {
    /// Logical type of the values.
    pub(in crate::codegen) fn data_type(&self) -> DataType {
        match &self.shape {
            Shape::Resident(column) => column.data_type.clone(),
            Shape::Stored(layout) => layout.data_type.clone(),
            Shape::Computed { data_type, .. } => data_type.clone(),
            Shape::Mask(_) => DataType::Boolean,
        }
    }

    /// Has a column of the scanned table one value, so that nobody reads it?
    pub(in crate::codegen) fn is_constant(&self) -> bool {
        match (&self.shape, &self.access) {
            (Shape::Resident(column), Access::Scan) => column.only_value().is_some(),
            _ => false,
        }
    }

    /// A column of the scanned table.
    pub(in crate::codegen) fn resident(column: &Arc<Column>) -> Self {
        Self {
            nullable: column.validity.is_some(),
            shape: Shape::Resident(Arc::clone(column)),
            access: Access::Scan,
        }
    }
}

/// Scope columns that the expressions read, ascending.
pub(in crate::codegen) fn columns_of<'e>(
    expressions: impl IntoIterator<Item = &'e Expr>,
) -> Vec<usize> {
    let mut needs = Vec::new();
    for expression in expressions {
        expression.for_each_column(&mut |c| needs.push(c));
    }
    needs.sort_unstable();
    needs.dedup();
    needs
}
