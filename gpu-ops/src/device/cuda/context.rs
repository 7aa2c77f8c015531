//! Handles of one GPU that return themselves: primary context, streams, events, modules, pinned memory.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use parking_lot::Mutex;

use super::driver::check;
use crate::error::{GpuError, Result};

/// GPUs whose primary context was lost and has not been made anew.
static LOST: Mutex<BTreeSet<sys::CUdevice>> = Mutex::new(BTreeSet::new());

/// The primary context of a GPU, held until the last handle is gone.
///
/// After an error from which a context does not recover, no handle of it reaches the driver any more, not even to be
/// destroyed: the next [`Context::retain`] of the GPU destroys the context with all it holds and makes another one. Not every
/// driver makes another one in a process of which a kernel failed.
pub(super) struct Context {
    pub(super) raw: sys::CUcontext,
    pub(super) device: sys::CUdevice,
    /// `cuda:0`, for errors.
    pub(super) id: String,
    /// Why it is of no use any more.
    lost: OnceLock<String>,
    /// Threads that wait for the device at the moment.
    waiting: AtomicUsize,
    /// So many of them may keep a core busy.
    spinning: usize,
}

/// A thread that waits for the device, until it is dropped.
///
/// The driver's waits read a word in memory over and over: the answer comes some ten microseconds sooner than by an interrupt, but
/// each waiting thread keeps a core from others, which have kernels to queue. So only as many wait like that as leave half of the
/// cores, and those that come then sleep.
pub(super) struct Waiter<'a> {
    context: &'a Context,
    /// Whether it may keep a core busy.
    pub(super) spins: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.context.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: driver contexts may be used from any thread that made them current.
unsafe impl Send for Context {}
// SAFETY: as above; the driver synchronises calls on one context.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn retain(device: sys::CUdevice, id: String) -> Result<Arc<Self>> {
        let mut lost = LOST.lock();
        let mut raw = std::ptr::null_mut();
        let opened = if lost.contains(&device) {
            // SAFETY: every handle of the lost context knows that it is lost and leaves the driver alone.
            let status = unsafe { sys::cuDevicePrimaryCtxReset_v2(device) };
            check(status, "resetting the lost device", &id).and_then(|()| {
                // SAFETY: as below.
                let status = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) };
                check(status, "opening it again", &id)
            })
        } else {
            // SAFETY: the device handle came from the driver; `raw` is written.
            let status = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) };
            check(status, "opening the device", &id)
        };
        match opened {
            Err(GpuError::DeviceLost { device, cause }) => {
                let cause = format!("{cause}: its driver opens it in a new process only");
                return Err(GpuError::DeviceLost { device, cause });
            }
            opened => opened?,
        }
        if lost.remove(&device) {
            log::info!("{id} was lost; its context was made anew");
        }
        Ok(Arc::new(Self {
            raw,
            device,
            id,
            lost: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            spinning: std::thread::available_parallelism()
                .map_or(1, |cores| cores.get() / 2)
                .max(1),
        }))
    }

    /// Make the context current on this thread; needed before every other call.
    ///
    /// # Errors
    /// [`GpuError::DeviceLost`] once any call has found it lost.
    pub(super) fn bind(&self) -> Result<()> {
        if let Some(cause) = self.lost.get() {
            return Err(GpuError::DeviceLost {
                device: self.id.clone(),
                cause: cause.clone(),
            });
        }
        // SAFETY: the context is retained while `self` lives.
        let status = unsafe { sys::cuCtxSetCurrent(self.raw) };
        self.check(status, "selecting the device")
    }

    /// Wait for all work of the context, whoever queued it.
    ///
    /// # Errors
    /// As [`Context::bind`], and for work that failed.
    pub(super) fn settle(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is current.
        let status = unsafe { sys::cuCtxSynchronize() };
        self.check(status, "waiting for the device")
    }

    /// Use memory of another device from now on, where the driver sees a way; false where not.
    ///
    /// # Errors
    /// As [`Context::bind`].
    pub(super) fn reach(&self, other: sys::CUdevice) -> Result<bool> {
        self.bind()?;
        let mut can = 0;
        // SAFETY: both handles came from the driver; `can` is written.
        let status = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, other) };
        self.check(status, "asking for a way to another device")?;
        if can == 0 {
            return Ok(false);
        }
        let mut peer = std::ptr::null_mut();
        // SAFETY: as in `retain`.
        let status = unsafe { sys::cuDevicePrimaryCtxRetain(&mut peer, other) };
        self.check(status, "opening another device")?;
        // SAFETY: this context is current, the other one is retained. Access lasts as long as both do.
        let status = unsafe { sys::cuCtxEnablePeerAccess(peer, 0) };
        // SAFETY: retained above. Memory of the other device is handed out by its pool, which retains it as well.
        let released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(other) };
        match status {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            status => self.check(status, "reaching another device")?,
        }
        self.check(released, "letting go of another device")?;
        Ok(true)
    }

    pub(super) fn check(&self, status: sys::CUresult, operation: &str) -> Result<()> {
        let outcome = check(status, operation, &self.id);
        if let Err(GpuError::DeviceLost { cause, .. }) = &outcome
            && self.lost.set(cause.clone()).is_ok()
        {
            LOST.lock().insert(self.device);
        }
        outcome
    }

    /// This thread is about to wait.
    pub(super) fn waiter(&self) -> Waiter<'_> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiter {
            context: self,
            spins: before < self.spinning,
        }
    }

    pub(super) fn lost(&self) -> Option<&String> {
        self.lost.get()
    }

    /// For destructors: bind, and log instead of failing.
    fn release(&self, what: &str, destroy: impl FnOnce() -> sys::CUresult) {
        let result = self
            .bind()
            .and_then(|()| self.check(destroy(), &format!("releasing {what}")));
        if let Err(error) = result {
            log::debug!("{error}");
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.lost.get().is_some() {
            // A reset took it, or will.
            return;
        }
        // SAFETY: retained once in `retain`, released once here, after the last handle.
        let status = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        if let Err(error) = self.check(status, "closing the device") {
            log::debug!("{error}");
        }
    }
}

