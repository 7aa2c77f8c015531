//! The program as a user runs it: its commands, its errors and their exit status.

#[allow(clippy::unwrap_used)]
mod bench;
#[cfg(feature = "cluster")]
mod cluster;
mod codec;
mod compiler;
#[cfg(feature = "delta")]
mod delta;
#[cfg(feature = "cluster")]
mod devices;
mod embedding;
mod examples;
mod explain;
mod formats;
mod growing;
mod jcch;
mod logging;
#[allow(clippy::unwrap_used)]
mod on_device;
mod plan_cache;
mod profile;
#[cfg(feature = "serve")]
mod serve;
mod session;
mod shell;
mod tpch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use warpline_gpu::device::cubin_cache::cache_directory;

/// What a run of the program left.
struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Outcome {
    /// Asserts a clean success.
    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(
            self.code, 0,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        self
    }

    /// Asserts exit status 1 and one line of error that has all of `parts`.
    #[track_caller]
    fn fails_with(self, parts: &[&str]) -> Self {
        assert_eq!(
            self.code, 1,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        let lines: Vec<&str> = self
            .stderr
            .lines()
            .filter(|l| l.starts_with("warpline: error: "))
            .collect();
        assert_eq!(lines.len(), 1, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for part in parts {
            assert!(lines[0].contains(part), "'{part}' is not in: {}", lines[0]);
        }
        self
    }

    /// Asserts that the arguments were refused, in words that have all of `parts`.
    #[track_caller]
    fn refuses_with(self, parts: &[&str]) -> Self {
        assert_eq!(
            self.code, 2,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "'{part}' is not in: {}",
                self.stderr
            );
        }
        self
    }
}

/// Where the program keeps compiled kernels: where the tests of this user do, so that each is compiled once.
fn kernel_cache() -> PathBuf {
    cache_directory("").unwrap_or_default()
}

/// Runs the program in a directory, with `input` on its standard input.
fn run_in(directory: &Path, arguments: &[&str], input: &str) -> Outcome {
    run_with(directory, arguments, input, &[])
}

/// The same with these variables of the environment.
fn run_with(
    directory: &Path,
    arguments: &[&str],
    input: &str,
    variables: &[(&str, &str)],
) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .env("WARPLINE_CACHE_DIR", kernel_cache())
        .env_remove("XDG_STATE_HOME")
        .env_remove("RUST_LOG")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The program may end before it has read all, which is no failure of the test.
    let _ = child
        .stdin
        .take()
        .expect("its input")
        .write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the program ends");
    Outcome {
        code: output.status.code().expect("an exit status"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Runs a test on threads whose stacks hold the planning of large queries in builds without optimization.
fn on_a_large_stack<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    const STACK: usize = 32 << 20;
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(STACK)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let thread = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || runtime().block_on(test()));
    thread.expect("a thread").join().expect("the test");
}

/// Runs the program without input.
fn run(arguments: &[&str]) -> Outcome {
    let directory = tempfile::tempdir().expect("a directory");
    run_in(directory.path(), arguments, "")
}

#[test]
fn the_version_tells_what_it_is_built_of() {
    let outcome = run(&["--version"]).ok();
    let text = outcome.stdout.trim();
    let parts = [env!("CARGO_PKG_VERSION"), "DataFusion ", "Arrow "];
    for part in parts {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.starts_with("warpline "), "{text}");
}

#[test]
fn devices_are_listed_with_reasons() {
    let outcome = run(&["devices"]).ok();
    assert!(
        outcome.stdout.lines().any(|line| line.starts_with("cpu")),
        "{}",
        outcome.stdout
    );
}

#[test]
fn help_names_the_commands() {
    let outcome = run(&["--help"]).ok();
    for word in [
        "devices",
        "tpch",
        "--command",
        "--file",
        "--device",
        "--require-gpu",
        "--set",
    ] {
        assert!(outcome.stdout.contains(word), "{word}");
    }
    run(&["nonsense"]).refuses_with(&["nonsense"]);
}
