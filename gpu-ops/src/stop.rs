//! Stop words for long kernels: page-locked host memory that they poll to see whether their query was stopped
//! (`stop.cuh`).
//!
//! A query that is stopped has its number written to the word that it shares with few others. Numbers are given once, so
//! nothing is reset and nobody has to know when the last kernel of a query has ended. Of two queries of one word that are
//! stopped within a look the first may go on to its end, as it would without.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Device, DevicePtr, StopPlace, StopSignal};
use crate::error::Result;

/// Number of words: a page of them.
const WORDS: u64 = 512;

/// Words of page-locked memory; they go with this.
pub(crate) struct StopWords {
    device: Arc<dyn Device>,
    first: DevicePtr,
}

impl StopWords {
    const BYTES: usize = WORDS as usize * size_of::<u64>();

    /// Words that nobody has written to.
    ///
    /// # Errors
    /// [`crate::GpuError::OutOfDeviceMemory`] when the host gives no page, and [`crate::GpuError::Unsupported`] where host and
    /// device have no addresses in common: kernels are waited for then.
    pub(crate) fn new(device: &Arc<dyn Device>) -> Result<Arc<Self>> {
        let first = device.allocate_host(Self::BYTES)?;
        let words = Self {
            device: Arc::clone(device),
            first,
        };
        for place in 0..WORDS {
            words.word(place).store(0, Ordering::SeqCst);
        }
        Ok(Arc::new(words))
    }

    fn word(&self, place: u64) -> &AtomicU64 {
        let address = self.first.offset(place * size_of::<u64>() as u64);
        let word = std::ptr::with_exposed_provenance_mut(address.0 as usize);
        // SAFETY: a word, aligned, of host memory that lives as long as `self`; the host writes it by atomics alone, and
        // kernels do not.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

impl StopSignal for StopWords {
    fn place(&self, query: u64) -> StopPlace {
        StopPlace {
            word: self.first.offset(query % WORDS * size_of::<u64>() as u64),
            number: query.wrapping_add(1),
        }
    }

    fn stop(&self, query: u64) {
        let number = self.place(query).number;
        self.word(query % WORDS).store(number, Ordering::SeqCst);
    }
}

impl Drop for StopWords {
    fn drop(&mut self) {
        // SAFETY: it came from `allocate_host`. The runtime has it beside the pools, whose blocks are given back, and the
        // device's work waited for, before it goes.
        unsafe { self.device.free_host(self.first, Self::BYTES) };
    }
}

impl fmt::Debug for StopWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopWords")
            .field("device", &self.device.info().id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::device::emulated::EmulatedDevice;

    #[test]
    fn a_word_tells_one_query_of_those_that_share_it() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let words = StopWords::new(&device).unwrap();
        let stopped = |query: u64| {
            let place = words.place(query);
            words.word(query % WORDS).load(Ordering::SeqCst) == place.number
        };
        assert_eq!(words.place(3).word, words.place(3 + WORDS).word);
        assert!(!(0..2 * WORDS).any(stopped));
        words.stop(0);
        words.stop(3 + WORDS);
        let all: Vec<u64> = (0..2 * WORDS).filter(|query| stopped(*query)).collect();
        assert_eq!(all, [0, 3 + WORDS]);
    }
}
