//! Servers over a session: the PostgreSQL protocol, Flight SQL, metrics and a status page.
//!
//! The crate knows DataFusion and no engine: whoever has one implements [`Engine`], which opens a session for each client, and
//! hands it to [`Server::start`].
//!
//! ```text
//! client ──► postgres │ flight      protocols: statements, portals, cursors, tickets
//!                 │
//!              client               one session a client: settings, own tables
//!                 │
//!     policy ── query ── admission   what may run, its limits, whose turn it is
//!                 │
//!             registry              running and recent queries ──► http: /metrics, /health, page
//!                 │
//!             threads               of queries alone: whatever they compute, connections are heard
//!                 │
//!              Engine ──► DataFusion ──► store, remote: files of the folders given, nothing else
//! ```
//!
//! - A statement passes `policy` before anything is planned; files are reached only through `store`, and in object stores
//!   through `remote`, which know the folders and no way to write.
//! - Every query is an entry of `registry`, holds a permit of `admission` while it runs, and stops when its entry is
//!   cancelled: its stream is dropped, and with it the work on the device.
//! - `auth` keeps SCRAM verifiers, never passwords.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod admission;
mod auth;
mod client;
mod engine;
mod error;
mod fetch_first;
mod flight;
mod http;
mod options;
mod parameters;
mod policy;
mod postgres;
mod query;
mod registry;
mod remote;
mod scram;
mod server;
mod settings;
mod shared;
mod store;
mod threads;
mod tls;

pub use auth::{User, Users, add_user};
pub use engine::{DeviceTable, Engine, EngineSession, EngineStatus, Planned};
pub use error::{Result, ServeError, StartError};
pub use options::{Limits, ServeOptions, default_queries};
pub use remote::StoreFolder;
pub use server::Server;
pub use store::FolderStore;
pub use tls::{Tls, install_provider};
