//! Host memory that is filled and then copied to the device: page-locked, or not.
//!
//! Locking a block of some MB takes milliseconds in which the driver serves nobody else, so the slabs of all tasks that a load has
//! under way are places of one large block, which is locked at once ([`Slabs`]). What does not fit a place has a block of its own.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::Stream;
use crate::error::Result;
use crate::memory::{DeviceBuffer, MemoryPool};

/// Classes of sizes per power of two: blocks of one task serve the next, though no two have as many bytes.
const CLASSES: usize = 8;
/// Places begin at multiples of this.
const ALIGNED: usize = 4096;

/// So many bytes, rounded up so that few sizes are asked of the pools.
pub(super) fn rounded(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / CLASSES).max(256);
    bytes.next_multiple_of(step)
}

/// Places of equal size in one block of page-locked memory.
pub(crate) struct Slabs {
    block: DeviceBuffer,
    /// Bytes of a place.
    bytes: usize,
    /// Numbers of the places that nobody has.
    free: Mutex<Vec<usize>>,
}

impl Slabs {
    /// So many places for `bytes` bytes each; `None` where the host has no such block.
    pub(crate) fn new(host: &Arc<MemoryPool>, places: usize, bytes: usize) -> Option<Arc<Self>> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNED)?;
        let all = rounded(places.checked_mul(bytes)?);
        let block = host.allocate(all, "bytes of parquet files").ok()?;
        Some(Arc::new(Self {
            block,
            bytes,
            free: Mutex::new((0..places).collect()),
        }))
    }

    /// A place with room for `bytes` bytes, if one is free.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Place> {
        let number = (bytes <= self.bytes).then(|| self.free.lock().pop())??;
        Some(Place {
            of: Arc::clone(self),
            number,
        })
    }
}

/// A place that is taken; it is free again when this is dropped, which is when its copies are over, or nobody wants what they
/// have copied.
pub(super) struct Place {
    of: Arc<Slabs>,
    number: usize,
}

impl Place {
    fn begin(&self) -> usize {
        self.number * self.of.bytes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.free.lock().push(self.number);
    }
}

/// Host bytes whose copies a stream orders.
pub(super) enum Slab {
    Place(Place),
    Pinned(DeviceBuffer),
    Plain(Vec<u8>),
}

impl Slab {
    /// Room for `bytes` bytes: a place of the first of `slabs` that has one.
    pub(super) fn new(
        bytes: usize,
        slabs: &[Arc<Slabs>],
        host: Option<&Arc<MemoryPool>>,
        stream: &Stream,
    ) -> Self {
        if let Some(place) = slabs.iter().find_map(|slabs| slabs.take(bytes)) {
            return Self::Place(place);
        }
        // Without page-locked memory the copy is slower.
        match host.map(|host| host.allocate(rounded(bytes.max(1)), "bytes of parquet files")) {
            Some(Ok(buffer)) => Self::Pinned(buffer.ordered_by(stream)),
            _ => Self::Plain(vec![0; bytes]),
        }
    }

    /// At least as many bytes as were asked for.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Place(place) => {
                let (block, begin) = (&place.of.block, place.begin());
                // SAFETY: whoever has a place has its bytes alone. Of a place that was given back, copies to the device may be
                // under way only where nobody wants what they bring: the load has failed.
                unsafe { block.host_range_mut(begin..begin + place.of.bytes) }.unwrap_or_default()
            }
            Self::Pinned(buffer) => buffer.host_bytes_mut().unwrap_or_default(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Queue a copy of the first bytes, or wait for it.
    pub(super) fn copy_to(
        &self,
        stream: &Stream,
        target: &DeviceBuffer,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        match self {
            Self::Place(place) => {
                target.copy_from(stream, at, &place.of.block, place.begin(), bytes)
            }
            Self::Pinned(buffer) => target.copy_from(stream, at, buffer, 0, bytes),
            Self::Plain(all) => target.upload(stream, at, &all[..bytes]),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::emulated::EmulatedDevice;
    use crate::device::pinned::PinnedMemory;

    #[test]
    fn places_are_apart_and_come_back() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let stream = device.create_stream().unwrap();
        let pool = MemoryPool::new(Arc::clone(&device), 1 << 20);
        let host = MemoryPool::new(Arc::new(PinnedMemory::new(device)), 1 << 20);
        let slabs = [
            Slabs::new(&host, 2, 100).unwrap(),
            Slabs::new(&host, 2, 10_000).unwrap(),
        ];
        let slab = |bytes| Slab::new(bytes, &slabs, Some(&host), &stream);
        let place = |slab: &Slab| match slab {
            Slab::Place(place) => Some((place.of.bytes, place.number)),
            _ => None,
        };
        let target = pool.allocate(40_000, "test").unwrap();
        // The smallest that is large enough, the next where its places are taken, and blocks of their own beyond.
        let mut taken: Vec<Slab> = [100, 5_000, 10_000, 100, 20, 20_000].map(slab).into();
        let found: Vec<_> = taken.iter().map(place).collect();
        assert!(found[0].is_some_and(|(bytes, _)| bytes == 4096));
        assert!(found[1].is_some_and(|(bytes, _)| bytes == 12_288));
        assert!(found[2].is_some_and(|(bytes, _)| bytes == 12_288));
        assert!(found[3].is_some_and(|(bytes, _)| bytes == 4096));
        assert!(found[4..].iter().all(Option::is_none));
        let held: Vec<_> = found.iter().flatten().collect();
        assert!(
            held.iter()
                .enumerate()
                .all(|(at, place)| !held[..at].contains(place))
        );
        for (number, slab) in taken.iter_mut().enumerate() {
            slab.bytes_mut().fill(number as u8 + 1);
        }
        for (number, slab) in taken.iter().enumerate() {
            slab.copy_to(&stream, &target, number * 20, 20).unwrap();
        }
        let mut told = [0; 120];
        target.download(&stream, 0, &mut told).unwrap();
        let want: Vec<u8> = (1..=6).flat_map(|number| [number; 20]).collect();
        assert_eq!(told.as_slice(), want);
        drop(taken);
        assert_eq!(
            slabs.each_ref().map(|slabs| slabs.free.lock().len()),
            [2, 2]
        );
        // A host without room has none.
        assert!(Slabs::new(&host, 1 << 10, 1 << 20).is_none());
        assert!(Slabs::new(&host, usize::MAX, 2).is_none());
    }
}
