//! A device that fails on demand, for tests of what happens after a failure.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Fence, Kernel, LaunchConfig, Module,
    Stream,
};
use crate::error::{GpuError, Result};

/// What can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Device::allocate`]; fails as if the device's memory were full.
    Allocate,
    /// [`Device::create_stream`].
    CreateStream,
    /// [`Device::copy_to_device`].
    CopyToDevice,
    /// [`Device::copy_to_host`].
    CopyToHost,
    /// [`Device::copy_on_device`].
    CopyOnDevice,
    /// [`Device::fill`].
    Fill,
    /// [`Device::compile`].
    Compile,
    /// [`Device::launch`].
    Launch,
    /// [`Device::synchronize`].
    Synchronize,
}

/// Calls so far and the number of the call that fails.
#[derive(Default)]
struct Plan {
    calls: u64,
    fail_at: Option<u64>,
}

/// Passes every call on to another device, except those it was told to fail.
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    plans: Mutex<HashMap<Operation, Plan>>,
}

impl FaultyDevice {
    /// A device that behaves as `inner` until [`FaultyDevice::fail`] is called.
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            plans: Mutex::default(),
        })
    }

    /// Let the `nth` call of `operation` from now (1 = the next) fail, once.
    pub fn fail(&self, operation: Operation, nth: u64) {
        let mut plans = self.plans.lock();
        let plan = plans.entry(operation).or_default();
        plan.fail_at = Some(plan.calls + nth);
    }

    /// Take back a failure that has not happened yet; true when there was one.
    pub fn clear(&self, operation: Operation) -> bool {
        let mut plans = self.plans.lock();
        plans
            .get_mut(&operation)
            .is_some_and(|plan| plan.fail_at.take().is_some())
    }

    /// Calls of `operation` so far, failed ones included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.plans
            .lock()
            .get(&operation)
            .map_or(0, |plan| plan.calls)
    }

    fn pass(&self, operation: Operation) -> Result<()> {
        let mut plans = self.plans.lock();
        let plan = plans.entry(operation).or_default();
        plan.calls += 1;
        if plan.fail_at != Some(plan.calls) {
            return Ok(());
        }
        plan.fail_at = None;
        Err(GpuError::Device {
            operation: format!("{operation:?} number {}", plan.calls),
            device: self.inner.info().id.clone(),
            cause: "injected failure".into(),
        })
    }
}

impl Device for FaultyDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn free_memory(&self) -> Result<usize> {
        self.inner.free_memory()
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        self.pass(Operation::Allocate)
            .map_err(|_| GpuError::OutOfDeviceMemory {
                requested: bytes,
                purpose: "an allocation with an injected failure".into(),
                in_use: 0,
                budget: 0,
            })?;
        self.inner.allocate(bytes)
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free(ptr, bytes) }
    }

    fn allocate_host(&self, bytes: usize) -> Result<DevicePtr> {
        self.pass(Operation::Allocate)
            .map_err(|_| GpuError::OutOfDeviceMemory {
                requested: bytes,
                purpose: "an allocation with an injected failure".into(),
                in_use: 0,
                budget: 0,
            })?;
        self.inner.allocate_host(bytes)
    }

    unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free_host(ptr, bytes) }
    }

    fn create_stream(&self) -> Result<Stream> {
        self.pass(Operation::CreateStream)?;
        self.inner.create_stream()
    }

    fn fence(&self) -> Result<Fence> {
        self.inner.fence()
    }

    fn fence_passed(&self, fence: &Fence, wait: bool) -> Result<bool> {
        self.inner.fence_passed(fence, wait)
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.pass(Operation::Synchronize)?;
        self.inner.synchronize(stream)
    }

    unsafe fn copy_to_device(
        &self,
        stream: &Stream,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()> {
        self.pass(Operation::CopyToDevice)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.copy_to_device(stream, source, destination) }
    }

    unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        self.pass(Operation::CopyToHost)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.copy_to_host(stream, source, destination) }
    }

    unsafe fn copy_on_device(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        self.pass(Operation::CopyOnDevice)?;
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
        self.pass(Operation::Fill)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.fill(stream, destination, value, bytes) }
    }

    fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)> {
        self.pass(Operation::Compile)?;
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
        self.pass(Operation::Launch)?;
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

impl std::fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FaultyDevice").field(&self.inner).finish()
    }
}