/// An in-order queue, with counts of what was queued and what is known to be done.
pub(super) struct StreamHandle {
    pub(super) context: Arc<Context>,
    pub(super) raw: sys::CUstream,
    queued: AtomicU64,
    done: AtomicU64,
    /// For threads that sleep until it has come so far.
    alarm: OnceLock<EventHandle>,
}

// SAFETY: streams may be used from any thread with the context current.
unsafe impl Send for StreamHandle {}
// SAFETY: as above; the driver synchronises calls on one stream.
unsafe impl Sync for StreamHandle {}

impl StreamHandle {
    pub(super) fn new(context: Arc<Context>) -> Result<Arc<Self>> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; `raw` is written.
        let status = unsafe { sys::cuStreamCreate(&mut raw, flags) };
        context.check(status, "creating a stream")?;
        Ok(Arc::new(Self {
            context,
            raw,
            queued: AtomicU64::new(0),
            done: AtomicU64::new(0),
            alarm: OnceLock::new(),
        }))
    }

    /// Count an operation, after it was queued and before the call that queued it returns: whatever
    /// is counted is queued, and a fence taken later sees it.
    pub(super) fn count(&self) {
        self.queued.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of the newest counted operation. Read it, then record an event: when the event has
    /// passed, so have all operations up to this number.
    pub(super) fn newest(&self) -> u64 {
        self.queued.load(Ordering::SeqCst)
    }

    /// Number of the newest operation, when it is not known to be done.
    pub(super) fn pending(&self) -> Option<u64> {
        let queued = self.newest();
        (self.done.load(Ordering::SeqCst) < queued).then_some(queued)
    }

    /// Is the operation with this number known to be done?
    pub(super) fn has_passed(&self, operation: u64) -> bool {
        self.done.load(Ordering::SeqCst) >= operation
    }

    /// Note that all operations up to this number are done.
    pub(super) fn mark_passed(&self, operation: u64) {
        self.done.fetch_max(operation, Ordering::SeqCst);
    }

    /// Wait for everything queued before this call.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        let queued = self.newest();
        let waiter = self.context.waiter();
        if waiter.spins {
            // SAFETY: the stream lives while `self` does.
            let status = unsafe { sys::cuStreamSynchronize(self.raw) };
            self.context
                .check(status, "waiting for kernels and copies")?;
        } else {
            let alarm = self.alarm()?;
            alarm.record(self)?;
            alarm.wait()?;
        }
        self.mark_passed(queued);
        Ok(())
    }

    /// Who records it while another thread waits for it only makes that wait longer.
    fn alarm(&self) -> Result<&EventHandle> {
        if let Some(alarm) = self.alarm.get() {
            return Ok(alarm);
        }
        let alarm = EventHandle::new(Arc::clone(&self.context), EventUse::Alarm)?;
        Ok(self.alarm.get_or_init(|| alarm))
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        // Work of a dropped stream is invisible to fences, so none may be left.
        if self.pending().is_some()
            && let Err(error) = self.synchronize()
        {
            log::debug!("{error}");
        }
        // SAFETY: created in `new`, destroyed once here.
        self.context
            .release("a stream", || unsafe { sys::cuStreamDestroy_v2(self.raw) });
    }
}

