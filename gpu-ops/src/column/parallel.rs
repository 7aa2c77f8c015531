//! Parallel upload of host chunks: threads encode one window while the previous one is copied.

use std::ops::Range;
use std::sync::Arc;

use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::memory::{DeviceBuffer, MemoryPool};

/// Host bytes of one window; two are in use at a time.
const WINDOW: usize = 32 << 20;
/// A thread is worth starting for this many bytes.
const BYTES_PER_THREAD: usize = 1 << 20;
/// A thread is worth starting for this many strings.
pub(super) const STRINGS_PER_THREAD: usize = 1 << 14;
/// Buffers end at a multiple of this, filled with zeros, so that kernels may load whole vectors.
const PADDING: usize = 256;

/// Allocate `bytes` rounded up to the padding, in device or host memory, and fill it: `fill(range, out)` writes the bytes of
/// `range`, whose ends are multiples of 256 save the last, into the zeroed `out`.
///
/// # Errors
/// Of the allocation, the copies and `fill`; the first one stops the work.
pub(super) fn upload_with(
    bytes: usize,
    purpose: &str,
    pool: &Arc<MemoryPool>,
    stream: &Stream,
    fill: impl Fn(Range<usize>, &mut [u8]) -> Result<()> + Sync,
) -> Result<DeviceBuffer> {
    // At least one padding unit: kernels get an address they may load from even without rows.
    let padded = bytes.next_multiple_of(PADDING).max(PADDING);
    let mut buffer = pool.allocate(padded, purpose)?;
    if let Some(all) = buffer.host_bytes_mut() {
        // Blocks that were used before are not zeroed; each thread clears its share.
        let cleared = |range: Range<usize>, out: &mut [u8]| {
            out.fill(0);
            fill(range, out)
        };
        all[bytes..].fill(0);
        fill_window(0..padded, bytes, all, &cleared)?;
        return Ok(buffer);
    }
    let window = WINDOW.min(padded);
    let mut front = vec![0u8; window];
    let mut back = vec![0u8; if padded > window { window } else { 0 }];
    fill_window(0..window, bytes, &mut front, &fill)?;
    let mut start = 0;
    while start < padded {
        let end = (start + window).min(padded);
        let next_end = (end + window).min(padded);
        let uploaded = std::thread::scope(|scope| {
            let filler = (end < padded).then(|| {
                let (fill, back) = (&fill, &mut back);
                scope.spawn(move || {
                    let out = &mut back[..next_end - end];
                    out.fill(0);
                    fill_window(end..next_end, bytes, out, fill)
                })
            });
            let uploaded = buffer.upload(stream, start, &front[..end - start]);
            let filled = filler.map_or(Ok(()), join);
            uploaded.and(filled)
        });
        uploaded?;
        std::mem::swap(&mut front, &mut back);
        start = end;
    }
    Ok(buffer)
}

/// Allocate `bytes` rounded up to the padding, in device or host memory, with zeros as padding; the rest is whatever it was.
///
/// # Errors
/// Of the allocation and of the fill.
pub(super) fn allocate_padded(
    bytes: usize,
    purpose: &str,
    pool: &Arc<MemoryPool>,
    stream: &Stream,
) -> Result<DeviceBuffer> {
    let padded = bytes.next_multiple_of(PADDING).max(PADDING);
    let mut buffer = pool.allocate(padded, purpose)?;
    match buffer.host_bytes_mut() {
        Some(all) => all[bytes..].fill(0),
        None => buffer.fill_range(stream, bytes, padded - bytes, 0)?,
    }
    Ok(buffer)
}

/// Fill the bytes of `window` that lie before `bytes`, on as many threads as pay off.
fn fill_window(
    window: Range<usize>,
    bytes: usize,
    out: &mut [u8],
    fill: &(impl Fn(Range<usize>, &mut [u8]) -> Result<()> + Sync),
) -> Result<()> {
    let end = window.end.min(bytes);
    if window.start >= end {
        return Ok(());
    }
    let out = &mut out[..end - window.start];
    let threads = threads().min(out.len().div_ceil(BYTES_PER_THREAD));
    if threads <= 1 {
        return fill(window.start..end, out);
    }
    let share = out.len().div_ceil(threads).next_multiple_of(PADDING);
    std::thread::scope(|scope| {
        let workers: Vec<_> = out
            .chunks_mut(share)
            .enumerate()
            .map(|(i, part)| {
                let start = window.start + i * share;
                scope.spawn(move || fill(start..start + part.len(), part))
            })
            .collect();
        // All are joined, also after an error.
        let results: Vec<_> = workers.into_iter().map(join).collect();
        results.into_iter().collect()
    })
}

/// Even shares of so many strings for all cores.
pub(super) fn shares(len: usize) -> Vec<Range<usize>> {
    let parts = threads().min(len.div_ceil(STRINGS_PER_THREAD)).max(1);
    (0..parts)
        .map(|part| len * part / parts..len * (part + 1) / parts)
        .collect()
}

/// Apply `work` to every item on all cores, keeping the order.
pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Result<Vec<R>> {
    let threads = threads().min(items.len());
    if threads <= 1 {
        return Ok(items.into_iter().map(work).collect());
    }
    let count = items.len();
    let queue = parking_lot::Mutex::new(items.into_iter().enumerate());
    let mut results: Vec<(usize, R)> = Vec::with_capacity(count);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    loop {
                        let next = queue.lock().next();
                        let Some((i, item)) = next else {
                            return Ok(done);
                        };
                        done.push((i, work(item)));
                    }
                })
            })
            .collect();
        for worker in workers {
            results.extend(join(worker)?);
        }
        Ok::<_, GpuError>(())
    })?;
    results.sort_unstable_by_key(|(i, _)| *i);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn join<T>(worker: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    worker.join().unwrap_or_else(|_| {
        Err(GpuError::Internal(
            "a thread working on a column panicked".into(),
        ))
    })
}
