//! Sorts of rows by a key.

use futures::FutureExt;
use warpline_gpu::primitives::{RowCount, sort_rows};

use super::data::{check, generate, mix};
use super::{Bench, Benchmark, Emit, Point, Spacing, Sweep, wrong};
use crate::error::Result;

/// Sorts.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "sort",
    about: "the order of rows by packed key words",
    sweeps: &[
        Sweep {
            name: "bits",
            about: "bits of the key",
            x: "bits",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { bits(bench, emit) }.boxed(),
        },
        Sweep {
            name: "rows",
            about: "rows to sort, by keys of 32 and of 64 bits",
            x: "rows",
            spacing: Spacing::Factors,
            run: |bench, emit| async move { rows(bench, emit) }.boxed(),
        },
        Sweep {
            name: "words",
            about: "key words of 20 bits each",
            x: "key words",
            spacing: Spacing::Steps,
            run: |bench, emit| async move { words(bench, emit) }.boxed(),
        },
    ],
};

fn bits(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    [8, 16, 24, 32, 40, 48, 56, 64]
        .into_iter()
        .try_for_each(|bits| {
            emit(point(
                bench,
                "random keys",
                f64::from(bits),
                bench.rows(),
                &[bits],
            )?)
        })
}

fn rows(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for bits in [32, 64] {
        let mut rows = (bench.rows() >> 11).max(1);
        while rows <= bench.rows() {
            let series = format!("{bits} bits");
            emit(point(bench, &series, rows as f64, rows, &[bits])?)?;
            rows *= 2;
        }
    }
    Ok(())
}

fn words(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    (1..=4).try_for_each(|words| {
        let bits = vec![20; words];
        emit(point(
            bench,
            "random keys",
            words as f64,
            bench.rows(),
            &bits,
        )?)
    })
}

fn point(bench: &Bench, series: &str, x: f64, rows: u64, bits: &[u32]) -> Result<Point> {
    let count = rows as usize;
    let runtime = bench.runtime();
    let stream = runtime.lease_stream()?;
    let space = |width: usize| runtime.pool().allocate(count.max(1) * width, "a benchmark");
    let mut keys = Vec::new();
    let mut buffers = Vec::new();
    for (word, bits) in bits.iter().enumerate() {
        let column = generate(count, |row| {
            mix(row.wrapping_mul(8) + word as u64) >> (64 - bits)
        });
        let buffer = space(8)?;
        buffer.upload_values(&stream, 0, &column)?;
        keys.push(column);
        buffers.push(buffer);
    }
    let words: Vec<_> = buffers.iter().map(|buffer| buffer.ptr()).collect();
    let order = space(4)?;
    let timing = bench.measure(&stream, |clock| {
        // SAFETY: every word has a key a row, `order` room for a number a row.
        unsafe {
            let rows = RowCount::Known(rows);
            sort_rows(runtime, &stream, &words, bits, rows, order.ptr())?;
        }
        clock.phase("sort")
    })?;
    let order: Vec<u32> = order.download_values(&stream, 0, count)?;
    let key = |row: u32| keys.iter().map(move |word| word[row as usize]);
    // Strictly ascending keys and row numbers: no row can be there twice, so all are there.
    check(count, |range| {
        for at in range {
            let row = order[at];
            let fine = u64::from(row) < rows
                && (at == 0 || {
                    let before = order[at - 1];
                    u64::from(before) < rows
                        && key(before).cmp(key(row)).then(before.cmp(&row)).is_lt()
                });
            if !fine {
                return Err(wrong(&format!("row {at} of a sort by {bits:?} bits")));
            }
        }
        Ok(())
    })?;
    // The keys are read and the order written; what the passes move is the algorithm's affair.
    let bytes = rows * (8 * bits.len() as u64 + 4);
    // A word at a time, the least significant first, with the row numbers.
    let machine = runtime.machine();
    let predicted = |bits: &u32| machine.partition(rows as f64, 8.0, &[4.0], f64::from(*bits));
    let predicted = bits.iter().map(predicted).sum();
    Ok(Point::new(series, x, rows, bytes, timing).predicted(predicted))
}
