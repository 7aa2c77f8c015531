//! Collected rows of an aggregation: numbered, sorted or partitioned by key before they are added up.

use crate::codegen::Part;
use crate::codegen::{ControlWord, RegroupedLayout};
use crate::error::{GpuError, Result};
use crate::exec::frame::arrange::{Arrangement, Order};
use crate::exec::frame::control::Control;
use crate::exec::frame::run::{MOST_ATTEMPTS, Run};
use crate::exec::frame::storage::Store;
use crate::exec::prepare::part_sizes::PartSize;
use crate::exec::prepare::shapes::{CollectedShape, Sizes};
use crate::graph::ResultId;
use crate::pipeline::Regroup;
use crate::primitives::{self, Digits, GroupNumbers, Keys};

/// Slots, at first, of the table for groups that find no place in a block's.
const SPARE_SLOTS: u64 = 1 << 12;
/// Groups of partitions that there is room for at first, at least.
const LEAST_GROUPS: u64 = 1 << 16;

impl Run<'_> {
    /// Bring the rows of a result together by key.
    pub(in crate::exec) fn regroup(
        &mut self,
        result: ResultId,
        rows: &CollectedShape,
    ) -> Result<()> {
        self.sizes[result].pairs = self.sizes[result].capacity;
        if rows.how.numbers() {
            self.number(result, rows)?;
            self.mark("find")?;
        }
        if !matches!(rows.how, Regroup::Number | Regroup::Table) {
            self.order(result, rows)?;
        }
        if rows.how.sorts_keys() {
            let keys = Keys {
                ptr: self.address(result, Part::KeyWord(0))?,
                width: rows.key_bytes,
            };
            let starts = self.address(result, Part::Starts)?;
            let groups = self.control.word_address(result, ControlWord::Pairs);
            let count = self.count(result);
            self.kernels += 1;
            // SAFETY: the store has a key a row of the capacity and one start more.
            unsafe {
                primitives::run_lengths(self.runtime, self.stream, keys, count, starts, groups)?;
            }
        }
        self.pairs[result] = match self.hint(result) {
            Some(hint) => hint.pairs,
            None if rows.how.partitions() || rows.how == Regroup::Table => 0,
            None => {
                let words = self.control.read(self.stream)?;
                Control::word(&words, result, ControlWord::Pairs)
            }
        };
        Ok(())
    }

    /// Give each row the number of its group, in a table that grows until all groups fit.
    fn number(&mut self, result: ResultId, rows: &CollectedShape) -> Result<()> {
        let capacity = self.sizes[result].capacity;
        self.sizes[result].slots = match self.hint(result) {
            Some(hint) => hint.slots,
            None => rows
                .slots
                .min(primitives::slots_for(self.rows[result]).max(32)),
        };
        let ids = self.extra(result, vec![PartSize::new(Part::Ids, 4, capacity)], false)?;
        for _ in 0..MOST_ATTEMPTS {
            let slots = self.sizes[result].slots;
            let [table, groups] = rows.table_parts(slots);
            let table = self.extra(result, table, true)?;
            let groups = self.extra(result, groups, false)?;
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
                count: self.control.word_address(result, ControlWord::Pairs),
                overflow: self.control.word_address(result, ControlWord::Overflow),
            };
            let keys = Keys {
                ptr: self.address(result, Part::KeyWord(0))?,
                width: rows.key_bytes,
            };
            let count = self.count(result);
            self.kernels += 1;
            // SAFETY: the stores have room for these slots and for the result's capacity.
            unsafe {
                primitives::number_groups(
                    self.runtime,
                    self.stream,
                    keys,
                    count,
                    &numbers,
                    part(&ids, Part::Ids)?,
                )?;
            }
            let full = self.careful() && {
                let words = self.control.read(self.stream)?;
                Control::word(&words, result, ControlWord::Overflow) != 0
            };
            table.release(&mut self.recycler);
            if !full {
                self.sizes[result].pairs = slots;
                if let Some(store) = &mut self.stores[result] {
                    store.join(ids);
                    store.join(groups);
                }
                return Ok(());
            }
            groups.release(&mut self.recycler);
            self.sizes[result].slots = slots.saturating_mul(4);
            self.control
                .set(self.stream, result, ControlWord::Overflow, 0)?;
        }
        Err(self.hopeless(result))
    }

    /// Sort or partition the rows.
    fn order(&mut self, result: ResultId, rows: &CollectedShape) -> Result<()> {
        let (digits, bits) = if rows.how.partitions() {
            (Digits::Hash, 0..rows.bits)
        } else if rows.how == Regroup::SortNumbers {
            let groups = match self.hint(result) {
                Some(hint) => hint.pairs,
                None => {
                    let words = self.control.read(self.stream)?;
                    Control::word(&words, result, ControlWord::Pairs)
                }
            };
            let most = u32::try_from(groups.max(1) - 1).unwrap_or(u32::MAX);
            (Digits::Key, 0..u32::BITS - most.leading_zeros())
        } else {
            (Digits::Key, 0..rows.key_bits)
        };
        let how = Arrangement {
            parts: rows.arranged_parts(self.sizes[result].capacity),
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
        let known = self.pairs[of.rows].max(1);
        // A part of the rows has its share of the groups.
        let all = self.spread_rows[of.rows];
        let groups = match all > 0 {
            true => (u128::from(groups) * u128::from(rows) / u128::from(all)) as u64,
            false => groups,
        };
        Sizes {
            capacity: if of.how.partitions() {
                groups
                    .saturating_add(groups / 4)
                    .max(LEAST_GROUPS)
                    .min(rows.max(1))
            } else {
                known
            },
            slots: SPARE_SLOTS,
            ..Sizes::default()
        }
    }
}
