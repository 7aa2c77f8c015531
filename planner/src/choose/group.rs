//! Which algorithm groups and aggregates: the decision tree of the paper, and prices where it leaves a choice.
//!
//! The algorithms: states of a handful of groups in each thread's registers ([`GroupAlgorithm::Private`]), a
//! table of states a block in shared memory ([`GroupAlgorithm::Shared`]), one in device memory
//! ([`GroupAlgorithm::Global`]; all three Karnagel et al., ADMS/DaMoN 2015), a hash table that gives each group
//! a dense number, then dense states ([`GroupAlgorithm::Hgb`]), rows sorted (`Sgb…`) or partitioned (`Pgb…`) by key
//! and grouped piece by piece (Wu et al., "Efficiently Processing Joins and Grouped Aggregations on GPUs", SIGMOD
//! 2025). UR gathers the payload from where it was, TR moves it along, DE sorts dense numbers in place of keys.
//!
//! # What is priced
//! With `N` rows, `g` groups, `u` states updated a row, key width `k`, payload columns of `w` bytes, table bytes `T`
//! (groups times the bytes of their states), and the constants of a [`Machine`]; reading the rows once is common
//! to all and left out:
//!
//! | | |
//! |---|---|
//! | private | `N g u` register updates |
//! | shared | `N u` shared-memory atomics, and every block's table added to the global one |
//! | global | `N` look-ups in a hash table (none for dense keys), `N u` atomics over `T` |
//! | hgb | rows written; `N` look-ups in a hash table, numbers written and read; shared or global atomics |
//! | sgb | rows written; sorted by the bits of the key (DE: looked up, then by the bits of `g`); runs reduced; UR: `N` random reads a column, as unclustered as there are groups for a warp: `min(24, g) / 24` |
//! | pgb | rows written; partitioned; shared-memory atomics a partition; UR: `N` random reads a column |
//!
//! Atomics that meet at few places wait for each other: the curves' small ends are contention, and a skewed key
//! counts as [`super::zipf::equal_keys`] groups there.

use std::fmt;
use std::str::FromStr;

use warpline_gpu::machine::{Curve, Machine};

use super::decision::{Decision, LEAVE_TREE, Leaf, Priced, cheapest, decision, priced};
use super::price::{Accesses, Price};
use super::zipf;
use crate::config::GroupSetting;
use crate::error::PlannerError;

/// How rows are grouped and aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupAlgorithm {
    /// States in each thread's registers.
    Private,
    /// States in each block's shared memory.
    Shared,
    /// States in device memory.
    Global,
    /// Dense group numbers by a hash table, then dense states.
    Hgb,
    /// Sorted keys; payload gathered from where it was.
    SgbUr,
    /// Sorted keys and payload.
    SgbTr,
    /// Keys replaced by dense numbers, then sorted with the payload.
    SgbDeTr,
    /// Partitioned keys; payload gathered from where it was.
    PgbUr,
    /// Partitioned keys and payload.
    PgbTr,
}

impl GroupAlgorithm {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Private,
        Self::Shared,
        Self::Global,
        Self::Hgb,
        Self::SgbUr,
        Self::SgbTr,
        Self::SgbDeTr,
        Self::PgbUr,
        Self::PgbTr,
    ];

    /// Aggregated by the pipeline that yields the rows, without writing them down?
    pub fn is_fused(self) -> bool {
        matches!(self, Self::Private | Self::Shared | Self::Global)
    }

    /// The name in settings and plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Global => "global",
            Self::Hgb => "hgb",
            Self::SgbUr => "sgb_ur",
            Self::SgbTr => "sgb_tr",
            Self::SgbDeTr => "sgb_de_tr",
            Self::PgbUr => "pgb_ur",
            Self::PgbTr => "pgb_tr",
        }
    }
}

impl fmt::Display for GroupAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for GroupAlgorithm {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, PlannerError> {
        let name = text.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| PlannerError::Setting {
                setting: "warpline.group_by",
                value: text.to_string(),
                valid: "auto, private, shared, global, hgb, sgb_ur, sgb_tr, sgb_de_tr, pgb_ur, pgb_tr",
            })
    }
}

