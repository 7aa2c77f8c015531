//! What accesses, atomics and passes cost on one device: the constants behind the planner's prices.
//!
//! Times are picoseconds *of the whole device* an access: `n` accesses that cost `p` each take
//! `n * p * 1e-9` milliseconds. Where the cost depends on how much memory the accesses spread over, it is a
//! [`Curve`] over bytes, so that every level of the memory hierarchy has its price without being named.
//! A calibration measures a device; until it ran, [`Machine::of`] scales the figures of one H200 by what
//! the driver tells of the device.

mod store;

use crate::device::DeviceInfo;

pub use store::{load, save, stored_at};

/// A cost as a function of bytes: straight lines over log2(bytes), constant beyond the ends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// From points (bytes, picoseconds), in any order.
    pub fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut points: Vec<(f64, f64)> = points
            .into_iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite() && *x > 0.0)
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self(points)
    }

    /// The points, ascending by bytes.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.0
    }

    /// The cost over `bytes` bytes; 0 for a curve without points.
    pub fn at(&self, bytes: f64) -> f64 {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return 0.0;
        };
        if bytes <= first.0 {
            return first.1;
        }
        if bytes >= last.0 {
            return last.1;
        }
        for pair in self.0.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            if bytes <= x1 {
                let share = (bytes / x0).log2() / (x1 / x0).log2();
                return y0 + share * (y1 - y0);
            }
        }
        last.1
    }

    /// Every cost times `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|(x, y)| (*x, y * factor)).collect())
    }
}

/// Where the constants come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Measured on this device.
    Measured,
    /// Those of an H200, scaled to the device.
    Default,
}

/// The constants of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Name of the device.
    pub device: String,
    /// Measured, or not yet.
    pub origin: Origin,
    /// Device memory, bytes.
    pub memory: f64,
    /// L2 cache, bytes.
    pub l2: f64,
    /// Shared memory of a block, bytes.
    pub shared: f64,
    /// Multiprocessors.
    pub multiprocessors: f64,
    /// Bytes a second, read and written together, of a plain copy.
    pub copy: f64,
    /// Bytes a second of a reduction that only reads.
    pub read: f64,
    /// Bytes a second between host (pinned) and device, one way.
    pub link: f64,
    /// Microseconds of one more dependent launch on a stream.
    pub launch: f64,
    /// Random reads of 4, 8 and 16 bytes, without the sequential read of the addresses.
    pub gather: [Curve; 3],
    /// Random writes of 4, 8 and 16 bytes.
    pub scatter: [Curve; 3],
    /// Random 32-bit additions in device memory; the small end is contention.
    pub atomics: Curve,
    /// Random 64-bit compare-and-swaps of empty slots: one insertion into a hash table.
    pub inserts: Curve,
    /// Random 32-bit additions in a block's shared memory, over the bytes of the block's table.
    pub shared_atomics: Curve,
    /// One pass of radix partitioning: a row,
    pub partition_row: f64,
    /// … each payload column of a row beyond the first, and
    pub partition_column: f64,
    /// … the bytes a second, read and written together, of its copies.
    pub partition_copy: f64,
    /// Joining partitions: a row that is entered or looked up in shared memory, beyond reading it.
    pub match_row: f64,
    /// Merging sorted sides: a row, beyond reading it.
    pub merge_row: f64,
    /// Grouping in a partition's shared table: a row, beyond reading it.
    pub group_row: f64,
    /// Reducing runs of equal keys: a row, beyond reading it.
    pub run_row: f64,
    /// Updating one 8-byte state in registers.
    pub register_update: f64,
}

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;
const GIB: f64 = KIB * MIB;

