//! How a kernel writes rows: what a column of a result gets of a value, and the places of rows in it.

use std::fmt::Write as _;

use super::writer::{KernelWriter, line};
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::program::SourceRows;
use crate::codegen::ir::results::ControlWord;
use crate::codegen::ir::slot::Slot;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::error::Result;
use crate::graph::ResultId;

/// Bytes of `ReserveScratch` of `join.cuh`.
pub(in crate::codegen) const RESERVE_BYTES: usize = 136;

/// What one array of a result gets of a row.
pub(in crate::codegen) struct Cell {
    /// C++ text of the array.
    pub(in crate::codegen) pointer: String,
    /// Its element type.
    pub(in crate::codegen) c_type: &'static str,
    /// C++ text of the element.
    pub(in crate::codegen) text: String,
}

impl KernelWriter<'_> {
    /// What the columns of a result get of a row; nothing for those that are `elsewhere`.
    pub(in crate::codegen) fn cells(
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
    /// has in the source, or among the rows that are picked, all of which are live.
    pub(in crate::codegen) fn write_rows(
        &mut self,
        into: ResultId,
        in_place: bool,
        enough: Option<&str>,
        lines: &[String],
        cells: &[Cell],
    ) {
        let count = self.control(into, ControlWord::Count);
        // Of rows that are picked, the source has other numbers.
        let own = match self.pipeline.source_rows {
            SourceRows::Picked { .. } => "place",
            _ => "row",
        };
        if in_place {
            let first = self.first_row().unwrap_or_else(|| "0".to_string());
            line!(
                self,
                "    if ({own} == {first} && threadIdx.x == 0) {count} = rows;"
            );
        } else if self.pipeline.reserved {
            line!(
                self,
                "    const u32 spot[WL_ROWS] = {{}}; const u64 first = reserved + slot;"
            );
        } else if self.pipeline.warps_alone() {
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
        let mut capacity = self.size(Slot::Capacity(into));
        if let Some(enough) = enough {
            // Whoever counts beyond that takes it back, after which there may be others: the last one leaves the right number.
            let leader = match self.pipeline.warps_alone() {
                true => "lane_id() == 0",
                false => "threadIdx.x == 0",
            };
            line!(
                self,
                "    if ({leader} && load_relaxed(&{count}) > {enough}) atomicMin(&{count}, {enough});"
            );
            capacity = format!("min_u64({capacity}, {enough})");
        }
        if in_place {
            line!(self, "    if (live != 0 && {own} < {capacity}) {{");
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
                line!(self, "      store_vec({pointer} + {own}, w{number});");
            }
        }
        line!(self, "    }}");
    }

    /// Store a value at `place` of a result's column.
    pub(in crate::codegen) fn store(
        &mut self,
        result: ResultId,
        column: usize,
        layout: &ColumnLayout,
        value: &Value,
        place: &str,
    ) -> Result<()> {
        let data = self.column_pointer(result, column, layout);
        let text = self.stored(layout, value)?;
        line!(self, "          {data}[{place}] = {text};");
        if layout.nullable {
            let pointer = self.valid_pointer(result, column);
            line!(
                self,
                "          {pointer}[{place}] = (u8)({});",
                value.valid_text()
            );
        }
        Ok(())
    }

    /// C++ text of what is stored of a value.
    pub(in crate::codegen) fn stored(
        &mut self,
        layout: &ColumnLayout,
        value: &Value,
    ) -> Result<String> {
        let t = layout.storage();
        let null_literal = value.is_null();
        let mut text = match value.c_type {
            _ if null_literal => format!("({t})0"),
            CType::Bool | CType::F32 | CType::F64 => format!("({t}){}", value.text),
            _ if layout.width == 16 => format!("(i128){}", value.text),
            _ => {
                let code = self.recoded(value, layout)?;
                if layout.base == 0 {
                    format!("({t}){code}")
                } else {
                    // Modulo 2^64, in which the width fits.
                    format!("({t})((u64){code} - {}ull)", layout.base as u64)
                }
            }
        };
        if let Some(valid) = value.valid.as_ref().filter(|_| !null_literal) {
            text = format!("{valid} ? {text} : ({t})0");
        }
        Ok(text)
    }

    /// A dictionary code in the dictionary of the layout.
    fn recoded(&mut self, value: &Value, layout: &ColumnLayout) -> Result<String> {
        let (Meaning::Code(from), Meaning::Code(to)) = (&value.meaning, &layout.meaning) else {
            return Ok(value.text.clone());
        };
        if std::sync::Arc::ptr_eq(from, to) {
            return Ok(value.text.clone());
        }
        let codes = crate::column::translate_codes(from, to)?;
        Ok(self.pipeline.state.recoded(&value.text, codes, 0))
    }
}
