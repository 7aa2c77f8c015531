//! The text of a pipeline's kernel: tiles of rows, loads where columns are first needed, steps, sink.
//!
//! A block takes tiles in a grid-stride loop; a thread owns 8 (or 1) consecutive rows, so a column of width `w`
//! is read as one vector of `8 w` bytes a thread. `live` has one bit for each row that is still wanted;
//! columns are read when the first step needs them, and only by threads with a live row (Crystal's selection
//! flags). All threads reach every sink, so that a block can reserve output rows together.

use std::fmt::Write as _;

use super::CONTROL_WORDS;
use super::emit::{EmittedPipeline, EmittedProbe, EmittedSink, EmittedStep, Known, Test};
use super::program::{
    ColumnLayout, ControlWord, IndexLayout, KernelProgram, ResultLayout, SourceRows,
};
use super::scope::{Access, ScopeColumn, Shape};

use super::value::{CType, Meaning, Value};
use crate::column::Encoding;
use crate::error::{GpuError, Result};
use crate::graph::{IndexKind, ProbeKind, ResultId};

/// Threads a block of every generated kernel.
pub const BLOCK_THREADS: u32 = 256;

macro_rules! line {
    ($writer:expr, $($arg:tt)*) => {{ let _ = writeln!($writer.text, $($arg)*); }};
}
pub(super) use line;

/// Builds the text of one kernel.
pub(super) struct KernelWriter<'a> {
    pub(super) pipeline: &'a mut EmittedPipeline,
    known: &'a [Option<Known>],
    fault_word: usize,
    /// Statements of the kernel.
    pub(super) text: String,
    /// Members of the kernel's struct in shared memory.
    pub(super) shared: String,
    pub(super) shared_bytes: usize,
    loaded: Vec<usize>,
    scan_columns: Vec<usize>,
}

/// Write the kernel of `pipeline`.
pub(super) fn write(
    pipeline: &mut EmittedPipeline,
    known: &[Option<Known>],
    label: String,
) -> Result<KernelProgram> {
    let thread_rows = pipeline.thread_rows;
    let source_rows = pipeline.source_rows;
    let mut writer = KernelWriter {
        pipeline,
        known,
        fault_word: known.len() * CONTROL_WORDS,
        text: String::new(),
        shared: String::new(),
        shared_bytes: 0,
        loaded: Vec::new(),
        scan_columns: Vec::new(),
    };
    writer.kernel()?;
    let KernelWriter {
        text,
        shared,
        shared_bytes,
        scan_columns,
        ..
    } = writer;
    let into = match &pipeline.sink {
        EmittedSink::Rows { into, .. }
        | EmittedSink::Matches { into, .. }
        | EmittedSink::Aggregate { into, .. }
        | EmittedSink::Build { into, .. } => Some(*into),
        EmittedSink::Discard => None,
    };
    let mut source = format!(
        "#define WL_BLOCK_THREADS {BLOCK_THREADS}\n#define WL_ROWS {thread_rows}\n#include \"simt.cuh\"\n\
         #include \"primitives.cuh\"\n#include \"pipeline.cuh\"\n#include \"join.cuh\"\n#include \"strings.cuh\"\n\n{}\n",
        pipeline.state.arguments.declaration("Args"),
    );
    if !shared.is_empty() {
        let _ = writeln!(source, "struct Shared {{\n{shared}}};\n");
    }
    source.push_str("WL_KERNEL(pipeline, Args, args) {\n");
    if !shared.is_empty() {
        source.push_str("  WL_SHARED(Shared, shared);\n");
    }
    source.push_str(&text);
    source.push_str("}\n");
    Ok(KernelProgram {
        source,
        entry: "pipeline",
        arguments: pipeline.state.arguments.clone(),
        lookups: std::mem::take(&mut pipeline.state.lookups),
        shared_bytes,
        source_rows,
        tile_rows: u64::from(thread_rows) * u64::from(BLOCK_THREADS),
        into,
        scan_columns,
        label,
    })
}

