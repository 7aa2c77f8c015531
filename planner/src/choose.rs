//! Choice of algorithms for joins and group-bys: decision trees, prices, and the memory for states and build sides.
//!
//! # Trees and prices
//! [`join`] and [`group`] have the decision trees of Wu et al. ("Efficiently Processing Joins and Grouped
//! Aggregations on GPUs", SIGMOD 2025: §5.1.10 and Figure 21) as code, and a price for every algorithm: bytes and passes
//! over the calibrated constants of a [`Machine`], for any number of rows, key width, payload, match ratio, number of
//! groups and skew. A tree proposes; prices decide among what it proposes, and override it where another algorithm is
//! A tree proposes; prices decide among its proposals, and override it where another algorithm is 5 % cheaper. Work
//! fused into a pipeline is given up only for something clearly cheaper (an index probe 15 %, one with repeated keys
//! 5 %, fused aggregation 5 %, behind filters 25 %): fusion saves what no model sees, such as later stages in the
//! same kernel, and its rivals depend on more estimates.
//!
//! Misestimates are caught at run time: a table that overflows grows and the pipeline runs again, a partition that
//! does not fit its table is joined in pieces, a list of pairs without room is made again, a build whose keys are not
//! unique is planned again.
//!
//! # Where Hopper differs
//! The papers' constants are an A100's and a Titan's. What one H200 showed (CUDA 13.0, 2^26 accesses; [`Machine::h200`]):
//!
//! | | papers | H200 |
//! |---|---|---|
//! | random 4-byte reads beyond the caches, in sequential ones | 24 (A100) | 26: 24 ps at 512 MB against 0.94; 26 ps at 16 GB |
//! | the same in the L2 cache | 5.3 | 6.7, up to 32 MB, half of the cache: each half of the device keeps copies |
//! | random 16-byte reads | | as 4-byte ones |
//! | random writes and additions beyond the cache | | 2.4 reads (59 to 64 ps), in the cache 1.5 to 2 |
//! | additions to 4 / 64 / 1024 / 16 K counters | | 250 / 290 / 84 / 14 ps: contention, not bandwidth |
//! | 32-bit additions in shared memory | contention with few counters | 1.0 ps, whatever the number of counters |
//! | 64-bit additions in shared memory | | 3.3 ps spread out, 7 on 32 counters, 80 on one: loops of compare-and-swap |
//! | partition pass, 4-byte key and payload, in copies of the same bytes | 1 | 1.8; a further column 1.5 of its bytes |
//! | match ratio where moving two payload columns pays | 0.2 (model), 0.25 | about 0.15: all columns move in one pass |
//!
//! So unclustered gathers are as dear as ever, in the cache somewhat dearer, a pass of the partition takes nearly two
//! copies, and moving a column along with the others costs less than half of partitioning it by itself: `phj_tr` takes
//! nearly all of the joins that are not left to an index, and `phj_ur` those of few matches; `smj_*` none. States of 4 bytes
//! in shared memory have no contention at all, so skew does not matter to block-shared tables, and few groups need no copies
//! a thread for contention's sake.
//!
//! Joins of 2^27 and 2^27 rows, int keys without gaps, two columns a side, all materialised (`warpline bench join`, ms):
//!
//! | | perfect | nphj | phj_ur | phj_tr | smj_ur | smj_tr | papers |
//! |---|---|---|---|---|---|---|---|
//! | Zipf 0 | 29.8 | 36.0 | 22.5 | **7.9** | 25.1 | 13.2 | phj_tr |
//! | Zipf 1 | 25.2 | 27.0 | 17.5 | **7.7** | 21.2 | 13.6 | phj_tr or smj_ur |
//! | Zipf 1.5 | 21.2 | 21.7 | 10.6 | **7.4** | 14.1 | 13.0 | phj_tr or smj_ur |
//! | Zipf 2 | 21.1 | 21.5 | 8.4 | **7.3** | 11.9 | 12.8 | phj_tr or smj_ur |
//! | 25 % matched | 28.0 | 27.1 | 8.8 | **7.0** | 13.0 | 12.6 | phj_tr |
//! | 12.5 % matched | 28.5 | 25.8 | **6.6** | 6.7 | 11.6 | 13.2 | phj_ur |
//! | 3 % matched | | 24.9 | **4.9** | 6.2 | 10.5 | 12.9 | phj_ur |
//! | 2^26 rows, 8 of a key | 44.0 | 53.1 | 35.3 | **9.7** | 19.5 | 10.8 | |
//!
//! The paper's sort-merge join for skew (`smj_ur`) has no place here: the partitions' hot keys are shared by many blocks. The
//! ratio from which on moving pays lies between 12 and 25 %, below the 25 % of the paper.
//!
//! Group-bys of 2^28 rows, two maxima of ints (`warpline bench group-by`, ms):
//!
//! | keys, groups | private | shared | global | hgb | sgb_tr | pgb_tr | Figure 21 |
//! |---|---|---|---|---|---|---|---|
//! | dense, 2^2 | 0.65 | **0.60** | 2.6 | 4.6 | 6.9 | 10.1 | hgb |
//! | dense, 2^14 | | **0.64** | 2.7 | 11.8 | 10.1 | 9.8 | hgb |
//! | dense, 2^18 | | | **2.1** | 12.2 | 13.2 | 9.3 | pgb_tr |
//! | dense, 2^22 | | | **3.1** | 24.7 | 14.5 | 10.0 | pgb_tr |
//! | dense, 2^26 | | | 15.8 | 64.9 | | **12.0** | pgb_tr |
//! | sparse, 2^8 | | | **1.0** | 19.5 | 17.5 | 12.0 | hgb |
//! | sparse, 2^14 | | | **7.4** | 10.9 | 17.6 | 10.5 | hgb |
//! | sparse, 2^20 | | | **10.2** | 17.7 | 18.6 | 11.0 | pgb_tr |
//! | sparse, 2^24 | | | 19.6 | 40.1 | | **12.3** | pgb_tr |
//! | dense, 2^16, Zipf 1.5 | | | **1.0** | 9.7 | 9.9 | 10.4 | sgb_tr |
//!
//! Aggregating on the way wins nearly everywhere: rows are read once and never written, the extremes of a group are read
//! far more often than they change, hot keys find a table in shared memory, and half of a 60 MB cache holds the states of
//! millions of groups. Writing the rows down pays from some 2^23 groups on, and then by partition. HGB's separate passes
//! never pay, and skew is a reason for `global`, not for sorting.
//!
//! Over workloads drawn at random (`warpline bench choice`, 2^20 to 2^26 rows, tables in memory) the choices of these prices, with what a
//! sample would tell of the keys, are as follows. The first two lines are those that the prices were fitted to; the third was
//! measured meanwhile and only looked at afterwards, but for one constant of flushes; the prices before came to 92.9 % and 3.0 %
//! on it. The fourth was drawn afterwards, and `auto` itself chose and was measured.
//!
//! | seed | workloads | within 15 % of the fastest | slower than it on average |
//! |---|---|---|---|
//! | 61 | 189 | 98.4 % | 1.1 % |
//! | 71 | 200 | 97.0 % | 1.4 % |
//! | another | 155 | 96.8 % | 1.4 % |
//! | 111 | 200 | 97.5 % | 1.3 % |
//!
//! The 14 losers of the first three, and why:
//!
//! | which | how many | why |
//! |---|---|---|
//! | `global` with sums of 128 bits, where `pgb_ur` is up to 41 % faster | 4 | an addition whose carry is asked for is priced as one that is not; gathers of 16 bytes by partitions are priced too high |
//! | joins of repeated keys whose sides changed places, by `phj_tr` or `perfect` | 4 | many entries a key: how a thread goes over them alone is priced for a few hundred, and building by counts too low |
//! | `shared` with few rows, where `global` is up to 27 % faster | 2 | all blocks bring their tables home at once, to the same lines: extremes of 8 bytes and sums cost more there |
//! | hot keys in a hash table as large as the table in front of it | 1 | a rounded estimate decides whether there is one |
//! | two groups; 1.2 million rows by 2^17 groups; a bitmap over 2^32 keys | 3 | queues priced 30 % too low; small partitions 40 % too high; bits far apart 20 % too high |
//!
//! The five of the fourth: `global` for 2^21 and 2^22 groups of three and two states, where `pgb_tr` is 67 % and 16 % faster (a table as
//! large as the L2 cache is priced as one within it); `nphj` by 8-byte keys, twice, where `phj_tr` is 33 % and 21 % faster (the same); and a
//! join that moves no columns, 61 %, whose sides were priced with row numbers that they do not have. The last is mended since.
//!
//! `bench join --sweep columns` and `--sweep sizes` (2^27 probing rows, 4-byte columns) show where an index is kept although its rival is
//! faster, because it is left only for a price 15 % lower: without columns `perfect` 3.7 ms, `phj_tr` 3.3; with two and a sixteenth as many
//! build rows 6.0 and 4.8. `bench group-by --sweep fill` bears out the rule of half-full tables: 134 million rows in 2^16 slots take 4.1 ms at
//! 50 % and 6.6 at 75 %, in 2^21 slots 3.5 and 4.4; `--sweep grid` that from 4 blocks a multiprocessor on more change nothing. Pairs that are
//! written at once take 0.93 to 3.7 ms for 1 to 8 rows a key, counted first 1.7 to 6.4 (`bench join --sweep output`, 2^26 rows a side).
//!
//! (By Figure 21 and Karnagel's placement with prices by bandwidth alone, which came first, on other workloads: 61 % and 127 %.)
//!
//! What the prices rest on, beside bytes over bandwidths: reading hides behind updates of tables in shared memory and look-ups of
//! indexes, or they behind it; a queue at one place of shared memory is longer the fewer tables a multiprocessor has (a hot group
//! of 1.7 million rows takes 0.23 ms with one and 0.08 ms with four); states that registers have no room for lie in a column a
//! thread, where a row updates one group and not all; atomics in device memory wait by lines, not by groups, and what is hot is in the
//! cache, a line a key; all columns of an entry share the cache; a block a partition leaves a device half empty when there are few partitions.
//!
//! # Where states live
//! The placement of fused aggregations follows Karnagel, Müller and Lohman, "Optimizing GPU-accelerated
//! Group-By and Aggregation" (ADMS/DaMoN 2015): private tables for a handful of groups, one a block while
//! it fits shared memory, a global table beyond, with the fill that its place in the memory
//! hierarchy allows.

