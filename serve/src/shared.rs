//! What all connections of a server share, whatever protocol they speak.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use datafusion::catalog::TableProvider;
use datafusion::execution::runtime_env::RuntimeEnv;
use tokio::sync::{Semaphore, watch};

use crate::admission::Admission;
use crate::auth::Users;
use crate::engine::Engine;
use crate::options::ServeOptions;
use crate::registry::Registry;
use crate::threads::QueryThreads;

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) options: ServeOptions,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) runtime: Arc<RuntimeEnv>,
    /// The tables of the folders, which every session gets.
    pub(crate) tables: Vec<(String, Arc<dyn TableProvider>)>,
    pub(crate) users: Option<Users>,
    pub(crate) registry: Registry,
    pub(crate) admission: Arc<Admission>,
    /// What queries are planned and run on.
    pub(crate) threads: QueryThreads,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) began: Instant,
    /// True once the server stops.
    pub(crate) stopping: watch::Receiver<bool>,
    /// How many there were, for their numbers.
    pub(crate) sessions: AtomicU64,
}

impl Shared {
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the server stops.
    pub(crate) async fn stopping(&self) {
        let mut stopping = self.stopping.clone();
        // The sender lives as long as the server.
        let _ = stopping.wait_for(|stop| *stop).await;
    }

    /// The tables alone, to know them from those of clients.
    pub(crate) fn providers(&self) -> Vec<Arc<dyn TableProvider>> {
        self.tables
            .iter()
            .map(|(_, table)| Arc::clone(table))
            .collect()
    }
}
