//! Running and recent queries: what the page, the metrics and the query log show, and where a query is cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

use crate::error::{ServeError, StartError, state};

/// Queries that are kept after their end.
const RECENT: usize = 100;

/// Most characters of a query's text that are kept.
const TEXT: usize = 4096;

/// Upper bounds of the classes of run times, in seconds.
pub(crate) const CLASSES: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// Why a query was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its client asked for it.
    Asked,
    /// Its client is gone.
    Gone,
    /// The server ends.
    Shutdown,
}

impl From<Stop> for ServeError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Asked => Self::new(
                state::QUERY_CANCELED,
                "canceling statement due to user request",
            ),
            Stop::Gone => Self::fatal(state::CONNECTION_FAILURE, "the client is gone"),
            Stop::Shutdown => Self::fatal(
                state::ADMIN_SHUTDOWN,
                "terminating connection since the server stops",
            ),
        }
    }
}

/// A query from its first step to its last row.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) user: Arc<str>,
    pub(crate) peer: String,
    pub(crate) protocol: &'static str,
    pub(crate) sql: String,
    pub(crate) began: SystemTime,
    pub(crate) start: Instant,
    /// When it got its place.
    pub(crate) admitted: OnceLock<Instant>,
    pub(crate) rows: AtomicU64,
    pub(crate) plan: OnceLock<Arc<dyn ExecutionPlan>>,
    stop: OnceLock<Stop>,
    stopped: Notify,
}

impl Entry {
    /// Tells the query to stop.
    pub(crate) fn cancel(&self, why: Stop) {
        if self.stop.set(why).is_ok() {
            self.stopped.notify_waiters();
        }
    }

    /// Waits until the query is told to stop.
    pub(crate) async fn stopped(&self) -> Stop {
        loop {
            let notified = self.stopped.notified();
            tokio::pin!(notified);
            // From here on no call is missed.
            notified.as_mut().enable();
            if let Some(why) = self.stop.get() {
                return *why;
            }
            notified.await;
        }
    }

    /// How long it waited for its place, so far.
    pub(crate) fn waited(&self) -> Duration {
        let until = self.admitted.get().copied().unwrap_or_else(Instant::now);
        until.duration_since(self.start)
    }
}

/// A query that is over.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) entry: Arc<Entry>,
    pub(crate) seconds: f64,
    /// `ok`, or the code of its error.
    pub(crate) outcome: &'static str,
    pub(crate) message: String,
}

/// Counts since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) queries: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) microseconds: AtomicU64,
    pub(crate) waited_microseconds: AtomicU64,
    pub(crate) classes: [AtomicU64; CLASSES.len()],
    pub(crate) connections: AtomicU64,
    pub(crate) open_connections: AtomicU64,
    pub(crate) failed_logins: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// All queries of a server.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    next: AtomicU64,
    running: Mutex<BTreeMap<u64, Arc<Entry>>>,
    recent: Mutex<VecDeque<Finished>>,
    pub(crate) counters: Counters,
    log: Option<Mutex<File>>,
}

