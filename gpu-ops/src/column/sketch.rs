//! A column in brief: the smallest hashes of its values, which show what it shares with another column, and how often
//! values repeat in a sample of its rows, which shows skew.
//!
//! The smallest hashes of two columns are a coordinated sample: below the larger of neither's last hash both list all
//! values they have, so the share of one's that the other lists is the share of one's values that the other has (Beyer,
//! Haas, Reinwald, Sismanis and Gemulla, "On Synopses for Distinct-Value Estimation Under Multiset Operations",
//! SIGMOD 2007). A subset is known as one without error; else the standard error is that of a sample as large as what is
//! listed, 1.6 % for columns of about as many values, more for a column of far fewer values than the other.

use std::ops::Range;

use super::chunk::Chunk;
use super::distinct::{for_each_value, hash};

/// Hashes that a sketch keeps: 8 bytes each.
pub(crate) const HASHES: usize = 1024;
/// Rows of the sample for skew.
pub(crate) const SAMPLE: usize = 1 << 14;
/// Fewer pairs of equal values in the sample tell nothing of how skewed a column is.
const LEAST_PAIRS: u64 = 32;

/// What is kept of a column's values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sketch {
    /// The smallest hashes of the distinct values, ascending.
    hashes: Vec<u64>,
    /// Are these all?
    complete: bool,
    /// The probability that two rows have equal values; `None` when too few of the sample do.
    collisions: Option<f64>,
}

impl Sketch {
    /// The share of this column's distinct values that `other` has too; `None` when either has no values.
    pub fn contained_in(&self, other: &Self) -> Option<f64> {
        let last = |sketch: &Self| {
            if sketch.complete {
                Some(u64::MAX)
            } else {
                sketch.hashes.last().copied()
            }
        };
        let below = last(self)?.min(last(other)?);
        let listed = |sketch: &Self| sketch.hashes.partition_point(|hash| *hash <= below);
        let ours = &self.hashes[..listed(self)];
        let theirs = &other.hashes[..listed(other)];
        if ours.is_empty() || other.hashes.is_empty() {
            return None;
        }
        let common = ours
            .iter()
            .filter(|hash| theirs.binary_search(hash).is_ok())
            .count();
        Some(common as f64 / ours.len() as f64)
    }

    /// The probability that two rows that are drawn at random have equal values: the sum of the squared
    /// frequencies. `None` when values repeat too rarely to tell.
    pub fn collisions(&self) -> Option<f64> {
        self.collisions
    }

    /// Of hashes below a bound, in any order: `complete` when these are all that the column has.
    pub(crate) fn of_hashes(mut hashes: Vec<u64>, complete: bool) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        let complete = complete && hashes.len() <= HASHES;
        hashes.truncate(HASHES);
        Self {
            hashes,
            complete,
            collisions: None,
        }
    }

    /// Without the sample of rows.
    pub(super) fn of_smallest(smallest: Smallest) -> Self {
        let (hashes, complete) = smallest.finish();
        Self {
            hashes,
            complete,
            collisions: None,
        }
    }

    /// With what a sample of rows shows: `values` are theirs.
    pub(crate) fn with_sample(mut self, mut values: Vec<i128>) -> Self {
        let rows = values.len() as u64;
        values.sort_unstable();
        let pairs: u64 = values
            .chunk_by(|a, b| a == b)
            .map(|run| run.len() as u64 * (run.len() as u64 - 1) / 2)
            .sum();
        if pairs >= LEAST_PAIRS {
            self.collisions = Some(pairs as f64 / (rows * (rows - 1) / 2) as f64);
        }
        self
    }
}

/// Collects the smallest of many hashes.
pub(super) struct Smallest {
    /// Below `bound`, with repetitions.
    hashes: Vec<u64>,
    /// Hashes from here on are not among the smallest.
    bound: u64,
    /// Was any hash left out?
    dropped: bool,
}

