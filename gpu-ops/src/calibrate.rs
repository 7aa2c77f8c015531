//! Calibration: measures a device's constants (random accesses, atomics, copies, passes of a radix partition).
//!
//! Each figure is the median of a few runs of a small kernel (`calibrate.cu`) or of a primitive, timed by events on
//! the device. A GPU takes about two seconds and half of its free memory, at most 16 GiB. Figures that no kernel
//! here measures are those of [`Machine::scaled_to`].

use std::sync::Arc;

use warpline_cuda::kernels::{self, CalibrateArgs};

use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::Result;
use crate::machine::{Curve, Machine, Origin};
use crate::memory::DeviceBuffer;
use crate::primitives::{
    Digits, Keys, PairJoin, PairKind, PairList, Partitioning, Partitions, Payload, RowCount, Side,
    join_partitions, launch, merge_join, partition_bits, radix_partition,
};
use crate::runtime::Runtime;

/// Threads of a block of every kernel here.
const BLOCK: u32 = 256;
/// Blocks a multiprocessor: as many as hide the latency of memory.
const BLOCKS: u32 = 8;
/// Timed runs; the median counts.
const RUNS: usize = 3;
/// Words that the kernels add what they saw to.
const SUMS: usize = 256;
/// Most memory that accesses spread over.
const MOST_BYTES: u64 = 16 << 30;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Accesses that are timed together, a power of two below 2^32.
    pub accesses: u64,
    /// Most bytes that they spread over, a power of two of at least 4096.
    pub bytes: u64,
}

impl Extent {
    /// What a device's figures are steady with: 2^26 accesses over up to half of the free memory. The emulator's
    /// times mean nothing, so it does little.
    pub fn of(runtime: &Runtime) -> Self {
        if runtime.device().info().emulated {
            return Self {
                accesses: 1 << 10,
                bytes: 1 << 13,
            };
        }
        let half = runtime
            .pool()
            .free()
            .calibrated()
            .clamp(1 << 13, MOST_BYTES);
        Self {
            accesses: 1 << 26,
            bytes: 1 << half.ilog2(),
        }
    }
}

/// The constants of the runtime's device, as measured now.
///
/// # Errors
/// [`crate::GpuError::OutOfDeviceMemory`], [`crate::GpuError::Compile`] and [`crate::GpuError::Device`].
pub fn calibrate(runtime: &Arc<Runtime>) -> Result<Machine> {
    calibrate_over(runtime, Extent::of(runtime))
}

/// The same, measured over another extent.
///
/// # Errors
/// As [`calibrate`].
pub fn calibrate_over(runtime: &Arc<Runtime>, extent: Extent) -> Result<Machine> {
    let bench = Bench::new(runtime, extent)?;
    let defaults = Machine::scaled_to(runtime.device().info());
    let info = runtime.device().info();
    let copy = runtime.copy_bandwidth()?;
    let (partition_row, partition_column) = bench.partition(copy)?;
    let (match_row, merge_row) = bench.joins(copy)?;
    Ok(Machine {
        device: info.name.clone(),
        origin: Origin::Measured,
        memory: info.memory as f64,
        l2: info.l2_cache as f64,
        shared: info.shared_memory_per_block as f64,
        multiprocessors: f64::from(info.multiprocessors),
        copy,
        read: bench.read()?,
        link: bench.link()?,
        launch: bench.launch_time()?,
        gather: [
            bench.curve("calibrate_gather4", 4, 1 << 16, false)?,
            bench.curve("calibrate_gather8", 8, 1 << 16, false)?,
            bench.curve("calibrate_gather16", 16, 1 << 16, false)?,
        ],
        scatter: [
            bench.curve("calibrate_scatter4", 4, 1 << 20, false)?,
            bench.curve("calibrate_scatter8", 8, 1 << 20, false)?,
            bench.curve("calibrate_scatter16", 16, 1 << 20, false)?,
        ],
        atomics: bench.curve("calibrate_atomics", 4, 1 << 4, false)?,
        inserts: bench.curve("calibrate_inserts", 8, 1 << 4, true)?,
        shared_atomics: bench.shared("calibrate_shared4", 4)?,
        shared_wide_atomics: bench.shared("calibrate_shared8", 8)?,
        register_update: bench.registers()?,
        partition_row,
        partition_column,
        partition_copy: copy,
        match_row,
        merge_row,
        ..defaults
    })
}

