//! The emulator as a [`Device`]: kernels run on the CPU, host memory stands in for device memory. For tests.
//!
//! Everything is finished when a call returns. One operation runs at a time, so threads that share
//! the device never race on its memory.

use std::alloc::Layout;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use warpline_cuda::emulator::{
    self, CompileOptions, Emulator, EmulatorError, EmulatorOptions, Resident, Sanitizer,
};

use super::accepted::Accepted;
use super::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Kernel, LaunchConfig, Module, Stream,
};
use crate::error::{GpuError, Result};

/// Environment variable with the schedule: `ascending`, `descending`, `random:SEED`, `yields:SEED`.
pub const SCHEDULE_VARIABLE: &str = "WARPLINE_EMULATOR_SCHEDULE";
/// Environment variable with a sanitizer for kernels: `address` or `undefined`.
pub const SANITIZER_VARIABLE: &str = "WARPLINE_EMULATOR_SANITIZER";

/// Environment variable: `1` also compiles every kernel with NVRTC for compute capability 9.0, so that tests
/// without a GPU show what a GPU's compiler would refuse.
pub const NVRTC_VARIABLE: &str = "WARPLINE_EMULATOR_NVRTC";

/// Memory the emulated device says it has; taken from the host as it is allocated.
const MEMORY: usize = 8 << 30;
const MULTIPROCESSORS: u32 = 4;
/// Blocks that one emulated multiprocessor holds: enough for blocks to interleave.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 2;
/// Threads and shared memory of a multiprocessor, as on compute capability 9.0.
const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
const SHARED_PER_MULTIPROCESSOR: usize = 228 << 10;
/// Alignment of allocations, as the driver's.
const ALIGNMENT: usize = 256;
/// Fresh memory up to this size is filled with `POISON`, so that reading it shows.
const POISONED: usize = 64 << 20;
const POISON: u8 = 0xcd;

/// The order in which the emulator runs lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule(pub emulator::Schedule);

impl FromStr for Schedule {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, seed) = match text.split_once(':') {
            Some((kind, seed)) => (kind, seed.parse().ok()),
            None => (text, Some(0)),
        };
        Ok(Self(match (kind, seed) {
            ("ascending", Some(0)) => emulator::Schedule::Ascending,
            ("descending", Some(0)) => emulator::Schedule::Descending,
            ("random", Some(seed)) => emulator::Schedule::Random(seed),
            ("yields", Some(seed)) => emulator::Schedule::RandomYields(seed),
            _ => {
                return Err(GpuError::InvalidSetting {
                    setting: SCHEDULE_VARIABLE.into(),
                    value: text.into(),
                    expected: "ascending, descending, random:SEED or yields:SEED".into(),
                });
            }
        }))
    }
}

/// How to open the emulator.
#[derive(Debug, Clone)]
pub struct EmulatedOptions {
    /// The order in which lanes run.
    pub schedule: emulator::Schedule,
    /// A sanitizer to build kernels with.
    pub sanitizer: Sanitizer,
    /// Device memory in bytes.
    pub memory: usize,
    /// Where compiled kernels are kept; `None` for the default place.
    pub cache_dir: Option<PathBuf>,
    /// Compile one kernel in so many with NVRTC as well, and fail where NVRTC does; 0: none, 1: each. Which ones, their texts tell.
    pub check_with_nvrtc: u32,
}

impl Default for EmulatedOptions {
    fn default() -> Self {
        Self {
            schedule: emulator::Schedule::Ascending,
            sanitizer: Sanitizer::None,
            memory: MEMORY,
            cache_dir: None,
            check_with_nvrtc: 0,
        }
    }
}

impl EmulatedOptions {
    /// The defaults, with schedule and sanitizer from the environment where it sets them.
    ///
    /// # Errors
    /// [`GpuError::InvalidSetting`] for a value that means nothing.
    pub fn from_environment() -> Result<Self> {
        let mut options = Self::default();
        if let Ok(text) = std::env::var(SCHEDULE_VARIABLE) {
            options.schedule = text.parse::<Schedule>()?.0;
        }
        if let Ok(text) = std::env::var(SANITIZER_VARIABLE) {
            options.sanitizer = match text.as_str() {
                "" | "none" => Sanitizer::None,
                "address" => Sanitizer::Address,
                "undefined" => Sanitizer::Undefined,
                _ => {
                    return Err(GpuError::InvalidSetting {
                        setting: SANITIZER_VARIABLE.into(),
                        value: text,
                        expected: "none, address or undefined".into(),
                    });
                }
            };
        }
        if let Ok(text) = std::env::var(NVRTC_VARIABLE) {
            options.check_with_nvrtc = text.parse().map_err(|_| GpuError::InvalidSetting {
                setting: NVRTC_VARIABLE.into(),
                value: text,
                expected: "1 for each kernel, N for one in N, 0 for none".into(),
            })?;
        }
        Ok(options)
    }
}

