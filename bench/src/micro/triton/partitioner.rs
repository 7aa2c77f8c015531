//! The first pass by itself: rows of 16 bytes from host memory into partitions in host memory, by fan-out and by where rows
//! are gathered before they are written (figures 17 and 18 of Lutz et al., SIGMOD 2022).
//!
//! | series | rows are read | and written |
//! |---|---|---|
//! | staged | by the copy engine, a stride at a time | partitioned in device memory, by the copy engine: as joins do |
//! | sorted | across the link, twice (digits are counted) | tile by tile, in runs of a digit |
//! | shared | across the link | in buffers of a partition in shared memory |
//! | hierarchical | across the link | in buffers behind those in device memory |
//! | standard | across the link | one by one |
//!
//! The prediction is that of rows which cross the link once each way, both ways at once, at what copies reach so.

use std::sync::Arc;

use warpline_gpu::GpuError;
use warpline_gpu::device::{Event, Stream, StreamLease};
use warpline_gpu::memory::{DeviceBuffer, MemoryPool};
use warpline_gpu::primitives::{
    Combine, Digits, KeyValues, Keys, LinkPartition, Partitioning, Payload, RowCount,
    partition_across_link, radix_partition,
};

use super::link::Link;
use super::tables::{ROW_BYTES, fill, in_parallel, key, words};
use crate::error::{Error, Result};
use crate::micro::data::mix;
use crate::micro::{Bench, Emit, Point, wrong};

/// Lowest bits of the keys that rows are split by.
const BITS: [u32; 9] = [1, 2, 4, 6, 7, 8, 9, 10, 11];
/// The series, in the order of the table above.
const WAYS: [Way; 5] = [
    Way::Staged,
    Way::Sorted,
    Way::Combined(Combine::Shared),
    Way::Combined(Combine::Hierarchical),
    Way::Combined(Combine::Not),
];
/// Rows of a stride: 64 MiB of keys and values.
const STRIDE: u64 = 4 << 20;
/// Strides on the device at a time.
const SLOTS: usize = 3;
/// Partitions begin at multiples of so many rows: lines of 128 bytes of a column.
const LINE: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Staged,
    Sorted,
    Combined(Combine),
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Sorted => "sorted",
            Self::Combined(Combine::Shared) => "shared",
            Self::Combined(Combine::Hierarchical) => "hierarchical",
            Self::Combined(Combine::Not) => "standard",
        }
    }
}

/// Keys and values, a buffer each.
struct Columns {
    keys: DeviceBuffer,
    values: DeviceBuffer,
}

impl Columns {
    fn new(pool: &Arc<MemoryPool>, rows: u64) -> Result<Self> {
        let bytes = (rows as usize * 8).max(8);
        Ok(Self {
            keys: pool.allocate(bytes, "rows of a benchmark")?,
            values: pool.allocate(bytes, "rows of a benchmark")?,
        })
    }

    fn addresses(&self) -> KeyValues {
        KeyValues {
            keys: self.keys.ptr(),
            values: self.values.ptr(),
        }
    }

    /// Copies `rows` rows from row `from` of `source` to row `at`.
    fn copy(&self, stream: &Stream, at: u64, source: &Self, from: u64, rows: u64) -> Result<()> {
        let (at, from, bytes) = (at as usize * 8, from as usize * 8, rows as usize * 8);
        self.keys.copy_from(stream, at, &source.keys, from, bytes)?;
        self.values
            .copy_from(stream, at, &source.values, from, bytes)?;
        Ok(())
    }
}

/// Where partitions lie: the first place of each, and the place behind its last.
struct Places {
    bits: u32,
    fronts: Vec<u64>,
    backs: Vec<u64>,
}

impl Places {
    /// By the lowest bits of the keys of `rows` rows; one behind the other, each at the begin of a line.
    fn new(rows: u64, bits: u32) -> Self {
        let counts = in_parallel(rows as usize, |range| {
            let mut counts = vec![0u64; 1 << bits];
            for row in range {
                counts[digit(key(row as u64), bits)] += 1;
            }
            counts
        });
        let mut places = Self {
            bits,
            fronts: Vec::with_capacity(1 << bits),
            backs: Vec::with_capacity(1 << bits),
        };
        let mut at: u64 = 0;
        for partition in 0..1 << bits {
            let count: u64 = counts.iter().map(|c| c[partition]).sum();
            places.fronts.push(at);
            places.backs.push(at + count);
            at = (at + count).next_multiple_of(LINE);
        }
        places
    }
}

fn digit(key: u64, bits: u32) -> usize {
    key as usize & ((1 << bits) - 1)
}

