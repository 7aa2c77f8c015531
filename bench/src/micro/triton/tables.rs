//! Two tables of 16-byte rows in host memory, and what their join comes to, from row numbers on the CPU.
//!
//! The build side has every key once, in no order; each probing row has one of its keys, drawn evenly (the workload of
//! Lutz et al., SIGMOD 2022, section 6.1). A row is a key and a payload, random numbers of 63 bits each, in columns.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use datafusion::arrow::datatypes::DataType;
use warpline_gpu::column::{Column, ColumnStatistics, Encoding};
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::synthetic::Outcome;
use warpline_gpu::tables::{ResidentProvider, ResidentTable};

use crate::error::{Error, Result};
use crate::micro::Bench;
use crate::micro::data::mix;

/// Names of the tables in queries.
pub(super) const BUILD: &str = "warpline_bench_r";
pub(super) const PROBE: &str = "warpline_bench_s";
/// The join: how many pairs there are, and sums modulo 2^64 over both payloads and over their products, which only the
/// right pairs give.
pub(super) const QUERY: &str = "SELECT count(*) AS pairs, sum(r.v) AS r, sum(s.v) AS s, sum(r.v * s.v) AS rs \
                                FROM warpline_bench_s s JOIN warpline_bench_r r ON s.k = r.k";
/// Bytes of a row.
pub(super) const ROW_BYTES: u64 = 16;

const BITS: u64 = (1 << 63) - 1;
/// Columns are padded with zeros to a multiple of this.
const PADDING: usize = 256;
/// Values that a thread takes at least.
const CHUNK: usize = 1 << 14;
/// Tell the columns apart.
const DRAWN: u64 = 0x5eed_0001 << 32;
const BUILD_PAYLOAD: u64 = 0x5eed_0002 << 32;
const PROBE_PAYLOAD: u64 = 0x5eed_0003 << 32;

/// The key of a number: each of 63 bits comes from one number.
pub(super) fn key(number: u64) -> u64 {
    // Odd factors and shifted copies are one-to-one modulo a power of two.
    let x = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & BITS;
    let x = (x ^ (x >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9) & BITS;
    x ^ (x >> 31)
}

fn payload(of: u64, number: u64) -> u64 {
    mix(of ^ number) >> 1
}

/// Which of `rows` build rows the probing row `row` matches.
fn drawn(rows: u64, row: u64) -> u64 {
    ((u128::from(mix(DRAWN ^ row)) * u128::from(rows)) >> 64) as u64
}

/// Does `work` on ranges that cover `0..rows`, one a thread, and returns what each gives.
pub(super) fn in_parallel<T: Send>(rows: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let size = chunk(rows);
    thread::scope(|scope| {
        let starts = (0..rows).step_by(size);
        let threads: Vec<_> = starts
            .map(|start| {
                let work = &work;
                scope.spawn(move || work(start..rows.min(start + size)))
            })
            .collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.collect()
    })
}

fn chunk(rows: usize) -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    rows.div_ceil(threads).max(CHUNK)
}

/// The words of a buffer in host memory.
pub(super) fn words(buffer: &mut DeviceBuffer) -> Result<&mut [[u8; 8]]> {
    let bytes = buffer.host_bytes_mut();
    let bytes = bytes.ok_or_else(|| Error::Bench("host memory cannot be written".into()))?;
    Ok(bytes.as_chunks_mut::<8>().0)
}

/// Writes `rows` values by row number, and zeros behind them.
pub(super) fn fill(
    buffer: &mut DeviceBuffer,
    rows: usize,
    value: impl Fn(u64) -> u64 + Sync,
) -> Result<()> {
    let (values, tail) = words(buffer)?.split_at_mut(rows);
    tail.fill([0; 8]);
    let size = chunk(rows);
    thread::scope(|scope| {
        for (number, values) in values.chunks_mut(size).enumerate() {
            let value = &value;
            scope.spawn(move || {
                for (row, word) in (number * size..).zip(values) {
                    *word = value(row as u64).to_le_bytes();
                }
            });
        }
    });
    Ok(())
}

