//! Gathers of a column by row numbers, clustered and not.

use futures::FutureExt;
use warpline_gpu::memory::DeviceValue;
use warpline_gpu::primitives::{RowCount, gather};

use super::data::{check, generate, mix};
use super::{Bench, Benchmark, Emit, Point, Spacing, Sweep, Timing, wrong};
use crate::error::Result;

/// Gathers.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "gather",
    about: "values of a column by row number",
    sweeps: &[Sweep {
        name: "size",
        about: "bytes of the column that is read, in random or in ascending order",
        x: "bytes of the column",
        spacing: Spacing::Factors,
        run: |bench, emit| async move { size(bench, emit) }.boxed(),
    }],
};

fn size(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    let sizes: Vec<u64> = if bench.emulated() {
        vec![1 << 12, 1 << 14]
    } else {
        [22, 24, 25, 26, 27, 29, 31]
            .map(|power| 1 << power)
            .to_vec()
    };
    for width in [4u64, 8] {
        for clustered in [false, true] {
            let order = if clustered { "ascending" } else { "random" };
            for bytes in &sizes {
                let values = bytes / width;
                let rows = bench.rows();
                // Ascending rows are spread over the whole column.
                let from = move |row: u64| {
                    let place = if clustered {
                        u128::from(row) * u128::from(values) / u128::from(rows.max(1))
                    } else {
                        (u128::from(mix(row)) * u128::from(values)) >> 64
                    };
                    place as u32
                };
                let timing = match width {
                    4 => run(bench, values, from, |value| mix(value) as u32)?,
                    _ => run(bench, values, from, mix)?,
                };
                let moved = rows * (4 + 2 * width);
                let series = format!("{width} bytes, {order}");
                let machine = bench.runtime().machine();
                let (n, size) = (rows as f64, *bytes as f64);
                let predicted = match clustered {
                    true => machine.stream(n * (4 + width) as f64 + size.min(n * 32.0)),
                    false => {
                        machine.stream(n * (4 + width) as f64)
                            + n * machine.gather(width as f64, size) * 1e-9
                    }
                };
                emit(Point::new(series, size, rows, moved, timing).predicted(predicted))?;
            }
        }
    }
    Ok(())
}

fn run<T: DeviceValue + Default + Copy + Send + Sync + PartialEq>(
    bench: &Bench,
    values: u64,
    from: impl Fn(u64) -> u32 + Sync,
    value: impl Fn(u64) -> T + Sync,
) -> Result<Timing> {
    let rows = bench.rows() as usize;
    let runtime = bench.runtime();
    let stream = runtime.lease_stream()?;
    let space =
        |count: usize, width: usize| runtime.pool().allocate(count.max(1) * width, "a benchmark");
    let width = size_of::<T>();
    let column = space(values as usize, width)?;
    column.upload_values(&stream, 0, &generate(values as usize, &value))?;
    let map = space(rows, 4)?;
    map.upload_values(&stream, 0, &generate(rows, &from))?;
    let out = space(rows, width)?;
    let timing = bench.measure(&stream, |clock| {
        let rows = RowCount::Known(rows as u64);
        // SAFETY: `map` has `rows` numbers below `values`, the number of values of `column`; `out` has room for them.
        unsafe {
            gather(
                runtime,
                &stream,
                column.ptr(),
                map.ptr(),
                out.ptr(),
                width as u32,
                rows,
            )?;
        }
        clock.phase("gather")
    })?;
    let got: Vec<T> = out.download_values(&stream, 0, rows)?;
    check(rows, |range| {
        for at in range {
            if got[at] != value(u64::from(from(at as u64))) {
                return Err(wrong(&format!("value {at} of a gather")));
            }
        }
        Ok(())
    })?;
    Ok(timing)
}