/// What an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventUse {
    /// Its time is read; the others are cheaper.
    Time,
    /// Streams and threads wait for it.
    Order,
    /// Threads sleep until it has passed.
    Alarm,
}

/// A point in a stream.
pub(super) struct EventHandle {
    pub(super) context: Arc<Context>,
    pub(super) raw: sys::CUevent,
}

// SAFETY: events may be used from any thread with the context current.
unsafe impl Send for EventHandle {}
// SAFETY: as above; the driver synchronises calls on one event.
unsafe impl Sync for EventHandle {}

impl EventHandle {
    pub(super) fn new(context: Arc<Context>, purpose: EventUse) -> Result<Self> {
        use sys::CUevent_flags as Flags;
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = match purpose {
            EventUse::Time => Flags::CU_EVENT_DEFAULT as u32,
            EventUse::Order => Flags::CU_EVENT_DISABLE_TIMING as u32,
            EventUse::Alarm => {
                Flags::CU_EVENT_DISABLE_TIMING as u32 | Flags::CU_EVENT_BLOCKING_SYNC as u32
            }
        };
        // SAFETY: the context is current; `raw` is written.
        let status = unsafe { sys::cuEventCreate(&mut raw, flags) };
        context.check(status, "creating an event")?;
        Ok(Self { context, raw })
    }

    /// Record on a stream; the context must be current.
    pub(super) fn record(&self, stream: &StreamHandle) -> Result<()> {
        // SAFETY: event and stream live and belong to the current context.
        let status = unsafe { sys::cuEventRecord(self.raw, stream.raw) };
        self.context.check(status, "recording an event")
    }

    /// Let what is queued on `stream` from now on wait for the record.
    pub(super) fn hold(&self, stream: &StreamHandle) -> Result<()> {
        self.context.bind()?;
        // SAFETY: event and stream live and belong to the current context.
        let status = unsafe { sys::cuStreamWaitEvent(stream.raw, self.raw, 0) };
        self.context
            .check(status, "letting a stream wait for another")
    }

    /// Block until the stream has passed the record.
    pub(super) fn wait(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the event lives while `self` does.
        let status = unsafe { sys::cuEventSynchronize(self.raw) };
        self.context.check(status, "waiting for kernels and copies")
    }

    /// Has the stream passed the record?
    pub(super) fn has_passed(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: the event lives while `self` does.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => self
                .context
                .check(status, "looking at an event")
                .map(|()| true),
        }
    }

    /// Milliseconds from `start` to this event, both passed.
    pub(super) fn milliseconds_since(&self, start: &EventHandle) -> Result<f64> {
        self.context.bind()?;
        let mut milliseconds = 0.0_f32;
        // SAFETY: both events live and belong to the current context.
        let status = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, start.raw, self.raw) };
        self.context.check(status, "reading an event's time")?;
        Ok(f64::from(milliseconds))
    }
}