pub(super) fn partitioner(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    let rows = bench.rows();
    let host = bench.runtime().host_pool();
    let mut from = Columns::new(host, rows)?;
    fill(&mut from.keys, rows as usize, key)?;
    fill(&mut from.values, rows as usize, |row| row)?;
    let fanouts = bench.some(&BITS);
    let most = fanouts.iter().copied().max().unwrap_or(1);
    let mut to = Columns::new(host, rows + (LINE << most))?;
    let want = sum_of(rows);
    let link = Link::measured(bench)?;
    for bits in fanouts {
        let places = Places::new(rows, bits);
        for way in WAYS {
            match measured(bench, rows, (&from, &to), &places, (way, link)) {
                Ok(point) => {
                    check(&mut to, want, &places, way)?;
                    emit(point)?;
                }
                // Buffers grow with the fan-out; other ways, and other fan-outs, may still find room.
                Err(Error::Gpu(cause @ GpuError::OutOfDeviceMemory { .. })) => {
                    log::warn!(
                        "{} into 2^{bits} partitions is left out: {cause}",
                        way.name()
                    );
                }
                Err(other) => return Err(other),
            }
        }
    }
    Ok(())
}

fn measured(
    bench: &Bench,
    rows: u64,
    (from, to): (&Columns, &Columns),
    places: &Places,
    (way, link): (Way, Link),
) -> Result<Point> {
    let runtime = bench.runtime();
    let stream = runtime.lease_stream()?;
    let timing = match way {
        Way::Staged => {
            let staging = Staging::new(bench, rows)?;
            bench.measure(&stream, |clock| {
                staging.run(bench, &stream, rows, (from, to), places.bits)?;
                clock.phase("partition")
            })?
        }
        Way::Sorted => bench.measure(&stream, |clock| {
            let (from, to) = (from.addresses(), to.addresses());
            // SAFETY: all columns have `rows` rows and live until the stream is waited for.
            unsafe { sort(bench, &stream, from, to, rows, places.bits)? };
            clock.phase("partition")
        })?,
        Way::Combined(combine) => {
            let words = 8 << places.bits;
            let front = runtime.pool().allocate(words, "places of partitions")?;
            let back = runtime.pool().allocate(words, "places of partitions")?;
            bench.measure(&stream, |clock| {
                front.upload_values(&stream, 0, &places.fronts)?;
                back.upload_values(&stream, 0, &places.backs)?;
                let of = LinkPartition {
                    from: from.addresses(),
                    to: to.addresses(),
                    rows,
                    front: front.ptr(),
                    back: back.ptr(),
                    fanout: 1 << places.bits,
                };
                // SAFETY: the sources have `rows` rows, the targets a row at every place, the places are counted from
                // the same keys; all live until the stream is waited for.
                unsafe { partition_across_link(runtime, &stream, &of, combine)? };
                clock.phase("partition")
            })?
        }
    };
    let bytes = rows * ROW_BYTES;
    let predicted = link.milliseconds(bytes as f64, bytes as f64, 0.0);
    let point = Point::new(
        way.name(),
        (1u64 << places.bits) as f64,
        rows,
        2 * bytes,
        timing,
    );
    Ok(point.predicted(predicted))
}

/// Queues a partition of `rows` rows by the lowest bits of their keys, which leaves equal digits in their order.
///
/// # Safety
/// As [`radix_partition`].
unsafe fn sort(
    bench: &Bench,
    stream: &Stream,
    from: KeyValues,
    to: KeyValues,
    rows: u64,
    bits: u32,
) -> Result<()> {
    let keys = Keys {
        ptr: from.keys,
        width: 8,
    };
    let values = Payload {
        from: Some(from.values),
        to: to.values,
        width: 8,
    };
    let of = Partitioning {
        keys,
        to: to.keys,
        payloads: &[values],
        rows: RowCount::Known(rows),
        digits: Digits::Key,
        bits: 0..bits,
    };
    // SAFETY: the caller vouches for the columns.
    unsafe { radix_partition(bench.runtime(), stream, &of, None)? };
    Ok(())
}

/// Strides on the device, as they come and as they go, and the streams of both copies.
struct Staging {
    come: Vec<Columns>,
    go: Vec<Columns>,
    stride: u64,
    streams: [StreamLease; 2],
}

