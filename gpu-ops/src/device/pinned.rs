//! Page-locked host memory as a device's memory: the second pool, where device memory is too small.
//!
//! Kernels read and write it across the link at the address that the host has, so a buffer there may stand wherever one
//! in device memory may; only speed differs. Everything but memory is the wrapped device's.

use std::sync::Arc;

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
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn lost(&self) -> Option<String> {
        self.inner.lost()
    }

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

    fn allocate_host(&self, bytes: usize) -> Result<DevicePtr> {
        self.inner.allocate_host(bytes)
    }

    unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free_host(ptr, bytes) }
    }

    fn is_host_memory(&self) -> bool {
        true
    }

    fn create_stream(&self) -> Result<Stream> {
        self.inner.create_stream()
    }

    fn fence(&self) -> Result<Fence> {
        self.inner.fence()
    }

    fn fence_passed(&self, fence: &Fence, wait: bool) -> Result<bool> {
        self.inner.fence_passed(fence, wait)
    }

    fn newest(&self, stream: &Stream) -> u64 {
        self.inner.newest(stream)
    }

    fn has_ended(&self, stream: &Stream, work: u64) -> bool {
        self.inner.has_ended(stream, work)
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.inner.synchronize(stream)
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

    unsafe fn copy_on_device(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            self.inner
                .copy_on_device(stream, source, destination, bytes)
        }
    }

    unsafe fn fill(
        &self,
        stream: &Stream,
        destination: DevicePtr,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.fill(stream, destination, value, bytes) }
    }

    fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)> {
        self.inner.compile(name, source)
    }

    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel> {
        self.inner.kernel(module, name)
    }

    fn blocks_per_multiprocessor(
        &self,
        kernel: &Kernel,
        block: u32,
        shared_bytes: usize,
    ) -> Result<u32> {
        self.inner
            .blocks_per_multiprocessor(kernel, block, shared_bytes)
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        config: LaunchConfig,
        arguments: &[u8],
    ) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.launch(stream, kernel, config, arguments) }
    }

    fn record_event(&self, stream: &Stream) -> Result<Event> {
        self.inner.record_event(stream)
    }

    fn wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        self.inner.wait_event(stream, event)
    }

    fn elapsed_ms(&self, start: &Event, end: &Event) -> Result<f64> {
        self.inner.elapsed_ms(start, end)
    }
}
