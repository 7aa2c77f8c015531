//! The `warpline` program: a SQL shell, the list of devices, the TPC-H benchmark and micro-benchmarks.

mod cli;

use std::process::ExitCode;

/// DataFusion allocates and frees many small buffers from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Planning recurses once per level of an expression or plan, and deeply so in builds without optimisation.
const STACK_BYTES: usize = 64 << 20;

fn main() -> ExitCode {
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES / 4)
        .build();
    match runtime {
        Ok(runtime) => match runtime.block_on(cli::run()) {
            Ok(code) => code,
            Err(error) => fail(&error.to_string()),
        },
        Err(error) => fail(&format!(
            "cannot start threads: {error}; raise the limit on threads or memory"
        )),
    }
}

fn fail(message: &str) -> ExitCode {
    cli::print_error(message);
    ExitCode::FAILURE
}
