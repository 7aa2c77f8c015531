//! Kernels under AddressSanitizer and UndefinedBehaviorSanitizer. A finding ends the process, so each runs in
//! a child: this test binary again, with one of the ignored tests below and the sanitizer's runtime preloaded.

use std::process::{Command, Output};

use warpline_cuda::emulator::{CompileOptions, EmulatorError, LaunchConfig, Sanitizer, Schedule};
use warpline_cuda::{DevicePtr, kernel_args};

use crate::support::{compile_with, device, emulator, run};

kernel_args! {
    pub struct SanitizedArgs {
        pub input: DevicePtr as "const i32*",
        pub out: DevicePtr as "i32*",
        pub n: u64,
        /// Elements beyond the end to write.
        pub beyond: u64,
    }
}

const BODY: &str = r"
struct Shared { i32 last[256]; BlockScratch<i32> scratch; };

WL_KERNEL(sanitized, SanitizedArgs, args) {
    WL_SHARED(Shared, s);
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    i32 v = i < args.n ? args.input[i] : 0;
    s.last[threadIdx.x] = v;
    __syncthreads();
    i32 sum = block_sum(v, s.scratch);
    i32 twice = s.last[blockDim.x - 1 - threadIdx.x] + v;
    __syncwarp();
    if (i < args.n + args.beyond) args.out[i] = twice + sum % 2;
}
";

fn sanitize(sanitizer: Sanitizer, largest: i32, beyond: u64) {
    let options = CompileOptions {
        sanitizer,
        ..CompileOptions::default()
    };
    let kernel = compile_with("sanitized.cu", &[SanitizedArgs::CUDA], BODY, &options)
        .kernel("sanitized")
        .unwrap();
    for schedule in Schedule::all(1) {
        let mut input = vec![1i32; 500];
        input[17] = largest;
        let mut out = vec![0i32; 500];
        let args = SanitizedArgs {
            input: device(&mut input),
            out: device(&mut out),
            n: 500,
            beyond,
        };
        run(
            &kernel,
            LaunchConfig::new(4, 128).with_shared(256 * 4 + 32 * 4),
            &args,
            schedule,
        )
        .unwrap();
        assert_eq!(out[200], 2 + i32::from(out[200] % 2 == 1));
    }
}

/// Some distributions ship compilers without the sanitizers' runtimes; there is nothing to test there.
fn available(sanitizer: Sanitizer) -> bool {
    let missing = match sanitizer {
        Sanitizer::Address => emulator().address_sanitizer_runtime().err(),
        _ => {
            let options = CompileOptions {
                sanitizer,
                ..CompileOptions::default()
            };
            let probe = "#include \"simt.cuh\"\n";
            emulator().compile("probe.cu", probe, &options).err()
        }
    };
    if let Some(error) = &missing {
        eprintln!("skipped: {sanitizer:?} is not installed: {error}");
    }
    missing.is_none()
}

/// Runs one of the tests below in a child process.
fn child(test: &str, preload: bool) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        test,
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    // Lanes end by being left behind, and stacks are the emulator's: leaks and stack uses are not looked for.
    command.env(
        "ASAN_OPTIONS",
        "detect_leaks=0:detect_stack_use_after_return=0",
    );
    if preload {
        command.env(
            "LD_PRELOAD",
            emulator().address_sanitizer_runtime().unwrap(),
        );
    }
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn address_sanitizer_passes_a_right_kernel_and_finds_a_write_out_of_bounds() {
    if !available(Sanitizer::Address) {
        return;
    }
    let clean = child("sanitizers::child_address_clean", true);
    assert!(
        clean.status.success() && text(&clean).contains("1 passed"),
        "{}",
        text(&clean)
    );
    let found = child("sanitizers::child_address_overrun", true);
    let report = text(&found);
    assert!(!found.status.success(), "{report}");
    assert!(
        report.contains("AddressSanitizer: heap-buffer-overflow")
            && report.contains("WRITE of size 4"),
        "{report}"
    );
    assert!(
        report.contains("sanitized.cu"),
        "the report names the source: {report}"
    );
}

#[test]
fn address_sanitizer_finds_a_write_behind_shared_memory() {
    if !available(Sanitizer::Address) {
        return;
    }
    let found = child("sanitizers::child_address_shared", true);
    let report = text(&found);
    assert!(
        !found.status.success() && report.contains("AddressSanitizer: heap-buffer-overflow"),
        "{report}"
    );
}

#[test]
fn undefined_behaviour_sanitizer_passes_a_right_kernel_and_finds_an_overflow() {
    if !available(Sanitizer::Undefined) {
        return;
    }
    let clean = child("sanitizers::child_undefined_clean", false);
    assert!(
        clean.status.success() && text(&clean).contains("1 passed"),
        "{}",
        text(&clean)
    );
    let found = child("sanitizers::child_undefined_overflow", false);
    let report = text(&found);
    assert!(!found.status.success(), "{report}");
    assert!(
        report.contains("signed integer overflow") && report.contains("sanitized.cu:"),
        "{report}"
    );
}

#[test]
fn functions_on_strings_stay_inside_their_column() {
    for (sanitizer, test, preload) in [
        (Sanitizer::Address, "strings::child_address_strings", true),
        (
            Sanitizer::Undefined,
            "strings::child_undefined_strings",
            false,
        ),
    ] {
        if available(sanitizer) {
            let clean = child(test, preload);
            assert!(
                clean.status.success() && text(&clean).contains("1 passed"),
                "{}",
                text(&clean)
            );
        }
    }
}

#[test]
fn without_its_runtime_address_sanitizer_is_refused_with_the_remedy() {
    if !available(Sanitizer::Address) {
        return;
    }
    let options = CompileOptions {
        sanitizer: Sanitizer::Address,
        ..CompileOptions::default()
    };
    let result = emulator().compile("sanitized.cu", BODY, &options);
    match result.unwrap_err() {
        EmulatorError::Load { cause, .. } => assert!(cause.contains("LD_PRELOAD="), "{cause}"),
        other => panic!("{other}"),
    }
}

#[test]
#[ignore = "run by the tests above in a child process"]
fn child_address_clean() {
    sanitize(Sanitizer::Address, 5, 0);
}

#[test]
#[ignore = "run by the tests above in a child process"]
fn child_address_overrun() {
    sanitize(Sanitizer::Address, 5, 1);
}

#[test]
#[ignore = "run by the tests above in a child process"]
fn child_address_shared() {
    let body = "struct Words { i32 w[8]; };
        WL_KERNEL(sanitized, SanitizedArgs, args) { WL_SHARED(Words, s); s.w[threadIdx.x + args.beyond] = 1; }";
    let options = CompileOptions {
        sanitizer: Sanitizer::Address,
        ..CompileOptions::default()
    };
    let kernel = compile_with("sanitized.cu", &[SanitizedArgs::CUDA], body, &options)
        .kernel("sanitized")
        .unwrap();
    let args = SanitizedArgs {
        input: DevicePtr::NULL,
        out: DevicePtr::NULL,
        n: 0,
        beyond: 1,
    };
    run(
        &kernel,
        LaunchConfig::new(1, 8).with_shared(32),
        &args,
        Schedule::Ascending,
    )
    .unwrap();
}

#[test]
#[ignore = "run by the tests above in a child process"]
fn child_undefined_clean() {
    sanitize(Sanitizer::Undefined, 5, 0);
}

#[test]
#[ignore = "run by the tests above in a child process"]
fn child_undefined_overflow() {
    sanitize(Sanitizer::Undefined, i32::MAX, 0);
}
