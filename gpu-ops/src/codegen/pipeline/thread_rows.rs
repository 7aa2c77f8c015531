//! How many rows a thread holds at once.

use crate::codegen::ir::context::Context;
use crate::codegen::ir::scope::{ScopeColumn, Shape};
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::column::Encoding;
use crate::device::DeviceInfo;

/// Bytes of a thread's rows while they are added to groups; 128-bit values count twice, as what is computed with them
/// fills as many registers again. More rows keep more reads under way, but fewer threads find registers, and rows that
/// add to groups wait for atomics. On an H200 2^27 rows with sums of 128-bit decimals took 1.14 / 0.94 / 0.84 ms with 8 / 4 /
/// 2 rows a thread in 4 groups and 5.5 / 5.0 / 4.4 ms in 2^20 groups; rows of ten bytes took 0.24 ms with 8 and 0.30 with 4.
const HELD: u32 = 96;

/// Threads that a multiprocessor has room for.
const RESIDENT_THREADS: u64 = 2048;

/// Rows for each of a multiprocessor's share in the emulator, so that its small tables have kernels of every number of rows.
const EMULATED_ROWS: u64 = 32;

/// Turns of each of the device's threads, at least, before it takes more than one row at once.
const TURNS: u64 = 2;

/// Statements for all rows of a thread together.
const STATEMENTS: usize = 256;

/// Rows that one thread adds up: what its share of the tiles is when every multiprocessor has one block.
pub(in crate::codegen) fn rows_a_thread(
    context: &Context<'_>,
    bound: u64,
    thread_rows: u32,
) -> u64 {
    let tile_rows = u64::from(thread_rows) * u64::from(BLOCK_THREADS);
    let tiles = bound.div_ceil(tile_rows).max(1);
    let grid = u64::from(context.device.multiprocessors).clamp(1, tiles);
    tiles.div_ceil(grid).saturating_mul(u64::from(thread_rows))
}

/// As many of `most` rows (a power of two) as a thread should hold that adds up the columns `read` of `scope`; at least one.
pub(in crate::codegen) fn held_rows(scope: &[ScopeColumn], read: &[usize], most: u32) -> u32 {
    let mut read = read.to_vec();
    read.sort_unstable();
    read.dedup();
    let columns = read.iter().filter_map(|i| scope.get(*i));
    let bytes: u32 = columns.map(held_bytes).sum();
    halved(most, |rows| rows * bytes > HELD)
}

/// As many of `most` rows (a power of two) as a thread should hold for which so many `statements` are made: the compiler writes them
/// down a row each, and takes its time over them. A kernel of 60 statements for 8 rows took NVRTC 1.1 s, the longest by far of its
/// query; long rows keep enough reads under way without company.
pub(in crate::codegen) fn short_rows(statements: usize, most: u32) -> u32 {
    halved(most, |rows| rows as usize * statements > STATEMENTS)
}

/// As many of `most` rows (a power of two) as a thread should hold of about so many in all: more are for pipelines that keep every thread
/// of the device busy. The compiler writes each of a thread's rows down, which is what a first run waits for: those of TPC-DS at
/// scale 1 took 34.2 s on an H200, not 40.0, and the kernels of its 89 queries 23.7 ms, not 23.9. With 16 turns it was 33.4 s,
/// but the kernels of TPC-H at scale 1 took 2.8 ms, not 2.4.
pub(in crate::codegen) fn spread_rows(rows: u64, device: &DeviceInfo, most: u32) -> u32 {
    let rows_each = match device.emulated {
        true => EMULATED_ROWS,
        false => RESIDENT_THREADS * TURNS,
    };
    let enough = u64::from(device.multiprocessors.max(1)) * rows_each;
    halved(most, |held| u64::from(held).saturating_mul(enough) > rows)
}

/// As many of `most` rows (a power of two) as a thread should hold in blocks of so many threads that take a partition of about `rows`
/// rows each: with more, some threads would have none, and all wait for those that have.
pub(in crate::codegen) fn rows_in_partitions(rows: u64, threads: u32, most: u32) -> u32 {
    halved(most, |held| u64::from(held) * u64::from(threads) > rows)
}

/// `most`, halved as long as that is `too_many` and more than one.
fn halved(most: u32, too_many: impl Fn(u32) -> bool) -> u32 {
    let mut rows = most;
    while rows > 1 && too_many(rows) {
        rows /= 2;
    }
    rows
}

/// What a row of a column counts for.
fn held_bytes(column: &ScopeColumn) -> u32 {
    let width = match &column.shape {
        Shape::Resident(resident) => match &resident.encoding {
            Encoding::Integer { width, .. }
            | Encoding::Float { width }
            | Encoding::Dictionary { width, .. } => (*width).into(),
            Encoding::Bits | Encoding::Bytes { .. } => 0,
        },
        Shape::Stored(layout) => u32::from(layout.width),
        Shape::Computed { .. } | Shape::Mask(_) => 0,
    };
    match width {
        16.. => 2 * width,
        _ => width,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_have_a_thread_each() {
        let device = |emulated| DeviceInfo {
            name: String::new(),
            id: String::new(),
            memory: 1 << 30,
            compute_capability: (9, 0),
            multiprocessors: 100,
            memory_bandwidth: 0.0,
            shared_memory_per_block: 1 << 16,
            shared_memory_per_multiprocessor: 1 << 17,
            l2_cache: 1 << 20,
            driver: String::new(),
            compiler: String::new(),
            emulated,
        };
        let turn = 100 * RESIDENT_THREADS * TURNS;
        for (rows, most, held) in [
            (0, 8, 1),
            (turn - 1, 8, 1),
            (2 * turn, 8, 2),
            (8 * turn - 1, 8, 4),
            (8 * turn, 8, 8),
            (u64::MAX, 4, 4),
            (u64::MAX, 1, 1),
        ] {
            assert_eq!(spread_rows(rows, &device(false), most), held, "{rows} rows");
        }
        // Tables of tests come in several shapes.
        let turn = 100 * EMULATED_ROWS;
        assert_eq!(spread_rows(turn, &device(true), 8), 1);
        assert_eq!(spread_rows(8 * turn, &device(true), 8), 8);
    }
}
