//! Counts the distinct values of a number column while its chunks are at hand: exactly with a bitmap where the range is
//! moderate, else by HyperLogLog (Flajolet et al., 2007), whose bias between its two regimes is a few percent.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::chunk::{Chunk, Codes, Values};
use super::parallel::map;
use super::sketch::{Sketch, Smallest, smallest_of};
use crate::error::Result;

/// A bitmap is taken for up to so many possible values a row: one byte a row.
const BITS_PER_ROW: u64 = 8;
/// ... and always up to this many.
const SMALL: u64 = 1 << 16;
/// Rows that a thread takes at a time.
const SHARE: usize = 1 << 20;
/// Bits of a hash that choose a register: 2^14 registers, a standard error of 0.8 %.
pub(super) const PRECISION: u32 = 14;

/// Number of distinct non-null values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Exact(u64),
    Estimate(u64),
}

/// Count the values of all chunks, on all cores, and sketch them. `range` is theirs, as for
/// [`super::ColumnStatistics::range`]; `unique`: no value repeats. `None` for chunks of strings.
///
/// Host memory: at most a byte a row.
///
/// # Errors
/// [`crate::GpuError::Internal`] when a thread panics.
pub(super) fn count<'a>(
    chunks: impl Iterator<Item = &'a Chunk>,
    range: Option<(i128, i128)>,
    unique: bool,
) -> Result<Option<(Count, Sketch)>> {
    let mut rows = 0;
    let mut shares: Vec<Vec<&Chunk>> = Vec::new();
    for chunk in chunks {
        if matches!(
            chunk.values,
            Values::Dictionary(_) | Values::Bytes { .. } | Values::Written
        ) {
            return Ok(None);
        }
        // A chunk belongs to the share in which it begins.
        if rows % SHARE < chunk.rows || shares.is_empty() {
            shares.push(Vec::new());
        }
        rows += chunk.rows;
        if let Some(share) = shares.last_mut() {
            share.push(chunk);
        }
    }
    if unique {
        let parts = map(shares, |share| smallest_of(&share))?;
        return Ok(Some((Count::Exact(rows as u64), merged(parts))));
    }
    let counter = Counter::new(range, rows);
    map(shares, |share| counter.add(&share))?;
    Ok(Some(counter.finish()?))
}

fn merged(parts: Vec<Smallest>) -> Sketch {
    let mut all = Smallest::new();
    for part in parts {
        all.merge(part);
    }
    Sketch::of_smallest(all)
}

/// The least value of `range` and how far the others go, where a bitmap of them is worth it for so many rows.
pub(super) fn bitmap_span(range: Option<(i128, i128)>, rows: usize) -> Option<(i128, u64)> {
    let most = SMALL.max((rows as u64).saturating_mul(BITS_PER_ROW));
    let (min, max) = range?;
    let span = u64::try_from(max.wrapping_sub(min)).ok()?;
    (span < most).then_some((min, span))
}

/// Counts values that come in several shares, on any threads.
pub(super) struct Counter {
    rows: usize,
    seen: Seen,
}

enum Seen {
    /// A bit for each possible value from `min` on.
    Bitmap { min: i128, bits: Vec<AtomicU64> },
    /// The registers of HyperLogLog, and the smallest hashes.
    Registers(Mutex<(Vec<u8>, Smallest)>),
}

impl Counter {
    /// For at most `rows` rows, whose values lie in `range`.
    pub(super) fn new(range: Option<(i128, i128)>, rows: usize) -> Self {
        let seen = match bitmap_span(range, rows) {
            Some((min, span)) => Seen::Bitmap {
                min,
                bits: (0..span / 64 + 1).map(|_| AtomicU64::new(0)).collect(),
            },
            None => Seen::Registers(Mutex::new((vec![0; 1 << PRECISION], Smallest::new()))),
        };
        Self { rows, seen }
    }

