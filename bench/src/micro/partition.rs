//! Radix partitions of keys with payload columns.

use futures::FutureExt;
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{Digits, Keys, Partitioning, Payload, RowCount, radix_partition};

use super::data::{Zipf, check, generate, mix};
use super::{Bench, Benchmark, Emit, Point, Spacing, Sweep, wrong};
use crate::error::Result;

/// Partitions.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "partition",
    about: "stable radix partition of keys with payload columns",
    sweeps: &[
        Sweep {
            name: "bits",
            about: "bits of the key that rows are split by; one column of 4 bytes",
            x: "bits",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { bits(bench, emit) }.boxed(),
        },
        Sweep {
            name: "columns",
            about: "columns that move with the keys",
            x: "payload columns",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { columns(bench, emit) }.boxed(),
        },
        Sweep {
            name: "skew",
            about: "how unevenly often keys occur",
            x: "Zipf exponent",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { skew(bench, emit) }.boxed(),
        },
    ],
};

/// Keys, columns and digits of a point.
#[derive(Clone, Copy)]
struct Shape {
    key_width: u32,
    columns: usize,
    column_width: u32,
    bits: u32,
    zipf: f64,
}

fn bits(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for key_width in [4, 8] {
        for bits in [1, 2, 4, 6, 8, 9, 10, 12, 14, 16] {
            let shape = Shape {
                key_width,
                columns: 1,
                column_width: 4,
                bits,
                zipf: 0.0,
            };
            emit(point(
                bench,
                shape,
                format!("keys of {key_width} bytes"),
                f64::from(bits),
            )?)?;
        }
    }
    Ok(())
}

fn columns(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for (key_width, column_width, bits) in [(4, 4, 8), (4, 4, 16), (8, 8, 8), (8, 8, 16)] {
        for columns in 0..=4 {
            let shape = Shape {
                key_width,
                columns,
                column_width,
                bits,
                zipf: 0.0,
            };
            let series = format!("keys and columns of {key_width} bytes, {bits} bits");
            emit(point(bench, shape, series, columns as f64)?)?;
        }
    }
    Ok(())
}

fn skew(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for (key_width, bits) in [(4, 8), (4, 16), (8, 16)] {
        for zipf in [0.0, 0.5, 1.0, 1.5, 2.0] {
            let shape = Shape {
                key_width,
                columns: 2,
                column_width: 4,
                bits,
                zipf,
            };
            let series = format!("keys of {key_width} bytes, 2 columns of 4, {bits} bits");
            emit(point(bench, shape, series, zipf)?)?;
        }
    }
    Ok(())
}

fn point(bench: &Bench, shape: Shape, series: String, x: f64) -> Result<Point> {
    let rows = bench.rows();
    let zipf = Zipf::new(rows.max(1), shape.zipf);
    // Hashed, so that the frequent ranks do not all lie in the lowest digits.
    let key = |row: u64| mix(zipf.rank(row));
    let timing = match shape.key_width {
        4 => run(bench, shape, |row| key(row) as u32, u64::from)?,
        _ => run(bench, shape, key, |key| key)?,
    };
    let row_bytes =
        u64::from(shape.key_width) + shape.columns as u64 * u64::from(shape.column_width);
    // Every pass reads and writes everything; the histogram reads the keys.
    let passes = u64::from(shape.bits.div_ceil(8));
    let bytes = rows * (2 * row_bytes * passes + u64::from(shape.key_width));
    let predicted = bench.runtime().machine().partition(
        rows as f64,
        f64::from(shape.key_width),
        &vec![f64::from(shape.column_width); shape.columns],
        f64::from(shape.bits),
    );
    Ok(Point::new(series, x, rows, bytes, timing).predicted(predicted))
}

/// Value of a payload column; the first column holds row numbers.
fn payload(column: usize, row: u64) -> u64 {
    row.wrapping_mul(2 * column as u64 + 1) + column as u64
}

fn run<K>(
    bench: &Bench,
    shape: Shape,
    key: impl Fn(u64) -> K + Sync,
    number: fn(K) -> u64,
) -> Result<super::Timing>
where
    K: warpline_gpu::memory::DeviceValue + Default + Copy + Send + Sync + PartialEq,
{
    let rows = bench.rows() as usize;
    let runtime = bench.runtime();
    let stream = runtime.lease_stream()?;
    let space = |width: u32| {
        runtime
            .pool()
            .allocate(rows.max(1) * width as usize, "a benchmark")
    };
    let keys = generate(rows, key);
    let source = space(shape.key_width)?;
    source.upload_values(&stream, 0, &keys)?;
    let target = space(shape.key_width)?;
    let mut columns: Vec<(DeviceBuffer, DeviceBuffer)> = Vec::new();
    for column in 0..shape.columns {
        let from = space(shape.column_width)?;
        if shape.column_width == 4 {
            from.upload_values(
                &stream,
                0,
                &generate(rows, |row| payload(column, row) as u32),
            )?;
        } else {
            from.upload_values(&stream, 0, &generate(rows, |row| payload(column, row)))?;
        }
        columns.push((from, space(shape.column_width)?));
    }
    let payloads: Vec<Payload> = columns
        .iter()
        .map(|(from, to)| Payload {
            from: Some(from.ptr()),
            to: to.ptr(),
            width: shape.column_width,
        })
        .collect();
    let of = Partitioning {
        keys: Keys {
            ptr: source.ptr(),
            width: shape.key_width,
        },
        to: target.ptr(),
        payloads: &payloads,
        rows: RowCount::Known(rows as u64),
        digits: Digits::Key,
        bits: 0..shape.bits,
    };
    let timing = bench.measure(&stream, |clock| {
        // SAFETY: all buffers have room for `rows` values of their width and are live until the stream is waited for.
        unsafe { radix_partition(runtime, &stream, &of, None)? };
        clock.phase("partition")
    })?;

    let got: Vec<K> = target.download_values(&stream, 0, rows)?;
    let digit = |key: K| number(key) & ((1 << shape.bits) - 1);
    let mut read = Vec::new();
    for (_, to) in &columns {
        read.push(if shape.column_width == 4 {
            let values: Vec<u32> = to.download_values(&stream, 0, rows)?;
            generate(rows, |row| u64::from(values[row as usize]))
        } else {
            to.download_values(&stream, 0, rows)?
        });
    }
    // Ascending digits, each row's values together, and equal digits in the old order: that is the one answer.
    check(rows, |range| {
        for at in range {
            let before = at.checked_sub(1);
            let mut fine = before.is_none_or(|before| digit(got[before]) <= digit(got[at]));
            if let Some(first) = read.first() {
                let row = first[at];
                fine = fine
                    && row < rows as u64
                    && keys[row as usize] == got[at]
                    && before.is_none_or(|before| {
                        digit(got[before]) < digit(got[at]) || first[before] < row
                    })
                    && read.iter().enumerate().all(|(column, values)| {
                        let expected = payload(column, row);
                        match shape.column_width {
                            4 => values[at] == u64::from(expected as u32),
                            _ => values[at] == expected,
                        }
                    });
            }
            if !fine {
                return Err(wrong(&format!(
                    "row {at} of a partition by {} bits",
                    shape.bits
                )));
            }
        }
        Ok(())
    })?;
    // Without columns: the keys are the same ones.
    let sum = |keys: &[K]| {
        keys.iter()
            .fold(0u64, |sum, k| sum.wrapping_add(mix(number(*k))))
    };
    if columns.is_empty() && sum(&keys) != sum(&got) {
        return Err(wrong("the keys of a partition are others than before"));
    }
    Ok(timing)
}
