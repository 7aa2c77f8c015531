//! The page-locked slabs that loads of parquet files read into.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::memory::MemoryPool;
use crate::parquet::{LANE_BYTES, Place, Places};

/// Slabs of a thread: one is filled while the other is copied.
pub(super) const LANES: usize = 2;

/// Slabs that outlive loads: page-locking memory takes longer than reading as much.
#[derive(Default)]
pub(super) struct SharedLanes(Mutex<Option<Arc<Places>>>);

impl SharedLanes {
    /// Make those of as many threads as a load may have, unless they are there.
    pub(super) fn prepare(&self, most: usize, host: &Arc<MemoryPool>) -> Option<Arc<Places>> {
        let mut kept = self.0.lock();
        if kept.is_none() {
            *kept = lanes_of(most, host);
        }
        kept.clone()
    }

    /// The slabs of so many threads, of `most` that a load may have; of a block of their own where other loads have the shared ones,
    /// or where few threads do not need as many.
    pub(super) fn take(&self, threads: usize, most: usize, host: &Arc<MemoryPool>) -> Vec<Place> {
        let kept = match 2 * threads > most {
            true => self.prepare(most, host),
            false => self.0.lock().clone(),
        };
        let all = |places: Arc<Places>| places.take_all(threads * LANES, LANE_BYTES);
        let shared = kept.and_then(all);
        shared
            .or_else(|| lanes_of(threads, host).and_then(all))
            .unwrap_or_default()
    }
}

/// Slabs for so many threads.
fn lanes_of(threads: usize, host: &Arc<MemoryPool>) -> Option<Arc<Places>> {
    Places::new(host, threads * LANES, LANE_BYTES, "bytes of parquet files")
}
