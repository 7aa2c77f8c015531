//! A CUDA GPU as a [`Device`]: driver API and NVRTC, both loaded at run time.

mod context;
mod driver;
mod host_memory;
mod staging;

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::sync::{Arc, Once, Weak};
use std::time::Instant;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use parking_lot::Mutex;

use self::context::{Context, EventHandle, EventUse, KernelHandle, ModuleHandle, StreamHandle};
use self::driver::check;
use self::host_memory::HostMemory;
use self::staging::Staging;
use super::compiler::Compilers;
use super::cubin_cache::{CacheKey, CubinCache, default_directory};
use super::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Fence, Kernel, LaunchConfig, Module,
    Stream, nvrtc,
};
use crate::error::{GpuError, Result};

/// Lowest compute capability the kernels run on: independent thread scheduling.
pub const LOWEST_CAPABILITY: (u32, u32) = (7, 0);

/// One GPU, through its primary context.
pub struct CudaDevice {
    info: DeviceInfo,
    context: Arc<Context>,
    streams: Mutex<Vec<Weak<StreamHandle>>>,
    host_memory: HostMemory,
    staging: Staging,
    cache: CubinCache,
    architecture: (u32, u32),
}

/// Number of GPUs the driver shows.
///
/// # Errors
/// [`GpuError::DeviceUnavailable`] when there is no driver or no GPU.
pub fn count() -> Result<usize> {
    // Beside the driver, which takes longer. No thread is left in a library's initialisation when the process ends.
    static COMPILER: Once = Once::new();
    COMPILER.call_once(|| {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("warpline nvrtc".into());
            if let Err(error) = thread.spawn_scoped(scope, nvrtc::version) {
                log::debug!("NVRTC is loaded when it is needed: {error}");
            }
            // What goes wrong is met again below.
            let _ = driver::ensure_loaded("cuda");
        });
    });
    driver::ensure_loaded("cuda")?;
    let mut count = 0;
    // SAFETY: the driver is initialised; `count` is written.
    let status = unsafe { sys::cuDeviceGetCount(&mut count) };
    check(status, "counting GPUs", "cuda")?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// What is known of GPU `index` without opening it; `compiler` is empty.
///
/// # Errors
/// [`GpuError::DeviceUnavailable`] when there is no such GPU.
pub fn describe(index: usize) -> Result<DeviceInfo> {
    let count = count()?;
    let id = format!("cuda:{index}");
    if index >= count {
        return Err(GpuError::DeviceUnavailable {
            requested: id,
            cause: format!("the driver shows {count} GPU(s), numbered from 0"),
            remedy: "choose one that `warpline devices` lists".into(),
        });
    }
    let device = handle(index, &id)?;
    let attribute = |attribute: Attribute| -> Result<usize> {
        let mut value: c_int = 0;
        // SAFETY: the device handle is valid; `value` is written.
        let status = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
        check(status, "reading device attributes", &id)?;
        Ok(usize::try_from(value).unwrap_or(0))
    };
    let mut name = [0; 256];
    // SAFETY: the buffer has the length given; the driver ends the name in zero.
    let status = unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) };
    check(status, "reading the device's name", &id)?;
    let mut memory = 0;
    // SAFETY: the device handle is valid; `memory` is written.
    let status = unsafe { sys::cuDeviceTotalMem_v2(&mut memory, device) };
    check(status, "reading the device's memory", &id)?;
    let mut driver: c_int = 0;
    // SAFETY: `driver` is written.
    let status = unsafe { sys::cuDriverGetVersion(&mut driver) };
    check(status, "reading the driver's version", &id)?;
    // Twice a clock, in kHz, by so many bits; prices do without where the driver does not tell.
    let clock = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0);
    let bits = attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0);
    Ok(DeviceInfo {
        memory_bandwidth: 2.0 * clock as f64 * 1e3 * bits as f64 / 8.0,
        // SAFETY: zero-terminated within the buffer, see above.
        name: unsafe { CStr::from_ptr(name.as_ptr()) }
            .to_string_lossy()
            .into_owned(),
        memory,
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32,
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        shared_memory_per_block: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?,
        shared_memory_per_multiprocessor: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        )?,
        l2_cache: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        driver: format!("{}.{}", driver / 1000, driver % 1000 / 10),
        compiler: String::new(),
        emulated: false,
        id,
    })
}

