//! One open device and what sessions share on it: memory pool, resident tables, compiled kernels.

mod attached;
mod background;
mod choice;
mod module_times;
mod modules;
mod open;
pub(crate) mod slots;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use self::attached::Attached;
use self::background::Background;
pub use self::choice::{DeviceChoice, GpuSet, MOST_DEVICES};
use self::module_times::ModuleTimes;
pub(crate) use self::module_times::Raced;
pub(crate) use self::modules::BuiltinStage;
use self::modules::ModuleEntry;
use self::open::open_devices;
use self::slots::Slots;
use crate::device::faulty::{FailurePlan, FaultyDevice};
use crate::device::peer::PeerMemory;
use crate::device::pinned::PinnedMemory;
use crate::device::traced::TracedDevice;
use crate::device::{Device, Kernel, StopSignal, Stream, StreamLease, Streams};
use crate::error::{GpuError, Result};
use crate::machine::Machine;
use crate::memory::{
    Budget, DeviceBuffer, Free, HeldList, KeptResults, LadderCounts, MemoryPool, PressureHandler,
    memory_of_host,
};
use crate::stop::StopWords;
use crate::tables::TableCache;
use crate::trace::{StreamSpan, Trace, Work};

/// Bytes of one side of the copy whose bandwidth is measured.
const COPY_BYTES: usize = 1 << 30;
const COPY_BYTES_EMULATED: usize = 1 << 20;
/// Timed copies; the best counts.
const COPY_RUNS: usize = 8;

/// How to open a [`Runtime`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// Which device.
    pub device: DeviceChoice,
    /// Budget of the memory pool in bytes; `None` for what is free, less some headroom.
    pub device_memory: Option<usize>,
    /// Most bytes of page-locked host memory, for what device memory does not hold; `None` for half of the host's.
    pub host_memory: Option<usize>,
}

/// What stays in device memory behind a run, and is given back when the pool is short: outputs that are being read, which have
/// to go to the host anyway, then indexes, which can be built again, then columns, then lookup tables of kept plans, which take little.
struct Kept {
    outputs: HeldList,
    tables: Arc<TableCache>,
    indexes: KeptResults,
    lookups: HeldList,
}

impl PressureHandler for Kept {
    fn release(&self, bytes: usize) -> usize {
        let each: [&dyn Fn() -> usize; 4] = [
            &|| self.outputs.release(bytes),
            &|| self.indexes.release(bytes),
            &|| self.tables.release(bytes),
            &|| self.lookups.release(bytes),
        ];
        let mut released = each.iter().map(|release| release());
        released.find(|released| *released > 0).unwrap_or(0)
    }
}

/// Columns in host memory, which are given up when its pool is short.
struct KeptOnHost(Arc<TableCache>);

impl PressureHandler for KeptOnHost {
    fn release(&self, bytes: usize) -> usize {
        self.0.release_host(bytes)
    }
}

/// An open device and what is shared on it. `Send + Sync`; several sessions use one.
pub struct Runtime {
    device: Arc<dyn Device>,
    /// The same device: all calls go through it.
    faulty: Arc<FaultyDevice>,
    /// The same device, below.
    traced: Arc<TracedDevice>,
    machine: Arc<Machine>,
    pool: Arc<MemoryPool>,
    host_pool: Arc<MemoryPool>,
    peers: Arc<PeerMemory>,
    /// What the peers hand out.
    peer_pool: Arc<MemoryPool>,
    kept: Arc<Kept>,
    /// Behind what gives device memory back.
    stop_words: Option<Arc<StopWords>>,
    #[allow(dead_code, reason = "held, not read: the pool asks it")]
    kept_on_host: Arc<KeptOnHost>,
    modules: Mutex<HashMap<String, ModuleEntry>>,
    /// Hand-written kernels by entry point and variant, found without their long sources; `None` while they are compiled.
    builtin: Mutex<HashMap<(&'static str, usize), Option<Kernel>>>,
    module_times: ModuleTimes,
    clock: AtomicU64,
    bandwidth: OnceLock<f64>,
    streams: Arc<Streams>,
    used: AtomicBool,
    background: Background,
    slots: Arc<Slots>,
    attached: Attached,
    /// Of all queries so far.
    ladder: Mutex<LadderCounts>,
}

/// The pool's budget on a device: as asked for, else what is free and what the pool `holds` of it but for a reserve.
fn budget_on(device: &dyn Device, asked: Option<usize>, holds: usize) -> Result<usize> {
    let budget = match asked {
        Some(bytes) => Budget::within(device.info().memory as u64, Some(bytes as u64)),
        None => Budget::of_free(device.free_memory()?.saturating_add(holds) as u64),
    };
    Ok(budget.bytes() as usize)
}

impl Runtime {
    /// Open the chosen device; `None` means the CPU, either by choice or because `auto` found no
    /// usable GPU.
    ///
    /// # Errors
    /// [`GpuError::DeviceUnavailable`] when a device was asked for by name and is not usable, and for a choice of several.
    pub fn open(options: RuntimeOptions) -> Result<Option<Arc<Self>>> {
        let mut runtimes = Self::open_all(options)?;
        match runtimes.len() {
            0 | 1 => Ok(runtimes.pop()),
            count => Err(GpuError::DeviceUnavailable {
                requested: options.device.to_string(),
                cause: format!("these are {count} devices, and one is used here"),
                remedy: "name one of them".into(),
            }),
        }
    }

