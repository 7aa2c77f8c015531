//! Kernels of aggregations over partitioned rows: a block takes a partition and groups it in shared memory (PGB of Wu et al., SIGMOD 2025).
//!
//! All groups of a partition live in one block, so they are written down without atomics, one behind the other. A partition
//! that is much larger than the others (skew) is cut into pieces for several blocks, whose groups meet in a hash table in
//! device memory; so do the groups of rows that find a block's table full. Either way nothing is run again unless the
//! room for groups is too small.
//!
//! Launch: any grid. Bytes moved: every row is read once, every group is written once; 2^28 rows of a key and two arguments
//! of 4 bytes are 3.2 GB, 0.8 ms at 4.2 TB/s, and 2^26 groups another 0.8 GB.

use std::fmt::Write as _;

use crate::codegen::ir::results::ControlWord;
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};

/// A piece of a partition has at least this many rows.
const LEAST_PIECE: u64 = 1 << 14;
/// Partitions of this many times the mean are cut.
const CUT_ABOVE: u64 = 4;

impl KernelWriter<'_> {
    /// The whole kernel.
    pub(in crate::codegen) fn partition_kernel(&mut self) -> Result<()> {
        line!(self, "  u32 fault = 0;");
        self.begin_sink()?;
        let groups = self.group_plan()?;
        let Some(of) = groups.layout.regrouped else {
            return Err(GpuError::Internal(
                "a partition of no collected rows".into(),
            ));
        };
        let rows = self.size(Slot::SourceRows);
        let count = self.control(of.rows, ControlWord::Count);
        let offsets = self.pointer(Slot::Result(of.rows, Part::Offsets), "const u32*");
        let partitions = 1u64 << of.bits;
        let tile = u64::from(self.pipeline.thread_rows) * groups.threads;
        line!(self, "  const u64 total = min_u64({count}, {rows});");
        // Small partitions are tasks of their own; pieces of large ones lie in windows of this many rows.
        line!(
            self,
            "  const u64 most = max_u64({LEAST_PIECE}ull, {CUT_ABOVE}ull * (total / {partitions}ull + 1));"
        );
        line!(self, "  const u64 windows = (total + most - 1) / most;");
        line!(
            self,
            "  for (u64 task = blockIdx.x; task < {partitions}ull + windows; task += gridDim.x) {{"
        );
        line!(self, "  const bool whole = task < {partitions}ull;");
        line!(
            self,
            "  const u64 low = whole ? 0 : (task - {partitions}ull) * most, high = whole ? total : min_u64(total, low + most);"
        );
        line!(
            self,
            "  u64 part = whole ? task : (u64)run_of({offsets}, {partitions}ull, low);"
        );
        line!(
            self,
            "  for (const u64 last = whole ? task + 1 : {partitions}ull; part < last; ++part) {{"
        );
        line!(
            self,
            "    const u64 from = {offsets}[part], to = {offsets}[part + 1];"
        );
        line!(self, "    if (from >= high) break;");
        line!(self, "    if (whole != (to - from <= most)) continue;");
        line!(
            self,
            "    const u64 begin = max_u64(from, low), end = min_u64(to, high);"
        );
        line!(self, "    if (begin >= end) continue;");
        self.clear_block(&groups, of);
        line!(
            self,
            "  for (u64 first = begin / WL_ROWS * WL_ROWS; first < end; first += {tile}) {{"
        );
        line!(self, "    const u64 row = first + threadIdx.x * WL_ROWS;");
        line!(self, "    u32 live = 0;");
        line!(
            self,
            "    WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) live |= (u32)(row + k >= begin && row + k < end) << k;"
        );
        for text in self.pipeline.prologue.clone() {
            line!(self, "    {text}");
        }
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        line!(self, "    if (live != 0) {{");
        self.row_loop(&lines, "live");
        self.add_to_partition(&groups, of);
        line!(self, "      }}\n    }}\n  }}");
        line!(self, "  __syncthreads();");
        self.flush_partition(&groups, of);
        // Nobody clears the table while others still read it.
        line!(self, "  __syncthreads();\n  }}\n  }}");
        self.report_faults();
        Ok(())
    }
}
