//! Choice of the index of a join's build side: an array over all possible keys, or a hash table.
//!
//! A perfect index (one place a possible key) answers a probe with one access and no comparison,
//! and its bitmap of keys often stays in the L2 cache; it pays as long as the key range is not much
//! wider than the keys in it. The hash table (NPHJ: one shared open-addressing table in device
//! memory) takes any key.

use warpline_gpu::algorithm::JoinAlgorithm;
use warpline_gpu::graph::{IndexChoice, IndexKind, IndexProfile};
use warpline_gpu::memory::Budget;

use crate::config::JoinSetting;

/// A perfect index may be this many times larger than the hash table in its place …
const TIMES_HASH: u64 = 16;
/// … and this many bytes always.
const ALWAYS: u64 = 64 << 20;

/// The index for a build side. Where the setting forces an algorithm without an index, a stage that probes row by row
/// still needs one: the one that `auto` chooses.
pub fn place(asked: JoinSetting, profile: &IndexProfile, budget: Budget) -> IndexChoice {
    let forced = match asked {
        JoinSetting::Force(algorithm) if algorithm.is_index() => Some(algorithm),
        _ => None,
    };
    let hash_bytes = hash(profile);
    let perfect = perfect(
        profile,
        hash_bytes,
        budget,
        forced == Some(JoinAlgorithm::Perfect),
    );
    let choice = |kind, reason| IndexChoice { kind, reason };
    match (forced, perfect) {
        (Some(JoinAlgorithm::Nphj), _) => choice(
            IndexKind::Hash,
            format!("warpline.join = nphj: {}", size(hash_bytes)),
        ),
        (Some(_), Ok(reason)) => choice(
            IndexKind::Perfect,
            format!("warpline.join = perfect: {reason}"),
        ),
        (Some(_), Err(obstacle)) => choice(
            IndexKind::Hash,
            format!(
                "warpline.join = perfect is impossible ({obstacle}): {}",
                size(hash_bytes)
            ),
        ),
        (None, Ok(reason)) => choice(IndexKind::Perfect, reason),
        (None, Err(obstacle)) => choice(
            IndexKind::Hash,
            format!("{}, since {obstacle}", size(hash_bytes)),
        ),
    }
}

/// Expected entries; the bound is exact for an unfiltered table and loose otherwise.
fn entries(profile: &IndexProfile) -> u64 {
    let expected = profile.estimate.saturating_add(profile.estimate / 2);
    expected.min(profile.max_entries).max(1)
}

fn hash(profile: &IndexProfile) -> u64 {
    let entries = entries(profile);
    let key = 8 * profile.key_words.max(1) as u64;
    let slots = entries
        .saturating_mul(2)
        .checked_next_power_of_two()
        .unwrap_or(1 << 63);
    let entry = if profile.existence {
        0
    } else {
        profile.payload_bytes as u64 + key
    };
    slots
        .saturating_mul(key + 4)
        .saturating_add(entries.saturating_mul(entry))
}

fn perfect(
    profile: &IndexProfile,
    hash_bytes: u64,
    budget: Budget,
    forced: bool,
) -> Result<String, String> {
    let Some(domain) = profile.domain else {
        return Err("the keys have no small known range".to_string());
    };
    let payload = profile.payload_bytes as u64;
    let bits = domain.div_ceil(8);
    let bytes = if profile.existence {
        bits
    } else if profile.unique {
        bits.saturating_add(domain.saturating_mul(payload))
    } else {
        let entries = entries(profile);
        let places = match profile.is_ranked() {
            // A bitmap with ranks, and offsets of the keys that occur.
            true => (domain / 4).saturating_add(entries.saturating_mul(4)),
            false => domain.saturating_mul(4),
        };
        match profile.in_table {
            true => places,
            false => places.saturating_add(entries.saturating_mul(payload + 12)),
        }
    };
    let most = budget.perfect_index();
    if bytes > most && bytes > hash_bytes {
        return Err(format!(
            "{domain} possible keys would take {bytes} bytes, more than a quarter of device memory"
        ));
    }
    let limit = ALWAYS.max(hash_bytes.saturating_mul(TIMES_HASH));
    if bytes > limit && !forced {
        return Err(format!(
            "{domain} possible keys would take {bytes} bytes, more than the {limit} that a hash table justifies"
        ));
    }
    if profile.prefer_hash && bytes > ALWAYS && !forced {
        return Err(format!(
            "{domain} possible keys would take {bytes} bytes, which cost more than a hash table"
        ));
    }
    let numbered = match profile.is_ranked() {
        true => ", numbered by a bitmap",
        false => "",
    };
    Ok(format!(
        "{domain} possible keys{numbered}, {bytes} bytes (hash: {hash_bytes})"
    ))
}

fn size(bytes: u64) -> String {
    format!("{bytes} bytes of hash table")
}