/// The emulator with host memory as device memory.
pub struct EmulatedDevice {
    info: DeviceInfo,
    options: EmulatedOptions,
    emulator: Emulator,
    accepted: Accepted,
    allocated: AtomicUsize,
    /// Held by every operation on memory.
    turn: Mutex<()>,
}

/// What the emulator compiles with.
///
/// # Errors
/// [`GpuError::DeviceUnavailable`] when the machine has no C++ compiler.
pub fn compiler_version() -> Result<String> {
    open_emulator(None).map(|emulator| emulator.compiler_version().to_string())
}

fn open_emulator(cache_dir: Option<PathBuf>) -> Result<Emulator> {
    let options = EmulatorOptions {
        cache_dir,
        ..EmulatorOptions::default()
    };
    Emulator::open(options).map_err(|error| GpuError::DeviceUnavailable {
        requested: "emulator".into(),
        cause: match &error {
            EmulatorError::NoCompiler { tried } => {
                format!("no C++ compiler was found (tried {tried})")
            }
            other => other.to_string(),
        },
        remedy: "install g++ or clang++, or set CXX".into(),
    })
}

impl EmulatedDevice {
    /// Open the emulator as the environment says ([`EmulatedOptions::from_environment`]).
    ///
    /// # Errors
    /// [`GpuError::DeviceUnavailable`] without a C++ compiler, [`GpuError::InvalidSetting`].
    pub fn open() -> Result<Self> {
        Self::with_options(EmulatedOptions::from_environment()?)
    }

    /// Open one of several emulators, which have a memory each.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn numbered(number: usize) -> Result<Self> {
        let mut device = Self::open()?;
        device.info.id = format!("emulator:{number}");
        Ok(device)
    }

    /// Open the emulator.
    ///
    /// # Errors
    /// [`GpuError::DeviceUnavailable`] when the machine has no C++ compiler.
    pub fn with_options(options: EmulatedOptions) -> Result<Self> {
        let emulator = open_emulator(options.cache_dir.clone())?;
        let info = DeviceInfo {
            name: "emulator".into(),
            id: "emulator".into(),
            memory: options.memory,
            compute_capability: (0, 0),
            multiprocessors: MULTIPROCESSORS,
            memory_bandwidth: 0.0,
            shared_memory_per_block: emulator::MAX_SHARED_BYTES,
            shared_memory_per_multiprocessor: SHARED_PER_MULTIPROCESSOR,
            l2_cache: 1 << 20,
            driver: String::new(),
            compiler: emulator.compiler_version().to_string(),
            emulated: true,
        };
        Ok(Self {
            info,
            options,
            emulator,
            accepted: Accepted::open(),
            allocated: AtomicUsize::new(0),
            turn: Mutex::new(()),
        })
    }

    fn compile_options(&self) -> CompileOptions {
        CompileOptions {
            sanitizer: self.options.sanitizer,
            ..Default::default()
        }
    }

    fn failure(&self, operation: String, error: &EmulatorError) -> GpuError {
        GpuError::Device {
            operation,
            device: self.info.id.clone(),
            cause: error.to_string(),
        }
    }
}

/// Layout of an allocation of `bytes` bytes.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, ALIGNMENT).ok()
}

/// The host address behind a device address.
fn host(ptr: DevicePtr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(ptr.0 as usize)
}

/// The emulator's kernel behind a handle.
fn emulated(kernel: &Kernel) -> Result<&emulator::Kernel> {
    kernel.handle.downcast_ref().ok_or_else(|| {
        GpuError::Internal(format!(
            "kernel '{}' belongs to another device",
            kernel.name
        ))
    })
}

