//! The sinks of a kernel in every shape: which operator writes them, and those that only write rows.

use std::fmt::Write as _;

use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::{CollectedLayout, ControlWord, ResultLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::Value;
use crate::codegen::kernel::stores::{Cell, RESERVE_BYTES};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};
use crate::graph::ResultId;

impl KernelWriter<'_> {
    /// Shared memory and variables that the sink needs.
    pub(in crate::codegen) fn begin_sink(&mut self) -> Result<()> {
        match &self.pipeline.sink {
            // Rows that stay where they are need no places.
            sink if sink.borrowed().is_some() => {}
            EmittedSink::Rows { in_place: true, .. } if !self.pipeline.warps_alone() => {}
            EmittedSink::Rows { .. }
            | EmittedSink::Matches { .. }
            | EmittedSink::Collect { .. }
                if !self.pipeline.warps_alone() =>
            {
                self.share("ReserveScratch reserve", RESERVE_BYTES);
            }
            EmittedSink::Build { layout, .. } if layout.is_direct() => {
                line!(self, "  u32 entered = 0;");
            }
            EmittedSink::Build { .. } if !self.pipeline.warps_alone() => {
                self.share("ReserveScratch reserve", RESERVE_BYTES);
            }
            EmittedSink::Aggregate { .. } => self.begin_groups()?,
            // Warps that go alone reserve for themselves.
            _ => {}
        }
        Ok(())
    }

    /// What happens to the live rows of a tile.
    pub(in crate::codegen) fn sink(&mut self) -> Result<()> {
        // Taken out while its text is written.
        let sink = std::mem::replace(&mut self.pipeline.sink, EmittedSink::Discard);
        let outcome = match &sink {
            EmittedSink::Rows {
                into,
                values,
                in_place,
                enough,
            } => self.rows(*into, values, *in_place, enough.as_deref()),
            EmittedSink::Collect {
                into,
                layout,
                key,
                values,
            } => self.collect(*into, layout, key, values),
            EmittedSink::Matches {
                into,
                values,
                probe,
                kind,
                joined,
                columns,
                borrowed,
                key_aliases,
            } => {
                let row = (columns.as_slice(), values.as_slice());
                let in_table = (borrowed.as_ref(), key_aliases.as_slice());
                match joined {
                    Some(joined) => self.rows_to_join(*into, row, *probe, joined, in_table),
                    None => self.ranges(*into, row, *probe, *kind),
                }
            }
            EmittedSink::Build {
                into,
                layout,
                has_key,
                codes,
                values,
                keep_without_key,
            } => {
                if layout.is_direct() {
                    self.build_direct(*into, layout, has_key.as_deref(), &codes[0], values)
                } else {
                    self.build_rows(
                        *into,
                        layout,
                        has_key.as_deref(),
                        codes,
                        values,
                        *keep_without_key,
                    )
                }
            }
            EmittedSink::Aggregate { .. } => {
                self.pipeline.sink = sink;
                return self.groups();
            }
            EmittedSink::Discard => Ok(()),
        };
        self.pipeline.sink = sink;
        outcome
    }

    /// After the last tile.
    pub(in crate::codegen) fn finish_sink(&mut self) -> Result<()> {
        match &self.pipeline.sink {
            EmittedSink::Build { into, layout, .. } if layout.is_direct() => {
                let count = self.control(*into, ControlWord::Count);
                line!(
                    self,
                    "  {{ const u64 total = warp_sum((u64)entered); if (lane_id() == 0 && total != 0) atomicAdd(&{count}, total); }}"
                );
                Ok(())
            }
            EmittedSink::Aggregate { .. } => self.finish_groups(),
            _ => Ok(()),
        }
    }

    fn result_columns(&self, result: ResultId) -> Result<Vec<ColumnLayout>> {
        match self.known(result) {
            Some(ResultLayout::Rows(columns)) => Ok(columns.clone()),
            _ => Err(GpuError::Internal(format!("result {result} has no rows"))),
        }
    }

    /// Rows with their packed keys.
    fn collect(
        &mut self,
        into: ResultId,
        layout: &CollectedLayout,
        key: &str,
        values: &[Value],
    ) -> Result<()> {
        let borrowed = layout.borrowed.as_ref();
        let in_table = |column| borrowed.is_some_and(|b| b.has(column));
        let mut cells = self.cells(into, &layout.columns, values, in_table)?;
        if borrowed.is_none_or(|b| b.key.is_none()) {
            cells.push(Cell {
                pointer: self.pointer(Slot::Result(into, Part::KeyWord(0)), layout.key_pointer()),
                c_type: layout.key_type(),
                text: key.to_string(),
            });
        }
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        self.write_rows(into, borrowed.is_some(), None, &lines, &cells);
        Ok(())
    }

    fn rows(
        &mut self,
        into: ResultId,
        values: &[Value],
        in_place: bool,
        enough: Option<&str>,
    ) -> Result<()> {
        let columns = self.result_columns(into)?;
        let cells = self.cells(into, &columns, values, |_| false)?;
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        let in_place = in_place && !self.pipeline.warps_alone();
        self.write_rows(into, in_place, enough, &lines, &cells);
        Ok(())
    }
}
