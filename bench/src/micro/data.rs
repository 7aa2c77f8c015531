//! Reproducible keys and columns, generated from row numbers and checked on all cores.

use std::ops::Range;
use std::thread;

use crate::error::Result;

/// Rows that a thread takes at least.
const CHUNK: usize = 1 << 14;

/// Pseudo-random bits of a number (splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `rows` values by row number.
pub(super) fn generate<T: Copy + Default + Send>(
    rows: usize,
    value: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let mut values = vec![T::default(); rows];
    let size = chunk_size(rows);
    thread::scope(|scope| {
        for (number, chunk) in values.chunks_mut(size).enumerate() {
            let value = &value;
            scope.spawn(move || {
                for (row, slot) in (number * size..).zip(chunk) {
                    *slot = value(row as u64);
                }
            });
        }
    });
    values
}

/// Checks ranges that cover `rows` rows.
///
/// # Errors
/// The first that a range reports.
pub(super) fn check(rows: usize, range: impl Fn(Range<usize>) -> Result<()> + Sync) -> Result<()> {
    let size = chunk_size(rows);
    thread::scope(|scope| {
        let checks: Vec<_> = (0..rows)
            .step_by(size)
            .map(|start| {
                let range = &range;
                scope.spawn(move || range(start..rows.min(start + size)))
            })
            .collect();
        checks.into_iter().try_for_each(|check| match check.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn chunk_size(rows: usize) -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    rows.div_ceil(threads).max(CHUNK)
}

/// Ranks drawn from a Zipf-like distribution over 1 ..= `values`: the density x^-exponent, rounded down. Exponent 0 is
/// uniform.
#[derive(Debug, Clone, Copy)]
pub(super) struct Zipf {
    exponent: f64,
    values: u64,
    whole: f64,
}

impl Zipf {
    pub(super) fn new(values: u64, exponent: f64) -> Self {
        let end = values as f64 + 1.0;
        let whole = if (exponent - 1.0).abs() < 1e-9 {
            end.ln()
        } else {
            (end.powf(1.0 - exponent) - 1.0) / (1.0 - exponent)
        };
        Self {
            exponent,
            values,
            whole,
        }
    }

    /// The rank of draw `number`.
    pub(super) fn rank(&self, number: u64) -> u64 {
        let bits = mix(number);
        if self.exponent == 0.0 {
            return 1 + ((u128::from(bits) * u128::from(self.values)) >> 64) as u64;
        }
        // The inverse of the distribution function.
        let area = (bits >> 11) as f64 / (1u64 << 53) as f64 * self.whole;
        let x = if (self.exponent - 1.0).abs() < 1e-9 {
            area.exp()
        } else {
            (area * (1.0 - self.exponent) + 1.0).powf(1.0 / (1.0 - self.exponent))
        };
        (x as u64).clamp(1, self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_repeat_in_any_number_of_chunks() {
        let values = generate(100_000, |row| mix(row) as u32);
        assert!(
            values
                .iter()
                .enumerate()
                .all(|(row, v)| *v == mix(row as u64) as u32)
        );
        assert!(generate(0, mix).is_empty());
    }

    #[test]
    fn ranks_follow_the_exponent() {
        let share = |exponent: f64| {
            let zipf = Zipf::new(1 << 20, exponent);
            let ranks = generate(100_000, |row| zipf.rank(row));
            assert!(
                ranks.iter().all(|r| (1..=1 << 20).contains(r)),
                "{exponent}"
            );
            ranks.iter().filter(|r| **r == 1).count() as f64 / 1e5
        };
        assert!(share(0.0) < 0.001);
        // The integral from 1 to 2 over the whole: 1 / log2(2^20 + 1), and about 1 - 1/sqrt(2).
        assert!((share(1.0) - 0.05).abs() < 0.01, "{}", share(1.0));
        assert!((share(1.5) - 0.293).abs() < 0.01, "{}", share(1.5));
    }

    #[test]
    fn a_failing_range_is_reported() {
        let failing = |range: Range<usize>| match range.contains(&70_000) {
            true => Err(super::super::wrong("row 70000")),
            false => Ok(()),
        };
        assert!(check(100_000, failing).is_err());
        assert!(check(60_000, failing).is_ok());
        assert!(check(0, failing).is_ok());
    }
}
