//! What the connections of this protocol share.

use std::collections::HashMap;
use std::sync::Weak;

use bytes::Bytes;
use datafusion_postgres::pgwire::api::RandomPidSecretKeyGenerator;
use parking_lot::Mutex;

use super::catalog::PgCatalogs;
use super::parser::Parser;
use crate::client::Client;

/// One for all connections.
#[derive(Default)]
pub(super) struct Common {
    pub(super) parser: Parser,
    pub(super) catalogs: PgCatalogs,
    pub(super) keys: RandomPidSecretKeyGenerator,
    /// Clients by the key with which a cancel request names them.
    pub(super) cancel_keys: Mutex<HashMap<(i32, Bytes), Weak<Client>>>,
}
