//! The shape of most kernels: tiles of rows, loads where columns are first needed, steps, sink.
//!
//! A block takes tiles in a grid-stride loop; a thread owns 8 (or 1) consecutive rows, so a column of width `w`
//! is read as one vector of `8 w` bytes a thread. `live` has one bit for each row that is still wanted;
//! columns are read when the first step needs them, and only by threads with a live row (Crystal's selection
//! flags). All threads reach every sink, so that a block can reserve output rows together.

use std::fmt::Write as _;

use crate::codegen::ir::pipeline::{EmittedSink, EmittedStep};
use crate::codegen::ir::program::SourceRows;
use crate::codegen::ir::results::ControlWord;
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};

impl KernelWriter<'_> {
    /// Has a tile more work than its rows: are they pairs, of which there may be as many as rows squared, or compared with
    /// many entries each?
    fn may_take_long(&self) -> bool {
        let compares =
            |step: &EmittedStep| matches!(step, EmittedStep::Probe(probe) if probe.ranges);
        matches!(self.pipeline.source_rows, SourceRows::Pairs(_))
            || self.pipeline.steps.iter().any(compares)
    }

    /// The whole kernel.
    pub(in crate::codegen) fn tile_kernel(&mut self) -> Result<()> {
        if self.pipeline.rows_vary() {
            line!(
                self,
                "  constexpr u32 WL_ROWS = {};",
                self.pipeline.thread_rows
            );
        }
        line!(self, "  u32 fault = 0;");
        self.begin_sink()?;
        let rows = self.source_count();
        line!(self, "  const u64 rows = {rows};");
        let tile = u64::from(self.pipeline.thread_rows) * u64::from(self.pipeline.block_threads);
        line!(self, "  const u64 tiles = (rows + {}) / {tile};", tile - 1);
        if self.may_take_long() {
            let asked = self.stop_arguments();
            line!(
                self,
                "  u32 unasked = 0; StopWatch watch = stop_watch({asked});"
            );
        }
        for number in 0..self.pipeline.state.searched {
            line!(self, "  TextPace pace{number} = {{}};");
        }
        let overflow = self.overflow_word()?;
        if overflow.is_some() {
            line!(self, "  u64 overflowed = 0;");
        }
        let enough = match &self.pipeline.sink {
            EmittedSink::Rows { into, enough, .. } => enough.clone().map(|rows| (*into, rows)),
            _ => None,
        };
        if enough.is_some() {
            line!(self, "  u64 found = 0;");
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
        if let Some((into, enough)) = enough {
            // Read for the next tile, so that nothing waits for it.
            let count = self.control(into, ControlWord::Count);
            line!(
                self,
                "    if (__syncthreads_or(found >= {enough})) break; found = load_relaxed(&{count});"
            );
        }
        if let Some(number) = self.picked_row()? {
            line!(self, "    const u64 place = tile * {tile} + threadIdx.x;");
            line!(self, "    u32 live = place < rows ? 1u : 0u;");
            line!(self, "    const u64 row = live != 0 ? {number} : 0;");
        } else {
            self.rows_of_tile(tile);
        }
        self.leave_in_vain(overflow.as_deref());
        for text in self.pipeline.prologue.clone() {
            line!(self, "    {text}");
        }
        let steps = std::mem::take(&mut self.pipeline.steps);
        self.steps(&steps)?;
        let searches = std::mem::take(&mut self.pipeline.sink_searches);
        self.search(&searches);
        self.sink()?;
        // Lanes that went apart (a walk along a chain, a group's lock) would stay apart, and each part of the warp would go
        // through all later tiles alone: 4 lanes of 32 in front of hash groups that one row in a thousand reaches.
        line!(self, "    __syncwarp();\n  }}");
        self.finish_sink()?;
        self.report_faults();
        Ok(())
    }

    /// The rows of a thread in a tile of so many, `row` the first of them, and which of them there are.
    pub(in crate::codegen) fn rows_of_tile(&mut self, tile: u64) {
        let all = (1u32 << self.pipeline.thread_rows) - 1;
        line!(
            self,
            "    const u64 row = tile * {tile} + threadIdx.x * WL_ROWS;"
        );
        line!(
            self,
            "    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? {all}u : (1u << (u32)(rows - row)) - 1u;"
        );
    }

    /// Leave rows out once the table that `overflow` (C++) tells of has no room: it is made larger and filled anew, so that what
    /// follows is in vain, and each row would walk as many slots as a probe may. Read for the next tile, so that nothing waits
    /// for it.
    pub(in crate::codegen) fn leave_in_vain(&mut self, overflow: Option<&str>) {
        if let Some(word) = overflow {
            line!(
                self,
                "    if (overflowed != 0) live = 0; overflowed = load_relaxed({word});"
            );
        }
    }

    /// Steps that yield one row at most.
    pub(in crate::codegen) fn steps(&mut self, steps: &[EmittedStep]) -> Result<()> {
        for step in steps {
            match step {
                EmittedStep::Filter(test) => self.filter(test, "live"),
                EmittedStep::Probe(probe) => self.probe(probe)?,
                EmittedStep::Mark(index) => self.mark_pairs(*index),
                EmittedStep::Expand(_) => {
                    return Err(GpuError::Internal("an expansion without a tree".into()));
                }
            }
        }
        Ok(())
    }
}
