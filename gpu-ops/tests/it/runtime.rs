//! The runtime: what sessions share on one device.

use std::sync::Arc;

use warpline_gpu::GpuError;
use warpline_gpu::device::faulty::{FaultyDevice, Operation};
use warpline_gpu::runtime::{DeviceChoice, Runtime, RuntimeOptions};

use crate::support::{devices, wants_cuda};

const SOURCE: &str = "#include \"simt.cuh\"\nstruct Args { u64 n; };\n\
                      WL_KERNEL(first, Args, args) {}\nWL_KERNEL(second, Args, args) {}\n";

#[test]
fn the_emulator_opens_by_name() {
    let options = RuntimeOptions {
        device: DeviceChoice::Emulator,
        device_memory: Some(64 << 20),
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::open(options).unwrap().unwrap();
    assert_eq!(runtime.device().info().id, "emulator");
    assert_eq!(runtime.pool().budget().bytes(), 64 << 20);
}

#[test]
fn cuda_opens_or_says_why() {
    let options = RuntimeOptions {
        device: DeviceChoice::Cuda(None),
        device_memory: None,
        ..RuntimeOptions::default()
    };
    match Runtime::open(options) {
        Ok(runtime) => assert!(runtime.is_some_and(|r| !r.device().info().emulated)),
        Err(error) => {
            assert!(!wants_cuda(), "{error}");
            assert!(
                matches!(error, GpuError::DeviceUnavailable { .. }),
                "{error}"
            );
        }
    }
    let auto = Runtime::open(RuntimeOptions::default()).unwrap();
    assert!(auto.is_none_or(|r| !r.device().info().emulated));
}

#[test]
fn budgets_stay_below_the_device() {
    for device in devices() {
        let memory = device.info().memory;
        let free = device.free_memory().unwrap();
        let default = Runtime::with_device(Arc::clone(&device), None).unwrap();
        assert!((1..free as u64).contains(&default.pool().budget().bytes()));
        let large = Runtime::with_device(device, Some(usize::MAX)).unwrap();
        assert_eq!(large.pool().budget().bytes(), memory as u64);
    }
}

#[test]
fn a_source_is_compiled_once() {
    for inner in devices() {
        let device = FaultyDevice::new(inner);
        let runtime = Runtime::with_device(device.clone(), Some(64 << 20)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(&*runtime.kernel("first", SOURCE).unwrap().0.name, "first");
                    assert_eq!(&*runtime.kernel("second", SOURCE).unwrap().0.name, "second");
                });
            }
        });
        assert_eq!(device.calls(Operation::Compile), 1);
        let (_, report) = runtime.kernel("first", SOURCE).unwrap();
        assert!(report.cached);
        assert!(runtime.kernel("third", SOURCE).is_err());
    }
}

#[test]
fn a_failed_compilation_can_be_tried_again() {
    for inner in devices() {
        let device = FaultyDevice::new(inner);
        let runtime = Runtime::with_device(device.clone(), Some(64 << 20)).unwrap();
        device.fail(Operation::Compile, 1);
        assert!(runtime.kernel("first", SOURCE).is_err());
        runtime.kernel("first", SOURCE).unwrap();
    }
}

#[test]
fn many_sources_do_not_pile_up() {
    // More sources than are kept, each refused by the compiler of a device that compiles nothing.
    let device = FaultyDevice::new(devices().remove(0));
    let runtime = Runtime::with_device(device.clone(), Some(64 << 20)).unwrap();
    runtime.kernel("first", SOURCE).unwrap();
    for i in 0..1100 {
        device.fail(Operation::Compile, 1);
        assert!(runtime.kernel("first", &format!("source {i}")).is_err());
    }
    let before = device.calls(Operation::Compile);
    runtime.kernel("first", SOURCE).unwrap();
    assert_eq!(
        device.calls(Operation::Compile),
        before + 1,
        "the oldest had to go"
    );
}

#[test]
fn the_copy_bandwidth_is_measured_once() {
    for device in devices() {
        let runtime = Runtime::with_device(device, None).unwrap();
        let bandwidth = runtime.copy_bandwidth().unwrap();
        assert!(bandwidth > 1e6, "{bandwidth}");
        assert_eq!(runtime.copy_bandwidth().unwrap(), bandwidth);
        assert_eq!(runtime.pool().statistics().in_use, 0);
        println!(
            "{}: {:.1} GB/s",
            runtime.device().info().id,
            bandwidth / 1e9
        );
    }
}

#[test]
fn the_copy_bandwidth_fits_a_small_budget() {
    for device in devices() {
        let runtime = Runtime::with_device(device, Some(1 << 20)).unwrap();
        assert!(runtime.copy_bandwidth().unwrap() > 0.0);
    }
}
