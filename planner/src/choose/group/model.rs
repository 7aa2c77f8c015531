//! Price of each group-by algorithm from rows, groups, widths, skew, and the device's constants.

mod regrouped;

use warpline_gpu::machine::Machine;
use warpline_gpu::pipeline::rows_queue;

use super::GroupWorkload;
use crate::choose::price::Price;
use crate::choose::zipf;

pub use self::regrouped::encoding_saves;

/// A group's states beyond the first cost what the cache costs, over so many bytes.
const CACHED: f64 = (1u64 << 22) as f64;
/// Bytes that memory moves at least.
const SECTOR: f64 = 32.0;
/// Launches and waits of an aggregation by the pipeline itself, tables of blocks cleared and brought home.
const FUSED: f64 = 3.3;
/// The same of a table in shared memory in front of one in device memory, beyond.
const FRONT: f64 = 1.5;
/// Places in shared memory that are so many that additions hardly meet.
const MANY: f64 = (1u64 << 14) as f64;
/// What the atomics of a row to several words of one group cost: the words' number to this power. The lanes that lost
/// at the first word come to the next one by one.
const STAGGERED: f64 = 0.55;
/// A look-up of a hash table beside its reads: picoseconds.
const HASHED: f64 = 8.0;
/// Costs of adding a word in a flush of shared tables, of which all blocks' meet at the same groups, in atomics to memory: lanes
/// add to neighbouring groups.
const FLUSHED: f64 = 0.6;
/// The same of an extreme, which is read and seldom written.
const FLUSHED_TEST: f64 = 0.3;
/// Either of a table with keys, whose groups lie anywhere.
const FLUSHED_KEYS: f64 = 0.75;

/// A table in a block's shared memory in front of one in device memory.
#[derive(Debug, Clone, Copy)]
struct Front {
    /// Blocks of a multiprocessor.
    blocks: f64,
    slots: f64,
}

pub(super) struct Model<'a> {
    pub(super) w: &'a GroupWorkload,
    pub(super) machine: &'a Machine,
}

pub(super) fn widths(columns: &[u32]) -> impl Iterator<Item = f64> + '_ {
    columns.iter().map(|w| f64::from(*w))
}