pub(crate) mod cold;
pub mod decision;
pub mod group;
pub mod index;
pub mod join;
#[cfg(test)]
mod papers;
pub(crate) mod price;
pub(crate) mod reentry;
pub(crate) mod refill;
pub(crate) mod rowwise;
pub mod tree;
pub mod zipf;

pub use decision::Decision;
pub use group::{GroupWorkload, choose_group};
pub use join::{JoinWorkload, choose_join};
pub use price::Price;

use std::sync::Arc;

use warpline_gpu::algorithm::GroupAlgorithm;
use warpline_gpu::device::DeviceInfo;
use warpline_gpu::machine::{Machine, Origin};
use warpline_gpu::pipeline::{
    GroupPlacement, GroupProfile, PlacementChoice, PlacementPolicy, Regroup,
};

use crate::config::GroupSetting;

/// The constants of the choice.
mod limits {
    /// Most groups whose states a thread keeps in registers: every row updates them all, so the
    /// work grows with their number (the paper crosses over at six groups; registers of today hold eight).
    pub(super) const REGISTER_GROUPS: u64 = 8;
    /// Most 32-bit registers for those states: leaves room for the row at hand at half occupancy.
    pub(super) const STATE_REGISTERS: u64 = 96;
    /// Registers of states that a scan is the slower for.
    pub(super) const MANY_REGISTERS: u64 = 8;
    /// Where one in so many rows is thought to be added up, few are: estimates err.
    pub(super) const FEW_ARRIVE: u64 = 16;
    /// The same two limits when the user asks for registers: beyond them states spill to local memory.
    pub(super) const FORCED_REGISTER_GROUPS: u64 = 16;
    pub(super) const FORCED_STATE_REGISTERS: u64 = 160;
    /// Blocks a multiprocessor that shared-memory tables must leave room for, so that one block's
    /// merge hides behind another's scan.
    pub(super) const SHARED_BLOCKS: u64 = 2;
    /// … unless each group has this many rows: then one block may take it all.
    pub(super) const ROWS_A_GROUP: u64 = 64;
    /// A dense array is allowed this many entries for each scanned row (it is cleared and read back) …
    pub(super) const DENSE_ENTRIES_PER_ROW: u64 = 4;
    /// … but this many entries always,
    pub(super) const DENSE_ENTRIES: u64 = 1 << 16;
    /// … and this many bytes, about what the L2 cache holds,
    pub(super) const DENSE_BYTES: u64 = 1 << 26;
    /// … or this many times the bytes of a hash table for the groups to expect: an access to the array needs no
    /// key and no retry,
    pub(super) const DENSE_TIMES_HASH: u64 = 3;
    /// Bytes a hash slot needs beside the state: the key's hash and a lock word.
    pub(super) const SLOT_OVERHEAD: u64 = 16;
    /// Smallest hash table.
    pub(super) const HASH_SLOTS: u64 = 1 << 10;
    /// Widest packed key that is partitioned and sorted, in bytes.
    pub(super) const WIDEST_KEY: u32 = 16;
    /// Reach of the translation lookaside buffer: beyond it, a denser table beats an emptier one.
    pub(super) const TLB_REACH: u64 = 2 << 30;
}