    /// Note the values of some chunks, which lie in the range.
    pub(super) fn add(&self, chunks: &[&Chunk]) {
        match &self.seen {
            Seen::Bitmap { min, bits } => {
                for chunk in chunks {
                    for_each_value(chunk, |value| {
                        let place = value.wrapping_sub(*min) as u64;
                        let (word, bit) = (&bits[(place / 64) as usize], 1 << (place % 64));
                        // Values repeat: look before locking the cache line.
                        if word.load(Ordering::Relaxed) & bit == 0 {
                            word.fetch_or(bit, Ordering::Relaxed);
                        }
                    });
                }
            }
            Seen::Registers(all) => {
                let mut registers = vec![0u8; 1 << PRECISION];
                let mut smallest = Smallest::new();
                for chunk in chunks {
                    for_each_value(chunk, |value| {
                        let hash = hash(value);
                        smallest.add(hash);
                        let register = &mut registers[(hash >> (64 - PRECISION)) as usize];
                        let rank = (hash << PRECISION | 1 << (PRECISION - 1)).leading_zeros() + 1;
                        *register = (*register).max(rank as u8);
                    });
                }
                let (merged, hashes) = &mut *all.lock();
                for (merged, own) in merged.iter_mut().zip(registers) {
                    *merged = (*merged).max(own);
                }
                hashes.merge(smallest);
            }
        }
    }

    /// How many values differ of those that were noted up to now.
    pub(super) fn so_far(&self) -> u64 {
        match &self.seen {
            Seen::Bitmap { bits, .. } => {
                let words = bits.iter().map(|word| word.load(Ordering::Relaxed));
                words.map(|word| u64::from(word.count_ones())).sum()
            }
            Seen::Registers(all) => estimate(&all.lock().0),
        }
    }

    /// What was counted, and which values these are, in brief.
    ///
    /// # Errors
    /// [`crate::GpuError::Internal`] when a thread panics.
    pub(super) fn finish(self) -> Result<(Count, Sketch)> {
        match self.seen {
            Seen::Bitmap { min, bits } => {
                let (count, smallest) = set_bits(&bits, min)?;
                Ok((Count::Exact(count), Sketch::of_smallest(smallest)))
            }
            Seen::Registers(all) => {
                let (registers, smallest) = all.into_inner();
                let count = Count::Estimate(estimate(&registers).min(self.rows as u64));
                Ok((count, Sketch::of_smallest(smallest)))
            }
        }
    }
}

/// Distinct values to be expected in `all` rows where so many were `seen` in so many rows. Values of which each row draws one
/// at random, all alike, are met again (the occupancy problem); those of `clustered` rows are not, later rows have others.
pub(super) fn expected_distinct(seen: (u64, u64), all: u64, clustered: bool) -> u64 {
    /// Of fewer repetitions nothing can be concluded.
    const MOSTLY_NEW: f64 = 0.95;
    let (seen, rows, all) = (seen.0 as f64, seen.1 as f64, all as f64);
    if seen < 1.0 || rows < 1.0 {
        return all as u64;
    }
    let met = |values: f64, rows: f64| values * (1.0 - (-rows / values).exp());
    if clustered || seen > MOSTLY_NEW * rows {
        return (seen * all / rows).min(all).round() as u64;
    }
    let (mut low, mut high) = (seen, seen.max(all) * 16.0);
    for _ in 0..64 {
        let middle = (low * high).sqrt();
        match met(middle, rows) < seen {
            true => low = middle,
            false => high = middle,
        }
    }
    met(high, all).clamp(seen, all).round() as u64
}

