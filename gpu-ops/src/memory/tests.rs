//! The pool's accounting, reuse and relief, on a device whose fences the test opens by hand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::blocks::size_class;
use super::*;
use crate::device::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Fence, Kernel, LaunchConfig, Module,
    Stream,
};
use crate::error::{GpuError, Result};

/// Hands out addresses without memory behind them and checks that each is freed once.
#[derive(Debug)]
pub(super) struct FakeDevice {
    info: DeviceInfo,
    next: AtomicU64,
    live: Mutex<HashMap<u64, usize>>,
    physical: AtomicUsize,
    /// While set, work is under way and fences do not pass.
    busy: Arc<AtomicBool>,
    waits: AtomicUsize,
    fences: AtomicUsize,
}

impl FakeDevice {
    pub(super) fn new(physical: usize) -> Arc<Self> {
        Arc::new(Self {
            info: DeviceInfo {
                name: "fake".into(),
                id: "fake".into(),
                memory: physical,
                compute_capability: (0, 0),
                multiprocessors: 1,
                memory_bandwidth: 0.0,
                shared_memory_per_block: 0,
                shared_memory_per_multiprocessor: 0,
                l2_cache: 0,
                driver: String::new(),
                compiler: String::new(),
                emulated: true,
            },
            next: AtomicU64::new(1 << 20),
            live: Mutex::default(),
            physical: AtomicUsize::new(physical),
            busy: Arc::default(),
            waits: AtomicUsize::new(0),
            fences: AtomicUsize::new(0),
        })
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.live.lock().values().sum()
    }
}

impl Device for FakeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn free_memory(&self) -> Result<usize> {
        Ok(self.physical.load(Ordering::SeqCst) - self.live_bytes())
    }
    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        let mut live = self.live.lock();
        let in_use: usize = live.values().sum();
        if in_use + bytes > self.physical.load(Ordering::SeqCst) {
            return Err(GpuError::OutOfDeviceMemory {
                requested: bytes,
                purpose: String::new(),
                in_use,
                budget: 0,
            });
        }
        let ptr = self.next.fetch_add(1 << 40, Ordering::SeqCst);
        live.insert(ptr, bytes);
        Ok(DevicePtr(ptr))
    }
    unsafe fn free(&self, ptr: DevicePtr, bytes: usize) {
        assert!(!self.busy.load(Ordering::SeqCst), "freed under queued work");
        assert_eq!(self.live.lock().remove(&ptr.0), Some(bytes), "freed twice");
    }
    fn allocate_host(&self, _: usize) -> Result<DevicePtr> {
        unreachable!("only device memory is tested")
    }
    unsafe fn free_host(&self, _: DevicePtr, _: usize) {
        unreachable!("only device memory is tested")
    }
    fn wait_event(&self, _: &Stream, _: &Event) -> Result<()> {
        unreachable!("only memory is tested")
    }
    fn fence(&self) -> Result<Fence> {
        self.fences.fetch_add(1, Ordering::SeqCst);
        if !self.busy.load(Ordering::SeqCst) {
            return Ok(Fence(None));
        }
        Ok(Fence(Some(Arc::new(()))))
    }
    fn fence_passed(&self, fence: &Fence, wait: bool) -> Result<bool> {
        if wait && self.busy.swap(false, Ordering::SeqCst) {
            self.waits.fetch_add(1, Ordering::SeqCst);
        }
        Ok(fence.0.is_none() || !self.busy.load(Ordering::SeqCst))
    }
    fn create_stream(&self) -> Result<Stream> {
        Ok(Stream::new(Arc::new(())))
    }
    fn newest(&self, _: &Stream) -> u64 {
        0
    }
    fn has_ended(&self, _: &Stream, _: u64) -> bool {
        !self.busy.load(Ordering::SeqCst)
    }
    fn synchronize(&self, _: &Stream) -> Result<()> {
        Ok(())
    }
    unsafe fn copy_to_device(&self, _: &Stream, _: &[u8], _: DevicePtr) -> Result<()> {
        unreachable!("no memory behind the addresses")
    }
    unsafe fn copy_to_host(&self, _: &Stream, _: DevicePtr, _: &mut [u8]) -> Result<()> {
        unreachable!("no memory behind the addresses")
    }
    unsafe fn copy_on_device(
        &self,
        _: &Stream,
        _: DevicePtr,
        _: DevicePtr,
        _: usize,
    ) -> Result<()> {
        unreachable!("no memory behind the addresses")
    }
    unsafe fn fill(&self, _: &Stream, _: DevicePtr, _: u8, _: usize) -> Result<()> {
        unreachable!("no memory behind the addresses")
    }
    fn compile(&self, _: &str, _: &str) -> Result<(Module, CompileReport)> {
        unreachable!("only memory is tested")
    }
    fn kernel(&self, _: &Module, _: &str) -> Result<Kernel> {
        unreachable!("only memory is tested")
    }
    fn blocks_per_multiprocessor(&self, _: &Kernel, _: u32, _: usize) -> Result<u32> {
        unreachable!("only memory is tested")
    }
    unsafe fn launch(&self, _: &Stream, _: &Kernel, _: LaunchConfig, _: &[u8]) -> Result<()> {
        unreachable!("only memory is tested")
    }
    fn record_event(&self, _: &Stream) -> Result<Event> {
        unreachable!("only memory is tested")
    }
    fn elapsed_ms(&self, _: &Event, _: &Event) -> Result<f64> {
        unreachable!("only memory is tested")
    }
}