/// Chooses by the number of groups, the size of their states, the sizes of the device's memories, and prices.
#[derive(Debug, Clone)]
pub struct CostedPolicy {
    /// The setting `warpline.group_by`.
    pub group_by: GroupSetting,
    /// The device's constants.
    pub machine: Arc<Machine>,
    /// The setting `warpline.group_slots`: initial slots of hash tables, 0 by the sizing rules.
    pub slots: u64,
}

impl Default for CostedPolicy {
    fn default() -> Self {
        Self {
            group_by: GroupSetting::Auto,
            machine: Arc::new(Machine::h200()),
            slots: 0,
        }
    }
}

impl PlacementPolicy for CostedPolicy {
    fn place_groups(&self, profile: &GroupProfile, device: &DeviceInfo) -> PlacementChoice {
        let machine = &self.machine;
        let choice = self.placed_groups(profile, On { device, machine });
        match choice.placement {
            GroupPlacement::GlobalHash { .. } if self.slots > 0 => {
                let capacity = self.slots.min(1 << 40).next_power_of_two();
                PlacementChoice {
                    placement: GroupPlacement::GlobalHash { capacity },
                    reason: format!(
                        "{capacity} slots by warpline.group_slots; {}",
                        choice.reason
                    ),
                }
            }
            _ => choice,
        }
    }
}

