//! Which algorithm joins two relations: the decision tree of the paper, and prices where it leaves a choice.
//!
//! The algorithms (Wu et al., "Efficiently Processing Joins and Grouped Aggregations on GPUs", SIGMOD 2025):
//! an index over the build side that the probing pipeline looks into ([`JoinAlgorithm::Perfect`],
//! [`JoinAlgorithm::Nphj`]), or both sides partitioned ([`JoinAlgorithm::PhjUr`], [`JoinAlgorithm::PhjTr`]) or
//! sorted ([`JoinAlgorithm::SmjUr`], [`JoinAlgorithm::SmjTr`]) by key, joined piece by piece, and the payload
//! gathered: from where it was (UR), or from where it was moved to together with the key (TR).
//!
//! # What is priced
//! Entering the build rows, or writing them down, transforming and matching; reading the payload of the matches; and, common
//! to all, reading both inputs and writing the columns of the matches once. With `b` build rows, `p` probing rows, `m` matches, key width `k`,
//! payload columns of `w` bytes, and the constants of a [`Machine`]:
//!
//! | phase | perfect | nphj | phj, smj |
//! |---|---|---|---|
//! | build | `b` atomics into `domain/8` bytes, `b` random writes a column | `b` insertions into a table at most half full, `b` random writes of row numbers, entries written in sequence | |
//! | write | | | both sides' keys and payload, unless the probing rows lie in memory already |
//! | transform | | | radix partitions of both sides: `bits` by the build side's size (phj), the bits of the key (smj); payload: a row number (UR) or all columns (TR) |
//! | match | `p` reads of the bitmap | 1.3 `p` reads of slots | a row entered or looked up in shared memory (phj), or merged (smj); pairs written |
//! | gather | `m` random reads a build column | the same, and of entry numbers | UR: `m` random reads a column of both sides; TR: sectors in order |
//!
//! Random accesses cost what the machine's curves say of the bytes that they spread over; with a skewed key,
//! the hottest keys are in the L2 cache ([`super::zipf`]). Rows in the order of the key make accesses to a perfect index
//! sequential; a hash table knows no order but that of equal keys.

use std::fmt;
use std::str::FromStr;

use warpline_gpu::machine::Machine;

use super::decision::{Decision, LEAVE_TREE, Leaf, cheapest, decision, priced};
use super::price::{Accesses, Price};
use crate::config::JoinSetting;
use crate::error::PlannerError;

/// How two relations are joined by equality of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinAlgorithm {
    /// An array over all possible keys.
    Perfect,
    /// A hash table in device memory.
    Nphj,
    /// Partitioned hash join; payload gathered from where it was.
    PhjUr,
    /// Partitioned hash join; payload partitioned with the keys.
    PhjTr,
    /// Sort-merge join; payload gathered from where it was.
    SmjUr,
    /// Sort-merge join; payload sorted with the keys.
    SmjTr,
}

impl JoinAlgorithm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Perfect,
        Self::Nphj,
        Self::PhjUr,
        Self::PhjTr,
        Self::SmjUr,
        Self::SmjTr,
    ];

    /// An index that the probing pipeline looks into, row by row?
    pub fn is_index(self) -> bool {
        matches!(self, Self::Perfect | Self::Nphj)
    }

    /// The name in settings and plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perfect => "perfect",
            Self::Nphj => "nphj",
            Self::PhjUr => "phj_ur",
            Self::PhjTr => "phj_tr",
            Self::SmjUr => "smj_ur",
            Self::SmjTr => "smj_tr",
        }
    }
}

impl fmt::Display for JoinAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for JoinAlgorithm {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, PlannerError> {
        let name = text.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| PlannerError::Setting {
                setting: "warpline.join",
                value: text.to_string(),
                valid: "auto, perfect, nphj, phj_ur, phj_tr, smj_ur, smj_tr",
            })
    }
}

