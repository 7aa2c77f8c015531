//! The kernel that copies many runs of bytes: source text and argument struct.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of `copy_runs` (`copy_runs.cu`).
    pub struct CopyRunsArgs {
        /// [`COPY_RUN_WORDS`] words a run, in the order of pieces: source, target, bytes (at least 1), first piece.
        pub table: DevicePtr as "const u64*",
        /// Number of runs.
        pub runs: u64,
        /// Pieces of all runs.
        pub pieces: u64,
        /// Bytes of a piece, counted from the line of 128 bytes that its run begins in; a multiple of 128.
        pub piece_bytes: u64,
    }
}

/// Words of a run.
pub const COPY_RUN_WORDS: usize = 4;
/// Threads of a block of `copy_runs`.
pub const COPY_RUNS_THREADS: u32 = 512;

/// Complete source of the kernel.
pub fn copy_runs() -> String {
    format!(
        "#define WL_BLOCK_THREADS {COPY_RUNS_THREADS}\n#include \"simt.cuh\"\n{}{}",
        CopyRunsArgs::CUDA,
        include_str!("../../cuda/copy_runs.cu")
    )
}
