//! The aggregation sink of a kernel, for each place where group states can live (Karnagel et al., DaMoN 2015): what
//! threads and blocks begin with, and how it comes to the global state. [`super::update`] has what a row does.

use std::fmt::Write as _;

use crate::codegen::ir::accumulator::{Accumulator, StateKind, halves};
use crate::codegen::ir::aggregates::AccumulatorPlan;
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::{ControlWord, GroupsLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};
use crate::graph::ResultId;
use crate::pipeline::{GroupPlacement, Regroup};

/// Private states of more registers than this go to shared memory, a column a thread: in registers
/// every row would update every group, and the arithmetic pipe becomes the limit (on an H200, TPC-H Q1
/// with 54 registers of states took 5.7 ms at scale 100 against a floor of 1.7 ms).
const PRIVATE_REGISTERS: u64 = 24;
/// Most shared memory a block may take for them: two blocks a multiprocessor.
const PRIVATE_BYTES: u64 = 104 << 10;
/// What the text of the sink depends on.
pub(in crate::codegen) struct Groups {
    pub(in crate::codegen) into: ResultId,
    pub(in crate::codegen) layout: GroupsLayout,
    /// Groups that a thread or a block has states for.
    pub(in crate::codegen) slots: u64,
    pub(in crate::codegen) threads: u64,
    /// Rows of one group follow each other: a thread adds up a run of them before it touches the table.
    pub(in crate::codegen) runs: bool,
    /// … and keeps what it has of one from tile to tile: in kernels whose warps go over tiles together.
    pub(in crate::codegen) carried: bool,
    /// States in registers or in a thread's column of shared memory.
    pub(in crate::codegen) private: bool,
    /// Bytes of shared memory for private states; 0: they are in registers.
    pub(in crate::codegen) private_bytes: u64,
}

impl Groups {
    pub(in crate::codegen) fn plan(&self) -> &AccumulatorPlan {
        &self.layout.aggregates
    }

    pub(in crate::codegen) fn hashed(&self) -> bool {
        self.layout.hashed()
    }

    pub(in crate::codegen) fn shared(&self) -> bool {
        !self.private && self.layout.placement == GroupPlacement::Shared
    }

    /// Do rows come in the order of the key, so that a tile's groups are written down with it?
    pub(in crate::codegen) fn is_runs(&self) -> bool {
        self.layout
            .regrouped
            .is_some_and(|of| of.how == Regroup::Runs)
    }

    /// Does a block have states of its own, an array an accumulator?
    fn has_arrays(&self) -> bool {
        self.shared()
            || self.layout.front > 0
            || self.layout.regrouped.is_some_and(|r| r.window > 0)
    }

    /// C++ type of the keys in front of the table: a group's number or its packed key, plus one.
    pub(in crate::codegen) fn front_type(&self) -> &'static str {
        if self.hashed() {
            self.layout.key_type()
        } else {
            "u32"
        }
    }

    /// C++ text of a thread's partial result of accumulator `i` for group `g`.
    fn partial(&self, i: usize, g: &str) -> String {
        if self.private_bytes > 0 {
            format!("p{i}[{g} * {}]", self.threads)
        } else {
            format!("s{i}[{g}]")
        }
    }

    /// First byte of each accumulator's array where a block keeps one a accumulator, and the bytes of all.
    fn arrays(&self) -> (Vec<u64>, u64) {
        let mut starts = Vec::new();
        let mut end = 0u64;
        for a in &self.plan().accumulators {
            end = end.next_multiple_of(16);
            starts.push(end);
            end += self.slots * a.bytes() as u64;
        }
        (starts, end)
    }

    /// C++ text of a pointer to the cell of accumulator `i` of group `g` in these arrays.
    pub(in crate::codegen) fn array_cell(&self, i: usize, g: &str) -> String {
        let a = &self.plan().accumulators[i];
        let words = a.bytes() as u64 / if a.narrow { 4 } else { 8 };
        match words {
            1 => format!("(p{i} + {g})"),
            _ => format!("(p{i} + {g} * {words})"),
        }
    }
}