/// The driver's handle of GPU `index`.
fn handle(index: usize, id: &str) -> Result<sys::CUdevice> {
    let mut device = 0;
    let ordinal = c_int::try_from(index).unwrap_or(c_int::MAX);
    // SAFETY: the driver is initialised; `device` is written.
    let status = unsafe { sys::cuDeviceGet(&mut device, ordinal) };
    check(status, "selecting the device", id)?;
    Ok(device)
}

/// The reason why kernels cannot run on a GPU, or the architecture to compile for.
pub(super) fn usable_architecture(info: &DeviceInfo) -> Result<(u32, u32)> {
    let capability = info.compute_capability;
    let unavailable = |cause: String, remedy: &str| GpuError::DeviceUnavailable {
        requested: info.id.clone(),
        cause,
        remedy: remedy.into(),
    };
    if capability < LOWEST_CAPABILITY {
        return Err(unavailable(
            format!(
                "compute capability {}.{} is below {}.{}",
                capability.0, capability.1, LOWEST_CAPABILITY.0, LOWEST_CAPABILITY.1
            ),
            "use a Volta or later GPU",
        ));
    }
    let compiler = nvrtc::version()?;
    let driver_major = info
        .driver
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    if driver_major.is_some_and(|major: u32| compiler.0 > major) {
        return Err(unavailable(
            format!(
                "NVRTC {}.{} is newer than the driver, which supports CUDA {}",
                compiler.0, compiler.1, info.driver
            ),
            "update the NVIDIA driver or point WARPLINE_NVRTC to an NVRTC of its release",
        ));
    }
    nvrtc::architecture_for(capability)
}

impl CudaDevice {
    /// Open GPU `index` (as the driver numbers them) with the cubin cache in its default place.
    ///
    /// # Errors
    /// [`GpuError::DeviceUnavailable`] naming what is missing: driver, GPU, NVRTC, capability.
    pub fn open(index: usize) -> Result<Self> {
        Self::open_with_cache(index, CubinCache::new(default_directory()))
    }

    /// [`CudaDevice::open`] with a given cubin cache.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn open_with_cache(index: usize, cache: CubinCache) -> Result<Self> {
        let mut info = describe(index)?;
        let architecture = usable_architecture(&info)?;
        let (major, minor) = nvrtc::version()?;
        info.compiler = format!("NVRTC {major}.{minor}");
        let context = Context::retain(handle(index, &info.id)?, info.id.clone())?;
        context.bind()?;
        Ok(Self {
            staging: Staging::new(Arc::clone(&context)),
            streams: Mutex::new(Vec::new()),
            host_memory: HostMemory::default(),
            info,
            context,
            cache,
            architecture,
        })
    }

    fn cache_key(&self, source: &str) -> CacheKey {
        nvrtc::cache_key(source, &self.info.compiler, self.architecture)
    }
}

/// The CUDA handle behind an opaque one.
fn native<'a, T: 'static>(
    handle: &'a Arc<dyn std::any::Any + Send + Sync>,
    what: &str,
) -> Result<&'a T> {
    handle
        .downcast_ref()
        .ok_or_else(|| GpuError::Internal(format!("{what} belongs to another device")))
}

/// One stream's share of a fence: the number of its newest operation and an event after it.
struct FencePart {
    stream: Arc<StreamHandle>,
    operation: u64,
    event: EventHandle,
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_memory(&self) -> Result<usize> {
        self.context.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current; both sizes are written.
        let status = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        self.context.check(status, "reading free device memory")?;
        Ok(free)
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        self.context.bind()?;
        let mut pointer = 0;
        // SAFETY: the context is current; `pointer` is written.
        match unsafe { sys::cuMemAlloc_v2(&mut pointer, bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(GpuError::OutOfDeviceMemory {
                requested: bytes,
                purpose: "an allocation on the device".into(),
                in_use: self.info.memory.saturating_sub(self.free_memory()?),
                budget: self.info.memory,
            }),
            status => {
                self.context
                    .check(status, &format!("allocating {bytes} bytes"))?;
                Ok(DevicePtr(pointer))
            }
        }
    }

    fn lost(&self) -> Option<String> {
        self.context.lost().cloned()
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: usize) {
        if self.context.lost().is_some() {
            // It goes with the context.
            return;
        }
        let freed = self.context.bind().and_then(|()| {
            // SAFETY: the caller vouches that the address is ours and that nothing uses it.
            let status = unsafe { sys::cuMemFree_v2(ptr.0) };
            self.context
                .check(status, &format!("freeing {bytes} bytes"))
        });
        if let Err(error) = freed {
            log::warn!("{error}");
        }
    }

    fn allocate_host(&self, bytes: usize) -> Result<DevicePtr> {
        let memory = self.host_memory.allocate(&self.context, bytes)?;
        let memory = memory.ok_or_else(|| GpuError::OutOfDeviceMemory {
            requested: bytes,
            purpose: "an allocation of page-locked host memory".into(),
            in_use: 0,
            budget: 0,
        })?;
        Ok(DevicePtr(memory))
    }

    unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize) {
        // SAFETY: the caller vouches that the address is ours and that nothing uses it.
        let freed = unsafe { self.host_memory.free(&self.context, ptr.0, bytes) };
        if let Err(error) = freed {
            log::warn!("{error}");
        }
    }

