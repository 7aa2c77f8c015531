//! What is joined in a benchmark, row by row, and the sums that the result must have.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::bench::data::{Zipf, check, mix};
use crate::error::Result;

/// What is joined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) build_rows: u64,
    pub(super) probe_rows: u64,
    /// Different build keys; as many as rows: every key once.
    pub(super) distinct: u64,
    /// Different numbers that probing keys are made of: those below `distinct` have matches.
    pub(super) domain: u64,
    pub(super) zipf: f64,
    pub(super) key_width: u32,
    pub(super) columns: u64,
    pub(super) column_width: u32,
}

impl Workload {
    /// Rows of both sides alike, every key once, every probing row matched, two columns of the key's width.
    pub(super) fn even(rows: u64, key_width: u32) -> Self {
        Self {
            build_rows: rows,
            probe_rows: rows,
            distinct: rows.max(1),
            domain: rows.max(1),
            zipf: 0.0,
            key_width,
            columns: 2,
            column_width: key_width,
        }
    }

    pub(super) fn unique(&self) -> bool {
        self.distinct >= self.build_rows
    }

    /// Numbers are spread over the range by a factor without common divisor.
    fn spread(number: u64, range: u64) -> u64 {
        const PRIME: u128 = 2_654_435_761;
        (u128::from(number) * PRIME % u128::from(range.max(1))) as u64
    }

    /// The number that the key of a build row is made of.
    pub(super) fn build_number(&self, row: u64) -> u64 {
        if self.unique() {
            Self::spread(row, self.build_rows)
        } else {
            mix(row) % self.distinct
        }
    }

    /// The same of a probing row.
    pub(super) fn probe_number(&self, zipf: &Zipf, row: u64) -> u64 {
        Self::spread(zipf.rank(row) - 1, self.domain)
    }

    /// The key of a number: different for different numbers, all bits in use.
    pub(super) fn key(&self, number: u64) -> u64 {
        match self.key_width {
            4 => u64::from((number as u32).wrapping_mul(0x9e37_79b1)),
            _ => number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }
}

/// Value of a column.
pub(super) fn value(side: u64, column: u64, row: u64) -> u64 {
    mix(row << 4 | side << 3 | column)
}

/// Sums that the result must have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) key: u64,
    pub(super) columns: Vec<u64>,
    /// Of the products of the first columns of both sides: whether the right rows were paired.
    pub(super) products: u64,
}

/// Values on the host.
pub(super) enum Column {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Column {
    pub(super) fn get(&self, row: usize) -> u64 {
        match self {
            Self::Narrow(values) => u64::from(values[row]),
            Self::Wide(values) => values[row],
        }
    }
}

/// Sum over rows modulo 2^64.
pub(super) fn total(rows: usize, value: impl Fn(usize) -> u64 + Sync) -> Result<u64> {
    let sum = AtomicU64::new(0);
    check(rows, |range| {
        let part = range.map(&value).fold(0u64, u64::wrapping_add);
        sum.fetch_add(part, Relaxed);
        Ok(())
    })?;
    Ok(sum.into_inner())
}

/// What the join gives, by the rows of each key: their number, and the sum of their first column.
pub(super) fn expected(
    workload: &Workload,
    build_number: &(dyn Fn(u64) -> u64 + Sync),
    probe_number: &(dyn Fn(u64) -> u64 + Sync),
) -> Result<(u64, Sums)> {
    let distinct = workload.distinct as usize;
    let narrow = |value: u64| match workload.column_width {
        4 => u64::from(value as u32),
        _ => value,
    };
    let sides = [
        (0u64, workload.build_rows, build_number),
        (1, workload.probe_rows, probe_number),
    ];
    let zeroed = || -> Vec<AtomicU64> { (0..distinct).map(|_| AtomicU64::new(0)).collect() };
    let mut counts = Vec::new();
    let mut firsts = Vec::new();
    for (side, rows, number) in sides {
        let (count, first) = (zeroed(), zeroed());
        check(rows as usize, |range| {
            for row in range {
                let number = number(row as u64) as usize;
                if number < distinct {
                    count[number].fetch_add(1, Relaxed);
                    first[number].fetch_add(narrow(value(side, 0, row as u64)), Relaxed);
                }
            }
            Ok(())
        })?;
        counts.push(count);
        firsts.push(first);
    }
    let of = |side: usize, number: usize| counts[side][number].load(Relaxed);
    let pairs = total(distinct, |number| of(0, number) * of(1, number))?;
    let key = total(distinct, |number| {
        let pairs = of(0, number) * of(1, number);
        workload.key(number as u64).wrapping_mul(pairs)
    })?;
    let mut columns = Vec::new();
    for (side, rows, number) in sides {
        for column in 0..workload.columns {
            columns.push(total(rows as usize, |row| {
                let number = number(row as u64) as usize;
                let partners = match number < distinct {
                    true => of(1 - side as usize, number),
                    false => 0,
                };
                narrow(value(side, column, row as u64)).wrapping_mul(partners)
            })?);
        }
    }
    let products = match workload.columns {
        0 => 0,
        _ => total(distinct, |number| {
            let build = firsts[0][number].load(Relaxed);
            build.wrapping_mul(firsts[1][number].load(Relaxed))
        })?,
    };
    let sums = Sums {
        key,
        columns,
        products,
    };
    Ok((pairs, sums))
}
