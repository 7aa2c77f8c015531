//! The kernels that decode parquet pages: compiled once a device, by a thread of their own, so that a load may do without them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::parquet::Kernels;

/// The kernels of one device.
#[derive(Default)]
pub(super) struct ParquetKernels {
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    /// A thread compiles them, or loads them from disk.
    Coming,
    Ready(Arc<Kernels>),
    /// For whoever waits first; the next one tries again.
    Failed(GpuError),
}

impl ParquetKernels {
    /// Are they there already?
    pub(super) fn are_loaded(&self) -> bool {
        matches!(*self.state.lock(), State::Ready(_))
    }

    /// They are about to be needed. True where nobody had said so or asked for them before.
    pub(super) fn expect(self: &Arc<Self>, device: &Arc<dyn Device>) -> bool {
        let mut state = self.state.lock();
        let is_first = matches!(*state, State::Unknown);
        if is_first && self.start(Arc::clone(device)).is_ok() {
            *state = State::Coming;
        }
        is_first
    }

    /// The kernels; `None` when they are not there within `patience`. They come all the same then. Blocks.
    ///
    /// # Errors
    /// [`GpuError::Compile`] and [`GpuError::Device`].
    pub(super) fn get(
        self: &Arc<Self>,
        device: &Arc<dyn Device>,
        patience: Option<Duration>,
    ) -> Result<Option<Arc<Kernels>>> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut state = self.state.lock();
        loop {
            match std::mem::take(&mut *state) {
                State::Ready(kernels) => {
                    *state = State::Ready(Arc::clone(&kernels));
                    return Ok(Some(kernels));
                }
                State::Failed(error) => return Err(error),
                State::Unknown => {
                    self.start(Arc::clone(device))?;
                    *state = State::Coming;
                }
                State::Coming => *state = State::Coming,
            }
            match deadline {
                None => self.settled.wait(&mut state),
                Some(deadline) => {
                    if self.settled.wait_until(&mut state, deadline).timed_out()
                        && matches!(*state, State::Coming)
                    {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn start(self: &Arc<Self>, device: Arc<dyn Device>) -> Result<()> {
        let own = Arc::clone(self);
        let compile = move || {
            let compiled = AssertUnwindSafe(|| Kernels::compile(device.as_ref()));
            // Nobody may wait for a thread that has ended.
            let outcome = catch_unwind(compiled)
                .unwrap_or_else(|_| Err(GpuError::Internal("compiling kernels panicked".into())));
            *own.state.lock() = match outcome {
                Ok(kernels) => State::Ready(Arc::new(kernels)),
                Err(error) => State::Failed(error),
            };
            own.settled.notify_all();
        };
        let thread = thread::Builder::new().name("warpline kernels".into());
        match thread.spawn(compile) {
            Ok(_) => Ok(()),
            Err(error) => Err(GpuError::Internal(format!("no thread starts: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::device::emulated::EmulatedDevice;

    #[test]
    fn who_does_not_wait_gets_none_and_who_waits_gets_the_same_kernels() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let kernels = Arc::new(ParquetKernels::default());
        assert!(!kernels.are_loaded());
        assert!(
            kernels
                .get(&device, Some(Duration::ZERO))
                .unwrap()
                .is_none()
        );
        let both: Vec<_> = thread::scope(|scope| {
            let waiting = [(); 2].map(|()| scope.spawn(|| kernels.get(&device, None).unwrap()));
            let waited = waiting.map(|thread| thread.join().unwrap().unwrap());
            waited.into_iter().collect()
        });
        assert!(Arc::ptr_eq(&both[0], &both[1]) && kernels.are_loaded());
    }
}