/// What is to be joined. Widths in bytes; rows and matches are estimates.
#[derive(Debug, Clone, Default)]
pub struct JoinWorkload {
    /// Rows of the build side, after its filters.
    pub build_rows: f64,
    /// Rows of the probing side, after its filters.
    pub probe_rows: f64,
    /// Bytes of the packed key.
    pub key_bytes: u32,
    /// Possible keys, when they are integers (or codes) of a known range.
    pub key_domain: Option<u64>,
    /// Width of each column wanted of the build side.
    pub build_payload: Vec<u32>,
    /// Width of each column kept of the probing side.
    pub probe_payload: Vec<u32>,
    /// Pairs to expect; of semi and anti joins, probing rows that go on.
    pub matches: f64,
    /// No two build rows have equal keys.
    pub build_unique: bool,
    /// Zipf exponent of the probing side's key; 0 for uniform keys.
    pub skew: f64,
    /// Only whether there is a match is wanted (semi, anti).
    pub existence: bool,
    /// The probing rows come out of a pipeline, so that looking into an index on the way saves writing them down.
    pub probe_streams_from_scan: bool,
    /// The build rows lie in memory already: they need not be written down to be transformed.
    pub build_in_place: bool,
    /// The probing rows come in the order of the key: neighbours look into neighbouring places.
    pub probe_clustered: bool,
    /// The build rows come in the order of the key: neighbours are entered at neighbouring places.
    pub build_clustered: bool,
}

/// An algorithm's price for `w`; `None` when it is impossible ([`obstacle`] says why).
pub fn price(w: &JoinWorkload, algorithm: JoinAlgorithm, machine: &Machine) -> Option<Price> {
    if obstacle(w, algorithm, machine).is_some() {
        return None;
    }
    let model = Model { w, machine };
    let price = match algorithm {
        JoinAlgorithm::Perfect => model.perfect(),
        JoinAlgorithm::Nphj => model.nphj(),
        JoinAlgorithm::PhjUr => model.transformed(Transform::Partition, false),
        JoinAlgorithm::PhjTr => model.transformed(Transform::Partition, true),
        JoinAlgorithm::SmjUr => model.transformed(Transform::Sort, false),
        JoinAlgorithm::SmjTr => model.transformed(Transform::Sort, true),
    };
    // Transformations read their sides themselves.
    let price = if algorithm.is_index() {
        price.with("read", model.read())
    } else {
        price
    };
    Some(price.with("output", model.output()))
}

/// Why `algorithm` cannot join `w` on this device.
pub fn obstacle(w: &JoinWorkload, algorithm: JoinAlgorithm, machine: &Machine) -> Option<String> {
    /// At most this share of device memory for an index, …
    const INDEX_SHARE: f64 = 1.0 / 8.0;
    /// … and for the sides of a join, twice (out of place).
    const SIDES_SHARE: f64 = 1.0 / 2.0;
    /// Widest packed key that is partitioned and sorted.
    const WIDEST_KEY: u32 = 16;
    let model = Model { w, machine };
    match algorithm {
        JoinAlgorithm::Nphj => None,
        JoinAlgorithm::Perfect => {
            let Some(domain) = w.key_domain else {
                return Some("the keys have no small known range".into());
            };
            let bytes = model.perfect_bytes(domain as f64);
            (bytes > machine.memory * INDEX_SHARE).then(|| {
                format!("{domain} possible keys take {bytes:.0} bytes, more than an eighth of device memory")
            })
        }
        _ => {
            if w.key_bytes == 0 || w.key_bytes > WIDEST_KEY {
                return Some(format!(
                    "keys of {} bytes; 1 to {WIDEST_KEY} can be partitioned and sorted",
                    w.key_bytes
                ));
            }
            let most = w.build_rows.max(w.probe_rows).max(w.matches);
            if most >= f64::from(u32::MAX) {
                return Some(format!(
                    "{most:.0} rows, more than row numbers of 32 bits reach"
                ));
            }
            let bytes = 2.0 * model.side_bytes();
            (bytes > machine.memory * SIDES_SHARE).then(|| {
                format!("both sides, in and out of place, take {bytes:.0} bytes, more than half of device memory")
            })
        }
    }
}

