//! Where the columns of a table go while it is still read.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::FieldRef;

use super::load::PackedUnit;
use super::row_groups::Layout;
use crate::column::{ColumnRoom, EarlyColumn, Home, StringPolicy};
use crate::device::Stream;
use crate::error::Result;
use crate::memory::MemoryPool;

/// The memory that columns may take, for threads that outlive whoever asked for them.
#[derive(Clone)]
pub(super) struct Homes {
    pub(super) device: Arc<MemoryPool>,
    pub(super) host: Option<Arc<MemoryPool>>,
    pub(super) room: ColumnRoom,
}

impl Homes {
    pub(super) fn home(&self) -> Home<'_> {
        Home {
            device: &self.device,
            host: self.host.as_ref(),
            room: &self.room,
        }
    }
}

/// Memory for the columns whose layout is expected, and where the rows of each unit go.
pub(super) struct Places {
    /// By column: `None` for those that are laid out at the end.
    columns: Vec<Option<EarlyColumn>>,
    /// By unit.
    rows: Vec<Range<usize>>,
}

impl Places {
    /// Room for columns of these fields, as far as their layout is expected; `None` when it is for none of them. Blocks where
    /// memory is short.
    ///
    /// # Errors
    /// As [`EarlyColumn::new`].
    pub(super) fn new(
        layout: &Layout,
        fields: &[FieldRef],
        policies: &[StringPolicy],
        table: &str,
        homes: &Homes,
        stream: &Stream,
    ) -> Result<Option<Self>> {
        let mut end = 0;
        let rows = layout.rows.iter().map(|rows| {
            let first = end;
            end += rows;
            first..end
        });
        let rows: Vec<Range<usize>> = rows.collect();
        let described = fields.iter().zip(policies).zip(&layout.ranges);
        let columns = described.map(|((field, policy), range)| {
            let purpose = purpose(field, table);
            let home = homes.home();
            EarlyColumn::new(
                field.data_type(),
                *policy,
                &purpose,
                end,
                *range,
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

    /// Lay out a unit; false when it is not as was expected. Each unit once.
    ///
    /// # Errors
    /// As [`EarlyColumn::place`].
    pub(super) fn place(
        &self,
        unit: &mut PackedUnit,
        homes: &Homes,
        stream: &Stream,
    ) -> Result<bool> {
        let rows = self.rows.get(unit.unit);
        let Some(rows) = rows.filter(|rows| rows.len() == unit.rows) else {
            return Ok(false);
        };
        for (column, segment) in self.columns.iter().zip(&mut unit.segments) {
            if let Some(column) = column
                && !column.place(rows.start, segment, &homes.home(), stream)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// By column: what was laid out.
    pub(super) fn into_columns(self) -> Vec<Option<EarlyColumn>> {
        self.columns
    }
}

/// What a column's memory is for.
pub(super) fn purpose(field: &FieldRef, table: &str) -> String {
    format!("column {} of {table}", field.name())
}