impl KernelWriter<'_> {
    pub(in crate::codegen) fn group_plan(&self) -> Result<Groups> {
        let EmittedSink::Aggregate {
            into,
            layout,
            clustered,
            ..
        } = &self.pipeline.sink
        else {
            return Err(GpuError::Internal("the sink is no aggregation".into()));
        };
        let threads = u64::from(self.pipeline.block_threads);
        let keys = &layout.keys;
        let private = keys.is_empty() || layout.placement == GroupPlacement::Registers;
        let state: u64 = layout
            .aggregates
            .accumulators
            .iter()
            .map(|a| a.registers() as u64)
            .sum();
        let slots = match layout.regrouped {
            Some(of) => of.window,
            None if layout.front > 0 => layout.front,
            None => layout.slots,
        };
        let bytes = slots.saturating_mul(state * 4 * threads);
        let in_shared = private
            && !keys.is_empty()
            && slots * state > PRIVATE_REGISTERS
            && bytes <= PRIVATE_BYTES;
        let runs = *clustered
            && layout.front == 0
            && layout.distinct_words.is_empty()
            && (layout.regrouped.is_some()
                || layout.key_words == 1
                    && (layout.hashed() || layout.placement == GroupPlacement::GlobalDense));
        let in_order = layout.regrouped.is_some_and(|of| of.how == Regroup::Runs);
        Ok(Groups {
            runs,
            carried: runs && !in_order && !self.pipeline.warps_alone(),
            into: *into,
            slots,
            threads,
            private,
            private_bytes: if in_shared { bytes } else { 0 },
            layout: layout.as_ref().clone(),
        })
    }

    /// C++ address of the word that says that a hash table which the kernel fills was too small, if it fills one.
    pub(in crate::codegen) fn overflow_word(&mut self) -> Result<Option<String>> {
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

    /// Shared memory, and the states that threads and blocks begin with.
    pub(in crate::codegen) fn begin_groups(&mut self) -> Result<()> {
        let groups = self.group_plan()?;
        let (slots, threads) = (groups.slots, groups.threads);
        let layout_front = groups.layout.front;
        let states = self.pointer(Slot::Result(groups.into, Part::State), "u8*");
        line!(self, "  u8* const states = {states};");
        let accumulators = groups.plan().accumulators.clone();
        if let Some(of) = groups.layout.regrouped {
            let room = self.size(Slot::Capacity(groups.into));
            line!(self, "  const u64 cap = {room};");
            if of.how.partitions() {
                self.begin_partitions(&groups, of);
            } else if of.how == Regroup::Runs {
                self.begin_runs(&groups, of);
            } else {
                // The collected rows know how many groups there are.
                let Some(rows) = of.rows else {
                    return Err(GpuError::Internal("groups of no collected rows".into()));
                };
                let known = self.control(rows, ControlWord::Pairs);
                let count = self.control(groups.into, ControlWord::Count);
                line!(self, "  const u64 groups = {known};");
                line!(
                    self,
                    "  if (blockIdx.x == 0 && threadIdx.x == 0) store_relaxed(&{count}, groups);"
                );
            }
        }
        if groups.private_bytes > 0 {
            self.share(
                &format!("u8 private_states[{}]", groups.private_bytes),
                groups.private_bytes as usize,
            );
        }
        if groups.private {
            let bytes = slots * warp_stride(groups.plan()) * (threads / 32);
            self.share(
                &format!("u8 warp_states[{}]", bytes.max(8)),
                bytes.max(8) as usize,
            );
        }
        if groups.private_bytes > 0 {
            // A column a thread: lanes of a warp use neighbouring words, so banks never conflict.
            let mut offset = 0;
            for (i, a) in accumulators.iter().enumerate() {
                let t = a.partial_type();
                line!(
                    self,
                    "  {t}* const p{i} = ({t}*)(shared.private_states + {offset}) + threadIdx.x;"
                );
                line!(
                    self,
                    "  for (u32 g = 0; g < {slots}; ++g) p{i}[g * {threads}] = 0;"
                );
                offset += slots * 4 * a.registers() as u64 * threads;
            }
        } else if groups.private {
            for (i, a) in accumulators.iter().enumerate() {
                line!(self, "  {} s{i}[{slots}] = {{}};", a.partial_type());
            }
        } else if groups.has_arrays() {
            // An array an accumulator: neighbouring groups lie in neighbouring banks.
            let (starts, bytes) = groups.arrays();
            let bytes = bytes.next_multiple_of(16).max(16);
            self.share(&format!("u8 states[{bytes}]"), bytes as usize);
            for (i, (a, start)) in accumulators.iter().zip(starts).enumerate() {
                let t = a.cell_type();
                line!(self, "  {t}* const p{i} = ({t}*)(shared.states + {start});");
            }
            if layout_front > 0 {
                let t = groups.front_type();
                let bytes = layout_front * if t == "u32" { 4 } else { 8 };
                self.share(&format!("u8 front[{bytes}]"), bytes as usize);
                line!(self, "  {t}* const front = ({t}*)shared.front;");
                line!(self, "  block_zero<{layout_front}>(front);");
            }
            if !self.is_partitioned() {
                self.clear_arrays(&groups);
                line!(self, "  __syncthreads();");
            }
        }
        if groups.carried {
            self.begin_carried_runs(&groups);
        }
        Ok(())
    }

    /// Clear the states that a block has of its own.
    pub(in crate::codegen) fn clear_arrays(&mut self, groups: &Groups) {
        let (_, bytes) = groups.arrays();
        line!(
            self,
            "  block_zero<{}>((u128*)shared.states);",
            bytes.div_ceil(16).max(1)
        );
    }

    /// Bring what a block holds to the global state.
    pub(in crate::codegen) fn finish_groups(&mut self) -> Result<()> {
        let groups = self.group_plan()?;
        let (slots, threads) = (groups.slots, groups.threads);
        let stride = groups.layout.stride;
        let accumulators = groups.plan().accumulators.clone();
        if groups.is_runs() {
            return Ok(());
        }
        if groups.carried {
            self.end_carried_runs();
        }
        if groups.private {
            self.gather_warps(&groups);
            line!(
                self,
                "  for (u32 g = threadIdx.x; g < {slots}; g += {threads}) {{"
            );
            line!(self, "    u8* const at = states + (u64)g * {stride};");
            let warp = warp_stride(groups.plan());
            for a in &accumulators {
                let offset = a.offset;
                let t = match a.kind {
                    StateKind::Sum128 | StateKind::Min128 | StateKind::Max128 => "u128",
                    _ => a.cell_type(),
                };
                let from = format!(
                    "({}*)(shared.warp_states + ((u64)w * {slots} + g) * {warp} + {offset})",
                    a.cell_type()
                );
                let from = match a.kind {
                    // What warps leave is one number.
                    StateKind::Sum128 => halves(&from),
                    _ => a.content(&from),
                };
                let step = match a.kind {
                    StateKind::Count
                    | StateKind::Sum64
                    | StateKind::SumFloat
                    | StateKind::Sum128 => format!("t += {from}"),
                    StateKind::Or => format!("t |= {from}"),
                    StateKind::Xor => format!("t ^= {from}"),
                    _ => format!("t = max_{t}(t, {from})"),
                };
                line!(
                    self,
                    "    {{ {t} t = 0; for (u32 w = 0; w < {}; ++w) {step};",
                    threads / 32
                );
                let add = a.add_to_state(&a.cell("at"), "t");
                line!(self, "      if (t != 0) {add} }}");
            }
            line!(self, "  }}");
        } else if groups.has_arrays() {
            line!(self, "  __syncthreads();");
            line!(
                self,
                "  for (u32 g = threadIdx.x; g < {slots}; g += {threads}) {{"
            );
            if groups.layout.regrouped.is_some() {
                line!(self, "    if (g >= min_u64(groups, cap)) break;");
            }
            if groups.layout.front == 0 {
                line!(self, "    u8* const at = states + (u64)g * {stride};");
            } else {
                line!(self, "    if (front[g] == 0) continue;");
                self.find_state(&groups, &["((u64)front[g] - 1)".to_string()], "continue");
            }
            for (i, a) in accumulators.iter().enumerate() {
                let value = a.content(&groups.array_cell(i, "g"));
                let add = a.add_rows_to_state(&a.cell("at"), &value);
                line!(self, "    {add}");
            }
            line!(self, "  }}");
        }
        Ok(())
    }

    /// Each warp leaves its sums in shared memory.
    fn gather_warps(&mut self, groups: &Groups) {
        let (slots, stride) = (groups.slots, warp_stride(groups.plan()));
        line!(self, "  WL_UNROLL for (u32 g = 0; g < {slots}; ++g) {{");
        line!(
            self,
            "    u8* const mine = shared.warp_states + ((u64)warp_id() * {slots} + g) * {stride};"
        );
        for (i, a) in groups.plan().accumulators.iter().enumerate() {
            let offset = a.offset;
            let t = a.cell_type();
            let sum = warp_total(a, &groups.partial(i, "g"));
            let store = match a.kind {
                StateKind::Sum128 | StateKind::Min128 | StateKind::Max128 => {
                    "to[0] = (u64)t; to[1] = (u64)(t >> 64)"
                }
                _ => "*to = t",
            };
            line!(
                self,
                "    {{ const auto t = {sum}; {t}* const to = ({t}*)(mine + {offset}); if (lane_id() == 0) {{ {store}; }} }}"
            );
        }
        line!(self, "  }}\n  __syncthreads();");
    }
}

/// C++ text of what the lanes of a warp have of an accumulator, together.
pub(in crate::codegen) fn warp_total(a: &Accumulator, partial: &str) -> String {
    match a.kind {
        StateKind::Count | StateKind::Sum64 => {
            format!("({})warp_sum((u64)(i64){partial})", a.cell_type())
        }
        StateKind::Sum128 => format!("warp_sum((u128)(i128){partial})"),
        StateKind::SumFloat => format!("warp_sum({partial})"),
        // Signed as the warp compares them, and back.
        StateKind::Min128 | StateKind::Max128 => {
            format!("max_key128(warp_max(value_of_max128({partial})))")
        }
        StateKind::Or => format!("warp_or({partial})"),
        StateKind::Xor => format!("warp_xor({partial})"),
        StateKind::Min | StateKind::Max | StateKind::Any | StateKind::Seen => {
            format!("warp_max({partial})")
        }
    }
}

/// Bytes from one group's cells to the next one's there.
fn warp_stride(plan: &AccumulatorPlan) -> u64 {
    plan.bytes.next_multiple_of(8) as u64
}