    /// Open the chosen devices, each with a budget of device memory as in [`RuntimeOptions`]; they share the budget of host
    /// memory in equal parts. None means the CPU, as for [`Self::open`].
    ///
    /// # Errors
    /// As [`Self::open`]; of `cuda:all`, when no GPU is usable.
    pub fn open_all(options: RuntimeOptions) -> Result<Vec<Arc<Self>>> {
        let devices = open_devices(options.device)?;
        let host = options.host_memory.unwrap_or_else(half_of_host_memory);
        let part = host / devices.len().max(1);
        let raw = devices.clone();
        let runtimes = devices
            .into_iter()
            .map(|device| Self::with_memory(device, options.device_memory, Some(part)));
        let runtimes: Vec<Arc<Self>> = runtimes.collect::<Result<_>>()?;
        for (number, (device, runtime)) in raw.iter().zip(&runtimes).enumerate() {
            for (_, other) in runtimes.iter().enumerate().filter(|(n, _)| *n != number) {
                let info = other.device.info();
                match device.reach(info) {
                    Ok(true) => runtime.peers.add(&other.pool),
                    Ok(false) => log::info!("{} does not reach {}", device.info().id, info.id),
                    // What it would have held goes to the host.
                    Err(error) => log::warn!("memory of {} is left out: {error}", info.id),
                }
            }
        }
        Ok(runtimes)
    }

    /// A runtime on a device that is open already; `device_memory` as in [`RuntimeOptions`].
    ///
    /// # Errors
    /// [`GpuError::Device`] when the device's free memory cannot be read.
    pub fn with_device(device: Arc<dyn Device>, device_memory: Option<usize>) -> Result<Arc<Self>> {
        Self::with_memory(device, device_memory, None)
    }

