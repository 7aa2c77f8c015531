//! What a block does with a tile of rows in the order of their key: its groups numbered, added up in shared memory, and written
//! down one behind the other.
//!
//! A group that begins and ends within a tile has all its rows there. The first and the last one may have rows in other tiles,
//! and meet those in a hash table in device memory; so do groups beyond those that a block has room for. Nothing is cleared,
//! sorted or looked up for all other groups, however sparse or wide their keys are.
//!
//! Groups that nobody keeps ([`super::kept`]) are not written down.
//!
//! Bytes moved: every row is read once, every group is written once; the states of those that are added to are cleared by who finds
//! them first. 600 M rows of a key of 4 and an argument of 2 bytes in 150 M groups with states of 8 bytes are 3.6 + 1.8 GB, 1.3 ms
//! at 4.2 TB/s. An H100, which copies at 2.9, takes 3.0 ms for them: the instructions of numbering and adding up are what it waits for.

use std::fmt::Write as _;

use warpline_cuda::kernels::GROUP_PROBES;

use super::run_loop::RunOfRow;
use super::states::Groups;
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::{ControlWord, RegroupedLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::codegen::key::codes;

impl KernelWriter<'_> {
    /// What a block has of the runs of a tile.
    pub(super) fn begin_runs(&mut self, groups: &Groups, of: RegroupedLayout) {
        let t = of.key_type();
        let warps = groups.threads / 32;
        let scratch = warps * u64::from(2 * of.key_bytes + 4) + 16;
        self.share(&format!("RunScratch<{t}> runs"), scratch as usize);
        let window = of.window;
        let keys = window * u64::from(of.key_bytes);
        self.share(&format!("{t} run_keys[{window}]"), keys as usize);
        if self.pipeline.sink.kept_groups().is_some() {
            self.begin_kept();
        }
        self.begin_strays(groups, of);
    }

    /// Add up the live rows of a tile, and write down its groups. Every thread of the block comes here.
    pub(super) fn runs_of_tile(&mut self, groups: &Groups, of: RegroupedLayout, lines: &[String]) {
        let t = of.key_type();
        let window = of.window;
        let key_lines = match &self.pipeline.sink {
            EmittedSink::Aggregate { key_lines, .. } => (*key_lines).min(lines.len()),
            _ => lines.len(),
        };
        let codes: Vec<String> = groups.layout.keys.iter().map(codes::code).collect();
        let key = codes::packed_words(&groups.layout.keys, &codes, 1).remove(0);
        // Groups that are tested first get their numbers later.
        let numbered = match self.pipeline.sink.kept_groups() {
            Some(_) => "(u64*)0".to_string(),
            None => format!("&{}", self.control(groups.into, ControlWord::Count)),
        };
        line!(self, "    {t} key_of[WL_ROWS] = {{}};");
        line!(self, "    if (live != 0) {{");
        self.row_loop(&lines[..key_lines], "live");
        line!(self, "        if (alive) key_of[k] = ({t})({key});");
        line!(self, "      }}\n    }}");
        line!(self, "    u32 run_of_row[WL_ROWS];");
        line!(
            self,
            "    const u32 runs = block_number_runs<{window}>(key_of, live, shared.runs, shared.run_keys, {numbered}, run_of_row);"
        );
        let run = RunOfRow {
            data_type: "u32".to_string(),
            number: "run_of_row[k]".to_string(),
            beside: Some((t.to_string(), "key", "key_of[k]".to_string())),
        };
        self.add_up_runs(groups, lines, &run, &|writer, name, partial| {
            writer.closing_run(groups, of, name, partial);
        });
        line!(self, "    __syncthreads();");
        let kept = self.pipeline.sink.kept_groups().cloned();
        let tested = kept.is_some();
        if let Some(kept) = kept {
            self.keep_runs(groups, of, kept);
        }
        self.write_runs(groups, of, tested);
    }

    /// The C++ lambda `name`, which adds `{partial}0`, `{partial}1` … to the group `run`, whose key is `key`.
    fn closing_run(&mut self, groups: &Groups, of: RegroupedLayout, name: &str, partial: &str) {
        let accumulators = groups.plan().accumulators.clone();
        line!(self, "      const auto {name} = [&]() {{");
        // A tile has no more runs than rows.
        let all = of.window >= of.tile_rows;
        if !all {
            line!(self, "        if (run < {}u) {{", of.window);
        }
        for (i, a) in accumulators.iter().enumerate() {
            let value = format!("{partial}{i}");
            let add = a.add_to_block(&groups.array_cell(i, "run"), &value);
            line!(self, "          if ({value} != 0) {{ {add} }}");
        }
        if all {
            line!(self, "      }};");
            return;
        }
        line!(self, "          return;\n        }}");
        self.stray_state(groups, "key", "return");
        for (i, a) in accumulators.iter().enumerate() {
            let add = a.add_rows_to_state(&a.cell("at"), &format!("{partial}{i}"));
            line!(self, "        {add}");
        }
        line!(self, "      }};");
    }

    /// Point `at` to the state of a key's group in device memory; where there is none, go `otherwise`.
    pub(super) fn stray_state(&mut self, groups: &Groups, key: &str, otherwise: &str) {
        let state = self.state_of_key(groups, key);
        line!(self, "        u8* const at = {state};");
        line!(self, "        if (at == 0) {otherwise};");
    }

    /// The state of a key's group in device memory, in C++; 0 where there is no room, which sets the overflow word.
    pub(super) fn state_of_key(&mut self, groups: &Groups, key: &str) -> String {
        let stride = groups.layout.stride;
        let overflow = self.control(groups.into, ControlWord::Overflow);
        format!("numbered_state<{stride}>(numbering, {key}, {GROUP_PROBES}, states, &{overflow})")
    }

    /// Write the groups of a tile, of those that have been `tested` only the kept ones, and clear what the block has of them.
    fn write_runs(&mut self, groups: &Groups, of: RegroupedLayout, tested: bool) {
        let accumulators = groups.plan().accumulators.clone();
        let (window, stride) = (of.window, groups.layout.stride);
        let keys = self.pointer(Slot::Result(groups.into, Part::Keys), of.key_pointer());
        line!(
            self,
            "    for (u32 g = threadIdx.x; g < (runs < {window}u ? runs : {window}u); g += {}) {{",
            groups.threads
        );
        let (number, written) = match tested {
            true => {
                line!(self, "      const u32 j = g / {}u;", groups.threads);
                let before = "first_kept + (u32)__popc(kept & ((1u << j) - 1u))";
                (before, "(kept >> j & 1u) != 0 && number < cap")
            }
            false => ("shared.runs.base + g - 1", "number < cap"),
        };
        line!(self, "      const u64 number = {number};");
        line!(self, "      if (g == 0 || g + 1 == runs) {{");
        line!(self, "        const auto meet = [&]() {{");
        self.stray_state(groups, "shared.run_keys[g]", "return");
        for (i, a) in accumulators.iter().enumerate() {
            let value = a.content(&groups.array_cell(i, "g"));
            let add = a.add_rows_to_state(&a.cell("at"), &value);
            line!(self, "        {add}");
        }
        line!(self, "        }};\n        meet();");
        line!(self, "      }} else if ({written}) {{");
        line!(self, "        {keys}[number] = shared.run_keys[g];");
        line!(self, "        u8* const at = states + number * {stride};");
        for (i, a) in accumulators.iter().enumerate() {
            let store = a.copy(&a.cell("at"), &groups.array_cell(i, "g"));
            line!(self, "        {store}");
        }
        line!(self, "      }}");
        for (i, a) in accumulators.iter().enumerate() {
            let clear = a.clear(&groups.array_cell(i, "g"));
            line!(self, "      {clear}");
        }
        line!(self, "    }}");
    }
}
