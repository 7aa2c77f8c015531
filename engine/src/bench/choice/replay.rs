//! Recorded measurements judged again, by what the present model would have chosen.

use warpline_gpu::machine::Machine;
use warpline_gpu::synthetic::Returned;
use warpline_planner::choose::group::{GroupWorkload, choose_group};
use warpline_planner::choose::join::{JoinWorkload, choose_join};
use warpline_planner::choose::zipf::harmonic;
use warpline_planner::{GroupSetting, JoinSetting};

use super::drawn::{Drawn, call};
use super::{Choices, Ran};

/// The same measurements with the choices of the present model, from exact figures in place of estimates.
pub fn replayed(choices: &Choices, machine: &Machine) -> Choices {
    let cases = choices.cases.iter().map(|case| {
        let (algorithm, price, reason) = match joined(&case.workload) {
            Some(workload) => {
                let decision = choose_join(JoinSetting::Auto, &workload, machine);
                (
                    decision.algorithm.to_string(),
                    decision.price.ms,
                    decision.reason,
                )
            }
            None => {
                let workload = grouped(&case.workload);
                let decision = choose_group(GroupSetting::Auto, &workload, machine);
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

/// What the planner knows of a join; `None` of a group-by.
pub(super) fn joined(workload: &Drawn) -> Option<JoinWorkload> {
    let Drawn::Join {
        build_rows,
        probe_rows,
        repeats,
        times,
        zipf,
        keys,
        build_columns,
        probe_columns,
    } = workload
    else {
        return None;
    };
    let distinct = (build_rows / repeats).max(1);
    let (key_bytes, key_domain) = match key_of(keys, distinct * times) {
        // All over the range of 32-bit integers: the key of a join needs no code for NULL.
        (_, Some(domain)) if keys == "sparse" => (4, Some(domain)),
        key => key,
    };
    let key = if keys == "wide" { 8 } else { 4 };
    let mut probe_payload = probe_columns.clone();
    probe_payload.push(key);
    Some(JoinWorkload {
        build_rows: *build_rows as f64,
        probe_rows: *probe_rows as f64,
        key_bytes,
        key_domain,
        build_payload: build_columns.clone(),
        probe_payload,
        matches: *probe_rows as f64 * matched(distinct * times, *times, *zipf) * *build_rows as f64
            / distinct as f64,
        build_unique: distinct == *build_rows,
        skew: *zipf,
        existence: distinct == *build_rows && build_columns.is_empty(),
        build_in_place: true,
        ..JoinWorkload::default()
    })
}

fn grouped(workload: &Drawn) -> GroupWorkload {
    let Drawn::GroupBy {
        rows,
        groups,
        zipf,
        keys,
        payload,
        calls,
    } = workload
    else {
        return GroupWorkload::default();
    };
    let (key_bytes, dense_domain) = key_of(keys, *groups);
    let returned: Vec<Returned> = calls.iter().map(|text| call(text)).collect();
    // Bytes of a state, additions, words added to and tests, as code generation comes to them.
    let cell = |call: &Returned| match call {
        Returned::Count => (4, 1, 0, 0),
        Returned::Least(column) | Returned::Greatest(column) => (payload[*column], 0, 0, 1),
        Returned::Sum(column) if payload[*column] == 16 => (16, 3, 2, 0),
        Returned::Sum(_) => (8, 1, 1, 0),
    };
    let (mut state_bytes, mut adds, mut words, mut tests) = (0, 0, 0, 0);
    for (bytes, add, word, test) in returned.iter().map(cell) {
        state_bytes += bytes;
        adds += add;
        words += word;
        tests += test;
    }
    if returned.iter().all(|call| matches!(call, Returned::Sum(_))) {
        // Nothing else tells that there was a row.
        (state_bytes, tests) = (state_bytes + 4, tests + 1);
    }
    GroupWorkload {
        rows: *rows as f64,
        groups: *groups as f64,
        key_bytes,
        key_words: 1,
        dense_domain,
        state_bytes,
        adds,
        words,
        tests,
        hashed: keys != "dense",
        hot: *zipf >= 1.0,
        in_place: true,
        payload: payload.clone(),
        skew: *zipf,
        ..GroupWorkload::default()
    }
}
