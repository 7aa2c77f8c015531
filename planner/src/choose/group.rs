//! Choice of the group-by algorithm: the decision tree of the paper, and prices where it leaves a choice.
//!
//! The algorithms: states of a handful of groups in each thread's registers ([`GroupAlgorithm::Private`]), a
//! table of states a block in shared memory ([`GroupAlgorithm::Shared`]), one in device memory
//! ([`GroupAlgorithm::Global`]; all three Karnagel et al., ADMS/DaMoN 2015), groups of rows in order that are written down tile by
//! tile ([`GroupAlgorithm::Runs`]), a hash table that gives each group
//! a dense number, then dense states ([`GroupAlgorithm::Hgb`]), rows sorted (`Sgb…`) or partitioned (`Pgb…`) by key
//! and grouped piece by piece (Wu et al., "Efficiently Processing Joins and Grouped Aggregations on GPUs", SIGMOD
//! 2025). UR gathers the payload from where it was, TR moves it along, DE sorts dense numbers in place of keys.
//!
//! # What is priced
//! With `N` rows, `g` groups, `a` atomic additions and `t` tests of states a row, key width `k`, payload columns of `w`
//! bytes, table bytes `T` (groups times the bytes of their states), and the constants of a [`Machine`]:
//!
//! | | |
//! |---|---|
//! | private | rows read, or every group's registers updated by each row; of more than 24 registers, one group's in shared memory |
//! | shared | rows read, or `N a` shared-memory additions and `N t` tests; and every block's table added to the global one |
//! | global | rows read; a look-up in a hash table (none for dense keys), `a` atomics and `t` reads over `T`, a write as long as extremes change; with a table in front: as shared, a slot looked for, and this for the rows that find none |
//! | runs | rows read, `N a` shared-memory additions of runs; states cleared, groups written and read back |
//! | hgb | three look-ups a row, an entry a group, numbers written and read; shared or global updates |
//! | sgb | sorted by the bits of the key (DE: looked up, then by the bits of `g`); runs reduced; UR: `N` random reads a column, as unclustered as there are groups for a warp: `min(24, g) / 24` |
//! | pgb | partitioned; shared-memory updates a partition, by as many threads as there are partitions for, whose hot groups make all of a block wait; UR: `N` random reads a column beside that |
//!
//! Atomics to device memory that meet at few places wait for each other: the curves' small ends are contention, and a skewed
//! key counts as [`super::zipf::equal_keys`] groups there. In shared memory counts of 32 bits do not wait, but additions to words
//! of 64 bits, loops of compare-and-swap, take turns: as long as the rows of the hottest group that are in a warp, or in a
//! partition's block. States of a group lie in one sector: the first access pays for memory, the others for the cache. Tables
//! with hot or few sparse keys have one in shared memory in front of them; of a full one, buckets that more keys fall into
//! than there are slots send the rest on.

mod model;

use warpline_gpu::algorithm::GroupAlgorithm;
use warpline_gpu::machine::Machine;

use super::decision::{Decision, LEAVE_TREE, Leaf, Priced, cheapest, decision, priced};
use super::price::Price;
use crate::config::GroupSetting;

pub use self::model::encoding_saves;
use self::model::{Model, widths};

