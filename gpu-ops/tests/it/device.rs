//! Every function of the device trait, on every device under test.

use std::sync::Arc;

use warpline_cuda::{DevicePtr, kernel_args};
use warpline_gpu::GpuError;
use warpline_gpu::device::faulty::{FaultyDevice, Operation};
use warpline_gpu::device::probe::probe;
use warpline_gpu::device::{Device, LaunchConfig, cuda};

use crate::support::{devices, devices_with_cache, kernel, launch, pool, wants_cuda};

kernel_args! {
    /// `target[i] = source[i] * factor + offset`, repeated `rounds` times.
    struct ScaleArgs {
        source: DevicePtr as "const u32*",
        target: DevicePtr as "u32*",
        n: u64,
        factor: u32,
        offset: u32,
        rounds: u64,
    }
}

fn scale_source() -> String {
    format!(
        r#"#include "simt.cuh"
{}
WL_KERNEL(scale, ScaleArgs, args) {{
  u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += stride) {{
    u32 value = args.source[i];
    for (u64 round = 0; round < args.rounds; ++round) value = value * args.factor + args.offset;
    args.target[i] = value;
  }}
}}
"#,
        ScaleArgs::CUDA
    )
}

/// What the kernel computes.
fn scaled(value: u32, factor: u32, offset: u32, rounds: u64) -> u32 {
    (0..rounds).fold(value, |value, _| {
        value.wrapping_mul(factor).wrapping_add(offset)
    })
}

fn shape(grid: u32, block: u32, shared_bytes: usize) -> LaunchConfig {
    LaunchConfig {
        grid,
        block,
        shared_bytes,
    }
}

#[test]
fn devices_describe_themselves() {
    for device in devices() {
        let info = device.info();
        assert!(!info.name.is_empty() && !info.id.is_empty() && !info.compiler.is_empty());
        assert!(info.multiprocessors > 0);
        assert!(info.shared_memory_per_block >= 48 << 10);
        assert!(info.shared_memory_per_multiprocessor >= info.shared_memory_per_block);
        let free = device.free_memory().unwrap();
        assert!(free > 0 && free <= info.memory);
    }
}

#[test]
fn kernels_take_structs_and_any_grid() {
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        let scale = kernel(&device, "scale", &scale_source());
        let values: Vec<u32> = (0..10_007).collect();
        let source = pool.allocate(values.len() * 4, "source").unwrap();
        source.upload_values(&stream, 0, &values).unwrap();
        for (grid, block) in [(1, 32), (1, 256), (3, 64), (40, 256), (200, 96)] {
            let target = pool.allocate(values.len() * 4, "target").unwrap();
            target.fill(&stream, 0).unwrap();
            let arguments = ScaleArgs {
                source: source.ptr(),
                target: target.ptr(),
                n: values.len() as u64,
                factor: 3,
                offset: grid,
                rounds: 2,
            };
            unsafe {
                launch(&device, &stream, &scale, shape(grid, block, 0), &arguments).unwrap();
            }
            let expected: Vec<u32> = values.iter().map(|v| scaled(*v, 3, grid, 2)).collect();
            assert!(target.download_vec::<u32>(&stream).unwrap() == expected);
        }
    }
}

#[test]
fn an_empty_grid_does_nothing() {
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        let scale = kernel(&device, "scale", &scale_source());
        let target = pool.allocate(16, "target").unwrap();
        target.fill(&stream, 9).unwrap();
        let arguments = ScaleArgs {
            source: DevicePtr(0),
            target: target.ptr(),
            n: 4,
            factor: 1,
            offset: 1,
            rounds: 1,
        };
        unsafe { launch(&device, &stream, &scale, shape(0, 32, 0), &arguments).unwrap() };
        assert_eq!(target.download_vec::<u8>(&stream).unwrap(), [9; 16]);
    }
}

kernel_args! {
    /// Reverse `words` 64-bit words through shared memory, one block.
    struct ReverseArgs {
        values: DevicePtr as "u64*",
        words: u64,
    }
}