impl Machine {
    /// One H200 (141 GB, 132 multiprocessors, 60 MB of L2), CUDA 13.0: medians of 2^27 accesses, with the time
    /// of the sequential part (addresses in, values out, at copy speed) taken off.
    pub fn h200() -> Self {
        Self {
            device: "NVIDIA H200".into(),
            origin: Origin::Default,
            memory: 139.0 * GIB,
            l2: 60.0 * MIB,
            shared: 227.0 * KIB,
            multiprocessors: 132.0,
            copy: 4.288e12,
            read: 4.552e12,
            link: 55.6e9,
            launch: 2.6,
            gather: [
                Curve::new([
                    (64.0 * KIB, 2.0),
                    (16.0 * MIB, 5.4),
                    (64.0 * MIB, 13.4),
                    (512.0 * MIB, 23.5),
                ]),
                Curve::new([
                    (64.0 * KIB, 2.0),
                    (16.0 * MIB, 5.4),
                    (64.0 * MIB, 12.0),
                    (512.0 * MIB, 22.5),
                ]),
                Curve::new([
                    (64.0 * KIB, 3.5),
                    (16.0 * MIB, 6.0),
                    (64.0 * MIB, 12.0),
                    (512.0 * MIB, 22.5),
                ]),
            ],
            scatter: [
                Curve::new([(16.0 * MIB, 8.0), (64.0 * MIB, 30.0), (512.0 * MIB, 58.0)]),
                Curve::new([(16.0 * MIB, 8.0), (64.0 * MIB, 30.0), (512.0 * MIB, 58.0)]),
                Curve::new([(16.0 * MIB, 10.0), (64.0 * MIB, 30.0), (512.0 * MIB, 58.0)]),
            ],
            atomics: Curve::new([
                (64.0, 186.0),
                (KIB, 260.0),
                (16.0 * KIB, 28.0),
                (256.0 * KIB, 11.0),
                (4.0 * MIB, 10.4),
                (64.0 * MIB, 32.0),
                (512.0 * MIB, 58.0),
            ]),
            inserts: Curve::new([(4.0 * MIB, 12.0), (64.0 * MIB, 34.0), (512.0 * MIB, 60.0)]),
            shared_atomics: Curve::new([(64.0, 3.0), (KIB, 0.8), (16.0 * KIB, 0.5)]),
            partition_row: 4.0,
            partition_column: 1.0,
            partition_copy: 4.288e12,
            match_row: 4.0,
            merge_row: 4.0,
            group_row: 6.0,
            run_row: 2.0,
            register_update: 0.1,
        }
    }

    /// What is known of a device: its measured constants where it has been calibrated, else the
    /// figures of an H200, scaled by its multiprocessors.
    pub fn of(device: &DeviceInfo) -> Self {
        load(device).unwrap_or_else(|| Self::scaled_to(device))
    }

    /// The figures of an H200 for a device of other size. The emulator is priced as an H200, so that its
    /// plans are those of a GPU.
    pub fn scaled_to(device: &DeviceInfo) -> Self {
        let h200 = Self::h200();
        if device.emulated {
            return h200;
        }
        let size = f64::from(device.multiprocessors.max(1)) / h200.multiprocessors;
        let slower = |curve: &Curve| curve.scaled(1.0 / size);
        Self {
            device: device.name.clone(),
            memory: device.memory as f64,
            l2: device.l2_cache as f64,
            shared: device.shared_memory_per_block as f64,
            multiprocessors: f64::from(device.multiprocessors),
            copy: h200.copy * size,
            read: h200.read * size,
            gather: h200.gather.each_ref().map(slower),
            scatter: h200.scatter.each_ref().map(slower),
            atomics: slower(&h200.atomics),
            inserts: slower(&h200.inserts),
            shared_atomics: slower(&h200.shared_atomics),
            partition_row: h200.partition_row / size,
            partition_column: h200.partition_column / size,
            partition_copy: h200.partition_copy * size,
            match_row: h200.match_row / size,
            merge_row: h200.merge_row / size,
            group_row: h200.group_row / size,
            run_row: h200.run_row / size,
            register_update: h200.register_update / size,
            ..h200
        }
    }

    /// Random reads of `width` bytes from a source of `bytes` bytes, picoseconds each; wider values are
    /// several reads of 16 bytes.
    pub fn gather(&self, width: f64, bytes: f64) -> f64 {
        by_width(&self.gather, width, bytes)
    }

    /// Random writes of `width` bytes into `bytes` bytes, picoseconds each.
    pub fn scatter(&self, width: f64, bytes: f64) -> f64 {
        by_width(&self.scatter, width, bytes)
    }

    /// Milliseconds to stream `bytes` bytes, read or written.
    pub fn stream(&self, bytes: f64) -> f64 {
        bytes / self.copy * 1e3
    }

    /// Milliseconds of a stable radix partition by `bits` bits of `rows` rows with keys of `key` bytes and
    /// payload columns of `payload` bytes: one histogram read of the keys, then one pass per 8 bits that reads
    /// and writes everything.
    pub fn partition(&self, rows: f64, key: f64, payload: &[f64], bits: f64) -> f64 {
        let passes = (bits / 8.0).ceil().max(1.0);
        let bytes = key + payload.iter().sum::<f64>();
        let row = self.partition_row
            + self.partition_column * (payload.len() as f64 - 1.0).max(0.0)
            + 2.0 * bytes / self.partition_copy * 1e12;
        self.stream(rows * key) + passes * (rows * row * 1e-9 + self.launches(3.0))
    }

    /// Milliseconds of `kernels` dependent launches.
    pub fn launches(&self, kernels: f64) -> f64 {
        kernels * self.launch * 1e-3
    }
}

fn by_width(curves: &[Curve; 3], width: f64, bytes: f64) -> f64 {
    let [four, eight, sixteen] = curves;
    match width {
        w if w <= 4.0 => four.at(bytes),
        w if w <= 8.0 => eight.at(bytes),
        w => sixteen.at(bytes) * (w / 16.0).ceil(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
