//! Collected rows of an aggregation: numbered, sorted or partitioned by key before they are added up.

use crate::codegen::{ControlWord, Part, RegroupedLayout};
use crate::error::{GpuError, Result};
use crate::exec::frame::arrange::{Arrangement, Order};
use crate::exec::frame::control::Control;
use crate::exec::frame::run::{MOST_ATTEMPTS, Run};
use crate::exec::frame::storage::Store;
use crate::exec::prepare::part_sizes::PartSize;
use crate::exec::prepare::shapes::{CollectedShape, Sizes};
use crate::graph::ResultId;
use crate::pipeline::Regroup;
use crate::primitives::{self, Digits, GroupNumbers, Keys, slots_for};

/// Slots, at first, of the table for groups that find no place in a block's.
const SPARE_SLOTS: u64 = 1 << 12;
/// Of a tile of rows in order: its first and its last group may have rows in others.
const EDGES: u64 = 2;
/// Groups of partitions that there is room for at first, at least.
const LEAST_GROUPS: u64 = 1 << 16;

impl Run<'_> {
    /// Bring the rows of a result together by key.
    pub(in crate::exec) fn regroup(
        &mut self,
        result: ResultId,
        rows: &CollectedShape,
    ) -> Result<()> {
        self.frame.results[result].sizes.pairs = self.frame.results[result].sizes.capacity;
        if rows.how.numbers() {
            self.number(result, rows)?;
            self.mark("find")?;
        }
        if !matches!(rows.how, Regroup::Number | Regroup::Table) {
            self.order(result, rows)?;
        }
        if rows.how.sorts_keys() {
            let keys = Keys {
                ptr: self.frame.address(result, Part::KeyWord(0))?,
                width: rows.key_bytes,
            };
            let starts = self.frame.address(result, Part::Starts)?;
            let groups = self.frame.control.word_address(result, ControlWord::Pairs);
            let count = self.frame.count(result);
            self.reports.kernels += 1;
            // SAFETY: the store has a key a row of the capacity and one start more.
            unsafe {
                primitives::run_lengths(
                    self.frame.runtime,
                    self.frame.stream,
                    keys,
                    count,
                    starts,
                    groups,
                )?;
            }
        }
        self.frame.results[result].pairs = match self.frame.hint(result) {
            Some(hint) => hint.pairs,
            None if rows.how.partitions() || rows.how == Regroup::Table => 0,
            None => {
                let words = self.frame.control.read(self.frame.stream)?;
                Control::word(&words, result, ControlWord::Pairs)
            }
        };
        Ok(())
    }

    /// Give each row the number of its group, in a table that grows until all groups fit.
    fn number(&mut self, result: ResultId, rows: &CollectedShape) -> Result<()> {
        let capacity = self.frame.results[result].sizes.capacity;
        self.frame.results[result].sizes.slots = match self.frame.hint(result) {
            Some(hint) => hint.slots,
            None => rows
                .slots
                .min(primitives::slots_for(self.frame.results[result].rows).max(32)),
        };
        let ids = self
            .frame
            .extra(result, vec![PartSize::new(Part::Ids, 4, capacity)], false)?;
        for _ in 0..MOST_ATTEMPTS {
            let slots = self.frame.results[result].sizes.slots;
            let [table, groups] = rows.table_parts(slots);
            let table = self.frame.extra(result, table, true)?;
            let groups = self.frame.extra(result, groups, false)?;
            let part = |store: &Store, part: Part| {
                store.address(part).ok_or_else(|| {
                    GpuError::Internal(format!("numbers of groups without {part:?}"))
                })
            };
            let numbers = GroupNumbers {
                slots,
                states: part(&table, Part::States)?,
                keys: part(&table, Part::TableKeys)?,
                numbers: part(&table, Part::Ids)?,
                dense: part(&groups, Part::GroupKeys)?,
                room: slots,
                count: self.frame.control.word_address(result, ControlWord::Pairs),
                overflow: self
                    .frame
                    .control
                    .word_address(result, ControlWord::Overflow),
            };
            let keys = Keys {
                ptr: self.frame.address(result, Part::KeyWord(0))?,
                width: rows.key_bytes,
            };
            let count = self.frame.count(result);
            self.reports.kernels += 1;
            // SAFETY: the stores have room for these slots and for the result's capacity.
            unsafe {
                primitives::number_groups(
                    self.frame.runtime,
                    self.frame.stream,
                    keys,
                    count,
                    &numbers,
                    part(&ids, Part::Ids)?,
                )?;
            }
            let full = self.frame.reads_sizes() && {
                let words = self.frame.control.read(self.frame.stream)?;
                Control::word(&words, result, ControlWord::Overflow) != 0
            };
            table.release(&mut self.frame.recycler);
            if !full {
                self.frame.results[result].sizes.pairs = slots;
                if let Some(store) = &mut self.frame.results[result].store {
                    store.join(ids);
                    store.join(groups);
                }
                return Ok(());
            }
            groups.release(&mut self.frame.recycler);
            self.frame.results[result].sizes.slots = slots.saturating_mul(4);
            self.frame
                .control
                .set(self.frame.stream, result, ControlWord::Overflow, 0)?;
        }
        Err(self.frame.hopeless(result))
    }

    /// Sort or partition the rows.
    fn order(&mut self, result: ResultId, rows: &CollectedShape) -> Result<()> {
        let (digits, bits) = if rows.how.partitions() {
            (Digits::Hash, 0..rows.bits)
        } else if rows.how == Regroup::SortNumbers {
            let groups = match self.frame.hint(result) {
                Some(hint) => hint.pairs,
                None => {
                    let words = self.frame.control.read(self.frame.stream)?;
                    Control::word(&words, result, ControlWord::Pairs)
                }
            };
            let most = u32::try_from(groups.max(1) - 1).unwrap_or(u32::MAX);
            (Digits::Key, 0..u32::BITS - most.leading_zeros())
        } else {
            (Digits::Key, 0..rows.key_bits)
        };
        let how = Arrangement {
            parts: rows.arranged_parts(self.frame.results[result].sizes.capacity),
            by: match rows.how {
                Regroup::SortNumbers => Part::Ids,
                _ => Part::KeyWord(0),
            },
            digits,
            bits,
            order: match rows.how.partitions() {
                true => Order::Any,
                false => Order::Stable,
            },
        };
        self.arrange(result, how)
    }

    /// Room for the groups of collected rows, at first.
    pub(in crate::exec) fn room_for_groups(
        &self,
        of: RegroupedLayout,
        groups: u64,
        rows: u64,
    ) -> Sizes {
        let Some(collected) = of.rows else {
            let edges = rows.div_ceil(of.tile_rows.max(1)).saturating_mul(EDGES);
            return Sizes {
                capacity: room_for(groups, rows),
                slots: slots_for(edges.min(rows)).max(SPARE_SLOTS),
                ..Sizes::default()
            };
        };
        let known = self.frame.results[collected].pairs.max(1);
        // A part of the rows has its share of the groups.
        let all = self.frame.results[collected].all_rows;
        let groups = match all > 0 {
            true => (u128::from(groups) * u128::from(rows) / u128::from(all)) as u64,
            false => groups,
        };
        Sizes {
            capacity: match of.how.partitions() {
                true => room_for(groups, rows),
                false => known,
            },
            slots: SPARE_SLOTS,
            ..Sizes::default()
        }
    }
}

/// Groups to make room for at first, where about `groups` are expected of `rows` rows.
fn room_for(groups: u64, rows: u64) -> u64 {
    let roomy = groups.saturating_add(groups / 4);
    roomy.max(LEAST_GROUPS).min(rows.max(1))
}
