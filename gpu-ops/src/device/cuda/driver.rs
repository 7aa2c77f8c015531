//! The CUDA driver's library: found before it is called, and its status codes as errors.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};
use libloading::Library;

use crate::error::{GpuError, Result};

/// What to do when the driver's library is missing.
const REMEDY: &str =
    "install a current NVIDIA driver (its libcuda.so.1 must be on the loader's path)";

/// Where the library lies when the loader does not know it: drivers mounted into containers, WSL.
const FOLDERS: [&str; 4] = [
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Every function of the library that is called; the binding panics at one that is missing.
const FUNCTIONS: [&str; 43] = [
    "cuCtxEnablePeerAccess",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
];

/// Load libcuda and initialise it, once a process. The binding panics when the library is missing,
/// so nothing may call it before this has answered `Ok`.
pub(super) fn ensure_loaded(requested: &str) -> Result<()> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED
        .get_or_init(load)
        .clone()
        .map_err(|cause| GpuError::DeviceUnavailable {
            requested: requested.into(),
            cause,
            remedy: REMEDY.into(),
        })
}

fn load() -> Result<(), String> {
    const NAME: &str = "libcuda.so.1";
    let by_folder = FOLDERS.iter().map(|folder| format!("{folder}/{NAME}"));
    let found = std::iter::once(NAME.to_string())
        .chain(by_folder)
        .find_map(|name| {
            // SAFETY: loading the driver runs its initialisers, which touch nothing of ours.
            unsafe { Library::new(name) }.ok()
        });
    let Some(library) = found else {
        return Err(format!("{NAME} was not found"));
    };
    for function in FUNCTIONS {
        // SAFETY: the symbol is only looked up, not called.
        if unsafe { library.get::<unsafe extern "C" fn()>(function.as_bytes()) }.is_err() {
            return Err(format!(
                "the installed NVIDIA driver has no {function}: it is older than CUDA 12.8"
            ));
        }
    }
    // The binding opens the library by name again and gets this one, also when it came from a folder.
    std::mem::forget(library);
    // Should the binding not find what was found here, its panic ends here.
    let status = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: cuInit has no preconditions.
        unsafe { sys::cuInit(0) }
    }))
    .map_err(|_| "the binding did not find the NVIDIA driver's library".to_string())?;
    match status {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_NO_DEVICE => Err("the driver found no NVIDIA GPU".into()),
        other => Err(format!("cuInit failed: {}", describe(other))),
    }
}

/// A status code in words. For use after [`ensure_loaded`].
pub(super) fn describe(status: CUresult) -> String {
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: both calls write a pointer to a static string, or null for an unknown code.
    unsafe {
        let _ = sys::cuGetErrorName(status, &mut name);
        let _ = sys::cuGetErrorString(status, &mut text);
    }
    if name.is_null() || text.is_null() {
        return format!("driver status {}", status as u32);
    }
    // SAFETY: both are static zero-terminated strings.
    let (name, text) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(text)) };
    format!("{} ({})", name.to_string_lossy(), text.to_string_lossy())
}

/// A status after which every further call on the context fails, too.
fn is_sticky(status: CUresult) -> bool {
    matches!(
        status,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_UNKNOWN
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
    )
}

/// Turn a driver status into a result.
pub(super) fn check(status: CUresult, operation: &str, device: &str) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let cause = describe(status);
    if is_sticky(status) {
        return Err(GpuError::DeviceLost {
            device: device.into(),
            cause: format!("{operation} failed: {cause}"),
        });
    }
    Err(GpuError::Device {
        operation: operation.into(),
        device: device.into(),
        cause,
    })
}
