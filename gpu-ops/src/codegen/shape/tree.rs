//! The text of a tree-shaped pipeline: the loop of a warp, its queues, and the visit of each level (Themis, PVLDB 2024).
//!
//! What a visit does with its nodes is the text of any other pipeline, for one row a thread.

use std::fmt::Write as _;

use super::levels::{Carried, Level, Probes};
use crate::algorithm::Balance;
use crate::codegen::ir::pipeline::{EmittedProbe, EmittedStep};
use crate::codegen::ir::program::{QUEUE, ROOM, TreeLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};
use crate::graph::{ProbeKind, TreeOptions};

/// Partitions of the source a warp, when warps share work.
const PARTITIONS: u64 = 4;
impl KernelWriter<'_> {
    /// Write the kernel of a tree-shaped pipeline.
    pub(in crate::codegen) fn tree_kernel(&mut self, options: TreeOptions) -> Result<TreeLayout> {
        line!(self, "  u32 fault = 0;");
        self.begin_sink()?;
        let rows = self.source_count();
        let first = self.first_row();
        match &first {
            Some(first) => line!(self, "  const u64 rows = {rows} - {first};"),
            None => line!(self, "  const u64 rows = {rows};"),
        }
        let (mut levels, probes) = self.levels();
        self.carry(&mut levels, &probes, options)?;
        let layout = TreeLayout {
            levels: levels.len() as u64,
            entry_words: levels
                .iter()
                .enumerate()
                .map(|(l, level)| level.words(l, options))
                .max()
                .unwrap_or(0)
                .max(4),
            balance: options.balance,
            metrics: options.metrics,
        };
        self.declare_queues(&levels, options);
        let count = levels.len();
        let tree = match options.balance {
            Balance::None => "LaneTree",
            _ => "WarpTree",
        };
        let words = self.pointer(Slot::Tree, "u32*");
        let buffers = self.pointer(Slot::TreeBuffers, "u32*");
        line!(self, "  TreeShare share;");
        line!(
            self,
            "  share.open({words}, {buffers}, {count}, {}, {ROOM});",
            layout.entry_words
        );
        line!(self, "  {tree}<{count}> tree;\n  tree.clear();");
        line!(self, "  tree_start(share);");
        let a_warp = if options.balance.shares() {
            PARTITIONS
        } else {
            1
        };
        line!(
            self,
            "  const u64 parts = min_u64((u64)share.warps * {a_warp}, (rows + WL_WARP - 1) / WL_WARP);"
        );
        line!(self, "  bool more = true;");
        if options.balance == Balance::NifsAws {
            line!(self, "  TreeWork work = tree_work();");
        }
        if options.metrics {
            line!(
                self,
                "  TreeMeter meter = {{}};\n  u64 begun = cycle_count();"
            );
        }
        let asked = self.stop_arguments();
        line!(
            self,
            "  u32 unasked = 0; StopWatch watch = stop_watch({asked});\n  while (true) {{"
        );
        line!(
            self,
            "    if (++unasked == WL_STOP_VISITS) {{ unasked = 0; if (tree_stopped(share, watch)) break; }}"
        );
        let start = first.unwrap_or_else(|| "0".to_string());
        line!(
            self,
            "    if (more && !tree.fed() && !tree.full()) more = tree_partition(share, tree, {start}, rows, parts);"
        );
        if options.balance == Balance::NifsAws {
            line!(self, "    tree_give_work(share, tree, queues, work);");
        }
        line!(self, "    const u32 level = tree.pick();");
        line!(self, "    if (level == WL_TREE_IDLE) {{");
        if options.metrics {
            line!(self, "      meter.busy += cycle_count() - begun;");
        }
        // A warp without nodes waits for some, or leaves the loop.
        match options.balance {
            Balance::None | Balance::Nifs => line!(self, "      break;"),
            Balance::NifsAws => line!(
                self,
                "      if (!tree_take_work(share, tree, queues, work)) break;"
            ),
            Balance::Fws => line!(
                self,
                "      if (!tree_take_piece(share, tree, queues)) break;"
            ),
        }
        if options.metrics && options.balance.shares() {
            line!(self, "      begun = cycle_count();");
        }
        if options.balance.shares() {
            line!(self, "      continue;");
        }
        line!(self, "    }}");
        line!(self, "    switch (level) {{");
        for (l, level) in levels.iter().enumerate() {
            line!(self, "    case {l}: {{");
            self.level(&levels, l, level, &probes, options)?;
            line!(self, "    }} break;");
        }
        line!(self, "    }}");
        line!(self, "    __syncwarp();");
        line!(self, "  }}");
        if options.metrics {
            line!(self, "  tree_report(share, meter);");
        }
        self.finish_sink()?;
        self.report_faults();
        Ok(layout)
    }

    /// The structs of the queues, and a warp's queues in shared memory.
    fn declare_queues(&mut self, levels: &[Level], options: TreeOptions) {
        let mut bytes = 0;
        let mut queues = String::new();
        for (l, level) in levels.iter().enumerate().skip(1) {
            let ranges = level.ranges(options);
            let mut text = format!("struct Level{l} {{\n");
            let _ = writeln!(text, "  static const bool RANGES = {ranges};");
            let _ = writeln!(
                text,
                "  static const u32 WORDS = {};",
                level.words(l, options)
            );
            let mut save = String::new();
            let mut load = String::new();
            let mut at = 0;
            let mut member = |name: &str, c_type: &str, width: u64| {
                bytes += width * QUEUE;
                if width >= 4 {
                    let words = width / 4;
                    let _ = write!(
                        save,
                        " tree_copy<{words}>(to + {at}, (const u32*)({name} + i));"
                    );
                    let _ = write!(
                        load,
                        " tree_copy<{words}>((u32*)({name} + i), from + {at});"
                    );
                    at += words;
                } else {
                    let _ = write!(save, " to[{at}] = (u32){name}[i];");
                    let _ = write!(load, " {name}[i] = ({c_type})from[{at}];");
                    at += 1;
                }
                format!("  {c_type} {name}[WL_TREE_QUEUE];\n")
            };
            for field in &level.carried {
                text += &member(&field.name, &field.c_type, field.bytes);
            }
            if ranges {
                text += &member("begin", "u32", 4);
                text += &member("end", "u32", 4);
            }
            let _ = writeln!(
                text,
                "  WL_METHOD void save(u32 i, u32* to) const {{ (void)i; (void)to;{save} }}"
            );
            let _ = writeln!(
                text,
                "  WL_METHOD void load(u32 i, const u32* from) {{ (void)i; (void)from;{load} }}"
            );
            text += "};\n";
            self.structs += &text;
            let _ = writeln!(
                queues,
                "  Level{l} level{l};\n  WL_METHOD Level{l}& operator[](TreeLevel<{l}>) {{ return level{l}; }}"
            );
            // A struct without members has a byte all the same.
            bytes = (bytes + u64::from(level.words(l, options) == 0)).next_multiple_of(16);
        }
        if levels.len() > 1 {
            let _ = write!(self.structs, "struct alignas(16) Queues {{\n{queues}}};\n");
            let warps = u64::from(self.pipeline.block_threads / 32);
            self.share(&format!("Queues queues[{warps}]"), (bytes * warps) as usize);
            line!(self, "  Queues& queues = shared.queues[warp_id()];");
        }
    }

    /// A visit of up to 32 nodes of level `l`.
    fn level(
        &mut self,
        levels: &[Level],
        l: usize,
        level: &Level,
        probes: &Probes,
        options: TreeOptions,
    ) -> Result<()> {
        self.loaded.clear();
        if l == 0 {
            line!(
                self,
                "    u64 row; u32 live = tree.take_row(row) ? 1u : 0u;"
            );
        } else {
            line!(
                self,
                "    u32 slot, at; u32 live = tree.template take<{l}>(queues.level{l}, slot, at) ? 1u : 0u; (void)at;"
            );
            self.unpack(level, probes, &format!("queues.level{l}"));
        }
        if options.metrics {
            line!(self, "    tree_count(meter, live != 0);");
        }
        let has_row = l == 0 || level.carried.iter().any(|f| f.what == Carried::Row);
        if has_row {
            for text in self.pipeline.prologue.clone() {
                line!(self, "    {text}");
            }
        }
        if let Some(probe) = &level.entered_by {
            self.enter(probe)?;
        }
        for step in &level.steps {
            match step {
                EmittedStep::Filter(test) => self.filter(test, "live"),
                EmittedStep::Probe(probe) => self.probe(probe)?,
                EmittedStep::Mark(_) => {
                    return Err(GpuError::Internal("marks of pairs inside a tree".into()));
                }
                EmittedStep::Expand(_) => {
                    return Err(GpuError::Internal("an expansion inside a level".into()));
                }
            }
        }
        match levels.get(l + 1) {
            None => self.sink(),
            Some(next) => self.descend(l + 1, next, probes, options),
        }
    }

    /// The entry of a node that is a match, and what is tested of it.
    fn enter(&mut self, probe: &EmittedProbe) -> Result<()> {
        let (p, r) = (probe.number, probe.index);
        let index = self.index(r)?.clone();
        let outer = probe.kind == ProbeKind::Left;
        let found = if outer {
            "live != 0 && at != WL_TREE_NO_MATCH"
        } else {
            "live != 0"
        };
        line!(
            self,
            "    const u32 h{p} = {found} ? live : 0u; (void)h{p};"
        );
        let entry = if index.is_listed() {
            let rows = self.pointer(Slot::Result(r, Part::Entries), "const u32*");
            format!("{rows}[at]")
        } else {
            "at".to_string()
        };
        let none = if outer { "WL_NO_ENTRY" } else { "0u" };
        line!(self, "    u32 e{p}[1] = {{h{p} != 0 ? {entry} : {none}}};");
        if let Some(residual) = &probe.residual {
            self.filter(residual, "live");
        }
        match probe.marks.as_slice() {
            [] => {}
            [None] => {
                let marks = self.pointer(Slot::Result(r, Part::Marks(0)), "u32*");
                line!(
                    self,
                    "    if ((live & h{p}) != 0) wl_set_bit({marks}, e{p}[0]);"
                );
            }
            _ => return Err(GpuError::Internal("conditions of marks in a tree".into())),
        }
        Ok(())
    }

    /// Nodes of the next level, from those of this one that are still alive.
    fn descend(
        &mut self,
        next: usize,
        level: &Level,
        probes: &Probes,
        options: TreeOptions,
    ) -> Result<()> {
        let (wanted, begin, length) = match &level.entered_by {
            None => ("live != 0".to_string(), "0u".to_string(), "1u".to_string()),
            Some(probe) => {
                let index = self.index(probe.index)?.clone();
                self.load(&probe.columns);
                self.look_up_rows(probe, &index, true)?;
                let p = probe.number;
                if probe.kind == ProbeKind::Left {
                    (
                        "live != 0".to_string(),
                        format!("length{p}[0] != 0 ? first{p}[0] : WL_TREE_NO_MATCH"),
                        format!("length{p}[0] != 0 ? length{p}[0] : 1u"),
                    )
                } else {
                    (
                        format!("(live & h{p}) != 0 && length{p}[0] != 0"),
                        format!("first{p}[0]"),
                        format!("length{p}[0]"),
                    )
                }
            }
        };
        // Values that nodes carry are read before they leave.
        let values: Vec<usize> = level
            .carried
            .iter()
            .filter_map(|f| match f.what {
                Carried::Value(i) => Some(i),
                _ => None,
            })
            .collect();
        self.load(&values);
        line!(self, "    const bool goes_on = {wanted};");
        line!(
            self,
            "    const u32 to = tree.template push<{next}>(queues.level{next}, goes_on, {begin}, {length});"
        );
        line!(self, "    if (goes_on) {{");
        for field in &level.carried {
            let value = self.carried(field, probes, "0");
            line!(
                self,
                "      queues.level{next}.{}[to] = {value};",
                field.name
            );
        }
        line!(self, "    }}\n    __syncwarp();");
        if options.balance == Balance::Fws && level.entered_by.is_some() {
            line!(
                self,
                "    tree_cut<{next}>(share, tree, queues.level{next}, (u32)__popc(__ballot_sync(WL_FULL_MASK, goes_on)), {});",
                options.fws_threshold.max(1)
            );
        }
        Ok(())
    }
}