/// What groups are placed on.
#[derive(Clone, Copy)]
struct On<'a> {
    device: &'a DeviceInfo,
    /// Its constants, with the memory that queries may use.
    machine: &'a Machine,
}

impl CostedPolicy {
    /// The same without `warpline.group_slots`.
    fn placed_groups(&self, profile: &GroupProfile, on: On<'_>) -> PlacementChoice {
        let algorithm = match self.group_by {
            GroupSetting::Auto => {
                let choice = priced(profile, on);
                return in_parts(profile, &choice).unwrap_or(choice);
            }
            GroupSetting::Force(algorithm) => algorithm,
        };
        let asked = placed(algorithm, profile, on);
        match asked {
            Ok(choice) => {
                let decision =
                    group::choose_group(self.group_by, &workload(profile, on), &self.machine);
                let reason = format!(
                    "warpline.group_by = {}: {}; {}",
                    self.group_by, choice.reason, decision.reason
                );
                PlacementChoice { reason, ..choice }
            }
            Err(obstacle) => {
                let choice = priced(profile, on);
                let reason = format!(
                    "warpline.group_by = {} is impossible ({obstacle}): {}",
                    self.group_by, choice.reason
                );
                PlacementChoice { reason, ..choice }
            }
        }
    }
}

/// The origin of the constants behind prices, for EXPLAIN.
fn constants(machine: &Machine) -> String {
    match machine.origin {
        Origin::Measured => format!("constants measured on {}", machine.device),
        Origin::Default => "default constants (`warpline calibrate` measures the device)".into(),
    }
}

