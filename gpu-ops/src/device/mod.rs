//! The device seam: one trait, implemented by CUDA and by the emulator.
//!
//! Kernels, copies and fills are ordered by the [`Stream`] they are issued on. Memory is handed
//! out by [`crate::memory::MemoryPool`] alone; everything above works with
//! [`crate::memory::DeviceBuffer`]s, never with raw addresses.

mod accepted;
mod cancel;
pub mod compiler;
pub mod cubin_cache;
pub mod cuda;
pub mod emulated;
mod faults;
pub mod faulty;
mod inner_work;
mod leave;
pub mod nvrtc;
pub mod peer;
pub mod pinned;
pub mod probe;
mod streams;
pub mod traced;

use std::fmt;
use std::sync::Arc;

pub(crate) use cancel::{CancelFlag, StopPlace, StopSignal};
pub use leave::leave;
pub use streams::{StreamLease, Streams};
pub use warpline_cuda::DevicePtr;

use crate::error::Result;

/// What is known about a device from the moment it is opened.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Marketing name, e.g. `NVIDIA H200`, or `emulator`.
    pub name: String,
    /// `cuda:0`, `emulator`.
    pub id: String,
    /// Total device memory in bytes.
    pub memory: usize,
    /// Compute capability (major, minor); (0, 0) for the emulator.
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes a second that the device's memory moves at most, by its clock and width; 0 where that is not known.
    pub memory_bandwidth: f64,
    /// Shared memory one block may use after opting in, in bytes.
    pub shared_memory_per_block: usize,
    /// Shared memory of one multiprocessor, in bytes.
    pub shared_memory_per_multiprocessor: usize,
    /// L2 cache in bytes.
    pub l2_cache: usize,
    /// Driver version as text, e.g. `13.0`; empty for the emulator.
    pub driver: String,
    /// Version of the kernel compiler, e.g. `NVRTC 13.0` or `g++ 12.2.0`.
    pub compiler: String,
    /// True for the emulator: timings mean nothing and sizes should stay small.
    pub emulated: bool,
}

/// Shape of one kernel launch. All kernels are one-dimensional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Number of blocks.
    pub grid: u32,
    /// Threads a block, a multiple of 32.
    pub block: u32,
    /// Dynamic shared memory a block, in bytes.
    pub shared_bytes: usize,
}

/// A queue of device work; operations on one stream run in order.
///
/// The flag of a query that works on it may be noted with it: what is queued after the query was stopped is refused.
#[derive(Clone)]
pub struct Stream(
    pub(crate) Arc<dyn std::any::Any + Send + Sync>,
    Option<Arc<CancelFlag>>,
);

impl Stream {
    /// A stream of a device, by its handle.
    pub(crate) fn new(handle: Arc<dyn std::any::Any + Send + Sync>) -> Self {
        Self(handle, None)
    }

    /// The same queue, for work that goes on as long as this flag says so.
    #[must_use]
    pub(crate) fn of(&self, cancel: &Arc<CancelFlag>) -> Self {
        Self(Arc::clone(&self.0), Some(Arc::clone(cancel)))
    }

    /// The queue alone, for who outlives the query.
    #[must_use]
    pub(crate) fn queue(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }

    /// Is it the same queue, whatever query it is used for?
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the query that it is used for goes on.
    pub(crate) fn cancel(&self) -> Option<&Arc<CancelFlag>> {
        self.1.as_ref()
    }

    /// Where kernels of the query that it is used for learn that it was stopped.
    pub(crate) fn stop_place(&self) -> StopPlace {
        let place = self.1.as_ref().map(|cancel| cancel.stop_place());
        place.unwrap_or_default()
    }

    /// An error once the query that it is used for was stopped.
    pub(crate) fn check(&self) -> Result<()> {
        self.1.as_ref().map_or(Ok(()), |cancel| cancel.check())
    }
}

/// A point in a stream whose time can be read.
#[derive(Clone)]
pub struct Event(pub(crate) Arc<dyn std::any::Any + Send + Sync>);

/// All work queued on a device's streams up to one moment; see [`Device::fence`].
#[derive(Clone, Default)]
pub struct Fence(pub(crate) Option<Arc<dyn std::any::Any + Send + Sync>>);

/// A loaded module: compiled kernels by name.
#[derive(Clone)]
pub struct Module(pub(crate) Arc<dyn std::any::Any + Send + Sync>);

/// One entry point of a loaded module; keeps the module alive.
#[derive(Clone)]
pub struct Kernel {
    /// Entry point name, for errors and profiles.
    pub name: Arc<str>,
    pub(crate) handle: Arc<dyn std::any::Any + Send + Sync>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish()
    }
}

/// How a module came to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompileReport {
    /// Wall time of the compilation or of loading it from the cache, in milliseconds.
    pub milliseconds: f64,
    /// True when the binary came from the cache on disk.
    pub cached: bool,
}

/// A machine that runs kernels: a CUDA GPU or the emulator.
pub trait Device: Send + Sync + fmt::Debug {
    /// Name, sizes and versions.
    fn info(&self) -> &DeviceInfo;

    /// Bytes of device memory free right now.
    fn free_memory(&self) -> Result<usize>;

