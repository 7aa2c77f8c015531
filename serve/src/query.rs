//! One query from its text or plan to its last batch: place in the queue, limits, cancellation.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::sql::sqlparser::ast::Statement;
use futures::FutureExt;
use tokio::time::Instant;

use crate::admission::Permit;
use crate::client::Client;
use crate::engine::Planned;
use crate::error::{Result, ServeError, state};
use crate::policy;
use crate::registry::{Entry, Stop};
use crate::threads::Batches;

/// What is to run.
pub(crate) enum Work {
    /// A query that nobody has planned yet, which is known to be for clients.
    Query(Box<Statement>),
    /// A query by its text, whose plan may be that of an earlier one; the plan is for when the engine keeps none.
    Text(String, Box<LogicalPlan>),
    /// A plan, with its parameters filled in.
    Plan(Box<LogicalPlan>),
}

/// A query that runs; dropped, it stops and gives back what it holds.
pub(crate) struct Rows {
    schema: SchemaRef,
    stream: Option<Batches>,
    client: Arc<Client>,
    entry: Arc<Entry>,
    permit: Option<Permit>,
    deadline: Option<Instant>,
    finished: Option<Box<dyn FnOnce() + Send>>,
}

impl Client {
    /// Waits for a place and starts the query.
    pub(crate) async fn start(self: &Arc<Self>, sql: &str, work: Work) -> Result<Rows> {
        let entry = self
            .server
            .registry
            .begin(&self.user_name(), &self.peer, self.protocol, sql);
        *self.current.lock() = Some(Arc::downgrade(&entry));
        let time = [self.limits.time, self.statement_timeout()];
        let time = time.into_iter().flatten().min();
        let mut begun = Begun {
            client: self,
            entry: &entry,
            over: false,
        };
        let outcome = self.begin(&entry, work, time).await;
        begun.over = true;
        if let Err(error) = &outcome {
            self.server.registry.finish(&entry, Some(error));
        }
        outcome
    }

    async fn begin(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        work: Work,
        time: Option<Duration>,
    ) -> Result<Rows> {
        let place = self.server.admission.enter(self.asker());
        let permit = until(entry, None, place).await??;
        let _ = entry.admitted.set(std::time::Instant::now());
        let deadline = time.map(|time| Instant::now() + time);
        let threads = &self.server.threads;
        let client = Arc::clone(self);
        let of = Arc::clone(entry);
        let begun = threads.run(async move {
            let planned = client.plan(&of.sql, work).await?;
            let stream = execute_stream(Arc::clone(&planned.plan), Arc::clone(&planned.task))?;
            Ok((planned, stream))
        });
        let (planned, stream) = until(entry, deadline, begun).await??;
        let _ = entry.plan.set(planned.plan);
        Ok(Rows {
            schema: stream.schema(),
            stream: Some(threads.batches(stream)?),
            client: Arc::clone(self),
            entry: Arc::clone(entry),
            permit: Some(permit),
            deadline,
            finished: Some(planned.finished),
        })
    }

    async fn plan(self: &Arc<Self>, sql: &str, work: Work) -> Result<Planned> {
        match work {
            Work::Query(statement) => {
                // Its first run was looked at as below, and others of the text may do what that one did.
                if let Some(kept) = Arc::clone(&self.session).kept(sql).await? {
                    return Ok(kept);
                }
                let logical = policy::planned(self, &statement).await?;
                self.plan_text(sql, logical).await
            }
            Work::Text(text, logical) => self.plan_text(&text, *logical).await,
            Work::Plan(logical) => self.plan_logical(sql, *logical).await,
        }
    }

    async fn plan_text(&self, sql: &str, logical: LogicalPlan) -> Result<Planned> {
        match Arc::clone(&self.session).plan(sql).await? {
            Some(planned) => Ok(planned),
            None => self.plan_logical(sql, logical).await,
        }
    }

    async fn plan_logical(&self, sql: &str, logical: LogicalPlan) -> Result<Planned> {
        let session = Arc::clone(&self.session);
        Ok(session.plan_logical(sql, logical).await?)
    }
}

/// A query that has no rows yet. Whoever waits for it may go away.
struct Begun<'a> {
    client: &'a Client,
    entry: &'a Arc<Entry>,
    over: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.over {
            let error = Stop::Gone.into();
            self.client.server.registry.finish(self.entry, Some(&error));
        }
    }
}

/// Waits for some work of a query, but no longer than the query may run. A panic is an error.
async fn until<T>(
    entry: &Entry,
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T> {
    let late = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        why = entry.stopped() => Err(why.into()),
        () = late => Err(ServeError::new(
            state::QUERY_CANCELED,
            "canceling statement due to statement timeout",
        )),
        outcome = AssertUnwindSafe(work).catch_unwind() => {
            outcome.map_err(|panic| ServeError::panicked(panic.as_ref()))
        }
    }
}

impl Rows {
    /// The schema of its batches.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The entry, by which it is cancelled.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The next rows; `None` after the last ones. After an error there are no more.
    pub(crate) async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let stream = self.stream.as_mut()?;
        let batch = match until(&self.entry, self.deadline, stream.next()).await {
            Ok(Some(Ok(batch))) => batch,
            Ok(None) => {
                self.end(None);
                return None;
            }
            Ok(Some(Err(error))) => return Some(Err(self.end_with(error))),
            Err(error) => return Some(Err(self.end_with(error))),
        };
        let added = batch.num_rows() as u64;
        let rows = self.entry.rows.fetch_add(added, Ordering::Relaxed) + added;
        if let Some(most) = self.client.limits.rows
            && rows > most
        {
            let error = ServeError::new(
                state::LIMIT_EXCEEDED,
                format!("the answer has more than {most} rows, which is this user's limit"),
            );
            return Some(Err(self.end_with(error)));
        }
        Some(Ok(batch))
    }

    fn end_with(&mut self, error: ServeError) -> ServeError {
        self.end(Some(&error));
        error
    }

    fn end(&mut self, error: Option<&ServeError>) {
        self.stream = None;
        self.permit = None;
        if let Some(finished) = self.finished.take()
            && error.is_none()
        {
            finished();
        }
        self.client.server.registry.finish(&self.entry, error);
    }

    /// Gives its place to others while nobody reads.
    pub(crate) fn park(&mut self) {
        self.permit = None;
    }

    /// Takes a place again.
    pub(crate) async fn resume(&mut self) -> Result<()> {
        if self.permit.is_none() && self.stream.is_some() {
            let place = self.client.server.admission.enter(self.client.asker());
            self.permit = Some(until(&self.entry, self.deadline, place).await??);
            *self.client.current.lock() = Some(Arc::downgrade(&self.entry));
        }
        Ok(())
    }

    /// Waits for something on the client's side, but no longer than it may take, nor longer than the query may go on.
    pub(crate) async fn send<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let patience = self.client.server.options.send_timeout;
        match until(&self.entry, None, tokio::time::timeout(patience, work)).await? {
            Ok(sent) => Ok(sent),
            Err(_) => Err(ServeError::fatal(
                state::CONNECTION_FAILURE,
                format!("the client read nothing for {} s", patience.as_secs()),
            )),
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // Its client closed the portal, or went away.
        if self.stream.is_some() {
            self.end(Some(&Stop::Asked.into()));
        }
    }
}
