//! Where the warps of a pipeline over a table gather the rows that are left: a price in steps of a warp.
//!
//! Without gathering, all lanes of a warp go through every stage as long as one of its rows is left, and through the sink with its
//! barriers. Behind the place where rows are gathered lanes have a row each, so that stages take what the rows left need, but
//! columns are read again, a row at a time, and each row goes through a queue in shared memory.

use warpline_gpu::graph::{RefillProfile, StageProfile};

use crate::config::LaneRefill;

/// A condition, by row.
const FILTER: f64 = 1.0;
/// A look-up in an index: it waits for memory.
const LOOK_UP: f64 = 3.0;
/// A sink, and the barriers of one that reserves places.
const SINK: f64 = 3.0;
const BARRIERS: f64 = 3.0;
/// A row's way through the queue, and reading again what is needed of it. Behind a condition that leaves a seventh, in front of a
/// look-up that leaves a fifth of these, Q5 of TPC-H at scale 100 took an H100 1.9 ms, behind both 1.3.
const QUEUE: f64 = 24.0;
/// What a gathered row takes, in rows that lie one behind the other.
const GATHERED: f64 = 2.0;
/// Rows are gathered only where that is thought to take this much of the time at most. 600 million rows of which one in a hundred is
/// found in a bitmap and written took an H100 1.5 ms and 2.7 without gathering, with one in eight 3.1 and 3.5, one in four 4.1 and 3.9;
/// of TPC-H Q16, where one in seven is found and brings three columns of its part along, 1.45 and 1.25. Of Q10, where far
/// fewer are found than thought, it took 1.5 and 2.3: estimates of many conditions are rather too high.
const CLEARLY: f64 = 0.85;
/// The same where the sink has no barriers, and every row has been looked up before rows are gathered: then that look-up is what
/// the kernel waits for. Of TPC-H's lineitem the 5 % whose part is wanted take as long to be looked up three times more and added up
/// whether they are gathered or not (scale 30, on an H100: 3.3 ms and 3.0).
const BEHIND_LOOK_UP: f64 = 0.3;
/// Rows of a warp's tile, about: one left keeps all of its lanes.
const WARP_ROWS: f64 = 128.0;

/// After how many stages rows are gathered, if at all.
pub(crate) fn after(setting: LaneRefill, profile: &RefillProfile) -> Option<usize> {
    let rows = profile.rows.max(1) as f64;
    let cheapest = (1..=profile.stages.len())
        .map(|stages| (gathered(profile, rows, stages), stages))
        .min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    // Conditions alone wait for the columns, which they read in any case.
    let waits = profile.reserves || profile.stages.iter().any(|stage| stage.looks_up);
    let in_front = &profile.stages[..cheapest.1];
    let most = match profile.reserves || !in_front.iter().any(|stage| stage.looks_up) {
        true => CLEARLY,
        false => BEHIND_LOOK_UP,
    };
    let pays = waits && cheapest.0 < most * direct(profile, rows);
    match setting {
        LaneRefill::Auto => pays.then_some(cheapest.1),
        LaneRefill::On => Some(cheapest.1),
        LaneRefill::Off => None,
    }
}

fn price(stage: &StageProfile) -> f64 {
    match stage.looks_up {
        true => LOOK_UP,
        false => FILTER,
    }
}

/// The part of its warps that have a row left, where `left` of `rows` are.
fn busy(left: f64, rows: f64) -> f64 {
    1.0 - (1.0 - (left / rows).min(1.0)).powf(WARP_ROWS)
}

/// Stages one after the other, by the warps that have rows left.
fn of_warps(stages: &[StageProfile], rows: f64) -> (f64, f64) {
    stages.iter().fold((0.0, rows), |(sum, left), stage| {
        (sum + price(stage) * busy(left, rows), stage.left as f64)
    })
}

/// Per row of the table, when rows stay where they are.
fn direct(profile: &RefillProfile, rows: f64) -> f64 {
    let (stages, left) = of_warps(&profile.stages, rows);
    // All warps of a block wait for each other, whether they have rows or not.
    let barriers = if profile.reserves { BARRIERS } else { 0.0 };
    stages + SINK * busy(left, rows) + barriers
}

/// The same when they are gathered after so many stages.
fn gathered(profile: &RefillProfile, rows: f64, stages: usize) -> f64 {
    let (before, behind) = profile.stages.split_at(stages);
    let (in_front, left) = of_warps(before, rows);
    let (apart, last) = behind.iter().fold((0.0, left), |(sum, left), stage| {
        (sum + price(stage) * left / rows, stage.left as f64)
    });
    in_front + QUEUE * left / rows + GATHERED * (apart + SINK * last / rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(rows: u64, stages: &[(u64, bool)], reserves: bool) -> RefillProfile {
        let stages = stages
            .iter()
            .map(|&(left, looks_up)| StageProfile { left, looks_up })
            .collect();
        RefillProfile {
            rows,
            stages,
            reserves,
        }
    }

    #[test]
    fn rows_are_gathered_where_few_are_left() {
        let auto = |p: &RefillProfile| after(LaneRefill::Auto, p);
        // Half pass the filter, few the look-up: behind both.
        let few = profile(1 << 30, &[(1 << 29, false), (1 << 22, true)], true);
        assert_eq!(auto(&few), Some(2));
        // Few pass the first look-up, all of these the others: behind the first.
        let through = |left| [(left, true); 4];
        let first = profile(1 << 30, &through(1 << 24), false);
        assert_eq!(auto(&first), Some(1));
        // More of them, which wait for the first look-up, unless there are barriers.
        assert_eq!(auto(&profile(1 << 30, &through(1 << 26), false)), None);
        assert_eq!(auto(&profile(1 << 30, &through(1 << 26), true)), Some(1));
        // Most rows are left.
        let most = profile(1 << 30, &[(1 << 29, false), (1 << 29, true)], false);
        assert_eq!(auto(&most), None);
        assert_eq!(after(LaneRefill::On, &most), Some(1));
        assert_eq!(after(LaneRefill::Off, &few), None);
        assert_eq!(auto(&profile(0, &[(0, false)], false)), None);
    }
}
