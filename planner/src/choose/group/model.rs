//! What grouping costs: milliseconds of each algorithm from rows, groups, widths, skew, and a device's constants.

use warpline_gpu::machine::Machine;

use super::{GroupWorkload, partition_bits};
use crate::choose::price::Price;
use crate::choose::zipf;

/// Bytes of a slot of a hash table beside its state and key.
const SLOT: f64 = 8.0;
/// Bytes written down cost this many bytes copied: a tile's rows are counted before they have a place.
const WRITTEN: f64 = 1.55;
/// Picoseconds more for each column of 16 bytes that is written.
const WRITTEN_WIDE: f64 = 12.0;
/// A group's states beyond the first cost what the cache costs, over so many bytes.
const CACHED: f64 = (1u64 << 22) as f64;
/// The share of the shorter of reading and computing that does not hide behind the longer.
const EXPOSED: f64 = 0.4;

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

    /// Picoseconds to read a row.
    fn read(&self) -> f64 {
        (self.key() + widths(&self.w.payload).sum::<f64>()) / self.machine.copy * 1e12
    }

    /// Groups that would meet as often if all were equally frequent.
    fn equal_groups(&self) -> f64 {
        zipf::equal_keys(self.groups(), self.w.skew)
    }

    /// Picoseconds of a row's updates of states in shared memory, of `equal` equally frequent groups.
    fn shared_row(&self, equal: f64) -> f64 {
        /// The hot keys of a skewed distribution meet less often than so few equal ones would.
        const SKEWED: f64 = 0.55;
        let skewed = if self.w.skew > 0.0 { SKEWED } else { 1.0 };
        let add = self.machine.shared_wide_atomics.at(8.0 * equal) * skewed;
        let least = self.machine.shared_atomics.at(self.machine.shared);
        self.adds() * add.max(least) + self.tests() * least
    }

    /// The share of the tests of extremes after which a state is written: the greatest of n draws changes ln n times.
    fn written_share(&self) -> f64 {
        let each = (self.w.rows / self.groups()).max(1.0);
        ((each.ln() + 0.58) / each).min(1.0)
    }

    /// Picoseconds of a row's updates of states in `table` bytes of device memory that was read on the way or not.
    fn global_row(&self, table: f64, found: bool, equal: f64) -> f64 {
        /// Reads of few places, in atomics to them.
        const CONTENDED_READ: f64 = 0.2;
        let atomics = &self.machine.atomics;
        let contended = atomics.at(4.0 * equal);
        let first = atomics.at(table).max(contended);
        let next = atomics.at(CACHED.min(table.max(1.0)));
        let next = next.min(atomics.at(CACHED));
        let (adds, tests) = (self.adds(), self.tests());
        let read = match found {
            true => 0.0,
            false => self
                .machine
                .gather(4.0, table)
                .max(CONTENDED_READ * contended),
        };
        let written = self.written_share();
        let tested = read + written * (first + (tests - 1.0).max(0.0) * next);
        match (adds > 0.0, tests > 0.0) {
            (true, false) => first + (adds - 1.0) * next,
            // What is added to is in the cache for the tests.
            (true, true) => first + (adds - 1.0) * next + written * tests * next + read.min(next),
            _ => tested,
        }
    }

    /// Milliseconds of rows whose compute takes `row` picoseconds each, read from columns on the way.
    fn fused(&self, row: f64) -> f64 {
        let (read, compute) = (self.w.rows * self.read(), self.reaching() * row);
        (read.max(compute) + EXPOSED * read.min(compute)) * 1e-9
    }

    pub(super) fn private(&self) -> Price {
        let groups = self.w.dense_domain.unwrap_or(1) as f64;
        let updates = groups * (self.adds() + self.tests());
        let row = updates * self.machine.register_update;
        Price::default().with("aggregate", self.fused(row) + self.machine.launches(6.0))
    }

    /// Every block's table of states of shared memory added to one in device memory.
    fn flushed(&self, groups: f64) -> f64 {
        let cells = self.adds() + self.tests();
        let blocks = 2.0 * self.machine.multiprocessors;
        blocks * groups * cells * self.machine.atomics.at(groups * self.state()) * 1e-9
    }

    pub(super) fn shared(&self) -> Price {
        let groups = self.w.dense_domain.unwrap_or(1) as f64;
        let row = self.shared_row(self.equal_groups());
        Price::default().with(
            "aggregate",
            self.fused(row) + self.flushed(groups) + self.machine.launches(6.0),
        )
    }

    /// Slots of a table in shared memory of which `blocks` blocks have one each.
    fn front(&self, blocks: f64) -> f64 {
        let each = self.state() + self.key();
        2f64.powf(
            (self.machine.shared / blocks / each)
                .max(1.0)
                .log2()
                .floor(),
        )
    }

    pub(super) fn global(&self) -> Price {
        let (w, machine) = (self.w, self.machine);
        let (groups, equal) = (self.groups(), self.equal_groups());
        let hashed = w.hashed || w.dense_domain.is_none();
        let (table, find) = match w.dense_domain {
            Some(domain) if !w.hashed => (domain as f64 * self.state(), 0.0),
            _ => {
                let slots = 2f64.powf((2.0 * groups.max(512.0)).log2().ceil());
                let table = slots * (self.state() + self.key() + SLOT);
                // The slot's mark and key, and its state.
                (table, 10.0 + 2.0 * machine.gather(8.0, table))
            }
        };
        /// Slots of the table in front are looked for, and added to the one behind it: picoseconds and launches.
        const FRONT: f64 = 4.0;
        const BEHIND: f64 = 4.0;
        let in_front = 1.2 * self.shared_row(equal) + FRONT;
        let mut launches = 6.0;
        let row = if hashed && 4.0 * groups <= self.front(4.0) {
            self.shared_row(equal) + 1.0
        } else if hashed && 2.0 * groups <= self.front(1.0) {
            // Few free slots are left: many rows look twice, in one block a multiprocessor.
            20.0 + in_front
        } else if w.hot {
            launches += BEHIND;
            let hit = zipf::top_share(self.front(4.0) / 2.0, groups, w.skew);
            let cold = find + self.global_row(table, hashed, groups);
            hit * in_front + (1.0 - hit) * cold
        } else {
            find + self.global_row(table, hashed, equal)
        };
        let entered = if hashed {
            groups * machine.inserts.at(table) * 1e-9
        } else {
            0.0
        };
        // Cleared, and read back for the groups in it.
        let cleared = machine.stream(2.0 * table);
        Price::default().with(
            "aggregate",
            self.fused(row) + entered + cleared + machine.launches(launches),
        )
    }

    pub(super) fn numbered(&self) -> Price {
        let (w, machine) = (self.w, self.machine);
        let table = self.groups() * self.state();
        let read = machine.stream(w.rows * (4.0 + widths(&w.payload).sum::<f64>()));
        let aggregate = if table <= machine.shared {
            self.reaching() * self.shared_row(self.equal_groups()) * 1e-9
                + self.flushed(self.groups())
        } else {
            self.reaching() * self.global_row(table, false, self.equal_groups()) * 1e-9
        };
        Price::default()
            .with("write", self.written())
            .with("find", self.numbers())
            .with("aggregate", read + aggregate + machine.launches(4.0))
    }

    /// The number of each row's group looked up in a table, which gives new keys the next numbers.
    fn numbers(&self) -> f64 {
        /// Many rows of few groups wait at the slots of these: picoseconds by the groups.
        const WAITING: [(f64, f64); 7] = [
            (2.0, 12.0),
            (16.0, 28.0),
            (64.0, 50.0),
            (256.0, 60.0),
            (1024.0, 55.0),
            (4096.0, 35.0),
            (16384.0, 28.0),
        ];
        let (w, machine) = (self.w, self.machine);
        let slots = 2f64.powf((2.0 * self.groups().max(512.0)).log2().ceil());
        // A mark, a key and a number, each in an array of its own.
        let bytes = slots * self.key();
        let find = 10.0 + 3.0 * machine.gather(8.0, bytes);
        let waiting = warpline_gpu::machine::Curve::new(WAITING).at(self.equal_groups());
        let entered = self.groups() * 3.0 * machine.scatter(8.0, bytes);
        (w.rows * find.max(waiting) + entered) * 1e-9
            + machine.stream(w.rows * (self.key() + 4.0))
            + machine.launches(4.0)
    }

    /// Keys and payload read, and written down.
    fn written(&self) -> f64 {
        let row = self.key() + widths(&self.w.payload).sum::<f64>();
        let wide = widths(&self.w.payload).filter(|w| *w >= 16.0).count() as f64;
        self.machine.stream(2.0 * self.w.rows * row) * WRITTEN
            + self.w.rows * wide * WRITTEN_WIDE * 1e-9
            + self.machine.launches(4.0)
    }

    pub(super) fn moved(&self) -> Vec<f64> {
        widths(&self.w.payload).collect()
    }

    /// Unclustered reads of all payload columns; `share`: how unclustered.
    pub(super) fn gathered(&self, share: f64) -> f64 {
        let rows = self.w.rows;
        widths(&self.w.payload)
            .map(|w| {
                rows * self.machine.gather(w, rows * w) * 1e-9 * share
                    + self.machine.stream(rows * w) * (1.0 - share)
            })
            .sum()
    }

    /// How much of a warp's reads by sorted keys are of different groups (§4.1.3).
    pub(super) fn unclustered(&self) -> f64 {
        const CAP: f64 = 24.0;
        self.equal_groups().min(CAP) / CAP
    }

    /// Runs of equal keys reduced, a run never longer than a block's share: those of one group meet at its states.
    fn runs(&self, key: f64) -> f64 {
        /// Rows of a run that one thread reduces before it adds to the group.
        const REDUCED: f64 = 8.0;
        let row = key + widths(&self.w.payload).sum::<f64>();
        let met = self.machine.atomics.at(4.0 * self.equal_groups()) / REDUCED;
        let each = self.machine.run_row * (self.adds() + self.tests()) + self.adds() * met.max(1.0);
        self.w.rows * each * 1e-9
            + self.machine.stream(self.w.rows * row)
            + self.machine.launches(4.0)
    }

    pub(super) fn sort_bits(&self) -> f64 {
        let all = f64::from(self.w.key_bytes) * 8.0;
        match self.w.dense_domain {
            Some(domain) => (domain.max(2) as f64).log2().ceil().min(all),
            None => all,
        }
    }

    pub(super) fn sorted(&self, moved: bool) -> Price {
        let (rows, key) = (self.w.rows, self.key());
        let payload = if moved { self.moved() } else { vec![4.0] };
        let sort = self
            .machine
            .partition(rows, key, &payload, self.sort_bits());
        let gather = if moved {
            0.0
        } else {
            self.machine.stream(rows * 4.0) + self.gathered(self.unclustered())
        };
        Price::default()
            .with("write", self.written())
            .with("transform", sort)
            .with("gather", gather)
            .with("aggregate", self.runs(key))
    }

    pub(super) fn encoded(&self) -> Price {
        let rows = self.w.rows;
        let bits = number_bits(self.groups());
        Price::default()
            .with("write", self.written())
            .with("find", self.numbers())
            .with(
                "transform",
                self.machine.partition(rows, 4.0, &self.moved(), bits),
            )
            .with("aggregate", self.runs(4.0))
    }

    pub(super) fn partitioned(&self, moved: bool) -> Price {
        /// Rows of equal keys lie together in a partition and meet more often than at random.
        const TOGETHER: f64 = 1.7;
        /// Tests of one place, in additions to it.
        const TESTED: f64 = 0.08;
        let (w, machine) = (self.w, self.machine);
        let key = self.key();
        let payload = if moved { self.moved() } else { vec![4.0] };
        let bits = partition_bits(self.groups());
        let transform = machine.partition(w.rows, key, &payload, bits);
        let gather = if moved {
            0.0
        } else {
            machine.stream(w.rows * 4.0) + self.gathered(1.0)
        };
        let in_partition = (self.equal_groups() / 2f64.powf(bits)).max(1.0);
        let add = machine.shared_wide_atomics.at(8.0 * in_partition) * TOGETHER;
        let least = machine.shared_atomics.at(machine.shared);
        let each = machine.group_row + self.adds() * add + self.tests() * (add * TESTED).max(least);
        let row = key + widths(&w.payload).sum::<f64>();
        Price::default()
            .with("write", self.written())
            .with("transform", transform)
            .with("gather", gather)
            .with(
                "aggregate",
                w.rows * each * 1e-9
                    + machine.stream(w.rows * row + self.groups() * self.state())
                    + machine.launches(4.0),
            )
    }

    /// Groups put into the order of their keys.
    pub(super) fn ordering(&self) -> f64 {
        let bits = f64::from(self.w.key_bytes) * 8.0;
        let row = [self.state()];
        self.machine
            .partition(self.groups(), self.key(), &row, bits)
    }
}

