//! How a thread brings bytes of files to the device: through small slabs in turn, one of which is filled while others are copied.
//!
//! The slabs of all threads together are small beside what a load reads: page-locked memory is made once, and what is read into it
//! may still lie in the processor's cache when it is copied.

use std::collections::VecDeque;

use super::places::Place;
use super::scratch::Scratch;
use crate::device::{Device, Event, Stream};
use crate::error::{GpuError, Result};

/// Bytes of a slab: what a thread reads in less than a millisecond.
pub(crate) const LANE_BYTES: usize = 2 << 20;

/// The slabs of a thread.
#[derive(Default)]
pub(crate) struct Lanes {
    lanes: VecDeque<Lane>,
}

/// A slab, and the stream that copies it. Streams of copies alone are shared: they go over the link one after the other whatever
/// stream they are on, and the hardware has few queues, in which they would wait for kernels of other streams.
struct Lane {
    slab: Place,
    copies: Stream,
    /// Behind the last copy of the slab.
    copied: Option<Event>,
}

impl Lanes {
    /// One more, of [`LANE_BYTES`] bytes.
    pub(crate) fn add(&mut self, slab: Place, copies: Stream) {
        self.lanes.push_back(Lane {
            slab,
            copies,
            copied: None,
        });
    }

    /// Are there any?
    pub(super) fn are_there(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Bring `bytes` bytes to scratch, from `at` of it on. `fill` writes those from a number on. They are there behind the events that
    /// this returns.
    ///
    /// # Errors
    /// [`GpuError::Device`] and [`GpuError::Stopped`]; [`GpuError::Internal`] where there is no slab.
    pub(super) fn copy(
        &mut self,
        bytes: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
        (scratch, at): (&mut Scratch, usize),
    ) -> Result<Vec<Event>> {
        let (target, base) = scratch.begin_use();
        let device: &dyn Device = target.device().as_ref();
        for from in (0..bytes).step_by(LANE_BYTES) {
            let Some(lane) = self.lanes.front_mut() else {
                return Err(GpuError::Internal("a reader has no slab".into()));
            };
            if let Some(copied) = lane.copied.take() {
                device.event_passed(&copied, true)?;
            }
            let length = LANE_BYTES.min(bytes - from);
            let slab = &mut lane.slab.host_bytes_mut()[..length];
            fill(from, slab);
            lane.slab.begin_use();
            let (block, begin) = lane.slab.within();
            target.copy_from(&lane.copies, base + at + from, block, begin, length)?;
            lane.copied = Some(device.record_event(&lane.copies)?);
            self.lanes.rotate_left(1);
        }
        let copied = self.lanes.iter().map(|lane| lane.copied.clone());
        Ok(copied.flatten().collect())
    }
}

impl Drop for Lane {
    /// Others may have the slab, once it is copied.
    fn drop(&mut self) {
        let copied = match &self.copied {
            Some(copied) => self.slab.within().0.device().event_passed(copied, true),
            None => return,
        };
        if copied.is_ok() {
            self.slab.end_use();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use super::super::places::Places;
    use super::*;
    use crate::device::emulated::EmulatedDevice;
    use crate::device::pinned::PinnedMemory;
    use crate::memory::MemoryPool;

    #[test]
    fn any_number_of_bytes_comes_through_one_slab_or_two() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let stream = device.create_stream().unwrap();
        let pool = MemoryPool::new(Arc::clone(&device), 64 << 20);
        let pinned = PinnedMemory::new(Arc::clone(&device));
        let host = MemoryPool::new(Arc::new(pinned), 64 << 20);
        let places = Places::new(&host, 3, LANE_BYTES, "test").unwrap();
        let mut lanes = [Lanes::default(), Lanes::default(), Lanes::default()];
        for (lanes, slabs) in lanes.iter_mut().zip([1, 2, 1]) {
            for _ in 0..slabs {
                let slab = places.take(LANE_BYTES);
                if let Some(slab) = slab {
                    lanes.add(slab, device.create_stream().unwrap());
                }
            }
        }
        assert!(
            lanes[1].are_there() && !lanes[2].are_there(),
            "places are taken"
        );
        let byte = |at: usize| (at % 251) as u8;
        let of_load = Places::new(&pool, 1, 4 * LANE_BYTES, "test").unwrap();
        for lanes in &mut lanes[..2] {
            for bytes in [0, 1, LANE_BYTES, 3 * LANE_BYTES + 5] {
                for of_load in [Some(&of_load), None] {
                    let mut scratch = Scratch::new(bytes + 10, of_load, &pool).unwrap();
                    let fill = |from: usize, out: &mut [u8]| {
                        for (i, out) in out.iter_mut().enumerate() {
                            *out = byte(from + i);
                        }
                    };
                    for copied in lanes.copy(bytes, fill, (&mut scratch, 7)).unwrap() {
                        device.wait_event(&stream, &copied).unwrap();
                    }
                    let (buffer, base) = scratch.within();
                    let mut told = vec![0; bytes];
                    buffer.download(&stream, base + 7, &mut told).unwrap();
                    assert!((0..bytes).all(|at| told[at] == byte(at)), "{bytes} bytes");
                    scratch.end_use();
                }
            }
        }
        assert_eq!(places.free(), 0);
        lanes[..2]
            .iter_mut()
            .for_each(|lanes| drop(std::mem::take(lanes)));
        assert_eq!(places.free(), 3, "what is copied is free again");
        let mut scratch = Scratch::new(10, None, &pool).unwrap();
        let nothing = |_: usize, _: &mut [u8]| ();
        assert!(lanes[2].copy(1, nothing, (&mut scratch, 0)).is_err());
    }
}