/// The choice by tree and prices; by limits alone where only exact figures show an obstacle.
fn priced(profile: &GroupProfile, on: On<'_>) -> PlacementChoice {
    let decision = group::choose_group(GroupSetting::Auto, &workload(profile, on), on.machine);
    let placed = match decision.algorithm {
        GroupAlgorithm::Private if few_arrive(profile) => {
            shared(profile, on, 1).or_else(|_| placed(GroupAlgorithm::Private, profile, on))
        }
        algorithm => placed(algorithm, profile, on),
    };
    let choice = placed.unwrap_or_else(|_| automatic(profile, on));
    PlacementChoice {
        reason: format!("{}; {}", choice.reason, decision.reason),
        ..choice
    }
}

/// Are rows that come to be added up so few that the registers of states, and a thread's work on all groups for one row, cost the scan
/// more than additions in shared memory do? TPC-H Q12, of whose 600 M rows 3 M come (and three times as many are thought to) to
/// 7 groups with 21 registers, took an H100 3.2 ms with states in registers and 1.9 in shared memory; Q1, of whose rows nearly all
/// come, 3.0 and 8.0.
fn few_arrive(profile: &GroupProfile) -> bool {
    let registers = profile.dense_domain.unwrap_or(0) * profile.state_registers as u64;
    registers >= limits::MANY_REGISTERS
        && profile.arriving.saturating_mul(limits::FEW_ARRIVE) <= profile.rows
}

/// The placement that an algorithm means for these groups, or why it is impossible.
fn placed(
    algorithm: GroupAlgorithm,
    profile: &GroupProfile,
    on: On<'_>,
) -> Result<PlacementChoice, String> {
    match algorithm {
        GroupAlgorithm::Private => registers(
            profile,
            limits::FORCED_REGISTER_GROUPS,
            limits::FORCED_STATE_REGISTERS,
        ),
        GroupAlgorithm::Shared => shared(profile, on, 1),
        GroupAlgorithm::Global => Ok(global(profile, on)),
        GroupAlgorithm::Runs => in_order(profile),
        GroupAlgorithm::Hgb => regrouped(profile, Regroup::Number),
        GroupAlgorithm::SgbUr => regrouped(profile, Regroup::SortKeys),
        GroupAlgorithm::SgbTr => regrouped(profile, Regroup::SortRows),
        GroupAlgorithm::SgbDeTr => regrouped(profile, Regroup::SortNumbers),
        GroupAlgorithm::PgbUr => regrouped(profile, Regroup::PartitionKeys),
        GroupAlgorithm::PgbTr => regrouped(profile, Regroup::PartitionRows),
    }
}

/// The profile as prices see it.
fn workload(profile: &GroupProfile, on: On<'_>) -> GroupWorkload {
    let words = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    GroupWorkload {
        rows: profile.arriving.min(profile.rows) as f64,
        most_rows: profile.rows as f64,
        groups: profile.estimate.min(profile.max_groups).max(1) as f64,
        key_bytes: profile.key_bytes,
        key_words: words(profile.key_words),
        dense_domain: profile.dense_domain,
        state_bytes: words(profile.state_bytes),
        adds: profile.adds,
        words: profile.words,
        tests: profile.tests,
        telling: profile.telling,
        hashed: !matches!(global(profile, on).placement, GroupPlacement::GlobalDense),
        hot: profile.hot,
        beside: profile.text_bytes as f64 * profile.rows as f64
            / profile.arriving.clamp(1, profile.rows.max(1)) as f64,
        in_place: profile.in_place,
        payload: profile.payload.clone(),
        skew: profile.collisions.map_or(0.0, |collisions| {
            zipf::exponent(profile.estimate as f64, collisions)
        }),
        must_sort: false,
        distinct: profile.distinct,
        in_parts: profile.room.is_some(),
        clustered: profile.clustered,
        in_order: profile.in_order,
    }
}

fn automatic(profile: &GroupProfile, on: On<'_>) -> PlacementChoice {
    // A block may have all of a multiprocessor's shared memory where it adds up many rows for each group it brings home.
    let groups = profile.dense_domain.unwrap_or(u64::MAX);
    let blocks = match profile.rows / limits::ROWS_A_GROUP >= groups {
        true => 1,
        false => limits::SHARED_BLOCKS,
    };
    registers(profile, limits::REGISTER_GROUPS, limits::STATE_REGISTERS)
        .or_else(|_| shared(profile, on, blocks))
        .unwrap_or_else(|_| global(profile, on))
}

