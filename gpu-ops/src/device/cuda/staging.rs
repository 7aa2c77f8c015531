//! Copies between pageable host memory and the device at the speed of the link.
//!
//! The driver copies pageable memory through one thread, at a fifth of what the link carries. Here
//! several threads copy chunks to page-locked slots, each queueing its chunk as soon as it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cudarc::driver::sys;
use parking_lot::{Condvar, Mutex};

use super::context::{Context, EventHandle, EventUse, Pinned, StreamHandle};
use crate::device::DevicePtr;
use crate::error::Result;

/// Bytes of one slot.
const CHUNK: usize = 4 << 20;
/// Slots a thread: one is filled while the other is on its way.
const SLOTS: usize = 2;
/// Most threads of one copy; more do not make the link faster.
const MOST_WORKERS: usize = 8;
/// Below this a copy goes directly: staging would cost more than it saves.
const DIRECT_UPLOAD: usize = 256 << 10;

/// A page-locked chunk and the event after which it may be used again.
struct Slot {
    memory: Pinned,
    event: EventHandle,
    /// In place of the event, for a thread that sleeps until then.
    alarm: Option<EventHandle>,
    in_flight: bool,
}

impl Slot {
    fn new(context: &Arc<Context>) -> Result<Self> {
        Ok(Self {
            memory: Pinned::new(Arc::clone(context), CHUNK)?,
            event: EventHandle::new(Arc::clone(context), EventUse::Order)?,
            alarm: None,
            in_flight: false,
        })
    }

    /// Wait until the device is done with the slot.
    fn settle(&mut self) -> Result<()> {
        if self.in_flight {
            self.event.wait()?;
            self.in_flight = false;
        }
        Ok(())
    }
}

impl Slot {
    /// Wait for what is queued on the stream, of which the last is a copy to or from the slot, without keeping a core busy.
    fn sleep_until_passed(&mut self, stream: &StreamHandle) -> Result<()> {
        let alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => EventHandle::new(Arc::clone(&stream.context), EventUse::Alarm)?,
        };
        alarm.record(stream)?;
        alarm.wait()?;
        self.alarm = Some(alarm);
        self.in_flight = false;
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            log::debug!("{error}");
        }
    }
}

/// The slots of one worker.
type Lane = Vec<Slot>;

/// Lanes that no copy uses, and how many more may be made.
struct Lanes {
    free: Vec<Lane>,
    unmade: usize,
}

/// Page-locked slots of one device, shared by all its streams.
pub(super) struct Staging {
    context: Arc<Context>,
    lanes: Mutex<Lanes>,
    returned: Condvar,
    /// For downloads of one chunk, which wait for the kernels before them: one for each at a time.
    small: Mutex<Vec<Slot>>,
}

impl Staging {
    pub(super) fn new(context: Arc<Context>) -> Self {
        let workers = std::thread::available_parallelism()
            .map_or(1, |cores| cores.get())
            .clamp(1, MOST_WORKERS);
        let lanes = Lanes {
            free: Vec::new(),
            unmade: workers,
        };
        Self {
            context,
            lanes: Mutex::new(lanes),
            returned: Condvar::new(),
            small: Mutex::new(Vec::new()),
        }
    }