const KIB: usize = 1 << 10;
pub(super) const MIB: usize = 1 << 20;

pub(super) fn pool_of(device: &Arc<FakeDevice>, budget: usize) -> Arc<MemoryPool> {
    MemoryPool::new(Arc::clone(device) as Arc<dyn Device>, budget)
}

#[test]
fn size_classes_waste_little() {
    assert_eq!(size_class(0), 0);
    assert_eq!(size_class(1), 256);
    assert_eq!(size_class(257), 512);
    for bytes in (1..4 * MIB).step_by(997) {
        let class = size_class(bytes);
        assert!(class >= bytes && class.is_multiple_of(256));
        assert_eq!(size_class(class), class, "a class is its own class");
        let waste = class - bytes;
        assert!(
            waste < 256 || waste <= bytes / 8 || (bytes >= 2 * MIB && waste < 2 * MIB),
            "{bytes} -> {class}"
        );
    }
    assert_eq!(size_class(5 * MIB + 1), 6 * MIB);
    assert_eq!(size_class(usize::MAX), usize::MAX);
}

#[test]
fn budget_is_taken_and_returned() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 8 * MIB);
    let first = pool.allocate(3 * MIB, "first").unwrap();
    assert_eq!((first.len(), first.capacity()), (3 * MIB, 4 * MIB));
    let second = pool.allocate(4 * MIB, "second").unwrap();
    assert_eq!(pool.available(), 0);
    match pool.allocate(1, "one too many").unwrap_err() {
        GpuError::OutOfDeviceMemory {
            requested,
            purpose,
            in_use,
            budget,
        } => {
            assert_eq!((requested, in_use, budget), (256, 8 * MIB, 8 * MIB));
            assert_eq!(purpose, "one too many");
        }
        other => panic!("{other}"),
    }
    drop(first);
    assert_eq!(pool.available(), 4 * MIB);
    drop(second);
    let statistics = pool.statistics();
    assert_eq!((statistics.in_use, statistics.cached), (0, 8 * MIB));
    assert_eq!((statistics.peak, statistics.refusals), (8 * MIB, 1));
    drop(pool);
    assert_eq!(device.live_bytes(), 0, "the pool returns its free blocks");
}

#[test]
fn hot_allocations_never_reach_the_device() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 64 * MIB);
    for _ in 0..100 {
        let _a = pool.allocate(100 * KIB, "a").unwrap();
        let _b = pool.allocate(5 * MIB, "b").unwrap();
        let _c = pool.allocate(64, "c").unwrap();
    }
    let statistics = pool.statistics();
    assert_eq!(statistics.allocations, 300);
    assert_eq!(statistics.device_allocations, 3);
}

#[test]
fn a_full_pool_keeps_what_was_used_last() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 32 * MIB);
    let _columns = pool.allocate(16 * MIB, "columns").unwrap();
    // What another query has left.
    let left: Vec<_> = (0..8)
        .map(|_| pool.allocate(MIB, "left").unwrap())
        .collect();
    drop(left);
    let run = || {
        drop(pool.allocate(10 * MIB, "first").unwrap());
        drop(pool.allocate(6 * MIB, "second").unwrap());
        pool.statistics().device_allocations
    };
    let first = run();
    assert_eq!(run(), first, "blocks of the run before are there");
    assert_eq!(run(), first);
    let statistics = pool.statistics();
    assert!(statistics.in_use + statistics.cached <= 32 * MIB);
    assert_eq!(
        device.live_bytes(),
        statistics.in_use + statistics.cached,
        "what was given back is counted"
    );
}