    /// [`Runtime::with_device`] with a budget of host memory too, as in [`RuntimeOptions`].
    ///
    /// # Errors
    /// As [`Runtime::with_device`].
    pub fn with_memory(
        device: Arc<dyn Device>,
        device_memory: Option<usize>,
        host_memory: Option<usize>,
    ) -> Result<Arc<Self>> {
        let traced = TracedDevice::new(device);
        let faulty = FaultyDevice::new(Arc::clone(&traced) as Arc<dyn Device>);
        let device: Arc<dyn Device> = Arc::clone(&faulty) as Arc<dyn Device>;
        let budget = budget_on(device.as_ref(), device_memory, 0)?;
        let pool = MemoryPool::new(Arc::clone(&device), budget);
        let pinned: Arc<dyn Device> = Arc::new(PinnedMemory::new(Arc::clone(&device)));
        let peers = Arc::new(PeerMemory::new(Arc::clone(&device)));
        // Their pools say how much there is.
        let peer_pool = MemoryPool::new(Arc::clone(&peers) as Arc<dyn Device>, usize::MAX / 2);
        let host_pool = MemoryPool::new(pinned, host_memory.unwrap_or_else(half_of_host_memory));
        let tables = TableCache::new(Arc::clone(&pool))
            .with_host_memory(Arc::clone(&host_pool))
            .traced_by(Arc::clone(&traced));
        let stop_words = StopWords::new(&device);
        if let Err(error) = &stop_words {
            log::info!("kernels of queries that are stopped run to their end: {error}");
        }
        let kept = Arc::new(Kept {
            outputs: HeldList::default(),
            tables: Arc::new(tables),
            indexes: KeptResults::default(),
            lookups: HeldList::default(),
        });
        let handler: Weak<dyn PressureHandler> = Arc::<Kept>::downgrade(&kept);
        pool.set_pressure_handler(handler);
        let kept_on_host = Arc::new(KeptOnHost(Arc::clone(&kept.tables)));
        let handler: Weak<dyn PressureHandler> = Arc::<KeptOnHost>::downgrade(&kept_on_host);
        host_pool.set_pressure_handler(handler);
        let module_times = ModuleTimes::new(device.has_kernels_on_disk());
        Ok(Arc::new(Self {
            machine: Arc::new(Machine::of(device.info())),
            streams: Streams::new(Arc::clone(&device)),
            device,
            faulty,
            traced,
            pool,
            host_pool,
            peers,
            peer_pool,
            kept,
            stop_words: stop_words.ok(),
            kept_on_host,
            modules: Mutex::default(),
            builtin: Mutex::default(),
            module_times,
            clock: AtomicU64::new(0),
            bandwidth: OnceLock::new(),
            used: AtomicBool::new(false),
            background: Background::default(),
            slots: Arc::default(),
            attached: Attached::default(),
            ladder: Mutex::default(),
        }))
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What accesses, atomics and passes cost on it: as calibrated when the runtime was opened.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// By which kernels learn that their query was stopped, where the device reaches host memory.
    pub(crate) fn stop_signal(&self) -> Option<Arc<dyn StopSignal>> {
        let words = self.stop_words.clone()?;
        Some(words)
    }

    /// All memory of the device.
    pub fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    /// Page-locked host memory, which the device reaches across the link.
    pub fn host_pool(&self) -> &Arc<MemoryPool> {
        &self.host_pool
    }

    /// Memory of other devices that the device reaches; `None` where there are none.
    pub fn peer_pool(&self) -> Option<&Arc<MemoryPool>> {
        (!self.peers.is_empty()).then_some(&self.peer_pool)
    }

    /// What queries have used of other devices' memory goes back to them.
    pub(crate) fn return_to_peers(&self) {
        if self.peer_pool.statistics().cached > 0
            && let Err(error) = self.peer_pool.trim()
        {
            log::debug!("memory of other devices: {error}");
        }
    }

    /// Working memory of kernels on `stream` alone: device memory, or host memory where that has no room left.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] when neither has.
    pub(crate) fn working_memory(
        &self,
        stream: &Stream,
        bytes: usize,
        purpose: &str,
    ) -> Result<DeviceBuffer> {
        let allocated = match self.pool.allocate_for(stream, bytes, purpose) {
            Err(full @ GpuError::OutOfDeviceMemory { .. }) => {
                let on_host = self.host_pool.allocate_for(stream, bytes, purpose);
                on_host.map_err(|_| full)
            }
            other => other,
        };
        Ok(allocated?.ordered_by(stream))
    }

    /// Base table columns resident on the device.
    pub fn tables(&self) -> &Arc<TableCache> {
        &self.kept.tables
    }

    /// Outputs that are not read to their end.
    pub(crate) fn outputs(&self) -> &HeldList {
        &self.kept.outputs
    }

    /// Lookup tables of kept plans.
    pub(crate) fn lookups(&self) -> &HeldList {
        &self.kept.lookups
    }

    /// Indexes over whole tables that are kept on the device.
    pub(crate) fn indexes(&self) -> &KeptResults {
        &self.kept.indexes
    }

    /// How many indexes over whole tables are kept on the device, and their bytes.
    pub fn kept_indexes(&self) -> (usize, usize) {
        self.indexes().held()
    }

    /// Let go of all indexes that are kept.
    pub fn drop_indexes(&self) {
        self.indexes().clear();
    }

    /// Bytes of device memory that an allocation can get: free ones, those of what is kept for later queries and nobody uses, and
    /// those of outputs that host memory has room for.
    pub(crate) fn attainable_memory(&self) -> Free {
        let outputs = self.outputs().bytes().min(self.host_pool.available());
        let lookups = self.lookups().bytes();
        let kept = self.indexes().idle_bytes() + self.tables().idle_bytes() + lookups + outputs;
        let free = self.pool.free();
        Free {
            bytes: free.bytes.saturating_add(kept as u64),
            ..free
        }
    }

    /// Let go of everything that is kept for later queries and that no query uses, and move outputs that are being read to host
    /// memory; returns the bytes that went.
    ///
    /// # Errors
    /// [`GpuError::Device`] when earlier work on the device failed.
    pub fn evict(&self) -> Result<usize> {
        let outputs = self.outputs().release(usize::MAX);
        let indexes = self.indexes().clear();
        let columns = self.tables().release(usize::MAX);
        let lookups = self.lookups().release(usize::MAX);
        self.pool.trim()?;
        let released = [indexes, columns, lookups];
        Ok(released.into_iter().fold(outputs, usize::saturating_add))
    }

    /// Change the pool's budget, in bytes; `None` for what is free, less some headroom. What is over a smaller budget and no
    /// query uses goes at once.
    ///
    /// # Errors
    /// [`GpuError::Device`] when the device's free memory cannot be read or earlier work failed.
    pub fn set_device_memory(&self, bytes: Option<usize>) -> Result<()> {
        let statistics = self.pool.statistics();
        let holds = statistics.in_use.saturating_add(statistics.cached);
        let budget = budget_on(self.device.as_ref(), bytes, holds)?;
        self.pool.set_budget(budget)
    }

    /// Change the budget of page-locked host memory, in bytes; `None` for half of the host's. This device gets one of `parts`
    /// equal parts.
    ///
    /// # Errors
    /// [`GpuError::Device`] when earlier work failed.
    pub fn set_host_memory(&self, bytes: Option<usize>, parts: usize) -> Result<()> {
        let bytes = bytes.unwrap_or_else(half_of_host_memory);
        self.host_pool.set_budget(bytes / parts.max(1))
    }

    /// Let calls of the device fail by a plan, in the place of an earlier one; `None` lets them pass. For tests of what
    /// happens then.
    pub fn inject_failures(&self, plan: Option<Arc<FailurePlan>>) {
        self.faulty.inject(plan);
    }

    /// Notes from now on what the host and all streams do, of all queries; an earlier trace gets nothing more. Every kernel and
    /// copy takes some microseconds more meanwhile.
    ///
    /// # Errors
    /// [`GpuError::Device`] when the device records no event.
    pub fn start_trace(&self) -> Result<Arc<Trace>> {
        self.traced.start()
    }

    /// Notes nothing more.
    pub fn stop_trace(&self) {
        self.traced.stop();
    }

    /// The trace that is being taken.
    pub(crate) fn trace(&self) -> Option<Arc<Trace>> {
        self.traced.trace()
    }

    /// A span around what is queued on the stream until it is dropped, if a trace is taken.
    pub(crate) fn traced_step(&self, stream: &Stream, label: &str) -> Option<StreamSpan> {
        let span = self.trace()?.on_stream(stream, Work::Step, label, vec![]);
        // The device failed, which the work itself reports.
        span.unwrap_or_default()
    }

    /// Why the device can do nothing more; `None` while it works.
    pub fn lost(&self) -> Option<String> {
        self.device.lost()
    }

    /// What was done for want of memory, in all queries so far.
    pub fn ladder(&self) -> LadderCounts {
        *self.ladder.lock()
    }

    pub(crate) fn count_ladder(&self, counts: LadderCounts) {
        let mut all = self.ladder.lock();
        *all = all.plus(&counts);
    }

    /// A stream of one's own, made by an earlier user where one is idle. What that user queued and nobody
    /// waited for comes first.
    ///
    /// # Errors
    /// [`GpuError::Device`] when the device makes no stream.
    pub fn lease_stream(&self) -> Result<StreamLease> {
        self.streams.lease()
    }

    /// The streams that nobody uses at the moment.
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Places of queries on the device.
    pub(crate) fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// What a layer above keeps for this device, of a type of its own: made when first asked for.
    pub(crate) fn attached<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.attached.of()
    }

