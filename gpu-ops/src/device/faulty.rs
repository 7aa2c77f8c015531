//! The device wrapper that injects failures and detects a lost device; otherwise it passes every call on.
//!
//! Without failures to inject it costs an atomic addition and two atomic reads a call, of tens of nanoseconds at most
//! before calls that take microseconds. So it is always there, and what tests find holds for the program that users run.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

pub use super::faults::{FailurePlan, Operation};
use super::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Fence, Kernel, LaunchConfig, Module,
    Stream,
};
use crate::error::{GpuError, Result};

/// Passes every call on to another device, except those it was told to fail.
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    /// Calls by operation, failed ones included.
    calls: [AtomicU64; Operation::COUNT],
    /// Are there any plans?
    armed: AtomicBool,
    plans: Mutex<Plans>,
    /// Why nothing can be done with the device any more.
    lost: OnceLock<String>,
}

#[derive(Default)]
struct Plans {
    /// What [`FaultyDevice::inject`] set.
    injected: Option<Arc<FailurePlan>>,
    /// What [`FaultyDevice::fail`] set.
    single: Vec<(Operation, FailurePlan)>,
}

impl FaultyDevice {
    /// A device that behaves as `inner` until it is told otherwise.
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            armed: AtomicBool::new(false),
            plans: Mutex::default(),
            lost: OnceLock::new(),
        })
    }

    /// Let calls fail by a plan, in the place of an earlier one; `None` lets them pass.
    pub fn inject(&self, plan: Option<Arc<FailurePlan>>) {
        let mut plans = self.plans.lock();
        plans.injected = plan.filter(|plan| !plan.is_empty());
        self.arm(&plans);
    }

    /// Let the `nth` call of `operation` from now (1 = the next) fail, once.
    pub fn fail(&self, operation: Operation, nth: u64) {
        let mut plans = self.plans.lock();
        plans.single.retain(|(of, _)| *of != operation);
        let plan = FailurePlan::once(operation, nth);
        plans.single.push((operation, plan));
        self.arm(&plans);
    }

    /// Take back a failure that has not happened yet; true when there was one.
    pub fn clear(&self, operation: Operation) -> bool {
        let mut plans = self.plans.lock();
        let pending =
            |(of, plan): &(Operation, FailurePlan)| *of == operation && plan.injected() == 0;
        let found = plans.single.iter().any(pending);
        plans.single.retain(|(of, _)| *of != operation);
        self.arm(&plans);
        found
    }

    fn arm(&self, plans: &Plans) {
        let armed = plans.injected.is_some() || !plans.single.is_empty();
        self.armed.store(armed, Ordering::SeqCst);
    }

    /// Calls of `operation` so far, failed ones included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.calls[operation as usize].load(Ordering::Relaxed)
    }

    /// Count a call; does it fail, and as which of its kind?
    fn strike(&self, operation: Operation) -> Option<u64> {
        self.calls[operation as usize].fetch_add(1, Ordering::Relaxed);
        if !self.armed.load(Ordering::Relaxed) {
            return None;
        }
        let plans = self.plans.lock();
        let single = plans.single.iter().map(|(_, plan)| plan);
        let all = plans.injected.as_deref().into_iter().chain(single);
        let strikes: Vec<_> = all.filter_map(|plan| plan.strike(operation)).collect();
        if let Some(lost) = strikes.iter().find(|strike| strike.lost) {
            let cause = format!("injected failure: lost at call {}", lost.call);
            // Another thread's loss is as good.
            let _ = self.lost.set(cause);
        }
        strikes.first().map(|strike| strike.call)
    }

    /// May the call go on?
    fn pass(&self, operation: Operation) -> Result<()> {
        self.present()?;
        let Some(call) = self.strike(operation) else {
            return Ok(());
        };
        self.present()?;
        Err(GpuError::Device {
            operation: format!("{operation:?} number {call}"),
            device: self.inner.info().id.clone(),
            cause: "injected failure".into(),
        })
    }

    /// An error once the device is lost: its driver is not asked again.
    fn present(&self) -> Result<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(cause) => Err(GpuError::DeviceLost {
                device: self.inner.info().id.clone(),
                cause: cause.clone(),
            }),
        }
    }

    /// Notice when a call finds the device lost.
    fn noted<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(GpuError::DeviceLost { cause, .. }) = &outcome
            && self.lost.set(cause.clone()).is_ok()
        {
            log::error!("{} is lost: {cause}", self.inner.info().id);
        }
        outcome
    }
}

