//! The aggregation sink of a kernel, for each place where group states can live (SEEDS C3, C4).

use std::fmt::Write as _;

use super::aggregate::{AccumulatorPlan, StateKind};
use super::emit::EmittedSink;
use super::kernel::BLOCK_THREADS;
use super::kernel::{KernelWriter, line};
use super::keys;
use super::keys::KeyPlan;
use super::program::ControlWord;
use crate::error::{GpuError, Result};
use crate::graph::ResultId;
use crate::pipeline::{AggregateFunction, GroupPlacement};

/// Private states of more registers than this go to shared memory, a column a thread: in registers
/// every row would update every group, and the arithmetic pipe becomes the limit (on an H200, TPC-H Q1
/// with 54 registers of states took 5.7 ms at scale 100 against a floor of 1.7 ms).
const PRIVATE_REGISTERS: u64 = 24;
/// Most shared memory a block may take for them: two blocks a multiprocessor.
const PRIVATE_BYTES: u64 = 104 << 10;
/// Past this many probes a group table counts as overflowing and is made larger (C6).
const PROBES: u32 = 128;
const WARPS: u32 = BLOCK_THREADS / 32;

/// What the text of the sink depends on.
struct Groups {
    into: ResultId,
    keys: Vec<KeyPlan>,
    key_words: usize,
    aggregates: AccumulatorPlan,
    placement: GroupPlacement,
    slots: u64,
    /// Rows of one group follow each other: a thread adds up a run of them before it touches the table.
    runs: bool,
    /// The first accumulator, which counts rows to tell groups from empty places, is of no use to anyone.
    uncounted: bool,
    /// States in registers or in a thread's column of shared memory.
    private: bool,
    /// Bytes of shared memory for private states; 0: they are in registers.
    private_bytes: u64,
}

impl Groups {
    fn words(&self) -> usize {
        self.aggregates.words
    }

    fn hashed(&self) -> bool {
        !self.keys.is_empty() && matches!(self.placement, GroupPlacement::GlobalHash { .. })
    }

    /// C++ text of a thread's partial result of accumulator `i` for group `g`.
    fn partial(&self, i: usize, g: &str) -> String {
        if self.private_bytes > 0 {
            format!("p{i}[{g} * {BLOCK_THREADS}]")
        } else {
            format!("s{i}[{g}]")
        }
    }
}

