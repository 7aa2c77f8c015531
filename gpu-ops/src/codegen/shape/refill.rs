//! Kernels whose warps gather the rows that are left after the first steps, and go on with one a lane (lane refill: Funke and
//! Teubner, "Data-Parallel Query Processing on Non-Uniform Data", PVLDB 2020, section 4).
//!
//! A warp takes its share of tiles until 32 rows wait in its queue in shared memory, which has their numbers and what earlier
//! steps found. Then each lane takes one, reads again what it needs of it, and goes on to the sink. No warp waits for another,
//! so that blocks have no barriers inside the loop. A block takes several tiles one behind the other, so that the rows which a
//! warp writes together lie near each other in the table, as their keys may.
//!
//! Launch: persistent blocks over tiles, as kernels without a queue. Bytes moved: what the first steps read of the table, and of
//! the rows that are left a sector a column, once more for those that have been read already; in shared memory 4 bytes a row and
//! entry. 600 million rows of 6 bytes, of which one in 200 is left and looks up two columns, are 3.6 GB and 0.4 GB, 1.3 ms at the
//! 3.0 TB/s of an H100; that takes 1.4 ms (TPC-H Q3 at scale 100).

use std::fmt::Write as _;

use super::levels::{Level, Probes};
use crate::codegen::ir::pipeline::EmittedStep;
use crate::codegen::ir::results::ControlWord;
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::Result;
use crate::graph::TreeOptions;

/// Lanes of a warp.
const WARP: u32 = 32;

/// Rows that a warp reserves places for at once. On an H100 600 million rows, of which one in eight was written, took 3.1 ms so,
/// 4.5 with 32, and 3.5 without gathering; of one in a hundred 1.5 / 1.5 / 2.7.
const RESERVED: u32 = 128;

impl KernelWriter<'_> {
    /// The whole kernel, whose rows are gathered after `cut` steps.
    pub(in crate::codegen) fn refilled_kernel(&mut self, cut: usize) -> Result<()> {
        let (threads, thread_rows) = (self.pipeline.block_threads, self.pipeline.thread_rows);
        let tile = u64::from(thread_rows) * u64::from(threads);
        line!(self, "  constexpr u32 WL_ROWS = {thread_rows};");
        line!(self, "  u32 fault = 0;");
        self.begin_sink()?;
        let rows = self.source_count();
        line!(self, "  const u64 rows = {rows};");
        line!(self, "  const u64 tiles = (rows + {}) / {tile};", tile - 1);
        let overflow = self.overflow_word()?;
        if overflow.is_some() {
            line!(self, "  u64 overflowed = 0;");
        }
        let (mut levels, probes) = self.cut(cut);
        // The numbers of rows and entries wait: columns are read again.
        self.carry(&mut levels, &probes, TreeOptions::default())?;
        let [before, after] = &levels;
        let drops = after.steps.iter().any(EmittedStep::drops);
        let appended = self.pipeline.sink.appends_all().filter(|_| !drops);
        // Places for many rows are reserved at once: all warps of the device wait for one counter.
        let least = if appended.is_some() { RESERVED } else { WARP };
        self.declare_waiting(after, least);
        let first = match self.first_row() {
            Some(first) => format!("{first} / {tile}"),
            None => "0ull".to_string(),
        };
        line!(self, "  TileChunks chunks = tile_chunks({first}, tiles);");
        line!(self, "  u64 tile = chunks.first();");
        line!(self, "  while (true) {{");
        line!(
            self,
            "  for (; held < {least} && tile < tiles; tile = chunks.next(tile)) {{"
        );
        self.rows_of_tile(tile);
        self.leave_in_vain(overflow.as_deref());
        for text in self.pipeline.prologue.clone() {
            line!(self, "    {text}");
        }
        self.steps(&before.steps)?;
        self.wait_in_queue(after, &probes);
        line!(self, "  }}");
        line!(self, "  if (held == 0) break;");
        if let Some(into) = appended {
            let count = self.control(into, ControlWord::Count);
            line!(
                self,
                "  const u64 reserved = warp_reserve_rows(held, &{count});"
            );
            line!(self, "  for (u32 taken; held != 0;) {{");
            self.pipeline.reserved = true;
        } else {
            line!(self, "  {{ u32 taken;");
        }
        line!(self, "    constexpr u32 WL_ROWS = 1;");
        self.loaded.clear();
        line!(
            self,
            "    taken = held < WL_WARP ? held : WL_WARP; held -= taken;"
        );
        line!(
            self,
            "    u32 live = lane_id() < taken ? 1u : 0u; const u32 slot = held + lane_id();"
        );
        self.unpack(after, &probes, "waiting");
        self.steps(&after.steps)?;
        self.sink()?;
        // The next rows are put where others still read these, and lanes that went apart come together.
        line!(self, "    __syncwarp();\n  }}\n  }}");
        self.finish_sink()?;
        self.report_faults();
        Ok(())
    }

    /// The steps before the rows are gathered, and those behind.
    fn cut(&mut self, cut: usize) -> ([Level; 2], Probes) {
        let mut probes = Probes(vec![]);
        let mut levels = [Level::new(None), Level::new(None)];
        for (number, step) in std::mem::take(&mut self.pipeline.steps)
            .into_iter()
            .enumerate()
        {
            let level = usize::from(number >= cut);
            if let EmittedStep::Probe(probe) = &step {
                probes.0.push((level, probe.kind));
            }
            levels[level].steps.push(step);
        }
        (levels, probes)
    }

    /// A warp's queue in shared memory, from which rows are taken once it has `least`, and how many rows wait in it.
    fn declare_waiting(&mut self, after: &Level, least: u32) {
        let (threads, thread_rows) = (self.pipeline.block_threads, self.pipeline.thread_rows);
        let (warps, room) = (threads / WARP, WARP * thread_rows + least);
        let mut fields = String::new();
        let mut bytes = 0;
        for field in &after.carried {
            let _ = writeln!(fields, "  {} {}[{room}];", field.c_type, field.name);
            bytes += field.bytes * u64::from(room);
        }
        // A struct without members has bytes all the same.
        let bytes = bytes.max(16);
        self.structs += &format!("struct alignas(16) Waiting {{\n{fields}}};\n");
        self.share(
            &format!("Waiting waiting[{warps}]"),
            (bytes * u64::from(warps)) as usize,
        );
        line!(self, "  Waiting& waiting = shared.waiting[warp_id()];");
        line!(self, "  u32 held = 0;");
    }

    /// Put the live rows of the tile into the queue.
    fn wait_in_queue(&mut self, after: &Level, probes: &Probes) {
        line!(self, "    WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {{");
        line!(self, "      const bool goes_on = ((live >> k) & 1) != 0;");
        line!(
            self,
            "      const u32 votes = __ballot_sync(WL_FULL_MASK, goes_on);"
        );
        line!(self, "      if (goes_on) {{");
        line!(
            self,
            "        const u32 to = held + (u32)__popc(votes & ((1u << lane_id()) - 1u));"
        );
        for field in &after.carried {
            let value = self.carried(field, probes, "k");
            line!(self, "        waiting.{}[to] = {value};", field.name);
        }
        line!(self, "      }}");
        line!(self, "      held += (u32)__popc(votes);");
        line!(self, "    }}");
        line!(self, "    __syncwarp();");
    }
}
