//! The `warpline` program: a SQL shell, the list of devices, the TPC-H benchmark and micro-benchmarks.

use std::process::ExitCode;

/// DataFusion allocates and frees many small buffers from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many hardware queues the driver gives a process; it reads this once, when it is first used. Streams share the 8 that there are
/// by default, and what is in one waits for what is before it: loads of parquet files took a twelfth less with 32 when each of their
/// tasks had a stream of its own (TPC-H at scale 10, an H200; a load has 8 streams since). But opening the device and giving it back
/// take 0.65 s more, so that only what stays asks for them.
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// As many as there can be.
const MOST_QUEUES: &str = "32";
/// The commands that stay.
const STAYING: [&str; 2] = ["serve", "worker"];

fn main() -> ExitCode {
    // A copy of this program may have been started to compile kernels.
    if warpline::serve_compiler_if_asked() {
        return ExitCode::SUCCESS;
    }
    // Whatever else the word may stand for, more queues do no harm.
    let stays = std::env::args_os().any(|word| STAYING.iter().any(|command| word == *command));
    if stays && std::env::var_os(QUEUES).is_none() {
        // SAFETY: no other thread has been started that could read the environment meanwhile.
        unsafe { std::env::set_var(QUEUES, MOST_QUEUES) };
    }
    let code = warpline::run_program(std::env::args_os().collect());
    warpline::leave(code)
}
