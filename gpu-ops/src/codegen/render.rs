//! The text of a tile kernel for one group placement.

use std::fmt::Write as _;

use super::aggregate::StateKind;
use super::arguments::Arguments;
use super::tile::{BLOCK_THREADS, HEADER_WORDS, KeyPlan, THREAD_ROWS, TILE_ROWS, TilePlan};
use crate::column::Encoding;
use crate::error::{GpuError, Result};
use crate::pipeline::GroupPlacement;

/// Builds the text of one kernel.
pub(super) struct Writer<'a> {
    pub(super) plan: &'a TilePlan,
    pub(super) arguments: Arguments,
    pub(super) text: String,
    /// Scope columns read so far.
    pub(super) loaded: Vec<usize>,
    /// Bytes of shared memory that hold the threads' private states; 0: they are in registers.
    pub(super) private_bytes: u64,
}

/// Private states of more registers than this go to shared memory, a column a thread: in registers
/// every row would update every group, and the arithmetic pipe becomes the limit (on an H200, TPC-H Q1
/// with 54 registers of states took 5.7 ms at scale 100 against a floor of 1.7 ms).
const PRIVATE_REGISTERS: u64 = 24;
/// Most shared memory a block may take for them: two blocks a multiprocessor.
const PRIVATE_BYTES: u64 = 104 << 10;

macro_rules! line {
    ($writer:expr, $($arg:tt)*) => {{ let _ = writeln!($writer.text, $($arg)*); }};
}