    fn create_stream(&self) -> Result<Stream> {
        let stream = StreamHandle::new(Arc::clone(&self.context))?;
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        Ok(Stream::new(stream))
    }

    fn fence(&self) -> Result<Fence> {
        let streams: Vec<_> = self
            .streams
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let mut parts = Vec::new();
        for stream in streams {
            let Some(operation) = stream.pending() else {
                continue;
            };
            let event = EventHandle::new(Arc::clone(&self.context), EventUse::Order)?;
            event.record(&stream)?;
            parts.push(FencePart {
                stream,
                operation,
                event,
            });
        }
        if parts.is_empty() {
            return Ok(Fence(None));
        }
        Ok(Fence(Some(Arc::new(parts))))
    }

    fn fence_passed(&self, fence: &Fence, wait: bool) -> Result<bool> {
        let Some(parts) = &fence.0 else {
            return Ok(true);
        };
        for part in native::<Vec<FencePart>>(parts, "a fence")? {
            if part.stream.has_passed(part.operation) {
                continue;
            }
            if wait {
                part.event.wait()?;
            } else if !part.event.has_passed()? {
                return Ok(false);
            }
            part.stream.mark_passed(part.operation);
        }
        Ok(true)
    }

    fn newest(&self, stream: &Stream) -> u64 {
        native::<StreamHandle>(&stream.0, "a stream").map_or(u64::MAX, StreamHandle::newest)
    }

    fn has_ended(&self, stream: &Stream, work: u64) -> bool {
        let stream = native::<StreamHandle>(&stream.0, "a stream");
        stream.is_ok_and(|stream| stream.has_passed(work))
    }

    fn synchronize(&self, stream: &Stream) -> Result<()> {
        native::<StreamHandle>(&stream.0, "a stream")?.synchronize()
    }

    fn settle(&self) -> Result<()> {
        self.context.settle()
    }

    unsafe fn copy_to_device(
        &self,
        stream: &Stream,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()> {
        if source.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        let stream = native::<StreamHandle>(&stream.0, "a stream")?;
        self.staging.upload(stream, source, destination)
    }

    unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        if destination.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        let stream = native::<StreamHandle>(&stream.0, "a stream")?;
        self.staging.download(stream, source, destination)
    }

    unsafe fn copy_on_device(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.bind()?;
        let stream = native::<StreamHandle>(&stream.0, "a stream")?;
        // SAFETY: the caller vouches for both ranges; addresses are unified, so the driver knows which is the host's.
        let status = unsafe { sys::cuMemcpyAsync(destination.0, source.0, bytes, stream.raw) };
        self.context
            .check(status, &format!("copying {bytes} bytes on the device"))?;
        stream.count();
        Ok(())
    }

    unsafe fn fill(
        &self,
        stream: &Stream,
        destination: DevicePtr,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.bind()?;
        let stream = native::<StreamHandle>(&stream.0, "a stream")?;
        // SAFETY: the caller vouches for the range.
        let status = unsafe { sys::cuMemsetD8Async(destination.0, value, bytes, stream.raw) };
        self.context
            .check(status, &format!("filling {bytes} bytes"))?;
        stream.count();
        Ok(())
    }

    fn reach(&self, other: &DeviceInfo) -> Result<bool> {
        let number = other.id.strip_prefix("cuda:");
        let Some(index) = number.and_then(|number| number.parse().ok()) else {
            return Ok(false);
        };
        self.context.reach(handle(index, &other.id)?)
    }

    fn has_kernels_on_disk(&self) -> bool {
        self.cache.has_entries()
    }

    fn damage_cached(&self, _name: &str, source: &str, cut: bool) -> bool {
        self.cache.damage(&self.cache_key(source), cut)
    }

    fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)> {
        let start = Instant::now();
        let report = |cached| CompileReport {
            milliseconds: start.elapsed().as_secs_f64() * 1e3,
            cached,
        };
        let key = self.cache_key(source);
        if let Some(cubin) = self.cache.get(&key) {
            match ModuleHandle::load(Arc::clone(&self.context), &cubin) {
                Ok(module) => return Ok((Module(module), report(true))),
                Err(error) => {
                    log::warn!("a cached kernel was refused and is compiled again: {error}");
                    self.cache.remove(&key);
                }
            }
        }
        let (compilers, kept) = (Compilers::of_process()?, self.cache.path(&key));
        let cubin = compilers.compile(name, source, self.architecture, kept.as_deref())?;
        let module = ModuleHandle::load(Arc::clone(&self.context), &cubin)?;
        self.cache.put(&key, &cubin);
        let bytes = source.len();
        log::debug!(
            "compiled '{name}', {bytes} bytes of source, in {:.0?}",
            start.elapsed()
        );
        Ok((Module(module), report(false)))
    }

    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel> {
        let module = Arc::clone(&module.0)
            .downcast::<ModuleHandle>()
            .map_err(|_| GpuError::Internal("a module belongs to another device".into()))?;
        Ok(Kernel {
            name: name.into(),
            handle: Arc::new(module.function(name)?),
        })
    }

    fn blocks_per_multiprocessor(
        &self,
        kernel: &Kernel,
        block: u32,
        shared_bytes: usize,
    ) -> Result<u32> {
        self.context.bind()?;
        let function = native::<KernelHandle>(&kernel.handle, "a kernel")?;
        function.allow_shared(shared_bytes)?;
        let mut blocks: c_int = 0;
        // SAFETY: the function lives while its handle does; `blocks` is written.
        let status = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function.raw,
                c_int::try_from(block).unwrap_or(c_int::MAX),
                shared_bytes,
            )
        };
        self.context.check(
            status,
            &format!("asking for the occupancy of '{}'", kernel.name),
        )?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        config: LaunchConfig,
        arguments: &[u8],
    ) -> Result<()> {
        if config.grid == 0 {
            return Ok(());
        }
        self.context.bind()?;
        let stream = native::<StreamHandle>(&stream.0, "a stream")?;
        let function = native::<KernelHandle>(&kernel.handle, "a kernel")?;
        function.allow_shared(config.shared_bytes)?;
        let mut parameters = [arguments.as_ptr().cast::<c_void>().cast_mut()];
        // SAFETY: the caller vouches that `arguments` is the kernel's one struct and that its
        // addresses are live; the driver copies the struct before it returns.
        let status = unsafe {
            sys::cuLaunchKernel(
                function.raw,
                config.grid,
                1,
                1,
                config.block,
                1,
                1,
                u32::try_from(config.shared_bytes).unwrap_or(u32::MAX),
                stream.raw,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        let shape = || {
            format!(
                "launching '{}' with {} blocks of {} threads and {} bytes of shared memory",
                kernel.name, config.grid, config.block, config.shared_bytes
            )
        };
        if status != CUresult::CUDA_SUCCESS {
            self.context.check(status, &shape())?;
        }
        stream.count();
        Ok(())
    }

    fn record_event(&self, stream: &Stream) -> Result<Event> {
        let stream = native::<StreamHandle>(&stream.0, "a stream")?;
        let event = EventHandle::new(Arc::clone(&self.context), EventUse::Time)?;
        event.record(stream)?;
        Ok(Event(Arc::new(event)))
    }

    fn wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        let stream = native::<StreamHandle>(&stream.0, "a stream")?;
        native::<EventHandle>(&event.0, "an event")?.hold(stream)?;
        // What is waited for may use memory that this stream orders: it counts as work of this stream.
        stream.count();
        Ok(())
    }

    fn event_passed(&self, event: &Event, wait: bool) -> Result<bool> {
        let event = native::<EventHandle>(&event.0, "an event")?;
        if wait {
            event.wait()?;
            return Ok(true);
        }
        event.has_passed()
    }

    fn elapsed_ms(&self, start: &Event, end: &Event) -> Result<f64> {
        let start = native::<EventHandle>(&start.0, "an event")?;
        let end = native::<EventHandle>(&end.0, "an event")?;
        end.wait()?;
        end.milliseconds_since(start)
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice")
            .field("info", &self.info)
            .finish()
    }
}
