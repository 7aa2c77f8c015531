//! The text of one kernel under construction: arguments, control words, shared memory, the loop over a thread's rows.

use std::fmt::Write as _;

use crate::codegen::ir::context::Known;
use crate::codegen::ir::pipeline::{EmittedPipeline, Test};
use crate::codegen::ir::program::SourceRows;
use crate::codegen::ir::results::{CONTROL_WORDS, ControlWord, IndexLayout, ResultLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::state::BlockSearch;
use crate::error::{GpuError, Result};
use crate::graph::ResultId;

/// Threads a block of most generated kernels.
pub const BLOCK_THREADS: u32 = 256;

/// Shared memory of a search in a tile of so many rows (`TextTile` of `text_search.cuh`).
pub(in crate::codegen) fn search_bytes(tile: u32) -> usize {
    12 * tile as usize + 4
}

macro_rules! line {
    ($writer:expr, $($arg:tt)*) => {{ let _ = writeln!($writer.text, $($arg)*); }};
}
pub(in crate::codegen) use line;

/// Builds the text of one kernel.
pub(in crate::codegen) struct KernelWriter<'a> {
    pub(in crate::codegen) pipeline: &'a mut EmittedPipeline,
    pub(in crate::codegen) known: &'a [Option<Known>],
    pub(in crate::codegen) fault_word: usize,
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

impl KernelWriter<'_> {
    /// C++ text of a pointer among the arguments.
    pub(in crate::codegen) fn pointer(&mut self, slot: Slot, c_type: impl Into<String>) -> String {
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
            SourceRows::Rows(result) | SourceRows::Picked { by: result, .. } => {
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

    /// C++ text of the number in the source of the row at hand, where rows are picked: `place` is its place among them.
    pub(in crate::codegen) fn picked_row(&mut self) -> Result<Option<String>> {
        let SourceRows::Picked { by, .. } = self.pipeline.source_rows else {
            return Ok(None);
        };
        let numbers = match self.known(by) {
            Some(ResultLayout::Sorted(columns)) => columns.first().cloned(),
            _ => None,
        };
        let Some(numbers) = numbers else {
            return Err(GpuError::Internal("rows picked by no numbers".into()));
        };
        let pointer = self.column_pointer(by, 0, &numbers);
        Ok(Some(format!("{}ull + (u64){pointer}[place]", numbers.base)))
    }

    /// C++ text of what tells whether the query was stopped: arguments of `stop_watch` (`stop.cuh`).
    pub(in crate::codegen) fn stop_arguments(&mut self) -> String {
        let word = self.pointer(Slot::StopWord, "const u64*");
        let number = self.size(Slot::StopNumber);
        format!("{word}, {number}")
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
        self.search(&test.searches);
        line!(self, "    if ({mask} != 0) {{ u32 pass = 0;");
        self.row_loop(&test.lines, mask);
        line!(self, "        pass |= (u32)({}) << k;", test.passes);
        line!(self, "      }}\n      {mask} &= pass;\n    }}");
    }

    /// Search strings of the tile's rows, by all threads of the block.
    pub(in crate::codegen) fn search(&mut self, searches: &[BlockSearch]) {
        let (threads, rows) = (self.pipeline.block_threads, self.pipeline.thread_rows);
        let tile = threads * rows;
        for BlockSearch {
            number,
            data,
            offsets,
            parts,
        } in searches
        {
            let bytes = search_bytes(tile);
            self.share(&format!("TextTile<{tile}> search{number}"), bytes);
            let count = parts.len();
            let list = |texts: Vec<&str>| texts.join(", ");
            let words = list(parts.iter().map(|(words, _)| words.as_str()).collect());
            let lengths = list(parts.iter().map(|(_, length)| length.as_str()).collect());
            line!(
                self,
                "    const TextParts<{count}> parts{number} = {{{{{words}}}, {{{lengths}}}}};"
            );
            line!(
                self,
                "    const bool together{number} = block_text_after<{threads}, WL_ROWS>({data}, {offsets}, tile * {tile}, rows, live, parts{number}, shared.search{number}, pace{number});"
            );
        }
    }

    /// Open the loop over a thread's rows; the caller closes it. `alive`: the row's bit of `mask`.
    pub(in crate::codegen) fn row_loop(&mut self, lines: &[String], mask: &str) {
        line!(self, "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {{");
        line!(self, "        const bool alive = (({mask} >> k) & 1) != 0;");
        for text in lines {
            line!(self, "        {text}");
        }
    }
}