/// Memory and a stream to measure with.
struct Bench<'a> {
    runtime: &'a Runtime,
    stream: Stream,
    data: DeviceBuffer,
    sums: DeviceBuffer,
    extent: Extent,
}

impl<'a> Bench<'a> {
    fn new(runtime: &'a Runtime, extent: Extent) -> Result<Self> {
        let bytes = usize::try_from(extent.bytes).unwrap_or(usize::MAX);
        let stream = runtime.device().create_stream()?;
        let data = runtime.pool().allocate(bytes, "measuring the device")?;
        let sums = runtime.pool().allocate(SUMS * 8, "measuring the device")?;
        data.fill(&stream, 1)?;
        sums.fill(&stream, 0)?;
        Ok(Self {
            runtime,
            stream,
            data,
            sums,
            extent,
        })
    }

    /// Median milliseconds of `work`, each time behind `before`.
    fn time(&self, before: impl Fn() -> Result<()>, work: impl Fn() -> Result<()>) -> Result<f64> {
        let device = self.runtime.device();
        let mut times = Vec::with_capacity(RUNS);
        // The first run warms caches and compiles.
        for run in 0..=RUNS {
            before()?;
            let start = device.record_event(&self.stream)?;
            work()?;
            let end = device.record_event(&self.stream)?;
            let ms = device.elapsed_ms(&start, &end)?;
            if run > 0 {
                times.push(ms);
            }
        }
        device.synchronize(&self.stream)?;
        times.sort_by(f64::total_cmp);
        // A clock that did not tick still took some time.
        Ok(times.get(times.len() / 2).copied().unwrap_or(0.0).max(1e-6))
    }

