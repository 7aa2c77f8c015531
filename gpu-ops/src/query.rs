//! The state of one query on a device: its cancel flag, and its share of the device's memory.
//!
//! Streams carry the flag of the query that they work for ([`crate::device::Stream`]), so a query that was stopped queues
//! nothing more, however deep the code that tries. Threads that work for a query enter it: buffers that they allocate count
//! as its memory, and where memory is short they wait in its name.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::device::{CancelFlag, StopSignal};
use crate::error::Result;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Query>>> = const { RefCell::new(None) };
}

/// Numbers are given in the order in which queries begin.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What is known of a query from its beginning to its end. Sizes are in bytes.
#[derive(Debug)]
pub struct Query {
    /// Whether it goes on; its streams have it too.
    cancel: Arc<CancelFlag>,
    /// Held by buffers made for it. Others may free them.
    held: AtomicI64,
    peak: AtomicI64,
    /// What was held when its last run began to make results, …
    before_results: AtomicI64,
    /// … the most since then, …
    with_results: AtomicI64,
    /// … and what that run uses of results that are kept between queries.
    adopted: AtomicI64,
    waits: AtomicU64,
    evictions: AtomicU64,
}

impl Query {
    /// A query that begins now; when it is stopped, kernels that run for it come to their end.
    pub fn begin() -> Arc<Self> {
        Self::begin_with(None)
    }

    /// A query that begins now, whose kernels learn by this signal that it was stopped.
    pub(crate) fn begin_with(signal: Option<Arc<dyn StopSignal>>) -> Arc<Self> {
        Arc::new(Self {
            cancel: CancelFlag::new(NEXT.fetch_add(1, Ordering::Relaxed), signal),
            held: AtomicI64::new(0),
            peak: AtomicI64::new(0),
            before_results: AtomicI64::new(0),
            with_results: AtomicI64::new(0),
            adopted: AtomicI64::new(0),
            waits: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// Older queries have smaller numbers.
    pub(crate) fn number(&self) -> u64 {
        self.cancel.number()
    }

    /// Whether it goes on, for the streams that work for it.
    pub(crate) fn cancel(&self) -> &Arc<CancelFlag> {
        &self.cancel
    }

    /// Nothing more is queued for it from now on, and kernels on the device that could take long leave soon.
    pub fn stop(&self) {
        self.cancel.stop();
    }

    /// Does it go on?
    ///
    /// # Errors
    /// [`crate::GpuError::Stopped`] when it does not.
    pub fn check(&self) -> Result<()> {
        self.cancel.check()
    }

    /// The most bytes that buffers made for it held at one time, among them columns that it made resident.
    pub fn peak(&self) -> usize {
        usize::try_from(self.peak.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// A run begins to make its results: what is held by now is for columns.
    pub(crate) fn begin_results(&self) {
        let held = self.held.load(Ordering::Relaxed);
        self.before_results.store(held, Ordering::Relaxed);
        self.with_results.store(held, Ordering::Relaxed);
        self.adopted.store(0, Ordering::Relaxed);
    }

    /// The run uses so many bytes of results that are kept between queries.
    pub(crate) fn adopt(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.adopted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The most bytes that results held at one time since [`Query::begin_results`], those that were adopted among them.
    pub(crate) fn results_peak(&self) -> usize {
        let load = |bytes: &AtomicI64| bytes.load(Ordering::Relaxed);
        let made = load(&self.with_results) - load(&self.before_results);
        usize::try_from(made + load(&self.adopted)).unwrap_or(0)
    }

    /// Times that it waited for memory of others.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Times that something kept for later queries was let go of for it.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    pub(crate) fn count_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_eviction(&self) {
        self.evictions.fetch_add(1, Ordering::Relaxed);
    }

    /// A buffer was made for it.
    pub(crate) fn charge(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(held, Ordering::Relaxed);
        self.with_results.fetch_max(held, Ordering::Relaxed);
    }

    /// A buffer that was made for it is gone.
    pub(crate) fn credit(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// This thread works for the query until the guard is dropped, then for whom it worked before.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        let before = CURRENT.replace(Some(Arc::clone(self)));
        Entered { before }
    }

    /// The query that this thread works for.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }
}

/// See [`Query::enter`].
#[must_use]
pub(crate) struct Entered {
    before: Option<Arc<Query>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

/// Stops a query when it is dropped: for the future whose end nobody waits for any more.
#[derive(Debug)]
pub(crate) struct StopOnDrop(pub(crate) Arc<Query>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::GpuError;

    #[test]
    fn threads_work_for_the_query_that_they_entered() {
        let (outer, inner) = (Query::begin(), Query::begin());
        assert!(outer.number() < inner.number());
        let current = || Query::current().map(|query| query.number());
        assert_eq!(current(), None);
        {
            let _outer = outer.enter();
            assert_eq!(current(), Some(outer.number()));
            {
                let _inner = inner.enter();
                assert_eq!(current(), Some(inner.number()));
            }
            assert_eq!(current(), Some(outer.number()));
            let elsewhere = std::thread::spawn(|| Query::current().is_none());
            assert!(elsewhere.join().unwrap());
        }
        assert_eq!(current(), None);
    }

    #[test]
    fn memory_is_counted_at_its_height() {
        let query = Query::begin();
        query.charge(100);
        query.charge(50);
        query.credit(100);
        query.charge(20);
        assert_eq!(query.peak(), 150);
        query.charge(100);
        assert_eq!(query.peak(), 170);
        query.begin_results();
        assert_eq!(query.results_peak(), 0);
        query.credit(70);
        query.charge(90);
        query.credit(50);
        assert_eq!((query.results_peak(), query.peak()), (20, 190));
        query.adopt(7);
        assert_eq!(query.results_peak(), 27);
        query.begin_results();
        assert_eq!(query.results_peak(), 0);
    }

    #[test]
    fn a_stopped_query_does_not_go_on() {
        let query = Query::begin();
        query.check().unwrap();
        drop(StopOnDrop(Arc::clone(&query)));
        assert!(matches!(query.check(), Err(GpuError::Stopped)));
    }
}
