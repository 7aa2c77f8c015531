//! Joins of two sides in device memory, everything materialised, by each algorithm that partitions or sorts.
//!
//! Both sides have a key and some columns; the result has the key and the columns of both. With the columns
//! partitioned (sorted) along (`tr`) the result's are gathered from near places, otherwise (`ur`) row numbers are
//! partitioned and the columns gathered from where they were (A3, A4 of the papers' sweeps).

mod workload;

use futures::FutureExt;
use warpline_gpu::device::{DevicePtr, Stream};
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    Digits, Keys, PairKind, PairList, Payload, RowCount, Side, gather, join_partitions, merge_join,
    partition_bits, radix_partition,
};
use warpline_planner::choose::join::{JoinAlgorithm, JoinWorkload, price};

use self::workload::{Column, Sums, Workload, expected, total, value};
use super::data::{Zipf, generate};
use super::{Bench, Benchmark, Clock, Point, Sweep, wrong};
use crate::error::Result;

/// Joins.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "join",
    about: "joins of two sides in device memory, all columns materialised",
    sweeps: &[
        Sweep {
            name: "matched",
            about: "share of the probing rows that have a match; two columns of 4 bytes a side",
            x: "matched rows in %",
            logarithmic: true,
            run: |bench| async move { matched(bench) }.boxed(),
        },
        Sweep {
            name: "skew",
            about: "how unevenly often the probing keys occur; two columns of 4 bytes a side",
            x: "Zipf exponent",
            logarithmic: false,
            run: |bench| async move { skew(bench) }.boxed(),
        },
        Sweep {
            name: "columns",
            about: "columns of each side; none is the narrow join",
            x: "columns a side",
            logarithmic: false,
            run: |bench| async move { columns(bench) }.boxed(),
        },
        Sweep {
            name: "sizes",
            about: "build rows for each probing row; two columns of 4 bytes a side",
            x: "build rows / probe rows",
            logarithmic: true,
            run: |bench| async move { sizes(bench) }.boxed(),
        },
        Sweep {
            name: "repeats",
            about: "rows of each key, on both sides of half the rows",
            x: "rows of a key",
            logarithmic: true,
            run: |bench| async move { repeats(bench) }.boxed(),
        },
    ],
};

const ALGORITHMS: [JoinAlgorithm; 4] = [
    JoinAlgorithm::PhjUr,
    JoinAlgorithm::PhjTr,
    JoinAlgorithm::SmjUr,
    JoinAlgorithm::SmjTr,
];

fn matched(bench: &Bench) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for key_width in [4, 8] {
        for times in [1, 2, 4, 8, 16, 32] {
            let workload = Workload::even(bench.rows(), key_width);
            let workload = Workload {
                domain: workload.distinct * times,
                ..workload
            };
            points.extend(point(bench, workload, 100.0 / times as f64)?);
        }
    }
    Ok(points)
}

fn skew(bench: &Bench) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for key_width in [4, 8] {
        for zipf in [0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0] {
            let workload = Workload {
                zipf,
                ..Workload::even(bench.rows(), key_width)
            };
            points.extend(point(bench, workload, zipf)?);
        }
    }
    Ok(points)
}

fn columns(bench: &Bench) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for key_width in [4, 8] {
        for columns in 0..=6 {
            let workload = Workload {
                columns,
                ..Workload::even(bench.rows(), key_width)
            };
            points.extend(point(bench, workload, columns as f64)?);
        }
    }
    Ok(points)
}

fn sizes(bench: &Bench) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for parts in [64, 16, 4, 2, 1] {
        let rows = (bench.rows() / parts).max(1);
        let workload = Workload {
            probe_rows: bench.rows(),
            ..Workload::even(rows, 4)
        };
        points.extend(point(bench, workload, 1.0 / parts as f64)?);
    }
    Ok(points)
}

fn repeats(bench: &Bench) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    let rows = (bench.rows() / 2).max(1);
    for times in [1, 2, 4, 8] {
        let distinct = (rows / times).max(1);
        let workload = Workload {
            distinct,
            domain: distinct,
            ..Workload::even(rows, 4)
        };
        points.extend(point(bench, workload, times as f64)?);
    }
    Ok(points)
}

/// One side in device memory.
struct Input {
    keys: DeviceBuffer,
    columns: Vec<DeviceBuffer>,
    rows: u64,
    /// Where keys, and columns or row numbers, go in their new order; first places of partitions.
    new_keys: DeviceBuffer,
    new_columns: Vec<DeviceBuffer>,
    numbers: DeviceBuffer,
    offsets: DeviceBuffer,
}

/// All that the algorithms run on.
struct Setting<'a> {
    bench: &'a Bench,
    stream: &'a Stream,
    workload: Workload,
    bits: u32,
    build: Input,
    probe: Input,
    entries: DeviceBuffer,
    rows: DeviceBuffer,
    count: DeviceBuffer,
    /// The key, the build columns, the probe columns of the result.
    out: Vec<DeviceBuffer>,
    pairs: u64,
}