#[test]
fn a_full_pool_lends_a_larger_block_where_there_is_room() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 32 * MIB);
    let columns = pool.allocate(18 * MIB, "columns").unwrap();
    let blocks = [(); 2].map(|()| pool.allocate(6 * MIB, "left").unwrap());
    drop(blocks);
    let asked = || pool.statistics().device_allocations;
    let before = asked();
    // 10 MiB stay free, less than the 12 that lie in blocks: a quarter of them may be wasted.
    let lent = pool.allocate(4 * MIB, "wanted").unwrap();
    assert_eq!((lent.capacity(), asked()), (6 * MIB, before));
    drop(lent);
    // Hardly anything is free: what is lent would be missed.
    let more = pool.allocate(4 * MIB, "more").unwrap();
    assert_eq!(more.capacity(), 6 * MIB);
    let exact = pool.allocate(2 * MIB, "wanted").unwrap();
    assert_eq!((exact.capacity(), asked()), (2 * MIB, before + 1));
    // A pool with room for both asks the device for what fits.
    drop((columns, more, exact));
    let roomy = pool_of(&device, 64 * MIB);
    drop(roomy.allocate(6 * MIB, "left").unwrap());
    assert_eq!(
        roomy.allocate(4 * MIB, "wanted").unwrap().capacity(),
        4 * MIB
    );
}

#[test]
fn blocks_under_queued_work_are_not_reused() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 64 * MIB);
    let first = pool.allocate(MIB, "first").unwrap();
    let address = first.ptr();
    device.busy.store(true, Ordering::SeqCst);
    drop(first);
    let second = pool.allocate(MIB, "second").unwrap();
    assert_ne!(second.ptr(), address, "the queued work still uses it");
    device.busy.store(false, Ordering::SeqCst);
    let third = pool.allocate(MIB, "third").unwrap();
    assert_eq!(third.ptr(), address, "the work has ended");
    assert_eq!(device.waits.load(Ordering::SeqCst), 0);
}

#[test]
fn blocks_of_streams_that_were_waited_for_need_no_fence() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 64 * MIB);
    let [one, other] = [(); 2].map(|()| Stream::new(Arc::new(0u8)));
    let fences = || device.fences.load(Ordering::SeqCst);
    let get = |stream: &Stream| pool.allocate_for(stream, MIB, "scratch").unwrap();
    let first = get(&one);
    let address = first.ptr();
    let noted = fences();
    // Its stream was waited for before it came back, …
    drop(first.ordered_by(&one));
    let again = get(&other);
    assert_eq!(again.ptr(), address);
    // … or is waited for later.
    device.busy.store(true, Ordering::SeqCst);
    drop(again.ordered_by(&other));
    let elsewhere = get(&one);
    assert_ne!(elsewhere.ptr(), address, "the queued work still uses it");
    let noted = noted.max(fences());
    device.busy.store(false, Ordering::SeqCst);
    assert_eq!(get(&one).ptr(), address);
    assert_eq!(fences(), noted);
    // Of a block that no stream orders only a fence tells.
    drop(elsewhere);
    let (_a, _b) = (get(&one), get(&one));
    assert_eq!(fences(), noted + 1);
    assert_eq!(pool.statistics().device_allocations, 2);
}

#[test]
fn work_on_the_same_stream_takes_blocks_of_earlier_work() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 64 * MIB);
    let [one, other] = [(); 2].map(|()| Stream::new(Arc::new(0u8)));
    let get = |stream: &Stream, bytes| {
        let buffer = pool.allocate_for(stream, bytes, "scratch").unwrap();
        buffer.ordered_by(stream)
    };
    device.busy.store(true, Ordering::SeqCst);
    let first = get(&one, 4 * MIB);
    let address = first.ptr();
    drop(first);
    let elsewhere = get(&other, 4 * MIB);
    assert_ne!(
        elsewhere.ptr(),
        address,
        "nothing orders it behind that work"
    );
    assert_ne!(pool.allocate(4 * MIB, "any").unwrap().ptr(), address);
    let again = get(&one, 4 * MIB);
    assert_eq!(again.ptr(), address);
    assert_eq!(pool.statistics().in_use, 8 * MIB);
    drop(again);
    // Whatever stream had it: a little smaller will do, much smaller or larger will not.
    assert_ne!(get(&one, 6 * MIB).ptr(), address);
    assert_ne!(get(&one, 2 * MIB).ptr(), address);
    assert_eq!(get(&one, 3 * MIB + MIB / 2).ptr(), address);
    for _ in 0..100 {
        drop(get(&one, 8 * MIB));
    }
    let statistics = pool.statistics();
    assert_eq!(statistics.device_allocations, 6, "{statistics:?}");
    // What a buffer without a stream had is behind nothing.
    let plain = pool.allocate_for(&one, 10 * MIB, "plain").unwrap();
    let address = plain.ptr();
    drop(plain);
    assert_ne!(get(&one, 10 * MIB).ptr(), address);
    assert_eq!(device.waits.load(Ordering::SeqCst), 0);
    drop(elsewhere);
    device.busy.store(false, Ordering::SeqCst);
    pool.trim().unwrap();
    assert_eq!(pool.statistics().cached, 0);
    assert_eq!(device.live_bytes(), 0);
}

