//! The text of a probe: keys are looked up, residuals tested, ranges gone over, entries marked.

use std::fmt::Write as _;

use crate::codegen::ir::pipeline::{EmittedProbe, EmittedSink, Test};
use crate::codegen::ir::results::{ControlWord, IndexLayout, JoinKeys};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::error::{GpuError, Result};
use crate::graph::{IndexKind, ProbeKind, ResultId};

impl KernelWriter<'_> {
    /// Look up the keys of the live rows.
    pub(in crate::codegen) fn probe(&mut self, probe: &EmittedProbe) -> Result<()> {
        let index = self.index(probe.index)?.clone();
        let p = probe.number;
        self.load(&probe.columns);
        if let Some(keys) = &index.join_keys {
            self.key_to_join(probe, keys);
            return Ok(());
        }
        self.look_up_rows(probe, &index, probe.ranges)?;
        let to_pairs =
            matches!(self.pipeline.sink, EmittedSink::Matches { probe, .. } if probe == p);
        let looped = probe.ranges && (!to_pairs || !probe.marks.is_empty());
        if matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi)
            && (looped || probe.residual.is_some())
        {
            // What entries are tested with is read for rows that have some.
            line!(self, "    live &= h{p};");
        }
        if looped {
            self.match_loop(probe, &index)?;
        } else if let Some(residual) = &probe.residual {
            line!(self, "    u32 m{p} = live & h{p};");
            // The payload is read for rows with an entry, and only where the entry passes does it count.
            self.residual(probe, residual, &format!("m{p}"));
            line!(self, "    h{p} = m{p};");
            // What was read for the test is NULL where it failed.
            for i in probe.payload.0..probe.payload.0 + probe.payload.1 {
                if probe.kind == ProbeKind::Left && self.loaded.contains(&i) {
                    line!(self, "    n{i} &= h{p};");
                }
            }
        }
        if !probe.ranges {
            self.mark_matches(probe);
        }
        match probe.kind {
            ProbeKind::Inner | ProbeKind::Semi => line!(self, "    live &= h{p};"),
            ProbeKind::Anti => line!(self, "    live &= ~h{p};"),
            ProbeKind::NullAwareAnti => self.null_aware(probe),
            ProbeKind::Left | ProbeKind::Mark => {}
        }
        Ok(())
    }

    /// The packed key of each row whose index is joined later, `j{p}`; rows that match nothing go only as far as the
    /// kind of the join wants them.
    fn key_to_join(&mut self, probe: &EmittedProbe, keys: &JoinKeys) {
        let p = probe.number;
        let t = keys.c_type();
        line!(self, "    u32 h{p} = 0; {t} j{p}[WL_ROWS] = {{}};");
        line!(self, "    if (live != 0) {{");
        self.row_loop(&probe.lines, "live");
        line!(
            self,
            "        const bool possible = alive && {};",
            probe.possible
        );
        line!(self, "        h{p} |= (u32)possible << k;");
        line!(
            self,
            "        j{p}[k] = possible ? {} : ~({t})1;",
            keys.packed(&probe.codes)
        );
        line!(self, "      }}\n    }}");
        if matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi) {
            line!(self, "    live &= h{p};");
        }
    }

    /// Mark the one entry of each live row that matches.
    fn mark_matches(&mut self, probe: &EmittedProbe) {
        let (p, r) = (probe.number, probe.index);
        for (set, condition) in probe.marks.iter().enumerate() {
            let marks = self.pointer(Slot::Result(r, Part::Marks(set)), "u32*");
            match condition {
                None => line!(self, "    mark_entries({marks}, live & h{p}, e{p});"),
                Some(condition) => {
                    let mask = format!("s{p}_{set}");
                    line!(self, "    u32 {mask} = live & h{p};");
                    self.residual(probe, condition, &mask);
                    line!(self, "    mark_entries({marks}, {mask}, e{p});");
                }
            }
        }
    }

    /// Mark the entries of the live pairs.
    pub(in crate::codegen) fn mark_pairs(&mut self, index: ResultId) {
        let marks = self.pointer(Slot::Result(index, Part::Marks(0)), "u32*");
        line!(self, "    mark_entries({marks}, live & pm, pe);");
    }

    /// Test the one entry of each row of `mask`.
    fn residual(&mut self, probe: &EmittedProbe, residual: &Test, mask: &str) {
        if probe.hidden.is_empty() {
            return self.filter(residual, mask);
        }
        // Later steps have other columns in these places of the scope: the payload lives in a block of its own.
        let first = probe.payload.0;
        let seen: Vec<usize> = residual
            .columns
            .iter()
            .copied()
            .filter(|c| *c < first)
            .collect();
        self.load(&seen);
        let later = self.pipeline.scope.split_off(first);
        self.pipeline.scope.extend(probe.hidden.iter().cloned());
        line!(self, "    {{");
        self.filter(residual, mask);
        line!(self, "    }}");
        self.pipeline.scope.truncate(first);
        self.pipeline.scope.extend(later);
        self.loaded.retain(|c| *c < first);
    }

    /// Look up the live rows: whether there is an entry (a bit of `h{p}`), the entry `e{p}[k]`, and with `ranges` all of them,
    /// `first{p}[k]` and `length{p}[k]`. The columns of the keys have been loaded.
    pub(in crate::codegen) fn look_up_rows(
        &mut self,
        probe: &EmittedProbe,
        index: &IndexLayout,
        ranges: bool,
    ) -> Result<()> {
        let p = probe.number;
        line!(
            self,
            "    u32 h{p} = 0; u32 e{p}[WL_ROWS] = {{}}; (void)e{p};"
        );
        if ranges {
            line!(
                self,
                "    u32 first{p}[WL_ROWS] = {{}}; u32 length{p}[WL_ROWS] = {{}};"
            );
        }
        line!(self, "    if (live != 0) {{");
        self.row_loop(&probe.lines, "live");
        line!(
            self,
            "        const bool possible = alive && {};",
            probe.possible
        );
        self.look_up(probe, index)?;
        line!(self, "      }}\n    }}");
        Ok(())
    }

    /// Set the hit bit, and the entry or the range (`first`, `length`), of row `k` from its key.
    fn look_up(&mut self, probe: &EmittedProbe, index: &IndexLayout) -> Result<()> {
        let (p, r) = (probe.number, probe.index);
        if index.order.is_some() {
            self.look_up_band(probe, index);
            return Ok(());
        }
        if index.keys.is_empty() {
            let count = self.control(r, ControlWord::Count);
            let capacity = self.size(Slot::Capacity(r));
            line!(
                self,
                "        const u32 entries = (u32)min_u64({count}, {capacity});"
            );
            line!(
                self,
                "        h{p} |= (u32)(possible && entries != 0) << k;"
            );
            if probe.ranges {
                line!(self, "        length{p}[k] = possible ? entries : 0;");
            }
            return Ok(());
        }
        // The place that the key leads to: a key code, the number of a key, or a slot of the table. Codes of perfect indexes have
        // 32 bits (`dense_strides`).
        let direct = index.kind == IndexKind::Perfect && (index.unique || index.existence);
        match index.kind {
            IndexKind::Perfect if index.ranked => {
                let ranks = self.pointer(Slot::Result(r, Part::Ranks), "const u64*");
                line!(
                    self,
                    "        u32 place; const bool found = ranked_look_up({ranks}, (u32)({}), possible, place);",
                    probe.codes[0]
                );
            }
            IndexKind::Perfect => {
                line!(self, "        const u32 place = (u32)({});", probe.codes[0]);
                if direct {
                    let bits = self.pointer(Slot::Result(r, Part::Bits), "const u32*");
                    line!(
                        self,
                        "        const u32 found = look_up_bit({bits}, place, possible);"
                    );
                } else {
                    line!(self, "        const bool found = possible;");
                }
            }
            IndexKind::Hash => {
                let keys = self.pointer(Slot::Result(r, Part::Keys), "const u64*");
                let slots = self.size(Slot::TableSlots(r));
                if index.key_words == 1 {
                    line!(
                        self,
                        "        const u64 place = possible ? hash_find({keys}, {slots} - 1, {}) : WL_NO_SLOT;",
                        probe.codes[0]
                    );
                } else {
                    let states = self.pointer(Slot::Result(r, Part::States), "const u32*");
                    let w = index.key_words;
                    line!(
                        self,
                        "        const u64 packed[{w}] = {{{}}};",
                        probe.codes.join(", ")
                    );
                    line!(
                        self,
                        "        const u64 place = possible ? hash_find_wide<{w}>({keys}, {states}, {slots} - 1, packed) : WL_NO_SLOT;"
                    );
                }
                line!(self, "        const bool found = place != WL_NO_SLOT;");
            }
            IndexKind::Materialized(_) | IndexKind::Sorted => {
                return Err(GpuError::Internal(
                    "a look-up by key in rows without places for keys".into(),
                ));
            }
        }
        if index.unique || index.existence {
            line!(self, "        h{p} |= (u32)found << k;");
            if index.existence {
                return Ok(());
            }
            match index.kind {
                // Read only where `h` has a bit.
                IndexKind::Perfect => line!(self, "        e{p}[k] = place;"),
                _ => {
                    let entry = self.pointer(Slot::Result(r, Part::Entry), "const u32*");
                    line!(self, "        if (found) e{p}[k] = {entry}[place];");
                }
            }
            if probe.ranges {
                line!(
                    self,
                    "        first{p}[k] = e{p}[k]; length{p}[k] = (u32)found;"
                );
            }
            return Ok(());
        }
        let offsets = self.pointer(Slot::Result(r, Part::Offsets), "const u32*");
        line!(self, "        if (found) {{");
        line!(
            self,
            "          const u32* const range = {offsets} + place; const u32 first = range[0], length = range[1] - first;"
        );
        line!(self, "          h{p} |= (u32)(length != 0) << k;");
        if probe.ranges {
            line!(
                self,
                "          first{p}[k] = first; length{p}[k] = length;"
            );
        }
        line!(self, "        }}");
        Ok(())
    }

    /// Set the hit bit and the range of row `k` from its keys and its band: where the words of both ends lie among the sorted ones.
    fn look_up_band(&mut self, probe: &EmittedProbe, index: &IndexLayout) {
        let (p, r, w) = (probe.number, probe.index, index.key_words);
        let count = self.control(r, ControlWord::Count);
        let capacity = self.size(Slot::Capacity(r));
        let words: Vec<String> = (0..w)
            .map(|word| self.pointer(Slot::Result(r, Part::SortedWord(word)), "const u64*"))
            .collect();
        line!(
            self,
            "        const u64* const sorted[{w}] = {{{}}};",
            words.join(", ")
        );
        for (name, codes) in [("low", &probe.codes), ("high", &probe.last)] {
            line!(
                self,
                "        const u64 {name}[{w}] = {{{}}};",
                codes.join(", ")
            );
        }
        line!(
            self,
            "        const SortedRange found = sorted_find<{w}>(sorted, possible ? (u32)min_u64({count}, {capacity}) : 0u, low, high);"
        );
        line!(self, "        h{p} |= (u32)(found.length != 0) << k;");
        if probe.ranges {
            line!(
                self,
                "        first{p}[k] = found.first; length{p}[k] = found.length;"
            );
        }
    }

    /// Go over the entries of each row's range until one passes, or over all of them to mark them.
    fn match_loop(&mut self, probe: &EmittedProbe, index: &IndexLayout) -> Result<()> {
        let (p, r) = (probe.number, probe.index);
        let residual = probe.residual.as_ref();
        let payload = probe.payload.0..probe.payload.0 + probe.payload.1;
        let tests = residual.into_iter().chain(probe.marks.iter().flatten());
        let mut tested: Vec<usize> = tests.flat_map(|t| t.columns.iter().copied()).collect();
        tested.sort_unstable();
        tested.dedup();
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            tested.into_iter().partition(|c| payload.contains(c));
        self.load(&outside);
        let mut loads = Vec::new();
        for &i in &inside {
            let Some(layout) = index.columns.get(i - payload.start) else {
                return Err(GpuError::Internal("a residual outside the payload".into()));
            };
            let mut text = String::new();
            let nullable = layout.nullable;
            let _ = write!(text, "{} c{i}[WL_ROWS]; ", layout.storage());
            if nullable {
                let _ = write!(text, "u32 n{i} = 0; ");
            }
            text += &self.gather(i, layout, r, i - payload.start, "entry", nullable);
            loads.push(text);
        }
        line!(self, "    u32 any{p} = 0;");
        line!(
            self,
            "    if ((live & h{p}) != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h{p}) >> k & 1) {{"
        );
        line!(self, "      for (u32 j = 0; j < length{p}[k]; ++j) {{");
        line!(
            self,
            "        if ((j + 1) % WL_STOP_ENTRIES == 0 && query_stopped(watch)) break;"
        );
        if index.is_listed() {
            let rows = self.pointer(Slot::Result(r, Part::Entries), "const u32*");
            line!(self, "        const u32 entry = {rows}[first{p}[k] + j];");
        } else {
            line!(self, "        const u32 entry = first{p}[k] + j;");
        }
        line!(self, "        const bool alive = true;");
        for text in loads {
            line!(self, "        {text}");
        }
        if let Some(residual) = residual {
            for text in &residual.lines {
                line!(self, "        {text}");
            }
            line!(self, "        if (!({})) continue;", residual.passes);
        }
        line!(
            self,
            "        (void)alive; any{p} |= 1u << k; e{p}[k] = entry;"
        );
        for (set, condition) in probe.marks.iter().enumerate() {
            let marks = self.pointer(Slot::Result(r, Part::Marks(set)), "u32*");
            let Some(condition) = condition else {
                line!(self, "        wl_set_bit({marks}, entry);");
                continue;
            };
            line!(self, "        {{");
            for text in &condition.lines {
                line!(self, "          {text}");
            }
            line!(
                self,
                "          if ({}) wl_set_bit({marks}, entry);\n        }}",
                condition.passes
            );
        }
        if probe.marks.is_empty() {
            line!(self, "        break;");
        }
        line!(self, "      }}\n    }}\n    h{p} = any{p};");
        Ok(())
    }

    /// NOT IN: nothing matches an empty list; an unknown on either side keeps a row out otherwise.
    fn null_aware(&mut self, probe: &EmittedProbe) {
        let (p, r) = (probe.number, probe.index);
        let count = self.control(r, ControlWord::Count);
        let null = self.control(r, ControlWord::NullKey);
        line!(self, "    if ({null} != 0) live = 0;");
        line!(self, "    else if ({count} != 0) {{ u32 known = 0;");
        // Rows with an unknown key are those that are not `valid`; a key out of the index's range is known.
        let lines = probe.lines.clone();
        self.row_loop(&lines, "live");
        line!(self, "        known |= (u32)({}) << k;", probe.known);
        line!(self, "      }}\n      live &= ~h{p} & known;\n    }}");
    }
}
