//! Cost constants of one device, behind the planner's prices: accesses, atomics, passes.
//!
//! Times are picoseconds *of the whole device* an access: `n` accesses that cost `p` each take
//! `n * p * 1e-9` milliseconds. Where the cost depends on how much memory the accesses spread over, it is a
//! [`Curve`] over bytes, so that every level of the memory hierarchy has its price without being named.
//! [`crate::calibrate`] measures a device; until it ran, [`Machine::of`] scales the figures of one H200 by what
//! the driver tells of the device.

mod store;

use std::fmt;

use crate::device::DeviceInfo;
use crate::memory::Budget;

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

    /// The costs of a device whose L2 cache is `factor` times as large, and has as many times the slices that accesses go through.
    #[must_use]
    fn through_cache(&self, factor: f64) -> Self {
        /// What lies in so few bytes is limited by multiprocessors, or by those who want the same word.
        const CLOSER: f64 = 64.0 * KIB;
        let points = self.0.iter();
        Self::new(points.map(|(bytes, cost)| match *bytes > CLOSER {
            true => (bytes * factor, cost / factor),
            false => (*bytes, *cost),
        }))
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
    /// Device memory that queries may use, bytes.
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
    /// Bytes a second from the host to the device.
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
    /// The same in 64 bits, which are loops of compare-and-swap: the small end is contention.
    pub shared_wide_atomics: Curve,
    /// One pass of radix partitioning by 8 bits: a row (fewer bits cost less: runs of rows are longer),
    pub partition_row: f64,
    /// … each payload column of a row beyond the first, and
    pub partition_column: f64,
    /// … the bytes a second, read and written together, of its copies.
    pub partition_copy: f64,
    /// Joining partitions: a row that is entered or looked up in shared memory, beyond reading it.
    pub match_row: f64,
    /// Joining: a pair beyond the first of its probing row, beyond writing it.
    pub match_pair: f64,
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
    /// Device memory that queries may use.
    pub fn budget(&self) -> Budget {
        Budget::of(self.memory as u64)
    }

    /// One H200 (141 GB, 132 multiprocessors, 60 MB of L2), CUDA 13.0: medians of 2^26 accesses by the kernels of
    /// [`crate::calibrate`]. Random accesses keep the L2 cache's price up to 32 MB, half of it: each half of the device
    /// has a copy of what it reads. Writes and atomics beyond it cost 2.4 reads, a sector in and out.
    pub fn h200() -> Self {
        let curve = |points: &[(i32, f64)]| {
            Curve::new(points.iter().map(|(log2, cost)| (2f64.powi(*log2), *cost)))
        };
        Self {
            device: "NVIDIA H200".into(),
            origin: Origin::Default,
            memory: 139.0 * GIB,
            l2: 60.0 * MIB,
            shared: 227.0 * KIB,
            multiprocessors: 132.0,
            copy: 4.25e12,
            read: 4.52e12,
            link: 55.6e9,
            launch: 4.5,
            gather: [
                curve(&[
                    (16, 1.42),
                    (20, 5.82),
                    (22, 6.26),
                    (24, 6.35),
                    (25, 7.27),
                    (26, 13.25),
                    (27, 19.18),
                    (28, 22.46),
                    (29, 24.12),
                    (30, 25.0),
                    (32, 25.98),
                    (34, 26.35),
                ]),
                curve(&[
                    (16, 1.42),
                    (20, 5.83),
                    (22, 6.27),
                    (24, 6.37),
                    (25, 7.28),
                    (26, 13.26),
                    (27, 19.2),
                    (28, 22.45),
                    (29, 24.15),
                    (30, 24.98),
                    (32, 26.04),
                    (35, 26.43),
                ]),
                curve(&[
                    (16, 1.43),
                    (20, 5.85),
                    (22, 6.3),
                    (24, 6.35),
                    (25, 7.26),
                    (26, 13.27),
                    (27, 19.21),
                    (28, 22.46),
                    (29, 24.18),
                    (30, 25.02),
                    (32, 25.97),
                    (36, 26.4),
                ]),
            ],
            scatter: std::array::from_fn(|_| {
                curve(&[
                    (20, 13.43),
                    (22, 13.11),
                    (25, 13.0),
                    (26, 40.67),
                    (27, 54.44),
                    (28, 58.59),
                    (29, 60.8),
                    (30, 62.11),
                    (32, 63.46),
                    (36, 63.84),
                ])
            }),
            atomics: curve(&[
                (4, 251.11),
                (8, 289.26),
                (12, 84.1),
                (16, 14.37),
                (20, 9.59),
                (24, 9.49),
                (25, 10.27),
                (26, 27.41),
                (27, 46.19),
                (28, 53.97),
                (29, 58.35),
                (30, 60.94),
                (32, 63.43),
                (34, 63.9),
            ]),
            inserts: curve(&[
                (4, 585.73),
                (8, 567.64),
                (12, 104.99),
                (16, 18.77),
                (20, 12.76),
                (24, 12.64),
                (25, 12.59),
                (26, 27.7),
                (27, 46.69),
                (28, 54.49),
                (29, 58.84),
                (30, 61.29),
                (32, 63.54),
                (35, 64.07),
            ]),
            shared_atomics: curve(&[(3, 1.0), (16, 1.07)]),
            shared_wide_atomics: curve(&[
                (3, 81.02),
                (4, 48.58),
                (5, 28.49),
                (6, 16.09),
                (7, 9.0),
                (8, 6.86),
                (9, 5.18),
                (10, 4.28),
                (11, 3.78),
                (12, 3.53),
                (14, 3.4),
                (16, 4.45),
            ]),
            partition_row: 1.8,
            partition_column: 0.1,
            partition_copy: 3.4e12,
            match_row: 3.4,
            match_pair: 3.7,
            merge_row: 1.8,
            group_row: 2.5,
            run_row: 2.4,
            register_update: 0.27,
        }
    }

    /// What is known of a device: its measured constants where it has been calibrated, else the
    /// figures of an H200, scaled by its multiprocessors, its cache and its memory.
    pub fn of(device: &DeviceInfo) -> Self {
        load(device).unwrap_or_else(|| Self::scaled_to(device))
    }

    /// The figures of an H200 for a device of other size. The emulator is priced as an H200, so that its
    /// plans are those of a GPU.
    pub fn scaled_to(device: &DeviceInfo) -> Self {
        /// Bytes a second that the memory of an H200 moves at most, by its clock and width.
        const BANDWIDTH: f64 = 4.917e12;
        let h200 = Self::h200();
        if device.emulated {
            return h200;
        }
        let size = f64::from(device.multiprocessors.max(1)) / h200.multiprocessors;
        let memory = match device.memory_bandwidth {
            known if known > 0.0 => known / BANDWIDTH,
            _ => size,
        };
        let cache = match device.l2_cache {
            0 => 1.0,
            bytes => bytes as f64 / h200.l2,
        };
        let slower = |curve: &Curve| curve.scaled(1.0 / size);
        // Random accesses wait for the cache, also where they miss it: an H100 has 50 of 60 MiB, 0.68 of the bandwidth, and makes
        // 0.84 as many of them a second.
        let spread = |curve: &Curve| curve.through_cache(cache);
        Self {
            device: device.name.clone(),
            memory: device.memory as f64,
            l2: device.l2_cache as f64,
            shared: device.shared_memory_per_block as f64,
            multiprocessors: f64::from(device.multiprocessors),
            copy: h200.copy * memory,
            read: h200.read * memory,
            gather: h200.gather.each_ref().map(spread),
            scatter: h200.scatter.each_ref().map(spread),
            atomics: spread(&h200.atomics),
            inserts: spread(&h200.inserts),
            shared_atomics: slower(&h200.shared_atomics),
            shared_wide_atomics: slower(&h200.shared_wide_atomics),
            partition_row: h200.partition_row / size,
            partition_column: h200.partition_column / size,
            partition_copy: h200.partition_copy * memory,
            match_row: h200.match_row / size,
            match_pair: h200.match_pair / size,
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
        /// Launches and waits of all passes together: histograms, their sums, offsets, and the scratch cleared.
        const ALL_PASSES: f64 = 5.0;
        self.partition_at(self.partition_copy, ALL_PASSES, rows, key, payload, bits)
    }

    /// The same in any order within partitions (`partition_unstable.cu`), which comes nearer to the speed of a copy: the more
    /// so where whole rows are `moved` and not row numbers alone. (Medians of the transforms of 95 joins drawn at random on
    /// an H200: 0.84 and 0.97 of the stable partition's price.)
    pub fn partition_unstable(
        &self,
        rows: f64,
        key: f64,
        payload: &[f64],
        bits: f64,
        moved: bool,
    ) -> f64 {
        /// Launches and waits of all passes together: what counts the first digit and plans by it.
        const ALL_PASSES: f64 = 3.0;
        const ROWS_MOVED: f64 = 1.25;
        const NUMBERS_MOVED: f64 = 1.05;
        let faster = if moved { ROWS_MOVED } else { NUMBERS_MOVED };
        let copy = (self.partition_copy * faster).min(self.copy.max(self.partition_copy));
        self.partition_at(copy, ALL_PASSES, rows, key, payload, bits)
    }

    /// A partition whose passes read and write `copy` bytes a second, with `all_passes` launches beside those of each pass.
    fn partition_at(
        &self,
        copy: f64,
        all_passes: f64,
        rows: f64,
        key: f64,
        payload: &[f64],
        bits: f64,
    ) -> f64 {
        /// Payload columns that a pass moves at once; more go with the keys again.
        const TOGETHER: usize = 8;
        /// Launches and waits of a pass.
        const A_PASS: f64 = 2.0;
        /// What a row costs in a pass by fewer than 8 bits, in those of one by 8.
        const SEVEN_BITS: f64 = 0.9;
        const FEW_BITS: f64 = 0.8;
        let passes = (bits / 8.0).ceil().max(1.0);
        let digit = match (bits / passes).ceil() as u32 {
            0..=6 => FEW_BITS,
            7 => SEVEN_BITS,
            _ => 1.0,
        };
        let columns = payload.len().max(1);
        let groups = columns.div_ceil(TOGETHER) as f64;
        let bytes = groups * key + payload.iter().sum::<f64>();
        let row = groups * self.partition_row * digit
            + (columns as f64 - groups) * self.partition_column
            + 2.0 * bytes / copy * 1e12;
        self.stream(rows * key)
            + passes * (rows * row * 1e-9 + groups * self.launches(A_PASS))
            + self.launches(all_passes)
    }

    /// Milliseconds of `kernels` dependent launches.
    pub fn launches(&self, kernels: f64) -> f64 {
        kernels * self.launch * 1e-3
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Measured => "measured",
            Origin::Default => "defaults: those of an H200, scaled",
        };
        writeln!(f, "{} ({origin})", self.device)?;
        let gigabytes = |f: &mut fmt::Formatter<'_>, name: &str, rate: f64| {
            writeln!(f, "  {name:<28}{:>10.1} GB/s", rate / 1e9)
        };
        gigabytes(f, "copy, read and written", self.copy)?;
        gigabytes(f, "read", self.read)?;
        gigabytes(f, "from the host", self.link)?;
        writeln!(f, "  {:<28}{:>10.2} us", "launch", self.launch)?;
        for (name, cost) in [
            ("partition: row and pass", self.partition_row),
            ("partition: further column", self.partition_column),
            ("join: row in shared memory", self.match_row),
            ("join: further pair", self.match_pair),
            ("join: row merged", self.merge_row),
            ("group: row in shared memory", self.group_row),
            ("group: row of a run", self.run_row),
            ("register update", self.register_update),
        ] {
            writeln!(f, "  {name:<28}{cost:>10.2} ps")?;
        }
        let mut curve = |name: &str, curve: &Curve| {
            write!(f, "  {name:<28}")?;
            for (bytes, cost) in curve.points() {
                write!(f, " {}: {cost:.1}", size(*bytes))?;
            }
            writeln!(f, " ps")
        };
        for (width, (gather, scatter)) in [4, 8, 16]
            .into_iter()
            .zip(self.gather.iter().zip(&self.scatter))
        {
            curve(&format!("random reads of {width} bytes"), gather)?;
            curve(&format!("random writes of {width} bytes"), scatter)?;
        }
        curve("random additions", &self.atomics)?;
        curve("random insertions", &self.inserts)?;
        curve("shared memory, 32 bits", &self.shared_atomics)?;
        curve("shared memory, 64 bits", &self.shared_wide_atomics)
    }
}

/// Bytes in the largest unit that divides them about evenly.
fn size(bytes: f64) -> String {
    match bytes {
        b if b >= GIB => format!("{:.0} GiB", b / GIB),
        b if b >= MIB => format!("{:.0} MiB", b / MIB),
        b if b >= KIB => format!("{:.0} KiB", b / KIB),
        b => format!("{b:.0} B"),
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