/// Free blocks and blocks under way are kept within the budget.
#[test]
fn blocks_of_the_same_stream_respect_the_budget() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 32 * MIB);
    let stream = Stream::new(Arc::new(0u8));
    let scratch = pool.allocate_for(&stream, 18 * MIB, "scratch").unwrap();
    drop(scratch.ordered_by(&stream));
    let held = pool.allocate(14 * MIB, "held").unwrap();
    assert_eq!(pool.available(), 18 * MIB);
    // 16 MiB fit twice, but not as a block of 18.
    let reservation = pool.reserve(2 * MIB, "reserved").unwrap();
    let next = pool.allocate_for(&stream, 16 * MIB, "scratch").unwrap();
    assert_eq!(next.capacity(), 16 * MIB);
    assert!(pool.statistics().in_use <= 32 * MIB);
    drop((held, reservation, next));
}

#[test]
fn a_tight_budget_waits_for_queued_work() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 4 * MIB);
    let first = pool.allocate(4 * MIB, "first").unwrap();
    device.busy.store(true, Ordering::SeqCst);
    drop(first);
    // Another size, so the block must go back to the device before the new one is made.
    let second = pool.allocate(2 * MIB, "second").unwrap();
    assert_eq!(device.waits.load(Ordering::SeqCst), 1);
    assert_eq!(device.live_bytes(), 2 * MIB);
    drop(second);
}

#[test]
fn reservations_hold_the_budget_before_use() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 8 * MIB);
    let mut reservation = pool.reserve(6 * MIB, "reserved").unwrap();
    assert_eq!(device.live_bytes(), 0);
    assert!(pool.allocate(4 * MIB, "other").is_err());
    let inside = reservation.allocate(4 * MIB).unwrap();
    assert_eq!(reservation.remaining(), 2 * MIB);
    assert_eq!(pool.available(), 2 * MIB);
    let more = reservation.allocate(4 * MIB).unwrap();
    assert_eq!((reservation.remaining(), pool.available()), (0, 0));
    assert!(reservation.allocate(256).is_err());
    drop(reservation);
    assert_eq!(pool.statistics().in_use, 8 * MIB);
    drop((inside, more));
    assert_eq!(pool.statistics().in_use, 0);
    drop(pool.reserve(8 * MIB, "unused").unwrap());
    assert_eq!(pool.available(), 8 * MIB);
}

/// Holds buffers it can do without, as the cache of resident tables does.
#[derive(Default)]
pub(super) struct Hoard {
    buffers: Mutex<Vec<DeviceBuffer>>,
    asked: AtomicUsize,
}

impl Hoard {
    pub(super) fn held(&self) -> usize {
        self.buffers.lock().len()
    }
}

impl PressureHandler for Hoard {
    fn release(&self, bytes: usize) -> usize {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut released = 0;
        while released < bytes {
            let Some(buffer) = self.buffers.lock().pop() else {
                break;
            };
            released += buffer.capacity();
        }
        released
    }
}

pub(super) fn hoard_of(pool: &Arc<MemoryPool>, buffers: usize) -> Arc<Hoard> {
    let hoard = Arc::new(Hoard::default());
    for _ in 0..buffers {
        let buffer = pool.allocate(2 * MIB, "hoard").unwrap();
        hoard.buffers.lock().push(buffer);
    }
    let handler: Weak<dyn PressureHandler> = Arc::<Hoard>::downgrade(&hoard);
    pool.set_pressure_handler(handler);
    hoard
}