/// How many bits are set, and the smallest hashes of the values that they stand for.
fn set_bits(bitmap: &[AtomicU64], min: i128) -> Result<(u64, Smallest)> {
    let pieces: Vec<(usize, &[AtomicU64])> = bitmap.chunks(SHARE / 64).enumerate().collect();
    let parts = map(pieces, |(piece, words)| {
        let (mut count, mut smallest) = (0, Smallest::new());
        for (i, word) in words.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            count += u64::from(bits.count_ones());
            let first = (piece * (SHARE / 64) + i) as i128 * 64;
            while bits != 0 {
                let place = first + i128::from(bits.trailing_zeros());
                smallest.add(hash(min.wrapping_add(place)));
                bits &= bits - 1;
            }
        }
        (count, smallest)
    })?;
    let (mut count, mut all) = (0, Smallest::new());
    for (own, smallest) in parts {
        count += own;
        all.merge(smallest);
    }
    Ok((count, all))
}

/// Visit every value that is not null; floats as their bits.
pub(super) fn for_each_value(chunk: &Chunk, mut visit: impl FnMut(i128)) {
    macro_rules! each {
        ($values:expr, $number:expr) => {
            match &chunk.validity {
                None => $values.iter().for_each(|value| visit($number(*value))),
                Some(_) => $values.iter().enumerate().for_each(|(row, value)| {
                    if chunk.is_valid(row) {
                        visit($number(*value));
                    }
                }),
            }
        };
    }
    match &chunk.values {
        Values::Integer { base, codes } => match codes {
            Codes::U8(codes) => each!(codes, |code| base.wrapping_add(i128::from(code))),
            Codes::U16(codes) => each!(codes, |code| base.wrapping_add(i128::from(code))),
            Codes::U32(codes) => each!(codes, |code| base.wrapping_add(i128::from(code))),
            Codes::U64(codes) => each!(codes, |code| base.wrapping_add(i128::from(code))),
            Codes::I128(codes) => each!(codes, |code| code),
        },
        Values::Bits(bits) => {
            for row in (0..chunk.rows).filter(|row| chunk.is_valid(*row)) {
                visit(i128::from(bits[row / 8] >> (row % 8) & 1));
            }
        }
        Values::Float4(values) => each!(values, |value: f32| i128::from(value.to_bits())),
        Values::Float8(values) => each!(values, |value: f64| i128::from(value.to_bits())),
        Values::Dictionary(_) | Values::Bytes { .. } | Values::Written => {}
    }
}

/// One row's value, or its code in the segment's dictionary; `None` for strings that lie as bytes.
pub(super) fn value_at(chunk: &Chunk, row: usize) -> Option<i128> {
    let code = |codes: &Codes| match codes {
        Codes::U8(codes) => codes.get(row).map(|c| i128::from(*c)),
        Codes::U16(codes) => codes.get(row).map(|c| i128::from(*c)),
        Codes::U32(codes) => codes.get(row).map(|c| i128::from(*c)),
        Codes::U64(codes) => codes.get(row).map(|c| i128::from(*c)),
        Codes::I128(codes) => codes.get(row).copied(),
    };
    match &chunk.values {
        // Codes of 128 bits are the values themselves.
        Values::Integer {
            codes: Codes::I128(codes),
            ..
        } => codes.get(row).copied(),
        Values::Integer { base, codes } => Some(base.wrapping_add(code(codes)?)),
        Values::Dictionary(codes) => code(codes),
        Values::Bits(bits) => Some(i128::from(bits.get(row / 8)? >> (row % 8) & 1)),
        Values::Float4(values) => values.get(row).map(|v| i128::from(v.to_bits())),
        Values::Float8(values) => values.get(row).map(|v| i128::from(v.to_bits())),
        Values::Bytes { .. } | Values::Written => None,
    }
}

