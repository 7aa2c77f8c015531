//! Price of materialising rows, sorting or partitioning them by group, and aggregating them.

use warpline_gpu::machine::Machine;

use super::{FLUSHED, FLUSHED_TEST, Model, STAGGERED, widths};
use crate::choose::group::partition_bits;
use crate::choose::price::{Accesses, Price, written};

/// Picoseconds more for each column of 16 bytes that is written.
const WRITTEN_WIDE: f64 = 12.0;

impl Model<'_> {
    pub(in crate::choose::group) fn numbered(&self) -> Price {
        /// Blocks of a multiprocessor.
        const NUMBERED: f64 = 2.0;
        let (w, machine) = (self.w, self.machine);
        let table = self.groups() * self.state();
        let read = machine.stream(w.rows * (4.0 + widths(&w.payload).sum::<f64>()));
        let aggregate = if table <= machine.shared {
            self.reaching() * self.shared_row(NUMBERED) * 1e-9
                + self.flushed(self.groups(), NUMBERED, table, (FLUSHED, FLUSHED_TEST))
        } else {
            self.reaching() * self.global_row(table, self.equal_groups(), 0.0) * 1e-9
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
            (256.0, 50.0),
            (1024.0, 42.0),
            (4096.0, 27.0),
            (16384.0, 21.0),
        ];
        /// A new group takes the next number while others wait for it.
        const ENTERED: f64 = 290.0;
        let (w, machine) = (self.w, self.machine);
        let slots = 2f64.powf((2.0 * self.groups().max(512.0)).log2().ceil());
        // A mark, a key and a number, each in an array of its own, and all in the same cache.
        let bytes = slots * (self.key() + 8.0);
        let reads = Accesses {
            machine,
            keys: self.groups(),
            skew: w.skew,
            clustered: false,
        };
        let find = 10.0 + 3.0 * reads.gather(1e9, 8.0, bytes);
        let waiting = warpline_gpu::machine::Curve::new(WAITING).at(self.equal_groups());
        let entered = self.seen() * ENTERED;
        (w.rows * find.max(waiting) + entered) * 1e-9
            + machine.stream(w.rows * (self.key() + 4.0))
            + machine.launches(4.0)
    }

    /// Keys and payload read, and written down.
    fn written(&self) -> f64 {
        /// A key that is packed into another width, and the more if it has one word for what had half.
        const PACKED: f64 = 1.3;
        const WIDENED: f64 = 2.4;
        if self.w.in_place {
            // The columns are read where they are in place of their copies, but for keys of other width.
            let Some(stored) = self.stored_key().filter(|stored| *stored != self.key()) else {
                return self.machine.launches(2.0);
            };
            let widened = if self.key() > 4.0 { WIDENED } else { 1.0 };
            return self.machine.stream(self.w.rows * (stored + self.key())) * PACKED * widened
                + self.machine.launches(3.0);
        }
        let row = self.key() + widths(&self.w.payload).sum::<f64>();
        let wide = widths(&self.w.payload).filter(|w| *w >= 16.0).count() as f64;
        written(self.machine, self.w.rows * row)
            + self.w.rows * wide * WRITTEN_WIDE * 1e-9
            + self.machine.launches(4.0)
    }

    pub(in crate::choose::group) fn moved(&self) -> Vec<f64> {
        widths(&self.w.payload).collect()
    }

    /// Payload read by row numbers while runs are added up.
    fn gathered(&self) -> f64 {
        /// What of the reads of a column is not hidden by those of the others.
        const SHOWN: f64 = 0.5;
        /// A row number and its use, and that of each column.
        const NUMBER: f64 = 7.0;
        const COLUMN: f64 = 6.5;
        let (rows, share) = (self.w.rows, self.unclustered());
        let each = |w: f64| COLUMN + SHOWN * share * self.machine.gather(w, rows * w);
        rows * (NUMBER + widths(&self.w.payload).map(each).sum::<f64>()) * 1e-9
    }

    /// Payload read by row numbers by the blocks of partitions, whose many warps hide more of each other's reads.
    fn gathered_apart(&self) -> f64 {
        const SHOWN: f64 = 0.85;
        const NUMBER: f64 = 4.5;
        let rows = self.w.rows;
        // All columns go through the cache side by side.
        let bytes = rows * widths(&self.w.payload).sum::<f64>();
        let each = |w: f64| SHOWN * self.machine.gather(w, bytes);
        rows * (NUMBER + widths(&self.w.payload).map(each).sum::<f64>()) * 1e-9
    }

    /// How much of a warp's reads by sorted keys are of different groups (§4.1.3).
    pub(in crate::choose::group) fn unclustered(&self) -> f64 {
        const CAP: f64 = 24.0;
        self.equal_groups().min(CAP) / CAP
    }

    /// Runs of equal keys reduced: a warp adds up those in its share before it adds to a group, so none wait.
    /// `read`: pairs are read, compared with their neighbours, and added up across lanes, in bytes copied.
    fn runs(&self, key: f64, read: f64) -> f64 {
        /// An addition of a lane, in rows of runs.
        const ADDED: f64 = 1.0 / 6.0;
        /// States are written sector by sector, a lane each.
        const STATES: f64 = 5.0;
        let row = key + widths(&self.w.payload).sum::<f64>();
        let added = self.w.rows * self.adds() * ADDED * self.machine.run_row;
        added * 1e-9
            + read * self.machine.stream(self.w.rows * row)
            + STATES * self.machine.stream(self.seen() * self.state())
            + self.machine.launches(3.0)
    }

    pub(in crate::choose::group) fn sort_bits(&self) -> f64 {
        let all = f64::from(self.w.key_bytes) * 8.0;
        match self.w.dense_domain {
            Some(domain) => (domain.max(2) as f64).log2().ceil().min(all),
            None => all,
        }
    }

    pub(in crate::choose::group) fn sorted(&self, moved: bool) -> Price {
        /// Keys are numbered by their runs; what is gathered hides a part of that.
        const KEYS: f64 = 2.7;
        const GATHERED: f64 = 2.1;
        let (rows, key) = (self.w.rows, self.key());
        let payload = if moved { self.moved() } else { vec![4.0] };
        let sort = self
            .machine
            .partition(rows, key, &payload, self.sort_bits());
        let gather = if moved { 0.0 } else { self.gathered() };
        Price::default()
            .with("write", self.written())
            .with("transform", sort)
            .with("gather", gather)
            .with(
                "aggregate",
                self.runs(key, if moved { KEYS } else { GATHERED }),
            )
    }

    pub(in crate::choose::group) fn encoded(&self) -> Price {
        /// Numbers of groups need not be found out.
        const NUMBERS: f64 = 1.9;
        let rows = self.w.rows;
        let bits = number_bits(self.groups());
        Price::default()
            .with("write", self.written())
            .with("find", self.numbers())
            .with(
                "transform",
                self.machine.partition(rows, 4.0, &self.moved(), bits),
            )
            .with("aggregate", self.runs(4.0, NUMBERS))
    }

    pub(in crate::choose::group) fn partitioned(&self, moved: bool) -> Price {
        /// What the threads in flight wait for at a row, a word that is added to and a test, if they are as many as a device
        /// can have: picoseconds.
        const LOOKED_FOR: f64 = 0.75;
        const ADDED: f64 = 2.0;
        const TESTED: f64 = 0.9;
        /// States are written sector by sector, a lane each.
        const STATES: f64 = 5.0;
        /// Rows of equal keys lie together in a partition, so that all warps of its block wait for one place: so many
        /// times what the lanes of one do.
        const TOGETHER: f64 = 8.8;
        /// What of a queue of the lanes of one is not hidden.
        const QUEUE: f64 = 0.8;
        /// A block that has this share of all rows is the last to end; the hottest group's rows make no larger one.
        const BLOCK: f64 = 1.0 / 68.0;
        /// What of gathering and aggregating, which go on side by side, does not hide behind the other.
        const SHOWN: f64 = 0.5;
        let (w, machine) = (self.w, self.machine);
        let key = self.key();
        let payload = if moved { self.moved() } else { vec![4.0] };
        let bits = partition_bits(self.expected());
        let transform = machine.partition(w.rows, key, &payload, bits);
        let two = machine.shared_wide_atomics.at(2.0 * 8.0);
        let queued = if self.words() > 0.0 {
            let together = TOGETHER * two * (self.hottest() / BLOCK).min(1.0);
            let groups = (self.equal_groups() / 2f64.powf(bits)).max(2.0);
            let apart = QUEUE * machine.shared_wide_atomics.at(8.0 * groups);
            (together + apart) * self.words().powf(STAGGERED)
        } else {
            0.0
        };
        let waited = LOOKED_FOR + ADDED * self.words() + TESTED * self.tests();
        let each = waited / self.occupied(bits) + queued;
        let row = key + widths(&w.payload).sum::<f64>();
        let aggregate = w.rows * each * 1e-9
            + machine.stream(w.rows * row)
            + STATES * machine.stream(self.groups() * self.state())
            + machine.launches(4.0);
        let gather = match moved {
            true => 0.0,
            false => {
                let gather = self.gathered_apart();
                (gather - aggregate).max(0.0) + SHOWN * gather.min(aggregate)
            }
        };
        Price::default()
            .with("write", self.written())
            .with("transform", transform)
            .with("gather", gather)
            .with("aggregate", aggregate)
    }

    /// The share of the threads that a device can have at once that the blocks of 2^`bits` partitions have, a block each.
    fn occupied(&self, bits: f64) -> f64 {
        const MULTIPROCESSOR: f64 = 2048.0;
        let partitions = 2f64.powf(bits);
        let slots = (2.0 * self.expected() / partitions).max(256.0);
        // Code generation has larger blocks for larger tables.
        let threads = match slots * (self.state() + self.key()) {
            0.0..=32_000.0 => 256.0,
            ..=100_000.0 => 512.0,
            _ => 1024.0,
        };
        (partitions * threads / (self.machine.multiprocessors * MULTIPROCESSOR)).min(1.0)
    }

    /// Groups that room is made for: a quarter more than the estimate.
    fn expected(&self) -> f64 {
        let most = self.w.dense_domain.map_or(f64::INFINITY, |d| d as f64);
        (1.25 * self.groups()).min(self.w.rows).min(most)
    }

    /// Groups put into the order of their keys.
    pub(in crate::choose::group) fn ordering(&self) -> f64 {
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