impl Drop for EventHandle {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once here.
        self.context
            .release("an event", || unsafe { sys::cuEventDestroy_v2(self.raw) });
    }
}

/// A loaded cubin.
pub(super) struct ModuleHandle {
    pub(super) context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: modules may be used from any thread with the context current.
unsafe impl Send for ModuleHandle {}
// SAFETY: as above; they do not change after loading.
unsafe impl Sync for ModuleHandle {}

impl ModuleHandle {
    pub(super) fn load(context: Arc<Context>, cubin: &[u8]) -> Result<Arc<Self>> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a cubin states its own length and comes whole from NVRTC or a checked cache entry.
        let status = unsafe { sys::cuModuleLoadData(&mut raw, cubin.as_ptr().cast()) };
        context.check(status, "loading a compiled kernel")?;
        Ok(Arc::new(Self { context, raw }))
    }

    /// An entry point by name.
    pub(super) fn function(self: &Arc<Self>, name: &str) -> Result<KernelHandle> {
        self.context.bind()?;
        let mut raw = std::ptr::null_mut();
        let symbol = std::ffi::CString::new(name)
            .map_err(|_| crate::GpuError::Internal("a kernel's name holds a zero byte".into()))?;
        // SAFETY: the module lives; the name ends in zero; `raw` is written.
        let status = unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, symbol.as_ptr()) };
        self.context
            .check(status, &format!("looking up kernel '{name}'"))?;
        Ok(KernelHandle {
            module: Arc::clone(self),
            raw,
            shared_limit: AtomicUsize::new(DEFAULT_SHARED_LIMIT),
        })
    }
}

impl Drop for ModuleHandle {
    fn drop(&mut self) {
        // SAFETY: loaded in `load`, unloaded once here, after its last kernel. Unloading waits for
        // launches that still run.
        self.context
            .release("a module", || unsafe { sys::cuModuleUnload(self.raw) });
    }
}

/// Dynamic shared memory a kernel may use without opting in, in bytes.
const DEFAULT_SHARED_LIMIT: usize = 48 << 10;

/// An entry point; keeps its module loaded.
pub(super) struct KernelHandle {
    pub(super) module: Arc<ModuleHandle>,
    pub(super) raw: sys::CUfunction,
    /// Dynamic shared memory opted in to so far.
    shared_limit: AtomicUsize,
}

// SAFETY: functions may be used from any thread with the context current.
unsafe impl Send for KernelHandle {}
// SAFETY: as above; the driver synchronises attribute changes.
unsafe impl Sync for KernelHandle {}

impl KernelHandle {
    /// Opt in to `bytes` of dynamic shared memory where that is above what is allowed so far.
    pub(super) fn allow_shared(&self, bytes: usize) -> Result<()> {
        if bytes <= self.shared_limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        let value = i32::try_from(bytes).unwrap_or(i32::MAX);
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function lives while its module does.
        let status = unsafe { sys::cuFuncSetAttribute(self.raw, attribute, value) };
        self.module.context.check(
            status,
            &format!("asking for {bytes} bytes of shared memory a block"),
        )?;
        self.shared_limit.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Page-locked host memory.
pub(super) struct Pinned {
    context: Arc<Context>,
    raw: *mut c_void,
    bytes: usize,
}

// SAFETY: plain host memory; exclusive access follows from `&mut`.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn new(context: Arc<Context>, bytes: usize) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; `raw` is written.
        let status = unsafe { sys::cuMemHostAlloc(&mut raw, bytes, 0) };
        context.check(
            status,
            &format!("page-locking {bytes} bytes of host memory"),
        )?;
        // SAFETY: the driver gave `bytes` writable bytes; zeroing initialises them.
        unsafe { std::ptr::write_bytes(raw.cast::<u8>(), 0, bytes) };
        Ok(Self {
            context,
            raw,
            bytes,
        })
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` initialised bytes, live while `self` is.
        unsafe { std::slice::from_raw_parts(self.raw.cast(), self.bytes) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.raw.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once here; owners wait for copies before they drop it.
        self.context.release("page-locked memory", || unsafe {
            sys::cuMemFreeHost(self.raw)
        });
    }
}
