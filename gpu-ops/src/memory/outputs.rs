//! Outputs that lie in device memory until their readers have taken them: under pressure they go on to host memory.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// An output that its reader takes chunk by chunk.
pub(crate) trait HeldOutput: Send + Sync {
    /// Bytes of device memory that it holds.
    fn bytes(&self) -> usize;

    /// Move to host memory, if that has room; returns the bytes of device memory that go, now or with the chunk that is being
    /// copied.
    ///
    /// As a [`crate::memory::PressureHandler`] it waits for no lock that is held while device memory is allocated.
    fn move_to_host(&self) -> usize;
}

/// The outputs of a device that are not read to their end.
#[derive(Default)]
pub(crate) struct HeldOutputs(Mutex<Vec<Weak<dyn HeldOutput>>>);

impl HeldOutputs {
    /// One more, as long as somebody reads it.
    pub(crate) fn add(&self, output: Weak<dyn HeldOutput>) {
        let mut outputs = self.0.lock();
        outputs.retain(|output| output.strong_count() > 0);
        outputs.push(output);
    }

    /// Move about `bytes` bytes to host memory, the oldest output first; returns the bytes that went.
    pub(crate) fn release(&self, bytes: usize) -> usize {
        let mut released = 0;
        for output in self.alive() {
            if released >= bytes {
                break;
            }
            released += output.move_to_host();
        }
        released
    }

    /// Bytes of device memory that all of them hold.
    pub(crate) fn bytes(&self) -> usize {
        self.alive().iter().map(|output| output.bytes()).sum()
    }

    /// They may be dropped while they are looked at, which gives memory back: not under the lock.
    fn alive(&self) -> Vec<Arc<dyn HeldOutput>> {
        let outputs = self.0.lock();
        outputs.iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for HeldOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldOutputs({})", self.0.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Sized(AtomicUsize);

    impl HeldOutput for Sized {
        fn bytes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        fn move_to_host(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn the_oldest_go_first_and_those_that_were_read_are_forgotten() {
        let outputs = HeldOutputs::default();
        let held = [1, 2, 4].map(|bytes| Arc::new(Sized(AtomicUsize::new(bytes))));
        for output in &held {
            let output: Weak<Sized> = Arc::downgrade(output);
            outputs.add(output);
        }
        assert_eq!(outputs.bytes(), 7);
        assert_eq!((outputs.release(2), outputs.bytes()), (3, 4));
        drop(held);
        assert_eq!((outputs.release(usize::MAX), outputs.bytes()), (0, 0));
        outputs.add(Weak::<Sized>::new());
        assert_eq!(outputs.0.lock().len(), 1);
    }
}
