//! The threads that queries run on, and how a Python thread waits for them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::refused;

/// Planning recurses once per level of an expression or plan.
const STACK_BYTES: usize = 16 << 20;
/// Between two looks at signals.
const TICK: Duration = Duration::from_millis(50);
/// How long work that was cancelled may go on when the interpreter is about to end.
const LAST_WORK: Duration = Duration::from_secs(2);

/// The threads, and the process that they are of.
static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);

/// Where work is started.
///
/// A process forked from one that has threads gets none: they are not in it, but what they waited for is, and wakeups would be
/// lost (the table of waiting threads of `parking_lot` points into their stacks, which new threads are given).
///
/// # Errors
/// When no threads can be started, and in a process forked from one that has them.
pub(crate) fn handle() -> PyResult<Handle> {
    let process = std::process::id();
    let mut runtime = RUNTIME.lock();
    if let Some((owner, runtime)) = &*runtime {
        return match *owner == process {
            true => Ok(runtime.handle().clone()),
            false => Err(forked()),
        };
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let started = Builder::new_multi_thread()
        .enable_all()
        .worker_threads(cores.max(2))
        .thread_name("warpline")
        .thread_stack_size(STACK_BYTES)
        .build()
        .map_err(|error| {
            refused(format!(
                "cannot start threads: {error}; raise the limit on threads or memory"
            ))
        })?;
    let handle = started.handle().clone();
    *runtime = Some((process, started));
    Ok(handle)
}

/// Why a forked process is refused.
pub(crate) fn forked() -> PyErr {
    refused(
        "this process was forked from one that uses warpline, whose threads are not in it: start processes by \
         multiprocessing.get_context('spawn'), or fork before the first connection",
    )
}

/// Ends the threads with the interpreter: what still runs would call into what is gone.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) {
    let runtime = RUNTIME.lock().take();
    if let Some((owner, runtime)) = runtime {
        if owner == std::process::id() {
            // Work may wait for the interpreter before it can end.
            py.detach(|| runtime.shutdown_timeout(LAST_WORK));
        } else {
            std::mem::forget(runtime);
        }
    }
}

/// Is told, every quarter of a second, how long a statement has taken.
pub(crate) struct Progress {
    /// Called with the seconds.
    call: Py<PyAny>,
    /// Since the statement began.
    begun: Instant,
}

impl Progress {
    /// Of a statement that begins now.
    pub(crate) fn begins(call: Py<PyAny>) -> Self {
        Self {
            call,
            begun: Instant::now(),
        }
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for work, without the interpreter's lock. Ctrl-C ends the wait with `KeyboardInterrupt`: whoever drops the work then
/// cancels it.
///
/// # Errors
/// What a signal handler raises, and a wait within a function that a query calls.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    progress: Option<&Progress>,
    work: impl Future<Output = T> + Send,
) -> PyResult<T> {
    if Handle::try_current().is_ok() {
        return Err(refused(
            "a function that a query calls cannot wait for another query: run that one before, and use its result",
        ));
    }
    let handle = handle()?;
    let mut work = pin!(work);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut told = Instant::now();
    loop {
        // Not by a timer of the runtime: nobody looks after those while a thread of its computes without a pause.
        let step = py.detach(|| {
            let _entered = handle.enter();
            let mut context = Context::from_waker(&waker);
            let end = Instant::now() + TICK;
            loop {
                if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
                    return Some(done);
                }
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                std::thread::park_timeout(left);
            }
        });
        if let Some(done) = step {
            return Ok(done);
        }
        py.check_signals()?;
        if let Some(progress) = progress
            && told.elapsed() >= 5 * TICK
        {
            told = Instant::now();
            let seconds = progress.begun.elapsed().as_secs_f64();
            progress.call.call1(py, (seconds,))?;
        }
    }
}

/// Starts work and waits for it; it is cancelled when the wait ends early.
///
/// # Errors
/// Those of [`wait`], and a panic of the work.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Progress>,
    work: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let mut task = Task(handle()?.spawn(work));
    wait(py, progress, &mut task.0)?.map_err(ended)
}

/// Work that is cancelled when nobody waits for it any more.
pub(crate) struct Task<T>(pub(crate) tokio::task::JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn ended(error: tokio::task::JoinError) -> PyErr {
    refused(format!(
        "the work ended early: {error}; please report this with the query"
    ))
}