#[test]
fn shared_memory_above_the_default_limit() {
    let source = |words: usize| {
        format!(
            r#"#include "simt.cuh"
{}
struct Words {{ u64 word[{words}]; }};
WL_KERNEL(reverse, ReverseArgs, args) {{
  WL_SHARED(Words, shared);
  for (u32 i = threadIdx.x; i < args.words; i += blockDim.x) shared.word[i] = args.values[i];
  __syncthreads();
  for (u32 i = threadIdx.x; i < args.words; i += blockDim.x)
    args.values[i] = shared.word[args.words - 1 - i];
}}
"#,
            ReverseArgs::CUDA
        )
    };
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        // Without and with opting in, and a compute capability's limit is not assumed.
        for words in [6_144_usize, 12_800] {
            let reverse = kernel(&device, "reverse", &source(words));
            let bytes = words * 8;
            if bytes > device.info().shared_memory_per_block {
                continue;
            }
            let values: Vec<u64> = (0..words as u64).collect();
            let buffer = pool.allocate(bytes, "values").unwrap();
            buffer.upload_values(&stream, 0, &values).unwrap();
            let arguments = ReverseArgs {
                values: buffer.ptr(),
                words: words as u64,
            };
            unsafe {
                launch(&device, &stream, &reverse, shape(1, 256, bytes), &arguments).unwrap();
            }
            let expected: Vec<u64> = values.into_iter().rev().collect();
            assert!(buffer.download_vec::<u64>(&stream).unwrap() == expected);
            let blocks = device
                .blocks_per_multiprocessor(&reverse, 256, bytes)
                .unwrap();
            assert!(blocks >= 1);
        }
        let reverse = kernel(&device, "reverse", &source(1));
        let arguments = ReverseArgs {
            values: DevicePtr(0),
            words: 0,
        };
        let refused = unsafe {
            launch(
                &device,
                &stream,
                &reverse,
                shape(1, 256, 1 << 20),
                &arguments,
            )
        };
        assert!(
            matches!(refused, Err(GpuError::Device { .. })),
            "{refused:?}"
        );
        // The device is as usable as before.
        let small = pool.allocate(8, "after").unwrap();
        small.fill(&stream, 1).unwrap();
        device.synchronize(&stream).unwrap();
    }
}

#[test]
fn occupancy_follows_shared_memory() {
    for device in devices() {
        let scale = kernel(&device, "scale", &scale_source());
        let free = device.blocks_per_multiprocessor(&scale, 256, 0).unwrap();
        let full = device
            .blocks_per_multiprocessor(&scale, 256, device.info().shared_memory_per_block)
            .unwrap();
        assert!(free >= 1);
        assert_eq!(full, 1, "one block takes all shared memory");
        assert!(free >= full);
    }
}

#[test]
fn compile_errors_carry_the_compilers_log() {
    let source = "#include \"simt.cuh\"\nstruct Args { u64 n; };\nWL_KERNEL(broken, Args, args) {\n  no_such_function(args.n);\n}\n";
    for device in devices() {
        match device.compile("broken", source) {
            Err(GpuError::Compile { kernel, log }) => {
                assert_eq!(kernel, "broken");
                assert!(log.contains("no_such_function"), "{log}");
                assert!(log.contains('4'), "the line is named: {log}");
            }
            other => panic!("{:?}", other.map(|_| ())),
        }
        assert!(device.compile("zero", "\0").is_err());
    }
}

#[test]
fn an_unknown_kernel_is_named() {
    for device in devices() {
        let (module, _) = device.compile("scale", &scale_source()).unwrap();
        let error = device.kernel(&module, "no_such_kernel").unwrap_err();
        assert!(error.to_string().contains("no_such_kernel"), "{error}");
    }
}