impl KernelWriter<'_> {
    fn group_plan(&self) -> Result<Groups> {
        let EmittedSink::Aggregate {
            into,
            keys,
            key_words,
            aggregates,
            placement,
            slots,
            clustered,
            distinct_words,
            ..
        } = &self.pipeline.sink
        else {
            return Err(GpuError::Internal("the sink is no aggregation".into()));
        };
        let private = keys.is_empty() || *placement == GroupPlacement::Registers;
        let state: u64 = aggregates
            .accumulators
            .iter()
            .map(|a| a.registers() as u64)
            .sum();
        let bytes = slots * state * 4 * u64::from(BLOCK_THREADS);
        let in_shared = private
            && !keys.is_empty()
            && slots * state > PRIVATE_REGISTERS
            && bytes <= PRIVATE_BYTES;
        let hashed = !keys.is_empty() && matches!(placement, GroupPlacement::GlobalHash { .. });
        let uncounted = hashed
            && aggregates
                .calls
                .iter()
                .all(|c| c.value != 0 && (c.count != 0 || c.function != AggregateFunction::Avg));
        Ok(Groups {
            runs: *clustered
                && self.pipeline.thread_rows > 1
                && distinct_words.is_empty()
                && *key_words == 1
                && (hashed || *placement == GroupPlacement::GlobalDense),
            uncounted,
            into: *into,
            keys: keys.clone(),
            key_words: *key_words,
            aggregates: aggregates.clone(),
            placement: *placement,
            slots: *slots,
            private,
            private_bytes: if in_shared { bytes } else { 0 },
        })
    }

    /// Shared memory, and the states that threads and blocks begin with.
    pub(super) fn begin_groups(&mut self) -> Result<()> {
        let groups = self.group_plan()?;
        let (slots, words) = (groups.slots, groups.words());
        let states = self.pointer(&format!("r{}state", groups.into), "u64*");
        line!(self, "  u64* const states = {states};");
        if groups.private_bytes > 0 {
            self.share(
                &format!("u8 private_states[{}]", groups.private_bytes),
                groups.private_bytes as usize,
            );
        }
        let shared_words = if groups.private {
            slots * words as u64 * u64::from(WARPS)
        } else if groups.placement == GroupPlacement::Shared {
            slots * words as u64
        } else {
            0
        };
        if shared_words > 0 {
            self.share(
                &format!("u64 words[{shared_words}]"),
                shared_words as usize * 8,
            );
        }
        if groups.private_bytes > 0 {
            // A column a thread: lanes of a warp use neighbouring words, so banks never conflict.
            let mut offset = 0;
            for (i, a) in groups.aggregates.accumulators.iter().enumerate() {
                let t = a.partial_type();
                line!(
                    self,
                    "  {t}* const p{i} = ({t}*)(shared.private_states + {offset}) + threadIdx.x;"
                );
                line!(
                    self,
                    "  for (u32 g = 0; g < {slots}; ++g) p{i}[g * {BLOCK_THREADS}] = 0;"
                );
                offset += slots * 4 * a.registers() as u64 * u64::from(BLOCK_THREADS);
            }
        } else if groups.private {
            for (i, a) in groups.aggregates.accumulators.iter().enumerate() {
                line!(self, "  {} s{i}[{slots}] = {{}};", a.partial_type());
            }
        } else if groups.placement == GroupPlacement::Shared {
            line!(
                self,
                "  for (u32 i = threadIdx.x; i < {shared_words}; i += {BLOCK_THREADS}) shared.words[i] = 0;"
            );
            line!(self, "  __syncthreads();");
        }
        Ok(())
    }

    /// Add the live rows of a tile.
    pub(super) fn groups(&mut self) -> Result<()> {
        let groups = self.group_plan()?;
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        line!(self, "    if (live != 0) {{");
        if groups.runs {
            self.runs(&groups, &lines);
        } else {
            self.row_loop(&lines, "live");
            self.update(&groups);
            line!(self, "      }}");
        }
        line!(self, "    }}");
        Ok(())
    }

    /// Add up rows as long as their key stays the same, and only then go to the table: the rows of a
    /// sorted column take as many atomics as they have keys.
    fn runs(&mut self, groups: &Groups, lines: &[String]) {
        let accumulators = &groups.aggregates.accumulators;
        let first = usize::from(groups.uncounted);
        let codes: Vec<String> = groups.keys.iter().map(keys::code).collect();
        let code = if groups.hashed() {
            keys::packed_words(&groups.keys, &codes, 1).remove(0)
        } else {
            keys::dense_code(&groups.keys, &codes)
        };
        line!(self, "      bool open = false; u64 run = 0;");
        for (i, a) in accumulators.iter().enumerate().skip(first) {
            line!(self, "      {} q{i} = 0;", a.partial_type());
        }
        line!(self, "      const auto close_run = [&]() {{");
        if groups.hashed() {
            self.find_slot(groups, &["run".to_string()], "return");
        } else {
            line!(self, "          const u64 slot = run;");
        }
        line!(
            self,
            "          u64* const at = states + slot * {};",
            groups.words()
        );
        for (i, a) in accumulators.iter().enumerate().skip(first) {
            let add = a.add_to_state("at", &format!("q{i}"));
            line!(self, "          if (q{i} != 0) {{ {add} }}");
        }
        line!(self, "      }};");
        self.row_loop(lines, "live");
        line!(self, "        const u64 code = alive ? {code} : run;");
        line!(self, "        if (alive && open && code != run) {{");
        line!(self, "          close_run();");
        for i in first..accumulators.len() {
            line!(self, "          q{i} = 0;");
        }
        line!(self, "        }}");
        line!(self, "        run = code; open = open || alive;");
        for (i, a) in accumulators.iter().enumerate().skip(first) {
            let text = a.add_to_partial(&format!("q{i}"), &a.condition);
            line!(self, "        {text}");
        }
        line!(self, "      }}");
        line!(self, "      if (open) close_run();");
    }

    fn update(&mut self, groups: &Groups) {
        let accumulators = &groups.aggregates.accumulators;
        if groups.keys.is_empty() {
            for (i, a) in accumulators.iter().enumerate() {
                let text = a.add_to_partial(&format!("s{i}[0]"), &a.condition);
                line!(self, "        {text}");
            }
            return;
        }
        let codes: Vec<String> = groups.keys.iter().map(keys::code).collect();
        if !groups.hashed() {
            line!(
                self,
                "        const u64 group = {};",
                keys::dense_code(&groups.keys, &codes)
            );
        }
        if groups.private_bytes > 0 {
            line!(self, "        if (alive) {{");
            line!(
                self,
                "          const u32 at = (u32)group * {BLOCK_THREADS};"
            );
            // All loads before the first store: the compiler cannot know that columns are apart.
            for (i, a) in accumulators.iter().enumerate() {
                line!(self, "          {} t{i} = p{i}[at];", a.partial_type());
            }
            for (i, a) in accumulators.iter().enumerate() {
                let text = a.add_to_partial(&format!("t{i}"), &a.condition);
                line!(self, "          {text}");
            }
            for i in 0..accumulators.len() {
                line!(self, "          p{i}[at] = t{i};");
            }
            line!(self, "        }}");
            return;
        }
        if groups.private {
            line!(
                self,
                "        WL_UNROLL for (u32 g = 0; g < {}; ++g) {{",
                groups.slots
            );
            line!(self, "          const bool mine = (u32)group == g;");
            for (i, a) in accumulators.iter().enumerate() {
                let text =
                    a.add_to_partial(&format!("s{i}[g]"), &format!("(mine && {})", a.condition));
                line!(self, "          {text}");
            }
            line!(self, "        }}");
            return;
        }
        line!(self, "        if (alive) {{");
        let words = groups.words();
        if groups.hashed() {
            let packed = keys::packed_words(&groups.keys, &codes, groups.key_words);
            self.find_slot(groups, &packed, "continue");
            line!(self, "          u64* const at = states + slot * {words};");
        } else if groups.placement == GroupPlacement::Shared {
            line!(
                self,
                "          u64* const at = shared.words + group * {words};"
            );
        } else {
            line!(self, "          u64* const at = states + group * {words};");
        }
        for a in accumulators.iter().skip(usize::from(groups.uncounted)) {
            let add = a.add_to_state("at", &a.value);
            if a.condition == "alive" {
                line!(self, "          {add}");
            } else {
                line!(self, "          if ({}) {{ {add} }}", a.condition);
            }
        }
        line!(self, "        }}");
    }

    /// Find or make the slot of the packed key; a row without one sets the overflow word and goes `otherwise`.
    fn find_slot(&mut self, groups: &Groups, packed: &[String], otherwise: &str) {
        let r = groups.into;
        let keys = self.pointer(&format!("r{r}keys"), "u64*");
        let slots = self.size(&format!("slots{r}"));
        if groups.key_words == 1 {
            line!(
                self,
                "          const u64 slot = find_or_insert({keys}, {slots} - 1, {}, {PROBES});",
                packed[0]
            );
        } else {
            let slot_states = self.pointer(&format!("r{r}states"), "u32*");
            let w = groups.key_words;
            line!(
                self,
                "          const u64 packed[{w}] = {{{}}};",
                packed.join(", ")
            );
            line!(
                self,
                "          const u64 slot = find_or_insert_wide<{w}>({slot_states}, {keys}, {slots} - 1, packed, {PROBES});"
            );
        }
        let overflow = self.control(r, ControlWord::Overflow);
        line!(
            self,
            "          if (slot == WL_NO_SLOT) {{ store_relaxed(&{overflow}, (u64)1); {otherwise}; }}"
        );
    }

    /// Bring what a block holds to the global state.
    pub(super) fn finish_groups(&mut self) -> Result<()> {
        let groups = self.group_plan()?;
        let (slots, words) = (groups.slots, groups.words());
        if groups.private {
            self.gather_warps(&groups);
            line!(
                self,
                "  for (u32 g = threadIdx.x; g < {slots}; g += {BLOCK_THREADS}) {{"
            );
            line!(self, "    u64* const at = states + (u64)g * {words};");
            for a in &groups.aggregates.accumulators {
                let word =
                    |w: usize| format!("shared.words[((u64)w * {slots} + g) * {words} + {w}]");
                let from = word(a.word);
                let (t, step) = match a.kind {
                    StateKind::Count | StateKind::Sum64 => ("u64", format!("t += {from}")),
                    StateKind::Sum128 => (
                        "u128",
                        format!("t += ((u128){} << 64) | {from}", word(a.word + 1)),
                    ),
                    StateKind::SumFloat => ("f64", format!("t += *(const f64*)&{from}")),
                    StateKind::Min | StateKind::Max | StateKind::Any => {
                        ("u64", format!("t = max_u64(t, {from})"))
                    }
                    StateKind::Min128 | StateKind::Max128 => (
                        "u128",
                        format!(
                            "t = max_u128(t, ((u128){} << 64) | {from})",
                            word(a.word + 1)
                        ),
                    ),
                };
                line!(
                    self,
                    "    {{ {t} t = 0; for (u32 w = 0; w < {WARPS}; ++w) {step};"
                );
                line!(self, "      if (t != 0) {} }}", a.add_to_state("at", "t"));
            }
            line!(self, "  }}");
        } else if groups.placement == GroupPlacement::Shared {
            line!(self, "  __syncthreads();");
            line!(
                self,
                "  for (u32 g = threadIdx.x; g < {slots}; g += {BLOCK_THREADS}) {{"
            );
            line!(
                self,
                "    const u64* const from = shared.words + (u64)g * {words};"
            );
            line!(self, "    u64* const at = states + (u64)g * {words};");
            for a in &groups.aggregates.accumulators {
                let w = a.word;
                let value = match a.kind {
                    StateKind::Sum128 | StateKind::Min128 | StateKind::Max128 => {
                        format!("(((u128)from[{}] << 64) | from[{w}])", w + 1)
                    }
                    StateKind::SumFloat => format!("*(const f64*)(from + {w})"),
                    _ => format!("from[{w}]"),
                };
                line!(
                    self,
                    "    if ({value} != 0) {}",
                    a.add_to_state("at", &value)
                );
            }
            line!(self, "  }}");
        }
        Ok(())
    }

    /// Each warp leaves its sums in shared memory.
    fn gather_warps(&mut self, groups: &Groups) {
        let (slots, words) = (groups.slots, groups.words());
        line!(self, "  WL_UNROLL for (u32 g = 0; g < {slots}; ++g) {{");
        line!(
            self,
            "    u64* const mine = shared.words + ((u64)warp_id() * {slots} + g) * {words};"
        );
        for (i, a) in groups.aggregates.accumulators.iter().enumerate() {
            let w = a.word;
            let partial = groups.partial(i, "g");
            match a.kind {
                StateKind::Count | StateKind::Sum64 => line!(
                    self,
                    "    {{ const u64 t = warp_sum((u64)(i64){partial}); if (lane_id() == 0) mine[{w}] = t; }}"
                ),
                StateKind::Sum128 => {
                    line!(
                        self,
                        "    {{ const u128 t = warp_sum((u128)(i128){partial});"
                    );
                    line!(
                        self,
                        "      if (lane_id() == 0) {{ mine[{w}] = (u64)t; mine[{}] = (u64)(t >> 64); }} }}",
                        w + 1
                    );
                }
                StateKind::SumFloat => line!(
                    self,
                    "    {{ const f64 t = warp_sum({partial}); if (lane_id() == 0) mine[{w}] = (u64)f64_bits(t); }}"
                ),
                StateKind::Min128 | StateKind::Max128 => {
                    // Signed as the warp compares them, and back.
                    line!(
                        self,
                        "    {{ const u128 t = max_key128(warp_max(value_of_max128({partial})));"
                    );
                    line!(
                        self,
                        "      if (lane_id() == 0) {{ mine[{w}] = (u64)t; mine[{}] = (u64)(t >> 64); }} }}",
                        w + 1
                    );
                }
                StateKind::Min | StateKind::Max | StateKind::Any => line!(
                    self,
                    "    {{ const u64 t = warp_max({partial}); if (lane_id() == 0) mine[{w}] = t; }}"
                ),
            }
        }
        line!(self, "  }}\n  __syncthreads();");
    }
}
