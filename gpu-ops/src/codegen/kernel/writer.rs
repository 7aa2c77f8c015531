//! The text of a pipeline's kernel: tiles of rows, loads where columns are first needed, steps, sink.
//!
//! A block takes tiles in a grid-stride loop; a thread owns 8 (or 1) consecutive rows, so a column of width `w`
//! is read as one vector of `8 w` bytes a thread. `live` has one bit for each row that is still wanted;
//! columns are read when the first step needs them, and only by threads with a live row (Crystal's selection
//! flags). All threads reach every sink, so that a block can reserve output rows together.

use std::fmt::Write as _;

use crate::codegen::ir::context::Known;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::pipeline::{EmittedPipeline, EmittedSink, EmittedStep, Test};
use crate::codegen::ir::program::{KernelProgram, SourceRows};
use crate::codegen::ir::results::{CONTROL_WORDS, ControlWord, IndexLayout, ResultLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::error::{GpuError, Result};
use crate::graph::ResultId;

/// Threads a block of most generated kernels.
pub const BLOCK_THREADS: u32 = 256;

macro_rules! line {
    ($writer:expr, $($arg:tt)*) => {{ let _ = writeln!($writer.text, $($arg)*); }};
}
pub(in crate::codegen) use line;

/// Builds the text of one kernel.
pub(in crate::codegen) struct KernelWriter<'a> {
    pub(in crate::codegen) pipeline: &'a mut EmittedPipeline,
    known: &'a [Option<Known>],
    fault_word: usize,
    /// Statements of the kernel.
    pub(in crate::codegen) text: String,
    /// Types that the struct in shared memory is made of.
    pub(in crate::codegen) structs: String,
    /// Members of the kernel's struct in shared memory.
    pub(in crate::codegen) shared: String,
    pub(in crate::codegen) shared_bytes: usize,
    /// Columns that some step has read already.
    pub(in crate::codegen) loaded: Vec<usize>,
    pub(in crate::codegen) scan_columns: Vec<usize>,
}

/// Write the kernel of `pipeline`.
pub(in crate::codegen) fn write(
    pipeline: &mut EmittedPipeline,
    known: &[Option<Known>],
    label: String,
) -> Result<KernelProgram> {
    let thread_rows = pipeline.thread_rows;
    let source_rows = pipeline.source_rows;
    let block_threads = pipeline.block_threads;
    let mut writer = KernelWriter {
        pipeline,
        known,
        fault_word: known.len() * CONTROL_WORDS,
        text: String::new(),
        structs: String::new(),
        shared: String::new(),
        shared_bytes: 0,
        loaded: Vec::new(),
        scan_columns: Vec::new(),
    };
    let tree = match writer.pipeline.tree {
        Some(options) => Some(writer.tree_kernel(options)?),
        None => {
            writer.kernel()?;
            None
        }
    };
    let KernelWriter {
        text,
        structs,
        shared,
        shared_bytes,
        scan_columns,
        ..
    } = writer;
    let into = match &pipeline.sink {
        EmittedSink::Rows { into, .. }
        | EmittedSink::Matches { into, .. }
        | EmittedSink::Aggregate { into, .. }
        | EmittedSink::Collect { into, .. }
        | EmittedSink::Build { into, .. } => Some(*into),
        EmittedSink::Discard => None,
    };
    let mut source = format!(
        "#define WL_BLOCK_THREADS {block_threads}\n#define WL_ROWS {thread_rows}\n#include \"simt.cuh\"\n\
         #include \"primitives.cuh\"\n#include \"pipeline.cuh\"\n#include \"join.cuh\"\n#include \"group.cuh\"\n#include \"strings.cuh\"\n#include \"stop.cuh\"\n{}\n{}\n",
        if tree.is_some() {
            "#include \"tree.cuh\"\n#include \"tree_share.cuh\"\n"
        } else {
            ""
        },
        pipeline.state.arguments.declaration("Args"),
    );
    source.push_str(&structs);
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
        block_threads,
        tile_rows: u64::from(thread_rows) * u64::from(block_threads),
        tree,
        into,
        in_place: tree.is_none()
            && matches!(pipeline.sink, EmittedSink::Rows { in_place: true, .. }),
        scan_columns,
        label,
    })
}