impl Registry {
    /// With a log file, which is appended to.
    pub(crate) fn new(log: Option<&Path>) -> Result<Self, StartError> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(|error| StartError::File {
                path: path.to_path_buf(),
                cause: error.to_string(),
            })
        };
        Ok(Self {
            log: log.map(open).transpose()?.map(Mutex::new),
            ..Self::default()
        })
    }

    pub(crate) fn begin(
        &self,
        user: &Arc<str>,
        peer: &str,
        protocol: &'static str,
        sql: &str,
    ) -> Arc<Entry> {
        let mut text: String = sql.chars().take(TEXT).collect();
        if text.len() < sql.len() {
            text.push('…');
        }
        let entry = Arc::new(Entry {
            id: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            user: Arc::clone(user),
            peer: peer.to_string(),
            protocol,
            sql: text,
            began: SystemTime::now(),
            start: Instant::now(),
            admitted: OnceLock::new(),
            rows: AtomicU64::new(0),
            plan: OnceLock::new(),
            stop: OnceLock::new(),
            stopped: Notify::new(),
        });
        self.running.lock().insert(entry.id, Arc::clone(&entry));
        entry
    }

    pub(crate) fn finish(&self, entry: &Arc<Entry>, error: Option<&ServeError>) {
        if self.running.lock().remove(&entry.id).is_none() {
            return;
        }
        let took = entry.start.elapsed();
        let rows = entry.rows.load(Ordering::Relaxed);
        let finished = Finished {
            entry: Arc::clone(entry),
            seconds: took.as_secs_f64(),
            outcome: error.map_or("ok", |error| error.code),
            message: error.map_or_else(String::new, |error| error.message.clone()),
        };
        let counters = &self.counters;
        add(&counters.queries, 1);
        add(&counters.rows, rows);
        add(&counters.microseconds, took.as_micros() as u64);
        add(
            &counters.waited_microseconds,
            entry.waited().as_micros() as u64,
        );
        if let Some(class) = CLASSES.iter().position(|most| finished.seconds <= *most) {
            add(&counters.classes[class], 1);
        }
        match finished.outcome {
            "ok" => {}
            state::QUERY_CANCELED | state::ADMIN_SHUTDOWN | state::CONNECTION_FAILURE => {
                add(&counters.cancelled, 1);
            }
            _ => add(&counters.errors, 1),
        }
        self.write(&finished, rows);
        let mut recent = self.recent.lock();
        recent.push_front(finished);
        let kept = recent.len().min(RECENT);
        let evicted = recent.split_off(kept);
        drop(recent);
        // Plans may hold much: not under the lock.
        drop(evicted);
    }

    fn write(&self, finished: &Finished, rows: u64) {
        let entry = &finished.entry;
        log::info!(
            target: "warpline_serve::queries",
            "{} {} {} {:.3} s {rows} rows: {}",
            entry.id, entry.user, finished.outcome, finished.seconds, entry.sql
        );
        let Some(file) = &self.log else { return };
        let began = entry.began.duration_since(SystemTime::UNIX_EPOCH);
        let line = json!({
            "id": entry.id,
            "began": began.map_or(0.0, |began| began.as_secs_f64()),
            "user": &*entry.user,
            "peer": entry.peer,
            "protocol": entry.protocol,
            "seconds": finished.seconds,
            "waited": entry.waited().as_secs_f64(),
            "rows": rows,
            "outcome": finished.outcome,
            "message": finished.message,
            "sql": entry.sql,
        });
        if let Err(error) = file.lock().write_all(format!("{line}\n").as_bytes()) {
            log::warn!("the query log cannot be written: {error}");
        }
    }

    pub(crate) fn running(&self) -> Vec<Arc<Entry>> {
        self.running.lock().values().cloned().collect()
    }

    pub(crate) fn recent(&self) -> Vec<Finished> {
        self.recent.lock().iter().cloned().collect()
    }

    pub(crate) fn cancel_all(&self, why: Stop) {
        for entry in self.running() {
            entry.cancel(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancelled_query_hears_of_it_whenever_it_listens() {
        let registry = Registry::default();
        let entry = registry.begin(&"ada".into(), "here", "test", &"x".repeat(9999));
        assert!(entry.sql.ends_with('…'));
        let waiting = tokio::spawn({
            let entry = Arc::clone(&entry);
            async move { entry.stopped().await }
        });
        tokio::task::yield_now().await;
        registry.cancel_all(Stop::Shutdown);
        entry.cancel(Stop::Asked);
        assert_eq!(waiting.await.unwrap(), Stop::Shutdown);
        assert_eq!(entry.stopped().await, Stop::Shutdown);
        let error = ServeError::from(Stop::Shutdown);
        registry.finish(&entry, Some(&error));
        registry.finish(&entry, None);
        assert_eq!(registry.recent().len(), 1);
        assert!(registry.running().is_empty());
        assert_eq!(registry.counters.cancelled.load(Ordering::Relaxed), 1);
    }
}
