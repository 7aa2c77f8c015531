//! Pairs of partitioned sides, written at once (D2) or counted first.
//!
//! Direct: pairs go where a shared cursor says, in room that is guessed; only when that was too little is the probe run
//! again. Counted: a first probe only counts, then there is exact room for a second one that writes. Both are the
//! engine's own kernels, the first probe one whose list has no room.

use warpline_gpu::device::{DevicePtr, Stream};
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    Digits, Keys, PairJoin, PairKind, PairList, Partitioning, Partitions, Payload, RowCount,
    Side as Partitioned, join_partitions, partition_bits, radix_partition,
};
use warpline_gpu::synthetic::{KeyKind, Made, Numbers, Side, joined, make};

use super::{Bench, Emit, Point, wrong};
use crate::error::Result;

/// Keys of a side with the numbers of their rows, partitioned.
struct Parts {
    keys: DeviceBuffer,
    numbers: DeviceBuffer,
    offsets: DeviceBuffer,
    rows: u64,
}

impl Parts {
    fn of(bench: &Bench, stream: &Stream, made: &Made, bits: u32) -> Result<Self> {
        let (runtime, rows) = (bench.runtime(), made.side().rows);
        let space = |bytes: u64| {
            let bytes = usize::try_from(bytes.max(4)).unwrap_or(usize::MAX);
            runtime.pool().allocate(bytes, "a benchmark")
        };
        let parts = Self {
            keys: space(rows * 8)?,
            numbers: space(rows * 4)?,
            offsets: space(((1 << bits) + 1) * 4)?,
            rows,
        };
        let column = &made.table().columns()[0];
        let number = Payload {
            from: None,
            to: parts.numbers.ptr(),
            width: 4,
        };
        let of = Partitioning {
            keys: Keys {
                ptr: column.data.ptr(),
                width: 8,
            },
            to: parts.keys.ptr(),
            payloads: &[number],
            rows: RowCount::Known(rows),
            digits: Digits::Hash,
            bits: 0..bits,
        };
        // SAFETY: keys have 8 bytes; all buffers have room for the rows, the offsets for the partitions.
        unsafe { radix_partition(runtime, stream, &of, Some(parts.offsets.ptr()))? };
        Ok(parts)
    }

    fn side(&self) -> Partitioned {
        Partitioned {
            keys: Keys {
                ptr: self.keys.ptr(),
                width: 8,
            },
            hashed: false,
            rows: RowCount::Known(self.rows),
            numbers: Some(self.numbers.ptr()),
            places: self.rows,
            partitions: Partitions::side_by_side(self.offsets.ptr()),
        }
    }
}

/// Both ways for some numbers of rows a key.
pub(super) fn output(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    let (runtime, rows) = (bench.runtime(), (bench.rows() / 2).max(1));
    let stream = runtime.lease_stream()?;
    for repeats in bench.some(&[1, 2, 4, 8]) {
        let distinct = (rows / repeats).max(1);
        let side = |name, numbers, seed| Side {
            name,
            rows,
            numbers,
            keys: KeyKind::Wide,
            prefix: "p",
            payload: vec![],
            seed,
        };
        let build = Numbers::InTurn {
            distinct,
            stride: 1,
        };
        let probe = Numbers::Drawn {
            values: distinct,
            exponent: 0.0,
        };
        let build = make(runtime, &stream, side("build", build, 1))?;
        let probe = make(runtime, &stream, side("probe", probe, 2))?;
        let want = joined(runtime, &stream, &build, &probe)?.rows;
        let bits = partition_bits(rows, 8, runtime.device().info());
        let builds = Parts::of(bench, &stream, &build, bits)?;
        let probes = Parts::of(bench, &stream, &probe, bits)?;
        let entries = runtime
            .pool()
            .allocate(want.max(1) as usize * 4, "a benchmark")?;
        let pair_rows = runtime
            .pool()
            .allocate(want.max(1) as usize * 4, "a benchmark")?;
        let count = runtime.pool().allocate(8, "a benchmark")?;
        let pairs = |capacity: u64| -> Result<()> {
            let list = PairList {
                entries: entries.ptr(),
                rows: pair_rows.ptr(),
                capacity,
                count: count.ptr(),
            };
            // SAFETY: both sides are partitioned by these bits; the list has room for its capacity.
            unsafe {
                let of = PairJoin {
                    build: &builds.side(),
                    probe: &probes.side(),
                    kind: PairKind::Inner,
                    unique: repeats == 1,
                    duplicate: DevicePtr::NULL,
                    pairs: &list,
                    marks: None,
                    another_table: None,
                };
                join_partitions(runtime, &stream, &of, bits)?;
            }
            Ok(())
        };
        for (series, counted) in [("direct", false), ("counted first", true)] {
            let timing = bench.measure(&stream, |clock| {
                if counted {
                    pairs(0)?;
                    clock.phase("count")?;
                }
                pairs(want)?;
                clock.phase("write")
            })?;
            let found: Vec<u64> = count.download_values(&stream, 0, 1)?;
            if found != [want] {
                return Err(wrong(&format!("{found:?} pairs in place of {want}")));
            }
            // Keys and numbers of both sides read, pairs written.
            let bytes = 2 * rows * 12 + want * 8;
            emit(Point::new(series, repeats as f64, 2 * rows, bytes, timing))?;
        }
    }
    Ok(())
}