fn point(bench: &Bench, workload: Workload, x: f64) -> Result<Vec<Point>> {
    let stream = bench.runtime().lease_stream()?;
    let zipf = Zipf::new(workload.domain, workload.zipf);
    let build_number = |row| workload.build_number(row);
    let probe_number = |row| workload.probe_number(&zipf, row);
    let (pairs, want) = expected(&workload, &build_number, &probe_number)?;
    let info = bench.runtime().device().info();
    let bits = partition_bits(workload.build_rows, workload.key_width, info);
    let input = |side: u64, rows: u64, number: &(dyn Fn(u64) -> u64 + Sync)| -> Result<Input> {
        let columns = |filled: bool| -> Result<Vec<DeviceBuffer>> {
            (0..workload.columns)
                .map(|column| {
                    let value = |row| value(side, column, row);
                    upload(
                        bench,
                        &stream,
                        rows,
                        workload.column_width,
                        filled.then_some(&value),
                    )
                })
                .collect()
        };
        let key = |row| workload.key(number(row));
        let width = workload.key_width;
        Ok(Input {
            keys: upload(bench, &stream, rows, width, Some(&key))?,
            columns: columns(true)?,
            rows,
            new_keys: upload(bench, &stream, rows, width, None)?,
            new_columns: columns(false)?,
            numbers: upload(bench, &stream, rows, 4, None)?,
            offsets: upload(bench, &stream, (1 << bits) + 1, 4, None)?,
        })
    };
    let setting = Setting {
        bench,
        stream: &stream,
        workload,
        bits,
        build: input(0, workload.build_rows, &build_number)?,
        probe: input(1, workload.probe_rows, &probe_number)?,
        entries: upload(bench, &stream, pairs, 4, None)?,
        rows: upload(bench, &stream, pairs, 4, None)?,
        count: upload(bench, &stream, 1, 8, None)?,
        out: std::iter::once(workload.key_width)
            .chain((0..2 * workload.columns).map(|_| workload.column_width))
            .map(|width| upload(bench, &stream, pairs, width, None))
            .collect::<Result<_>>()?,
        pairs,
    };
    ALGORITHMS
        .into_iter()
        .map(|algorithm| setting.measure(algorithm, x, &want))
        .collect()
}

