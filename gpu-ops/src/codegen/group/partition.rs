//! What a block does with the groups of a partition: its table in shared memory, rows added to it, groups written down.

use std::fmt::Write as _;

use super::distinct::PROBES;
use super::states::Groups;
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::{ControlWord, RegroupedLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::stores::RESERVE_BYTES;
use crate::codegen::kernel::writer::{KernelWriter, line};

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

    pub(in crate::codegen) fn clear_block(&mut self, groups: &Groups, of: RegroupedLayout) {
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
    pub(in crate::codegen) fn add_to_partition(&mut self, groups: &Groups, of: RegroupedLayout) {
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
    pub(in crate::codegen) fn flush_partition(&mut self, groups: &Groups, of: RegroupedLayout) {
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