    /// Queries that wait for a place on the device.
    pub fn waiting_queries(&self) -> usize {
        self.slots.waiting()
    }

    /// How long new kernels take.
    pub(crate) fn module_times(&self) -> &ModuleTimes {
        &self.module_times
    }

    /// Work that nobody waits for.
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// True for the first caller.
    pub(crate) fn first_use(&self) -> bool {
        !self.used.swap(true, Ordering::Relaxed)
    }

    /// Bytes a second, read and written together, of a plain copy on the device; measured at the
    /// first call. The yardstick of how fast a query can be.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] or [`GpuError::Device`] from the copy.
    pub fn copy_bandwidth(&self) -> Result<f64> {
        if let Some(bandwidth) = self.bandwidth.get() {
            return Ok(*bandwidth);
        }
        let measured = self.measure_copy()?;
        Ok(*self.bandwidth.get_or_init(|| measured))
    }

    fn measure_copy(&self) -> Result<f64> {
        let wanted = if self.device.info().emulated {
            COPY_BYTES_EMULATED
        } else {
            COPY_BYTES
        };
        // A small budget gives a smaller copy rather than evictions.
        let bytes = wanted
            .min(self.pool.free().copy_buffer() as usize)
            .max(4096);
        let source = self.pool.allocate(bytes, "measuring the copy bandwidth")?;
        let target = self.pool.allocate(bytes, "measuring the copy bandwidth")?;
        let stream = self.device.create_stream()?;
        source.fill(&stream, 1)?;
        target.copy_from(&stream, 0, &source, 0, bytes)?;
        let mut best = f64::INFINITY;
        for _ in 0..COPY_RUNS {
            let start = self.device.record_event(&stream)?;
            target.copy_from(&stream, 0, &source, 0, bytes)?;
            let end = self.device.record_event(&stream)?;
            best = best.min(self.device.elapsed_ms(&start, &end)?);
        }
        self.device.synchronize(&stream)?;
        drop((source, target));
        if !self.device.info().emulated {
            self.pool.trim()?;
        }
        // Clocks tick in fractions of a microsecond; a copy of no measurable time took one.
        Ok(2.0 * bytes as f64 / (best.max(1e-3) / 1e3))
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("device", &self.device.info().id)
            .field("pool", &self.pool)
            .finish()
    }
}

/// Half of the memory of this machine in bytes, or of what its control group may use.
fn half_of_host_memory() -> usize {
    Budget::of_host(memory_of_host() as u64).bytes() as usize
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_has_no_runtime() {
        let options = RuntimeOptions {
            device: DeviceChoice::Cpu,
            ..RuntimeOptions::default()
        };
        assert!(Runtime::open(options).unwrap().is_none());
    }

    #[test]
    fn several_emulators_have_names_memories_and_parts_of_the_host_of_their_own() {
        let options = RuntimeOptions {
            device: "emulator:3".parse().unwrap(),
            device_memory: Some(1 << 20),
            host_memory: Some(3 << 20),
        };
        let runtimes = Runtime::open_all(options).unwrap();
        let ids = runtimes.iter().map(|r| r.device().info().id.as_str());
        assert_eq!(
            ids.collect::<Vec<_>>(),
            ["emulator:0", "emulator:1", "emulator:2"]
        );
        for runtime in &runtimes {
            assert_eq!(runtime.pool().statistics().budget, 1 << 20);
            assert_eq!(runtime.host_pool().statistics().budget, 1 << 20);
        }
        let _held = runtimes[1].pool().allocate(1 << 19, "a test").unwrap();
        assert_eq!(runtimes[0].pool().statistics().in_use, 0);
        let error = Runtime::open(options).unwrap_err().to_string();
        assert!(error.contains("emulator:3"), "{error}");
    }

    #[test]
    fn runtimes_are_shared() {
        fn shared<T: Send + Sync>() {}
        shared::<Runtime>();
    }
}
