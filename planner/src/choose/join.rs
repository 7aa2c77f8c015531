//! Choice of the join algorithm: the decision tree of the paper, and prices where it leaves a choice.
//!
//! The algorithms (Wu et al., "Efficiently Processing Joins and Grouped Aggregations on GPUs", SIGMOD 2025):
//! an index over the build side that the probing pipeline looks into ([`JoinAlgorithm::Perfect`],
//! [`JoinAlgorithm::Nphj`]), or both sides partitioned ([`JoinAlgorithm::PhjUr`], [`JoinAlgorithm::PhjTr`]) or
//! sorted ([`JoinAlgorithm::SmjUr`], [`JoinAlgorithm::SmjTr`]) by key, joined piece by piece, and the payload
//! gathered: from where it was (UR), or from where it was moved to together with the key (TR).
//!
//! # What is priced
//! Entering the build rows, or writing them down, transforming and matching; reading the payload of the matches; reading
//! both inputs (transformations read them themselves); and, common to all, writing the columns of the matches once. With `b` build rows, `p` probing rows, `m` matches, key width `k`,
//! payload columns of `w` bytes, and the constants of a [`Machine`]:
//!
//! | phase | perfect | nphj | phj, smj |
//! |---|---|---|---|
//! | build | `b` atomics into `domain/8` bytes, `b` random writes a column | `b` insertions into a table at most half full, `b` random writes of row numbers, entries written in sequence: slots, numbers and entries share the cache | |
//! | write | | | both sides' keys and payload, unless the probing rows lie in memory already |
//! | transform | | | radix partitions of both sides: `bits` by the build side's size (phj), the bits of the key (smj); payload: a row number (UR) or all columns (TR) |
//! | match | `p` reads of the bitmap | `p` reads of slots, and of numbers for those found | a row entered or looked up in shared memory (phj), or merged (smj); pairs written |
//! | gather | `m` random reads a build column; of keys that repeat one a run of entries | the same | UR: `m` random reads a column of both sides; TR: sectors in order |
//!
//! | link | state beyond the room: every access by itself | the same | partitions written to host memory and read back (phj), or every pass over it (smj) |
//!
//! Random accesses cost what the machine's curves say of the bytes that they spread over; with a skewed key,
//! the `k` hottest keys cost what `k` sectors do ([`super::zipf`]). Rows in the order of the key make accesses to a perfect index
//! sequential; a hash table knows no order but that of equal keys.

pub(crate) mod band;
mod model;

use warpline_gpu::algorithm::JoinAlgorithm;
use warpline_gpu::machine::Machine;

use self::model::{Model, Transform, widths};
use super::decision::{Decision, LEAVE_TREE, Leaf, cheapest, decision, priced};
use super::price::Price;
use crate::config::JoinSetting;

/// A join to choose an algorithm for. Widths in bytes; rows and matches are estimates.
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
    /// Width of each column that consumers read of the build side.
    pub build_payload: Vec<u32>,
    /// Width of each column that consumers read of the probe side.
    pub probe_payload: Vec<u32>,
    /// Expected pairs; of semi and anti joins, probe rows that pass.
    pub matches: f64,
    /// The build keys are unique.
    pub build_unique: bool,
    /// Zipf exponent of the probing side's key; 0 for uniform keys.
    pub skew: f64,
    /// Only the existence of a match matters (semi, anti).
    pub existence: bool,
    /// The probe rows come out of a pipeline, so that probing an index there saves materialising them.
    pub probe_streams_from_scan: bool,
    /// The build rows are materialised already.
    pub build_in_place: bool,
    /// The probe rows arrive in key order: neighbours access neighbouring entries.
    pub probe_clustered: bool,
    /// The build rows arrive in key order: neighbours are inserted at neighbouring places.
    pub build_clustered: bool,
    /// Device memory for the state of the join, in bytes. The rest is in host memory; partitioned sides are then
    /// joined pair by pair. `None`: all of the device's, without a limit.
    pub room: Option<f64>,
}

/// Of two kinds of work that overlap, the share of the shorter one that is not hidden by the longer.
const SHOWN: f64 = 0.4;
/// … where a row first searches for its slot.
const SHOWN_HASHED: f64 = 0.8;

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
    // Transformations read their sides themselves; a pipeline that looks into an index reads and writes while it waits for that.
    let price = match algorithm.is_index() {
        true => price.with("read", model.read()),
        false => price,
    };
    let price = price.with("output", model.output());
    let shown = match algorithm {
        JoinAlgorithm::Perfect => SHOWN,
        _ => SHOWN_HASHED,
    };
    let price = match algorithm.is_index() && (w.build_unique || w.existence) {
        true => price.side_by_side(&["match", "gather"], &["read", "output"], shown),
        false => price,
    };
    Some(match w.room {
        Some(room) if model.state_bytes(algorithm) > room => {
            price.with("link", model.link(algorithm, room))
        }
        _ => price,
    })
}

/// Bytes of the state of an algorithm for `w` until all rows are joined: the index, or both sides.
pub fn state_bytes(w: &JoinWorkload, algorithm: JoinAlgorithm, machine: &Machine) -> f64 {
    Model { w, machine }.state_bytes(algorithm)
}

/// Why `algorithm` cannot join `w` on this device.
pub fn obstacle(w: &JoinWorkload, algorithm: JoinAlgorithm, machine: &Machine) -> Option<String> {
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
            // What is smaller than the hash index would be is not refused for its size.
            let most = machine.budget().perfect_index() as f64;
            (bytes > most && bytes > model.state_bytes(JoinAlgorithm::Nphj)).then(|| {
                format!("{domain} possible keys take {bytes:.0} bytes, more than a quarter of device memory")
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
            let too_large = bytes > machine.budget().rows_out_of_place() as f64 && w.room.is_none();
            too_large.then(|| {
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

/// A materialised join must be cheaper by this factor than an index that is probed in the pipeline: fusion saves what
/// the model does not see, while estimates are uncertain.
const LEAVE_INDEX: f64 = 0.85;

/// The same where keys repeat in the index, whose pairs are an intermediate result as well.
const LEAVE_PAIRS: f64 = 0.95;

/// Chooses the algorithm for `w`.
///
/// A forced algorithm is taken where it is possible. Otherwise the tree proposes and prices decide: the
/// cheapest of the tree's leaf stands unless another transformed join is 5 % cheaper; and the cheaper index
/// stands unless that join is 15 % (where keys repeat, 5 %) cheaper than it. Indexes at the leaf stand in the same way.
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
    let leave = match w.build_unique {
        true => LEAVE_INDEX,
        false => LEAVE_PAIRS,
    };
    let algorithm = match (index, transformed) {
        (Some(index), Some(join)) if join.1 < index.1 * leave => join.0,
        (Some(index), _) => index.0,
        (None, Some(join)) => join.0,
        (None, None) => JoinAlgorithm::Nphj,
    };
    let state = state_bytes(w, algorithm, machine);
    let spilled = match w.room {
        Some(room) if state > room => {
            let pairs = match algorithm {
                JoinAlgorithm::PhjUr | JoinAlgorithm::PhjTr => "in pairs of partitions (triton): ",
                _ => "",
            };
            format!("{pairs}{state:.0} bytes of state where there is room for {room:.0}; ")
        }
        _ => String::new(),
    };
    let why = format!("{}{spilled}{leaf}", refusal.unwrap_or_default());
    decision(algorithm, &priced, &why, machine)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
