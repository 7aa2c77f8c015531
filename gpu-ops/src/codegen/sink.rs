//! The sinks of a kernel that write rows: results, matches and indexes.

use super::emit::EmittedSink;
use super::kernel::{KernelWriter, line};
use super::program::{
    CollectedLayout, ColumnLayout, ControlWord, IndexLayout, JoinedMatches, ResultLayout,
};
use super::value::Value;
use crate::error::{GpuError, Result};
use crate::graph::{IndexKind, ProbeKind, ResultId};
use std::fmt::Write as _;

/// Bytes of `ReserveScratch` of `join.cuh`.
const RESERVE_BYTES: usize = 136;

/// A perfect index that is complete once its pipeline has run.
fn is_direct(layout: &IndexLayout) -> bool {
    layout.kind == IndexKind::Perfect && (layout.unique || layout.existence)
}

impl KernelWriter<'_> {
    /// Shared memory and variables that the sink needs.
    pub(super) fn begin_sink(&mut self) -> Result<()> {
        match &self.pipeline.sink {
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
    pub(super) fn sink(&mut self) -> Result<()> {
        // Taken out while its text is written.
        let sink = std::mem::replace(&mut self.pipeline.sink, EmittedSink::Discard);
        let outcome = match &sink {
            EmittedSink::Rows { into, values } => self.rows(*into, values, None),
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
            } => self.rows(*into, values, Some((*probe, *kind, *joined))),
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
    pub(super) fn finish_sink(&mut self) -> Result<()> {
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
            Some(ResultLayout::Rows(columns) | ResultLayout::Matches { columns, .. }) => {
                Ok(columns.clone())
            }
            _ => Err(GpuError::Internal(format!("result {result} has no rows"))),
        }
    }

    /// Reserve a place for each live row: row k's is `first + spot[k]`.
    fn reserve(&mut self, into: ResultId) {
        let count = self.control(into, ControlWord::Count);
        if self.pipeline.tree.is_some() {
            line!(
                self,
                "    const u32 spot[WL_ROWS] = {{}}; const u64 first = warp_reserve(live & 1u, &{count});"
            );
            return;
        }
        line!(
            self,
            "    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &{count}, shared.reserve, spot);"
        );
    }

    /// Rows with their packed keys.
    fn collect(
        &mut self,
        into: ResultId,
        layout: &CollectedLayout,
        key: &str,
        values: &[Value],
    ) -> Result<()> {
        self.reserve(into);
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        line!(self, "    if (live != 0) {{");
        self.row_loop(&lines, "live");
        let capacity = self.size(&format!("cap{into}"));
        line!(
            self,
            "        const u64 at = first + spot[k]; if (alive && at < {capacity}) {{"
        );
        for (column, (stored, value)) in layout.columns.iter().zip(values).enumerate() {
            self.store(into, column, stored, value, "at")?;
        }
        let keys = self.pointer(&format!("r{into}k0"), layout.key_pointer());
        line!(self, "          {keys}[at] = {key};");
        line!(self, "        }}\n      }}\n    }}");
        Ok(())
    }

    fn rows(
        &mut self,
        into: ResultId,
        values: &[Value],
        matches: Option<(usize, ProbeKind, Option<JoinedMatches>)>,
    ) -> Result<()> {
        let columns = self.result_columns(into)?;
        self.reserve(into);
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        line!(self, "    if (live != 0) {{");
        self.row_loop(&lines, "live");
        let capacity = self.size(&format!("cap{into}"));
        line!(
            self,
            "        const u64 at = first + spot[k]; if (alive && at < {capacity}) {{"
        );
        for (column, (layout, value)) in columns.iter().zip(values).enumerate() {
            self.store(into, column, layout, value, "at")?;
        }
        if let Some((p, _, Some(joined))) = matches {
            let keys = self.pointer(&format!("r{into}k0"), joined.keys.pointer());
            line!(self, "          {keys}[at] = j{p}[k];");
        } else if let Some((p, kind, None)) = matches {
            let start = self.pointer(&format!("r{into}start"), "u32*");
            let length = self.pointer(&format!("r{into}len"), "u32*");
            if !kind.appends_payload() {
                // The row alone.
                line!(
                    self,
                    "          {start}[at] = 0xffffffffu; {length}[at] = 1u;"
                );
            } else if kind == ProbeKind::Left {
                // One pair without an entry.
                line!(
                    self,
                    "          {start}[at] = length{p}[k] != 0 ? first{p}[k] : 0xffffffffu;"
                );
                line!(
                    self,
                    "          {length}[at] = length{p}[k] != 0 ? length{p}[k] : 1u;"
                );
            } else {
                line!(self, "          {start}[at] = first{p}[k];");
                line!(self, "          {length}[at] = length{p}[k];");
            }
        }
        line!(self, "        }}");
        line!(self, "      }}\n    }}");
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
        self.reserve(into);
        line!(self, "    if (live != 0) {{");
        self.row_loop(&lines, "live");
        let capacity = self.size(&format!("cap{into}"));
        line!(
            self,
            "        const u64 at = first + spot[k]; if (alive && at < {capacity}) {{"
        );
        for (column, (stored, value)) in layout.columns.iter().zip(values).enumerate() {
            self.store(into, column, stored, value, "at")?;
        }
        if let Some(keys) = &layout.join_keys {
            let (t, packed) = (keys.c_type(), keys.packed(codes));
            let words = self.pointer(&format!("r{into}k0"), keys.pointer());
            match has_key.filter(|_| keep_without_key) {
                Some(has_key) => {
                    line!(
                        self,
                        "          {words}[at] = {has_key} ? {packed} : ~({t})0;"
                    )
                }
                None => line!(self, "          {words}[at] = {packed};"),
            }
        }
        let words_apart = match layout.join_keys {
            Some(_) => &[],
            None => codes,
        };
        for (word, code) in words_apart.iter().enumerate() {
            let words = self.pointer(&format!("r{into}k{word}"), "u64*");
            match has_key {
                // The first word says that there is no key.
                Some(has_key) if keep_without_key => {
                    line!(
                        self,
                        "          {words}[at] = {has_key} ? {code} : WL_EMPTY_KEY;"
                    );
                }
                _ => line!(self, "          {words}[at] = {code};"),
            }
        }
        line!(self, "        }}");
        line!(self, "      }}\n    }}");
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
        let bits = self.pointer(&format!("r{into}bits"), "u32*");
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