impl KernelWriter<'_> {
    /// C++ text of a pointer among the arguments.
    pub(in crate::codegen) fn pointer(&mut self, slot: Slot, c_type: &'static str) -> String {
        self.pipeline.state.arguments.pointer(slot, c_type)
    }

    /// C++ text of a size among the arguments.
    pub(in crate::codegen) fn size(&mut self, slot: Slot) -> String {
        self.pipeline.state.arguments.size(slot)
    }

    /// C++ text of the control word of a result.
    pub(in crate::codegen) fn control(&mut self, result: ResultId, word: ControlWord) -> String {
        let control = self.pointer(Slot::Control, "u64*");
        format!("{control}[{}]", result * CONTROL_WORDS + word as usize)
    }

    /// The layout of a result.
    pub(in crate::codegen) fn known(&self, result: ResultId) -> Option<&ResultLayout> {
        self.known.get(result)?.as_ref().map(|k| &k.layout)
    }

    /// Are the pairs of this result a list?
    fn is_listed(&self, result: ResultId) -> bool {
        matches!(
            self.known(result),
            Some(ResultLayout::Matches {
                joined: Some(_),
                ..
            })
        )
    }

    pub(in crate::codegen) fn index(&self, result: ResultId) -> Result<&IndexLayout> {
        match self.known(result) {
            Some(ResultLayout::Index(layout)) => Ok(layout),
            _ => Err(GpuError::Internal(format!(
                "result {result} is not an index"
            ))),
        }
    }

    /// A member of the shared struct, 16-byte aligned.
    pub(in crate::codegen) fn share(&mut self, declaration: &str, bytes: usize) {
        let _ = writeln!(self.shared, "  alignas(16) {declaration};");
        self.shared_bytes += bytes.next_multiple_of(16);
    }

    /// C++ text of the number of rows that the kernel goes over.
    pub(in crate::codegen) fn source_count(&mut self) -> String {
        let rows = self.size(Slot::SourceRows);
        match self.pipeline.source_rows {
            SourceRows::Rows(result) => {
                let count = self.control(result, ControlWord::Count);
                format!("min_u64({count}, {rows})")
            }
            SourceRows::Pairs(result) if self.is_listed(result) => {
                let count = self.control(result, ControlWord::Pairs);
                let capacity = self.size(Slot::Pairs(result));
                format!("min_u64({count}, {capacity})")
            }
            SourceRows::Pairs(result) => {
                let count = self.control(result, ControlWord::Count);
                let capacity = self.size(Slot::Capacity(result));
                let pairs = self.pointer(Slot::Result(result, Part::Pairs), "const u64*");
                format!("{pairs}[min_u64({count}, {capacity})]")
            }
            SourceRows::One => "1".to_string(),
            _ => rows,
        }
    }

    /// C++ text of the first row that the kernel goes over, where that is not always 0: of a table, which may come in
    /// strides. Rows keep their numbers in the table, and addresses of columns are such that these lead to them.
    pub(in crate::codegen) fn first_row(&mut self) -> Option<String> {
        match self.pipeline.source_rows {
            SourceRows::Scan(_) => Some(self.size(Slot::FirstRow)),
            _ => None,
        }
    }

    /// C++ text of what tells whether the query was stopped: arguments of `stop_watch` (`stop.cuh`).
    pub(in crate::codegen) fn stop_arguments(&mut self) -> String {
        let word = self.pointer(Slot::StopWord, "const u64*");
        let number = self.size(Slot::StopNumber);
        format!("{word}, {number}")
    }

    /// Has a tile more work than its rows: are they pairs, of which there may be as many as rows squared, or compared with
    /// many entries each?
    fn may_take_long(&self) -> bool {
        let compares =
            |step: &EmittedStep| matches!(step, EmittedStep::Probe(probe) if probe.ranges);
        matches!(self.pipeline.source_rows, SourceRows::Pairs(_))
            || self.pipeline.steps.iter().any(compares)
    }

    /// C++ address of the word that says that a hash table which the kernel fills was too small, if it fills one.
    fn overflow_word(&mut self) -> Result<Option<String>> {
        let EmittedSink::Aggregate { into, layout, .. } = &self.pipeline.sink else {
            return Ok(None);
        };
        if !layout.hashed() && layout.distinct_words.is_empty() {
            return Ok(None);
        }
        let into = *into;
        Ok(Some(format!(
            "&{}",
            self.control(into, ControlWord::Overflow)
        )))
    }

    fn kernel(&mut self) -> Result<()> {
        if self.is_partitioned() {
            return self.partition_kernel();
        }
        line!(self, "  u32 fault = 0;");
        self.begin_sink()?;
        let rows = self.source_count();
        line!(self, "  const u64 rows = {rows};");
        let tile = u64::from(self.pipeline.thread_rows) * u64::from(self.pipeline.block_threads);
        let all = (1u32 << self.pipeline.thread_rows) - 1;
        line!(self, "  const u64 tiles = (rows + {}) / {tile};", tile - 1);
        if self.may_take_long() {
            let asked = self.stop_arguments();
            line!(
                self,
                "  u32 unasked = 0; StopWatch watch = stop_watch({asked});"
            );
        }
        let overflow = self.overflow_word()?;
        if overflow.is_some() {
            line!(self, "  u64 overflowed = 0;");
        }
        let first = match self.first_row() {
            Some(first) => format!("{first} / {tile} + blockIdx.x"),
            None => "blockIdx.x".to_string(),
        };
        line!(
            self,
            "  for (u64 tile = {first}; tile < tiles; tile += gridDim.x) {{"
        );
        if self.may_take_long() {
            line!(
                self,
                "    if (++unasked == WL_STOP_TILES) {{ unasked = 0; if (query_stopped_block(watch)) break; }}"
            );
        }
        line!(
            self,
            "    const u64 row = tile * {tile} + threadIdx.x * WL_ROWS;"
        );
        line!(
            self,
            "    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? {all}u : (1u << (u32)(rows - row)) - 1u;"
        );
        if let Some(word) = overflow {
            // A table without room for a row is made larger and filled anew: what follows is in vain, and each row would walk as
            // many slots as a probe may. Read for the next tile, so that nothing waits for it.
            line!(
                self,
                "    if (overflowed != 0) live = 0; overflowed = load_relaxed({word});"
            );
        }
        for text in self.pipeline.prologue.clone() {
            line!(self, "    {text}");
        }
        let steps = std::mem::take(&mut self.pipeline.steps);
        for step in &steps {
            match step {
                EmittedStep::Filter(test) => self.filter(test, "live"),
                EmittedStep::Probe(probe) => self.probe(probe)?,
                EmittedStep::Mark(index) => self.mark_pairs(*index),
                EmittedStep::Expand(_) => {
                    return Err(GpuError::Internal("an expansion in a tile".into()));
                }
            }
        }
        self.sink()?;
        // Lanes that went apart (a walk along a chain, a group's lock) would stay apart, and each part of the warp would go
        // through all later tiles alone: 4 lanes of 32 in front of hash groups that one row in a thousand reaches.
        line!(self, "    __syncwarp();\n  }}");
        self.finish_sink()?;
        self.report_faults();
        Ok(())
    }

    /// Faults of this thread's rows, for the host.
    pub(in crate::codegen) fn report_faults(&mut self) {
        if self.pipeline.state.faults {
            let control = self.pointer(Slot::Control, "u64*");
            line!(
                self,
                "  if (fault != 0) atomicMax({control} + {}, (u64)fault);",
                self.fault_word
            );
        }
    }

    /// Keep the rows of `mask` that pass.
    pub(in crate::codegen) fn filter(&mut self, test: &Test, mask: &str) {
        self.load(&test.columns);
        line!(self, "    if ({mask} != 0) {{ u32 pass = 0;");
        self.row_loop(&test.lines, mask);
        line!(self, "        pass |= (u32)({}) << k;", test.passes);
        line!(self, "      }}\n      {mask} &= pass;\n    }}");
    }

    /// Open the loop over a thread's rows; the caller closes it. `alive`: the row's bit of `mask`.
    pub(in crate::codegen) fn row_loop(&mut self, lines: &[String], mask: &str) {
        line!(self, "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {{");
        line!(self, "        const bool alive = (({mask} >> k) & 1) != 0;");
        for text in lines {
            line!(self, "        {text}");
        }
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
        let mut codes = crate::column::translate_codes(from, to)?;
        // Rows without a string have code 0, even of an empty dictionary.
        codes.resize(codes.len().max(1), 0);
        let bytes = codes.iter().flat_map(|c| c.to_ne_bytes()).collect();
        let pointer = self.pipeline.state.table("const i32*", bytes);
        Ok(format!("__ldg({pointer} + {})", value.text))
    }
}
