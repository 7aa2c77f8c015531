//! Compilation: its cache, its errors, and the argument structs both languages share.

use std::fs;

use warpline_cuda::emulator::{
    CompileOptions, Emulator, EmulatorError, EmulatorOptions, LaunchConfig, Schedule,
};
use warpline_cuda::{DevicePtr, KernelArgs, kernel_args, kernels};

use crate::support::{compile, device, emulator, run, source};

kernel_args! {
    /// Every kind of field.
    #[derive(PartialEq)]
    pub struct Nested {
        pub wide: u128,
        pub whole: i64,
        pub real: f64,
    }

    pub struct EveryField {
        pub nested: Nested,
        pub many: [u64; 3],
        pub out: DevicePtr as "u64*",
        pub columns: [DevicePtr; 2] as "const u32*",
        pub a: u32,
        pub b: i32,
        pub c: f32,
        pub d: u16,
        pub e: i8,
        pub f: u8,
    }
}

const ECHO: &str = r"
WL_KERNEL(echo, EveryField, args) {
    u64* out = args.out;
    out[0] = (u64)args.nested.wide;
    out[1] = (u64)(args.nested.wide >> 64);
    out[2] = (u64)args.nested.whole;
    out[3] = (u64)args.nested.real;
    out[4] = args.many[2];
    out[5] = args.columns[1][3];
    out[6] = args.a;
    out[7] = (u64)(i64)args.b;
    out[8] = (u64)args.c;
    out[9] = args.d + (u64)args.f;
    out[10] = (u64)(i64)args.e;
}
";

#[test]
fn arguments_arrive_as_they_were_given() {
    let kernel = compile("echo.cu", &[Nested::CUDA, EveryField::CUDA], ECHO)
        .kernel("echo")
        .unwrap();
    let mut out = [0u64; 11];
    let mut column = [0u32, 1, 2, 33];
    let column = device(&mut column);
    let args = EveryField {
        nested: Nested {
            wide: (7 << 64) + 5,
            whole: -3,
            real: 4.0,
        },
        many: [1, 2, 99],
        out: device(&mut out),
        columns: [DevicePtr::NULL, column],
        a: u32::MAX,
        b: -1,
        c: 2.0,
        d: 65535,
        e: -8,
        f: 255,
    };
    run(&kernel, LaunchConfig::new(1, 1), &args, Schedule::Ascending).unwrap();
    let minus = |x: u64| x.wrapping_neg();
    assert_eq!(
        out,
        [
            5,
            7,
            minus(3),
            4,
            99,
            33,
            u32::MAX.into(),
            minus(1),
            2,
            65790,
            minus(8)
        ]
    );
    assert_eq!(kernel.arguments_bytes(), size_of::<EveryField>());
    assert_eq!(args.as_bytes().len(), size_of::<EveryField>());
}

#[test]
fn a_struct_laid_out_differently_does_not_compile() {
    let wrong = Nested::CUDA.replacen(
        "    u128 wide;\n    i64 whole;\n",
        "    i64 whole;\n    u128 wide;\n",
        1,
    );
    assert_ne!(wrong, Nested::CUDA);
    let body = "WL_KERNEL(nothing, Nested, args) { (void)args; }";
    let error = emulator().compile(
        "wrong.cu",
        &source("wrong.cu", &[&wrong], body),
        &CompileOptions::default(),
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("Nested::wide must be where the Rust struct has it"),
        "{error}"
    );
}

#[test]
fn compiler_errors_carry_the_diagnostics_and_the_line() {
    let body = "WL_KERNEL(broken, Nested, args) {\n    u32 x = undeclared_name;\n}";
    let error = emulator()
        .compile(
            "broken.cu",
            &source("broken.cu", &[Nested::CUDA], body),
            &CompileOptions::default(),
        )
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("undeclared_name") && error.contains("broken.cu:2"),
        "{error}"
    );
}

#[test]
fn shared_variables_of_cuda_do_not_compile() {
    // They would be one variable for all blocks.
    let body = "WL_KERNEL(aliased, Nested, args) { __shared__ u32 x; x = 1; }";
    let result = emulator().compile(
        "shared.cu",
        &source("shared.cu", &[Nested::CUDA], body),
        &CompileOptions::default(),
    );
    assert!(matches!(result, Err(EmulatorError::Compile { .. })));
}

#[test]
fn without_a_compiler_the_error_says_what_to_install() {
    let options = EmulatorOptions {
        compiler: Some("/nonexistent/c++".to_owned()),
        ..EmulatorOptions::default()
    };
    let error = Emulator::open(options).unwrap_err().to_string();
    assert!(
        error.contains("install g++ or clang++") && error.contains("/nonexistent/c++"),
        "{error}"
    );
}