#[test]
fn compiled_kernels_are_kept_on_disk_and_damage_is_healed() {
    let folder = tempfile::tempdir().unwrap();
    for device in devices_with_cache(folder.path()) {
        let (_, cold) = device.compile("scale", &scale_source()).unwrap();
        assert!(!cold.cached && cold.milliseconds > 0.0);
    }
    for device in devices_with_cache(folder.path()) {
        let (_, warm) = device.compile("scale", &scale_source()).unwrap();
        assert!(warm.cached, "{device:?}");
    }
    let mut damaged = 0;
    for entry in ["emulator", "cuda"]
        .iter()
        .filter_map(|kind| std::fs::read_dir(folder.path().join(kind)).ok())
        .flatten()
    {
        let path = entry.unwrap().path();
        if path.is_file() {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x5a;
            // A new file: the old one may be mapped into this process.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged >= 1);
    for device in devices_with_cache(folder.path()) {
        let (module, healed) = device.compile("scale", &scale_source()).unwrap();
        assert!(!healed.cached, "{device:?}");
        device.kernel(&module, "scale").unwrap();
    }
}

#[test]
fn streams_keep_order_and_events_measure() {
    for device in devices() {
        let pool = pool(&device);
        let stream = device.create_stream().unwrap();
        let scale = kernel(&device, "scale", &scale_source());
        let n = 1000;
        let a = pool.allocate(n * 4, "a").unwrap();
        let b = pool.allocate(n * 4, "b").unwrap();
        a.fill(&stream, 0).unwrap();
        let start = device.record_event(&stream).unwrap();
        let (mut from, mut to) = (&a, &b);
        for _ in 0..20 {
            let arguments = ScaleArgs {
                source: from.ptr(),
                target: to.ptr(),
                n: n as u64,
                factor: 1,
                offset: 1,
                rounds: 1,
            };
            unsafe { launch(&device, &stream, &scale, shape(4, 64, 0), &arguments).unwrap() };
            (from, to) = (to, from);
        }
        let end = device.record_event(&stream).unwrap();
        let elapsed = device.elapsed_ms(&start, &end).unwrap();
        assert!(elapsed > 0.0 && elapsed < 60_000.0, "{elapsed} ms");
        assert_eq!(from.download_vec::<u32>(&stream).unwrap(), vec![20; n]);
    }
}

#[test]
fn a_block_is_not_reused_under_running_work() {
    for device in devices() {
        let pool = pool(&device);
        let (slow, fast) = (
            device.create_stream().unwrap(),
            device.create_stream().unwrap(),
        );
        let scale = kernel(&device, "scale", &scale_source());
        let n = 1 << 16;
        let rounds = if device.info().emulated {
            10
        } else {
            2_000_000
        };
        let source = pool.allocate(n * 4, "source").unwrap();
        source.fill(&slow, 1).unwrap();
        let target = pool.allocate(n * 4, "target").unwrap();
        let address = target.ptr();
        let arguments = ScaleArgs {
            source: source.ptr(),
            target: target.ptr(),
            n: n as u64,
            factor: 3,
            offset: 1,
            rounds,
        };
        unsafe { launch(&device, &slow, &scale, shape(8, 256, 0), &arguments).unwrap() };
        // Dropped while the kernel runs; it writes long after.
        drop(target);
        let next = pool.allocate(n * 4, "next").unwrap();
        if !device.info().emulated {
            assert_ne!(next.ptr(), address, "the kernel still writes there");
        }
        next.fill(&fast, 0x77).unwrap();
        device.synchronize(&fast).unwrap();
        device.synchronize(&slow).unwrap();
        assert!(next.download_vec::<u8>(&fast).unwrap() == vec![0x77; n * 4]);
        // Now that the work has ended the block is free again.
        drop(next);
        let mut seen = Vec::new();
        let mut kept = Vec::new();
        for _ in 0..2 {
            let buffer = pool.allocate(n * 4, "again").unwrap();
            seen.push(buffer.ptr());
            kept.push(buffer);
        }
        assert!(seen.contains(&address));
    }
}

#[test]
fn a_dropped_stream_finishes_its_work() {
    for device in devices() {
        let pool = pool(&device);
        let scale = kernel(&device, "scale", &scale_source());
        let n = 1 << 14;
        let source = pool.allocate(n * 4, "source").unwrap();
        let target = pool.allocate(n * 4, "target").unwrap();
        {
            let stream = device.create_stream().unwrap();
            source.fill(&stream, 0).unwrap();
            let arguments = ScaleArgs {
                source: source.ptr(),
                target: target.ptr(),
                n: n as u64,
                factor: 1,
                offset: 1,
                rounds: 1000,
            };
            unsafe { launch(&device, &stream, &scale, shape(8, 256, 0), &arguments).unwrap() };
        }
        let stream = device.create_stream().unwrap();
        assert!(target.download_vec::<u32>(&stream).unwrap() == vec![1000; n]);
    }
}

#[test]
fn threads_share_a_device() {
    for device in devices() {
        let pool = pool(&device);
        let scale = kernel(&device, "scale", &scale_source());
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let (device, pool, scale) = (&device, &pool, &scale);
                scope.spawn(move || {
                    let stream = device.create_stream().unwrap();
                    for round in 0..10 {
                        let n = 1000 + thread as usize * 100 + round;
                        let values: Vec<u32> = (0..n as u32).collect();
                        let source = pool.allocate(n * 4, "source").unwrap();
                        let target = pool.allocate(n * 4, "target").unwrap();
                        source.upload_values(&stream, 0, &values).unwrap();
                        let arguments = ScaleArgs {
                            source: source.ptr(),
                            target: target.ptr(),
                            n: n as u64,
                            factor: thread + 1,
                            offset: round as u32,
                            rounds: 1,
                        };
                        unsafe {
                            launch(device, &stream, scale, shape(3, 128, 0), &arguments).unwrap();
                        }
                        // The source goes back to the pool while the launch may still be queued.
                        drop(source);
                        let expected: Vec<u32> = values
                            .iter()
                            .map(|v| scaled(*v, thread + 1, round as u32, 1))
                            .collect();
                        assert_eq!(target.download_vec::<u32>(&stream).unwrap(), expected);
                    }
                });
            }
        });
        assert_eq!(pool.statistics().in_use, 0);
    }
}