impl Staging {
    fn new(bench: &Bench, rows: u64) -> Result<Self> {
        let runtime = bench.runtime();
        let stride = stride_of(rows);
        let slots = || -> Result<Vec<Columns>> {
            let slots = (0..SLOTS).map(|_| Columns::new(runtime.pool(), stride));
            slots.collect()
        };
        Ok(Self {
            come: slots()?,
            go: slots()?,
            stride,
            streams: [runtime.lease_stream()?, runtime.lease_stream()?],
        })
    }

    /// Queues everything; `stream` waits for the last copy.
    fn run(
        &self,
        bench: &Bench,
        stream: &Stream,
        rows: u64,
        (from, to): (&Columns, &Columns),
        bits: u32,
    ) -> Result<()> {
        let device = bench.runtime().device();
        let [coming, going] = &self.streams;
        let begin = device.record_event(stream)?;
        device.wait_event(coming, &begin)?;
        let mut read: [Option<Event>; SLOTS] = Default::default();
        let mut gone: [Option<Event>; SLOTS] = Default::default();
        for (number, first) in (0..rows).step_by(self.stride as usize).enumerate() {
            let slot = number % SLOTS;
            let here = self.stride.min(rows - first);
            let (come, go) = (&self.come[slot], &self.go[slot]);
            if let Some(read) = &read[slot] {
                device.wait_event(coming, read)?;
            }
            come.copy(coming, 0, from, first, here)?;
            device.wait_event(stream, &device.record_event(coming)?)?;
            if let Some(gone) = &gone[slot] {
                device.wait_event(stream, gone)?;
            }
            // SAFETY: both slots have a stride of rows, and live until the streams are waited for.
            unsafe { sort(bench, stream, come.addresses(), go.addresses(), here, bits)? };
            let sorted = device.record_event(stream)?;
            device.wait_event(going, &sorted)?;
            read[slot] = Some(sorted);
            to.copy(going, first, go, 0, here)?;
            gone[slot] = Some(device.record_event(going)?);
        }
        for gone in gone.iter().flatten() {
            device.wait_event(stream, gone)?;
        }
        Ok(())
    }
}

/// The number of rows, and a sum over them in any order.
type Sum = (u64, u64);

fn added((rows, sum): Sum, row: u64) -> Sum {
    (rows + 1, sum.wrapping_add(mix(row)))
}

fn total(sums: &[Sum]) -> Sum {
    let both = |all: Sum, some: &Sum| (all.0 + some.0, all.1.wrapping_add(some.1));
    sums.iter().fold((0, 0), both)
}

/// The sum over `rows` rows.
fn sum_of(rows: u64) -> Sum {
    let sums = in_parallel(rows as usize, |range| {
        range.fold((0, 0), |sum, row| added(sum, row as u64))
    });
    total(&sums)
}

/// Are all rows there, with their values, in their partitions? Leaves none there.
fn check(to: &mut Columns, want: Sum, places: &Places, way: Way) -> Result<()> {
    let rows = want.0;
    let stride = match way {
        Way::Staged => stride_of(rows),
        Way::Sorted | Way::Combined(_) => rows.max(1),
    };
    let end = match way {
        Way::Combined(_) => places.backs.last().copied().unwrap_or(0),
        Way::Staged | Way::Sorted => rows,
    };
    let (keys, values) = (words(&mut to.keys)?, words(&mut to.values)?);
    let digit_at = |at: u64| digit(u64::from_le_bytes(keys[at as usize]), places.bits);
    let sums = in_parallel(end as usize, |range| {
        let mut sum: Sum = (0, 0);
        for at in range.start as u64..range.end as u64 {
            let row = u64::from_le_bytes(values[at as usize]);
            let there = digit_at(at);
            let in_order = match way {
                Way::Combined(_) => {
                    let partition = places.fronts.partition_point(|front| *front <= at) - 1;
                    if at >= places.backs[partition] {
                        // Between two partitions.
                        continue;
                    }
                    partition == there
                }
                Way::Staged | Way::Sorted => at.is_multiple_of(stride) || digit_at(at - 1) <= there,
            };
            if row >= rows || key(row).to_le_bytes() != keys[at as usize] || !in_order {
                return Err(wrong(&format!("row {at} of a {} partition", way.name())));
            }
            sum = added(sum, row);
        }
        Ok(sum)
    });
    let sums = sums.into_iter().collect::<Result<Vec<Sum>>>()?;
    if total(&sums) != want {
        return Err(wrong(&format!("the rows of a {} partition", way.name())));
    }
    values.fill([0xff; 8]);
    Ok(())
}

/// Rows of a stride; several also of few rows.
fn stride_of(rows: u64) -> u64 {
    rows.div_ceil(SLOTS as u64 + 1).clamp(1, STRIDE)
}
