//! Joins of two tables in host memory, from a fraction of device memory to many times it (Lutz et al., "Triton Join", SIGMOD
//! 2022, figure 13).
//!
//! On another device's memory in place of the host's (`--spill peer`), the same with the link between the devices.
//!
//! Both tables have as many rows, of 16 bytes; the result is a count and sums over the pairs, so that only the inputs and
//! the state of the join cross the link. Times are those of the kernels and copies, from both tables in host memory to the
//! result.
//!
//! The prediction is what the link allows: the first pass reads both tables and at the same time writes the partitions for
//! which there is no room, the second reads these again. It divides the bytes by what copies reach on this machine before the
//! first table is made: one way, and, for as many bytes as come and go at once, both ways, which on most machines is less.
//! Nothing else is in it. Beyond the budget that is all that counts: what the device does meanwhile is faster. Where
//! everything stays on the device, the link is idle in the second pass, so that its time comes on top: for each byte that came
//! across the link about 9 are moved in device memory (runs collected, a count and two passes, keys matched, pairs written
//! and read), an eighth of the time of the first pass at 55 GB/s and 4.2 TB/s if all of it ran at the speed of memory; and
//! the last stride of each table is partitioned when nothing comes any more. A hash table that is accessed at random across
//! the link does worse.

mod link;
mod partitioner;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use warpline_gpu::GpuError;

use super::answered::{Answered, Attempt, Repeat, answered_as_set};
use super::{Bench, Benchmark, Emit, Point, Spacing, Sweep};
use crate::error::{Error, Result};
use link::Link;
use partitioner::partitioner;
use tables::{BUILD, PROBE, QUERY, ROW_BYTES, Tables, answer};
use warpline_planner::ByteSize;

/// Joins larger than device memory.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "triton",
    about: "joins of two tables in host memory with a state of up to 16 times the device memory they may take",
    sweeps: &[
        Sweep {
            name: "sizes",
            about: "bytes of a table for each byte of --budget; both tables alike, 16-byte rows, results added up",
            x: "bytes of a table / budget",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { sizes(bench, emit).await }.boxed(),
        },
        Sweep {
            name: "partitioner",
            about: "the first pass by itself, from host memory to host memory, 16-byte rows; where rows are gathered",
            x: "fan-out",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { partitioner(bench, emit) }.boxed(),
        },
        Sweep {
            name: "runs",
            about: "1 GiB from host memory to device memory in runs, as partitions of many chunks come; by copy engine and kernel",
            x: "bytes of a run",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { link::runs(bench, emit) }.boxed(),
        },
    ],
};

/// Device memory for joins when not given.
const BUDGET: ByteSize = ByteSize(4 << 30);
const BUDGET_EMULATED: ByteSize = ByteSize(512 << 10);
/// Sizes of a table as shares of it; in the emulator, where only answers count, one that fits and one that does not.
const SIZES: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
const SIZES_EMULATED: [f64; 2] = [0.25, 2.0];
/// What `warpline.join` is set to for each line.
const LINES: [&str; 3] = ["triton", "phj_tr", "nphj"];
/// Partitions that stay in device memory take about this share of it: the rest is for rows at work.
const CACHED: f64 = 0.7;
/// After a run that is given up: how often memory is looked at, until it is back, …
const LOOK: Duration = Duration::from_millis(50);
/// … and how often at most.
const LOOKS: u32 = 1200;

/// Milliseconds that the link needs for a join of `bytes` bytes in all with a state of as many and `budget` bytes of device
/// memory.
fn link_bound(bytes: f64, budget: f64, link: Link) -> f64 {
    // Written while more is read, and read again.
    let spilled = (bytes - budget * CACHED).max(0.0);
    link.milliseconds(bytes, spilled, spilled)
}

async fn sizes(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    let emulated = if bench.emulated() {
        BUDGET_EMULATED
    } else {
        BUDGET
    };
    let budget = bench.budget.unwrap_or(emulated);
    // Other sweeps have the memory that there was.
    let before = bench.runtime().pool().statistics().budget;
    let measured = sizes_within(bench, budget, emit).await;
    if !bench.spills_to_peers() {
        let text = before.to_string();
        bench.set("warpline.device_memory", &text).await?;
    }
    // The setting counts from the next query on, which other sweeps do not run.
    bench.runtime().set_device_memory(Some(before))?;
    measured
}