impl Model<'_> {
    /// Bytes of a packed key as it is partitioned and sorted.
    pub(super) fn key(&self) -> f64 {
        match self.w.key_bytes {
            0..=4 => 4.0,
            5..=8 => 8.0,
            _ => 16.0,
        }
    }

    pub(super) fn groups(&self) -> f64 {
        self.w.groups.min(self.w.rows).max(1.0)
    }

    /// Atomic additions a row.
    fn adds(&self) -> f64 {
        match (self.w.adds, self.w.tests) {
            (0, 0) => self.w.payload.len().max(1) as f64,
            (adds, _) => f64::from(adds),
        }
    }

    fn tests(&self) -> f64 {
        self.w.tests.into()
    }

    /// Words of 64 bits that a row adds to.
    fn words(&self) -> f64 {
        match (self.w.adds, self.w.tests) {
            (0, 0) => self.w.payload.len().max(1) as f64,
            _ => self.w.words.into(),
        }
    }

    /// Groups that there are rows of.
    fn seen(&self) -> f64 {
        zipf::drawn(self.groups(), self.w.skew, self.w.rows)
    }

    /// The share of the rows that the most frequent group has.
    fn hottest(&self) -> f64 {
        zipf::hottest(self.groups(), self.w.skew)
    }

    /// Picoseconds of a row's additions to words of few groups in the shared memory of `blocks` blocks a multiprocessor:
    /// rows that meet take turns, so the most frequent group decides, and the longer the fewer tables there are to meet in.
    fn queued(&self, blocks: f64) -> f64 {
        /// Blocks of a multiprocessor that the curve was measured with, or as good as that many.
        const BLOCKS: f64 = 4.0;
        /// Turns are taken by more warps where there are fewer tables, but not by as many more.
        const CROWDED: f64 = 0.7;
        let atomics = &self.machine.shared_wide_atomics;
        let apart = atomics.at(MANY);
        let met = atomics.at((8.0 / self.hottest()).max(2.0 * 8.0));
        let crowd = (BLOCKS / blocks.min(BLOCKS)).powf(CROWDED);
        (apart + (met - apart).max(0.0) * crowd) * self.words().powf(STAGGERED)
    }

    fn state(&self) -> f64 {
        self.w.state_bytes.into()
    }

    /// Rows that reach a table: of a key in order, one a run and warp.
    fn reaching(&self) -> f64 {
        const WARP: f64 = 32.0;
        if self.w.clustered {
            (self.w.rows / WARP + self.groups()).min(self.w.rows)
        } else {
            self.w.rows
        }
    }

    /// Bytes of a key in a column in the narrowest encoding, where its domain is known.
    fn stored_key(&self) -> Option<f64> {
        let bytes = match self.w.dense_domain? {
            0..=0x100 => 1.0,
            0x101..=0x1_0000 => 2.0,
            0x1_0001..=0x1_0000_0000 => 4.0,
            _ => 8.0,
        };
        Some(bytes)
    }

    /// Picoseconds to read a row where it lies.
    fn read(&self) -> f64 {
        let key = self.stored_key().unwrap_or(self.key());
        (key + widths(&self.w.payload).sum::<f64>()) / self.machine.copy * 1e12
    }

    /// Groups that would meet as often if all were equally frequent.
    fn equal_groups(&self) -> f64 {
        zipf::equal_keys(self.groups(), self.w.skew)
    }

    /// Picoseconds of a row's updates of states in the shared memory of `blocks` blocks a multiprocessor.
    fn shared_row(&self, blocks: f64) -> f64 {
        /// What of a queue is not hidden, and what a word costs without, in additions to many places.
        const QUEUE: f64 = 0.66;
        const WORD: f64 = 1.12;
        /// A count or a test, in additions of 32 bits.
        const SMALL: f64 = 0.7;
        let least = self.machine.shared_atomics.at(self.machine.shared);
        let small = (self.adds() - self.words()).max(0.0) + self.tests();
        let words = if self.words() > 0.0 {
            let each = self.machine.shared_wide_atomics.at(MANY);
            QUEUE * self.queued(blocks) + WORD * self.words() * each
        } else {
            0.0
        };
        words + SMALL * small * least
    }

    /// The share of the tests of extremes after which a state is written: the greatest of n draws changes ln n times, and
    /// rows that are looked at together do not see each other.
    fn written_share(&self) -> f64 {
        /// Rows that a multiprocessor looks at together.
        const TOGETHER: f64 = 4096.0;
        let each = (self.w.rows / self.groups()).max(1.0);
        let together = self.machine.multiprocessors * TOGETHER / self.w.rows;
        ((each.ln() + 0.58) / each).max(together).min(1.0)
    }

    /// Picoseconds of an atomic to one of the places of `bytes` bytes that are met equally often.
    fn contended(&self, bytes: f64) -> f64 {
        /// Up to so many bytes atomics wait for those to the same places, and half as long for twice as many; …
        const QUEUES: f64 = 4096.0;
        /// … from so many on for none.
        const FREE: f64 = 65536.0;
        let atomics = &self.machine.atomics;
        if bytes <= QUEUES || bytes >= FREE {
            return atomics.at(bytes.min(CACHED));
        }
        (atomics.at(QUEUES) * QUEUES / bytes).max(atomics.at(FREE))
    }

    /// Picoseconds by `cost`, a function of bytes, of accesses to groups in `bytes` bytes of device memory; a frequent group's
    /// are as if there were only those more frequent. The most frequent groups that have the share `kept` of the rows are in
    /// shared memory.
    fn far(&self, bytes: f64, kept: f64, cost: impl Fn(f64) -> f64) -> f64 {
        let groups = self.groups();
        if self.w.skew <= 0.0 || bytes <= CACHED {
            return cost(bytes);
        }
        let all = zipf::average(groups, self.w.skew, |keys| {
            cost((keys / groups * bytes).max(CACHED))
        });
        let near = cost(CACHED);
        near + (all - near) / (1.0 - kept).max(f64::MIN_POSITIVE)
    }

    /// Picoseconds of a row's updates of states in `bytes` bytes of device memory, of `equal` equally frequent groups;
    /// `kept`: see [`Self::far`].
    fn global_row(&self, bytes: f64, equal: f64, kept: f64) -> f64 {
        let atomics = &self.machine.atomics;
        let cached = atomics.at(CACHED);
        let entry = self.state() + self.key();
        // Places that many additions meet at wait, whichever word of theirs. Rows in the order of the key are added up
        // before, and go over the table from its begin to its end.
        let (contended, bytes) = match self.w.clustered {
            true => (0.0, bytes.min(CACHED)),
            false => (self.contended((self.state() * equal).min(CACHED)), bytes),
        };
        // What streams by takes its part of the cache, as if there were as many more states: LIKE over 150 million comments of
        // 49 bytes left none of 60 MB of counts in an H100's 50 MB.
        let crowded = bytes * (1.0 + self.w.beside / SECTOR);
        let first = self.far(crowded, kept, |bytes| atomics.at(bytes));
        // What of a group lies in further sectors is fetched from memory as well.
        let further = ((entry - 8.0) / SECTOR).max(0.0) * (first - cached).max(0.0);
        let first = first.max(contended) + further;
        let next = cached.max(contended);
        let (adds, tests) = (self.adds(), self.tests());
        // Cells that others write are read from the L2 cache, however few they are.
        let read = self.machine.gather(4.0, CACHED);
        let written = self.written_share();
        if adds > 0.0 {
            // What is added to is in the cache for the tests.
            return first + (adds - 1.0) * next + tests * (read + written * cached);
        }
        let others = (tests - 1.0).max(0.0);
        let brought = self.far(bytes.max(CACHED), kept, |bytes| {
            self.machine.gather(4.0, bytes)
        });
        // What was read to be tested is in the cache when it is written, and goes back to memory.
        let back = (first - brought).max(cached);
        brought + others * read + written * (back + others * cached)
    }

    /// States in registers, of which every row updates all; of more registers than that pays for, in a column of shared
    /// memory a thread, where it updates its group's; of still more, again in what passes for registers.
    pub(super) fn private(&self) -> Price {
        /// 32-bit registers of states that code generation keeps in registers, and in shared memory.
        const REGISTERS: f64 = 24.0;
        const COLUMNS: f64 = 104.0;
        /// Updating one of 32 bits, in updates of 8-byte states.
        const UPDATED: f64 = 0.9;
        /// What of the shorter of reading and computing does not hide behind the longer.
        const SHOWN: f64 = 0.1;
        /// Launches and waits, and those in which the columns of a block are cleared and added up.
        const LAUNCHES: f64 = 2.7;
        const ADDED_UP: f64 = 1.7;
        let groups = self.w.dense_domain.unwrap_or(1) as f64;
        let registers = groups * self.state() / 4.0;
        let read = self.w.rows * self.read();
        let in_columns = registers > REGISTERS && registers <= COLUMNS;
        let (compute, more) = match in_columns {
            true => (self.reaching() * self.machine.register_update, ADDED_UP),
            false => {
                let each = UPDATED * self.machine.register_update;
                (self.reaching() * registers * each, 0.0)
            }
        };
        let ms = (read.max(compute) + SHOWN * read.min(compute)) * 1e-9;
        Price::default().with("aggregate", ms + self.machine.launches(LAUNCHES + more))
    }

    /// The tables of `groups` groups of `blocks` blocks a multiprocessor added to one of `table` bytes, which costs so much
    /// for a word and for an extreme.
    fn flushed(&self, groups: f64, blocks: f64, table: f64, (add, test): (f64, f64)) -> f64 {
        let cells = self.adds() * add + self.tests() * test;
        /// A block has so many rows at least.
        const TILE: f64 = 1024.0;
        let tiles = (self.w.rows / TILE).ceil();
        let blocks = (blocks * self.machine.multiprocessors).min(tiles);
        blocks * groups * cells * self.contended(table) * 1e-9
    }

    /// Blocks of a multiprocessor that have `bytes` bytes of shared memory each.
    fn blocks(&self, bytes: f64) -> f64 {
        /// As many as registers leave room for.
        const MOST: f64 = 6.0;
        (self.machine.shared / bytes.max(1.0))
            .floor()
            .clamp(1.0, MOST)
    }

    /// Reading hides behind updates of tables in shared memory, or they behind it.
    pub(super) fn shared(&self) -> Price {
        /// Bytes of shared memory that a block goes over in a millisecond.
        const BLOCK_BYTES: f64 = 1e8;
        let groups = self.w.dense_domain.unwrap_or(1) as f64;
        let table = groups * self.state();
        let blocks = self.blocks(table);
        let flushed = self.flushed(groups, blocks, table, (FLUSHED, FLUSHED_TEST));
        let read = self.w.rows * self.read();
        let updated = self.reaching() * self.shared_row(blocks);
        // All blocks clear their tables, and go over them in the end, at the same time.
        let cleared = 2.0 * table / BLOCK_BYTES;
        Price::default().with(
            "aggregate",
            read.max(updated) * 1e-9 + cleared + flushed + self.machine.launches(FUSED),
        )
    }

    pub(super) fn global(&self) -> Price {
        /// What is read back for the groups in it is compacted on the way, in bytes copied.
        const READ_BACK: f64 = 3.5;
        /// A slot is claimed, its key written and made known, while the warp waits: picoseconds a new group, at least.
        const CLAIMED: f64 = 70.0;
        /// What of the work of one memory does not hide behind that of the other.
        const SHOWN: f64 = 0.25;
        let (w, machine) = (self.w, self.machine);
        let groups = self.groups();
        let hashed = w.hashed || w.dense_domain.is_none();
        // The bytes of the table, those of them that rows are found in, and picoseconds to find a row's.
        let (table, met, find) = match w.dense_domain {
            Some(domain) if !w.hashed => {
                let table = domain as f64 * self.state();
                (table, table, 0.0)
            }
            _ => {
                let slots = 2f64.powf((2.0 * groups.max(512.0)).log2().ceil());
                let entry = self.state() + self.key();
                // The key brings the sector of the state: what is far away is paid for there.
                let cached = CACHED.min(slots * self.key());
                (
                    slots * entry,
                    groups * entry.max(SECTOR),
                    HASHED + 2.0 * machine.gather(8.0, cached),
                )
            }
        };
        let (row, flushed) = match self.front(hashed) {
            Some(front) => {
                // The groups that a block has rows of.
                let blocks = front.blocks * machine.multiprocessors;
                let brought = zipf::drawn(groups, w.skew, w.rows / blocks).min(front.slots);
                let kept = if front.slots >= groups {
                    // Rows of the more frequent half come early and find a place.
                    let late = 2.0 * (1.0 - zipf::top_share(groups / 2.0, groups, w.skew));
                    1.0 - overflowing(groups / front.slots) * late.min(1.0)
                } else {
                    zipf::top_share(front.slots / 2.0, groups, w.skew)
                };
                // What is left are rows of groups that are not the frequent ones; either memory works while the other does.
                let missed = (1.0 - kept) * (find + self.global_row(met, groups, kept));
                let found = kept * self.shared_row(front.blocks) + self.looked_for(front, hashed);
                let each = (FLUSHED_KEYS, FLUSHED_KEYS);
                (
                    found.max(missed) + SHOWN * found.min(missed),
                    self.flushed(brought, front.blocks, table, each) + machine.launches(FRONT),
                )
            }
            None => (find + self.global_row(met, self.equal_groups(), 0.0), 0.0),
        };
        let entered = if hashed {
            self.seen() * machine.inserts.at(met).max(CLAIMED) * 1e-9
        } else {
            0.0
        };
        let cleared = machine.stream((1.0 + READ_BACK) * table);
        let ms = (w.rows * self.read()).max(self.reaching() * row) * 1e-9;
        Price::default().with(
            "aggregate",
            ms + flushed + entered + cleared + machine.launches(FUSED),
        )
    }

    /// Rows in the order of the key: a tile's groups in shared memory, which are written down and read back without gaps.
    pub(super) fn in_order(&self) -> Price {
        /// Picoseconds of a row in which its block numbers the runs of a tile, of every row of the table, also of those that
        /// filters leave out: 600 M rows in runs of four took 3.5 ms on an H200.
        const NUMBERED: f64 = 5.0;
        /// States are cleared, written and read back, keys written and read.
        const STATES: f64 = 3.0;
        const KEYS: f64 = 2.0;
        let w = self.w;
        let scanned = w.rows.max(w.most_rows);
        let updated = self.reaching() * self.shared_row(self.blocks(1.0)) + scanned * NUMBERED;
        let read = w.rows * self.read();
        let written = self.groups() * (STATES * self.state() + KEYS * self.key());
        let ms = read.max(updated) * 1e-9 + self.machine.stream(written);
        Price::default().with("aggregate", ms + self.machine.launches(FUSED))
    }

    /// The table in shared memory in front of one in device memory, where code generation has one: for hot keys, for
    /// few groups of very many rows, and for sparse keys of which there are few.
    fn front(&self, hashed: bool) -> Option<Front> {
        /// Shared memory of a block that is no table.
        const ELSE: f64 = 4096.0;
        let w = self.w;
        if w.clustered {
            return None;
        }
        let groups = self.groups();
        let queues = w.hot || rows_queue(w.rows.max(w.most_rows) as u64, groups.ceil() as u64);
        let each = self.state() + if hashed { 8.0 } else { 4.0 };
        let sizes = [4.0, 2.0, 1.0].map(|blocks| {
            let bytes = (self.machine.shared / blocks).min(self.machine.shared) - ELSE;
            let slots = 2f64.powf((bytes / each).max(1.0).log2().floor());
            Front { blocks, slots }
        });
        let [four, _, one] = sizes;
        match sizes.into_iter().find(|s| s.slots >= 2.0 * groups) {
            Some(fits) => (hashed || queues).then_some(fits),
            None if hashed && one.slots >= groups => Some(one),
            None => w.hot.then_some(four),
        }
    }

    /// Picoseconds to find a row's slot in a table in front, the longer the fuller it is.
    fn looked_for(&self, front: Front, hashed: bool) -> f64 {
        /// A full table of 64-bit keys; group numbers are compared faster, and slots that are taken are soon given up.
        const FULL: f64 = 28.0;
        const NUMBERS: f64 = 0.1;
        const TAKEN: f64 = 0.4;
        const FILL: f64 = 2.5;
        const EMPTY: f64 = 1.5;
        /// Keys that came first, and are found at once.
        const FIRST: f64 = 32.0;
        let groups = self.groups();
        let fill = (groups / front.slots).min(1.0).powf(FILL);
        let others = 1.0 - zipf::top_share(FIRST.min(groups), groups, self.w.skew);
        let kind = match (front.slots < groups, hashed) {
            (true, _) => TAKEN,
            (_, true) => 1.0,
            _ => NUMBERS,
        };
        FULL * fill * others * kind + EMPTY
    }
}

/// The share of the keys of a table, filled to `load` of its slots, that find none of the four slots that they may have taken: keys
/// of four slots follow a Poisson distribution.
pub(super) fn overflowing(load: f64) -> f64 {
    const SLOTS: f64 = 4.0;
    let mean = (SLOTS * load).max(f64::MIN_POSITIVE);
    let (mut placed, mut rest, mut exactly, mut keys) = (0.0, 1.0, (-mean).exp(), 0.0);
    while keys <= SLOTS {
        placed += keys * exactly;
        rest -= exactly;
        keys += 1.0;
        exactly *= mean / keys;
    }
    (1.0 - (placed + SLOTS * rest) / mean).clamp(0.0, 1.0)
}
