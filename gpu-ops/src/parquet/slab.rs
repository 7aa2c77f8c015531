//! Host memory that is filled and then copied to the device: page-locked, or not.
//!
//! The slabs of a load are places of one large block ([`Places`]). What does not fit a place has a block of its own.

use std::sync::Arc;

use super::places::{Place, Places};
use crate::device::Stream;
use crate::error::Result;
use crate::memory::{DeviceBuffer, MemoryPool};

/// Classes of sizes per power of two: blocks of one task serve the next, though no two have as many bytes.
const CLASSES: usize = 8;

/// So many bytes, rounded up so that few sizes are asked of the pools.
pub(super) fn rounded(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / CLASSES).max(256);
    bytes.next_multiple_of(step)
}

/// Host bytes whose copies a stream orders.
pub(super) enum Slab {
    Place(Place),
    Pinned(DeviceBuffer),
    Plain(Vec<u8>),
}

impl Slab {
    /// Room for `bytes` bytes: a place of the first of `places` that has one.
    pub(super) fn new(
        bytes: usize,
        places: &[Arc<Places>],
        host: Option<&Arc<MemoryPool>>,
        stream: &Stream,
    ) -> Self {
        if let Some(place) = places.iter().find_map(|places| places.take(bytes)) {
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
            Self::Place(place) => place.host_bytes_mut(),
            Self::Pinned(buffer) => buffer.host_bytes_mut().unwrap_or_default(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Queue a copy of the first bytes, or wait for it.
    pub(super) fn copy_to(
        &mut self,
        stream: &Stream,
        target: &DeviceBuffer,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        match self {
            Self::Place(place) => {
                place.begin_use();
                let (block, begin) = place.within();
                target.copy_from(stream, at, block, begin, bytes)
            }
            Self::Pinned(buffer) => target.copy_from(stream, at, buffer, 0, bytes),
            Self::Plain(all) => target.upload(stream, at, &all[..bytes]),
        }
    }

    /// Its copies are over.
    pub(super) fn end_use(&mut self) {
        if let Self::Place(place) = self {
            place.end_use();
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
    fn the_smallest_place_that_is_large_enough_is_taken() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let stream = device.create_stream().unwrap();
        let pool = MemoryPool::new(Arc::clone(&device), 1 << 20);
        let host = MemoryPool::new(Arc::new(PinnedMemory::new(device)), 1 << 20);
        let places = [100, 10_000].map(|bytes| Places::new(&host, 2, bytes, "test").unwrap());
        let slab = |bytes| Slab::new(bytes, &places, Some(&host), &stream);
        let free = || places.each_ref().map(|places| places.free());
        let target = pool.allocate(40_000, "test").unwrap();
        // The next where its places are taken, and blocks of their own beyond.
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for bytes in [100, 5_000, 10_000, 100, 20, 20_000] {
            taken.push(slab(bytes));
            left.push(free());
        }
        assert_eq!(left, [[1, 2], [1, 1], [1, 0], [0, 0], [0, 0], [0, 0]]);
        for (number, slab) in taken.iter_mut().enumerate() {
            slab.bytes_mut().fill(number as u8 + 1);
        }
        for (number, slab) in taken.iter_mut().enumerate() {
            slab.copy_to(&stream, &target, number * 20, 20).unwrap();
        }
        let mut told = [0; 120];
        target.download(&stream, 0, &mut told).unwrap();
        let want: Vec<u8> = (1..=6).flat_map(|number| [number; 20]).collect();
        assert_eq!(told.as_slice(), want);
        taken[1..].iter_mut().for_each(Slab::end_use);
        drop(taken);
        assert_eq!(free(), [1, 2], "the first may still be copied");
    }
}