/// A value's hash: equal values of columns of one type have equal ones.
pub(super) fn hash(value: i128) -> u64 {
    mix(value as u64 ^ mix((value >> 64) as u64 ^ (value >> 127) as u64))
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): numbers that look random, the same in every run.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The harmonic mean of the registers, or linear counting while many are empty.
pub(super) fn estimate(registers: &[u8]) -> u64 {
    let m = registers.len() as f64;
    let sum: f64 = registers.iter().map(|r| 0.5f64.powi(i32::from(*r))).sum();
    let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
    let empty = registers.iter().filter(|r| **r == 0).count();
    let estimate = if raw <= 2.5 * m && empty > 0 {
        m * (m / empty as f64).ln()
    } else {
        raw
    };
    estimate.round() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::column::{ChunkEncoder, StringPolicy};
    use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array};
    use std::sync::Arc;

    fn count_of(arrays: Vec<ArrayRef>) -> (Option<Count>, Option<(i128, i128)>) {
        let data_type = arrays[0].data_type().clone();
        let mut encoder = ChunkEncoder::new(data_type, StringPolicy::Auto).unwrap();
        for array in &arrays {
            encoder.push(array).unwrap();
        }
        let segment = encoder.finish();
        let range = segment.chunks.iter().filter_map(|chunk| chunk.range);
        let range = range.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let counted = count(segment.chunks.iter(), range, false).unwrap();
        (counted.map(|(count, _)| count), range)
    }

    #[test]
    fn moderate_ranges_are_counted_exactly_across_chunks_and_nulls() {
        for (rows, step) in [(1usize, 1i64), (1000, 1), (300_000, 3), (2_500_000, 1)] {
            let arrays = (0..rows).step_by(100_000).map(|start| -> ArrayRef {
                let end = (start + 100_000).min(rows);
                Arc::new(Int64Array::from_iter((start..end).map(|row| {
                    let value = (row as i64 * 7919 % (rows as i64 * 2 / 3 + 1)) * step - 17;
                    (row % 5 != 3).then_some(value)
                })))
            });
            let expected: std::collections::HashSet<usize> = (0..rows)
                .filter(|row| row % 5 != 3)
                .map(|row| row * 7919 % (rows * 2 / 3 + 1))
                .collect();
            let (count, _) = count_of(arrays.collect());
            assert_eq!(
                count,
                Some(Count::Exact(expected.len() as u64)),
                "{rows} rows"
            );
        }
    }

    #[test]
    fn the_first_rows_tell_about_how_many_values_there_are() {
        let close = |found: u64, wanted: u64| {
            let off = found.abs_diff(wanted);
            assert!(off * 10 <= wanted, "{found} for {wanted}");
        };
        for values in [1u64, 7, 2_500, 30_000, 200_000] {
            let draw = |rows: u64| {
                let drawn = (0..rows).map(|row| mix(row) % values);
                drawn.collect::<std::collections::HashSet<_>>().len() as u64
            };
            close(
                expected_distinct((draw(50_000), 50_000), 1_000_000, false),
                draw(1_000_000),
            );
        }
        // Four rows each, one value behind the other.
        close(expected_distinct((250, 1_000), 40_000, true), 10_000);
        // All different so far.
        close(expected_distinct((1_000, 1_000), 40_000, false), 40_000);
        assert_eq!(expected_distinct((0, 0), 10, false), 10);
    }

    #[test]
    fn wide_ranges_are_estimated_within_five_percent() {
        let close = |count: Option<Count>, distinct: u64| {
            let Some(Count::Estimate(estimate)) = count else {
                panic!("{count:?}");
            };
            assert!(
                estimate.abs_diff(distinct) * 100 <= distinct * 5,
                "{estimate} for {distinct}"
            );
        };
        for distinct in [10u64, 3_000, 40_000, 700_000] {
            let values = (0..800_000u64).map(|row| mix(row % distinct) as i64);
            close(
                count_of(vec![Arc::new(Int64Array::from_iter_values(values))]).0,
                distinct,
            );
            let wide = (0..800_000u64).map(|row| i128::from(mix(row % distinct)) << 50);
            close(
                count_of(vec![Arc::new(Decimal128Array::from_iter_values(wide))]).0,
                distinct,
            );
            let floats = (0..800_000u64).map(|row| (row % distinct) as f64);
            close(
                count_of(vec![Arc::new(Float64Array::from_iter_values(floats))]).0,
                distinct,
            );
        }
    }
}