/// Bits by which both sides are partitioned so that the build rows of a partition fit a table in shared
/// memory, as [`warpline_gpu::primitives::partition_bits`] has it: one pass as long as the largest table allows it.
pub fn partition_bits(build_rows: f64, key: f64) -> f64 {
    const SMALLEST: f64 = 2048.0;
    // Of keys of 4 bytes; wider ones leave room for fewer rows.
    const LARGEST: f64 = 8192.0;
    const PASS: f64 = 8.0;
    let bits_for = |rows: f64| (build_rows / rows).max(1.0).log2().ceil();
    let passes = (bits_for((LARGEST * 4.0 / key).max(SMALLEST)) / PASS)
        .ceil()
        .max(1.0);
    bits_for(SMALLEST).min(passes * PASS).min(24.0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transform {
    Partition,
    Sort,
}

/// Bytes written down cost this many bytes copied: a tile's rows are counted before they have a place.
const WRITTEN: f64 = 1.3;

/// Launches and waits of a pipeline that looks into an index.
const LOOKING: f64 = 3.0;

/// Reads of one entry's columns come one after the other: in reads that do not wait for each other.
const COLUMNS: f64 = 1.25;

/// Bytes that memory moves at least.
const SECTOR: f64 = 32.0;

struct Model<'a> {
    w: &'a JoinWorkload,
    machine: &'a Machine,
}

fn widths(columns: &[u32]) -> impl Iterator<Item = f64> + '_ {
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

    fn build_bytes(&self) -> f64 {
        self.w.build_rows * widths(&self.w.build_payload).sum::<f64>()
    }

    fn side_bytes(&self) -> f64 {
        let probe = widths(&self.w.probe_payload).sum::<f64>();
        self.build_bytes()
            + self.w.probe_rows * probe
            + (self.w.build_rows + self.w.probe_rows) * (self.key() + 4.0)
    }

    /// The columns of both sides read.
    fn read(&self) -> f64 {
        let w = self.w;
        let probe = w.probe_rows * (self.key() + widths(&w.probe_payload).sum::<f64>());
        let build = w.build_rows * self.key() + self.build_bytes();
        self.machine.stream(build + probe)
    }

    /// The columns of the matches written.
    fn output(&self) -> f64 {
        let w = self.w;
        let row = widths(&w.build_payload).chain(widths(&w.probe_payload));
        self.machine.stream(w.matches * row.sum::<f64>())
    }

    fn perfect_bytes(&self, domain: f64) -> f64 {
        let payload = widths(&self.w.build_payload).sum::<f64>();
        if self.w.existence {
            domain / 8.0
        } else if self.w.build_unique {
            domain / 8.0 + domain * payload
        } else {
            domain * 4.0 + self.w.build_rows * (payload + 12.0)
        }
    }

    fn perfect(&self) -> Price {
        /// Bits are set, and tell whether they were before, in additions that tell nothing.
        const MARKED: f64 = 1.5;
        /// Columns are written beside each other.
        const ENTERED: f64 = 1.2;
        /// Launches and waits of building.
        const UNIQUE: f64 = 4.0;
        const OFFSETS: f64 = 8.0;
        let (w, machine) = (self.w, self.machine);
        let domain = w.key_domain.unwrap_or(1) as f64;
        let probes = self.probes();
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
                    probes.gather(w.probe_rows, 4.0, bitmap) + machine.launches(LOOKING),
                );
        }
        if w.build_unique {
            let enter = |width: f64| ENTERED * self.enter(width, domain * width);
            let build = set + widths(&w.build_payload).map(enter).sum::<f64>();
            let read = |width: f64| COLUMNS * probes.gather(w.matches, width, domain * width);
            return Price::default()
                .with("build", build + machine.launches(UNIQUE))
                .with(
                    "match",
                    probes.gather(w.probe_rows, 4.0, bitmap) + machine.launches(LOOKING),
                )
                .with("gather", widths(&w.build_payload).map(read).sum());
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
                probes.gather(w.probe_rows, 8.0, offsets) + self.pairs(),
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

    fn nphj(&self) -> Price {
        /// Hashing a row and going on from a slot that is taken: picoseconds.
        const ENTERED: f64 = 17.0;
        /// The slot's number and the entry are written while the slot is in the cache.
        const NUMBERED: f64 = 0.65;
        /// The number of an entry is read after its slot.
        const FOUND: f64 = 1.2;
        /// Launches and waits of building: of one pass over the rows, and of two with sums of counts between them.
        const UNIQUE: f64 = 4.5;
        const COUNTED: f64 = 11.0;
        /// Rows of a key wait for each other at its count.
        const REPEATED: f64 = 1.5;
        let (w, machine) = (self.w, self.machine);
        let word = (f64::from(w.key_bytes) / 8.0).ceil().max(1.0) * 8.0;
        let slots = 2f64.powf((2.0 * w.build_rows.max(512.0)).log2().ceil());
        // Slots, numbers of entries and entries go through the cache side by side.
        let table = if w.existence {
            slots * word
        } else {
            slots * (word + 4.0) + self.build_bytes() + w.build_rows * word
        };
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
        let look = probes.gather(looking, word, table);
        if w.existence {
            return Price::default()
                .with("build", insert + cleared + machine.launches(UNIQUE))
                .with("match", look + machine.launches(LOOKING));
        }
        let number = NUMBERED * machine.scatter(4.0, table) * w.build_rows * 1e-9;
        let entries = machine.stream(self.build_bytes() + w.build_rows * word);
        let found = FOUND * probes.gather(looking.min(w.matches), 4.0, table);
        if w.build_unique {
            let read = |width: f64| COLUMNS * probes.gather(w.matches, width, w.build_rows * width);
            return Price::default()
                .with(
                    "build",
                    insert + number + entries + cleared + machine.launches(UNIQUE),
                )
                .with("match", look + found + machine.launches(LOOKING))
                .with("gather", widths(&w.build_payload).map(read).sum());
        }
        // Entries are counted by slot, the counts summed up, and entries written to their places.
        let build = REPEATED * insert + number + machine.stream(3.0 * slots * 4.0) + 2.0 * entries;
        Price::default()
            .with("build", build + cleared + machine.launches(COUNTED))
            .with("match", look + found + self.pairs())
            .with("gather", self.gather_entries())
    }

    fn transformed(&self, transform: Transform, moved: bool) -> Price {
        /// Keys wait for the table of their partition, or for their neighbours: in rows that do not wait.
        const WAITED: f64 = 1.45;
        /// … and keys are read for it, in bytes copied.
        const READ: f64 = 1.3;
        /// Launches and waits of matching.
        const MATCHING: f64 = 5.0;
        let (w, machine) = (self.w, self.machine);
        let key = self.key();
        let bits = match transform {
            Transform::Partition => partition_bits(w.build_rows, key),
            Transform::Sort => sort_bits(w),
        };
        let payload = |columns: &[u32]| -> Vec<f64> {
            // Without columns a row number still says which row it is.
            if moved && !columns.is_empty() {
                widths(columns).collect()
            } else {
                vec![4.0]
            }
        };
        let side =
            |rows: f64, columns: &[u32]| machine.partition(rows, key, &payload(columns), bits);
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
            Transform::Partition => machine.match_row,
            // Both ends of a run are looked for when keys may repeat on both sides.
            Transform::Sort if w.build_unique => machine.merge_row,
            Transform::Sort => 2.0 * machine.merge_row,
        };
        let number = if moved { 0.0 } else { 4.0 };
        let further = (w.matches - w.probe_rows).max(0.0);
        let matching = (rows * each * WAITED + further * machine.match_pair) * 1e-9
            + READ * machine.stream(rows * (key + number))
            + machine.stream(8.0 * w.matches)
            + machine.launches(MATCHING);
        Price::default()
            .with(
                "write",
                machine.stream(write) * WRITTEN + machine.launches(2.0),
            )
            .with(
                "transform",
                side(w.build_rows, &w.build_payload) + side(w.probe_rows, &w.probe_payload),
            )
            .with("match", matching)
            .with("gather", self.gather_pairs(moved))
    }

    /// The columns of both sides by a list of pairs.
    fn gather_pairs(&self, moved: bool) -> f64 {
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
        machine.stream(8.0 * w.matches)
            + widths(&w.build_payload)
                .map(|width| build.gather(w.matches, width, w.build_rows * width))
                .sum::<f64>()
            + widths(&w.probe_payload)
                .map(|width| {
                    probe.gather(probing, width, w.probe_rows * width)
                        + machine.stream((w.matches - probing) * width)
                })
                .sum::<f64>()
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

/// The decision tree of §5.1.10 (and §3.1.3 for small build sides): what the paper would have tried.
///
/// ```text
/// index in the L2 cache?            yes → perfect, nphj
/// narrow, or low match ratio?       yes → skewed? yes → phj_tr
///                                                 no  → phj_ur
/// 8-byte keys or payload?           yes → phj_tr
/// skewed foreign keys?              yes → phj_tr, smj_ur
/// materialisation dominates?        yes → phj_tr, smj_tr
///                                   no  → phj_ur, phj_tr
/// ```
pub fn decision_tree(w: &JoinWorkload, machine: &Machine) -> Leaf<JoinAlgorithm> {
    use JoinAlgorithm::{Nphj, Perfect, PhjTr, PhjUr, SmjTr, SmjUr};
    let shape = Shape { w, machine };
    let mut path = Vec::new();
    let mut ask = |answer: bool, yes: &'static str, no: &'static str| {
        path.push(if answer { yes } else { no });
        answer
    };
    let algorithms = if ask(shape.cached(), "index in cache", "index beyond cache") {
        vec![Perfect, Nphj]
    } else if ask(shape.narrow(), "narrow", "wide")
        || ask(shape.few_matches(), "few matches", "many matches")
    {
        if ask(shape.skewed(), "skewed", "uniform") {
            vec![PhjTr]
        } else {
            vec![PhjUr]
        }
    } else if ask(shape.eight_bytes(), "8-byte", "4-byte") {
        vec![PhjTr]
    } else if ask(shape.skewed(), "skewed", "uniform") {
        vec![PhjTr, SmjUr]
    } else if ask(
        shape.gather_dominates(),
        "materialisation dominates",
        "transformation dominates",
    ) {
        vec![PhjTr, SmjTr]
    } else {
        vec![PhjUr, PhjTr]
    };
    Leaf { algorithms, path }
}

/// The questions of the tree.
struct Shape<'a> {
    w: &'a JoinWorkload,
    machine: &'a Machine,
}

