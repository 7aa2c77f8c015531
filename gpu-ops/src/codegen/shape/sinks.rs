//! The sinks of a kernel that write rows: results, matches and indexes.

use std::fmt::Write as _;

use crate::codegen::group::states::RESERVE_BYTES;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::{
    Borrowed, CollectedLayout, ControlWord, IndexLayout, JoinedMatches, ResultLayout,
};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::Value;
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};
use crate::graph::{IndexKind, ProbeKind, ResultId};

/// What one array of a result gets of a row.
struct Cell {
    /// C++ text of the array.
    pointer: String,
    /// Its element type.
    c_type: &'static str,
    /// C++ text of the element.
    text: String,
}

/// A perfect index that is complete once its pipeline has run.
fn is_direct(layout: &IndexLayout) -> bool {
    layout.kind == IndexKind::Perfect && (layout.unique || layout.existence)
}

impl KernelWriter<'_> {
    /// Shared memory and variables that the sink needs.
    pub(in crate::codegen) fn begin_sink(&mut self) -> Result<()> {
        match &self.pipeline.sink {
            // Rows that stay where they are need no places.
            sink if sink.borrowed().is_some() => {}
            EmittedSink::Rows { in_place: true, .. } if self.pipeline.tree.is_none() => {}
            EmittedSink::Rows { .. }
            | EmittedSink::Matches { .. }
            | EmittedSink::Collect { .. }
                if self.pipeline.tree.is_none() =>
            {
                self.share("ReserveScratch reserve", RESERVE_BYTES);
            }
            EmittedSink::Build { layout, .. } if is_direct(layout) => {
                line!(self, "  u32 entered = 0;");
            }
            EmittedSink::Build { .. } if self.pipeline.tree.is_none() => {
                self.share("ReserveScratch reserve", RESERVE_BYTES);
            }
            EmittedSink::Aggregate { .. } => self.begin_groups()?,
            // Warps of a tree reserve for themselves.
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
            } => self.rows(*into, values, *in_place),
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
                twins,
            } => {
                let row = (columns.as_slice(), values.as_slice());
                let lent = (borrowed.as_ref(), twins.as_slice());
                match joined {
                    Some(joined) => self.rows_to_join(*into, row, *probe, joined, lent),
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
                if is_direct(layout) {
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
            EmittedSink::Build { into, layout, .. } if is_direct(layout) => {
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

    /// What the columns of a result get of a row; nothing for those that are `elsewhere`.
    fn cells(
        &mut self,
        into: ResultId,
        columns: &[ColumnLayout],
        values: &[Value],
        elsewhere: impl Fn(usize) -> bool,
    ) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for (column, (layout, value)) in columns.iter().zip(values).enumerate() {
            if elsewhere(column) {
                continue;
            }
            cells.push(Cell {
                pointer: self.column_pointer(into, column, layout),
                c_type: layout.storage(),
                text: self.stored(layout, value)?,
            });
            if layout.nullable {
                cells.push(Cell {
                    pointer: self.valid_pointer(into, column),
                    c_type: "u8",
                    text: format!("(u8)({})", value.valid_text()),
                });
            }
        }
        Ok(cells)
    }

    /// Give each live row a place and write its cells: a place at the end of the result, or `in_place` that which the row
    /// has in the source, all rows of which are live.
    fn write_rows(&mut self, into: ResultId, in_place: bool, lines: &[String], cells: &[Cell]) {
        let count = self.control(into, ControlWord::Count);
        if in_place {
            let first = self.first_row().unwrap_or_else(|| "0".to_string());
            line!(
                self,
                "    if (row == {first} && threadIdx.x == 0) {count} = rows;"
            );
        } else if self.pipeline.tree.is_some() {
            line!(
                self,
                "    const u32 spot[WL_ROWS] = {{}}; const u64 first = warp_reserve(live & 1u, &{count});"
            );
        } else {
            line!(
                self,
                "    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &{count}, shared.reserve, spot);"
            );
        }
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let capacity = self.size(Slot::Capacity(into));
        if in_place {
            line!(self, "    if (live != 0 && row < {capacity}) {{");
            for (number, Cell { c_type, .. }) in cells.iter().enumerate() {
                line!(self, "      {c_type} w{number}[WL_ROWS] = {{}};");
            }
        } else {
            line!(self, "    if (live != 0) {{");
        }
        self.row_loop(lines, "live");
        if in_place {
            line!(self, "        if (alive) {{");
            for (number, Cell { text, .. }) in cells.iter().enumerate() {
                line!(self, "          w{number}[k] = {text};");
            }
        } else {
            line!(
                self,
                "        const u64 at = first + spot[k]; if (alive && at < {capacity}) {{"
            );
            for Cell { pointer, text, .. } in cells {
                line!(self, "          {pointer}[at] = {text};");
            }
        }
        line!(self, "        }}\n      }}");
        if in_place {
            // Every part has room for whole vectors.
            for (number, Cell { pointer, .. }) in cells.iter().enumerate() {
                line!(self, "      store_vec({pointer} + row, w{number});");
            }
        }
        line!(self, "    }}");
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
        let lent = |column| borrowed.is_some_and(|b| b.has(column));
        let mut cells = self.cells(into, &layout.columns, values, lent)?;
        if borrowed.is_none_or(|b| b.key.is_none()) {
            cells.push(Cell {
                pointer: self.pointer(Slot::Result(into, Part::KeyWord(0)), layout.key_pointer()),
                c_type: layout.key_type(),
                text: key.to_string(),
            });
        }
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        self.write_rows(into, borrowed.is_some(), &lines, &cells);
        Ok(())
    }

    fn rows(&mut self, into: ResultId, values: &[Value], in_place: bool) -> Result<()> {
        let columns = self.result_columns(into)?;
        let cells = self.cells(into, &columns, values, |_| false)?;
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        let in_place = in_place && self.pipeline.tree.is_none();
        self.write_rows(into, in_place, &lines, &cells);
        Ok(())
    }

    /// Probing rows with the keys that probe `p` made of them, to be joined in memory.
    fn rows_to_join(
        &mut self,
        into: ResultId,
        (columns, values): (&[ColumnLayout], &[Value]),
        p: usize,
        joined: &JoinedMatches,
        (borrowed, twins): (Option<&Borrowed>, &[usize]),
    ) -> Result<()> {
        let elsewhere = |column| borrowed.is_some_and(|b| b.has(column)) || twins.contains(&column);
        let mut cells = self.cells(into, columns, values, elsewhere)?;
        if borrowed.is_none_or(|b| b.key.is_none()) {
            cells.push(Cell {
                pointer: self.pointer(Slot::Result(into, Part::KeyWord(0)), joined.keys.pointer()),
                c_type: joined.keys.c_type(),
                text: format!("j{p}[k]"),
            });
        }
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        self.write_rows(into, borrowed.is_some(), &lines, &cells);
        Ok(())
    }

    /// Probing rows with the ranges of entries that probe `p` found.
    fn ranges(
        &mut self,
        into: ResultId,
        (columns, values): (&[ColumnLayout], &[Value]),
        p: usize,
        kind: ProbeKind,
    ) -> Result<()> {
        let mut cells = self.cells(into, columns, values, |_| false)?;
        let (start, length) = if !kind.appends_payload() {
            // The row alone.
            ("0xffffffffu".to_string(), "1u".to_string())
        } else if kind == ProbeKind::Left {
            // Without a match one pair without an entry.
            (
                format!("length{p}[k] != 0 ? first{p}[k] : 0xffffffffu"),
                format!("length{p}[k] != 0 ? length{p}[k] : 1u"),
            )
        } else {
            (format!("first{p}[k]"), format!("length{p}[k]"))
        };
        for (part, text) in [(Part::Start, start), (Part::Length, length)] {
            cells.push(Cell {
                pointer: self.pointer(Slot::Result(into, part), "u32*"),
                c_type: "u32",
                text,
            });
        }
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        self.write_rows(into, false, &lines, &cells);
        Ok(())
    }

    /// Rows of an index that is finished from its key words later.
    fn build_rows(
        &mut self,
        into: ResultId,
        layout: &IndexLayout,
        has_key: Option<&str>,
        codes: &[String],
        values: &[Value],
        keep_without_key: bool,
    ) -> Result<()> {
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        if let Some(has_key) = has_key {
            let null_key = self.control(into, ControlWord::NullKey);
            line!(self, "    u32 keyed = 0;");
            line!(self, "    if (live != 0) {{");
            self.row_loop(&lines, "live");
            line!(self, "        keyed |= (u32)(alive && {has_key}) << k;");
            line!(
                self,
                "      }}\n      if ((live & ~keyed) != 0) store_relaxed(&{null_key}, (u64)1);\n    }}"
            );
            if !keep_without_key {
                line!(self, "    live &= keyed;");
            }
        }
        let borrowed = layout.borrowed.as_ref();
        let lent = |column| borrowed.is_some_and(|b| b.has(column));
        let mut cells = self.cells(into, &layout.columns, values, lent)?;
        if let Some(keys) = &layout.join_keys {
            let (t, packed) = (keys.c_type(), keys.packed(codes));
            if borrowed.is_none_or(|b| b.key.is_none()) {
                cells.push(Cell {
                    pointer: self.pointer(Slot::Result(into, Part::KeyWord(0)), keys.pointer()),
                    c_type: t,
                    text: match has_key.filter(|_| keep_without_key) {
                        Some(has_key) => format!("{has_key} ? {packed} : ~({t})0"),
                        None => packed,
                    },
                });
            }
        } else {
            for (word, code) in codes.iter().enumerate() {
                cells.push(Cell {
                    pointer: self.pointer(Slot::Result(into, Part::KeyWord(word)), "u64*"),
                    c_type: "u64",
                    text: match has_key.filter(|_| keep_without_key) {
                        // The first word says that there is no key.
                        Some(has_key) => format!("{has_key} ? {code} : WL_EMPTY_KEY"),
                        None => code.clone(),
                    },
                });
            }
        }
        self.write_rows(into, borrowed.is_some(), &lines, &cells);
        Ok(())
    }

    /// Enter rows into a perfect index at the place of their key.
    fn build_direct(
        &mut self,
        into: ResultId,
        layout: &IndexLayout,
        has_key: Option<&str>,
        code: &str,
        values: &[Value],
    ) -> Result<()> {
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        let bits = self.pointer(Slot::Result(into, Part::Bits), "u32*");
        line!(self, "    if (live != 0) {{\n      BitRun run = {{}};");
        self.row_loop(&lines, "live");
        match has_key {
            None => line!(self, "        if (alive) {{"),
            Some(has_key) => {
                let null_key = self.control(into, ControlWord::NullKey);
                line!(
                    self,
                    "        if (alive && !{has_key}) store_relaxed(&{null_key}, (u64)1);"
                );
                line!(self, "        if (alive && {has_key}) {{");
            }
        }
        line!(self, "          const u64 place = {code};");
        line!(self, "          bit_run_set(run, {bits}, place);");
        line!(self, "          ++entered;");
        for (column, (stored, value)) in layout.columns.iter().zip(values).enumerate() {
            self.store(into, column, stored, value, "place")?;
        }
        line!(self, "        }}\n      }}");
        line!(self, "      bit_run_flush(run, {bits});");
        if layout.unique {
            let duplicate = self.control(into, ControlWord::Duplicate);
            line!(
                self,
                "      if (run.twice) store_relaxed(&{duplicate}, (u64)1);"
            );
        }
        line!(self, "    }}");
        Ok(())
    }
}