    /// Median milliseconds of one launch over `places` places.
    fn launch(
        &self,
        name: &'static str,
        accesses: u64,
        places: u64,
        shared: usize,
        clear: Option<u64>,
    ) -> Result<f64> {
        let kernel = self.runtime.builtin(name, 0, kernels::calibrate)?;
        let mut blocks = BLOCKS;
        if shared > 0 {
            let fits = self
                .runtime
                .device()
                .blocks_per_multiprocessor(&kernel, BLOCK, shared)?;
            blocks = blocks.min(fits.max(1));
        }
        let needed = u32::try_from(accesses.div_ceil(u64::from(BLOCK))).unwrap_or(u32::MAX);
        let resident = self.runtime.device().info().multiprocessors.max(1) * blocks;
        let config = LaunchConfig {
            grid: resident.min(needed.max(1)),
            block: BLOCK,
            shared_bytes: shared,
        };
        let args = CalibrateArgs {
            data: self.data.ptr(),
            sums: self.sums.ptr(),
            accesses,
            mask: u32::try_from(places - 1).unwrap_or(u32::MAX),
            seed: 12345,
        };
        let clear_first = || match clear {
            Some(bytes) => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.data.fill_range(&self.stream, 0, bytes, 0)
            }
            None => Ok(()),
        };
        self.time(clear_first, || {
            // SAFETY: `data` holds `places` values (or 16 bytes an access of `calibrate_read`), `sums` 256 words, and
            // both live until the stream has been waited for.
            unsafe { launch(self.runtime, &self.stream, &kernel, config, &args) }
        })
    }

    /// Picoseconds an access over `from` bytes, four times as many, … and all.
    fn curve(&self, name: &'static str, width: u64, from: u64, clear: bool) -> Result<Curve> {
        let mut points = Vec::new();
        let mut bytes = from.max(width).min(self.extent.bytes);
        loop {
            let places = (bytes / width).min(1 << 32);
            let ms = self.launch(
                name,
                self.extent.accesses,
                places,
                0,
                clear.then_some(bytes),
            )?;
            points.push((bytes as f64, self.each(ms)));
            if bytes >= self.extent.bytes {
                return Ok(Curve::new(points));
            }
            // Caches end between powers of two.
            let step = if bytes < 1 << 24 { 4 } else { 2 };
            bytes = (bytes * step).min(self.extent.bytes);
        }
    }

    fn each(&self, ms: f64) -> f64 {
        ms * 1e9 / self.extent.accesses as f64
    }

    /// Picoseconds an atomic on tables of up to what a block gets beside another one.
    fn shared(&self, name: &'static str, width: u64) -> Result<Curve> {
        let most = self.runtime.device().info().shared_memory_per_block as u64 / 2;
        let mut points = Vec::new();
        let mut bytes = 2 * width;
        while bytes <= most {
            let shared = usize::try_from(bytes).unwrap_or(usize::MAX);
            let ms = self.launch(name, self.extent.accesses, bytes / width, shared, None)?;
            points.push((bytes as f64, self.each(ms)));
            bytes *= 4;
        }
        Ok(Curve::new(points))
    }

    /// Bytes a second of a reduction.
    fn read(&self) -> Result<f64> {
        let bytes = self.extent.bytes.min(4 << 30);
        let ms = self.launch("calibrate_read", bytes / 16, 1, 0, None)?;
        Ok(bytes as f64 / (ms / 1e3))
    }

    /// Picoseconds an update of a sum in registers: the kernel makes eight an access.
    fn registers(&self) -> Result<f64> {
        let places = 1 << 32;
        let ms = self.launch("calibrate_registers", self.extent.accesses, places, 0, None)?;
        Ok(self.each(ms) / 8.0)
    }

    /// Microseconds of one more launch.
    fn launch_time(&self) -> Result<f64> {
        const LAUNCHES: u32 = 64;
        let kernel = self
            .runtime
            .builtin("calibrate_read", 0, kernels::calibrate)?;
        let config = LaunchConfig {
            grid: 1,
            block: BLOCK,
            shared_bytes: 0,
        };
        let args = CalibrateArgs {
            data: self.data.ptr(),
            sums: self.sums.ptr(),
            accesses: 1,
            mask: 0,
            seed: 0,
        };
        let ms = self.time(
            || Ok(()),
            || {
                for _ in 0..LAUNCHES {
                    // SAFETY: as in `launch`.
                    unsafe {
                        launch(self.runtime, &self.stream, &kernel, config, &args)?;
                    }
                }
                Ok(())
            },
        )?;
        Ok(ms * 1e3 / f64::from(LAUNCHES))
    }

    /// Bytes a second from the host to the device, of pageable memory as queries' tables come in.
    fn link(&self) -> Result<f64> {
        let bytes = usize::try_from(self.extent.bytes.min(64 << 20)).unwrap_or(1 << 20);
        let source = vec![1u8; bytes];
        let ms = self.time(|| Ok(()), || self.data.upload(&self.stream, 0, &source))?;
        Ok(bytes as f64 / (ms / 1e3))
    }

    /// Picoseconds a row and pass of a radix partition with one payload column, and for another column, beyond
    /// reading and writing them at `copy` bytes a second.
    fn partition(&self, copy: f64) -> Result<(f64, f64)> {
        const WIDTH: u64 = 4;
        // Keys, two columns, and all of these again.
        let rows = self.extent.accesses.min(self.extent.bytes / (6 * WIDTH)) / 64 * 64;
        self.launch("calibrate_keys", rows, 1, 0, None)?;
        let column = |i: u64| self.data.ptr().offset(i * rows * WIDTH);
        let keys = Keys {
            ptr: column(0),
            width: 4,
        };
        let payload = |i: u64| Payload {
            from: Some(column(i)),
            to: column(3 + i),
            width: 4,
        };
        let pass = |payloads: &[Payload]| -> Result<f64> {
            let partition = |bits: u32| {
                let of = Partitioning {
                    keys,
                    to: column(3),
                    payloads,
                    rows: RowCount::Known(rows),
                    digits: Digits::Hash,
                    bits: 0..bits,
                };
                self.time(
                    || Ok(()),
                    // SAFETY: six columns of `rows` values lie one behind the other in `data`.
                    || unsafe { radix_partition(self.runtime, &self.stream, &of, None) },
                )
            };
            let ms = (partition(16)? - partition(8)?).max(0.0);
            Ok(ms * 1e9 / rows as f64)
        };
        let moved = |bytes: f64| 2.0 * bytes / copy * 1e12;
        let one = pass(&[payload(1)])?;
        let two = pass(&[payload(1), payload(2)])?;
        let row = (one - moved(8.0)).max(0.0);
        let column = (two - one - moved(4.0)).max(0.0);
        Ok((row, column))
    }

    /// Picoseconds a row of either side of a join of partitioned and of sorted sides, beyond reading keys and
    /// writing pairs at `copy` bytes a second.
    fn joins(&self, copy: f64) -> Result<(f64, f64)> {
        const WIDTH: u64 = 4;
        // Keys, keys in order, row numbers in order, both halves of the pairs; and words behind.
        let most = self.extent.bytes.saturating_sub(1 << 12) / (5 * WIDTH);
        let rows = self.extent.accesses.min(most) / 64 * 64;
        let column = |i: u64| self.data.ptr().offset(i * rows * WIDTH);
        self.launch("calibrate_keys", rows, 1, 0, None)?;
        let bits = partition_bits(rows, 4, self.runtime.device().info());
        let offsets = self
            .runtime
            .pool()
            .allocate(((1usize << bits) + 1) * 4, "measuring the device")?;
        let list = PairList {
            entries: column(3),
            rows: column(4),
            capacity: rows,
            count: self.sums.ptr(),
        };
        let keys = |i: u64| Keys {
            ptr: column(i),
            width: 4,
        };
        let arrange = |digits: Digits, bits: u32, offsets: Option<DevicePtr>| -> Result<()> {
            let numbers = Payload {
                from: None,
                to: column(2),
                width: 4,
            };
            let of = Partitioning {
                keys: keys(0),
                to: column(1),
                payloads: &[numbers],
                rows: RowCount::Known(rows),
                digits,
                bits: 0..bits,
            };
            // SAFETY: columns of `rows` values lie one behind the other in `data`; `offsets` has a word more than
            // partitions.
            unsafe { radix_partition(self.runtime, &self.stream, &of, offsets) }
        };
        let side = Side {
            keys: keys(1),
            hashed: false,
            rows: RowCount::Known(rows),
            numbers: Some(column(2)),
            places: rows,
            partitions: Partitions::side_by_side(offsets.ptr()),
        };
        let each = |ms: f64| {
            // Keys and row numbers of both sides read, pairs written.
            let streamed = 24.0 / copy * 1e12;
            ((ms * 1e9 / rows as f64 - streamed) / 2.0).max(0.1)
        };
        let of = PairJoin {
            build: &side,
            probe: &side,
            kind: PairKind::Inner,
            unique: true,
            duplicate: DevicePtr::NULL,
            pairs: &list,
            marks: None,
            another_table: None,
        };
        arrange(Digits::Hash, bits, Some(offsets.ptr()))?;
        let partitioned = self.time(
            || Ok(()),
            || {
                // SAFETY: both sides are the partitioned keys, and the list has room for `rows` pairs: more are counted
                // and not written.
                unsafe { join_partitions(self.runtime, &self.stream, &of, bits) }
            },
        )?;
        arrange(Digits::Key, 32, None)?;
        let sorted = self.time(
            || Ok(()),
            || {
                // SAFETY: as above, with the sorted keys.
                unsafe { merge_join(self.runtime, &self.stream, &of) }
            },
        )?;
        Ok((each(partitioned), each(sorted)))
    }
}