fn registers(
    profile: &GroupProfile,
    most_groups: u64,
    most_registers: u64,
) -> Result<PlacementChoice, String> {
    if !profile.registers_possible {
        return Err("a state that registers cannot hold".to_string());
    }
    let Some(groups) = profile.dense_domain else {
        return Err("keys without a small known domain".to_string());
    };
    let needed = groups.saturating_mul(profile.state_registers as u64);
    if groups > most_groups {
        return Err(format!("{groups} possible groups, more than {most_groups}"));
    }
    if needed > most_registers {
        return Err(format!(
            "{needed} registers a thread, more than {most_registers}"
        ));
    }
    Ok(PlacementChoice {
        placement: GroupPlacement::Registers,
        reason: format!("{groups} possible groups, {needed} registers a thread"),
    })
}

fn shared(profile: &GroupProfile, on: On<'_>, blocks: u64) -> Result<PlacementChoice, String> {
    if !profile.shared_possible {
        return Err("a state without shared-memory atomics".to_string());
    }
    let Some(groups) = profile.dense_domain else {
        return Err("keys without a small known domain".to_string());
    };
    let bytes = groups.saturating_mul(profile.state_bytes as u64);
    let block = on.device.shared_memory_per_block as u64;
    let budget = block.min(on.device.shared_memory_per_multiprocessor as u64 / blocks);
    if bytes > budget {
        return Err(format!(
            "{bytes} bytes of states, more than the {budget} bytes of shared memory a block gets"
        ));
    }
    Ok(PlacementChoice {
        placement: GroupPlacement::Shared,
        reason: format!("{groups} possible groups, {bytes} bytes of states a block"),
    })
}

fn global(profile: &GroupProfile, on: On<'_>) -> PlacementChoice {
    if let Some(groups) = profile.dense_domain {
        let entries =
            limits::DENSE_ENTRIES.max(profile.rows.saturating_mul(limits::DENSE_ENTRIES_PER_ROW));
        let bytes = groups.saturating_mul(profile.state_bytes as u64);
        let slot = profile.state_bytes as u64 + limits::SLOT_OVERHEAD;
        let hashed = expected(profile).saturating_mul(2).saturating_mul(slot);
        let limit = hashed
            .saturating_mul(limits::DENSE_TIMES_HASH)
            .min(on.machine.budget().dense_groups().max(hashed))
            .max(limits::DENSE_BYTES);
        if groups <= entries && bytes <= limit {
            return PlacementChoice {
                placement: GroupPlacement::GlobalDense,
                reason: format!(
                    "{groups} possible groups, {bytes} bytes of states for {} rows",
                    profile.rows
                ),
            };
        }
    }
    hash(profile, on)
}

/// Rows that come in the order of the key, added up as they come.
fn in_order(profile: &GroupProfile) -> Result<PlacementChoice, String> {
    if !profile.in_order {
        return Err(group::UNORDERED.to_string());
    }
    let groups = expected(profile);
    Ok(PlacementChoice {
        placement: GroupPlacement::Regrouped {
            how: Regroup::Runs,
            bits: 0,
            groups,
        },
        reason: format!("rows in the order of the key, room for {groups} groups"),
    })
}

/// Rows materialised with their packed keys, then sorted or partitioned, then aggregated.
fn regrouped(profile: &GroupProfile, how: Regroup) -> Result<PlacementChoice, String> {
    if profile.key_bytes > limits::WIDEST_KEY {
        return Err(format!(
            "keys of {} bytes, more than {}",
            profile.key_bytes,
            limits::WIDEST_KEY
        ));
    }
    if profile.rows >= u32::MAX.into() {
        return Err(format!(
            "up to {} rows, more than row numbers of 32 bits reach",
            profile.rows
        ));
    }
    let groups = expected(profile);
    let bits = match how.partitions() {
        true => group::partition_bits(groups as f64) as u32,
        false => 0,
    };
    let payload: u32 = profile.payload.iter().sum();
    Ok(PlacementChoice {
        placement: GroupPlacement::Regrouped { how, bits, groups },
        reason: format!(
            "keys of {} bytes with {payload} bytes of arguments, room for {groups} groups",
            profile.key_bytes
        ),
    })
}

