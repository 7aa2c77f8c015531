//! The `warpline` program: a SQL shell, the list of devices, the TPC-H benchmark and micro-benchmarks.

mod cli;

use std::process::ExitCode;
use std::time::Duration;

/// DataFusion allocates and frees many small buffers from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Planning recurses once per level of an expression or plan, and deeply so in builds without optimisation.
const STACK_BYTES: usize = 64 << 20;

/// How long work that was cancelled may go on when the program is about to end.
const LAST_WORK: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // A copy of this program may have been started to compile kernels.
    if warpline::serve_compiler_if_asked() {
        return ExitCode::SUCCESS;
    }
    let main = std::thread::Builder::new()
        .name("warpline".to_string())
        .stack_size(STACK_BYTES)
        .spawn(run);
    match main.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic has printed its own message.
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => fail(&format!(
            "cannot start a thread: {error}; raise the limit on threads or memory"
        )),
    }
}

fn run() -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // One that computes without a pause leaves another that hears Ctrl-C.
        .worker_threads(cores.max(2))
        .thread_stack_size(STACK_BYTES / 4)
        .build();
    match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(cli::run());
            runtime.shutdown_timeout(LAST_WORK);
            match outcome {
                Ok(code) => code,
                Err(error) => fail(&error.to_string()),
            }
        }
        Err(error) => fail(&format!(
            "cannot start threads: {error}; raise the limit on threads or memory"
        )),
    }
}

fn fail(message: &str) -> ExitCode {
    cli::print_error(message);
    ExitCode::FAILURE
}
