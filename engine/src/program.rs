//! The `warpline` program as a function: for its own executable, and for hosts such as the Python package.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli;

/// Planning recurses once per level of an expression or plan, and deeply so in builds without optimisation.
const STACK_BYTES: usize = 64 << 20;

/// How long work that was cancelled may go on when the program is about to end.
const LAST_WORK: Duration = Duration::from_secs(2);

/// Runs the program with these arguments, the first of which is its name, and returns the status that it is to exit with.
///
/// Call [`crate::serve_compiler_if_asked`] before, or [`crate::start_compilers_by`] where this process is no copy of the
/// program.
pub fn run_program(arguments: Vec<OsString>) -> ExitCode {
    let main = std::thread::Builder::new()
        .name("warpline".to_string())
        .stack_size(STACK_BYTES)
        .spawn(|| run(arguments));
    match main.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic has printed its own message.
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => fail(&format!(
            "cannot start a thread: {error}; raise the limit on threads or memory"
        )),
    }
}

/// Ends the process with this status, now: handlers that libraries run at the end, such as the driver's, which gives back what the
/// system takes back anyway, are left out. They take 0.1 s of a program that answers one query in 0.35.
pub fn leave(code: ExitCode) -> ! {
    // What is printed has gone out with the ends of lines.
    let _ = std::io::stdout().flush();
    warpline_gpu::device::leave(status_of(code))
}

/// The number that a status is.
pub fn status_of(code: ExitCode) -> u8 {
    // The library tells no number, but all of them can be asked.
    let mut numbers = 0..=u8::MAX;
    numbers
        .find(|number| ExitCode::from(*number) == code)
        .unwrap_or(1)
}

fn run(arguments: Vec<OsString>) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // One that computes without a pause leaves another that hears Ctrl-C.
        .worker_threads(cores.max(2))
        .thread_stack_size(STACK_BYTES / 4)
        .build();
    match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(cli::run(arguments));
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
