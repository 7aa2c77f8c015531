//! Threads of queries, apart from those of connections.
//!
//! A query may compute for long without a pause. On threads of its own it keeps nobody from being heard: connections, cancels,
//! deadlines, the page and the signal to stop.

use std::io;
use std::num::NonZeroUsize;

use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::error::{Result, ServeError};

/// Planning recurses once per level of an expression or plan, and deeply so in builds without optimisation.
const STACK_BYTES: usize = 16 << 20;

/// As many threads as there are cores.
pub(crate) struct QueryThreads(Option<Runtime>);

impl QueryThreads {
    /// # Errors
    /// When threads cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let runtime = Builder::new_multi_thread()
            .thread_name("query")
            .worker_threads(cores.max(2))
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<JoinSet<T>> {
        let ended = || ServeError::from(crate::registry::Stop::Shutdown);
        let runtime = self.0.as_ref().ok_or_else(ended)?;
        let mut task = JoinSet::new();
        task.spawn_on(work, runtime.handle());
        Ok(task)
    }

    /// Does the work on these threads. It stops when whoever waits for it goes away; its panic is an error.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut task = self.spawn(work)?;
        match task.join_next().await {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) => Err(failed(error)),
            None => Err(ServeError::panicked(&"no task")),
        }
    }

    /// The batches of a stream that is read on these threads, one ahead of whoever takes them.
    pub(crate) fn batches(&self, stream: SendableRecordBatchStream) -> Result<Batches> {
        let (sender, receiver) = mpsc::channel(1);
        let task = self.spawn(async move {
            let mut stream = stream;
            while let Some(batch) = stream.next().await {
                if sender.send(batch.map_err(ServeError::from)).await.is_err() {
                    return;
                }
            }
        })?;
        Ok(Batches { receiver, task })
    }
}

impl Drop for QueryThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Whoever drops it may be a task, which must not wait for others.
            runtime.shutdown_background();
        }
    }
}

/// What a query yields; dropped, the query stops.
pub(crate) struct Batches {
    receiver: mpsc::Receiver<Result<RecordBatch>>,
    task: JoinSet<()>,
}

impl Batches {
    /// The next batch; `None` after the last one. A panic of the query is an error.
    pub(crate) async fn next(&mut self) -> Option<Result<RecordBatch>> {
        if let Some(batch) = self.receiver.recv().await {
            return Some(batch);
        }
        match self.task.join_next().await {
            Some(Err(error)) => Some(Err(failed(error))),
            Some(Ok(())) | None => None,
        }
    }
}

fn failed(error: JoinError) -> ServeError {
    match error.try_into_panic() {
        Ok(panic) => ServeError::panicked(panic.as_ref()),
        // Only the end of the threads themselves stops a task that somebody waits for.
        Err(_) => crate::registry::Stop::Shutdown.into(),
    }
}