/// The sizes, with `budget` bytes of device memory.
async fn sizes_within(bench: &Bench, budget: ByteSize, emit: &mut Emit<'_>) -> Result<()> {
    for (setting, value) in [("warpline.min_rows", "0"), ("warpline.index_joins", "off")] {
        bench.set(setting, value).await?;
    }
    if bench.spills_to_peers() {
        // The setting would be that of the other devices as well.
        bench.runtime().set_device_memory(Some(budget.0))?;
    } else {
        let bytes = budget.0.to_string();
        bench.set("warpline.device_memory", &bytes).await?;
    }
    let link = Link::measured(bench)?;
    log::info!(
        "the link carries {:.1} GB/s one way and {:.1} GB/s each way at once",
        link.read / 1e9,
        link.both / 1e9
    );
    let mut given_up = [false; LINES.len()];
    let sizes: &[f64] = match bench.emulated() {
        true => &SIZES_EMULATED,
        false => &SIZES,
    };
    for size in sizes.iter().copied() {
        let rows = ((budget.0 as f64 * size) as u64 / ROW_BYTES).max(1);
        let tables = match Tables::new(bench, rows) {
            Ok(tables) => tables,
            Err(Error::Gpu(error @ GpuError::OutOfDeviceMemory { .. })) => {
                log::warn!("no larger tables: {error}");
                break;
            }
            Err(other) => return Err(other),
        };
        let context = bench.context();
        context.register_table(BUILD, Arc::new(tables.build))?;
        context.register_table(PROBE, Arc::new(tables.probe))?;
        let want = answer(rows);
        for (line, given_up) in LINES.iter().zip(&mut given_up) {
            if *given_up {
                continue;
            }
            bench.set("warpline.join", line).await?;
            let run = answered_as_set(bench, QUERY, line, want, Repeat::Timed);
            match within(bench, run).await? {
                Attempt::Done(done) => emit(point(link, budget, line, (size, rows), done))?,
                Attempt::Impossible(why) => {
                    log::warn!("{line} ends before {size} times the budget: {why}");
                    *given_up = true;
                }
            }
        }
        for table in [BUILD, PROBE] {
            context.deregister_table(table)?;
        }
    }
    Ok(())
}

/// The outcome of `run`, unless that takes longer than the limit.
async fn within(bench: &Bench, run: impl Future<Output = Result<Attempt>>) -> Result<Attempt> {
    let pool = bench.runtime().pool();
    let before = pool.statistics().in_use;
    if let Ok(outcome) = tokio::time::timeout(bench.limit, run).await {
        return outcome;
    }
    // What was queued before the run was given up still has its memory.
    for _ in 0..LOOKS {
        if pool.statistics().in_use <= before {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(Attempt::Impossible(format!(
        "its runs take more than {} s together",
        bench.limit.as_secs()
    )))
}

fn point(
    link: Link,
    budget: ByteSize,
    line: &str,
    (size, rows): (f64, u64),
    done: Answered,
) -> Point {
    let bytes = 2 * rows * ROW_BYTES;
    let predicted = link_bound(bytes as f64, budget.0 as f64, link);
    let mut point = Point::new(line, size, 2 * rows, bytes, done.timing);
    point.algorithm = Some(done.choice.algorithm);
    point.predicted(predicted).over_link(done.link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_carries_what_is_spilled_twice_and_the_first_time_beside_what_is_read() {
        let link = |both| Link { read: 50e9, both };
        // Everything fits: 1 GB at 50 GB/s.
        assert!((link_bound(1e9, 4e9, link(40e9)) - 20.0).abs() < 1e-9);
        // 8.8 GB, of which 6 are spilled: 8.8 in while 6 go out, then 6 in.
        assert!((link_bound(8.8e9, 4e9, link(50e9)) - 296.0).abs() < 1e-6);
        assert!((link_bound(8.8e9, 4e9, link(40e9)) - 326.0).abs() < 1e-6);
    }
}