/// A group-by to choose an algorithm for. Widths in bytes; rows and groups are estimates.
#[derive(Debug, Clone, Default)]
pub struct GroupWorkload {
    /// Rows that reach the aggregation, by estimate.
    pub rows: f64,
    /// Upper bound of those rows; the estimate where it is less.
    pub most_rows: f64,
    /// Groups.
    pub groups: f64,
    /// Bytes of the packed key.
    pub key_bytes: u32,
    /// 64-bit words of the packed key in a hash table.
    pub key_words: u32,
    /// Product of the key domains when all are small integer ranges or codes: groups are numbered without a table.
    pub dense_domain: Option<u64>,
    /// Bytes of one group's states.
    pub state_bytes: u32,
    /// Atomic additions a row (a sum of 128 bits counts as two); with no `tests` either, one a payload column.
    pub adds: u32,
    /// 64-bit words that a row adds to (a sum of 128 bits has two, a count of 32 bits none); with neither `adds` nor
    /// `tests`, one a payload column.
    pub words: u32,
    /// States that a row reads and seldom writes: extremes, and whether there was a row.
    pub tests: u32,
    /// Of those, states that only tell whether a group has rows.
    pub telling: u32,
    /// In device memory, a hash table is used although the keys have a domain.
    pub hashed: bool,
    /// Some keys are so frequent that a table in shared memory precedes the one in device memory.
    pub hot: bool,
    /// Bytes that are read beside keys and aggregated columns for each row that reaches the aggregation.
    pub beside: f64,
    /// The rows are materialised already, except keys that are not packed there.
    pub in_place: bool,
    /// Width of each aggregated column.
    pub payload: Vec<u32>,
    /// Zipf exponent of the key; 0 for uniform keys.
    pub skew: f64,
    /// The groups are needed in the order of the keys.
    pub must_sort: bool,
    /// Some aggregate is DISTINCT.
    pub distinct: bool,
    /// Rows arrive in key order: runs are combined before they reach a table.
    pub clustered: bool,
    /// … all of a group one behind the other, in one pass over a table that has them so.
    pub in_order: bool,
    /// Rows that are too many for device memory come in parts.
    pub in_parts: bool,
}

/// An algorithm's price for `w`; `None` when it is impossible ([`obstacle`] says why).
pub fn price(w: &GroupWorkload, algorithm: GroupAlgorithm, machine: &Machine) -> Option<Price> {
    if obstacle(w, algorithm, machine).is_some() {
        return None;
    }
    // In a hash table the keys tell which groups there are.
    let by_keys = GroupWorkload {
        tests: w.tests.saturating_sub(w.telling),
        ..w.clone()
    };
    let w = match algorithm {
        GroupAlgorithm::Global if w.hashed || w.dense_domain.is_none() => &by_keys,
        GroupAlgorithm::Runs => &by_keys,
        _ => w,
    };
    let model = Model { w, machine };
    let price = match algorithm {
        GroupAlgorithm::Private => model.private(),
        GroupAlgorithm::Shared => model.shared(),
        GroupAlgorithm::Global => model.global(),
        GroupAlgorithm::Runs => model.in_order(),
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

/// Why rows are not added up in runs.
pub const UNORDERED: &str = "rows that do not come in the order of a single key without NULL, in one pass over a table, \
     or DISTINCT arguments";

/// Most groups whose states a thread keeps in registers when the setting forces it.
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
        GroupAlgorithm::Runs => (!w.in_order).then(|| UNORDERED.to_string()),
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
            // Rows in parts need not lie together.
            let most = machine.budget().rows_out_of_place() as f64;
            (bytes > most && !w.in_parts).then(|| {
                format!("the rows, in and out of place, take {bytes:.0} bytes, more than half of device memory")
            })
        }
    }
}

/// Bits to partition rows by, so that the groups of a partition fit a table in shared memory.
pub fn partition_bits(groups: f64) -> f64 {
    /// Groups of a partition to aim at.
    const GROUPS: f64 = 1024.0;
    (groups / GROUPS).max(2.0).log2().ceil().clamp(8.0, 16.0)
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

/// An algorithm must be cheaper by this factor than fused aggregation, whose savings are certain while estimates are
/// not.
const LEAVE_FUSED: f64 = 0.95;

/// The same for rows that have passed filters and joins, whose number is an estimate as well.
const LEAVE_FUSED_BEHIND_FILTERS: f64 = 0.75;

/// Chooses the algorithm for `w`.
///
/// A forced algorithm is taken where it is possible. Otherwise the tree proposes and prices decide: the
/// cheapest of the tree's leaf stands unless another algorithm is 5 % cheaper; and the cheapest fused
/// aggregation (registers, shared or device memory) stands unless that algorithm is 5 % cheaper than it, behind filters 25 %.
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

/// The choice of tree and prices, and the path.
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
    let leave = match w.in_place {
        true => LEAVE_FUSED,
        false => LEAVE_FUSED_BEHIND_FILTERS,
    };
    let algorithm = match (fused, proposed) {
        (Some(fused), Some(other)) if other.1 < fused.1 * leave => other.0,
        (Some(fused), _) => fused.0,
        (None, Some(other)) => other.0,
        (None, None) => GroupAlgorithm::Global,
    };
    (algorithm, leaf.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