/// What is to be grouped. Widths in bytes; rows and groups are estimates.
#[derive(Debug, Clone, Default)]
pub struct GroupWorkload {
    /// Rows that reach the aggregation.
    pub rows: f64,
    /// Groups.
    pub groups: f64,
    /// Bytes of the packed key.
    pub key_bytes: u32,
    /// 64-bit words of the packed key in a hash table.
    pub key_words: u32,
    /// Product of the key domains when all are small integer ranges or codes: groups have numbers without a table.
    pub dense_domain: Option<u64>,
    /// Bytes of one group's states.
    pub state_bytes: u32,
    /// States that a row updates; 0 for one a payload column.
    pub updates: u32,
    /// Width of each aggregated column.
    pub payload: Vec<u32>,
    /// Zipf exponent of the key; 0 for uniform keys.
    pub skew: f64,
    /// The groups are wanted in the order of the keys.
    pub must_sort: bool,
    /// An aggregate takes each value of its argument once a group.
    pub distinct: bool,
    /// Rows come in the order of the key: runs are added up before they reach a table.
    pub clustered: bool,
}

/// An algorithm's price for `w`; `None` when it is impossible ([`obstacle`] says why).
pub fn price(w: &GroupWorkload, algorithm: GroupAlgorithm, machine: &Machine) -> Option<Price> {
    if obstacle(w, algorithm, machine).is_some() {
        return None;
    }
    let model = Model { w, machine };
    let price = match algorithm {
        GroupAlgorithm::Private => model.private(),
        GroupAlgorithm::Shared => model.shared(),
        GroupAlgorithm::Global => model.global(),
        GroupAlgorithm::Hgb => model.numbered(),
        GroupAlgorithm::SgbUr => model.sorted(false),
        GroupAlgorithm::SgbTr => model.sorted(true),
        GroupAlgorithm::SgbDeTr => model.encoded(),
        GroupAlgorithm::PgbUr => model.partitioned(false),
        GroupAlgorithm::PgbTr => model.partitioned(true),
    };
    use GroupAlgorithm::{SgbTr, SgbUr};
    Some(if w.must_sort && !matches!(algorithm, SgbUr | SgbTr) {
        price.with("order", model.ordering())
    } else {
        price
    })
}

/// Most groups whose states a thread keeps in registers when that is asked for.
const FORCED_PRIVATE_GROUPS: u64 = 16;
/// … and 32-bit registers for them.
const FORCED_PRIVATE_REGISTERS: u64 = 160;

/// Why `algorithm` cannot group `w` on this device.
pub fn obstacle(w: &GroupWorkload, algorithm: GroupAlgorithm, machine: &Machine) -> Option<String> {
    /// Widest packed key that is partitioned and sorted.
    const WIDEST_KEY: u32 = 16;
    let state = f64::from(w.state_bytes);
    let domain = || {
        w.dense_domain
            .ok_or("keys without a small known domain".to_string())
    };
    match algorithm {
        GroupAlgorithm::Global | GroupAlgorithm::Hgb => None,
        GroupAlgorithm::Private => domain().map_or_else(Some, |domain| {
            let registers = domain.saturating_mul(u64::from(w.state_bytes).div_ceil(4));
            if domain > FORCED_PRIVATE_GROUPS {
                Some(format!(
                    "{domain} possible groups, more than {FORCED_PRIVATE_GROUPS}"
                ))
            } else {
                (registers > FORCED_PRIVATE_REGISTERS).then(|| {
                    format!("{registers} registers a thread, more than {FORCED_PRIVATE_REGISTERS}")
                })
            }
        }),
        GroupAlgorithm::Shared => domain().map_or_else(Some, |domain| {
            let bytes = domain as f64 * state;
            (bytes > machine.shared).then(|| {
                format!(
                    "{bytes:.0} bytes of states, more than the {:.0} bytes of shared memory of a block",
                    machine.shared
                )
            })
        }),
        _ => {
            if w.key_bytes == 0 || w.key_bytes > WIDEST_KEY {
                return Some(format!(
                    "keys of {} bytes; 1 to {WIDEST_KEY} can be partitioned and sorted",
                    w.key_bytes
                ));
            }
            if w.rows >= f64::from(u32::MAX) {
                return Some(format!(
                    "{:.0} rows, more than row numbers of 32 bits reach",
                    w.rows
                ));
            }
            let model = Model { w, machine };
            let bytes = 2.0 * w.rows * (model.key() + 4.0 + widths(&w.payload).sum::<f64>());
            (bytes > machine.memory / 2.0).then(|| {
                format!("the rows, in and out of place, take {bytes:.0} bytes, more than half of device memory")
            })
        }
    }
}

