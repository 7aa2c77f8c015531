//! A device that is lost, and kernels on disk that are damaged.

use std::process::Command;
use std::sync::Arc;

use warpline_cuda::{DevicePtr, kernel_args};
use warpline_gpu::GpuError;
use warpline_gpu::device::cuda::CudaDevice;
use warpline_gpu::device::faulty::{FailurePlan, FaultyDevice};
use warpline_gpu::device::{Device, LaunchConfig};
use warpline_gpu::runtime::Runtime;

use crate::support::{devices, devices_with_cache, kernel, launch, pool, wants_cuda};

kernel_args! {
    /// Each thread stores `value` at its place of `target`.
    struct StoreArgs {
        target: DevicePtr as "u32*",
        value: u64,
    }
}

fn store_source() -> String {
    format!(
        "#include \"simt.cuh\"\n{}\nWL_KERNEL(store, StoreArgs, args) {{ args.target[threadIdx.x] = (u32)args.value; }}",
        StoreArgs::CUDA
    )
}

const SHAPE: LaunchConfig = LaunchConfig {
    grid: 1,
    block: 32,
    shared_bytes: 0,
};

/// Has a kernel store a value and reads it back.
fn store(device: &Arc<dyn Device>, value: u64) -> warpline_gpu::Result<Vec<u32>> {
    let (module, _) = device.compile("store", &store_source())?;
    let store = device.kernel(&module, "store")?;
    let stream = device.create_stream()?;
    let target = pool(device).allocate(128, "target")?;
    let arguments = StoreArgs {
        target: target.ptr(),
        value,
    };
    unsafe { launch(device, &stream, &store, SHAPE, &arguments)? };
    device.synchronize(&stream)?;
    target.download_vec(&stream)
}

#[test]
fn a_lost_device_is_asked_nothing_more() {
    for inner in devices() {
        let runtime = Runtime::with_device(inner, Some(64 << 20)).unwrap();
        let device = Arc::clone(runtime.device());
        let held = runtime.pool().allocate(1 << 20, "held").unwrap();
        let plan: FailurePlan = "lost:3".parse().unwrap();
        runtime.inject_failures(Some(Arc::new(plan)));
        let error = store(&device, 1).unwrap_err();
        assert!(matches!(error, GpuError::DeviceLost { .. }), "{error}");
        assert!(runtime.lost().unwrap().contains("injected failure"));
        runtime.inject_failures(None);
        for _ in 0..2 {
            let error = store(&device, 1).unwrap_err().to_string();
            assert!(
                error.contains("is lost") && error.contains("SET warpline.device"),
                "{error}"
            );
        }
        assert!(runtime.pool().allocate(1, "more").is_err());
        // What is held can be returned.
        drop(held);
        runtime.pool().trim().unwrap();
        assert_eq!(runtime.pool().statistics().cached, 0);
    }
    for device in devices() {
        assert_eq!(store(&device, 7).unwrap(), [7; 32]);
    }
}

#[test]
fn a_damaged_kernel_is_compiled_again_once() {
    let folder = tempfile::tempdir().unwrap();
    for inner in devices_with_cache(folder.path()) {
        let device = FaultyDevice::new(inner);
        let compile = || device.compile("store", &store_source()).unwrap().1.cached;
        assert!(!compile(), "there was nothing before");
        assert!(compile());
        // A changed byte, then a lost end.
        for _ in 0..2 {
            let plan: FailurePlan = "cubin:1:2".parse().unwrap();
            let plan = Arc::new(plan);
            device.inject(Some(Arc::clone(&plan)));
            assert!(!compile(), "damaged");
            assert!(!compile(), "damaged in the other way");
            assert!(compile(), "whole again");
            assert_eq!(plan.injected(), 2);
            device.inject(None);
        }
        let device: Arc<dyn Device> = device;
        kernel(&device, "store", &store_source());
    }
}

/// A kernel that stores where no memory is, in a process of its own: the error outlives the context.
#[test]
fn a_gpu_lost_by_a_stray_store_is_opened_again_or_says_why_not() {
    if !wants_cuda() {
        // The emulator has no context to lose; what is above it is tested with injected losses.
        assert!(devices().iter().all(|device| device.info().emulated));
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lost::stray_store", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(
        child.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&child.stderr)
    );
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "runs in a process of its own, on a GPU"]
fn stray_store() {
    let runtime = Runtime::with_device(Arc::new(CudaDevice::open(0).unwrap()), None).unwrap();
    let device = Arc::clone(runtime.device());
    assert_eq!(store(&device, 1).unwrap(), [1; 32]);
    let stray = {
        let store = kernel(&device, "store", &store_source());
        let stream = device.create_stream().unwrap();
        let arguments = StoreArgs {
            target: DevicePtr(64),
            value: 1,
        };
        let launched = unsafe { launch(&device, &stream, &store, SHAPE, &arguments) };
        launched.and_then(|()| device.synchronize(&stream))
    };
    let error = stray.unwrap_err();
    assert!(matches!(error, GpuError::DeviceLost { .. }), "{error}");
    assert!(runtime.lost().is_some());
    let held = runtime.pool().allocate(1, "more");
    assert!(matches!(held, Err(GpuError::DeviceLost { .. })));
    // While the old handles still exist.
    let again = match CudaDevice::open(0) {
        // Drivers differ: some make no other context in a process of which a kernel failed, whatever is destroyed before.
        Err(error) => {
            let text = error.to_string();
            assert!(matches!(error, GpuError::DeviceLost { .. }), "{text}");
            assert!(text.contains("in a new process only"), "{text}");
            assert!(text.contains("restart the program"), "{text}");
            return;
        }
        Ok(device) => Runtime::with_device(Arc::new(device), None).unwrap(),
    };
    assert_eq!(store(again.device(), 9).unwrap(), [9; 32]);
    drop((device, runtime));
    assert_eq!(store(again.device(), 10).unwrap(), [10; 32]);
}
