//! Threads on which fragments run: of those that are idle, the one that was busy last is asked first.
//!
//! A run asks for the memory that the run before gave back, and goes through the same code. An executor's threads for blocking work
//! take turns: on a machine of many cores each of the first dozens of runs would meet a thread whose allocator has no memory yet, and
//! a core that has seen nothing of it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{GpuError, Result};

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(10);
/// Plans are trees: whoever makes pipelines of them goes down as deep as they are.
const STACK_BYTES: usize = 32 << 20;

/// Work, which calls what it is given before it tells of its outcome: from then on the thread may be asked for more.
type Job = Box<dyn FnOnce(&dyn Fn()) + Send>;

/// An idle thread.
struct Idle {
    number: u64,
    jobs: Sender<Job>,
}

/// The thread that was busy last is the last one.
static IDLE_THREADS: Mutex<Vec<Idle>> = Mutex::new(Vec::new());
static THREADS: AtomicU64 = AtomicU64::new(0);

/// Do `work` on one of the threads, in the context of the executor at hand. It is done to its end also where nobody waits for it any
/// more.
///
/// # Errors
/// [`GpuError::Internal`] when it panics or no thread can be started.
pub(in crate::exec) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    let executor = Handle::current();
    start(Box::new(move |free| {
        let context = executor.enter();
        // What the work holds is gone with it: who has the outcome finds no memory held for it.
        let outcome = guarded(work);
        drop(context);
        free();
        // Where nobody waits for it, it is dropped here.
        let _ = sender.send(outcome);
    }))?;
    let gone = |_| GpuError::Internal("the thread of a device task is gone".into());
    receiver.await.map_err(gone)?
}

/// Do `work` on this thread; a panic is an error.
///
/// # Errors
/// [`GpuError::Internal`] when it panics.
pub(in crate::exec) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let why = message(panic.as_ref());
        GpuError::Internal(format!("the device task ended early: {why}"))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked")
}

/// Give the job to the thread that was busy last, or to a new one.
fn start(mut job: Job) -> Result<()> {
    loop {
        let idle = IDLE_THREADS.lock().pop();
        let Some(idle) = idle else { break };
        match idle.jobs.send(job) {
            Ok(()) => return Ok(()),
            // It ended; threads that do are not among the idle ones.
            Err(unsent) => job = unsent.0,
        }
    }
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    let (jobs, waiting) = channel();
    thread::Builder::new()
        .name("warpline run".into())
        .stack_size(STACK_BYTES)
        .spawn(move || serve(number, job, &jobs, &waiting))
        .map_err(|error| GpuError::Internal(format!("a thread for a run: {error}")))?;
    Ok(())
}

/// Do a job, and those that come within [`IDLE`] of the one before.
fn serve(number: u64, first: Job, jobs: &Sender<Job>, waiting: &Receiver<Job>) {
    let free = || {
        let jobs = jobs.clone();
        IDLE_THREADS.lock().push(Idle { number, jobs });
    };
    first(&free);
    loop {
        let job = match waiting.recv_timeout(IDLE) {
            Ok(job) => job,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let mut threads = IDLE_THREADS.lock();
                let before = threads.len();
                threads.retain(|thread| thread.number != number);
                if threads.len() < before {
                    return;
                }
                drop(threads);
                // Who took it from the list sends a job.
                match waiting.recv() {
                    Ok(job) => job,
                    Err(_) => return,
                }
            }
        };
        job(&free);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn work_one_after_the_other_meets_one_thread() {
        let here = || thread::current().id();
        let mut last = on_thread(here).await.unwrap();
        // Other tests may take it in between, and keep it for long.
        let mut met = false;
        for _ in 0..100 {
            let next = on_thread(here).await.unwrap();
            met |= next == last;
            last = next;
        }
        assert!(met);
        assert!(thread::current().id() != last);
    }

    #[tokio::test]
    async fn work_at_once_meets_several() {
        let barrier = Arc::new(Barrier::new(3));
        let work = || {
            let barrier = Arc::clone(&barrier);
            on_thread(move || barrier.wait().is_leader())
        };
        let (a, b, c) = tokio::join!(work(), work(), work());
        let leaders = [a, b, c].map(|leader| usize::from(leader.unwrap()));
        assert_eq!(leaders.iter().sum::<usize>(), 1);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_executor_is_at_hand() {
        let failed = on_thread(|| -> u32 { panic!("on purpose") }).await;
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("on purpose"), "{text}");
        let spawned = on_thread(|| Handle::current().spawn(async { 7 })).await;
        assert_eq!(spawned.unwrap().await.unwrap(), 7);
    }
}
