//! What a server is started with.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::remote::StoreFolder;

/// Addresses, folders, users and limits of a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where PostgreSQL clients connect; port 0 takes a free one.
    pub postgres: Option<SocketAddr>,
    /// Where Flight SQL clients connect.
    pub flight: Option<SocketAddr>,
    /// Where `/metrics`, `/health` and the page are.
    pub http: Option<SocketAddr>,
    /// Folders whose files are tables, and the only files that clients reach.
    pub data: Vec<PathBuf>,
    /// The same in object stores.
    pub stores: Vec<StoreFolder>,
    /// The file of users; without one nobody is asked for a password.
    pub auth: Option<PathBuf>,
    /// Certificate chain and private key, PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Listen beyond loopback without users or without TLS.
    pub insecure: bool,
    /// Most connections at a time, of each protocol.
    pub max_connections: usize,
    /// Most queries that run at a time.
    pub max_queries: usize,
    /// Most queries that wait for their turn.
    pub max_queued: usize,
    /// How long a query waits for its turn.
    pub queue_timeout: Duration,
    /// How long a client may take to read what is sent to it.
    pub send_timeout: Duration,
    /// How long running queries may go on when the server stops.
    pub drain_timeout: Duration,
    /// Limits of every user who has none of their own.
    pub limits: Limits,
    /// A file to which each query is written as a line of JSON.
    pub query_log: Option<PathBuf>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            postgres: None,
            flight: None,
            http: None,
            data: vec![],
            stores: vec![],
            auth: None,
            tls: None,
            insecure: false,
            max_connections: 128,
            max_queries: default_queries(),
            max_queued: 256,
            queue_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            limits: Limits::default(),
            query_log: None,
        }
    }
}

/// Most queries at a time where nobody says otherwise: twice as many as cores, since while one waits for a device, another is
/// planned and a third sends its rows.
pub fn default_queries() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    (2 * cores).max(8)
}

/// What one user may take; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// How long a query may run, from its first step to its last row.
    pub time: Option<Duration>,
    /// Most rows of an answer.
    pub rows: Option<u64>,
    /// Most queries that run at a time.
    pub queries: Option<usize>,
}

impl Limits {
    /// These, where they say something, and else those of `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            time: self.time.or(other.time),
            rows: self.rows.or(other.rows),
            queries: self.queries.or(other.queries),
        }
    }
}
