//! Copies of many runs of bytes in one kernel.

use warpline_cuda::kernels::{self, COPY_RUN_WORDS, COPY_RUNS_THREADS, CopyRunsArgs};

use super::{grid, launch, scratch};
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::Result;
use crate::runtime::Runtime;

/// Bytes of a piece of a run, which a block copies at a time.
const PIECE: u64 = 64 << 10;
/// Bytes that pieces are aligned to in their source.
const LINE: u64 = 128;
/// Runs of one launch: their table is small enough that the driver takes it along with the command.
const MOST_RUNS: usize = 1 << 10;
/// Across the link one multiprocessor in so many copies: together they have more under way than the link carries in the time
/// that an access takes, and the others are left to kernels on other streams.
const SHARE_OF_MULTIPROCESSORS: u32 = 4;

/// Bytes that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRun {
    /// Where they are.
    pub from: DevicePtr,
    /// Where they go.
    pub to: DevicePtr,
    /// How many.
    pub bytes: u64,
}

/// Copy runs of bytes by a kernel. `across_link`: sources or targets lie in host memory, and few blocks are enough.
///
/// Best when source and target of a run are alike in the lowest four bits of their address; no run needs more than to be
/// there. Costs: see `copy_runs.cu`.
///
/// # Errors
/// [`crate::GpuError::OutOfDeviceMemory`] for 32 bytes a run of scratch, [`crate::GpuError::Compile`] and
/// [`crate::GpuError::Device`].
///
/// # Safety
/// All runs are live memory that the device reaches; no target overlaps a source or another target.
pub unsafe fn copy_runs(
    runtime: &Runtime,
    stream: &Stream,
    runs: &[ByteRun],
    across_link: bool,
) -> Result<()> {
    let runs: Vec<ByteRun> = runs.iter().copied().filter(|run| run.bytes > 0).collect();
    for runs in runs.chunks(MOST_RUNS) {
        let (table, pieces) = table(runs);
        let buffer = scratch(runtime, stream, table.len() as u64, 8, "runs of a copy")?;
        buffer.upload_values(stream, 0, &table)?;
        let args = CopyRunsArgs {
            table: buffer.ptr(),
            runs: runs.len() as u64,
            pieces,
            piece_bytes: PIECE,
        };
        let multiprocessors = runtime.device().info().multiprocessors;
        let blocks = match across_link {
            true => (multiprocessors / SHARE_OF_MULTIPROCESSORS).max(1),
            false => u32::MAX,
        };
        let kernel = runtime.builtin("copy_runs", 0, kernels::copy_runs)?;
        let config = LaunchConfig {
            grid: grid(runtime, pieces, 1).min(blocks),
            block: COPY_RUNS_THREADS,
            shared_bytes: 0,
        };
        // SAFETY: the caller vouches for the runs; the table names no others, and is used again only behind this.
        unsafe { launch(runtime, stream, &kernel, config, &args)? };
    }
    Ok(())
}

/// The runs as the kernel reads them, and how many pieces they have.
fn table(runs: &[ByteRun]) -> (Vec<u64>, u64) {
    let mut words = Vec::with_capacity(runs.len() * COPY_RUN_WORDS);
    let mut pieces = 0;
    for run in runs {
        words.extend([run.from.0, run.to.0, run.bytes, pieces]);
        pieces += (run.from.0 % LINE + run.bytes).div_ceil(PIECE);
    }
    (words, pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_begin_at_lines_of_the_source() {
        let run = |from, bytes| ByteRun {
            from: DevicePtr(from),
            to: DevicePtr(1 << 40),
            bytes,
        };
        let runs = [
            run(1 << 30, PIECE),
            run((1 << 30) + 8, PIECE),
            run((1 << 30) + 120, 8),
        ];
        let (words, pieces) = table(&runs);
        let firsts: Vec<u64> = words.chunks(COPY_RUN_WORDS).map(|run| run[3]).collect();
        assert_eq!((firsts, pieces), (vec![0, 1, 3], 4));
    }
}
