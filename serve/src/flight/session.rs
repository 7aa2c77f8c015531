//! Who asks: users by password or token, and a session for each token or, where nobody logs in, for each connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::statement::Statement;
use crate::auth::{User, name_and_password};
use crate::client::Client;
use crate::error::{ServeError, state};
use crate::registry::{Entry, add};
use crate::scram;
use crate::shared::Shared;

/// How long a session or a token lasts that nobody uses.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// How often idle ones are looked for.
const LOOK: Duration = Duration::from_secs(60);

/// Most statements that a session keeps.
const MOST_STATEMENTS: usize = 1000;

/// Sessions and tokens.
pub(super) struct Sessions {
    server: Arc<Shared>,
    inner: Mutex<Inner>,
}

struct Inner {
    sessions: HashMap<String, Arc<Session>>,
    tokens: HashMap<String, Token>,
    looked: Instant,
}

struct Token {
    user: Arc<User>,
    used: Instant,
}

/// A client's session with its statements.
pub(super) struct Session {
    pub(super) client: Arc<Client>,
    used: Mutex<Instant>,
    statements: Mutex<Statements>,
    /// Queries that run, by their statements' handles.
    running: Mutex<HashMap<String, Weak<Entry>>>,
}

#[derive(Default)]
struct Statements {
    by_handle: HashMap<String, Arc<Statement>>,
    /// Handles in the order in which they came.
    order: Vec<String>,
}

impl Session {
    /// Keeps a statement, and returns its handle. Of too many the oldest goes.
    pub(super) fn keep(&self, statement: Arc<Statement>) -> String {
        let handle = token();
        let mut statements = self.statements.lock();
        while statements.order.len() >= MOST_STATEMENTS {
            let oldest = statements.order.remove(0);
            statements.by_handle.remove(&oldest);
        }
        statements.order.push(handle.clone());
        statements.by_handle.insert(handle.clone(), statement);
        handle
    }

    pub(super) fn find(&self, handle: &str) -> Result<Arc<Statement>, Status> {
        let statements = self.statements.lock();
        statements.by_handle.get(handle).cloned().ok_or_else(|| {
            Status::not_found(
                "there is no such statement: it was closed, or it is another session's",
            )
        })
    }

    pub(super) fn forget(&self, handle: &str) {
        let mut statements = self.statements.lock();
        statements.by_handle.remove(handle);
        statements.order.retain(|other| other != handle);
    }

    pub(super) fn runs(&self, handle: &str, entry: &Arc<Entry>) {
        let mut running = self.running.lock();
        running.retain(|_, entry| entry.strong_count() > 0);
        running.insert(handle.to_string(), Arc::downgrade(entry));
    }

    pub(super) fn running(&self, handle: &str) -> Option<Arc<Entry>> {
        self.running.lock().get(handle).and_then(Weak::upgrade)
    }
}

impl Sessions {
    pub(super) fn new(server: Arc<Shared>) -> Self {
        Self {
            server,
            inner: Mutex::new(Inner {
                sessions: HashMap::new(),
                tokens: HashMap::new(),
                looked: Instant::now(),
            }),
        }
    }

    pub(super) fn server(&self) -> &Arc<Shared> {
        &self.server
    }

    /// A token for the user whose name and password the request has.
    pub(super) async fn log_in(&self, metadata: &MetadataMap) -> Result<Option<String>, Status> {
        if self.server.users.is_none() {
            return Ok(None);
        }
        let (name, password) = basic(metadata).ok_or_else(missing)?;
        let user = self.check(name, password).await?;
        let token = token();
        let used = Instant::now();
        let kept = Token { user, used };
        self.inner.lock().tokens.insert(token.clone(), kept);
        Ok(Some(token))
    }

    async fn check(&self, name: String, password: String) -> Result<Arc<User>, Status> {
        let server = Arc::clone(&self.server);
        // It computes for milliseconds.
        let checked = tokio::task::spawn_blocking(move || {
            let users = server.users.as_ref()?;
            users.check(&name, &password)
        });
        checked.await.ok().flatten().ok_or_else(|| {
            add(&self.server.registry.counters.failed_logins, 1);
            ServeError::new(state::INVALID_PASSWORD, "password authentication failed").into()
        })
    }

    /// The session of a request.
    pub(super) async fn find(
        &self,
        metadata: &MetadataMap,
        peer: Option<SocketAddr>,
    ) -> Result<Arc<Session>, Status> {
        let peer = peer.map_or_else(|| "unknown".to_string(), |peer| peer.to_string());
        self.forget_idle();
        let (key, user) = if self.server.users.is_none() {
            (peer.clone(), None)
        } else if let Some(token) = bearer(metadata) {
            let mut inner = self.inner.lock();
            let known = inner.tokens.get_mut(&token).ok_or_else(missing)?;
            known.used = Instant::now();
            (token, Some(Arc::clone(&known.user)))
        } else {
            let (name, password) = basic(metadata).ok_or_else(missing)?;
            let user = self.check(name, password).await?;
            (format!("{}@{peer}", user.name), Some(user))
        };
        if let Some(session) = self.inner.lock().sessions.get(&key) {
            *session.used.lock() = Instant::now();
            return Ok(Arc::clone(session));
        }
        if self.inner.lock().sessions.len() >= self.server.options.max_connections {
            let error = ServeError::new(
                state::TOO_MANY_CONNECTIONS,
                "too many sessions: try again later",
            );
            return Err(error.into());
        }
        let client = Client::open(&self.server, user, peer, "flight").await?;
        let session = Arc::new(Session {
            client,
            used: Mutex::new(Instant::now()),
            statements: Mutex::default(),
            running: Mutex::default(),
        });
        // Of two requests that came at once, both get the first one's.
        let mut inner = self.inner.lock();
        let session = inner.sessions.entry(key).or_insert(session);
        Ok(Arc::clone(session))
    }

    fn forget_idle(&self) {
        let mut gone = Vec::new();
        let mut inner = self.inner.lock();
        if inner.looked.elapsed() < LOOK {
            return;
        }
        inner.looked = Instant::now();
        inner.tokens.retain(|_, token| token.used.elapsed() < IDLE);
        inner.sessions.retain(|_, session| {
            let keep = session.used.lock().elapsed() < IDLE || Arc::strong_count(session) > 1;
            if !keep {
                gone.push(Arc::clone(session));
            }
            keep
        });
        drop(inner);
        // Tables may take a while: not under the lock.
        drop(gone);
    }
}

fn missing() -> Status {
    ServeError::new(
        state::INVALID_AUTHORIZATION,
        "log in: a user and password, or the token of a handshake, are missing or wrong",
    )
    .into()
}

fn authorization(metadata: &MetadataMap, scheme: &str) -> Option<String> {
    let text = metadata.get("authorization")?.to_str().ok()?;
    let (given, rest) = text.split_once(' ')?;
    given
        .eq_ignore_ascii_case(scheme)
        .then(|| rest.trim().to_string())
}

fn bearer(metadata: &MetadataMap) -> Option<String> {
    authorization(metadata, "bearer")
}

fn basic(metadata: &MetadataMap) -> Option<(String, String)> {
    name_and_password(&authorization(metadata, "basic")?)
}

/// What nobody guesses.
fn token() -> String {
    let bytes: [u8; 24] = scram::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
