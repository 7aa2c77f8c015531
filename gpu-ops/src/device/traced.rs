//! The device wrapper that records a trace; otherwise it passes every call on.
//!
//! Without a trace that costs an atomic read a call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use super::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Fence, Kernel, LaunchConfig, Module,
    Stream,
};
use crate::error::Result;
use crate::trace::{StreamSpan, Trace, Work};

/// Passes every call on to another device.
pub struct TracedDevice {
    inner: Arc<dyn Device>,
    active: AtomicBool,
    trace: RwLock<Option<Arc<Trace>>>,
    /// Page-locked host memory: bytes by address, to tell which way a copy goes.
    host: Mutex<BTreeMap<u64, usize>>,
}

impl TracedDevice {
    /// A device that behaves as `inner`.
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            active: AtomicBool::new(false),
            trace: RwLock::default(),
            host: Mutex::default(),
        })
    }

    /// Notes all that is done from now on, in place of an earlier trace.
    ///
    /// # Errors
    /// [`crate::GpuError::Device`] when the device records no event.
    pub fn start(&self) -> Result<Arc<Trace>> {
        let trace = Trace::begin(Some(Arc::clone(&self.inner)))?;
        *self.trace.write() = Some(Arc::clone(&trace));
        self.active.store(true, Ordering::SeqCst);
        Ok(trace)
    }

    /// Notes nothing more.
    pub fn stop(&self) {
        self.active.store(false, Ordering::SeqCst);
        *self.trace.write() = None;
    }

    /// The trace that is being taken.
    pub fn trace(&self) -> Option<Arc<Trace>> {
        if !self.active.load(Ordering::Relaxed) {
            return None;
        }
        self.trace.read().clone()
    }

    /// A span for what is queued on the stream until it is dropped.
    fn span(
        &self,
        stream: &Stream,
        work: Work,
        name: impl FnOnce() -> String,
        numbers: impl FnOnce() -> Vec<(&'static str, u64)>,
    ) -> Result<Option<StreamSpan>> {
        match self.trace() {
            None => Ok(None),
            Some(trace) => trace.on_stream(stream, work, &name(), numbers()),
        }
    }

    fn is_on_host(&self, address: DevicePtr) -> bool {
        let host = self.host.lock();
        let below = host.range(..=address.0).next_back();
        below.is_some_and(|(start, bytes)| address.0 - start < *bytes as u64)
    }
}

impl Device for TracedDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn free_memory(&self) -> Result<usize> {
        self.inner.free_memory()
    }

    fn lost(&self) -> Option<String> {
        self.inner.lost()
    }

    fn admit(&self, bytes: usize) -> Result<()> {
        self.inner.admit(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        self.inner.allocate(bytes)
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free(ptr, bytes) }
    }

    fn allocate_host(&self, bytes: usize) -> Result<DevicePtr> {
        let ptr = self.inner.allocate_host(bytes)?;
        self.host.lock().insert(ptr.0, bytes);
        Ok(ptr)
    }

    unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize) {
        self.host.lock().remove(&ptr.0);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.free_host(ptr, bytes) }
    }

    fn is_host_memory(&self) -> bool {
        self.inner.is_host_memory()
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
        let _span = self
            .trace()
            .map(|trace| trace.thread(Work::Wait, "wait for a stream"));
        self.inner.synchronize(stream)
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
        let name = || "copy host to device".to_string();
        let bytes = || vec![("bytes", source.len() as u64)];
        let _span = self.span(stream, Work::Copy, name, bytes)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.copy_to_device(stream, source, destination) }
    }

    unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        let name = || "copy device to host".to_string();
        let length = destination.len() as u64;
        let _waits = self
            .trace()
            .map(|trace| trace.thread(Work::Wait, "wait for a copy"));
        let _span = self.span(stream, Work::Copy, name, || vec![("bytes", length)])?;
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
        let side = |on_host| if on_host { "host" } else { "device" };
        let name = || {
            let (from, to) = (self.is_on_host(source), self.is_on_host(destination));
            format!("copy {} to {}", side(from), side(to))
        };
        let _span = self.span(stream, Work::Copy, name, || vec![("bytes", bytes as u64)])?;
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
        let name = || "fill".to_string();
        let _span = self.span(stream, Work::Copy, name, || vec![("bytes", bytes as u64)])?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.fill(stream, destination, value, bytes) }
    }

    fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)> {
        let mut span = self
            .trace()
            .map(|trace| trace.thread(Work::Compile, format!("compile {name}")));
        let compiled = self.inner.compile(name, source);
        if let (Some(span), Ok((_, report))) = (&mut span, &compiled) {
            span.number("from_disk", u64::from(report.cached));
            span.number("source_bytes", source.len() as u64);
        }
        compiled
    }

    fn has_kernels_on_disk(&self) -> bool {
        self.inner.has_kernels_on_disk()
    }

    fn damage_cached(&self, name: &str, source: &str, cut: bool) -> bool {
        self.inner.damage_cached(name, source, cut)
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
        let name = || kernel.name.to_string();
        let shape = || {
            vec![
                ("blocks", u64::from(config.grid)),
                ("threads_a_block", u64::from(config.block)),
                ("shared_bytes", config.shared_bytes as u64),
            ]
        };
        let _span = self.span(stream, Work::Kernel, name, shape)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.launch(stream, kernel, config, arguments) }
    }

    fn record_event(&self, stream: &Stream) -> Result<Event> {
        self.inner.record_event(stream)
    }

    fn wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        self.inner.wait_event(stream, event)
    }

    fn event_passed(&self, event: &Event, wait: bool) -> Result<bool> {
        let trace = self.trace().filter(|_| wait);
        let _span = trace.map(|trace| trace.thread(Work::Wait, "wait for an event"));
        self.inner.event_passed(event, wait)
    }

    fn elapsed_ms(&self, start: &Event, end: &Event) -> Result<f64> {
        self.inner.elapsed_ms(start, end)
    }
}

impl std::fmt::Debug for TracedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TracedDevice").field(&self.inner).finish()
    }
}
