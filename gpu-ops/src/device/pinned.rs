//! Page-locked host memory as a device's memory: the second pool, where device memory is too small.
//!
//! Kernels read and write it across the link at the address that the host has, so a buffer there may stand wherever one
//! in device memory may; only speed differs. Everything but memory is the wrapped device's.

use std::sync::Arc;

use super::inner_work::work_of_inner;
use super::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Fence, Kernel, LaunchConfig, Module,
    Stream,
};
use crate::error::{GpuError, Result};

/// Host memory of a device.
#[derive(Debug)]
pub struct PinnedMemory {
    inner: Arc<dyn Device>,
}

impl PinnedMemory {
    /// The host memory that `inner` reaches.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner }
    }
}

impl Device for PinnedMemory {
    work_of_inner!();

    fn free_memory(&self) -> Result<usize> {
        Err(GpuError::Internal(
            "free host memory is not the device's to tell".into(),
        ))
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        self.inner.allocate_host(bytes)
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free_host(ptr, bytes) }
    }

    fn is_host_memory(&self) -> bool {
        true
    }

    unsafe fn copy_to_device(
        &self,
        stream: &Stream,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()> {
        self.inner.synchronize(stream)?;
        let destination = std::ptr::with_exposed_provenance_mut(destination.0 as usize);
        // SAFETY: the caller vouches for the range, which is host memory that no queued work uses any more; slices of
        // the program never lie in memory that was allocated here.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), destination, source.len()) };
        Ok(())
    }

    unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        self.inner.synchronize(stream)?;
        let source = std::ptr::with_exposed_provenance(source.0 as usize);
        // SAFETY: as above; all bytes were initialised when they were allocated.
        unsafe {
            std::ptr::copy_nonoverlapping(source, destination.as_mut_ptr(), destination.len());
        }
        Ok(())
    }
}