impl Device for EmulatedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_memory(&self) -> Result<usize> {
        Ok(self
            .info
            .memory
            .saturating_sub(self.allocated.load(Ordering::SeqCst)))
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        let full = |in_use| GpuError::OutOfDeviceMemory {
            requested: bytes,
            purpose: "an allocation on the emulator".into(),
            in_use,
            budget: self.info.memory,
        };
        let layout = layout(bytes)
            .filter(|layout| layout.size() > 0)
            .ok_or_else(|| GpuError::Internal(format!("an allocation of {bytes} bytes")))?;
        let fits = |in_use: usize| {
            in_use
                .checked_add(bytes)
                .filter(|sum| *sum <= self.info.memory)
        };
        self.allocated
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits)
            .map_err(full)?;
        // All bytes are initialised, because copies to the host read them as bytes.
        let poisoned = bytes <= POISONED;
        // SAFETY: the layout has a size.
        let memory = unsafe {
            if poisoned {
                std::alloc::alloc(layout)
            } else {
                std::alloc::alloc_zeroed(layout)
            }
        };
        if memory.is_null() {
            return Err(full(self.allocated.fetch_sub(bytes, Ordering::SeqCst)));
        }
        if poisoned {
            // SAFETY: freshly allocated with this size.
            unsafe { std::ptr::write_bytes(memory, POISON, bytes) };
        }
        Ok(DevicePtr(memory.expose_provenance() as u64))
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: usize) {
        let Some(layout) = layout(bytes) else {
            return;
        };
        let _turn = self.turn.lock();
        // SAFETY: the caller vouches that the address came from `allocate` with this size.
        unsafe { std::alloc::dealloc(host(ptr), layout) };
        self.allocated.fetch_sub(bytes, Ordering::SeqCst);
    }

    fn allocate_host(&self, bytes: usize) -> Result<DevicePtr> {
        let layout = layout(bytes)
            .filter(|layout| layout.size() > 0)
            .ok_or_else(|| GpuError::Internal(format!("an allocation of {bytes} bytes")))?;
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(GpuError::OutOfDeviceMemory {
                requested: bytes,
                purpose: "an allocation of host memory".into(),
                in_use: 0,
                budget: 0,
            });
        }
        Ok(DevicePtr(memory.expose_provenance() as u64))
    }

    unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize) {
        let Some(layout) = layout(bytes) else {
            return;
        };
        let _turn = self.turn.lock();
        // SAFETY: the caller vouches that the address came from `allocate_host` with this size.
        unsafe { std::alloc::dealloc(host(ptr), layout) };
    }

    fn create_stream(&self) -> Result<Stream> {
        Ok(Stream::new(Arc::new(())))
    }

    fn newest(&self, _stream: &Stream) -> u64 {
        0
    }

    /// Each operation is over when its call returns.
    fn has_ended(&self, _stream: &Stream, _work: u64) -> bool {
        true
    }

    fn synchronize(&self, _stream: &Stream) -> Result<()> {
        Ok(())
    }

    unsafe fn copy_to_device(
        &self,
        _stream: &Stream,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()> {
        let _turn = self.turn.lock();
        // SAFETY: the caller vouches for the device range; host slices never lie in device memory.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), host(destination), source.len());
        }
        Ok(())
    }

    unsafe fn copy_to_host(
        &self,
        _stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        let _turn = self.turn.lock();
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(
                host(source).cast_const(),
                destination.as_mut_ptr(),
                destination.len(),
            );
        }
        Ok(())
    }

    unsafe fn copy_on_device(
        &self,
        _stream: &Stream,
        source: DevicePtr,
        destination: DevicePtr,
        bytes: usize,
    ) -> Result<()> {
        let _turn = self.turn.lock();
        // SAFETY: the caller vouches for both ranges.
        unsafe { std::ptr::copy_nonoverlapping(host(source), host(destination), bytes) };
        Ok(())
    }

    unsafe fn fill(
        &self,
        _stream: &Stream,
        destination: DevicePtr,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        let _turn = self.turn.lock();
        // SAFETY: the caller vouches for the range.
        unsafe { std::ptr::write_bytes(host(destination), value, bytes) };
        Ok(())
    }

    fn reach(&self, other: &DeviceInfo) -> Result<bool> {
        Ok(other.emulated)
    }

    fn damage_cached(&self, name: &str, source: &str, cut: bool) -> bool {
        self.emulator
            .damage_cached(name, source, &self.compile_options(), cut)
    }

    fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)> {
        let start = Instant::now();
        let options = self.compile_options();
        let module =
            self.emulator
                .compile(name, source, &options)
                .map_err(|error| match error {
                    EmulatorError::Compile { diagnostics, .. } => GpuError::Compile {
                        kernel: name.into(),
                        log: diagnostics,
                    },
                    other => self.failure(format!("compiling '{name}'"), &other),
                })?;
        self.accepted
            .check_one_in(self.options.check_with_nvrtc, name, source)?;
        let report = CompileReport {
            milliseconds: start.elapsed().as_secs_f64() * 1e3,
            cached: module.cached(),
        };
        Ok((Module(Arc::new(module)), report))
    }

    fn kernel(&self, module: &Module, name: &str) -> Result<Kernel> {
        let module = module
            .0
            .downcast_ref::<emulator::Module>()
            .ok_or_else(|| GpuError::Internal("a module belongs to another device".into()))?;
        let kernel = module
            .kernel(name)
            .map_err(|error| self.failure(format!("looking up kernel '{name}'"), &error))?;
        Ok(Kernel {
            name: name.into(),
            handle: Arc::new(kernel),
        })
    }

    fn blocks_per_multiprocessor(
        &self,
        kernel: &Kernel,
        block: u32,
        shared_bytes: usize,
    ) -> Result<u32> {
        if block > emulated(kernel)?.block_threads() || shared_bytes > emulator::MAX_SHARED_BYTES {
            return Ok(0);
        }
        let by_threads = THREADS_PER_MULTIPROCESSOR / block.max(1);
        let by_shared = SHARED_PER_MULTIPROCESSOR / shared_bytes.max(1);
        Ok(BLOCKS_PER_MULTIPROCESSOR
            .min(by_threads)
            .min(u32::try_from(by_shared).unwrap_or(u32::MAX)))
    }

    unsafe fn launch(
        &self,
        _stream: &Stream,
        kernel: &Kernel,
        config: LaunchConfig,
        arguments: &[u8],
    ) -> Result<()> {
        if config.grid == 0 {
            return Ok(());
        }
        let function = emulated(kernel)?;
        // A grid that the device holds at once runs at once: persistent kernels count on it.
        let resident = if config.grid <= MULTIPROCESSORS * BLOCKS_PER_MULTIPROCESSOR {
            Resident::All
        } else {
            Resident::Blocks(MULTIPROCESSORS)
        };
        let shape = emulator::LaunchConfig::new(config.grid, config.block)
            .with_shared(config.shared_bytes)
            .with_resident(resident);
        let _turn = self.turn.lock();
        // SAFETY: the caller vouches for the arguments and the addresses in them.
        unsafe { function.launch(shape, arguments, self.options.schedule) }
            .map(|_| ())
            .map_err(|error| self.failure(format!("running kernel '{}'", kernel.name), &error))
    }

    fn record_event(&self, _stream: &Stream) -> Result<Event> {
        Ok(Event(Arc::new(Instant::now())))
    }

    fn wait_event(&self, _stream: &Stream, _event: &Event) -> Result<()> {
        // Every operation is over when it returns.
        Ok(())
    }

    fn elapsed_ms(&self, start: &Event, end: &Event) -> Result<f64> {
        match (
            start.0.downcast_ref::<Instant>(),
            end.0.downcast_ref::<Instant>(),
        ) {
            (Some(start), Some(end)) => Ok(end.duration_since(*start).as_secs_f64() * 1e3),
            _ => Err(GpuError::Internal(
                "an event belongs to another device".into(),
            )),
        }
    }
}

impl fmt::Debug for EmulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmulatedDevice")
            .field("info", &self.info)
            .field("options", &self.options)
            .finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn schedules_parse() {
        let parse = |text: &str| text.parse::<Schedule>().map(|schedule| schedule.0);
        assert_eq!(parse("ascending").unwrap(), emulator::Schedule::Ascending);
        assert_eq!(parse("descending").unwrap(), emulator::Schedule::Descending);
        assert_eq!(parse("random:7").unwrap(), emulator::Schedule::Random(7));
        assert_eq!(
            parse("yields:9").unwrap(),
            emulator::Schedule::RandomYields(9)
        );
        for wrong in ["", "up", "random:x", "ascending:3", "yields:-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