#[test]
fn handles_of_one_device_are_refused_by_another() {
    if !wants_cuda() {
        println!("not run: it needs two kinds of device (WARPLINE_TEST_DEVICE=cuda)");
        return;
    }
    let devices = devices();
    let (module, _) = devices[0].compile("scale", &scale_source()).unwrap();
    assert!(matches!(
        devices[1].kernel(&module, "scale"),
        Err(GpuError::Internal(_))
    ));
    let foreign = kernel(&devices[0], "scale", &scale_source());
    let stream = devices[1].create_stream().unwrap();
    let refused = unsafe { devices[1].launch(&stream, &foreign, shape(1, 32, 0), &[0; 40]) };
    assert!(matches!(refused, Err(GpuError::Internal(_))));
}

#[test]
fn every_failure_is_reported_and_leaves_the_device_usable() {
    for inner in devices() {
        let faulty = FaultyDevice::new(inner);
        let device: Arc<dyn Device> = Arc::clone(&faulty) as Arc<dyn Device>;
        let pool = pool(&device);
        let work = || -> warpline_gpu::Result<Vec<u32>> {
            let stream = device.create_stream()?;
            let (module, _) = device.compile("scale", &scale_source())?;
            let scale = device.kernel(&module, "scale")?;
            let source = pool.allocate(400, "source")?;
            let copied = pool.allocate(400, "copied")?;
            let target = pool.allocate(400, "target")?;
            source.upload_values(&stream, 0, &(0..100_u32).collect::<Vec<_>>())?;
            target.fill(&stream, 0)?;
            copied.copy_from(&stream, 0, &source, 0, 400)?;
            let arguments = ScaleArgs {
                source: copied.ptr(),
                target: target.ptr(),
                n: 100,
                factor: 2,
                offset: 1,
                rounds: 1,
            };
            unsafe { launch(&device, &stream, &scale, shape(1, 64, 0), &arguments)? };
            device.synchronize(&stream)?;
            target.download_vec(&stream)
        };
        let expected: Vec<u32> = (0..100).map(|v| v * 2 + 1).collect();
        for operation in [
            Operation::CreateStream,
            Operation::Compile,
            Operation::Allocate,
            Operation::CopyToDevice,
            Operation::Fill,
            Operation::CopyOnDevice,
            Operation::Launch,
            Operation::Synchronize,
            Operation::CopyToHost,
        ] {
            pool.trim().unwrap();
            faulty.fail(operation, 1);
            let error = work().unwrap_err();
            if operation == Operation::Allocate {
                assert!(
                    matches!(error, GpuError::OutOfDeviceMemory { .. }),
                    "{error}"
                );
            } else {
                assert!(error.to_string().contains("injected failure"), "{error}");
            }
            assert_eq!(pool.statistics().in_use, 0, "after a failed {operation:?}");
            assert_eq!(work().unwrap(), expected, "after a failed {operation:?}");
            assert!(faulty.calls(operation) >= 2);
            assert!(!faulty.clear(operation));
        }
    }
}

#[test]
fn a_deadlock_is_an_error() {
    // On a GPU the kernel would hang; only the emulator finds it.
    let source = r#"#include "simt.cuh"
struct Args { u64 n; };
WL_KERNEL(stuck, Args, args) {
  if (threadIdx.x < 32) __syncwarp(0xffffffffu);
  if (threadIdx.x == 0) __shfl_sync(0xffffffffu, 1u, 0);
  else __syncthreads();
}
"#;
    let device = devices().remove(0);
    let stuck = kernel(&device, "stuck", source);
    let stream = device.create_stream().unwrap();
    let result = unsafe { device.launch(&stream, &stuck, shape(1, 64, 0), &1_u64.to_le_bytes()) };
    let error = result.unwrap_err();
    assert!(matches!(error, GpuError::Device { .. }));
    assert!(error.to_string().contains("stuck"), "{error}");
    let wrong_size = unsafe { device.launch(&stream, &stuck, shape(1, 64, 0), &[0; 3]) };
    assert!(matches!(wrong_size, Err(GpuError::Device { .. })));
    device.synchronize(&stream).unwrap();
}

#[test]
fn the_probe_gives_one_line_a_device() {
    let reports = probe();
    for report in &reports {
        let line = report.to_string();
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(report.usable || line.contains("not usable: "), "{line}");
        assert!(
            report.usable || line.contains("; "),
            "names a remedy: {line}"
        );
        println!("{line}");
    }
    let emulator = reports.last().unwrap();
    assert_eq!(emulator.id, "emulator");
    assert!(emulator.usable, "{emulator}");
    if wants_cuda() {
        assert!(reports.iter().any(|r| r.id == "cuda:0" && r.usable));
    }
}

#[test]
fn a_missing_gpu_is_an_error_with_a_remedy() {
    let highest = cuda::count().unwrap_or(0);
    match cuda::CudaDevice::open(highest) {
        Err(GpuError::DeviceUnavailable { cause, remedy, .. }) => {
            assert!(!cause.is_empty() && !remedy.is_empty());
        }
        other => panic!("{other:?}"),
    }
}
