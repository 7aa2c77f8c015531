//! Bandwidth of the link: one way, both ways at once, and in short runs.

use warpline_gpu::device::Stream;
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{ByteRun, copy_runs};

use super::tables::{ROW_BYTES, fill};
use crate::error::Result;
use crate::micro::data::mix;
use crate::micro::{Bench, Emit, Point, wrong};

/// Bytes of a copy, and how many are timed together.
const COPY: usize = 64 << 20;
const COPIES: usize = 16;
/// Bytes of runs.
const RUNS: [usize; 7] = [
    16 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
];
/// Bytes between runs: partitions begin anywhere.
const APART: usize = 136;
/// Most bytes of all runs.
const MOST: u64 = 1 << 30;

/// Bytes a second across the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Link {
    /// To the device, while nothing goes the other way.
    pub(super) read: f64,
    /// In each direction, while as much goes the other way.
    pub(super) both: f64,
}

impl Link {
    /// As copies of page-locked memory, or of another device's, reach it; in the emulator, where times mean nothing, as the
    /// machine's figures have it.
    pub(super) fn measured(bench: &Bench) -> Result<Self> {
        let runtime = bench.runtime();
        if bench.emulated() {
            let link = bench.machine().link;
            return Ok(Self {
                read: link,
                both: link,
            });
        }
        let purpose = "copies of a benchmark";
        let pool = bench.far_pool()?;
        let far = || pool.allocate(COPY, purpose);
        let device = || runtime.pool().allocate(COPY, purpose);
        let (coming, going) = ((far()?, device()?), (device()?, far()?));
        let [stream, back] = [runtime.lease_stream()?, runtime.lease_stream()?];
        let copy = |(from, to): &(DeviceBuffer, DeviceBuffer), stream: &Stream| {
            (0..COPIES).try_for_each(|_| to.copy_from(stream, 0, from, 0, COPY))
        };
        let per_second = |ms: f64| (COPIES * COPY) as f64 / (ms / 1e3);
        let read = bench.measure(&stream, |clock| {
            copy(&coming, &stream)?;
            clock.phase("read")
        })?;
        let both = bench.measure(&stream, |clock| {
            let device = runtime.device();
            device.wait_event(&back, &device.record_event(&stream)?)?;
            copy(&coming, &stream)?;
            copy(&going, &back)?;
            device.wait_event(&stream, &device.record_event(&back)?)?;
            clock.phase("both")
        })?;
        Ok(Self {
            read: per_second(read.ms),
            both: per_second(both.ms),
        })
    }

    /// Milliseconds in which `read` bytes come and meanwhile `written` of them go, and then `again` come.
    pub(super) fn milliseconds(self, read: f64, written: f64, again: f64) -> f64 {
        let beside = read.min(written);
        let alone = read.max(written) - beside;
        (beside / self.both + (alone + again) / self.read) * 1e3
    }
}

/// Runs of bytes from host memory to the device, by copy engine and by kernel.
pub(super) fn runs(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    let runtime = bench.runtime();
    let all = (bench.rows() * ROW_BYTES).min(MOST) as usize;
    let link = Link::measured(bench)?;
    let stream = runtime.lease_stream()?;
    for bytes in bench.some(&RUNS) {
        let count = (all / bytes).max(1);
        let purpose = "runs of a benchmark";
        let mut from = runtime
            .host_pool()
            .allocate(count * (bytes + APART), purpose)?;
        let rows = from.len() / 8;
        fill(&mut from, rows, mix)?;
        for by_kernel in [false, true] {
            let to = runtime.pool().allocate(count * bytes, purpose)?;
            let runs = (0..count).map(|run| {
                Ok(ByteRun {
                    from: from.ptr_at(run * (bytes + APART))?,
                    to: to.ptr_at(run * bytes)?,
                    bytes: bytes as u64,
                })
            });
            let runs = runs.collect::<warpline_gpu::Result<Vec<_>>>()?;
            let timing = bench.measure(&stream, |clock| {
                if by_kernel {
                    // SAFETY: the runs lie in two buffers, one behind the other, that live until the stream is waited for.
                    unsafe { copy_runs(runtime, &stream, &runs, true)? };
                } else {
                    for run in 0..count {
                        to.copy_from(&stream, run * bytes, &from, run * (bytes + APART), bytes)?;
                    }
                }
                clock.phase("copy")
            })?;
            check(&stream, &mut from, &to, bytes)?;
            let name = if by_kernel { "kernel" } else { "copy engine" };
            let moved = (count * bytes) as u64;
            let point = Point::new(name, bytes as f64, moved / ROW_BYTES, moved, timing);
            emit(point.predicted(link.milliseconds(moved as f64, 0.0, 0.0)))?;
        }
    }
    Ok(())
}

/// Are all runs where they belong?
fn check(stream: &Stream, from: &mut DeviceBuffer, to: &DeviceBuffer, bytes: usize) -> Result<()> {
    let got: Vec<u8> = to.download_vec(stream)?;
    let source = from.host_bytes_mut().unwrap_or(&mut []);
    let there = got
        .chunks_exact(bytes)
        .zip(source.chunks_exact(bytes + APART));
    match there.clone().count() == got.len() / bytes
        && there.clone().all(|(got, of)| *got == of[..bytes])
    {
        true => Ok(()),
        false => Err(wrong(&format!("runs of {bytes} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_beside_what_comes_shares_the_link() {
        let link = Link {
            read: 50e9,
            both: 40e9,
        };
        let ms = |read, written, again| link.milliseconds(read, written, again);
        assert!((ms(1e9, 0.0, 0.0) - 20.0).abs() < 1e-9);
        // 6 GB both ways, 2 alone, 6 again.
        assert!((ms(8e9, 6e9, 6e9) - (150.0 + 40.0 + 120.0)).abs() < 1e-9);
    }
}
