//! How long the kernels of a plan take to be there, as far as this process has seen.

use parking_lot::Mutex;

/// What a kernel is thought to take before any was compiled, in milliseconds: as NVRTC takes where many are compiled at once.
const UNSEEN_MS: f64 = 150.0;

/// How much of the estimate the last kernel is.
const LAST: f64 = 0.2;

/// The average time of the last kernels that plans asked for: some 150 ms where the compiler runs, a few where they are found on disk,
/// none where they are in memory already.
#[derive(Debug)]
pub(crate) struct ModuleTimes(Mutex<f64>);

impl Default for ModuleTimes {
    fn default() -> Self {
        Self(Mutex::new(UNSEEN_MS))
    }
}

impl ModuleTimes {
    /// A kernel took so many milliseconds.
    pub(super) fn note(&self, milliseconds: f64) {
        let mut average = self.0.lock();
        *average += (milliseconds - *average) * LAST;
    }

    /// Milliseconds that the next one is expected to take.
    pub(crate) fn expected(&self) -> f64 {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_kernels_count() {
        let times = ModuleTimes::default();
        for _ in 0..20 {
            times.note(2.0);
        }
        assert!(times.expected() < 5.0, "{times:?}");
        times.note(200.0);
        assert!(times.expected() > 40.0, "{times:?}");
    }
}
