//! What a block does with the groups of a partition: its table in shared memory, rows added to it, groups written down.

use std::fmt::Write as _;

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
        let t = of.key_type();
        let slots = of.window;
        self.share("ReserveScratch reserve", RESERVE_BYTES);
        let table = slots * u64::from(of.key_bytes);
        self.share(&format!("u8 table[{table}]"), table as usize);
        line!(self, "  {t}* const table = ({t}*)shared.table;");
        self.begin_strays(groups, of);
    }

    /// The table where groups meet that a block does not have alone.
    pub(super) fn begin_strays(&mut self, groups: &Groups, of: RegroupedLayout) {
        let r = groups.into;
        let t = of.key_type();
        let keys = self.pointer(Slot::Result(r, Part::Keys), of.key_pointer());
        let states = self.pointer(Slot::Result(r, Part::States), "u32*");
        let table_keys = self.pointer(Slot::Result(r, Part::TableKeys), of.key_pointer());
        let numbers = self.pointer(Slot::Result(r, Part::Ids), "u32*");
        let slots = self.size(Slot::TableSlots(r));
        let count = self.control(r, ControlWord::Count);
        line!(
            self,
            "  const NumberTable<{t}> numbering = {{{states}, {table_keys}, {numbers}, {slots} - 1, &{count}, {keys}, cap}};"
        );
    }

    pub(in crate::codegen) fn clear_block(&mut self, groups: &Groups, of: RegroupedLayout) {
        // 16 bytes at a time.
        let words = (of.window * u64::from(of.key_bytes)).div_ceil(16);
        line!(self, "    block_zero<{words}>((u128*)shared.table);");
        self.clear_arrays(groups);
        line!(self, "    __syncthreads();");
    }

    /// Add the row at hand to its group's state in the block, or in device memory when the block is full.
    pub(in crate::codegen) fn add_to_partition(&mut self, groups: &Groups, of: RegroupedLayout) {
        let t = of.key_type();
        let slots = of.window;
        let key = self.pipeline.scope.len() - 1;
        line!(self, "        if (alive) {{");
        line!(self, "          const {t} key = ({t})c{key}[k];");
        line!(
            self,
            "          const u32 slot = block_slot(table, {slots}u, key, {}u);",
            of.bits
        );
        line!(self, "          if (slot != WL_NO_NUMBER) {{");
        self.add_to_arrays(groups, "slot");
        let state = self.state_of_key(groups, "key");
        line!(self, "          }} else if (u8* const at = {state}) {{");
        self.add_row(groups.plan());
        line!(self, "          }}\n        }}");
    }

    /// Write the groups of the block's table.
    pub(in crate::codegen) fn flush_partition(&mut self, groups: &Groups, of: RegroupedLayout) {
        let r = groups.into;
        let slots = of.window;
        let stride = groups.layout.stride;
        let count = self.control(r, ControlWord::Count);
        let keys = self.pointer(Slot::Result(r, Part::Keys), of.key_pointer());
        let accumulators = groups.plan().accumulators.clone();
        line!(
            self,
            "  if (pieces.whole) {{\n    block_number_groups<{slots}>(table, &{count}, shared.reserve, [&](u32 slot, u64 number) {{"
        );
        line!(self, "      if (number >= cap) return;");
        line!(self, "      {keys}[number] = block_key(table, slot);");
        line!(self, "      u8* const at = states + number * {stride};");
        for (i, a) in accumulators.iter().enumerate() {
            let store = a.copy(&a.cell("at"), &groups.array_cell(i, "slot"));
            line!(self, "      {store}");
        }
        line!(self, "    }});\n  }} else {{");
        line!(
            self,
            "    for (u32 slot = threadIdx.x; slot < {slots}u; slot += {}) {{",
            groups.threads
        );
        line!(self, "      if (table[slot] == 0) continue;");
        self.stray_state(groups, "block_key(table, slot)", "continue");
        for (i, a) in accumulators.iter().enumerate() {
            let value = a.content(&groups.array_cell(i, "slot"));
            let add = a.add_to_state(&a.cell("at"), &value);
            line!(self, "      if ({value} != 0) {{ {add} }}");
        }
        line!(self, "    }}\n  }}");
    }
}