/// Group-by in parts, where the states of a choice exceed device memory.
///
/// States in host memory are accessed at random across the link. Rows in parts cross it twice, sequentially, and the
/// groups of a part fit in device memory.
fn in_parts(profile: &GroupProfile, choice: &PlacementChoice) -> Option<PlacementChoice> {
    let room = profile.room?;
    let state = profile.state_bytes as u64;
    let bytes = match choice.placement {
        GroupPlacement::GlobalHash { .. } => {
            // With all groups to expect: what it begins with says nothing.
            let capacity = slots_of(expected(profile), state + limits::SLOT_OVERHEAD);
            let key = 8 * profile.key_words as u64;
            capacity.saturating_mul(state.saturating_add(key))
        }
        GroupPlacement::GlobalDense => profile.dense_domain?.saturating_mul(state),
        _ => return None,
    };
    if bytes <= room.states {
        return None;
    }
    if profile.key_bytes > limits::WIDEST_KEY && profile.rows < u32::MAX.into() {
        return Some(PlacementChoice {
            placement: GroupPlacement::Regrouped {
                how: Regroup::Table,
                bits: 0,
                groups: expected(profile),
            },
            reason: format!(
                "rows in parts of {} bytes, because {bytes} bytes of states are more than the {} that there is room for; \
                 by a hash of keys of {} bytes",
                room.part, room.states, profile.key_bytes
            ),
        });
    }
    let how = Regroup::PartitionRows;
    let asked = regrouped(profile, how).ok()?;
    let GroupPlacement::Regrouped { groups, .. } = asked.placement else {
        return None;
    };
    // No more groups than a part has rows.
    let row =
        u64::from(profile.key_bytes) + profile.payload.iter().map(|w| u64::from(*w)).sum::<u64>();
    let groups_of_part = groups.min(room.part / row.max(1));
    let bits = group::partition_bits(groups_of_part as f64) as u32;
    Some(PlacementChoice {
        placement: GroupPlacement::Regrouped { how, bits, groups },
        reason: format!(
            "rows in parts of {} bytes, because {bytes} bytes of states are more than the {} that there is room for; {}",
            room.part, room.states, asked.reason
        ),
    })
}

/// Groups to allocate: a quarter more than the estimate, within the bounds.
fn expected(profile: &GroupProfile) -> u64 {
    let most = profile.max_groups.min(profile.rows).max(1);
    profile
        .estimate
        .saturating_add(profile.estimate / 4)
        .clamp(1, most)
}

/// Slots, of so many bytes each, of a table for so many groups: fill below one half while the table fits the L2 cache or the
/// TLB's reach, else below 83 %.
fn slots_of(groups: u64, slot: u64) -> u64 {
    let half_full = groups
        .saturating_mul(2)
        .checked_next_power_of_two()
        .unwrap_or(1 << 63);
    let capacity = if half_full.saturating_mul(slot) <= limits::TLB_REACH {
        half_full
    } else {
        (groups.saturating_add(groups / 5))
            .checked_next_power_of_two()
            .unwrap_or(1 << 63)
    };
    capacity.max(limits::HASH_SLOTS)
}

/// A hash table that begins with room for the groups to expect, as far as it may take memory at its beginning.
fn hash(profile: &GroupProfile, on: On<'_>) -> PlacementChoice {
    let slot = profile.state_bytes as u64 + limits::SLOT_OVERHEAD;
    let cached = (on.device.l2_cache as u64 / slot).max(limits::HASH_SLOTS);
    let most = profile.max_groups.min(profile.rows).max(1);
    // The bound is often loose, and the estimate may be wrong: the table grows.
    let room = on.machine.budget().hash_groups() / slot / 2;
    let groups = expected(profile).min(room.max(limits::HASH_SLOTS));
    let capacity = slots_of(groups, slot);
    let place = if capacity <= cached {
        "in the L2 cache"
    } else {
        "in device memory"
    };
    let bound = if groups < most {
        format!("at most {most} groups, begun with room for {groups}")
    } else {
        format!("at most {most} groups")
    };
    PlacementChoice {
        placement: GroupPlacement::GlobalHash { capacity },
        reason: format!("{bound}, {capacity} slots {place}"),
    }
}

#[cfg(test)]
mod tests;
