//! Joins of two sides that lie in memory: their rows are partitioned or sorted, then paired.

use std::cell::Cell;

use crate::codegen::{ControlWord, JoinKeys, Part};
use crate::error::{GpuError, Result};
use crate::exec::frame::arrange::{Arrangement, Order, apart};
use crate::exec::frame::control::Control;
use crate::exec::frame::run::{MOST_ATTEMPTS, Run};
use crate::exec::frame::storage::Store;
use crate::exec::prepare::builtins::Builtins;
use crate::exec::prepare::compile::{ahead, compiles_ahead};
use crate::exec::prepare::hints::with_slack;
use crate::exec::prepare::join_bits::{JoinBits, digits, moved};
use crate::exec::prepare::part_sizes::{ColumnShape, arranged_parts, pair_parts};
use crate::exec::prepare::shapes::{IndexShape, JoinShape, Shape};
use crate::graph::{ProbeKind, ResultId};
use crate::primitives::{
    self, Digits, Keys, PairJoin, PairKind, PairList, Partitions, Rooms, Side,
};

impl Run<'_> {
    /// Bring the entries of an index into the order in which they are joined.
    pub(in crate::exec) fn arrange_index(
        &mut self,
        result: ResultId,
        index: &IndexShape,
    ) -> Result<()> {
        let Some(keys) = index.join else {
            return Err(GpuError::Internal("an index that is not joined".into()));
        };
        let device = self.frame.runtime.device().info();
        // As the run before: what it learned holds for the same bits.
        let rows = self
            .frame
            .hint(result)
            .map_or(self.frame.results[result].rows, |hint| hint.rows);
        let bits = JoinBits::of_rows(rows, keys, 0, device);
        if !self.frame.prepared.has_run() {
            // Estimates may have asked for others.
            let mut builtins = Builtins::default();
            builtins.of_counted_join(&self.frame.prepared.shapes, result, rows, bits);
            ahead(
                self.frame.runtime,
                builtins.without_served(self.frame.runtime),
            );
        }
        // Marks are a bit for each row from the first to the last.
        let rooms = match index.mark_sets > 0 {
            true => None,
            false => self.rooms(result, &index.columns, keys, bits),
        };
        self.arrange_side(result, &index.columns, keys, bits, rooms)
    }

    /// Room for each partition of a side, when the last run found out how many rows the largest have and that takes little
    /// more than the rows: then nothing has to be counted.
    fn rooms(
        &self,
        result: ResultId,
        columns: &[ColumnShape],
        keys: JoinKeys,
        bits: JoinBits,
    ) -> Option<Rooms> {
        /// Places for this many rows in 4.
        const PLACES: u64 = 5;
        /// Partitions begin at multiples of so many rows, with their values at whole sectors.
        const STEP: u32 = 8;
        let hint = self.frame.hint(result)?;
        let parts = arranged_parts(columns, keys, bits.bits, 0, true);
        if keys.join.sorts()
            || self.schedule.ahead
            || bits.known != 0
            || hint.bits != bits
            || hint.largest.last == 0
            || !primitives::can_preallocate(moved(&parts), bits.bits)
        {
            return None;
        }
        let most = (hint.rows / 4).saturating_mul(PLACES).min(u32::MAX.into());
        let room = |rows: u32, bits: u32| {
            let room = rows.checked_next_multiple_of(STEP)?;
            (u64::from(room) << bits < most).then_some(room)
        };
        Some(Rooms {
            // Eight bits are the most of a pass.
            first: room(hint.largest.first, bits.bits.div_ceil(2))?,
            last: room(hint.largest.last, bits.bits)?,
        })
    }

    /// Pair the rows of a `Matches` result with the entries of its index.
    pub(in crate::exec) fn list_pairs(
        &mut self,
        result: ResultId,
        columns: &[ColumnShape],
        join: &JoinShape,
    ) -> Result<()> {
        let keys = join.matches.keys;
        let bits = self.frame.results[join.index].sizes.bits;
        let rooms = self.rooms(result, columns, keys, bits);
        self.arrange_side(result, columns, keys, bits, rooms)?;
        let unique = match &self.frame.prepared.shapes[join.index] {
            Shape::Index(index) => index.unique,
            _ => false,
        };
        // Enough at the first attempt when no row has several pairs.
        let mut room = match self.frame.hint(result) {
            Some(hint) => with_slack(hint.pairs),
            // Parts differ in rows, but not in room: what one had is right for the next.
            None if self.schedule.ahead => self.frame.results[result].sizes.capacity,
            None => self.frame.results[result].rows,
        };
        let once = unique || matches!(join.matches.kind, ProbeKind::Semi | ProbeKind::Anti);
        for _ in 0..MOST_ATTEMPTS {
            self.frame.results[result].sizes.pairs = room;
            let list = self.frame.extra(result, pair_parts(room), false)?;
            self.pair(result, columns, join, unique, bits, &list)?;
            self.mark("match")?;
            let pairs = if self.schedule.ahead && once {
                // Keys that are not unique after all are found in the end.
                self.frame.results[result].rows
            } else if self.frame.reads_sizes() {
                let words = self.frame.control.read(self.frame.stream)?;
                self.frame.check_unique(&words, join.index)?;
                Control::word(&words, result, ControlWord::Pairs)
            } else {
                room
            };
            if pairs <= room {
                self.frame.results[result].pairs = pairs;
                if let Some(store) = &mut self.frame.results[result].store {
                    store.join(list);
                }
                return Ok(());
            }
            list.release(&mut self.frame.recycler);
            room = pairs;
        }
        Err(self.frame.hopeless(result))
    }

    /// Partition or sort a side: its keys and, by kind, its columns or the numbers of its rows.
    pub(in crate::exec) fn arrange_side(
        &mut self,
        result: ResultId,
        columns: &[ColumnShape],
        keys: JoinKeys,
        bits: JoinBits,
        rooms: Option<Rooms>,
    ) -> Result<()> {
        self.reports.sides_apart += u64::from(rooms.is_some());
        let places = self.places(result, bits, rooms);
        self.frame.results[result].sizes.bits = bits;
        self.frame.results[result].sizes.rooms = rooms;
        let digits = digits(columns, keys, bits);
        let how = Arrangement {
            parts: arranged_parts(columns, keys, bits.bits, places, rooms.is_some()),
            by: Part::KeyWord(0),
            digits,
            bits: match keys.join.sorts() {
                // One bit more than codes have: keys that match nothing come last.
                true => 0..(keys.bits + 1).min(keys.width * 8),
                false => bits.known..bits.known + bits.bits,
            },
            order: match rooms {
                _ if keys.join.sorts() => Order::Stable,
                Some(rooms) => Order::Apart(rooms),
                None => Order::Any,
            },
        };
        self.arrange(result, how)?;
        match self.frame.reads_sizes() && bits.known == 0 && !keys.join.sorts() {
            true => self.note_largest(result, keys.width, digits, bits),
            false => Ok(()),
        }
    }

    /// Places that the rows of a side have once it is arranged, at most.
    fn places(&self, result: ResultId, bits: JoinBits, rooms: Option<Rooms>) -> u64 {
        match rooms {
            Some(rooms) => u64::from(rooms.last) << bits.bits,
            None => self.frame.results[result].sizes.capacity,
        }
    }

    /// Find out how many rows the largest partitions of a side have, for the next run.
    fn note_largest(
        &mut self,
        result: ResultId,
        key_width: u32,
        digits: Digits,
        bits: JoinBits,
    ) -> Result<()> {
        let offsets = self.frame.address(result, Part::Offsets)?;
        let largest = self.frame.control.largest_address(result);
        // SAFETY: the side was partitioned by these bits, with offsets; the control words live as long as the run.
        unsafe {
            primitives::largest_partitions(
                self.frame.runtime,
                self.frame.stream,
                key_width,
                digits,
                bits.bits,
                offsets,
                largest,
            )
        }
    }

    /// Fill the list of pairs.
    fn pair(
        &mut self,
        result: ResultId,
        columns: &[ColumnShape],
        join: &JoinShape,
        unique: bool,
        bits: JoinBits,
        list: &Store,
    ) -> Result<()> {
        let keys = join.matches.keys;
        let side = |id: ResultId, columns: &[ColumnShape]| -> Result<Side> {
            let store = self.frame.results[id].store.as_ref();
            let optional = |part| store.and_then(|s| s.address(part));
            let rooms = self.frame.results[id].sizes.rooms;
            let partitions = match (optional(Part::Offsets), rooms) {
                (None, _) => Partitions::NONE,
                (Some(offsets), None) => Partitions::side_by_side(offsets),
                (Some(offsets), Some(_)) => apart(offsets, bits.bits as usize),
            };
            Ok(Side {
                hashed: digits(columns, keys, bits) == Digits::KeptHash,
                keys: Keys {
                    ptr: self.frame.address(id, Part::KeyWord(0))?,
                    width: keys.width,
                },
                rows: self.frame.count(id),
                numbers: optional(Part::Numbers),
                places: self.places(id, bits, rooms),
                partitions,
            })
        };
        let Shape::Index(index) = &self.frame.prepared.shapes[join.index] else {
            return Err(GpuError::Internal("a join without an index".into()));
        };
        let (build, probe) = (side(join.index, &index.columns)?, side(result, columns)?);
        let kind = match join.matches.kind {
            ProbeKind::Inner => PairKind::Inner,
            ProbeKind::Left => PairKind::Left,
            ProbeKind::Semi => PairKind::Semi,
            ProbeKind::Anti => PairKind::Anti,
            ProbeKind::NullAwareAnti | ProbeKind::Mark => {
                return Err(GpuError::Internal("a join of a kind without pairs".into()));
            }
        };
        let new = |part: Part| {
            list.address(part)
                .ok_or_else(|| GpuError::Internal(format!("a list of pairs has no {part:?}")))
        };
        let pairs = PairList {
            entries: new(Part::PairEntry)?,
            rows: new(Part::PairRow)?,
            capacity: self.frame.results[result].sizes.pairs,
            count: self.frame.control.word_address(result, ControlWord::Pairs),
        };
        let marks = match join.matches.marks {
            true => Some(self.frame.address(join.index, Part::Marks(0))?),
            false => None,
        };
        let duplicate = self
            .frame
            .control
            .word_address(join.index, ControlWord::Duplicate);
        let another_table = Cell::new(false);
        let of = PairJoin {
            build: &build,
            probe: &probe,
            kind,
            unique,
            duplicate,
            pairs: &pairs,
            marks,
            another_table: compiles_ahead(self.frame.runtime).then_some(&another_table),
        };
        self.reports.kernels += 1;
        let (runtime, stream) = (self.frame.runtime, self.frame.stream);
        // SAFETY: both sides lie in memory as `arrange` left them, for as many rows as are counted; the list has
        // room for its capacity, the marks for every entry; the control word lives as long as the run.
        unsafe {
            if keys.join.sorts() {
                primitives::merge_join(runtime, stream, &of)?;
            } else if bits.dense {
                primitives::join_dense_partitions(runtime, stream, &of, bits.bits, keys.bits)?;
            } else {
                primitives::join_partitions(runtime, stream, &of, bits.bits)?;
            }
        }
        if another_table.get() {
            // For later runs; of those that come meanwhile none asks again.
            let rows = build.rows.most();
            let mut builtins = Builtins::default();
            builtins.of_counted_join(&self.frame.prepared.shapes, join.index, rows, bits);
            ahead(runtime, builtins);
        }
        Ok(())
    }
}
