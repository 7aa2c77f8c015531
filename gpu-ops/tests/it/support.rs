//! The devices that tests run on: the emulator, and a GPU when the environment asks for one.

use std::path::Path;
use std::sync::Arc;

use warpline_gpu::device::cubin_cache::CubinCache;
use warpline_gpu::device::cuda::CudaDevice;
use warpline_gpu::device::emulated::{EmulatedDevice, EmulatedOptions};
use warpline_gpu::device::{Device, Kernel, LaunchConfig, Stream};
use warpline_gpu::memory::MemoryPool;

/// Environment variable that adds the first GPU: `WARPLINE_TEST_DEVICE=cuda`; `cuda-only` leaves the emulator out, for tools
/// that watch the GPU.
const DEVICE_VARIABLE: &str = "WARPLINE_TEST_DEVICE";

/// True when tests must also run on a GPU.
pub(crate) fn wants_cuda() -> bool {
    match std::env::var(DEVICE_VARIABLE).as_deref() {
        Ok("cuda" | "cuda-only") => true,
        Ok("" | "emulator") | Err(_) => false,
        Ok(other) => panic!("{DEVICE_VARIABLE}={other}: use emulator, cuda or cuda-only"),
    }
}

/// True when tests run on the emulator.
pub(crate) fn wants_emulator() -> bool {
    std::env::var(DEVICE_VARIABLE).as_deref() != Ok("cuda-only")
}

/// Every device under test; a GPU that was asked for and does not open fails the test.
pub(crate) fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    if wants_emulator() {
        devices.push(Arc::new(EmulatedDevice::open().unwrap()));
    }
    if wants_cuda() {
        devices.push(Arc::new(CudaDevice::open(0).unwrap()));
    }
    devices
}

/// As [`devices`], with compiled kernels kept in `folder`.
pub(crate) fn devices_with_cache(folder: &Path) -> Vec<Arc<dyn Device>> {
    let options = EmulatedOptions {
        cache_dir: Some(folder.join("emulator")),
        ..EmulatedOptions::from_environment().unwrap()
    };
    let mut devices: Vec<Arc<dyn Device>> =
        vec![Arc::new(EmulatedDevice::with_options(options).unwrap())];
    if wants_cuda() {
        let cache = CubinCache::new(Some(folder.join("cuda")));
        devices.push(Arc::new(CudaDevice::open_with_cache(0, cache).unwrap()));
    }
    devices
}

/// A pool with a budget that every device has.
pub(crate) fn pool(device: &Arc<dyn Device>) -> Arc<MemoryPool> {
    MemoryPool::new(Arc::clone(device), 256 << 20)
}

/// Compile `source` and take its kernel `name`.
pub(crate) fn kernel(device: &Arc<dyn Device>, name: &str, source: &str) -> Kernel {
    let (module, _) = device.compile(name, source).unwrap();
    device.kernel(&module, name).unwrap()
}

/// Launch with arguments declared by `kernel_args!`.
///
/// # Safety
/// As [`Device::launch`].
pub(crate) unsafe fn launch(
    device: &Arc<dyn Device>,
    stream: &Stream,
    kernel: &Kernel,
    config: LaunchConfig,
    arguments: &impl warpline_cuda::KernelArgs,
) -> warpline_gpu::Result<()> {
    unsafe { device.launch(stream, kernel, config, arguments.as_bytes()) }
}

/// Bytes that differ from their neighbours, from a seed.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
