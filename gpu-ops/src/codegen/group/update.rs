//! What a row does to the states of its group: found by number or by key, added to one at a time or as a run.

use std::fmt::Write as _;

use warpline_cuda::kernels::GROUP_PROBES;

use super::run_loop::run_of_row;
use super::states::Groups;
use crate::codegen::ir::accumulator::{Accumulator, EVERY_ROW, StateKind};
use crate::codegen::ir::aggregates::AccumulatorPlan;
use crate::codegen::ir::results::ControlWord;
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::codegen::key::codes;
use crate::error::Result;

impl KernelWriter<'_> {
    /// Add the row at hand to the block's own state of `group` (C++).
    pub(in crate::codegen) fn add_to_arrays(&mut self, groups: &Groups, group: &str) {
        for (i, a) in groups.plan().accumulators.iter().enumerate() {
            let add = a.add_to_block(&groups.array_cell(i, group), &a.value);
            self.add_if(a, &add);
        }
    }

    /// Add the live rows of a tile.
    pub(in crate::codegen) fn groups(&mut self) -> Result<()> {
        let groups = self.group_plan()?;
        let needs = self.pipeline.sink_columns.clone();
        self.load(&needs);
        let lines = std::mem::take(&mut self.pipeline.sink_lines);
        if let Some(of) = groups.layout.regrouped.filter(|_| groups.is_runs()) {
            self.runs_of_tile(&groups, of, &lines);
            return Ok(());
        }
        if groups.runs {
            self.runs(&groups, &lines);
            return Ok(());
        }
        line!(self, "    if (live != 0) {{");
        self.row_loop(&lines, "live");
        self.update(&groups);
        line!(self, "      }}");
        line!(self, "    }}");
        Ok(())
    }

    /// Add up rows as long as their key stays the same, and only then go to the table: the rows of a
    /// sorted column take as many atomics as they have keys.
    fn runs(&mut self, groups: &Groups, lines: &[String]) {
        if groups.carried {
            return self.carry_runs(groups, lines);
        }
        self.add_up_runs(
            groups,
            lines,
            &run_of_row(groups),
            &|writer, name, partial| {
                writer.closing(groups, name, partial);
            },
        );
    }

    fn update(&mut self, groups: &Groups) {
        let accumulators = &groups.plan().accumulators;
        let layout = &groups.layout;
        if layout.keys.is_empty() {
            for (i, a) in accumulators.iter().enumerate() {
                let text = a.add_to_partial(&format!("s{i}[0]"), &a.condition);
                line!(self, "        {text}");
            }
            return;
        }
        let codes: Vec<String> = layout.keys.iter().map(codes::code).collect();
        if layout.regrouped.is_some() {
            line!(self, "        const u64 group = group_of[k];");
        } else if !groups.hashed() {
            line!(
                self,
                "        const u64 group = {};",
                codes::dense_code(&layout.keys, &codes)
            );
        }
        if groups.private_bytes > 0 {
            line!(self, "        if (alive) {{");
            line!(
                self,
                "          const u32 at = (u32)group * {};",
                groups.threads
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
        if groups.shared() {
            self.add_to_arrays(groups, "(u32)group");
            line!(self, "        }}");
            return;
        }
        if layout.front > 0 {
            let t = groups.front_type();
            let key = if groups.hashed() {
                codes::packed_words(&layout.keys, &codes, 1).remove(0)
            } else {
                "group".to_string()
            };
            line!(
                self,
                "          const u32 hot = front_slot(front, {}u, ({t})(({key}) + 1));",
                layout.front
            );
            line!(self, "          if (hot != WL_NO_NUMBER) {{");
            self.add_to_arrays(groups, "hot");
            line!(self, "          continue; }}");
        }
        if let Some(of) = layout.regrouped.filter(|r| r.window > 0) {
            line!(self, "          if (group < {}) {{", of.window);
            self.add_to_arrays(groups, "(u32)group");
            line!(self, "          continue; }}");
        }
        let key = match groups.hashed() {
            true => codes::packed_words(&layout.keys, &codes, layout.key_words),
            false => vec!["group".to_string()],
        };
        self.find_state(groups, &key, "continue");
        self.add_row(groups.plan());
        line!(self, "        }}");
    }

    /// Add the row at hand to the state at `at`. Two extremes in neighbouring cells are looked at together.
    pub(in crate::codegen) fn add_row(&mut self, plan: &AccumulatorPlan) {
        let raised = |a: &Accumulator| {
            a.narrow
                && matches!(a.kind, StateKind::Min | StateKind::Max)
                && a.condition == EVERY_ROW
        };
        let mut done = vec![false; plan.accumulators.len()];
        // A sum says whether it was 0 before: only then can a row be the first of its group, and to be told costs less than
        // to look.
        if let Some(seen) = plan
            .existence
            .filter(|i| plan.accumulators[*i].kind == StateKind::Seen)
        {
            let first = plan.accumulators.iter().enumerate().find_map(|(i, a)| {
                let every = a.condition == EVERY_ROW;
                Some((i, a.add_first(&a.cell("at"), &a.value).filter(|_| every)?))
            });
            if let Some((sum, first)) = first {
                done[seen] = true;
                done[sum] = true;
                let noted = &plan.accumulators[seen];
                let note = noted.add_to_state(&noted.cell("at"), &noted.value);
                line!(self, "          if ({first}) {{ {note} }}");
            }
        }
        for (i, a) in plan.accumulators.iter().enumerate() {
            if done[i] {
                continue;
            }
            let beside = plan
                .accumulators
                .iter()
                .position(|b| raised(b) && b.offset == a.offset + 4);
            if let Some(b) = beside.filter(|_| raised(a) && a.offset % 8 == 0) {
                done[b] = true;
                let other = &plan.accumulators[b].value;
                line!(
                    self,
                    "          raise2({}, {}, {other});",
                    a.cell("at"),
                    a.value
                );
                continue;
            }
            let add = a.add_to_state(&a.cell("at"), &a.value);
            self.add_if(a, &add);
        }
    }

    fn add_if(&mut self, a: &Accumulator, add: &str) {
        if a.condition == EVERY_ROW {
            line!(self, "          {add}");
        } else {
            line!(self, "          if ({}) {{ {add} }}", a.condition);
        }
    }

    /// The C++ lambda `name`, which adds `{partial}0`, `{partial}1` … to the state of the group `run`.
    pub(super) fn closing(&mut self, groups: &Groups, name: &str, partial: &str) {
        line!(self, "      const auto {name} = [&]() {{");
        self.find_state(groups, &["run".to_string()], "return");
        for (i, a) in groups.plan().accumulators.iter().enumerate() {
            let add = a.add_rows_to_state(&a.cell("at"), &format!("{partial}{i}"));
            line!(self, "          {add}");
        }
        line!(self, "      }};");
    }

    /// Point `at` to the state of a group in device memory: by its packed key in a hash table, else by its number, a single
    /// text. Rows for which there is no room go `otherwise`.
    pub(in crate::codegen) fn find_state(
        &mut self,
        groups: &Groups,
        key: &[String],
        otherwise: &str,
    ) {
        if groups.hashed() {
            return self.find_slot(groups, key, otherwise);
        }
        let group = key.join("");
        if groups.layout.regrouped.is_some() {
            line!(self, "          if ({group} >= cap) {otherwise};");
        }
        line!(
            self,
            "          u8* const at = states + {group} * {};",
            groups.layout.stride
        );
    }

    /// Find or make the slot of the packed key, whose state is then at `at`; a row without one sets the overflow
    /// word and goes `otherwise`.
    fn find_slot(&mut self, groups: &Groups, packed: &[String], otherwise: &str) {
        let r = groups.into;
        let layout = &groups.layout;
        let slots = self.size(Slot::TableSlots(r));
        let stride = layout.stride;
        if layout.key_bytes > 0 {
            let t = layout.key_type();
            line!(
                self,
                "          u8* const at = find_or_insert_slot<{stride}, {}, {t}>(states, {slots} - 1, ({t})(({}) + 1), {GROUP_PROBES});",
                layout.key_offset,
                packed[0]
            );
        } else {
            let keys = self.pointer(Slot::Result(r, Part::Keys), "u64*");
            let slot_states = self.pointer(Slot::Result(r, Part::States), "u32*");
            let w = layout.key_words;
            line!(
                self,
                "          const u64 packed[{w}] = {{{}}};",
                packed.join(", ")
            );
            line!(
                self,
                "          const u64 slot = find_or_insert_wide<{w}>({slot_states}, {keys}, {slots} - 1, packed, {GROUP_PROBES});"
            );
            line!(
                self,
                "          u8* const at = slot == WL_NO_SLOT ? (u8*)0 : states + slot * {stride};"
            );
        }
        let overflow = self.control(r, ControlWord::Overflow);
        line!(
            self,
            "          if (at == 0) {{ store_relaxed(&{overflow}, (u64)1); {otherwise}; }}"
        );
    }
}
