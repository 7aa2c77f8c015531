//! Price of a join by a range: a sorted side and binary searches, against testing each pair of rows with equal keys.

use warpline_gpu::machine::Machine;

use crate::choose::price::{Price, ms};

/// Bytes of a word of the sorted keys, of an entry's number, and of the smallest transfer of memory.
const WORD: f64 = 8.0;
const NUMBER: f64 = 4.0;
const SECTOR: f64 = 32.0;

/// A join of which a condition compares a value of each side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandWorkload {
    /// Rows of the side that is sorted.
    pub build_rows: f64,
    /// Rows of the other side.
    pub probe_rows: f64,
    /// Rows of the sorted side that have the keys of a row of the other side: all of them where there are no keys.
    pub candidates: f64,
    /// Pairs that pass.
    pub matches: f64,
    /// Bits of the keys and the value by which rows are sorted.
    pub bits: u32,
}

/// Why the side is sorted; `None` where testing pairs is cheaper.
pub(crate) fn choose(forced: bool, workload: &BandWorkload, machine: &Machine) -> Option<String> {
    let (sorted, pairs) = (sorted(workload, machine), pairs(workload, machine));
    if forced {
        return Some(format!("warpline.range_joins = sorted: {sorted}"));
    }
    (sorted.ms < pairs).then(|| format!("{sorted}; with a test of each pair {}", ms(pairs)))
}

/// Milliseconds for which `n` pairs are enumerated, with a value of each side read.
fn enumerated(w: &BandWorkload, n: f64, machine: &Machine) -> f64 {
    let rows = machine.gather(WORD, w.probe_rows * WORD);
    let entries = machine.gather(WORD, w.candidates.min(w.build_rows) * SECTOR);
    n * (rows + entries) * 1e-9
}

fn pairs(w: &BandWorkload, machine: &Machine) -> f64 {
    enumerated(w, w.probe_rows * w.candidates, machine) + machine.launches(2.0)
}

fn sorted(w: &BandWorkload, machine: &Machine) -> Price {
    let bits = f64::from(w.bits.clamp(1, 128));
    let sort = machine.partition(w.build_rows, WORD, &[NUMBER], bits)
        + w.build_rows * machine.gather(WORD, w.build_rows * WORD) * 1e-9;
    // The first steps of all searches read the same few words.
    let depth = w.build_rows.max(2.0).log2().ceil();
    let step = |at: f64| machine.gather(WORD, (at.exp2() * SECTOR).min(w.build_rows * WORD));
    let steps: f64 = (0..depth as u32).map(|at| step(f64::from(at))).sum();
    Price::default()
        .with("sort", sort)
        .with(
            "search",
            2.0 * w.probe_rows * steps * 1e-9 + machine.launches(1.0),
        )
        .with(
            "pairs",
            enumerated(w, w.matches, machine) + machine.launches(2.0),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(rows: f64) -> BandWorkload {
        BandWorkload {
            build_rows: rows,
            probe_rows: rows,
            candidates: rows,
            matches: rows,
            bits: 32,
        }
    }

    #[test]
    fn large_sides_are_sorted_and_few_pairs_are_tested() {
        let machine = Machine::h200();
        let reason = choose(false, &workload(1e6), &machine).expect("a sort");
        assert!(reason.contains("with a test of each pair"), "{reason}");
        assert_eq!(choose(false, &workload(20.0), &machine), None);
        assert!(choose(true, &workload(20.0), &machine).is_some());
        // Keys that leave one candidate.
        let keyed = BandWorkload {
            candidates: 1.0,
            ..workload(1e6)
        };
        assert_eq!(choose(false, &keyed, &machine), None);
    }
}