/// A column of `BIGINT` in the memory of what does not fit, which the device reads across a link.
fn column(
    bench: &Bench,
    rows: usize,
    statistics: ColumnStatistics,
    value: impl Fn(u64) -> u64 + Sync,
) -> Result<Column> {
    let bytes = (rows * 8).next_multiple_of(PADDING).max(PADDING);
    let purpose = "a table of a benchmark, in host memory (warpline.host_memory)";
    let runtime = bench.runtime();
    let mut buffer = runtime.host_pool().allocate(bytes, purpose)?;
    fill(&mut buffer, rows, value)?;
    let far = bench.far_pool()?;
    if !Arc::ptr_eq(far, runtime.host_pool()) {
        let there = far.allocate(bytes, "a table of a benchmark, on another device")?;
        let stream = runtime.lease_stream()?;
        there.copy_from(&stream, 0, &buffer, 0, bytes)?;
        runtime.device().synchronize(&stream)?;
        buffer = there;
    }
    Ok(Column {
        data_type: DataType::Int64,
        rows,
        encoding: Encoding::Integer { width: 8, base: 0 },
        data: Arc::new(buffer),
        validity: None,
        statistics,
    })
}

/// All that is known of random numbers of 63 bits.
fn wide() -> ColumnStatistics {
    ColumnStatistics {
        range: Some((0, BITS.into())),
        ..ColumnStatistics::default()
    }
}

/// Both tables.
pub(super) struct Tables {
    pub(super) build: ResidentProvider,
    pub(super) probe: ResidentProvider,
}

impl Tables {
    /// Of `rows` rows each.
    pub(super) fn new(bench: &Bench, rows: u64) -> Result<Self> {
        let runtime = bench.runtime();
        let count = usize::try_from(rows)
            .map_err(|_| Error::Bench(format!("{rows} rows are more than can be addressed")))?;
        let unique = ColumnStatistics {
            distinct: Some(count),
            distinct_estimate: Some(rows),
            unique: true,
            ..wide()
        };
        // So many of `rows` keys are drawn in as many draws.
        let some = ColumnStatistics {
            distinct_estimate: Some((rows as f64 * (1.0 - (-1.0f64).exp())).ceil() as u64),
            ..wide()
        };
        let table = |name, keys, values| -> Result<ResidentProvider> {
            let columns = vec![("k".to_string(), keys), ("v".to_string(), values)];
            let table = {
                let (pool, streams) = (Arc::clone(runtime.pool()), Arc::clone(runtime.streams()));
                ResidentTable::try_new(pool, streams, name, columns)?
            };
            Ok(ResidentProvider(Arc::new(table)))
        };
        Ok(Self {
            build: table(
                BUILD,
                column(bench, count, unique, key)?,
                column(bench, count, wide(), |n| payload(BUILD_PAYLOAD, n))?,
            )?,
            probe: table(
                PROBE,
                column(bench, count, some, |row| key(drawn(rows, row)))?,
                column(bench, count, wide(), |row| payload(PROBE_PAYLOAD, row))?,
            )?,
        })
    }
}

/// What [`QUERY`] gives over tables of `rows` rows, as [`warpline_gpu::synthetic::sum`] adds up its one row.
pub(super) fn answer(rows: u64) -> Outcome {
    let sums = in_parallel(rows as usize, |range| {
        let mut sums = [0u64; 3];
        for row in range {
            let (row, number) = (row as u64, drawn(rows, row as u64));
            let (r, s) = (payload(BUILD_PAYLOAD, number), payload(PROBE_PAYLOAD, row));
            for (sum, value) in sums.iter_mut().zip([r, s, r.wrapping_mul(s)]) {
                *sum = sum.wrapping_add(value);
            }
        }
        sums
    });
    let total = |i: usize| sums.iter().fold(0, |all, s| s[i].wrapping_add(all));
    Outcome::of_row(&[rows, total(0), total(1), total(2)])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_different_and_positive() {
        let keys: HashSet<u64> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
        assert!(keys.iter().all(|key| *key <= BITS));
    }

    #[test]
    fn answers_do_not_depend_on_threads() {
        let rows = 100_000;
        let pairs = (0..rows).map(|row| {
            let r = payload(BUILD_PAYLOAD, drawn(rows, row));
            (r, payload(PROBE_PAYLOAD, row))
        });
        let (mut r, mut s, mut rs) = (0u64, 0u64, 0u64);
        for (left, right) in pairs {
            r = r.wrapping_add(left);
            s = s.wrapping_add(right);
            rs = rs.wrapping_add(left.wrapping_mul(right));
        }
        assert_eq!(answer(rows), Outcome::of_row(&[rows, r, s, rs]));
        assert_ne!(answer(rows), answer(rows - 1));
    }
}