/// Bits of the numbers of so many groups; whole passes of 8 beyond what fits one.
fn number_bits(groups: f64) -> f64 {
    groups.max(2.0).log2().ceil()
}

/// Milliseconds to replace `rows` keys of `key` bytes by the numbers of `groups` groups, D(N, g) of §4.4: groups
/// entered and rows looked up in a hash table, keys read and numbers written in sequence.
fn encoding(rows: f64, groups: f64, key: f64, machine: &Machine) -> f64 {
    const CAP: f64 = 24.0;
    let entry = key + 4.0;
    let unclustered = groups.min(CAP) / CAP;
    let random = machine.gather(entry, groups * entry) * unclustered;
    machine.stream(key * groups + entry * rows) + (rows + groups) * random * 1e-9
}

/// What sorting by numbers in place of keys saves (§4.4, C1 - C2), in milliseconds; negative when it costs more.
/// `sorts`: the payload columns of each sort; all in one here, one a sort in the paper.
pub fn encoding_saves(
    rows: f64,
    groups: f64,
    key: f64,
    bits: f64,
    sorts: &[&[f64]],
    machine: &Machine,
) -> f64 {
    let by_key = |columns: &&[f64]| machine.partition(rows, key, columns, bits);
    let by_number = |columns: &&[f64]| machine.partition(rows, 4.0, columns, number_bits(groups));
    let c1: f64 = sorts.iter().map(by_key).sum();
    let c2: f64 = sorts.iter().map(by_number).sum();
    c1 - c2 - encoding(rows, groups, key, machine)
}