impl Device for FaultyDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn lost(&self) -> Option<String> {
        self.lost.get().cloned().or_else(|| self.inner.lost())
    }

    fn free_memory(&self) -> Result<usize> {
        self.present()?;
        self.noted(self.inner.free_memory())
    }

    fn admit(&self, bytes: usize) -> Result<()> {
        self.pass(Operation::Buffer)
            .map_err(|error| refused(error, bytes))?;
        self.inner.admit(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        self.pass(Operation::Allocate)
            .map_err(|error| refused(error, bytes))?;
        self.noted(self.inner.allocate(bytes))
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free(ptr, bytes) }
    }

    fn allocate_host(&self, bytes: usize) -> Result<DevicePtr> {
        self.pass(Operation::Allocate)
            .map_err(|error| refused(error, bytes))?;
        self.noted(self.inner.allocate_host(bytes))
    }

    unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free_host(ptr, bytes) }
    }

    fn create_stream(&self) -> Result<Stream> {
        self.pass(Operation::CreateStream)?;
        self.noted(self.inner.create_stream())
    }

    fn fence(&self) -> Result<Fence> {
        match self.noted(self.inner.fence()) {
            // Nothing runs on a lost device: there is nothing to wait for before its memory is let go of.
            Err(GpuError::DeviceLost { .. }) => Ok(Fence::default()),
            other => other,
        }
    }

    fn fence_passed(&self, fence: &Fence, wait: bool) -> Result<bool> {
        match self.noted(self.inner.fence_passed(fence, wait)) {
            Err(GpuError::DeviceLost { .. }) => Ok(true),
            other => other,
        }
    }

    fn newest(&self, stream: &Stream) -> u64 {
        self.inner.newest(stream)
    }

    fn has_ended(&self, stream: &Stream, work: u64) -> bool {
        self.inner.has_ended(stream, work)
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.pass(Operation::Synchronize)?;
        self.noted(self.inner.synchronize(stream))
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    unsafe fn copy_to_device(
        &self,
        stream: &Stream,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()> {
        stream.check()?;
        self.pass(Operation::CopyToDevice)?;
        // SAFETY: the caller's promise is passed on.
        self.noted(unsafe { self.inner.copy_to_device(stream, source, destination) })
    }

    unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        stream.check()?;
        self.pass(Operation::CopyToHost)?;
        // SAFETY: the caller's promise is passed on.
        self.noted(unsafe { self.inner.copy_to_host(stream, source, destination) })?;
        // Kernels leave early once their query is stopped: what was read may be of one that did.
        stream.check()
    }

    unsafe fn copy_on_device(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        stream.check()?;
        self.pass(Operation::CopyOnDevice)?;
        // SAFETY: the caller's promise is passed on.
        self.noted(unsafe {
            self.inner
                .copy_on_device(stream, source, destination, bytes)
        })
    }

    unsafe fn fill(
        &self,
        stream: &Stream,
        destination: DevicePtr,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        stream.check()?;
        self.pass(Operation::Fill)?;
        // SAFETY: the caller's promise is passed on.
        self.noted(unsafe { self.inner.fill(stream, destination, value, bytes) })
    }

    fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)> {
        self.pass(Operation::Compile)?;
        if let Some(call) = self.strike(Operation::Cubin) {
            // Every other time it is cut short instead of changed.
            self.inner
                .damage_cached(name, source, call.is_multiple_of(2));
        }
        self.noted(self.inner.compile(name, source))
    }

    fn has_kernels_on_disk(&self) -> bool {
        self.inner.has_kernels_on_disk()
    }

    fn damage_cached(&self, name: &str, source: &str, cut: bool) -> bool {
        self.inner.damage_cached(name, source, cut)
    }

    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel> {
        self.present()?;
        self.noted(self.inner.kernel(module, name))
    }

    fn blocks_per_multiprocessor(
        &self,
        kernel: &Kernel,
        block: u32,
        shared_bytes: usize,
    ) -> Result<u32> {
        self.present()?;
        self.noted(
            self.inner
                .blocks_per_multiprocessor(kernel, block, shared_bytes),
        )
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        config: LaunchConfig,
        arguments: &[u8],
    ) -> Result<()> {
        if let Some(cancel) = stream.cancel()
            && self.strike(Operation::Stop).is_some()
        {
            cancel.stop();
        }
        stream.check()?;
        self.pass(Operation::Launch)?;
        // SAFETY: the caller's promise is passed on.
        self.noted(unsafe { self.inner.launch(stream, kernel, config, arguments) })
    }

    fn record_event(&self, stream: &Stream) -> Result<Event> {
        self.present()?;
        self.noted(self.inner.record_event(stream))
    }

    fn wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        self.present()?;
        self.noted(self.inner.wait_event(stream, event))
    }

    fn event_passed(&self, event: &Event, wait: bool) -> Result<bool> {
        self.present()?;
        self.noted(self.inner.event_passed(event, wait))
    }

    fn elapsed_ms(&self, start: &Event, end: &Event) -> Result<f64> {
        self.present()?;
        self.noted(self.inner.elapsed_ms(start, end))
    }
}

/// A failed allocation is one for want of memory, unless the device is lost.
fn refused(error: GpuError, bytes: usize) -> GpuError {
    match error {
        GpuError::Device { .. } => GpuError::OutOfDeviceMemory {
            requested: bytes,
            purpose: "an allocation with an injected failure".into(),
            in_use: 0,
            budget: 0,
        },
        other => other,
    }
}

impl std::fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FaultyDevice").field(&self.inner).finish()
    }
}
