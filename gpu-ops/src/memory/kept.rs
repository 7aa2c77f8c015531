//! Results kept in device memory between queries, with least-recently-used eviction.

use std::any::Any;
use std::fmt;

use parking_lot::Mutex;

/// A result of one query that a later one may use.
pub(crate) trait KeptResult: Any + fmt::Debug + Send + Sync {
    /// Bytes of device memory that go when it does.
    fn bytes(&self) -> usize;

    /// Does no query use it now?
    fn is_idle(&self) -> bool;
}

/// The results that are kept on a device; the one used last is the last.
#[derive(Debug, Default)]
pub(crate) struct KeptResults {
    kept: Mutex<Vec<Box<dyn KeptResult>>>,
}

impl KeptResults {
    /// What `pick` takes of the first result that it accepts.
    pub(crate) fn find<T: KeptResult, R>(&self, pick: impl Fn(&T) -> Option<R>) -> Option<R> {
        let mut kept = self.kept.lock();
        let found = kept.iter().enumerate().find_map(|(at, result)| {
            let picked = as_type::<T>(result.as_ref()).and_then(&pick)?;
            Some((at, picked))
        });
        let (at, picked) = found?;
        let used = kept.remove(at);
        kept.push(used);
        Some(picked)
    }

    /// Keep a result that all queued work has finished with, and of those of its type only the ones that `stays` accepts.
    pub(crate) fn keep<T: KeptResult>(&self, result: T, stays: impl Fn(&T) -> bool) {
        let mut kept = self.kept.lock();
        kept.retain(|other| as_type::<T>(other.as_ref()).is_none_or(&stays));
        kept.push(Box::new(result));
    }

    /// Let go of about `bytes` bytes that nobody uses, least recently used first; returns how many there were. A result that is in
    /// use frees nothing, and the next query would have to make it again.
    pub(crate) fn release(&self, bytes: usize) -> usize {
        let mut released = 0;
        let mut gone = Vec::new();
        let mut kept = self.kept.lock();
        let mut at = 0;
        while released < bytes && at < kept.len() {
            if kept[at].is_idle() {
                let result = kept.remove(at);
                released += result.bytes();
                gone.push(result);
            } else {
                at += 1;
            }
        }
        drop(kept);
        released
    }

    /// Let go of all of them, those in use as soon as they are not; returns their bytes.
    pub(crate) fn clear(&self) -> usize {
        let gone = std::mem::take(&mut *self.kept.lock());
        gone.iter().map(|result| result.bytes()).sum()
    }

    /// Bytes of those that nobody uses.
    pub(crate) fn idle_bytes(&self) -> usize {
        let kept = self.kept.lock();
        let idle = kept.iter().filter(|result| result.is_idle());
        idle.map(|result| result.bytes()).sum()
    }

    /// How many are kept, and their bytes.
    pub(crate) fn held(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.len(), kept.iter().map(|result| result.bytes()).sum())
    }
}

/// The result, if it is of this type.
fn as_type<T: KeptResult>(result: &dyn KeptResult) -> Option<&T> {
    let result: &dyn Any = result;
    result.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Sized {
        bytes: usize,
        idle: bool,
    }

    impl KeptResult for Sized {
        fn bytes(&self) -> usize {
            self.bytes
        }

        fn is_idle(&self) -> bool {
            self.idle
        }
    }

    #[test]
    fn what_was_used_last_goes_last_and_what_is_used_stays() {
        let results = KeptResults::default();
        let found =
            |bytes: usize| results.find(|kept: &Sized| (kept.bytes == bytes).then_some(kept.bytes));
        for (bytes, idle) in [(1, true), (2, false), (4, true), (8, true)] {
            results.keep(Sized { bytes, idle }, |_| true);
        }
        assert_eq!((results.held(), results.idle_bytes()), ((4, 15), 13));
        assert_eq!(found(1), Some(1));
        assert_eq!(results.release(3), 4);
        assert_eq!((found(4), found(1)), (None, Some(1)));
        results.keep(
            Sized {
                bytes: 16,
                idle: true,
            },
            |kept| kept.bytes != 8,
        );
        assert_eq!(results.held(), (3, 19));
        assert_eq!(results.release(usize::MAX), 17);
        assert_eq!(results.clear(), 2);
    }
}
