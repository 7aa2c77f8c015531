//! How long the kernels of a plan take to be there, as far as this process has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Runtime;

/// What a kernel is thought to take before any was compiled, in milliseconds: as NVRTC takes where many are compiled at once, …
const UNSEEN_MS: f64 = 150.0;

/// … and where earlier processes have left kernels on disk, of which most are those that are asked for again.
const FROM_DISK_MS: f64 = 5.0;

/// How much of the estimate the last kernel is.
const LAST: f64 = 0.2;

/// The average time of the last kernels that plans asked for: some 150 ms where the compiler runs, a few where they are found on disk,
/// none where they are in memory already. Beside a CPU plan, to which the compiler leaves the cores, they take several times as long: that
/// says nothing of how long they would have taken without, and that is what decides whether there is a race.
#[derive(Debug)]
pub(crate) struct ModuleTimes {
    average: Mutex<f64>,
    /// Runs of the device that began beside a CPU plan.
    races: AtomicUsize,
}

impl ModuleTimes {
    /// None seen yet. `on_disk`: earlier processes have left some.
    pub(super) fn new(on_disk: bool) -> Self {
        Self {
            average: Mutex::new(if on_disk { FROM_DISK_MS } else { UNSEEN_MS }),
            races: AtomicUsize::new(0),
        }
    }
}

/// A run of the device that began beside a CPU plan, until it is dropped.
#[derive(Debug)]
pub(crate) struct Raced(Arc<Runtime>);

impl Raced {
    /// Begins now.
    pub(crate) fn new(runtime: &Arc<Runtime>) -> Self {
        let races = &runtime.module_times.races;
        races.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(runtime))
    }
}

impl Drop for Raced {
    fn drop(&mut self) {
        self.0.module_times.races.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ModuleTimes {
    /// A kernel took so many milliseconds.
    pub(super) fn note(&self, milliseconds: f64) {
        let mut average = self.average.lock();
        if milliseconds > *average && self.races.load(Ordering::Relaxed) > 0 {
            return;
        }
        *average += (milliseconds - *average) * LAST;
    }

    /// Milliseconds that the next one is expected to take.
    pub(crate) fn expected(&self) -> f64 {
        *self.average.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_kernels_count() {
        let times = ModuleTimes::new(false);
        for _ in 0..20 {
            times.note(2.0);
        }
        assert!(times.expected() < 5.0, "{times:?}");
        times.note(200.0);
        assert!(times.expected() > 40.0, "{times:?}");
    }

    #[test]
    fn kernels_on_disk_are_expected_until_they_are_not_there() {
        let times = ModuleTimes::new(true);
        assert_eq!(times.expected(), FROM_DISK_MS);
        for _ in 0..10 {
            times.note(UNSEEN_MS);
        }
        assert!(times.expected() > 0.8 * UNSEEN_MS, "{times:?}");
    }

    #[test]
    fn what_took_long_beside_a_cpu_plan_does_not_count() {
        let times = ModuleTimes::new(false);
        times.races.store(1, Ordering::Relaxed);
        times.note(10.0 * UNSEEN_MS);
        assert_eq!(times.expected(), UNSEEN_MS);
        times.note(0.0);
        assert!(times.expected() < UNSEEN_MS);
        times.races.store(0, Ordering::Relaxed);
        times.note(10.0 * UNSEEN_MS);
        assert!(times.expected() > UNSEEN_MS);
    }
}