impl Writer<'_> {
    /// Where the threads' private states of `slots` groups live.
    fn private_bytes_for(&self, slots: u64) -> u64 {
        let registers = slots * self.plan.profile.state_registers as u64;
        if self.plan.keys.is_empty() || registers <= PRIVATE_REGISTERS {
            return 0;
        }
        let accumulators = &self.plan.aggregates.accumulators;
        let state: u64 = accumulators.iter().map(|a| 4 * a.registers() as u64).sum();
        let bytes = slots * state * u64::from(BLOCK_THREADS);
        if bytes <= PRIVATE_BYTES { bytes } else { 0 }
    }

    /// C++ text of a thread's partial result of accumulator `i` for group `g`.
    fn partial(&self, i: usize, g: &str) -> String {
        if self.private_bytes > 0 {
            format!("p{i}[{g} * {BLOCK_THREADS}]")
        } else {
            format!("s{i}[{g}]")
        }
    }

    /// Returns the bytes of shared memory.
    pub(super) fn kernel(&mut self, placement: GroupPlacement, slots: u64) -> Result<usize> {
        let plan = self.plan;
        let words = plan.aggregates.words;
        let warps = BLOCK_THREADS / 32;
        let in_registers = plan.keys.is_empty() || placement == GroupPlacement::Registers;
        self.private_bytes = if in_registers {
            self.private_bytes_for(slots)
        } else {
            0
        };
        self.arguments.named_integer("rows", plan.rows as i64);
        self.arguments.pointer("state", "u64*");
        if let GroupPlacement::GlobalHash { capacity } = placement
            && !plan.keys.is_empty()
        {
            self.arguments.pointer("keys", "u64*");
            if plan.key_words > 1 {
                self.arguments.pointer("states", "u32*");
            }
            self.arguments.named_integer("mask", capacity as i64 - 1);
        }
        let shared_words = match placement {
            _ if in_registers => slots * words as u64 * u64::from(warps),
            GroupPlacement::Shared => slots * words as u64,
            _ => 0,
        };
        if shared_words > 0 {
            line!(self, "struct Shared {{");
            if self.private_bytes > 0 {
                line!(
                    self,
                    "  alignas(16) u8 private_states[{}];",
                    self.private_bytes
                );
            }
            line!(self, "  u64 words[{shared_words}];\n}};\n");
        }
        line!(self, "WL_KERNEL(pipeline, Args, args) {{");
        if shared_words > 0 {
            line!(self, "  WL_SHARED(Shared, shared);");
        }
        line!(self, "  u64* const header = args.state;");
        line!(self, "  u64* const states = args.state + {HEADER_WORDS};");
        line!(self, "  u32 fault = 0;");
        if self.private_bytes > 0 {
            // A column a thread: lanes of a warp use neighbouring words, so banks never conflict.
            let mut offset = 0;
            for (i, a) in plan.aggregates.accumulators.iter().enumerate() {
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
        } else if in_registers {
            for (i, a) in plan.aggregates.accumulators.iter().enumerate() {
                line!(self, "  {} s{i}[{slots}] = {{}};", a.partial_type());
            }
        } else if placement == GroupPlacement::Shared {
            line!(
                self,
                "  for (u32 i = threadIdx.x; i < {shared_words}; i += {BLOCK_THREADS}) shared.words[i] = 0;"
            );
            line!(self, "  __syncthreads();");
        }
        line!(self, "  const u64 rows = (u64)args.rows;");
        line!(
            self,
            "  const u64 tiles = (rows + {}) / {TILE_ROWS};",
            TILE_ROWS - 1
        );
        line!(
            self,
            "  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"
        );
        line!(
            self,
            "    const u64 row = tile * {TILE_ROWS} + threadIdx.x * {THREAD_ROWS};"
        );
        line!(self, "    if (row >= rows) continue;");
        line!(
            self,
            "    u32 live = rows - row >= {THREAD_ROWS} ? 0xFFu : (1u << (u32)(rows - row)) - 1u;"
        );
        for step in &plan.filters {
            self.load(&step.columns);
            line!(self, "    {{ u32 pass = 0;");
            self.row_loop(&step.lines);
            line!(self, "        pass |= (u32)({}) << k;", step.passes);
            line!(
                self,
                "      }}\n      live &= pass;\n    }}\n    if (live == 0) continue;"
            );
        }
        self.load(&plan.body_columns);
        self.row_loop(&plan.body);
        self.update(placement, slots, in_registers);
        line!(self, "      }}\n  }}");
        self.finish(placement, slots, in_registers);
        if plan.state.faults {
            line!(
                self,
                "  if (fault != 0) atomicMax(header + WL_HEADER_FAULT, (u64)fault);"
            );
        }
        line!(self, "}}");
        usize::try_from(self.private_bytes + shared_words * 8)
            .map_err(|_| GpuError::Internal("shared memory size".into()))
    }

    /// Read columns that no earlier step has read.
    fn load(&mut self, columns: &[usize]) {
        for &i in columns {
            if self.loaded.contains(&i) {
                continue;
            }
            self.loaded.push(i);
            let column = &self.plan.columns[i];
            if column.validity.is_some() {
                let name = self.arguments.pointer(&format!("n{i}"), "const u8*");
                line!(self, "    const u32 n{i} = load_bits8({name}, row);");
            }
            let (c_type, pointer) = match &column.encoding {
                Encoding::Bits => {
                    let name = self.arguments.pointer(&format!("c{i}"), "const u8*");
                    line!(self, "    const u32 c{i} = load_bits8({name}, row);");
                    continue;
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
                // Only IS NULL reads such a column, and that needs no data.
                Encoding::Bytes { .. } => continue,
            };
            let name = self.arguments.pointer(&format!("c{i}"), pointer);
            line!(self, "    {c_type} c{i}[{THREAD_ROWS}];");
            line!(
                self,
                "    load_vec_stream<{c_type}, {THREAD_ROWS}>({name} + row, c{i});"
            );
        }
    }

    /// Open the loop over a thread's rows; the caller closes it.
    fn row_loop(&mut self, lines: &[String]) {
        line!(
            self,
            "    WL_UNROLL for (u32 k = 0; k < {THREAD_ROWS}; ++k) {{"
        );
        line!(self, "        const bool alive = ((live >> k) & 1) != 0;");
        for text in lines {
            line!(self, "        {text}");
        }
    }

    /// The code of a key as an unsigned 64-bit number.
    fn key_code(&mut self, key: &KeyPlan) -> String {
        let mut text = format!("(u64){}", key.value.text);
        if key.min != 0 {
            // Counted from the smallest value modulo 2^64, in which every domain fits.
            text = format!("({text} - {}ull)", key.min as u64);
        }
        match &key.value.valid {
            Some(valid) => format!("({valid} ? {text} + 1ull : 0ull)"),
            None => text,
        }
    }

    fn update(&mut self, placement: GroupPlacement, slots: u64, in_registers: bool) {
        let plan = self.plan;
        let accumulators = &plan.aggregates.accumulators;
        if plan.keys.is_empty() {
            for (i, a) in accumulators.iter().enumerate() {
                let text = a.add_to_partial(&format!("s{i}[0]"), &a.condition);
                line!(self, "        {text}");
            }
            return;
        }
        let dense = !matches!(placement, GroupPlacement::GlobalHash { .. });
        if dense {
            let mut parts = Vec::new();
            for key in &plan.keys {
                let code = self.key_code(key);
                parts.push(if key.stride == 1 {
                    code
                } else {
                    format!("{code} * {}ull", key.stride)
                });
            }
            line!(self, "        const u64 group = {};", parts.join(" + "));
        }
        if self.private_bytes > 0 {
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
        if in_registers {
            line!(
                self,
                "        WL_UNROLL for (u32 g = 0; g < {slots}; ++g) {{"
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
        match placement {
            GroupPlacement::GlobalHash { .. } => {
                for word in 0..plan.key_words {
                    let mut parts = Vec::new();
                    for key in plan.keys.iter().filter(|k| k.word == word) {
                        let code = self.key_code(key);
                        parts.push(if key.shift == 0 {
                            code
                        } else {
                            format!("({code} << {})", key.shift)
                        });
                    }
                    let packed = if parts.is_empty() {
                        "0ull".to_string()
                    } else {
                        parts.join(" | ")
                    };
                    line!(self, "          const u64 key_word{word} = {packed};");
                }
                // Past this many probes the table counts as overflowing and is made larger (C6).
                let limit = 128;
                if plan.key_words == 1 {
                    line!(
                        self,
                        "          const u64 slot = find_or_insert(args.keys, (u64)args.mask, key_word0, {limit});"
                    );
                } else {
                    let list = (0..plan.key_words)
                        .map(|w| format!("key_word{w}"))
                        .collect::<Vec<_>>();
                    line!(
                        self,
                        "          const u64 packed[{}] = {{{}}};",
                        plan.key_words,
                        list.join(", ")
                    );
                    line!(
                        self,
                        "          const u64 slot = find_or_insert_wide<{}>(args.states, args.keys, (u64)args.mask, packed, {limit});",
                        plan.key_words
                    );
                }
                line!(
                    self,
                    "          if (slot == WL_NO_SLOT) {{ store_relaxed(header + WL_HEADER_OVERFLOW, (u64)1); continue; }}"
                );
                line!(
                    self,
                    "          u64* const at = states + slot * {};",
                    plan.aggregates.words
                );
            }
            GroupPlacement::Shared => {
                line!(
                    self,
                    "          u64* const at = shared.words + group * {};",
                    plan.aggregates.words
                );
            }
            _ => line!(
                self,
                "          u64* const at = states + group * {};",
                plan.aggregates.words
            ),
        }
        for a in accumulators {
            let add = a.add_to_state("at", &a.value);
            if a.condition == "alive" {
                line!(self, "          {add}");
            } else {
                line!(self, "          if ({}) {{ {add} }}", a.condition);
            }
        }
        line!(self, "        }}");
    }

    /// Bring what a block holds to the global state.
    fn finish(&mut self, placement: GroupPlacement, slots: u64, in_registers: bool) {
        let plan = self.plan;
        let words = plan.aggregates.words;
        let warps = BLOCK_THREADS / 32;
        if in_registers {
            // Each warp leaves its sums in shared memory; one thread a group adds up the warps.
            line!(self, "  WL_UNROLL for (u32 g = 0; g < {slots}; ++g) {{");
            line!(
                self,
                "    u64* const mine = shared.words + ((u64)warp_id() * {slots} + g) * {words};"
            );
            for (i, a) in plan.aggregates.accumulators.iter().enumerate() {
                let w = a.word;
                let partial = self.partial(i, "g");
                match a.kind {
                    StateKind::Count | StateKind::Sum64 => {
                        line!(
                            self,
                            "    {{ const u64 t = warp_sum((u64)(i64){partial}); if (lane_id() == 0) mine[{w}] = t; }}"
                        );
                    }
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
                    StateKind::SumFloat => {
                        line!(
                            self,
                            "    {{ const f64 t = warp_sum({partial}); if (lane_id() == 0) mine[{w}] = (u64)f64_bits(t); }}"
                        );
                    }
                    StateKind::Min | StateKind::Max => {
                        line!(
                            self,
                            "    {{ const u64 t = warp_max({partial}); if (lane_id() == 0) mine[{w}] = t; }}"
                        );
                    }
                }
            }
            line!(self, "  }}\n  __syncthreads();");
            line!(
                self,
                "  for (u32 g = threadIdx.x; g < {slots}; g += {BLOCK_THREADS}) {{"
            );
            line!(self, "    u64* const at = states + (u64)g * {words};");
            for a in &plan.aggregates.accumulators {
                let from = format!(
                    "shared.words[((u64)w * {slots} + g) * {words} + {}]",
                    a.word
                );
                match a.kind {
                    StateKind::Count | StateKind::Sum64 => {
                        line!(
                            self,
                            "    {{ u64 t = 0; for (u32 w = 0; w < {warps}; ++w) t += {from};"
                        );
                    }
                    StateKind::Sum128 => {
                        let high = format!(
                            "shared.words[((u64)w * {slots} + g) * {words} + {}]",
                            a.word + 1
                        );
                        line!(
                            self,
                            "    {{ u128 t = 0; for (u32 w = 0; w < {warps}; ++w) t += ((u128){high} << 64) | {from};"
                        );
                    }
                    StateKind::SumFloat => {
                        line!(
                            self,
                            "    {{ f64 t = 0; for (u32 w = 0; w < {warps}; ++w) t += *(const f64*)&{from};"
                        );
                    }
                    StateKind::Min | StateKind::Max => {
                        line!(
                            self,
                            "    {{ u64 t = 0; for (u32 w = 0; w < {warps}; ++w) t = max_u64(t, {from});"
                        );
                    }
                }
                line!(self, "      if (t != 0) {} }}", a.add_to_state("at", "t"));
            }
            line!(self, "  }}");
        } else if placement == GroupPlacement::Shared {
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
            for a in &plan.aggregates.accumulators {
                let w = a.word;
                let value = match a.kind {
                    StateKind::Sum128 => format!("(((u128)from[{}] << 64) | from[{w}])", w + 1),
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
    }
}
