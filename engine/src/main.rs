//! The `warpline` program: a SQL shell, the list of devices, the TPC-H benchmark and micro-benchmarks.

use std::process::ExitCode;

/// DataFusion allocates and frees many small buffers from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many hardware queues the driver gives a process; it reads this once, when it is first used. Streams share the 8 that there are
/// by default, and what decodes a chunk of a parquet file then waits for the kernels of others: 105 columns of 60 million rows loaded
/// in 8.5 s on an H100, with 32 queues in 6.5 to 7.4.
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// As many as there can be.
const MOST_QUEUES: &str = "32";

fn main() -> ExitCode {
    // A copy of this program may have been started to compile kernels.
    if warpline::serve_compiler_if_asked() {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(QUEUES).is_none() {
        // SAFETY: no other thread has been started that could read the environment meanwhile.
        unsafe { std::env::set_var(QUEUES, MOST_QUEUES) };
    }
    warpline::run_program(std::env::args_os().collect())
}
