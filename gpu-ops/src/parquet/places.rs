//! One block of memory, of the device or page-locked, as places of equal size that tasks take in turn.
//!
//! A driver takes about a millisecond for a block of some MB and more to lock one, and serves nobody else meanwhile: a load asks it
//! once for what all of its tasks need at a time.

use std::sync::Arc;

use parking_lot::Mutex;

use super::slab::rounded;
use crate::memory::{DeviceBuffer, MemoryPool};

/// Places begin at multiples of this.
const ALIGNED: usize = 4096;

/// Places of equal size in one block.
pub(crate) struct Places {
    block: DeviceBuffer,
    /// Bytes of a place.
    bytes: usize,
    /// Numbers of the places that nobody has.
    free: Mutex<Vec<usize>>,
}

impl Places {
    /// So many places for `bytes` bytes each; `None` where the pool has no such block.
    pub(crate) fn new(
        pool: &Arc<MemoryPool>,
        places: usize,
        bytes: usize,
        purpose: &str,
    ) -> Option<Arc<Self>> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNED)?;
        let all = rounded(places.checked_mul(bytes).filter(|all| *all > 0)?);
        let block = pool.allocate(all, purpose).ok()?;
        Some(Arc::new(Self {
            block,
            bytes,
            free: Mutex::new((0..places).rev().collect()),
        }))
    }

    /// So many places with room for `bytes` bytes each, if they are free.
    pub(crate) fn take_all(self: &Arc<Self>, places: usize, bytes: usize) -> Option<Vec<Place>> {
        let taken: Vec<Place> = (0..places).map_while(|_| self.take(bytes)).collect();
        (taken.len() == places).then_some(taken)
    }

    /// A place with room for `bytes` bytes, if one is free.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Place> {
        let number = (bytes <= self.bytes).then(|| self.free.lock().pop())??;
        Some(Place {
            of: Arc::clone(self),
            number,
            in_use: false,
        })
    }

    /// How many places nobody has.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.lock().len()
    }
}

/// A place that is taken. It is free again when this is dropped, unless the device may still work on it: then nobody has it until
/// the block is given back, for which the pool waits.
pub(crate) struct Place {
    of: Arc<Places>,
    number: usize,
    in_use: bool,
}

impl Place {
    /// The block, and where in it the place begins.
    pub(super) fn within(&self) -> (&DeviceBuffer, usize) {
        (&self.of.block, self.number * self.of.bytes)
    }

    /// The bytes of a place in host memory, which nobody else has.
    pub(super) fn host_bytes_mut(&mut self) -> &mut [u8] {
        let begin = self.number * self.of.bytes;
        let range = begin..begin + self.of.bytes;
        // SAFETY: whoever has a place has its bytes alone, and no work on them is queued before they are filled.
        unsafe { self.of.block.host_range_mut(range) }.unwrap_or_default()
    }

    /// Work of the device on it is about to be queued.
    pub(super) fn begin_use(&mut self) {
        self.in_use = true;
    }

    /// All work on it has ended.
    pub(super) fn end_use(&mut self) {
        self.in_use = false;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.in_use {
            self.of.free.lock().push(self.number);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::device::emulated::EmulatedDevice;

    #[test]
    fn places_are_apart_and_come_back_unless_they_are_in_use() {
        let pool = MemoryPool::new(Arc::new(EmulatedDevice::open().unwrap()), 1 << 20);
        let places = Places::new(&pool, 3, 5_000, "test").unwrap();
        assert!(places.take(8_193).is_none(), "larger than a place");
        let mut taken: Vec<Place> = (0..3).map(|_| places.take(8_192).unwrap()).collect();
        assert!(places.take(1).is_none(), "all are taken");
        let begins: Vec<usize> = taken.iter().map(|place| place.within().1).collect();
        assert_eq!(begins, [0, 8_192, 16_384]);
        taken[0].begin_use();
        taken[1].begin_use();
        taken[1].end_use();
        drop(taken);
        assert_eq!(places.free(), 2);
        let again = [places.take(1).unwrap(), places.take(1).unwrap()];
        assert!(again.iter().all(|place| place.within().1 != 0));
        // A pool without room has none, and neither is there one of nothing.
        assert!(Places::new(&pool, 1 << 10, 1 << 20, "test").is_none());
        assert!(Places::new(&pool, usize::MAX, 2, "test").is_none());
        assert!(Places::new(&pool, 0, 2, "test").is_none());
    }
}
