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

use crate::codegen::group::distinct::PROBES;
use crate::codegen::group::states::{Groups, RESERVE_BYTES};
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::{ControlWord, RegroupedLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};

/// A piece of a partition has at least this many rows.
const LEAST_PIECE: u64 = 1 << 14;
/// Partitions of this many times the mean are cut.
const CUT_ABOVE: u64 = 4;

impl KernelWriter<'_> {
    /// Does a block take a partition in this kernel?
    pub(in crate::codegen) fn is_partitioned(&self) -> bool {
        matches!(
            &self.pipeline.sink,
            EmittedSink::Aggregate { layout, .. }
                if layout.regrouped.is_some_and(|r| r.how.partitions())
        )
    }

    /// The table of a block.
    pub(in crate::codegen) fn begin_partitions(&mut self, groups: &Groups, of: RegroupedLayout) {
        let r = groups.into;
        let t = of.key_type();
        let slots = of.window;
        self.share("ReserveScratch reserve", RESERVE_BYTES);
        let table = slots * u64::from(of.key_bytes);
        self.share(&format!("u8 table[{table}]"), table as usize);
        line!(self, "  {t}* const table = ({t}*)shared.table;");
        let keys = self.pointer(Slot::Result(r, Part::Keys), groups.key_pointer(of));
        let states = self.pointer(Slot::Result(r, Part::States), "u32*");
        let table_keys = self.pointer(Slot::Result(r, Part::TableKeys), groups.key_pointer(of));
        let numbers = self.pointer(Slot::Result(r, Part::Ids), "u32*");
        let slots = self.size(Slot::TableSlots(r));
        let count = self.control(r, ControlWord::Count);
        line!(
            self,
            "  const NumberTable<{t}> numbering = {{{states}, {table_keys}, {numbers}, {slots} - 1, &{count}, {keys}, cap}};"
        );
    }

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

    fn clear_block(&mut self, groups: &Groups, of: RegroupedLayout) {
        let threads = groups.threads;
        let words = of.window * u64::from(of.key_bytes) / 4;
        line!(
            self,
            "    for (u32 i = threadIdx.x; i < {words}; i += {threads}) ((u32*)shared.table)[i] = 0;"
        );
        self.clear_arrays(groups);
        line!(self, "    __syncthreads();");
    }

    /// Add the row at hand to its group's state in the block, or in device memory when the block is full.
    fn add_to_partition(&mut self, groups: &Groups, of: RegroupedLayout) {
        let r = groups.into;
        let t = of.key_type();
        let slots = of.window;
        let key = self.pipeline.scope.len() - 1;
        let stride = groups.layout.stride;
        line!(self, "        if (alive) {{");
        line!(self, "          const {t} key = ({t})c{key}[k];");
        line!(
            self,
            "          const u32 slot = block_slot(table, {slots}u, key, {}u);",
            of.bits
        );
        line!(self, "          if (slot != WL_NO_NUMBER) {{");
        self.add_to_arrays(groups, "slot");
        line!(self, "          }} else {{");
        line!(
            self,
            "          const u32 number = number_key<{t}>(numbering, key, {PROBES});"
        );
        let overflow = self.control(r, ControlWord::Overflow);
        line!(
            self,
            "          if (number == WL_NO_NUMBER) store_relaxed(&{overflow}, (u64)1);"
        );
        line!(self, "          else if (number < cap) {{");
        line!(
            self,
            "          u8* const at = states + (u64)number * {stride};"
        );
        self.add_row(groups.plan());
        line!(self, "          }}\n          }}\n        }}");
    }

    /// Write the groups of the block's table.
    fn flush_partition(&mut self, groups: &Groups, of: RegroupedLayout) {
        let r = groups.into;
        let t = of.key_type();
        let slots = of.window;
        let warps = groups.threads / 32;
        let mine = slots / warps;
        let stride = groups.layout.stride;
        let count = self.control(r, ControlWord::Count);
        let overflow = self.control(r, ControlWord::Overflow);
        let keys = self.pointer(Slot::Result(r, Part::Keys), groups.key_pointer(of));
        let accumulators = groups.plan().accumulators.clone();
        line!(
            self,
            "  if (whole) {{\n    const u32 start = warp_id() * {mine}u + lane_id(); u32 held = 0;"
        );
        line!(
            self,
            "    for (u32 s = 0; s < {mine}u; s += 32) held += (u32)__popc(__ballot_sync(WL_FULL_MASK, table[start + s] != 0));"
        );
        line!(
            self,
            "    u64 place = block_reserve(lane_id() == 0 ? held : 0u, &{count}, shared.reserve);"
        );
        line!(self, "    place = __shfl_sync(WL_FULL_MASK, place, 0);");
        line!(self, "    for (u32 s = 0; s < {mine}u; s += 32) {{");
        line!(self, "      const u32 slot = start + s;");
        line!(
            self,
            "      const u32 votes = __ballot_sync(WL_FULL_MASK, table[slot] != 0);"
        );
        line!(
            self,
            "      const u64 number = place + (u32)__popc(votes & ((1u << lane_id()) - 1u));"
        );
        line!(self, "      place += (u32)__popc(votes);");
        line!(self, "      if (table[slot] != 0 && number < cap) {{");
        line!(self, "        {keys}[number] = block_key(table, slot);");
        line!(self, "        u8* const at = states + number * {stride};");
        for (i, a) in accumulators.iter().enumerate() {
            let store = a.copy(&a.cell("at"), &groups.array_cell(i, "slot"));
            line!(self, "        {store}");
        }
        line!(self, "      }}\n    }}\n  }} else {{");
        line!(
            self,
            "    for (u32 slot = threadIdx.x; slot < {slots}u; slot += {}) {{",
            groups.threads
        );
        line!(self, "      if (table[slot] == 0) continue;");
        line!(
            self,
            "      const u32 number = number_key<{t}>(numbering, block_key(table, slot), {PROBES});"
        );
        line!(
            self,
            "      if (number == WL_NO_NUMBER) store_relaxed(&{overflow}, (u64)1);"
        );
        line!(
            self,
            "      if (number == WL_NO_NUMBER || number >= cap) continue;"
        );
        line!(
            self,
            "      u8* const at = states + (u64)number * {stride};"
        );
        for (i, a) in accumulators.iter().enumerate() {
            let value = a.content(&groups.array_cell(i, "slot"));
            let add = a.add_to_state(&a.cell("at"), &value);
            line!(self, "      if ({value} != 0) {{ {add} }}");
        }
        line!(self, "    }}\n  }}");
    }
}
