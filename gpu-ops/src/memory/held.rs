//! What holds device memory beyond a run and can do without it: outputs that are being read, which can go on in host memory, and lookup tables
//! of kept plans, which can be made again.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Holds device memory that it can give back.
pub(crate) trait Held: Send + Sync {
    /// Bytes of device memory that it holds and nobody uses at the moment.
    fn bytes(&self) -> usize;

    /// Do without device memory, if that is possible now; returns the bytes that go, now or with what still reads them.
    ///
    /// As a [`crate::memory::PressureHandler`] it waits for no lock that is held while device memory is allocated.
    fn give_back(&self) -> usize;
}

/// All of a kind on one device, as long as somebody else has them.
#[derive(Default)]
pub(crate) struct HeldList(Mutex<Vec<Weak<dyn Held>>>);

impl HeldList {
    /// One more, as long as somebody has it.
    pub(crate) fn add(&self, one: Weak<dyn Held>) {
        let mut all = self.0.lock();
        all.retain(|held| held.strong_count() > 0);
        all.push(one);
    }

    /// Give back about `bytes` bytes, those of the oldest first; returns the bytes that went.
    pub(crate) fn release(&self, bytes: usize) -> usize {
        let mut released = 0;
        for held in self.alive() {
            if released >= bytes {
                break;
            }
            released += held.give_back();
        }
        released
    }

    /// Bytes of device memory that all of them could give back.
    pub(crate) fn bytes(&self) -> usize {
        self.alive().iter().map(|held| held.bytes()).sum()
    }

    /// They may be dropped while they are looked at, which gives memory back: not under the lock.
    fn alive(&self) -> Vec<Arc<dyn Held>> {
        let all = self.0.lock();
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for HeldList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldList({})", self.0.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Sized(AtomicUsize);

    impl Held for Sized {
        fn bytes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        fn give_back(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn the_oldest_go_first_and_those_that_nobody_has_are_forgotten() {
        let list = HeldList::default();
        let held = [1, 2, 4].map(|bytes| Arc::new(Sized(AtomicUsize::new(bytes))));
        for one in &held {
            let one: Weak<Sized> = Arc::downgrade(one);
            list.add(one);
        }
        assert_eq!(list.bytes(), 7);
        assert_eq!((list.release(2), list.bytes()), (3, 4));
        drop(held);
        assert_eq!((list.release(usize::MAX), list.bytes()), (0, 0));
        list.add(Weak::<Sized>::new());
        assert_eq!(list.0.lock().len(), 1);
    }
}