    /// Between one and `wanted` lanes; waits while other copies have all of them.
    fn take_lanes(&self, wanted: usize) -> Result<Vec<Lane>> {
        let mut lanes = self.lanes.lock();
        while lanes.free.is_empty() && lanes.unmade == 0 {
            self.returned.wait(&mut lanes);
        }
        let kept = lanes.free.len().saturating_sub(wanted);
        let mut taken = lanes.free.split_off(kept);
        while taken.len() < wanted && lanes.unmade > 0 {
            let slots = (0..SLOTS).map(|_| Slot::new(&self.context)).collect();
            match slots {
                Ok(slots) => {
                    lanes.unmade -= 1;
                    taken.push(slots);
                }
                // Fewer lanes are only slower.
                Err(_) if !taken.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    fn return_lanes(&self, taken: Vec<Lane>) {
        self.lanes.lock().free.extend(taken);
        self.returned.notify_all();
    }

    /// Queue a copy to the device; returns when `source` was read.
    pub(super) fn upload(
        &self,
        stream: &StreamHandle,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()> {
        if source.len() <= DIRECT_UPLOAD {
            // From pageable memory the call returns after the driver has staged the bytes.
            return queue_upload(stream, source, destination);
        }
        let chunks: Vec<&[u8]> = source.chunks(CHUNK).collect();
        self.each_chunk(chunks.len(), |index, slot| {
            let chunk = chunks[index];
            slot.settle()?;
            slot.memory.as_mut_slice()[..chunk.len()].copy_from_slice(chunk);
            let at = DevicePtr(destination.0 + (index * CHUNK) as u64);
            queue_upload(stream, &slot.memory.as_slice()[..chunk.len()], at)?;
            slot.in_flight = true;
            slot.event.record(stream)
        })
    }

    /// Copy from the device and wait for the bytes.
    pub(super) fn download(
        &self,
        stream: &StreamHandle,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        if destination.len() <= CHUNK {
            let kept = self.small.lock().pop();
            let mut slot = match kept {
                Some(slot) => slot,
                None => Slot::new(&self.context)?,
            };
            download_chunk(stream, &mut slot, source, destination)?;
            self.small.lock().push(slot);
            return Ok(());
        }
        // Wait for kernels before the link is taken, not while other copies wait for it.
        stream.synchronize()?;
        let chunks: Vec<Mutex<&mut [u8]>> = destination.chunks_mut(CHUNK).map(Mutex::new).collect();
        self.each_chunk(chunks.len(), |index, slot| {
            let from = DevicePtr(source.0 + (index * CHUNK) as u64);
            download_chunk(stream, slot, from, &mut chunks[index].lock())
        })
    }

    /// Run `work` for each chunk on several threads, each with slots of its own; the first error wins.
    fn each_chunk(
        &self,
        chunks: usize,
        work: impl Fn(usize, &mut Slot) -> Result<()> + Sync,
    ) -> Result<()> {
        let mut lanes = self.take_lanes(chunks.clamp(1, MOST_WORKERS))?;
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let failed = AtomicBool::new(false);
        let worker = |lane: &mut Lane| -> Result<()> {
            self.context.bind()?;
            let mut turn = 0;
            while !failed.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= chunks {
                    break;
                }
                work(index, &mut lane[turn % SLOTS])?;
                turn += 1;
            }
            Ok(())
        };
        let guarded = |lane: &mut Lane| {
            if let Err(error) = worker(lane) {
                failed.store(true, Ordering::Relaxed);
                failure.lock().get_or_insert(error);
            }
        };
        if let Some((first, rest)) = lanes.split_first_mut() {
            std::thread::scope(|scope| {
                for lane in rest {
                    scope.spawn(|| guarded(lane));
                }
                guarded(first);
            });
        }
        self.return_lanes(lanes);
        match failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Queue one asynchronous copy to the device. `source` is pageable, or page-locked and left alone
/// until the stream has passed the copy. The context must be current.
fn queue_upload(stream: &StreamHandle, source: &[u8], destination: DevicePtr) -> Result<()> {
    // SAFETY: the caller of `Device::copy_to_device` vouches for the device range; the host range is
    // a live slice.
    let status = unsafe {
        sys::cuMemcpyHtoDAsync_v2(
            destination.0,
            source.as_ptr().cast(),
            source.len(),
            stream.raw,
        )
    };
    stream.context.check(
        status,
        &format!("copying {} bytes to the device", source.len()),
    )?;
    stream.count();
    Ok(())
}

/// Copy at most one chunk through a slot and wait for it. The context must be current.
fn download_chunk(
    stream: &StreamHandle,
    slot: &mut Slot,
    source: DevicePtr,
    destination: &mut [u8],
) -> Result<()> {
    slot.settle()?;
    let bytes = destination.len();
    slot.in_flight = true;
    // SAFETY: the caller of `Device::copy_to_host` vouches for the device range; the slot has room
    // for a chunk and is not touched before the event has passed.
    let status = unsafe {
        sys::cuMemcpyDtoHAsync_v2(
            slot.memory.as_mut_slice().as_mut_ptr().cast(),
            source.0,
            bytes,
            stream.raw,
        )
    };
    stream
        .context
        .check(status, &format!("copying {bytes} bytes to the host"))?;
    stream.count();
    let newest = stream.newest();
    let waiter = stream.context.waiter();
    if waiter.spins {
        slot.event.record(stream)?;
        slot.settle()?;
    } else {
        slot.sleep_until_passed(stream)?;
    }
    drop(waiter);
    stream.mark_passed(newest);
    destination.copy_from_slice(&slot.memory.as_slice()[..bytes]);
    Ok(())
}
