//! The text of a build: rows whose keys are finished later, or entered into a perfect index at once.

use std::fmt::Write as _;

use crate::codegen::ir::results::{ControlWord, IndexLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::Value;
use crate::codegen::kernel::stores::Cell;
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::Result;
use crate::graph::ResultId;

impl KernelWriter<'_> {
    /// Rows of an index that is finished from its key words later.
    pub(in crate::codegen) fn build_rows(
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
        let in_table = |column| borrowed.is_some_and(|b| b.has(column));
        let mut cells = self.cells(into, &layout.columns, values, in_table)?;
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
        self.write_rows(into, borrowed.is_some(), None, &lines, &cells);
        Ok(())
    }

    /// Enter rows into a perfect index at the place of their key.
    pub(in crate::codegen) fn build_direct(
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
        line!(self, "          const u32 place = (u32)({code});");
        line!(self, "          bit_run_set(run, {bits}, place);");
        line!(self, "          ++entered;");
        for (column, (stored, value)) in layout.columns.iter().zip(values).enumerate() {
            if layout.not_stored(column).is_none() {
                self.store(into, column, stored, value, "place")?;
            }
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
