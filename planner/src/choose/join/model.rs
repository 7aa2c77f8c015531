//! Price of each join algorithm from rows, matches, widths, skew, and the device's constants.

use warpline_gpu::machine::Machine;

use super::{JoinWorkload, partition_bits};
use crate::choose::price::{Accesses, Price};
use crate::choose::zipf;
use warpline_gpu::algorithm::JoinAlgorithm;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    Partition,
    Sort,
}

/// Cost of materialising a byte, in bytes copied: a tile counts its rows before it writes them.
const WRITTEN: f64 = 1.3;

/// Launches and waits of a pipeline that probes an index.
const LOOKING: f64 = 1.75;

/// Smallest transfer of memory, in bytes.
const SECTOR: f64 = 32.0;

pub(super) struct Model<'a> {
    pub(super) w: &'a JoinWorkload,
    pub(super) machine: &'a Machine,
}

pub(super) fn widths(columns: &[u32]) -> impl Iterator<Item = f64> + '_ {
    columns.iter().map(|w| f64::from(*w))
}

impl Model<'_> {
    /// Bytes of a packed key as it is partitioned and sorted.
    fn key(&self) -> f64 {
        match self.w.key_bytes {
            0..=4 => 4.0,
            5..=8 => 8.0,
            _ => 16.0,
        }
    }

    /// Accesses to the build side by the keys of the probing side.
    fn probes(&self) -> Accesses<'_> {
        Accesses {
            machine: self.machine,
            keys: self.w.build_rows.max(1.0),
            skew: self.w.skew,
            clustered: self.w.probe_clustered,
        }
    }

    /// Looks for the build side's keys by those of the probing side: what finds none is spread over keys of its own.
    fn looks(&self) -> Accesses<'_> {
        let w = self.w;
        let more = (w.probe_rows / w.matches.max(1.0)).max(1.0);
        let probes = self.probes();
        Accesses {
            keys: probes.keys * more,
            ..probes
        }
    }

    fn build_bytes(&self) -> f64 {
        self.w.build_rows * widths(&self.w.build_payload).sum::<f64>()
    }

    pub(super) fn side_bytes(&self) -> f64 {
        let probe = widths(&self.w.probe_payload).sum::<f64>();
        self.build_bytes()
            + self.w.probe_rows * probe
            + (self.w.build_rows + self.w.probe_rows) * (self.key() + 4.0)
    }

    /// Milliseconds for which lanes without a match wait while others of their warp read a column of the build side.
    fn waiting(&self) -> f64 {
        /// Picoseconds a lane.
        const WAITS: f64 = 3.0;
        const WARP: i32 = 32;
        let w = self.w;
        if w.probe_clustered || w.build_payload.is_empty() {
            return 0.0;
        }
        let matched = (w.matches / w.probe_rows.max(1.0)).min(1.0);
        let warps = 1.0 - (1.0 - matched).powi(WARP);
        w.probe_rows * (warps - matched) * WAITS * 1e-9
    }

    /// Bytes of state until all rows are joined: the index, or both sides.
    pub(super) fn state_bytes(&self, algorithm: JoinAlgorithm) -> f64 {
        match algorithm {
            JoinAlgorithm::Perfect => self.perfect_bytes(self.w.key_domain.unwrap_or(1) as f64),
            JoinAlgorithm::Nphj => {
                let word = self.word();
                let entries = match self.w.existence {
                    true => 0.0,
                    false => self.slots() * 4.0 + self.build_bytes() + self.w.build_rows * word,
                };
                self.slots() * word + entries
            }
            _ => self.side_bytes(),
        }
    }

    /// Traffic over the link when the state has only `room` bytes of device memory.
    ///
    /// A random access across the link costs as much as the 128 bytes that it could have carried (Lutz et al., SIGMOD
    /// 2022, section 3.4: bandwidth grows with the bytes of an access up to a line); one that must return before it
    /// continues, as an insertion, several of these. Partitions are written and read back, except those that stay on
    /// the device.
    pub(super) fn link(&self, algorithm: JoinAlgorithm, room: f64) -> f64 {
        const LINE: f64 = 128.0;
        const INSERTED: f64 = 4.0;
        /// The share of the room for partitions that stay on the device; streaming rows take the rest.
        const KEPT: f64 = 0.7;
        /// Bits of a pass of a sort.
        const PASS: f64 = 8.0;
        let (w, state) = (self.w, self.state_bytes(algorithm));
        let columns = w.build_payload.len() as f64;
        // Of an index beyond the room about so much lies in host memory.
        let away = 1.0 - room / state.max(room).max(1.0);
        let bytes = match algorithm {
            JoinAlgorithm::Perfect | JoinAlgorithm::Nphj => {
                let entered = w.build_rows * (INSERTED + columns);
                let found = w.matches * (columns + 1.0);
                away * LINE * (entered + w.probe_rows + found)
            }
            JoinAlgorithm::PhjUr | JoinAlgorithm::PhjTr => 2.0 * (state - room * KEPT).max(0.0),
            JoinAlgorithm::SmjUr | JoinAlgorithm::SmjTr => {
                2.0 * state * (sort_bits(w) / PASS).ceil() + away * LINE * w.matches
            }
        };
        bytes / self.machine.link * 1e3
    }

    /// Bytes of the key in a slot of a hash table.
    fn word(&self) -> f64 {
        (f64::from(self.w.key_bytes) / 8.0).ceil().max(1.0) * 8.0
    }

    /// Slots of a hash table.
    fn slots(&self) -> f64 {
        2f64.powf((2.0 * self.w.build_rows.max(512.0)).log2().ceil())
    }

    /// The columns of both sides read.
    pub(super) fn read(&self) -> f64 {
        let w = self.w;
        let probe = w.probe_rows * (self.key() + widths(&w.probe_payload).sum::<f64>());
        let build = w.build_rows * self.key() + self.build_bytes();
        self.machine.stream(build + probe)
    }

    /// The columns of the matches written.
    pub(super) fn output(&self) -> f64 {
        let w = self.w;
        let row = widths(&w.build_payload).chain(widths(&w.probe_payload));
        self.machine.stream(w.matches * row.sum::<f64>())
    }

    pub(super) fn perfect_bytes(&self, domain: f64) -> f64 {
        let payload = widths(&self.w.build_payload).sum::<f64>();
        if self.w.existence {
            domain / 8.0
        } else if self.w.build_unique {
            domain / 8.0 + domain * payload
        } else {
            domain * 4.0 + self.w.build_rows * (payload + 12.0)
        }
    }

    pub(super) fn perfect(&self) -> Price {
        /// Bits are set, and tell whether they were before, in additions that tell nothing.
        const MARKED: f64 = 1.5;
        /// Columns are written beside each other.
        const ENTERED: f64 = 1.2;
        /// Launches and waits of building.
        const UNIQUE: f64 = 4.0;
        const OFFSETS: f64 = 8.0;
        let (w, machine) = (self.w, self.machine);
        let domain = w.key_domain.unwrap_or(1) as f64;
        let (looks, probes) = (self.looks(), self.probes());
        let bitmap = domain / 8.0;
        // Bits of keys that follow each other are set together.
        let marked = if w.build_clustered {
            machine.stream(2.0 * bitmap.min(w.build_rows * SECTOR))
        } else {
            MARKED * w.build_rows * machine.atomics.at(bitmap) * 1e-9
        };
        let set = marked + machine.stream(bitmap);
        if w.existence {
            return Price::default()
                .with("build", set + machine.launches(UNIQUE))
                .with(
                    "match",
                    looks.gather(w.probe_rows, 4.0, bitmap) + machine.launches(LOOKING),
                );
        }
        if w.build_unique {
            // All columns go through the cache side by side.
            let columns = domain * widths(&w.build_payload).sum::<f64>();
            let enter = |width: f64| ENTERED * self.enter(width, columns);
            let build = set + widths(&w.build_payload).map(enter).sum::<f64>();
            let read = |width: f64| probes.gather(w.matches, width, columns);
            return Price::default()
                .with("build", build + machine.launches(UNIQUE))
                .with(
                    "match",
                    looks.gather(w.probe_rows, 4.0, bitmap) + machine.launches(LOOKING),
                )
                .with(
                    "gather",
                    widths(&w.build_payload).map(read).sum::<f64>() + self.waiting(),
                );
        }
        // Offsets by key: entries are counted, the counts summed up, and entries written to their places.
        let offsets = domain * 4.0;
        let counted = if w.build_clustered {
            machine.stream(offsets.min(w.build_rows * SECTOR))
        } else {
            w.build_rows * machine.atomics.at(offsets) * 1e-9
        };
        let build = 2.0 * counted
            + machine.stream(4.0 * offsets + 2.0 * (self.build_bytes() + w.build_rows * 12.0));
        Price::default()
            .with("build", build + machine.launches(OFFSETS))
            .with(
                "match",
                looks.gather(w.probe_rows, 8.0, offsets) + self.pairs(),
            )
            .with("gather", self.gather_entries())
    }

    /// A column of `width` bytes written to places by key in an array of `bytes`.
    fn enter(&self, width: f64, bytes: f64) -> f64 {
        let (w, machine) = (self.w, self.machine);
        if w.build_clustered {
            return machine.stream((w.build_rows * SECTOR).min(bytes.max(w.build_rows * width)));
        }
        machine.scatter(width, bytes) * w.build_rows * 1e-9
    }

    /// Probing rows with the ranges of their matches, and the pairs read back.
    fn pairs(&self) -> f64 {
        let w = self.w;
        let kept = w.probe_rows.min(w.matches) * (12.0 + widths(&w.probe_payload).sum::<f64>());
        self.machine.stream(2.0 * kept) + self.machine.launches(3.0)
    }

    /// The payload of the entries that match, by their numbers.
    fn gather_entries(&self) -> f64 {
        /// Finding the probing row of a pair: picoseconds.
        const PAIR: f64 = 25.0;
        let w = self.w;
        let probes = self.probes();
        // A key's entries follow each other: one random access a probing row, the rest in order.
        let per_key = (w.matches / w.probe_rows.max(1.0)).max(1.0);
        let columns = widths(&w.build_payload)
            .map(|width| {
                probes.gather(w.matches / per_key, width, w.build_rows * width)
                    + self.machine.stream(w.matches * width)
            })
            .sum::<f64>();
        let numbers = probes.gather(w.matches / per_key, 4.0, w.build_rows * 4.0);
        columns + numbers + w.matches * PAIR * 1e-9
    }

    pub(super) fn nphj(&self) -> Price {
        /// Hashing a row and going on from a slot that is taken: picoseconds.
        const ENTERED: f64 = 17.0;
        /// The slot's number and the entry are written while the slot is in the cache.
        const NUMBERED: f64 = 0.65;
        /// The number of an entry is read after its slot.
        const FOUND: f64 = 1.2;
        /// Launches and waits of building: of one pass over the rows, and of two with sums of counts between them.
        const UNIQUE: f64 = 6.0;
        const COUNTED: f64 = 8.0;
        let (w, machine) = (self.w, self.machine);
        let (word, slots) = (self.word(), self.slots());
        // Slots, numbers of entries and entries go through the cache side by side.
        let table = self.state_bytes(JoinAlgorithm::Nphj);
        // Hashes of neighbours lie apart, but equal keys that follow each other look into one slot.
        let probes = Accesses {
            clustered: false,
            ..self.probes()
        };
        let looking = if w.probe_clustered {
            w.probe_rows.min(w.build_rows)
        } else {
            w.probe_rows
        };
        let insert = w.build_rows * (ENTERED + machine.inserts.at(table)) * 1e-9;
        let cleared = machine.stream(slots * (word + 4.0));
        let looks = Accesses {
            clustered: false,
            ..self.looks()
        };
        let look = looks.gather(looking, word, table);
        if w.existence {
            return Price::default()
                .with("build", insert + cleared + machine.launches(UNIQUE))
                .with("match", look + machine.launches(LOOKING));
        }
        let number = NUMBERED * machine.scatter(4.0, table) * w.build_rows * 1e-9;
        let entries = machine.stream(self.build_bytes() + w.build_rows * word);
        let found = FOUND * probes.gather(looking.min(w.matches), 4.0, table);
        if w.build_unique {
            let columns = self.build_bytes();
            let read = |width: f64| probes.gather(w.matches, width, columns);
            return Price::default()
                .with(
                    "build",
                    insert + number + entries + cleared + machine.launches(UNIQUE),
                )
                .with("match", look + found + machine.launches(LOOKING))
                .with(
                    "gather",
                    widths(&w.build_payload).map(read).sum::<f64>()
                        + self.waiting() * w.build_payload.len() as f64,
                );
        }
        // Entries are counted by slot, the counts summed up, and entries written to their places.
        let build = insert + number + machine.stream(3.0 * slots * 4.0) + 2.0 * entries;
        Price::default()
            .with("build", build + cleared + machine.launches(COUNTED))
            .with("match", look + found + self.pairs())
            .with("gather", self.gather_entries())
    }

    pub(super) fn transformed(&self, transform: Transform, moved: bool) -> Price {
        /// Keys wait for the table of their partition, or for their neighbours: in rows that do not wait.
        const WAITED: f64 = 1.3;
        const WAITED_SORTED: f64 = 1.45;
        /// Where keys repeat, entries are counted before they have places.
        const COUNTED: f64 = 1.4;
        /// A pair of a row with several, in pairs of unique keys.
        const PAIR: f64 = 0.6;
        /// … longer with more than 4 bytes …
        const WIDE: f64 = 1.3;
        /// … and keys are read for it, in bytes copied.
        const READ: f64 = 1.3;
        const NUMBERED: f64 = 2.0;
        /// A thread goes over the entries of its row's key by itself: picoseconds an entry of many beyond so many.
        const ALONE: f64 = 48.0;
        const RUN: f64 = 32.0;
        /// Launches and waits of matching.
        const MATCHING: f64 = 5.0;
        let (w, machine) = (self.w, self.machine);
        let key = self.key();
        let bits = match transform {
            Transform::Partition => partition_bits(w.build_rows, key),
            Transform::Sort => sort_bits(w),
        };
        let payload = |columns: &[u32]| -> Vec<f64> {
            if moved {
                widths(columns).collect()
            } else {
                vec![4.0]
            }
        };
        let side = |rows: f64, columns: &[u32]| match transform {
            Transform::Sort => machine.partition(rows, key, &payload(columns), bits),
            // Joins do not ask for an order within partitions.
            Transform::Partition => {
                machine.partition_unstable(rows, key, &payload(columns), bits, moved)
            }
        };
        let written = |rows: f64, columns: &[u32]| rows * (key + widths(columns).sum::<f64>());
        let mut write = 0.0;
        if !w.build_in_place {
            write += written(w.build_rows, &w.build_payload);
        }
        if w.probe_streams_from_scan {
            write += written(w.probe_rows, &w.probe_payload);
        }
        let rows = w.build_rows + w.probe_rows;
        let each = match transform {
            Transform::Partition if w.build_unique => WAITED * machine.match_row,
            Transform::Partition => COUNTED * WAITED * machine.match_row,
            // Both ends of a run are looked for when keys may repeat on both sides.
            Transform::Sort if w.build_unique => WAITED_SORTED * machine.merge_row,
            Transform::Sort => 2.0 * WAITED_SORTED * machine.merge_row,
        };
        // Row numbers are read where a pair is found, out of order.
        let number = if moved { 0.0 } else { NUMBERED * 4.0 };
        let hashed = if key > 4.0 { WIDE } else { 1.0 };
        let further = (w.matches - w.probe_rows).max(0.0);
        let matching = (rows * each * hashed + PAIR * further * machine.match_pair) * 1e-9
            + READ * machine.stream(rows * (key + number))
            + machine.stream(8.0 * w.matches)
            + machine.launches(MATCHING);
        let alone = match transform {
            Transform::Partition if !w.build_unique => {
                let run = w.matches / w.probe_rows.max(1.0);
                ALONE * w.matches * (1.0 - RUN / run).max(0.0)
            }
            _ => 0.0,
        };
        Price::default()
            .with(
                "write",
                // What is written down is read before.
                machine.stream(write) * (1.0 + WRITTEN) + machine.launches(2.0),
            )
            .with(
                "transform",
                side(w.build_rows, &w.build_payload) + side(w.probe_rows, &w.probe_payload),
            )
            .with("match", matching)
            .with("gather", self.gather_pairs(transform, moved) + alone * 1e-9)
    }

    /// The columns of both sides by a list of pairs.
    fn gather_pairs(&self, transform: Transform, moved: bool) -> f64 {
        /// Launches and waits.
        const GATHERING: f64 = 1.5;
        /// An entry of a repeated key, which lies anywhere in its partition, or beside the others of its key: picoseconds.
        const SCATTERED: f64 = 2.2;
        const IN_ORDER: f64 = 0.5;
        let (w, machine) = (self.w, self.machine);
        let unclustered = |rows: f64, skew: f64| Accesses {
            machine,
            keys: rows.max(1.0),
            skew,
            clustered: moved,
        };
        let build = unclustered(w.build_rows, w.skew);
        let probe = unclustered(w.probe_rows, 0.0);
        let probing = w.matches.min(w.probe_rows);
        // All columns of a side go through the cache side by side.
        let side = |rows: f64, columns: &[u32], width: f64| match moved {
            true => rows * width,
            false => rows * widths(columns).sum::<f64>(),
        };
        let from_build = |width: f64| {
            if moved && !w.build_unique {
                // Entries are read again by the next probing row of the key, while they are in the cache.
                let each = match transform {
                    Transform::Partition => SCATTERED,
                    Transform::Sort => IN_ORDER,
                };
                return machine.stream(w.build_rows.min(w.matches) * width)
                    + w.matches * each * 1e-9;
            }
            build.gather(
                w.matches,
                width,
                side(w.build_rows, &w.build_payload, width),
            )
        };
        // Rows of a hot key follow each other in its partition as they did before.
        let apart = match moved {
            true => 1.0,
            false => 1.0 - self.neighbouring(),
        };
        let from_probe = |width: f64| {
            let bytes = side(w.probe_rows, &w.probe_payload, width);
            probe.gather(apart * probing, width, bytes)
                + machine.stream((1.0 - apart) * probing * SECTOR.min(4.0 * width))
                + machine.stream((w.matches - probing) * width)
        };
        machine.stream(8.0 * w.matches)
            + widths(&w.build_payload).map(from_build).sum::<f64>()
            + widths(&w.probe_payload).map(from_probe).sum::<f64>()
            + machine.launches(GATHERING)
    }

    /// The share of the probing rows that are of keys so frequent that rows of one are neighbours in memory.
    fn neighbouring(&self) -> f64 {
        /// A sector has values of so many rows.
        const NEIGHBOURS: f64 = 16.0;
        let first = zipf::hottest(self.w.build_rows, self.w.skew);
        let shares = (1..=16).map(|key| first * f64::from(key).powf(-self.w.skew));
        let shares = shares.filter(|share| *share * NEIGHBOURS >= 1.0);
        shares.sum::<f64>().min(1.0)
    }
}

/// Bits by which a sort must go: those of the range of the keys.
fn sort_bits(w: &JoinWorkload) -> f64 {
    let all = f64::from(w.key_bytes) * 8.0;
    match w.key_domain {
        Some(domain) => (domain.max(2) as f64).log2().ceil().min(all),
        None => all,
    }
}