    /// Why nothing can be done with the device any more; `None` while it works.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Asked by the memory pool before it hands out a buffer of `bytes` bytes, wherever its memory comes from: a device that
    /// fails on demand refuses here, with [`crate::GpuError::OutOfDeviceMemory`].
    fn admit(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// Allocate `bytes` (> 0) of device memory, at least 256-byte aligned. For the memory pool alone.
    ///
    /// Fails with [`crate::GpuError::OutOfDeviceMemory`] when the device has not as much.
    fn allocate(&self, bytes: usize) -> Result<DevicePtr>;

    /// Return memory from [`Device::allocate`].
    ///
    /// # Safety
    /// `ptr` came from `allocate` of this device, is not freed yet and no queued work uses it.
    unsafe fn free(&self, ptr: DevicePtr, bytes: usize);

    /// Allocate `bytes` (> 0) of page-locked host memory that kernels reach at the same address as the host, at
    /// least 256-byte aligned. All bytes are initialised. For [`pinned::PinnedMemory`] alone.
    ///
    /// Fails with [`crate::GpuError::OutOfDeviceMemory`] when the host gives no more, and with
    /// [`crate::GpuError::Unsupported`] where host and device have no addresses in common.
    fn allocate_host(&self, bytes: usize) -> Result<DevicePtr>;

    /// Return memory from [`Device::allocate_host`].
    ///
    /// # Safety
    /// `ptr` came from `allocate_host` of this device, is not freed yet and no queued work uses it.
    unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize);

    /// From now on, kernels and copies of this device may use memory of `other` at its addresses; false where nothing connects
    /// them. For [`peer::PeerMemory`].
    ///
    /// # Errors
    /// [`crate::GpuError::Device`] from the driver.
    fn reach(&self, _other: &DeviceInfo) -> Result<bool> {
        Ok(false)
    }

    /// Is the memory that this device hands out host memory?
    fn is_host_memory(&self) -> bool {
        false
    }

    /// Is it memory of other devices, which this one reaches?
    fn is_peer_memory(&self) -> bool {
        false
    }

    /// A new stream.
    fn create_stream(&self) -> Result<Stream>;

    /// A fence over the work queued so far on every stream of this device; empty for a device that
    /// finishes each operation before it returns.
    fn fence(&self) -> Result<Fence> {
        Ok(Fence::default())
    }

    /// Has all work before `fence` ended? With `wait`, blocks until it has and answers true.
    fn fence_passed(&self, _fence: &Fence, _wait: bool) -> Result<bool> {
        Ok(true)
    }

    /// The number of the newest work that was queued on `stream`.
    fn newest(&self, stream: &Stream) -> u64;

    /// Is the work of `stream` up to this number known to have ended, since somebody has waited for it or for what came behind?
    /// The driver is not asked.
    fn has_ended(&self, stream: &Stream, work: u64) -> bool;

    /// Wait until all work queued on `stream` is done; reports errors of earlier launches.
    fn synchronize(&self, stream: &Stream) -> Result<()>;

    /// Wait for all work in the device's context, also what other libraries of the process have queued there.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Copy host bytes to the device; returns when `source` may be reused.
    ///
    /// # Safety
    /// `destination` points to at least `source.len()` bytes of live device memory.
    unsafe fn copy_to_device(
        &self,
        stream: &Stream,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()>;

    /// Copy device bytes to the host and wait for them.
    ///
    /// # Safety
    /// `source` points to at least `destination.len()` bytes of live device memory.
    unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()>;

    /// Copy between two device addresses, either of which may be that of page-locked host memory.
    ///
    /// # Safety
    /// Both ranges are live memory of `bytes` bytes that the device reaches, and do not overlap.
    unsafe fn copy_on_device(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: DevicePtr,
        bytes: usize,
    ) -> Result<()>;

    /// Set `bytes` bytes to `value`.
    ///
    /// # Safety
    /// The range is live device memory.
    unsafe fn fill(
        &self,
        stream: &Stream,
        destination: DevicePtr,
        value: u8,
        bytes: usize,
    ) -> Result<()>;

    /// Compile CUDA C++ that includes Warpline's headers (`simt.cuh`, …), or load it from the cache on disk.
    fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)>;

    /// Have earlier processes left kernels on disk, of whatever source?
    fn has_kernels_on_disk(&self) -> bool {
        false
    }

    /// For tests: damage what the cache on disk holds for a source, by changing a byte or, with `cut`, by losing the end. False
    /// when it holds nothing.
    fn damage_cached(&self, _name: &str, _source: &str, _cut: bool) -> bool {
        false
    }

    /// Look up an entry point.
    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel>;

    /// Most blocks of this kernel that one multiprocessor holds at once.
    fn blocks_per_multiprocessor(
        &self,
        kernel: &Kernel,
        block: u32,
        shared_bytes: usize,
    ) -> Result<u32>;

    /// Queue one launch. `arguments` are the bytes of the kernel's one argument struct, copied
    /// before this returns. A grid of zero blocks does nothing.
    ///
    /// # Safety
    /// `arguments` matches the kernel's struct, and every address in it is live device memory of
    /// the size the kernel expects. Pool buffers may be dropped once this has returned: the pool
    /// reuses a block only after all streams have passed what was queued before.
    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        config: LaunchConfig,
        arguments: &[u8],
    ) -> Result<()>;

    /// Record a new event on `stream`.
    fn record_event(&self, stream: &Stream) -> Result<Event>;

    /// What is queued on `stream` from now on runs after everything before `event`; does not block the host.
    fn wait_event(&self, stream: &Stream, event: &Event) -> Result<()>;

    /// Has everything before `event` ended? With `wait`, blocks until it has and answers true. At once for a device that finishes each
    /// operation before it returns.
    fn event_passed(&self, _event: &Event, _wait: bool) -> Result<bool> {
        Ok(true)
    }

    /// Milliseconds between two recorded events; waits for the second.
    fn elapsed_ms(&self, start: &Event, end: &Event) -> Result<f64>;
}
