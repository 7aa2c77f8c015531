//! The statistics that a fragment is planned by: those of the plan alone, at planning time, and of resident tables.

use std::sync::Arc;

use warpline_gpu::column::ColumnStatistics;
use warpline_gpu::pipeline::ScanSource;
use warpline_gpu::tables::LoadedTable;

use crate::rel::ScanTable;
use crate::stats::TableFacts;

/// The statistics of the plan alone, for tables that are not resident.
pub(crate) struct NoFacts;

impl TableFacts for NoFacts {
    fn rows(&self, table: &Arc<ScanTable>) -> f64 {
        table.rows.unwrap_or(1_000_000) as f64
    }

    fn column(&self, _: &Arc<ScanTable>, _: usize) -> Option<&ColumnStatistics> {
        None
    }
}

/// The statistics at planning time: exact for tables that are already resident.
pub(super) struct PlanTimeFacts<'a> {
    pub(super) tables: &'a [Arc<ScanTable>],
    pub(super) scans: &'a [ScanSource],
    /// By scan: the table, when it is resident.
    pub(super) loaded: &'a [Option<LoadedTable>],
    pub(super) inputs: InputRows<'a>,
}

/// How many rows the inputs of a fragment have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputRows<'a> {
    /// So many times the rows that are expected of them.
    Times(f64),
    /// So many, by input.
    Counted(&'a [usize]),
}

impl PlanTimeFacts<'_> {
    fn loaded(&self, table: &Arc<ScanTable>) -> Option<(usize, &LoadedTable)> {
        let mut tables = self.tables.iter();
        let scan = tables.position(|t| Arc::ptr_eq(t, table))?;
        Some((scan, self.loaded.get(scan)?.as_ref()?))
    }
}

impl TableFacts for PlanTimeFacts<'_> {
    fn rows(&self, table: &Arc<ScanTable>) -> f64 {
        match self.loaded(table) {
            Some((_, loaded)) => loaded.rows as f64,
            None => match (table.source.input(), self.inputs) {
                (None, _) => NoFacts.rows(table),
                (Some(_), InputRows::Times(factor)) => NoFacts.rows(table) * factor,
                (Some(input), InputRows::Counted(rows)) => {
                    rows.get(input).map_or(0.0, |rows| *rows as f64)
                }
            },
        }
    }

    fn column(&self, table: &Arc<ScanTable>, column: usize) -> Option<&ColumnStatistics> {
        let (scan, loaded) = self.loaded(table)?;
        let mut columns = self.scans[scan].columns.iter();
        let position = columns.position(|c| *c == column)?;
        Some(&loaded.columns.get(position)?.statistics)
    }
}

/// The exact statistics of resident tables.
pub(super) struct ResidentFacts<'a> {
    pub(super) tables: &'a [Arc<ScanTable>],
    pub(super) scans: &'a [ScanSource],
    pub(super) loaded: &'a [LoadedTable],
}

impl TableFacts for ResidentFacts<'_> {
    fn rows(&self, table: &Arc<ScanTable>) -> f64 {
        let scan = self.tables.iter().position(|t| Arc::ptr_eq(t, table));
        let loaded = scan.and_then(|scan| self.loaded.get(scan));
        loaded.map_or(0.0, |loaded| loaded.rows as f64)
    }

    fn column(&self, table: &Arc<ScanTable>, column: usize) -> Option<&ColumnStatistics> {
        let scan = self.tables.iter().position(|t| Arc::ptr_eq(t, table))?;
        let position = self.scans[scan].columns.iter().position(|c| *c == column)?;
        Some(&self.loaded.get(scan)?.columns.get(position)?.statistics)
    }
}
