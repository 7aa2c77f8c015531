//! The program as a compiler of kernels for another process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use warpline_gpu::GpuError;
use warpline_gpu::device::compiler::{Compilers, HELPER_ARGUMENT, Way};
use warpline_gpu::device::nvrtc;

const ARCHITECTURE: (u32, u32) = (9, 0);

/// These tests look for the helpers of this process: one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn helper(parent: u32) -> Child {
    Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args([HELPER_ARGUMENT, &parent.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_helper_ends_with_its_pipe() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let parent = std::process::id();
    let idle = helper(parent).wait_with_output().unwrap();
    assert!(idle.status.success() && idle.stdout.is_empty(), "{idle:?}");
    let mut confused = helper(parent);
    let mut input = confused.stdin.take().unwrap();
    input.write_all(b"SELECT 1;\n").unwrap();
    // The pipe is still open.
    let confused = confused.wait_with_output().unwrap();
    assert!(confused.stdout.is_empty(), "{confused:?}");
}

#[test]
fn a_helper_does_not_outlive_who_started_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let started = || {
        let mut helper = helper(std::process::id());
        // A source before the library is named: the helper answers when it is set up to end with this thread.
        let request = b"WLC2\x02\x03\0\0\0".iter().chain(&[0; 24]);
        let request: Vec<u8> = request.copied().collect();
        helper.stdin.as_mut().unwrap().write_all(&request).unwrap();
        let mut answer = [0; 4];
        let output = helper.stdout.as_mut().unwrap();
        output.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"WLC2");
        helper
    };
    let mut left = thread::spawn(started).join().unwrap();
    // The thread is gone, the pipe is open.
    let input = left.stdin.take().unwrap();
    assert_eq!(left.wait().unwrap().signal(), Some(9));
    drop(input);
    // It is asked for by a process that is not its parent.
    let mut foreign = helper(1);
    let input = foreign.stdin.take().unwrap();
    assert!(foreign.wait().unwrap().success());
    drop(input);
}

fn source(number: usize) -> String {
    format!(
        "#include \"simt.cuh\"\nstruct Args {{ u64* out; }};\n\
         WL_KERNEL(probe, Args, args) {{ args.out[threadIdx.x] = {number}; }}\n"
    )
}

/// The helpers of this process.
fn helpers() -> Vec<i32> {
    let own = format!("{HELPER_ARGUMENT}\0{}\0", std::process::id());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_helper = |number: &i32| {
        let command = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let parent = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        let parent = parent.contains(&format!("PPid:\t{}\n", std::process::id()));
        parent && (command.is_empty() || command.ends_with(own.as_bytes()))
    };
    numbers.filter(is_helper).collect()
}

fn kill(process: i32) {
    let mut kill = Command::new("kill");
    // It may have ended by itself.
    let _ = kill.args(["-9", &process.to_string()]).status().unwrap();
}

#[test]
fn kernels_come_from_helpers_whatever_happens_to_these() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let required = std::env::var("WARPLINE_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
    if let Err(error) = nvrtc::version() {
        assert!(!required, "{error}");
        println!("not run: {error}");
        return;
    }
    let program = env!("CARGO_BIN_EXE_warpline");
    let compilers = Compilers::new(vec![Way::Processes(program.into())], 3).unwrap();
    assert_eq!(compilers.way(), Way::Processes(program.into()));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= 12 {
                        return;
                    }
                    let cubin = compilers.compile("probe", &source(number), ARCHITECTURE, None);
                    let here = nvrtc::compile("probe", &source(number), ARCHITECTURE);
                    assert_eq!(cubin.unwrap(), here.unwrap());
                    if number == 6 {
                        helpers().into_iter().take(1).for_each(kill);
                    }
                }
            });
        }
    });
    assert!((1..=3).contains(&compilers.workers()));
    match compilers.compile("wrong", "int wrong = undeclared;\n", ARCHITECTURE, None) {
        Err(GpuError::Compile { kernel, log }) => {
            assert!(kernel == "wrong" && log.contains("wrong.cu(1)"), "{log}");
        }
        other => panic!("{:?}", other.map(|cubin| cubin.len())),
    }
    // All that wait for work are gone.
    helpers().into_iter().for_each(kill);
    compilers
        .compile("probe", &source(1), ARCHITECTURE, None)
        .unwrap();
    assert_eq!(compilers.way(), Way::Processes(program.into()));
    drop(compilers);
    // Other tests wait for programs of their own.
    let end = Instant::now() + Duration::from_secs(20);
    while !helpers().is_empty() {
        assert!(
            Instant::now() < end,
            "helpers live, or nobody waited for them"
        );
        thread::sleep(Duration::from_millis(20));
    }
}