impl Setting<'_> {
    fn measure(&self, algorithm: JoinAlgorithm, x: f64, want: &Sums) -> Result<Point> {
        let workload = &self.workload;
        let timing = self
            .bench
            .measure(self.stream, |clock| self.run(algorithm, clock))?;
        let (count, got) = self.result()?;
        if count != self.pairs || got != *want {
            let name = algorithm.name();
            return Err(wrong(&format!(
                "{name}: {count} pairs of {}, {workload:?}",
                self.pairs
            )));
        }
        // Every column of both sides is read once, every column of the result written once.
        let row_bytes =
            u64::from(workload.key_width) + workload.columns * u64::from(workload.column_width);
        let rows = workload.build_rows + workload.probe_rows;
        let out_bytes = row_bytes + workload.columns * u64::from(workload.column_width);
        let bytes = rows * row_bytes + self.pairs * out_bytes;
        let series = format!("{}, {} bytes", algorithm.name(), workload.key_width);
        let point = Point::new(series, x, rows, bytes, timing);
        let machine = self.bench.runtime().machine();
        Ok(match price(&self.estimate(), algorithm, machine) {
            Some(price) => point.predicted(price.ms),
            None => point,
        })
    }

    /// What the cost model is told.
    fn estimate(&self) -> JoinWorkload {
        let workload = &self.workload;
        let columns = vec![workload.column_width; workload.columns as usize];
        JoinWorkload {
            build_rows: workload.build_rows as f64,
            probe_rows: workload.probe_rows as f64,
            key_bytes: workload.key_width,
            build_payload: columns.clone(),
            probe_payload: columns,
            matches: self.pairs as f64,
            build_unique: workload.unique(),
            skew: workload.zipf,
            ..JoinWorkload::default()
        }
    }

    fn run(&self, algorithm: JoinAlgorithm, clock: &mut Clock<'_>) -> Result<()> {
        let sorts = matches!(algorithm, JoinAlgorithm::SmjUr | JoinAlgorithm::SmjTr);
        let moved = matches!(algorithm, JoinAlgorithm::PhjTr | JoinAlgorithm::SmjTr);
        for input in [&self.build, &self.probe] {
            self.arrange(input, sorts, moved)?;
        }
        clock.phase(if sorts { "sort" } else { "partition" })?;

        let (runtime, stream) = (self.bench.runtime(), self.stream);
        let build = self.side(&self.build, moved);
        let probe = self.side(&self.probe, moved);
        let list = PairList {
            entries: self.entries.ptr(),
            rows: self.rows.ptr(),
            capacity: self.pairs,
            count: self.count.ptr(),
        };
        let (kind, unique) = (PairKind::Inner, self.workload.unique());
        let nobody = DevicePtr::NULL;
        // SAFETY: both sides were arranged above; the list has room for its capacity.
        unsafe {
            if sorts {
                merge_join(
                    runtime, stream, &build, &probe, kind, unique, nobody, &list, None,
                )?;
            } else {
                let bits = self.bits;
                join_partitions(
                    runtime, stream, &build, &probe, bits, kind, unique, nobody, &list, None,
                )?;
            }
        }
        clock.phase("join")?;

        let columns = |input| -> Vec<DevicePtr> {
            let Input {
                columns,
                new_columns,
                ..
            }: &Input = input;
            let from = if moved { new_columns } else { columns };
            from.iter().map(DeviceBuffer::ptr).collect()
        };
        let keys = match moved {
            true => &self.probe.new_keys,
            false => &self.probe.keys,
        };
        let mut gathers = vec![(keys.ptr(), self.rows.ptr(), self.workload.key_width)];
        for (input, map) in [(&self.build, &self.entries), (&self.probe, &self.rows)] {
            for column in columns(input) {
                gathers.push((column, map.ptr(), self.workload.column_width));
            }
        }
        let count = RowCount::Device {
            count: self.count.ptr(),
            most: self.pairs,
        };
        for ((column, map, width), out) in gathers.into_iter().zip(&self.out) {
            // SAFETY: pairs have numbers of rows of their side; `out` has room for all pairs.
            unsafe { gather(runtime, stream, column, map, out.ptr(), width, count)? };
        }
        clock.phase("gather")
    }

    /// Partition or sort a side: with its columns, or with row numbers.
    fn arrange(&self, input: &Input, sorts: bool, moved: bool) -> Result<()> {
        let mut payloads = Vec::new();
        if moved {
            for (from, to) in input.columns.iter().zip(&input.new_columns) {
                payloads.push(Payload {
                    from: Some(from.ptr()),
                    to: to.ptr(),
                    width: self.workload.column_width,
                });
            }
        } else {
            payloads.push(Payload {
                from: None,
                to: input.numbers.ptr(),
                width: 4,
            });
        }
        let keys = Keys {
            ptr: input.keys.ptr(),
            width: self.workload.key_width,
        };
        let (digits, bits, offsets) = match sorts {
            true => (Digits::Key, 0..self.workload.key_width * 8, None),
            false => (Digits::Hash, 0..self.bits, Some(input.offsets.ptr())),
        };
        let rows = RowCount::Known(input.rows);
        // SAFETY: every buffer has room for the side's rows, the offsets for the partitions.
        unsafe {
            radix_partition(
                self.bench.runtime(),
                self.stream,
                keys,
                input.new_keys.ptr(),
                &payloads,
                rows,
                digits,
                bits,
                offsets,
            )?;
        }
        Ok(())
    }

    fn side(&self, input: &Input, moved: bool) -> Side {
        Side {
            keys: Keys {
                ptr: input.new_keys.ptr(),
                width: self.workload.key_width,
            },
            rows: RowCount::Known(input.rows),
            numbers: (!moved).then(|| input.numbers.ptr()),
            offsets: input.offsets.ptr(),
        }
    }

    /// Number of pairs and sums of the result.
    fn result(&self) -> Result<(u64, Sums)> {
        let count: Vec<u64> = self.count.download_values(self.stream, 0, 1)?;
        let pairs = self.pairs as usize;
        let mut columns = Vec::new();
        for (number, out) in self.out.iter().enumerate() {
            let width = match number {
                0 => self.workload.key_width,
                _ => self.workload.column_width,
            };
            columns.push(match width {
                4 => Column::Narrow(out.download_values(self.stream, 0, pairs)?),
                _ => Column::Wide(out.download_values(self.stream, 0, pairs)?),
            });
        }
        let sum = |value: &(dyn Fn(usize) -> u64 + Sync)| total(pairs, value);
        let mut sums = Vec::new();
        for column in &columns {
            sums.push(sum(&|row| column.get(row))?);
        }
        let products = match self.workload.columns {
            0 => 0,
            each => sum(&|row| {
                let build = columns[1].get(row);
                build.wrapping_mul(columns[1 + each as usize].get(row))
            })?,
        };
        let key = sums.remove(0);
        Ok((
            count[0],
            Sums {
                key,
                columns: sums,
                products,
            },
        ))
    }
}

/// Device memory for `rows` values of `width` bytes (4 or 8), with values when there are any.
fn upload(
    bench: &Bench,
    stream: &Stream,
    rows: u64,
    width: u32,
    value: Option<&(dyn Fn(u64) -> u64 + Sync)>,
) -> Result<DeviceBuffer> {
    let rows = rows as usize;
    let bytes = rows.max(1) * width as usize;
    let buffer = bench.runtime().pool().allocate(bytes, "a benchmark")?;
    match (value, width) {
        (None, _) => {}
        (Some(value), 4) => {
            buffer.upload_values(stream, 0, &generate(rows, |row| value(row) as u32))?;
        }
        (Some(value), _) => buffer.upload_values(stream, 0, &generate(rows, value))?,
    }
    Ok(buffer)
}
