//! Threads that run statements, and somebody who waits for them no longer than so.

use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::{Builder, Runtime};

use super::statement::Failure;

/// Planning recurses deeply in builds without optimisation, and so do the expressions of some files.
const STACK_BYTES: usize = 64 << 20;

/// Threads with large stacks.
pub(super) struct Workers(Option<Runtime>);

impl Workers {
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs `work`, with a panic as an error. The limit holds for work that never waits as well, such as a nested loop: then
    /// its threads are left to themselves, and new ones take their place.
    ///
    /// # Errors
    /// No new threads.
    pub(super) fn within_time<T: Send + 'static>(
        &mut self,
        limit: Duration,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> io::Result<Result<T, Failure>> {
        let (sender, receiver) = channel();
        let work = async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            // Nobody waits any longer where it fails.
            let _ = sender.send(outcome.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))));
        };
        let task = match &self.0 {
            Some(runtime) => runtime.spawn(work),
            None => return Ok(Err(Failure::OutOfTime)),
        };
        match receiver.recv_timeout(limit) {
            Ok(outcome) => Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => Ok(Err(Failure::Panicked(String::new()))),
            Err(RecvTimeoutError::Timeout) => {
                task.abort();
                *self = Self::new()?;
                Ok(Err(Failure::OutOfTime))
            }
        }
    }

    /// Runs `work` however long it takes.
    ///
    /// # Errors
    /// Those of the work, or its panic.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = channel();
        if let Some(runtime) = &self.0 {
            runtime.spawn(async move { sender.send(work.await).ok() });
        }
        receiver.recv().map_err(io::Error::other)?
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Failure::Panicked(text.unwrap_or("no message").to_string())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn work_that_never_waits_is_left() {
        let mut workers = Workers::new().expect("threads");
        let limit = Duration::from_millis(50);
        for _ in 0..4 {
            let endless = async {
                // Longer than the test, on all threads there are.
                let busy = || tokio::spawn(async { thread::sleep(Duration::from_secs(3600)) });
                let _: [tokio::task::JoinHandle<()>; 2] = [busy(), busy()];
                thread::sleep(Duration::from_secs(3600));
                Ok(())
            };
            let outcome = workers.within_time(limit, endless).expect("threads");
            assert!(matches!(outcome, Err(Failure::OutOfTime)), "{outcome:?}");
        }
        let long = Duration::from_secs(600);
        let outcome = workers.within_time(long, async { Ok(7) });
        assert!(matches!(outcome, Ok(Ok(7))), "{outcome:?}");
        let panic = async { panic!("on purpose") };
        let outcome: io::Result<Result<(), _>> = workers.within_time(long, panic);
        let Ok(Err(Failure::Panicked(text))) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(text, "on purpose");
    }
}
