//! Room for results: before a pipeline as much as it may need, later as much as it turned out to need.

use crate::codegen::{ControlWord, Part};
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::prepare::blocks::slots_of_sets;
use crate::exec::prepare::hints::sizes_by;
use crate::exec::prepare::prepared::ZeroCopy;
use crate::exec::prepare::replan::Outgrown;
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::graph::ResultId;
use crate::primitives::slots_for;

/// Rows of a first attempt at least, when there is not room for all but for so many.
const LEAST_ROWS: u64 = 1 << 20;
/// Rows of an index or a sort: their numbers have 32 bits, the last is a mark.
const MOST_NUMBERED: u64 = u32::MAX as u64 - 1;

impl<'a> Run<'a> {
    /// Make room for up to `rows` more rows of a result, or for its table.
    pub(in crate::exec) fn provide(&mut self, into: ResultId, rows: u64) -> Result<()> {
        let shape = &self.frame.prepared.shapes[into];
        let present = self.frame.results[into].store.is_some();
        if let Shape::Groups {
            slots,
            hashed,
            distinct_words,
            regrouped,
            collected,
            ..
        } = shape
        {
            if present {
                return Ok(());
            }
            self.frame.results[into].sizes = match self.frame.hint(into) {
                Some(hint) => sizes_by(shape, hint),
                None => Sizes {
                    distinct_slots: slots_of_sets(
                        distinct_words,
                        rows,
                        self.frame.prepared.graph.results[into].estimate,
                        self.frame.recycler.pool().free().distinct_sets(),
                    ),
                    ..match regrouped {
                        Some(of) => self.room_for_groups(*of, *slots, rows),
                        None => Sizes {
                            slots: match collected {
                                Some(_) => slots_for(rows),
                                None => *slots,
                            },
                            ..Sizes::default()
                        },
                    }
                },
            };
            if let (Some(outgrown), None) = (self.frame.outgrown(into), regrouped) {
                outgrown.raise(*hashed, &mut self.frame.results[into].sizes);
            }
            return self.frame.make(into);
        }
        if let (Shape::Index(index), false) = (shape, shape.appends()) {
            if present {
                return Ok(());
            }
            self.frame.results[into].sizes.capacity = index.domain;
            return self.frame.make(into);
        }
        if let Some(in_table) = self.frame.zero_copy(into) {
            self.frame.check_numbered(into, in_table.rows)?;
            self.frame.results[into].sizes.capacity = in_table.rows;
            return self.frame.make(into);
        }
        if let Some(hint) = self.frame.hint(into) {
            if present {
                return Ok(());
            }
            self.frame.results[into].sizes = sizes_by(shape, hint);
            self.frame
                .check_numbered(into, self.frame.results[into].sizes.capacity)?;
            return self.frame.make(into);
        }
        let before = self.frame.results[into].rows;
        let enough = self.frame.prepared.graph.results[into].enough;
        let all = before.saturating_add(rows).min(enough.unwrap_or(u64::MAX));
        let share = self.frame.recycler.pool().free().first_attempt();
        let roomy = share / (shape.row_bytes() as u64).max(1);
        let mut wanted = if all <= roomy {
            all
        } else {
            let estimate = self.frame.prepared.graph.results[into].estimate;
            let expected = estimate.saturating_add(estimate / 2);
            all.min(expected.max(LEAST_ROWS.min(roomy)))
        };
        if shape.numbers_rows() {
            wanted = wanted.min(MOST_NUMBERED);
        }
        if !present {
            self.frame.results[into].sizes.capacity = wanted;
            self.frame.make(into)
        } else if wanted > self.frame.results[into].sizes.capacity {
            if self.schedule.in_parts {
                // More parts follow: rows are not to be moved for each.
                wanted = wanted.max(self.frame.results[into].sizes.capacity.saturating_mul(2));
            }
            if shape.numbers_rows() {
                wanted = wanted.min(MOST_NUMBERED);
            }
            self.frame.resize(into, wanted, before)
        } else {
            Ok(())
        }
    }
}

impl<'a> Frame<'a> {
    pub(in crate::exec) fn check_numbered(&self, result: ResultId, rows: u64) -> Result<()> {
        if rows <= MOST_NUMBERED || !self.prepared.shapes[result].numbers_rows() {
            return Ok(());
        }
        Err(GpuError::Unsupported(format!(
            "{} rows in {}: more than 2^32 cannot be joined or ordered",
            rows, self.prepared.graph.results[result].name
        )))
    }

    /// Allocate what a result needs before its pipeline.
    pub(in crate::exec) fn make(&mut self, result: ResultId) -> Result<()> {
        let mut blocks = self.prepared.shapes[result].filling(&self.results[result].sizes);
        let name = self.name(result);
        let mut store = Store::default();
        if let Some(ZeroCopy { parts, .. }) = self.zero_copy(result) {
            store = Store::borrowing(parts);
            let borrowed = |part: Part| parts.iter().any(|(in_table, _)| *in_table == part);
            for block in &mut blocks {
                block.parts.retain(|size| !borrowed(size.part));
            }
        }
        let rows = self.prepared.shapes[result].is_read_in_order();
        for (number, block) in blocks.iter().enumerate() {
            if block.parts.is_empty() {
                continue;
            }
            match self.head.block(result, number)? {
                Some(placed) => store.join(placed),
                None => {
                    let block = std::slice::from_ref(block);
                    match rows {
                        true => {
                            store.extend_rows(block, &mut self.recycler, self.stream, name)?;
                        }
                        false => store.extend(block, &mut self.recycler, self.stream, name)?,
                    }
                }
            }
        }
        self.results[result].store = Some(store);
        Ok(())
    }