impl Shape<'_> {
    /// Does the smaller index fit the L2 cache?
    fn cached(&self) -> bool {
        let w = self.w;
        let payload = widths(&w.build_payload).sum::<f64>();
        let hash = 4.0 * w.build_rows * 12.0 + w.build_rows * payload;
        let model = Model {
            w,
            machine: self.machine,
        };
        let perfect = w.key_domain.map(|d| model.perfect_bytes(d as f64));
        perfect.unwrap_or(hash).min(hash) <= self.machine.l2
    }

    /// At most one payload column a side: it rides with the key in place of a row number.
    fn narrow(&self) -> bool {
        self.w.build_payload.len() <= 1 && self.w.probe_payload.len() <= 1
    }

    /// Fewer matches than moving the payload along is worth.
    fn few_matches(&self) -> bool {
        let columns = self.w.build_payload.len().max(self.w.probe_payload.len());
        let together = vec![4.0; columns.max(1)];
        let turning = turning_ratio(&[&together], columns.max(1) as f64, self.machine);
        self.w.matches / self.w.probe_rows.max(1.0) < turning
    }

    fn skewed(&self) -> bool {
        self.w.skew >= 1.0
    }

    fn eight_bytes(&self) -> bool {
        let payload = [&self.w.build_payload, &self.w.probe_payload];
        self.w.key_bytes > 4 || payload.into_iter().flatten().any(|width| *width > 4)
    }

    /// Do unclustered gathers take longer than finding the matches?
    fn gather_dominates(&self) -> bool {
        price(self.w, JoinAlgorithm::PhjUr, self.machine).is_some_and(|price| {
            let common = price.part("read") + price.part("output");
            price.part("gather") * 2.0 > price.ms - common
        })
    }
}