/// Bits by which rows are partitioned so that the groups of a partition fit a table in shared memory.
pub fn partition_bits(groups: f64) -> f64 {
    /// Groups of a partition to aim at.
    const GROUPS: f64 = 1024.0;
    (groups / GROUPS).max(2.0).log2().ceil().clamp(8.0, 16.0)
}

struct Model<'a> {
    w: &'a GroupWorkload,
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

    fn groups(&self) -> f64 {
        self.w.groups.min(self.w.rows).max(1.0)
    }

    fn updates(&self) -> f64 {
        match self.w.updates {
            0 => self.w.payload.len().max(1) as f64,
            updates => f64::from(updates),
        }
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

    /// Atomics on states of 4 bytes are the hardware's own, on wider ones they are loops.
    fn shared_curve(&self) -> &Curve {
        if f64::from(self.w.state_bytes) <= 4.0 * self.updates() {
            &self.machine.shared_atomics
        } else {
            &self.machine.shared_wide_atomics
        }
    }

    /// Bytes of 4-byte places on which uniform updates would meet as often.
    fn contended(&self) -> f64 {
        4.0 * zipf::equal_keys(self.groups(), self.w.skew)
    }

    /// Atomic updates of states in device memory.
    fn global_updates(&self, table: f64) -> f64 {
        let atomics = &self.machine.atomics;
        // The few hot places are slow for their contention, the many for the memory they spread over.
        let each = atomics.at(table).max(atomics.at(self.contended()));
        self.reaching() * self.updates() * each * 1e-9
    }

    /// Atomic updates of states in shared memory, and every block's table added to the global one.
    fn shared_updates(&self, groups: f64) -> f64 {
        let machine = self.machine;
        let atomics = self.shared_curve();
        let table = groups * f64::from(self.w.state_bytes);
        let each = atomics.at(table).max(atomics.at(self.contended()));
        let blocks = 2.0 * machine.multiprocessors;
        let flushed = blocks * groups * self.updates() * machine.atomics.at(table) * 1e-9;
        self.reaching() * self.updates() * each * 1e-9 + flushed
    }

    /// Look-ups of all rows' keys in a hash table of all groups.
    fn look_ups(&self, rows: f64) -> f64 {
        let groups = self.groups();
        let word = f64::from(self.w.key_words.max(1)) * 8.0;
        let slots = 2f64.powf((2.0 * groups.max(512.0)).log2().ceil());
        let accesses = Accesses {
            machine: self.machine,
            keys: groups,
            skew: self.w.skew,
            clustered: false,
        };
        accesses.gather(rows, word, slots * word)
            + groups * self.machine.inserts.at(slots * word) * 1e-9
            + self.machine.stream(slots * word)
    }

    fn private(&self) -> Price {
        let groups = self.w.dense_domain.unwrap_or(1) as f64;
        let updates = self.w.rows * groups * self.updates();
        Price::default().with(
            "aggregate",
            updates * self.machine.register_update * 1e-9 + self.machine.launches(2.0),
        )
    }

    fn shared(&self) -> Price {
        let groups = self.w.dense_domain.unwrap_or(1) as f64;
        Price::default().with(
            "aggregate",
            self.shared_updates(groups) + self.machine.launches(2.0),
        )
    }

    fn global(&self) -> Price {
        let (w, machine) = (self.w, self.machine);
        let state = f64::from(w.state_bytes);
        let find = match w.dense_domain {
            Some(_) => 0.0,
            None => self.look_ups(self.reaching()),
        };
        let places = match w.dense_domain {
            Some(domain) => domain as f64,
            None => 2.0 * self.groups(),
        };
        // Cleared, and read back for the groups in it.
        let table = machine.stream(2.0 * places * state);
        Price::default()
            .with("find", find + machine.launches(2.0))
            .with("aggregate", self.global_updates(places * state) + table)
    }

    fn numbered(&self) -> Price {
        let (w, machine) = (self.w, self.machine);
        let groups = self.groups();
        let table = groups * f64::from(w.state_bytes);
        let find = self.look_ups(w.rows) + machine.stream(w.rows * (self.key() + 4.0));
        let read = machine.stream(w.rows * (4.0 + widths(&w.payload).sum::<f64>()));
        let aggregate = if table <= machine.shared {
            self.shared_updates(groups)
        } else {
            self.global_updates(table)
        };
        Price::default()
            .with("write", self.written())
            .with("find", find + machine.launches(3.0))
            .with("aggregate", read + aggregate + machine.launches(2.0))
    }

    /// Keys and payload written down.
    fn written(&self) -> f64 {
        let row = self.key() + widths(&self.w.payload).sum::<f64>();
        self.machine.stream(self.w.rows * row) + self.machine.launches(2.0)
    }

    fn moved(&self) -> Vec<f64> {
        widths(&self.w.payload).collect()
    }

    /// Unclustered reads of all payload columns; `share`: how unclustered.
    fn gathered(&self, share: f64) -> f64 {
        let rows = self.w.rows;
        widths(&self.w.payload)
            .map(|w| {
                rows * self.machine.gather(w, rows * w) * 1e-9 * share
                    + self.machine.stream(rows * w) * (1.0 - share)
            })
            .sum()
    }

    /// How much of a warp's reads by sorted keys are of different groups (§4.1.3).
    fn unclustered(&self) -> f64 {
        const CAP: f64 = 24.0;
        zipf::equal_keys(self.groups(), self.w.skew).min(CAP) / CAP
    }

    /// Runs of equal keys reduced, a run never longer than a block's share.
    fn runs(&self, key: f64) -> f64 {
        let row = key + widths(&self.w.payload).sum::<f64>();
        self.w.rows * (self.machine.run_row * self.updates()) * 1e-9
            + self.machine.stream(self.w.rows * row)
            + self.machine.launches(4.0)
    }

    fn sort_bits(&self) -> f64 {
        let all = f64::from(self.w.key_bytes) * 8.0;
        match self.w.dense_domain {
            Some(domain) => (domain.max(2) as f64).log2().ceil().min(all),
            None => all,
        }
    }

    fn sorted(&self, moved: bool) -> Price {
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

    fn encoded(&self) -> Price {
        let rows = self.w.rows;
        let bits = number_bits(self.groups());
        Price::default()
            .with("write", self.written())
            .with(
                "encode",
                encoding(rows, self.groups(), self.key(), self.machine),
            )
            .with(
                "transform",
                self.machine.partition(rows, 4.0, &self.moved(), bits),
            )
            .with("aggregate", self.runs(4.0))
    }

    fn partitioned(&self, moved: bool) -> Price {
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
        let in_partition = (self.groups() / 2f64.powf(bits)).max(1.0) * f64::from(w.state_bytes);
        let shared = self.shared_curve().at(in_partition);
        let each = machine.group_row + shared * self.updates();
        // One block takes a partition: the hottest key's rows wait for one another.
        let hottest = w.rows * zipf::hottest(self.groups(), w.skew);
        let rows = w.rows.max(hottest * machine.multiprocessors);
        let row = key + widths(&w.payload).sum::<f64>();
        Price::default()
            .with("write", self.written())
            .with("transform", transform)
            .with("gather", gather)
            .with(
                "aggregate",
                rows * each * 1e-9
                    + machine.stream(w.rows * row + self.groups() * f64::from(w.state_bytes))
                    + machine.launches(3.0),
            )
    }

    /// Groups put into the order of their keys.
    fn ordering(&self) -> f64 {
        let bits = f64::from(self.w.key_bytes) * 8.0;
        let row = [f64::from(self.w.state_bytes)];
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

/// The decision tree of Figure 21, behind the placement of Karnagel et al. for groups that have numbers already.
///
/// ```text
/// dense keys: a handful?                              yes → private
/// must sort, or order by the same keys?               yes → Table 2 met? yes → sgb_de_tr
///                                                                        no  → sgb_tr
/// can hgb aggregate in shared memory?                 yes → hgb (dense keys: shared)
/// high data skew?                                     yes → must sort: from there on
///                                                     no  → pgb_tr
/// ```
pub fn decision_tree(w: &GroupWorkload, machine: &Machine) -> Leaf<GroupAlgorithm> {
    use GroupAlgorithm::{Hgb, PgbTr, Private, SgbDeTr, SgbTr, Shared};
    /// Groups whose states a thread keeps in registers.
    const HANDFUL: u64 = 8;
    let model = Model { w, machine };
    let mut path = Vec::new();
    let mut ask = |answer: bool, yes: &'static str, no: &'static str| {
        path.push(if answer { yes } else { no });
        answer
    };
    let handful = w.dense_domain.is_some_and(|domain| domain <= HANDFUL)
        && obstacle(w, Private, machine).is_none();
    if ask(
        handful,
        "a handful of groups",
        "more than a handful of groups",
    ) {
        let algorithms = vec![Private];
        return Leaf { algorithms, path };
    }
    let must_sort = ask(w.must_sort, "order by the keys", "any order");
    if !must_sort {
        let table = model.groups() * f64::from(w.state_bytes);
        if ask(
            table <= machine.shared,
            "states fit shared memory",
            "states beyond shared memory",
        ) {
            let dense = obstacle(w, Shared, machine).is_none();
            let algorithms = if dense { vec![Shared, Hgb] } else { vec![Hgb] };
            return Leaf { algorithms, path };
        }
        if !ask(w.skew >= 1.0, "skewed", "uniform") {
            let algorithms = vec![PgbTr];
            return Leaf { algorithms, path };
        }
    }
    let columns = model.moved();
    let saves = encoding_saves(
        w.rows,
        model.groups(),
        model.key(),
        model.sort_bits(),
        &[&columns],
        machine,
    );
    let algorithms = if ask(saves > 0.0, "numbers sort faster", "keys sort as fast") {
        vec![SgbDeTr]
    } else {
        vec![SgbTr]
    };
    Leaf { algorithms, path }
}

/// Aggregation by the pipeline itself is left only for a price this much lower: what it saves is certain, the
/// estimates are not.
const LEAVE_FUSED: f64 = 0.7;

/// Chooses the algorithm for `w`.
///
/// A forced algorithm is taken where it is possible. Otherwise the tree proposes and prices decide: the
/// cheapest of the tree's leaf stands unless another algorithm is 5 % cheaper; and the cheapest fused
/// aggregation (registers, shared or device memory) stands unless that algorithm is 30 % cheaper than it.
pub fn choose_group(
    asked: GroupSetting,
    w: &GroupWorkload,
    machine: &Machine,
) -> Decision<GroupAlgorithm> {
    let priced = priced(GroupAlgorithm::ALL, |algorithm| {
        price(w, algorithm, machine)
    });
    let refusal = match asked {
        GroupSetting::Auto => None,
        GroupSetting::Force(algorithm) => match obstacle(w, algorithm, machine) {
            None => {
                let why = format!("warpline.group_by = {algorithm}");
                return decision(algorithm, &priced, &why, machine);
            }
            Some(obstacle) => Some(format!(
                "warpline.group_by = {algorithm} is impossible ({obstacle}); "
            )),
        },
    };
    let fused = cheapest(&priced, &|a| a.is_fused()).map(|(algorithm, _)| algorithm);
    let (algorithm, why) = by_tree_and_price(fused, w, &priced, machine);
    let why = format!("{}{why}", refusal.unwrap_or_default());
    decision(algorithm, &priced, &why, machine)
}

/// The same where the pipeline's own aggregation, if it is to be, is decided already: `fused`, or a clearly cheaper one that
/// writes the rows down.
pub fn choose_beside(
    fused: GroupAlgorithm,
    w: &GroupWorkload,
    machine: &Machine,
) -> Decision<GroupAlgorithm> {
    let beside = GroupAlgorithm::ALL
        .into_iter()
        .filter(|algorithm| !algorithm.is_fused() || *algorithm == fused);
    let priced = priced(beside, |algorithm| price(w, algorithm, machine));
    let (algorithm, why) = by_tree_and_price(Some(fused), w, &priced, machine);
    decision(algorithm, &priced, &why, machine)
}

/// What the tree and prices come to, and the path.
fn by_tree_and_price(
    fused: Option<GroupAlgorithm>,
    w: &GroupWorkload,
    priced: &Priced<GroupAlgorithm>,
    machine: &Machine,
) -> (GroupAlgorithm, String) {
    let leaf = decision_tree(w, machine);
    let best = cheapest(priced, &|_| true);
    let at_leaf = cheapest(priced, &|a| leaf.algorithms.contains(&a));
    let proposed = match (at_leaf, best) {
        (Some(tree), Some(best)) if best.1 >= tree.1 * LEAVE_TREE => Some(tree),
        (_, best) => best,
    };
    let fused = fused.and_then(|fused| cheapest(priced, &|a| a == fused));
    let algorithm = match (fused, proposed) {
        (Some(fused), Some(other)) if other.1 < fused.1 * LEAVE_FUSED => other.0,
        (Some(fused), _) => fused.0,
        (None, Some(other)) => other.0,
        (None, None) => GroupAlgorithm::Global,
    };
    (algorithm, leaf.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