    /// Room for exactly `capacity` rows; the first `keep` rows stay.
    pub(in crate::exec) fn resize(
        &mut self,
        result: ResultId,
        capacity: u64,
        keep: u64,
    ) -> Result<()> {
        self.check_numbered(result, capacity)?;
        let old = self.results[result].store.take();
        self.results[result].sizes.capacity = capacity;
        match old {
            Some(old) if keep > 0 => {
                self.make(result)?;
                if let Some(new) = &self.results[result].store {
                    new.copy_rows(&old, keep, self.stream)?;
                }
                old.release(&mut self.recycler);
                Ok(())
            }
            old => {
                if let Some(old) = old {
                    old.release(&mut self.recycler);
                }
                self.make(result)
            }
        }
    }

    /// What earlier runs found of a table that was too small.
    fn outgrown(&self, result: ResultId) -> Option<&'a Outgrown> {
        self.prepared.facts.outgrown.get(self.name(result))
    }

    /// May a table that overflowed be made anew, larger and empty? Not when rows of an earlier part were in it, and once
    /// not when it would be too large for device memory: then rows had better be aggregated in parts.
    pub(in crate::exec) fn check_growth(&self, result: ResultId, full_sets: bool) -> Result<()> {
        let sizes = &self.results[result].sizes;
        let room = self.prepared.graph.group_room;
        let beyond = match (&self.prepared.shapes[result], room) {
            (
                Shape::Groups {
                    hashed: true,
                    slot_bytes,
                    key_words,
                    // One of a part is as small as it can be.
                    collected: None,
                    ..
                },
                Some(room),
            ) => {
                let slot = (slot_bytes + key_words * 8) as u64;
                sizes.slots.saturating_mul(2 * slot) > room.states
            }
            _ => false,
        };
        if !self.results[result].added && (!beyond || self.outgrown(result).is_some()) {
            return Ok(());
        }
        Err(GpuError::GroupsOutgrown {
            name: self.name(result).to_string(),
            slots: sizes.slots,
            distinct_slots: sizes.distinct_slots.clone(),
            full_sets,
        })
    }

    /// By how much a table of groups grows that was too small. One that starts far too small (an estimate can be off by any
    /// factor) gets there in few launches; one that takes much of the memory is only doubled (Karnagel et al., DaMoN 2015).
    fn growth(&self, result: ResultId) -> u64 {
        let Shape::Groups {
            slot_bytes,
            key_words,
            ..
        } = &self.prepared.shapes[result]
        else {
            return 2;
        };
        let slot = (slot_bytes + key_words * 8) as u64;
        let bytes = self.results[result].sizes.slots.saturating_mul(4 * slot);
        let share = self.recycler.pool().free().first_attempt();
        let room = self.prepared.graph.group_room;
        match bytes <= room.map_or(share, |room| room.states.min(share)) {
            true => 4,
            false => 2,
        }
    }

    /// More slots for groups, or, where they were `full`, four times as many for the sets of DISTINCT calls; empty. Each grows for itself:
    /// a table that starts far too small would take sets along that have a place for every row.
    pub(in crate::exec) fn grow_groups(&mut self, result: ResultId, full_sets: bool) -> Result<()> {
        let Shape::Groups {
            hashed, regrouped, ..
        } = &self.prepared.shapes[result]
        else {
            return Err(GpuError::Internal("rows that overflow a table".into()));
        };
        let hashed = *hashed || regrouped.is_some_and(|of| of.how.has_strays());
        let growth = self.growth(result);
        let sizes = &mut self.results[result].sizes;
        if full_sets {
            for slots in &mut sizes.distinct_slots {
                *slots = slots.saturating_mul(4);
            }
        } else if hashed {
            sizes.slots = sizes.slots.saturating_mul(growth);
        } else {
            return Err(GpuError::Internal("a dense group table overflowed".into()));
        }
        if let Some(old) = self.results[result].store.take() {
            old.release(&mut self.recycler);
        }
        self.make(result)?;
        for word in [ControlWord::Overflow, ControlWord::Count] {
            self.control.set(self.stream, result, word, 0)?;
        }
        Ok(())
    }

    /// Room for `wanted` rows, or for `count` where there is not as much; the first `keep` rows stay.
    pub(in crate::exec) fn make_room(
        &mut self,
        into: ResultId,
        count: u64,
        wanted: u64,
        keep: u64,
    ) -> Result<()> {
        let most = match self.prepared.shapes[into].numbers_rows() {
            true => MOST_NUMBERED.max(count),
            false => u64::MAX,
        };
        let bytes = usize::try_from(wanted.min(most))
            .ok()
            .and_then(|rows| rows.checked_mul(self.prepared.shapes[into].row_bytes()));
        let fits = bytes.is_some_and(|bytes| bytes as u64 <= self.recycler.pool().free().regrown());
        let wanted = if fits { wanted.min(most) } else { count };
        self.resize(into, wanted, keep)
    }
}