/// The match ratio M/N above which moving payload along with 4-byte keys of N rows is cheaper than gathering
/// `columns` 4-byte columns of M of them from where they were (§4.1.4). `passes`: the widths of the columns of each
/// partitioning; UR needs one, with a row number.
///
/// The paper partitions each column with the keys by itself: UR costs `104 M / B` a column, TR `(36 N + 12 M) / B`
/// for each but the first, which rides in place of the row number. So the ratio is 0.39 for a column that does not
/// ride and 0.2 for two columns. Where one pass moves all columns, as here, two columns cost little more
/// than one: the A100's ratio would be 0.09.
pub fn turning_ratio(passes: &[&[f64]], columns: f64, machine: &Machine) -> f64 {
    let rows = (1u64 << 27) as f64;
    let bytes = rows * 4.0;
    let partition = |payload: &[f64]| machine.partition(rows, 4.0, payload, 16.0);
    let moved: f64 = passes.iter().map(|pass| partition(pass)).sum();
    let extra = moved - partition(&[4.0]);
    let unclustered = machine.gather(4.0, bytes) * rows * 1e-9;
    let clustered = machine.stream(bytes);
    extra / (columns * (unclustered - clustered)).max(f64::MIN_POSITIVE)
}

/// An index that is probed on the way is left only for a price this much lower: what it saves beyond the
/// model (fused stages, no intermediate result) is certain, the estimates are not.
const LEAVE_INDEX: f64 = 0.85;