impl Smallest {
    pub(super) fn new() -> Self {
        Self {
            hashes: Vec::with_capacity(4 * HASHES),
            bound: u64::MAX,
            dropped: false,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        if hash >= self.bound {
            self.dropped |= hash > self.bound;
            return;
        }
        self.hashes.push(hash);
        if self.hashes.len() >= 4 * HASHES {
            self.tidy();
        }
    }

    /// All that `other` has, too.
    pub(super) fn merge(&mut self, other: Self) {
        self.dropped |= other.dropped;
        // The bound itself is among the other's smallest.
        for hash in other.hashes {
            self.add(hash);
        }
        if other.dropped {
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        if self.hashes.len() > HASHES {
            self.hashes.truncate(HASHES);
            self.dropped = true;
        }
        if self.hashes.len() == HASHES {
            // Equal hashes are dropped as repetitions, which is no loss.
            self.bound = self.hashes[HASHES - 1];
        }
    }

    fn finish(mut self) -> (Vec<u64>, bool) {
        self.tidy();
        (self.hashes, !self.dropped)
    }
}

/// The smallest hashes of all values of these chunks.
pub(super) fn smallest_of(chunks: &[&Chunk]) -> Smallest {
    let mut smallest = Smallest::new();
    for chunk in chunks {
        for_each_value(chunk, |value| smallest.add(hash(value)));
    }
    smallest
}

/// Rows that a sample of `rows` rows takes: all, or evenly spread ones, with places in their share that vary, so that no
/// period of the data is met. Those of them that lie in `within`.
pub(super) fn sampled_rows(rows: usize, within: Range<usize>) -> impl Iterator<Item = usize> {
    let taken = rows.min(SAMPLE);
    let share = |row: usize| (row as u128 * taken as u128 / (rows as u128).max(1)) as usize;
    // The shares of neighbours reach into the range at most.
    let shares = share(within.start).saturating_sub(1)..(share(within.end) + 2).min(taken);
    shares
        .map(move |i| {
            let start = (i as u128 * rows as u128 / taken as u128) as usize;
            let end = ((i as u128 + 1) * rows as u128 / taken as u128) as usize;
            start + (hash(i as i128) % (end - start).max(1) as u64) as usize
        })
        .filter(move |row| within.contains(row))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn sketch(values: impl Iterator<Item = i128>) -> Sketch {
        let mut smallest = Smallest::new();
        values.for_each(|value| smallest.add(hash(value)));
        Sketch::of_smallest(smallest)
    }

    #[test]
    fn subsets_are_known_exactly_and_overlaps_closely() {
        for size in [1i128, 10, 1023, 1024, 1025, 5000, 200_000] {
            let all = sketch(0..size);
            assert_eq!(all.contained_in(&all), Some(1.0), "{size}");
            let some = sketch((0..size).step_by(3));
            assert_eq!(some.contained_in(&all), Some(1.0), "{size}");
            // Every value many times, in another order.
            let repeated = sketch((0..4 * size).rev().map(|v| v % size));
            assert_eq!(repeated, all, "{size}");
        }
        let all = sketch(0..100_000);
        for (low, high, share) in [
            (50_000, 150_000, 0.5),
            (97_000, 197_000, 0.03),
            (100_000, 300_000, 0.0),
        ] {
            let other = sketch(low..high);
            let found = other.contained_in(&all).unwrap();
            assert!((found - share).abs() < 0.05, "{low}..{high}: {found}");
        }
        // The share is that of the asked one, whatever the other's size.
        let few = sketch((0..2_000).map(|v| v * 100));
        let found = few.contained_in(&all).unwrap();
        assert!((found - 0.5).abs() < 0.25, "{found}");
        let found = all.contained_in(&few).unwrap();
        assert!((found - 0.01).abs() < 0.01, "{found}");
        assert_eq!(Sketch::default().contained_in(&all), None);
        assert_eq!(all.contained_in(&sketch(std::iter::empty())), None);
    }

    #[test]
    fn merged_sketches_are_those_of_all_values() {
        let mut whole = Smallest::new();
        for part in 0..7i128 {
            let mut smallest = Smallest::new();
            (part * 1000..part * 1000 + 3000).for_each(|v| smallest.add(hash(v)));
            whole.merge(smallest);
        }
        assert_eq!(Sketch::of_smallest(whole), sketch(0..9000));
        let mut few = Smallest::new();
        few.merge(Smallest::new());
        (0..5).for_each(|v| few.add(hash(v)));
        let few = Sketch::of_smallest(few);
        assert!(few.complete && few.hashes.len() == 5);
        assert!(!sketch(0..1025).complete && sketch(0..1024).complete);
    }

    #[test]
    fn samples_show_how_often_values_repeat() {
        let of = |values: Vec<i128>| Sketch::default().with_sample(values).collisions();
        let near = |found: Option<f64>, expected: f64| {
            let found = found.unwrap();
            assert!(
                (found / expected - 1.0).abs() < 0.1,
                "{found} for {expected}"
            );
        };
        let rows = SAMPLE as i128;
        near(of((0..rows).map(|i| i % 100).collect()), 0.01);
        near(of((0..rows).map(|_| 7).collect()), 1.0);
        // Half of the rows have one value.
        near(
            of((0..rows).map(|i| if i % 2 == 0 { -1 } else { i }).collect()),
            0.25,
        );
        assert_eq!(of((0..rows).collect()), None);
        assert_eq!(of(vec![]), None);
        assert_eq!(of(vec![1]), None);
    }

    #[test]
    fn sampled_rows_are_rows_in_order_and_spread() {
        for rows in [
            0usize,
            1,
            5,
            SAMPLE - 1,
            SAMPLE,
            SAMPLE + 1,
            10 * SAMPLE + 7,
            1 << 40,
        ] {
            let taken: Vec<usize> = sampled_rows(rows, 0..rows).collect();
            assert_eq!(taken.len(), rows.min(SAMPLE));
            assert!(taken.windows(2).all(|w| w[0] < w[1]), "{rows}");
            assert!(taken.last().is_none_or(|last| *last < rows));
            // Shares of the rows have shares of the sample.
            for cut in [0, rows / 3, rows / 2, rows.saturating_sub(1), rows] {
                let parts = sampled_rows(rows, 0..cut).chain(sampled_rows(rows, cut..rows));
                assert!(parts.eq(taken.iter().copied()), "{rows} cut at {cut}");
            }
        }
    }
}
