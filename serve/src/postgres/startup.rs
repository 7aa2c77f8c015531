//! Log-in: SCRAM-SHA-256 where there are users, and then the client's session.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::config::Dialect;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use datafusion_postgres::pgwire::api::auth::{
    ServerParameterProvider, StartupHandler, finish_authentication, protocol_negotiation,
    save_startup_parameters_to_metadata,
};
use datafusion_postgres::pgwire::api::cancel::CancelHandler;
use datafusion_postgres::pgwire::api::{ClientInfo, PgWireConnectionState, PidSecretKeyGenerator};
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::cancel::CancelRequest;
use datafusion_postgres::pgwire::messages::startup::Authentication;
use datafusion_postgres::pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use futures::{Sink, SinkExt};

use super::catalog::PgCatalogs;
use super::command;
use super::session::{Handler, Login};
use crate::auth::User;
use crate::client::Client;
use crate::error::{Result, ServeError, state};
use crate::registry::{Stop, add};
use crate::scram::{Exchange, Failure};

/// The version of PostgreSQL that clients take this for.
const POSTGRES_VERSION: &str = "16.6";

const MECHANISM: &str = "SCRAM-SHA-256";

#[async_trait]
impl StartupHandler for Handler {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        match message {
            PgWireFrontendMessage::Startup(startup) => {
                protocol_negotiation(client, &startup).await?;
                save_startup_parameters_to_metadata(client, &startup);
                command::normalise(client.metadata_mut());
                client.set_state(PgWireConnectionState::AuthenticationInProgress);
                if !self.has_place {
                    return Err(ServeError::fatal(
                        state::TOO_MANY_CONNECTIONS,
                        "too many connections: try again later",
                    )
                    .into());
                }
                if self.offers_tls && !client.is_secure() {
                    return Err(ServeError::fatal(
                        state::INVALID_AUTHORIZATION,
                        "the server talks over TLS only: connect with sslmode=require",
                    )
                    .into());
                }
                if self.server.users.is_none() {
                    return self.enter(client, None).await;
                }
                *self.login.lock() = Login::Asked;
                let ask = Authentication::SASL(vec![MECHANISM.to_string()]);
                client
                    .send(PgWireBackendMessage::Authentication(ask))
                    .await?;
            }
            PgWireFrontendMessage::PasswordMessageFamily(message) => {
                let login = std::mem::replace(&mut *self.login.lock(), Login::Start);
                match login {
                    Login::Asked => {
                        let response = message.into_sasl_initial_response()?;
                        if response.auth_method != MECHANISM {
                            return Err(self.failed(client, Failure::Message));
                        }
                        let data = response.data.unwrap_or_default();
                        let verifier = match &self.server.users {
                            Some(users) => users.verifier(&user_of(client)),
                            None => return Err(self.failed(client, Failure::Message)),
                        };
                        let (exchange, answer) = Exchange::begin(verifier, &data)
                            .map_err(|failure| self.failed(client, failure))?;
                        *self.login.lock() = Login::Exchange(Box::new(exchange));
                        let answer = Authentication::SASLContinue(answer.into());
                        client
                            .send(PgWireBackendMessage::Authentication(answer))
                            .await?;
                    }
                    Login::Exchange(exchange) => {
                        let response = message.into_sasl_response()?;
                        let answer = exchange
                            .finish(&response.data)
                            .map_err(|failure| self.failed(client, failure))?;
                        let name = user_of(client);
                        let user = self
                            .server
                            .users
                            .as_ref()
                            .and_then(|users| users.get(&name));
                        let user = user.ok_or_else(|| self.failed(client, Failure::Proof))?;
                        let answer = Authentication::SASLFinal(answer.into());
                        client
                            .feed(PgWireBackendMessage::Authentication(answer))
                            .await?;
                        self.enter(client, Some(user)).await?;
                    }
                    Login::Start => return Err(self.failed(client, Failure::Message)),
                }
            }
            _ => return Err(self.failed(client, Failure::Message)),
        }
        Ok(())
    }
}

fn user_of(client: &impl ClientInfo) -> String {
    client.metadata().get("user").cloned().unwrap_or_default()
}

impl Handler {
    fn failed(&self, client: &impl ClientInfo, failure: Failure) -> PgWireError {
        add(&self.server.registry.counters.failed_logins, 1);
        let user = user_of(client);
        let error = match failure {
            Failure::Proof => ServeError::fatal(
                state::INVALID_PASSWORD,
                format!("password authentication failed for user \"{user}\""),
            ),
            Failure::Message => {
                ServeError::fatal(state::PROTOCOL_VIOLATION, "malformed log-in message")
            }
        };
        log::info!("log-in of '{user}' from {} failed", self.address);
        error.into()
    }

    /// Opens the session of somebody who may.
    async fn enter<C>(&self, client: &mut C, user: Option<Arc<User>>) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let peer = self.address.to_string();
        let opened = Client::open(&self.server, user, peer, "postgresql").await?;
        let version = format!(
            "PostgreSQL {POSTGRES_VERSION} ({})",
            self.server.engine.version()
        );
        prepare(opened.context(), &self.common.catalogs, version).map_err(ServeError::from)?;
        command::apply_startup(&opened, client.metadata_mut()).await?;
        let (pid, key) = self.common.keys.generate(client);
        let cancel_key = (pid, key.to_bytes());
        client.set_pid_and_secret_key(pid, key);
        self.common
            .cancel_keys
            .lock()
            .insert(cancel_key.clone(), Arc::downgrade(&opened));
        self.known(opened, cancel_key);
        finish_authentication(client, &Parameters(&self.server.engine.version())).await
    }
}

/// Adds what PostgreSQL's clients ask of the catalog.
fn prepare(
    context: &SessionContext,
    catalogs: &PgCatalogs,
    version: String,
) -> Result<(), DataFusionError> {
    let catalog = {
        let state = context.state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        options.sql_parser.dialect = Dialect::PostgreSQL;
        options.catalog.default_catalog.clone()
    };
    catalogs.add(context, &catalog)?;
    constant(context, "version", ScalarValue::from(version));
    // Pools of connections call it before they hand one out again.
    constant(context, "pg_advisory_unlock_all", ScalarValue::Utf8(None));
    Ok(())
}

/// A function without arguments whose value is the same for the session.
fn constant(context: &SessionContext, name: &str, value: ScalarValue) {
    context.register_udf(create_udf(
        name,
        vec![],
        value.data_type(),
        Volatility::Immutable,
        Arc::new(move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(value.clone()))),
    ));
}

/// What the server tells of itself after the log-in.
struct Parameters<'a>(&'a str);

impl ServerParameterProvider for Parameters<'_> {
    fn server_parameters<C>(&self, client: &C) -> Option<HashMap<String, String>>
    where
        C: ClientInfo,
    {
        let metadata = client.metadata();
        let mut parameters: HashMap<String, String> = HashMap::new();
        for name in command::REPORTED {
            let value = command::value_of(metadata, name);
            parameters.insert((*name).to_string(), value.unwrap_or_default());
        }
        parameters.insert(
            "server_version".to_string(),
            format!("{POSTGRES_VERSION} ({})", self.0),
        );
        parameters.insert("session_authorization".to_string(), user_of(client));
        Some(parameters)
    }
}

#[async_trait]
impl CancelHandler for Handler {
    async fn on_cancel_request(&self, request: CancelRequest) {
        let key = (request.pid, request.secret_key.to_bytes());
        let client = self.common.cancel_keys.lock().get(&key).cloned();
        if let Some(client) = client.and_then(|client| client.upgrade()) {
            client.cancel(Stop::Asked);
        }
    }
}
