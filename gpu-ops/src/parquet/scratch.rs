//! Device memory of a task: pages as they come and decompressed; and of a batch: what kernels are told of pages, and what they report.

use std::sync::Arc;

use super::places::{Place, Places};
use super::slab::rounded;
use crate::error::Result;
use crate::memory::{DeviceBuffer, MemoryPool};

/// A place among those of the load, or a buffer of its own.
pub(super) enum Scratch {
    Place(Place),
    Own(DeviceBuffer),
}

impl Scratch {
    /// Room for `bytes` bytes that nobody uses any more.
    ///
    /// # Errors
    /// As [`MemoryPool::allocate`].
    pub(super) fn new(
        bytes: usize,
        places: Option<&Arc<Places>>,
        pool: &Arc<MemoryPool>,
    ) -> Result<Self> {
        if let Some(place) = places.and_then(|places| places.take(bytes)) {
            return Ok(Self::Place(place));
        }
        let own = pool.allocate(rounded(bytes.max(1)), "pages of parquet files")?;
        Ok(Self::Own(own))
    }

    /// The buffer that it lies in, and where it begins there.
    pub(super) fn within(&self) -> (&DeviceBuffer, usize) {
        match self {
            Self::Place(place) => place.within(),
            Self::Own(buffer) => (buffer, 0),
        }
    }

    /// The same; work on it is about to be queued.
    pub(super) fn begin_use(&mut self) -> (&DeviceBuffer, usize) {
        if let Self::Place(place) = self {
            place.begin_use();
        }
        self.within()
    }

    /// All work on it has ended.
    pub(super) fn end_use(&mut self) {
        if let Self::Place(place) = self {
            place.end_use();
        }
    }
}
