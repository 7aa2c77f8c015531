//! Replay of recorded measurements: what the present model would have chosen.

use warpline_gpu::machine::Machine;
use warpline_gpu::synthetic::Returned;
use warpline_planner::choose::group::{GroupWorkload, choose_group};
use warpline_planner::choose::join::{JoinWorkload, choose_join};
use warpline_planner::choose::zipf::{drawn as seen, equal_keys, exponent, harmonic};
use warpline_planner::{GroupSetting, JoinSetting};

use super::drawn::{Drawn, DrawnGroupBy, DrawnJoin};
use super::{Choices, Ran};

/// The plan of a join whose sides changed places: the build side's keys repeat, so either may be the one.
const SWAPPED: &str = "index probe(k)";

/// The same measurements with the choices of the present model, from exact figures in place of estimates.
pub fn replayed(choices: &Choices, machine: &Machine) -> Choices {
    let cases = choices.cases.iter().map(|case| {
        let (algorithm, price, reason) = match &case.workload {
            Drawn::Join(drawn) => {
                let swapped = case.forced.iter().any(|ran| ran.reason.contains(SWAPPED));
                let decision = choose_join(JoinSetting::Auto, &joined(drawn, swapped), machine);
                (
                    decision.algorithm.to_string(),
                    decision.price.ms,
                    decision.reason,
                )
            }
            Drawn::GroupBy(drawn) => {
                let decision = choose_group(GroupSetting::Auto, &grouped(drawn), machine);
                (
                    decision.algorithm.to_string(),
                    decision.price.ms,
                    decision.reason,
                )
            }
        };
        let measured = case.forced.iter().find(|ran| ran.algorithm == algorithm);
        let mut case = case.clone();
        if let Some(ran) = measured {
            case.auto = Ran {
                price: Some(price),
                reason,
                ..ran.clone()
            };
        }
        case
    });
    Choices {
        device: format!("{} (replayed)", choices.device),
        cases: cases.collect(),
    }
}

/// Bytes of a packed key, and its possible values where they are few.
fn key_of(keys: &str, range: u64) -> (u32, Option<u64>) {
    match keys {
        "dense" if range <= 1 << 30 => (4, Some(range)),
        "dense" => (8, Some(range)),
        "sparse" => (8, Some(1 << 32)),
        _ => (8, None),
    }
}

/// The share of draws of `values` numbers that find a key, when every `times`-th of them by frequency is one, the most
/// frequent among them.
pub(super) fn matched(values: u64, times: u64, exponent: f64) -> f64 {
    /// Keys that are summed one by one.
    const SUMMED: u64 = 256;
    let keys = (values / times.max(1)).max(1);
    let of = |rank: u64| ((1 + rank) as f64).powf(-exponent);
    let first: f64 = (0..keys.min(SUMMED)).map(|key| of(key * times)).sum();
    let all = harmonic(values as f64, exponent);
    let summed = harmonic((keys.min(SUMMED) * times) as f64, exponent);
    ((first + (all - summed) / times as f64) / all).clamp(0.0, 1.0)
}

/// What the planner knows of a join.
fn joined(drawn: &DrawnJoin, swapped: bool) -> JoinWorkload {
    let (distinct, times) = (drawn.distinct(), drawn.times);
    let (key_bytes, key_domain) = match key_of(&drawn.keys, distinct * times) {
        // All over the range of 32-bit integers: the key of a join needs no code for NULL.
        (_, Some(domain)) if drawn.keys == "sparse" => (4, Some(domain)),
        key => key,
    };
    let key = if drawn.keys == "wide" { 8 } else { 4 };
    let mut probe_payload = drawn.probe_columns.clone();
    probe_payload.push(key);
    let (build_rows, probe_rows) = (drawn.build_rows as f64, drawn.probe_rows as f64);
    let build_unique = distinct == drawn.build_rows;
    let matches =
        probe_rows * matched(distinct * times, times, drawn.zipf) * build_rows / distinct as f64;
    if swapped {
        let mut columns = drawn.build_columns.clone();
        columns.push(key);
        return JoinWorkload {
            build_rows: probe_rows,
            probe_rows: build_rows,
            key_bytes,
            key_domain,
            build_payload: drawn.probe_columns.clone(),
            probe_payload: columns,
            matches,
            build_in_place: true,
            ..JoinWorkload::default()
        };
    }
    JoinWorkload {
        build_rows,
        probe_rows,
        key_bytes,
        key_domain,
        build_payload: drawn.build_columns.clone(),
        probe_payload,
        matches,
        build_unique,
        skew: drawn.zipf,
        existence: build_unique && drawn.build_columns.is_empty(),
        build_in_place: true,
        ..JoinWorkload::default()
    }
}

/// What the planner knows of a group-by.
fn grouped(drawn: &DrawnGroupBy) -> GroupWorkload {
    /// Where the planner prefers a hash table to an array over all possible groups …
    const DENSE_TIMES_HASH: f64 = 3.0;
    const DENSE_BYTES: f64 = (1u64 << 26) as f64;
    const SLOT_OVERHEAD: f64 = 16.0;
    const EXPECTED: f64 = 1.25;
    /// … and code generation takes a key for one with hot values.
    const HOT: f64 = 5e-5;
    const HOT_TIMES: f64 = 4.0;
    let (key_bytes, dense_domain) = key_of(&drawn.keys, drawn.groups);
    let returned = drawn.returned();
    // Bytes of a state, additions, words added to and tests, as code generation comes to them.
    let cell = |call: &Returned| match call {
        Returned::Count => (4, 1, 0, 0),
        Returned::Least(column) | Returned::Greatest(column) => (drawn.payload[*column], 0, 0, 1),
        Returned::Sum(column) if drawn.payload[*column] == 16 => (16, 2, 2, 0),
        Returned::Sum(_) => (8, 1, 1, 0),
    };
    let (mut state_bytes, mut adds, mut words, mut tests) = (0, 0, 0, 0);
    for (bytes, add, word, test) in returned.iter().map(cell) {
        state_bytes += bytes;
        adds += add;
        words += word;
        tests += test;
    }
    // A count and an extreme of 4 bytes, which is not 0 once there was a row, tell that there was one.
    let tells = |call: &Returned| match call {
        Returned::Count => true,
        Returned::Least(column) | Returned::Greatest(column) => drawn.payload[*column] == 4,
        Returned::Sum(_) => false,
    };
    let telling = u32::from(!returned.iter().any(tells));
    (state_bytes, tests) = (state_bytes + 4 * telling, tests + telling);
    // What a sample tells of the key: how many there are, and how often two are equal.
    let (keys, rows) = (drawn.groups as f64, drawn.rows as f64);
    let groups = seen(keys, drawn.zipf, rows);
    let collisions = 1.0 / equal_keys(keys, drawn.zipf);
    let state = f64::from(state_bytes);
    let in_hash = DENSE_TIMES_HASH * 2.0 * EXPECTED * groups * (state + SLOT_OVERHEAD);
    let in_array = keys * state <= in_hash.max(DENSE_BYTES);
    GroupWorkload {
        rows,
        groups,
        key_bytes,
        key_words: 1,
        dense_domain,
        state_bytes,
        adds,
        words,
        tests,
        telling,
        hashed: drawn.keys != "dense" || !in_array,
        hot: collisions > HOT && collisions * groups > HOT_TIMES,
        in_place: true,
        payload: drawn.payload.clone(),
        skew: exponent(groups, collisions),
        ..GroupWorkload::default()
    }
}
