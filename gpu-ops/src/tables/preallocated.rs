//! Tables whose columns are preallocated: the memory of each column, and the position of each unit's rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::FieldRef;

use super::load::PackedUnit;
use super::row_groups::Layout;
use crate::column::{Column, ColumnPools, ColumnRoom, PreallocatedColumn, StringPolicy, Written};
use crate::device::Stream;
use crate::error::Result;
use crate::memory::MemoryPool;

/// The pools for columns, owned, for threads that outlive the request.
#[derive(Clone)]
pub(super) struct SharedPools {
    pub(super) device: Arc<MemoryPool>,
    pub(super) host: Option<Arc<MemoryPool>>,
    pub(super) room: ColumnRoom,
}

impl SharedPools {
    pub(super) fn column_pools(&self) -> ColumnPools<'_> {
        ColumnPools {
            device: &self.device,
            host: self.host.as_ref(),
            room: &self.room,
        }
    }
}

/// Preallocated columns, and the rows of each unit.
pub(super) struct PreallocatedTable {
    /// By column: `None` for those that are built at the end.
    columns: Vec<Option<PreallocatedColumn>>,
    /// By unit.
    rows: Vec<Range<usize>>,
}

impl PreallocatedTable {
    /// Memory for columns of these fields, as far as their layout is expected; `None` when it is for none. Blocks
    /// while memory is short.
    ///
    /// # Errors
    /// As [`PreallocatedColumn::new`].
    pub(super) fn new(
        layout: &Layout,
        fields: &[FieldRef],
        policies: &[StringPolicy],
        table: &str,
        pools: &SharedPools,
        stream: &Stream,
    ) -> Result<Option<Self>> {
        let mut end = 0;
        let rows = layout.rows.iter().map(|rows| {
            let first = end;
            end += rows;
            first..end
        });
        let rows: Vec<Range<usize>> = rows.collect();
        let described = fields.iter().zip(policies).zip(&layout.columns);
        let columns = described.map(|((field, policy), expected)| {
            let purpose = purpose(field, table);
            let home = pools.column_pools();
            PreallocatedColumn::new(
                field.data_type(),
                *policy,
                &purpose,
                end,
                *expected,
                &home,
                stream,
            )
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(columns
            .iter()
            .any(Option::is_some)
            .then_some(Self { columns, rows }))
    }

    /// Rows of the table.
    pub(super) fn all_rows(&self) -> usize {
        self.rows.last().map_or(0, |rows| rows.end)
    }

    /// By unit: its rows.
    pub(super) fn units(&self) -> &[Range<usize>] {
        &self.rows
    }

    /// The expected columns; `None` while one of them is unknown, or when it is built at the end.
    ///
    /// # Errors
    /// As [`PreallocatedColumn::expected`].
    pub(super) fn expected(&self) -> Result<Option<Vec<Column>>> {
        let columns = self.columns.iter();
        let columns = columns.map(|column| match column {
            Some(column) => column.expected(),
            None => Ok(None),
        });
        columns.collect()
    }

    /// Write all columns of a unit; returns the outcome that they have in common. Each unit once.
    ///
    /// # Errors
    /// As [`PreallocatedColumn::place`].
    pub(super) fn place(
        &self,
        unit: &mut PackedUnit,
        pools: &SharedPools,
        stream: &Stream,
    ) -> Result<Written> {
        let rows = self.rows.get(unit.unit);
        let Some(rows) = rows.filter(|rows| rows.len() == unit.rows) else {
            return Ok(Written::Mismatch);
        };
        let mut laid = Written::InPlace;
        for (column, segment) in self.columns.iter().zip(&mut unit.segments) {
            laid = match column {
                None => Written::AtEnd,
                Some(column) => {
                    match column.place(rows.start, segment, &pools.column_pools(), stream)? {
                        Written::InPlace => laid,
                        Written::AtEnd => Written::AtEnd,
                        Written::Mismatch => return Ok(Written::Mismatch),
                    }
                }
            };
        }
        Ok(laid)
    }

    /// By column: what was written.
    pub(super) fn into_columns(self) -> Vec<Option<PreallocatedColumn>> {
        self.columns
    }
}

/// The purpose of a column's memory, for errors.
pub(super) fn purpose(field: &FieldRef, table: &str) -> String {
    format!("column {} of {table}", field.name())
}