/// Chooses the algorithm for `w`.
///
/// A forced algorithm is taken where it is possible. Otherwise the tree proposes and prices decide: the
/// cheapest of the tree's leaf stands unless another transformed join is 5 % cheaper; and the cheaper index
/// stands unless that join is 30 % cheaper than it. Indexes at the leaf stand in the same way.
pub fn choose_join(
    asked: JoinSetting,
    w: &JoinWorkload,
    machine: &Machine,
) -> Decision<JoinAlgorithm> {
    let priced = priced(JoinAlgorithm::ALL, |algorithm| price(w, algorithm, machine));
    let refusal = match asked {
        JoinSetting::Auto => None,
        JoinSetting::Force(algorithm) => match obstacle(w, algorithm, machine) {
            None => {
                let why = format!("warpline.join = {algorithm}");
                return decision(algorithm, &priced, &why, machine);
            }
            Some(obstacle) => Some(format!(
                "warpline.join = {algorithm} is impossible ({obstacle}); "
            )),
        },
    };
    let leaf = decision_tree(w, machine);
    let index = cheapest(&priced, &|a| a.is_index());
    let proposed = cheapest(&priced, &|a| !a.is_index() && leaf.algorithms.contains(&a));
    let transformed = match (proposed, cheapest(&priced, &|a| !a.is_index())) {
        (Some(tree), Some(best)) if best.1 >= tree.1 * LEAVE_TREE => Some(tree),
        (_, best) => best,
    };
    let algorithm = match (index, transformed) {
        (Some(index), Some(join)) if join.1 < index.1 * LEAVE_INDEX => join.0,
        (Some(index), _) => index.0,
        (None, Some(join)) => join.0,
        (None, None) => JoinAlgorithm::Nphj,
    };
    let why = format!("{}{leaf}", refusal.unwrap_or_default());
    decision(algorithm, &priced, &why, machine)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