impl KernelWriter<'_> {
    /// C++ text of the control word of a result.
    pub(super) fn control(&mut self, result: ResultId, word: ControlWord) -> String {
        let control = self.pipeline.state.arguments.pointer("control", "u64*");
        format!("{control}[{}]", result * CONTROL_WORDS + word as usize)
    }

    /// The layout of a result.
    pub(super) fn known(&self, result: ResultId) -> Option<&ResultLayout> {
        self.known.get(result)?.as_ref().map(|k| &k.layout)
    }

    fn index(&self, result: ResultId) -> Result<&IndexLayout> {
        match self.known(result) {
            Some(ResultLayout::Index(layout)) => Ok(layout),
            _ => Err(GpuError::Internal(format!(
                "result {result} is not an index"
            ))),
        }
    }

    /// A member of the shared struct, 16-byte aligned.
    pub(super) fn share(&mut self, declaration: &str, bytes: usize) {
        let _ = writeln!(self.shared, "  alignas(16) {declaration};");
        self.shared_bytes += bytes.next_multiple_of(16);
    }

    fn kernel(&mut self) -> Result<()> {
        line!(self, "  u32 fault = 0;");
        self.begin_sink()?;
        let rows = self.pipeline.state.arguments.size("rows");
        match self.pipeline.source_rows {
            SourceRows::Rows(result) => {
                let count = self.control(result, ControlWord::Count);
                line!(self, "  const u64 rows = min_u64({count}, {rows});");
            }
            SourceRows::Pairs(result) => {
                let count = self.control(result, ControlWord::Count);
                let capacity = self.pipeline.state.arguments.size(&format!("cap{result}"));
                let pairs = self
                    .pipeline
                    .state
                    .arguments
                    .pointer(&format!("r{result}pairs"), "const u64*");
                line!(
                    self,
                    "  const u64 rows = {pairs}[min_u64({count}, {capacity})];"
                );
            }
            SourceRows::One => line!(self, "  const u64 rows = 1;"),
            _ => line!(self, "  const u64 rows = {rows};"),
        }
        let tile = u64::from(self.pipeline.thread_rows) * u64::from(BLOCK_THREADS);
        let all = (1u32 << self.pipeline.thread_rows) - 1;
        line!(self, "  const u64 tiles = (rows + {}) / {tile};", tile - 1);
        line!(
            self,
            "  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"
        );
        line!(
            self,
            "    const u64 row = tile * {tile} + threadIdx.x * WL_ROWS;"
        );
        line!(
            self,
            "    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? {all}u : (1u << (u32)(rows - row)) - 1u;"
        );
        for text in self.pipeline.prologue.clone() {
            line!(self, "    {text}");
        }
        let steps = std::mem::take(&mut self.pipeline.steps);
        for step in &steps {
            match step {
                EmittedStep::Filter(test) => self.filter(test, "live"),
                EmittedStep::Probe(probe) => self.probe(probe)?,
            }
        }
        self.sink()?;
        line!(self, "  }}");
        self.finish_sink()?;
        if self.pipeline.state.faults {
            let control = self.pipeline.state.arguments.pointer("control", "u64*");
            line!(
                self,
                "  if (fault != 0) atomicMax({control} + {}, (u64)fault);",
                self.fault_word
            );
        }
        Ok(())
    }

    /// Keep the rows of `mask` that pass.
    fn filter(&mut self, test: &Test, mask: &str) {
        self.load(&test.columns);
        line!(self, "    if ({mask} != 0) {{ u32 pass = 0;");
        self.row_loop(&test.lines, mask);
        line!(self, "        pass |= (u32)({}) << k;", test.passes);
        line!(self, "      }}\n      {mask} &= pass;\n    }}");
    }

    /// Open the loop over a thread's rows; the caller closes it. `alive`: the row's bit of `mask`.
    pub(super) fn row_loop(&mut self, lines: &[String], mask: &str) {
        line!(self, "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {{");
        line!(self, "        const bool alive = (({mask} >> k) & 1) != 0;");
        for text in lines {
            line!(self, "        {text}");
        }
    }

    /// Read columns that no earlier step has read.
    pub(super) fn load(&mut self, columns: &[usize]) {
        for &i in columns {
            if self.loaded.contains(&i) {
                continue;
            }
            self.loaded.push(i);
            let column = self.pipeline.scope[i].clone();
            match &column.access {
                Access::Scan => self.load_scan(i, &column),
                Access::Direct { result, column: of } => {
                    let Shape::Stored(layout) = &column.shape else {
                        continue;
                    };
                    self.declare(i, layout.storage(), layout.nullable);
                    let t = layout.storage();
                    let data = self.column_pointer(*result, *of, layout);
                    line!(self, "    if (live != 0) {{");
                    line!(
                        self,
                        "      load_vec_stream<{t}, WL_ROWS>({data} + row, c{i});"
                    );
                    // Past the last row, and at unused places of an index, there may be anything.
                    line!(
                        self,
                        "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if (((live >> k) & 1) == 0) c{i}[k] = 0;"
                    );
                    if layout.nullable {
                        let valid = self.valid_pointer(*result, *of);
                        line!(
                            self,
                            "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) n{i} |= (u32)({valid}[row + k] != 0) << k;"
                        );
                    }
                    line!(self, "    }}");
                }
                Access::Gather {
                    result,
                    column: of,
                    entry,
                    mask,
                } => {
                    let Shape::Stored(layout) = &column.shape else {
                        continue;
                    };
                    self.declare(i, layout.storage(), column.nullable);
                    line!(self, "    if ((live & {mask}) != 0) {{");
                    line!(
                        self,
                        "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & {mask}) >> k & 1) {{"
                    );
                    let text = self.gather(
                        i,
                        layout,
                        *result,
                        *of,
                        &format!("{entry}[k]"),
                        column.nullable,
                    );
                    line!(self, "        {text}");
                    line!(self, "      }}\n    }}");
                }
                Access::Broadcast { result, column: of } => {
                    let Shape::Stored(layout) = &column.shape else {
                        continue;
                    };
                    self.declare(i, layout.storage(), true);
                    let count = self.control(*result, ControlWord::Count);
                    let text = self.gather(i, layout, *result, *of, "0", true);
                    line!(self, "    if (live != 0 && {count} != 0) {{");
                    line!(
                        self,
                        "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {{ {text} }}"
                    );
                    line!(self, "    }}");
                }
                Access::Lines(lines) => {
                    let Shape::Computed { c_type, .. } = &column.shape else {
                        continue;
                    };
                    self.declare(i, c_type.name(), column.nullable);
                    line!(
                        self,
                        "    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {{"
                    );
                    for text in lines {
                        let text = text
                            .replace("{c}", &format!("c{i}"))
                            .replace("{n}", &format!("n{i}"));
                        line!(self, "      {text}");
                    }
                    line!(self, "    }}");
                }
                Access::None => {}
            }
        }
    }

    fn declare(&mut self, i: usize, storage: &str, nullable: bool) {
        line!(self, "    {storage} c{i}[WL_ROWS] = {{}};");
        if nullable {
            line!(self, "    u32 n{i} = 0;");
        }
    }

    /// Statement: read entry `entry` of a result's column into `c{i}[k]`, `n{i}`.
    fn gather(
        &mut self,
        i: usize,
        layout: &ColumnLayout,
        result: ResultId,
        column: usize,
        entry: &str,
        masked: bool,
    ) -> String {
        let data = self.column_pointer(result, column, layout);
        let mut text = format!("c{i}[k] = {data}[{entry}];");
        if layout.nullable {
            let valid = self.valid_pointer(result, column);
            let _ = write!(text, " n{i} |= (u32)({valid}[{entry}] != 0) << k;");
        } else if masked {
            let _ = write!(text, " n{i} |= 1u << k;");
        }
        text
    }

    fn column_pointer(&mut self, result: ResultId, column: usize, layout: &ColumnLayout) -> String {
        let t = match layout.storage() {
            "u8" => "u8*",
            "u16" => "u16*",
            "u32" => "u32*",
            "u64" => "u64*",
            "f32" => "f32*",
            "f64" => "f64*",
            _ => "i128*",
        };
        self.pipeline
            .state
            .arguments
            .pointer(&format!("r{result}c{column}"), t)
    }

    fn valid_pointer(&mut self, result: ResultId, column: usize) -> String {
        self.pipeline
            .state
            .arguments
            .pointer(&format!("r{result}n{column}"), "u8*")
    }

    fn load_scan(&mut self, i: usize, column: &ScopeColumn) {
        let Shape::Resident(resident) = &column.shape else {
            return;
        };
        self.scan_columns.push(i);
        let arguments = &mut self.pipeline.state.arguments;
        // Eight rows of a byte, or as many of them as the thread has.
        let bits = |name: &str| match self.pipeline.thread_rows {
            8 => format!("load_bits8({name}, row)"),
            rows => format!(
                "(load_bits8({name}, row) >> (row & 7)) & {}u",
                (1u32 << rows) - 1
            ),
        };
        if resident.validity.is_some() {
            let name = arguments.pointer(&format!("n{i}"), "const u8*");
            let bits = bits(&name);
            line!(self, "    u32 n{i} = 0; if (live != 0) n{i} = {bits};");
        }
        let arguments = &mut self.pipeline.state.arguments;
        let (c_type, pointer) = match &resident.encoding {
            Encoding::Bits => {
                let name = arguments.pointer(&format!("c{i}"), "const u8*");
                let bits = bits(&name);
                line!(self, "    u32 c{i} = 0; if (live != 0) c{i} = {bits};");
                return;
            }
            Encoding::Integer { width: 1, .. } | Encoding::Dictionary { width: 1, .. } => {
                ("u8", "const u8*")
            }
            Encoding::Integer { width: 2, .. } | Encoding::Dictionary { width: 2, .. } => {
                ("u16", "const u16*")
            }
            Encoding::Integer { width: 4, .. } | Encoding::Dictionary { .. } => {
                ("u32", "const u32*")
            }
            Encoding::Integer { width: 16, .. } => ("i128", "const i128*"),
            Encoding::Integer { .. } => ("u64", "const u64*"),
            Encoding::Float { width: 4 } => ("f32", "const f32*"),
            Encoding::Float { .. } => ("f64", "const f64*"),
            // Such strings are read where they are used, by row.
            Encoding::Bytes { .. } => return,
        };
        let name = arguments.pointer(&format!("c{i}"), pointer);
        line!(self, "    {c_type} c{i}[WL_ROWS] = {{}};");
        line!(
            self,
            "    if (live != 0) load_vec_stream<{c_type}, WL_ROWS>({name} + row, c{i});"
        );
    }

    /// Look up the keys of the live rows.
    fn probe(&mut self, probe: &EmittedProbe) -> Result<()> {
        let index = self.index(probe.index)?.clone();
        let (p, r) = (probe.number, probe.index);
        self.load(&probe.columns);
        line!(self, "    u32 h{p} = 0; u32 e{p}[WL_ROWS] = {{}};");
        if probe.ranges {
            line!(
                self,
                "    u32 first{p}[WL_ROWS] = {{}}; u32 length{p}[WL_ROWS] = {{}};"
            );
        }
        line!(self, "    if (live != 0) {{");
        self.row_loop(&probe.lines, "live");
        line!(
            self,
            "        const bool possible = alive && {};",
            probe.possible
        );
        self.look_up(probe, &index)?;
        line!(self, "      }}\n    }}");
        if probe.ranges
            && !matches!(self.pipeline.sink, EmittedSink::Matches { probe, .. } if probe == p)
        {
            self.match_loop(probe, &index)?;
        } else if let Some(residual) = &probe.residual {
            line!(self, "    u32 m{p} = live & h{p};");
            // The payload is read for rows with an entry, and only where the entry passes does it count.
            self.residual(probe, residual, &format!("m{p}"));
            line!(self, "    h{p} = m{p};");
            // What was read for the test is NULL where it failed.
            for i in probe.payload.0..probe.payload.0 + probe.payload.1 {
                if probe.kind == ProbeKind::Left && self.loaded.contains(&i) {
                    line!(self, "    n{i} &= h{p};");
                }
            }
        }
        if probe.mark_entries && !probe.ranges {
            let marks = self
                .pipeline
                .state
                .arguments
                .pointer(&format!("r{r}marks"), "u32*");
            line!(
                self,
                "    if ((live & h{p}) != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h{p}) >> k & 1) wl_set_bit({marks}, e{p}[k]);"
            );
        }
        match probe.kind {
            ProbeKind::Inner | ProbeKind::Semi => line!(self, "    live &= h{p};"),
            ProbeKind::Anti => line!(self, "    live &= ~h{p};"),
            ProbeKind::NullAwareAnti => self.null_aware(probe),
            ProbeKind::Left | ProbeKind::Mark => {}
        }
        Ok(())
    }

    /// Test the one entry of each row of `mask`.
    fn residual(&mut self, probe: &EmittedProbe, residual: &Test, mask: &str) {
        if probe.hidden.is_empty() {
            return self.filter(residual, mask);
        }
        // Later steps have other columns in these places of the scope: the payload lives in a block of its own.
        let first = probe.payload.0;
        let seen: Vec<usize> = residual
            .columns
            .iter()
            .copied()
            .filter(|c| *c < first)
            .collect();
        self.load(&seen);
        let later = self.pipeline.scope.split_off(first);
        self.pipeline.scope.extend(probe.hidden.iter().cloned());
        line!(self, "    {{");
        self.filter(residual, mask);
        line!(self, "    }}");
        self.pipeline.scope.truncate(first);
        self.pipeline.scope.extend(later);
        self.loaded.retain(|c| *c < first);
    }

    /// Set `h`, `e` or `s`, `l` of row `k` from its key.
    fn look_up(&mut self, probe: &EmittedProbe, index: &IndexLayout) -> Result<()> {
        let (p, r) = (probe.number, probe.index);
        if index.keys.is_empty() {
            let count = self.control(r, ControlWord::Count);
            let capacity = self.pipeline.state.arguments.size(&format!("cap{r}"));
            line!(
                self,
                "        const u32 entries = (u32)min_u64({count}, {capacity});"
            );
            line!(
                self,
                "        h{p} |= (u32)(possible && entries != 0) << k;"
            );
            if probe.ranges {
                line!(self, "        length{p}[k] = possible ? entries : 0;");
            }
            return Ok(());
        }
        let arguments = &mut self.pipeline.state.arguments;
        // The place that the key leads to: a key code, or a slot of the table.
        let direct = index.kind == IndexKind::Perfect && (index.unique || index.existence);
        match index.kind {
            IndexKind::Perfect => {
                line!(
                    self,
                    "        const u64 place = possible ? {} : 0ull;",
                    probe.codes[0]
                );
                if direct {
                    let bits = arguments.pointer(&format!("r{r}bits"), "const u32*");
                    line!(
                        self,
                        "        const bool found = possible && wl_bit({bits}, place);"
                    );
                } else {
                    line!(self, "        const bool found = possible;");
                }
            }
            IndexKind::Hash => {
                let keys = arguments.pointer(&format!("r{r}keys"), "const u64*");
                let slots = arguments.size(&format!("slots{r}"));
                if index.key_words == 1 {
                    line!(
                        self,
                        "        const u64 place = possible ? hash_find({keys}, {slots} - 1, {}) : WL_NO_SLOT;",
                        probe.codes[0]
                    );
                } else {
                    let states = arguments.pointer(&format!("r{r}states"), "const u32*");
                    let w = index.key_words;
                    line!(
                        self,
                        "        const u64 packed[{w}] = {{{}}};",
                        probe.codes.join(", ")
                    );
                    line!(
                        self,
                        "        const u64 place = possible ? hash_find_wide<{w}>({keys}, {states}, {slots} - 1, packed) : WL_NO_SLOT;"
                    );
                }
                line!(self, "        const bool found = place != WL_NO_SLOT;");
            }
        }
        if index.unique || index.existence {
            line!(self, "        h{p} |= (u32)found << k;");
            if index.existence {
                return Ok(());
            }
            let arguments = &mut self.pipeline.state.arguments;
            let entry = match index.kind {
                IndexKind::Perfect => "(u32)place".to_string(),
                IndexKind::Hash => {
                    let entry = arguments.pointer(&format!("r{r}entry"), "const u32*");
                    format!("{entry}[place]")
                }
            };
            line!(self, "        if (found) e{p}[k] = {entry};");
            if probe.ranges {
                line!(
                    self,
                    "        first{p}[k] = e{p}[k]; length{p}[k] = (u32)found;"
                );
            }
            return Ok(());
        }
        let offsets = self
            .pipeline
            .state
            .arguments
            .pointer(&format!("r{r}offsets"), "const u32*");
        line!(self, "        if (found) {{");
        line!(
            self,
            "          const u32 first = {offsets}[place], length = {offsets}[place + 1] - first;"
        );
        line!(self, "          h{p} |= (u32)(length != 0) << k;");
        if probe.ranges {
            line!(
                self,
                "          first{p}[k] = first; length{p}[k] = length;"
            );
        }
        line!(self, "        }}");
        Ok(())
    }

    /// Go over the entries of each row's range until one passes, or over all of them to mark them.
    fn match_loop(&mut self, probe: &EmittedProbe, index: &IndexLayout) -> Result<()> {
        let (p, r) = (probe.number, probe.index);
        let residual = probe.residual.as_ref();
        let payload = probe.payload.0..probe.payload.0 + probe.payload.1;
        let (inside, outside): (Vec<usize>, Vec<usize>) = residual
            .map(|t| t.columns.clone())
            .unwrap_or_default()
            .into_iter()
            .partition(|c| payload.contains(c));
        self.load(&outside);
        let mut loads = Vec::new();
        for &i in &inside {
            let Some(layout) = index.columns.get(i - payload.start) else {
                return Err(GpuError::Internal("a residual outside the payload".into()));
            };
            let mut text = String::new();
            let nullable = layout.nullable;
            let _ = write!(text, "{} c{i}[WL_ROWS]; ", layout.storage());
            if nullable {
                let _ = write!(text, "u32 n{i} = 0; ");
            }
            text += &self.gather(i, layout, r, i - payload.start, "entry", nullable);
            loads.push(text);
        }
        line!(self, "    u32 any{p} = 0;");
        line!(
            self,
            "    if ((live & h{p}) != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h{p}) >> k & 1) {{"
        );
        line!(self, "      for (u32 j = 0; j < length{p}[k]; ++j) {{");
        let listed = !index.keys.is_empty() && !index.unique;
        if listed {
            let rows = self
                .pipeline
                .state
                .arguments
                .pointer(&format!("r{r}rows"), "const u32*");
            line!(self, "        const u32 entry = {rows}[first{p}[k] + j];");
        } else {
            line!(self, "        const u32 entry = first{p}[k] + j;");
        }
        line!(self, "        const bool alive = true;");
        for text in loads {
            line!(self, "        {text}");
        }
        if let Some(residual) = residual {
            for text in &residual.lines {
                line!(self, "        {text}");
            }
            line!(self, "        if (!({})) continue;", residual.passes);
        }
        line!(
            self,
            "        (void)alive; any{p} |= 1u << k; e{p}[k] = entry;"
        );
        if probe.mark_entries {
            let marks = self
                .pipeline
                .state
                .arguments
                .pointer(&format!("r{r}marks"), "u32*");
            line!(self, "        wl_set_bit({marks}, entry);");
        } else {
            line!(self, "        break;");
        }
        line!(self, "      }}\n    }}\n    h{p} = any{p};");
        Ok(())
    }

    /// NOT IN: nothing matches an empty list; an unknown on either side keeps a row out otherwise.
    fn null_aware(&mut self, probe: &EmittedProbe) {
        let (p, r) = (probe.number, probe.index);
        let count = self.control(r, ControlWord::Count);
        let null = self.control(r, ControlWord::NullKey);
        line!(self, "    if ({null} != 0) live = 0;");
        line!(self, "    else if ({count} != 0) {{ u32 known = 0;");
        // Rows with an unknown key are those that are not `valid`; a key out of the index's range is known.
        let lines = probe.lines.clone();
        self.row_loop(&lines, "live");
        line!(self, "        known |= (u32)({}) << k;", probe.known);
        line!(self, "      }}\n      live &= ~h{p} & known;\n    }}");
    }

    /// Store a value at `place` of a result's column.
    pub(super) fn store(
        &mut self,
        result: ResultId,
        column: usize,
        layout: &ColumnLayout,
        value: &Value,
        place: &str,
    ) -> Result<()> {
        let data = self.column_pointer(result, column, layout);
        let t = layout.storage();
        let null_literal = value.valid.as_deref() == Some("false");
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

    /// A dictionary code in the dictionary of the layout.
    fn recoded(&mut self, value: &Value, layout: &ColumnLayout) -> Result<String> {
        let (Meaning::Code(from), Meaning::Code(to)) = (&value.meaning, &layout.meaning) else {
            return Ok(value.text.clone());
        };
        if std::sync::Arc::ptr_eq(from, to) {
            return Ok(value.text.clone());
        }
        let codes = crate::column::translate_codes(from, to)?;
        let state = &mut self.pipeline.state;
        let name = format!("table{}", state.lookups.len());
        let pointer = state.arguments.pointer(&name, "const i32*");
        let bytes = codes.iter().flat_map(|c| c.to_ne_bytes()).collect();
        state.lookups.push(super::LookupTable { name, bytes });
        Ok(format!("__ldg({pointer} + {})", value.text))
    }
}
