//! The `warpline` program: a SQL shell, the list of devices, the TPC-H benchmark and micro-benchmarks.

use std::process::ExitCode;

/// DataFusion allocates and frees many small buffers from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A copy of this program may have been started to compile kernels.
    if warpline::serve_compiler_if_asked() {
        return ExitCode::SUCCESS;
    }
    warpline::run_program(std::env::args_os().collect())
}