#[test]
fn pressure_evicts_just_enough_and_then_refuses() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 8 * MIB);
    let hoard = hoard_of(&pool, 4);
    let first = pool.allocate(4 * MIB, "query").unwrap();
    assert_eq!(hoard.buffers.lock().len(), 2);
    let second = pool.allocate(4 * MIB, "query").unwrap();
    assert_eq!(hoard.buffers.lock().len(), 0);
    assert!(matches!(
        pool.allocate(MIB, "query"),
        Err(GpuError::OutOfDeviceMemory { .. })
    ));
    let statistics = pool.statistics();
    assert_eq!(statistics.released_under_pressure, 8 * MIB as u64);
    assert_eq!((statistics.pressure_calls, statistics.refusals), (3, 1));
    drop((first, second));
}

#[test]
fn a_request_over_the_budget_evicts_nothing() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 8 * MIB);
    let hoard = hoard_of(&pool, 2);
    assert!(pool.allocate(10 * MIB, "too large").is_err());
    assert!(pool.allocate(usize::MAX, "absurd").is_err());
    assert_eq!(hoard.asked.load(Ordering::SeqCst), 0);
    assert_eq!(hoard.buffers.lock().len(), 2);
}

#[test]
fn a_device_smaller_than_the_budget_evicts_too() {
    let device = FakeDevice::new(4 * MIB);
    let pool = pool_of(&device, 64 * MIB);
    let hoard = hoard_of(&pool, 2);
    let buffer = pool.allocate(4 * MIB, "query").unwrap();
    assert_eq!(hoard.buffers.lock().len(), 0);
    let error = pool.allocate(2 * MIB, "query").unwrap_err();
    assert!(
        matches!(error, GpuError::OutOfDeviceMemory { .. }),
        "{error}"
    );
    drop(buffer);
    assert_eq!(pool.statistics().in_use, 0);
    assert!(pool.allocate(2 * MIB, "query").is_ok());
}

#[test]
fn a_dropped_handler_is_no_handler() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 2 * MIB);
    drop(hoard_of(&pool, 1));
    let _all = pool.allocate(2 * MIB, "all").unwrap();
    assert!(pool.allocate(MIB, "more").is_err());
}

#[test]
fn an_injected_failure_leaves_the_pool_whole() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 8 * MIB);
    pool.fail_allocation(2);
    let first = pool.allocate(MIB, "first").unwrap();
    assert!(pool.allocate(MIB, "second").is_err());
    assert_eq!(pool.statistics().in_use, MIB);
    let third = pool.allocate(7 * MIB - 2 * MIB, "third").unwrap();
    drop((first, third));
    assert_eq!(pool.statistics().in_use, 0);
}

#[test]
fn empty_buffers_take_nothing() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 0);
    let empty = pool.allocate(0, "nothing").unwrap();
    let stream = device.create_stream().unwrap();
    assert!(empty.is_empty());
    assert_eq!(empty.ptr(), DevicePtr(0));
    empty.upload(&stream, 0, &[]).unwrap();
    empty.fill(&stream, 7).unwrap();
    assert_eq!(
        empty.download_vec::<u64>(&stream).unwrap(),
        Vec::<u64>::new()
    );
    assert!(empty.upload(&stream, 0, &[1]).is_err());
    assert!(empty.ptr_at(1).is_err());
}

#[test]
fn trimming_returns_free_blocks_only() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 64 * MIB);
    let kept = pool.allocate(MIB, "kept").unwrap();
    drop(pool.allocate(4 * MIB, "freed").unwrap());
    assert_eq!(device.live_bytes(), 5 * MIB);
    pool.trim().unwrap();
    assert_eq!(device.live_bytes(), MIB);
    assert_eq!(pool.statistics().cached, 0);
    drop(kept);
}

#[test]
fn threads_share_a_pool() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 16 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (pool, device) = (&pool, &device);
            scope.spawn(move || {
                for round in 0..200 {
                    let bytes = (thread * 7919 + round * 104_729) % (3 * MIB);
                    // A refusal is right when the others hold the budget.
                    if let Ok(buffer) = pool.allocate(bytes, "thread") {
                        assert!(buffer.capacity() >= bytes);
                    }
                    // Free blocks may be over for a moment while another thread's reservation
                    // has not become a block; what the device holds never is.
                    assert!(pool.statistics().in_use <= 16 * MIB);
                    assert!(device.live_bytes() <= 16 * MIB);
                }
            });
        }
    });
    assert_eq!(pool.statistics().in_use, 0);
}