#[test]
fn the_cache_is_used_and_a_damaged_entry_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let options = EmulatorOptions {
        cache_dir: Some(folder.path().join("cache")),
        ..EmulatorOptions::default()
    };
    let emulator = Emulator::open(options).unwrap();
    let text = source(
        "cached.cu",
        &[Nested::CUDA],
        "WL_KERNEL(cached, Nested, args) { (void)args; }",
    );
    let build = || {
        emulator
            .compile("cached.cu", &text, &CompileOptions::default())
            .unwrap()
    };
    assert!(!build().cached());
    assert!(build().cached());

    let entries = || {
        fs::read_dir(folder.path().join("cache"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect::<Vec<_>>()
    };
    let [entry] = &entries()[..] else {
        panic!("one entry and no leftovers: {:?}", entries())
    };
    let good = fs::read(entry).unwrap();

    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for damaged in [
        flipped,
        good[..good.len() / 3].to_vec(),
        Vec::new(),
        b"not a library".to_vec(),
    ] {
        // A loaded library is mapped from its file: replace the file, do not write into it.
        fs::remove_file(entry).unwrap();
        fs::write(entry, damaged).unwrap();
        let module = build();
        assert!(!module.cached());
        let kernel = module.kernel("cached").unwrap();
        let args = Nested {
            wide: 0,
            whole: 0,
            real: 0.0,
        };
        run(
            &kernel,
            LaunchConfig::new(1, 32),
            &args,
            Schedule::Ascending,
        )
        .unwrap();
        assert!(build().cached());
    }

    let other = CompileOptions {
        opt_level: 2,
        ..CompileOptions::default()
    };
    assert!(
        !emulator
            .compile("cached.cu", &text, &other)
            .unwrap()
            .cached(),
        "options are part of the key"
    );
}

#[test]
fn concurrent_compilations_of_one_source_all_work() {
    let folder = tempfile::tempdir().unwrap();
    let options = EmulatorOptions {
        cache_dir: Some(folder.path().to_owned()),
        ..EmulatorOptions::default()
    };
    let emulator = Emulator::open(options).unwrap();
    let text = source(
        "raced.cu",
        &[Nested::CUDA],
        "WL_KERNEL(raced, Nested, args) { (void)args; }",
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let module = emulator
                    .compile("raced.cu", &text, &CompileOptions::default())
                    .unwrap();
                let args = Nested {
                    wide: 0,
                    whole: 0,
                    real: 0.0,
                };
                let kernel = module.kernel("raced").unwrap();
                run(
                    &kernel,
                    LaunchConfig::new(4, 32),
                    &args,
                    Schedule::Ascending,
                )
                .unwrap();
            });
        }
    });
}

#[test]
fn unknown_kernels_and_impossible_launches_are_errors() {
    let module = compile(
        "small.cu",
        &[Nested::CUDA],
        "#undef WL_BLOCK_THREADS\n#define WL_BLOCK_THREADS 64\nWL_KERNEL(small, Nested, args) { (void)args; }",
    );
    let unknown = module.kernel("absent").unwrap_err().to_string();
    assert!(unknown.contains("no kernel 'absent'"), "{unknown}");

    let kernel = module.kernel("small").unwrap();
    let args = Nested {
        wide: 0,
        whole: 0,
        real: 0.0,
    };
    let cause = |config| {
        run(&kernel, config, &args, Schedule::Ascending)
            .unwrap_err()
            .to_string()
    };
    assert!(cause(LaunchConfig::new(0, 32)).contains("grid has no blocks"));
    assert!(cause(LaunchConfig::new(1, 0)).contains("1 to 1024 threads"));
    assert!(cause(LaunchConfig::new(1, 128)).contains("WL_BLOCK_THREADS, 64"));
    assert!(cause(LaunchConfig::new(1, 64).with_shared(300_000)).contains("shared memory"));
    // SAFETY: the launch is refused before anything runs.
    let short = unsafe { kernel.launch(LaunchConfig::new(1, 32), &[0; 8], Schedule::Ascending) };
    assert!(
        short
            .unwrap_err()
            .to_string()
            .contains("8 bytes of arguments")
    );
}

#[test]
fn every_hand_written_kernel_compiles() {
    for (name, text) in kernels::all() {
        emulator()
            .compile(name, &text, &CompileOptions::default())
            .unwrap();
    }
}
