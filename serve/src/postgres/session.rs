//! A connection: one session, and how its statements run.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::sql::sqlparser::ast::{DiscardObject, FetchDirection, SetExpr, Statement};
use datafusion_postgres::pgwire::api::ClientInfo;
use datafusion_postgres::pgwire::api::portal::{Format, Portal, PortalExecutionState};
use datafusion_postgres::pgwire::api::results::{FieldInfo, QueryResponse, Tag};
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::PgWireBackendMessage;
use datafusion_postgres::pgwire::messages::extendedquery::PortalSuspended;
use datafusion_postgres::pgwire::messages::response::TransactionStatus;
use datafusion_postgres::pgwire::messages::startup::ParameterStatus;
use futures::{Sink, SinkExt};
use parking_lot::Mutex;

use super::command;
use super::common::Common;
use super::copy;
use super::cursor::Cursors;
use super::rows::{Encoder, describe};
use super::statement::{Prepared, answers, fields};
use crate::client::Client;
use crate::error::{ServeError, state};
use crate::policy;
use crate::query::{Rows, Work};
use crate::registry::Stop;
use crate::scram::Exchange;
use crate::shared::Shared;

/// How far a log-in is.
pub(super) enum Login {
    Start,
    /// The client knows that it has to prove its password.
    Asked,
    Exchange(Box<Exchange>),
}

type Portals = HashMap<String, Weak<tokio::sync::Mutex<Encoder>>>;

/// The handler of one connection.
#[derive(Clone)]
pub(crate) struct Handler {
    pub(super) server: Arc<Shared>,
    pub(super) common: Arc<Common>,
    pub(super) address: SocketAddr,
    /// Whether the connection is one of those that the server takes.
    pub(super) has_place: bool,
    pub(super) offers_tls: bool,
    pub(super) login: Arc<Mutex<Login>>,
    known: Arc<OnceLock<Known>>,
    pub(super) cursors: Arc<tokio::sync::Mutex<Cursors>>,
    /// Portals that have begun, by name.
    portals: Arc<Mutex<Portals>>,
}

/// Somebody who has logged in.
struct Known {
    client: Arc<Client>,
    cancel_key: (i32, Bytes),
}

impl Handler {
    pub(super) fn new(
        (server, common): (Arc<Shared>, Arc<Common>),
        address: SocketAddr,
        has_place: bool,
        offers_tls: bool,
    ) -> Self {
        Self {
            server,
            common,
            address,
            has_place,
            offers_tls,
            login: Arc::new(Mutex::new(Login::Start)),
            known: Arc::default(),
            cursors: Arc::default(),
            portals: Arc::default(),
        }
    }

    /// Whether the client has logged in.
    pub(super) fn is_known(&self) -> bool {
        self.known.get().is_some()
    }

    pub(super) fn known(&self, client: Arc<Client>, cancel_key: (i32, Bytes)) {
        // Only a log-in comes here, and there is one.
        let _ = self.known.set(Known { client, cancel_key });
    }

    /// The client's session; nothing runs without.
    pub(super) fn client(&self) -> PgWireResult<&Arc<Client>> {
        let known = self.known.get().ok_or_else(|| {
            ServeError::fatal(state::INVALID_AUTHORIZATION, "log in before anything else")
        })?;
        Ok(&known.client)
    }

    pub(super) fn cancel(&self, why: Stop) {
        if let Some(known) = self.known.get() {
            known.client.cancel(why);
        }
    }

    /// The connection is over.
    pub(super) fn close(&self) {
        if let Some(known) = self.known.get() {
            self.common.cancel_keys.lock().remove(&known.cancel_key);
            known.client.cancel(Stop::Gone);
        }
    }

    /// Runs a statement that is no query of rows.
    async fn command<C>(
        &self,
        socket: &mut C,
        statement: &Prepared,
        plan: Option<datafusion::logical_expr::LogicalPlan>,
        simple: bool,
    ) -> PgWireResult<Tag>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let client = self.client()?;
        let tag = match &statement.ast {
            Statement::Set(set) => {
                let changed = command::run_set(client, socket.metadata_mut(), set).await?;
                if let Some(name) = changed.as_deref().and_then(command::reported) {
                    let value = command::value_of(socket.metadata(), name);
                    let status = ParameterStatus::new(name.to_string(), value.unwrap_or_default());
                    socket
                        .feed(PgWireBackendMessage::ParameterStatus(status))
                        .await?;
                }
                Tag::new("SET")
            }
            Statement::Reset(reset) => {
                command::run_reset(client, socket.metadata_mut(), &reset.reset).await?;
                Tag::new("RESET")
            }
            Statement::StartTransaction { .. } => {
                let status = socket.transaction_status().to_in_transaction_state();
                socket.set_transaction_status(status);
                Tag::new("BEGIN")
            }
            Statement::Rollback {
                savepoint: Some(_), ..
            } => {
                if socket.transaction_status() == TransactionStatus::Error {
                    socket.set_transaction_status(TransactionStatus::Transaction);
                }
                Tag::new("ROLLBACK")
            }
            Statement::Commit { .. } | Statement::Rollback { .. } => {
                let failed = socket.transaction_status() == TransactionStatus::Error;
                let commit = matches!(statement.ast, Statement::Commit { .. });
                socket.set_transaction_status(TransactionStatus::Idle);
                self.cursors.lock().await.end_transaction();
                Tag::new(if commit && !failed {
                    "COMMIT"
                } else {
                    "ROLLBACK"
                })
            }
            Statement::Discard { object_type } => {
                if matches!(object_type, DiscardObject::ALL) {
                    self.cursors.lock().await.clear();
                    let all = datafusion::sql::sqlparser::ast::Reset::ALL;
                    command::run_reset(client, socket.metadata_mut(), &all).await?;
                }
                Tag::new(&format!("DISCARD {object_type}"))
            }
            Statement::Declare { stmts } => {
                let mut cursors = self.cursors.lock().await;
                cursors.declare(client, socket.metadata(), stmts).await?
            }
            Statement::Close { cursor } => self.cursors.lock().await.close(cursor)?,
            Statement::Fetch {
                name, direction, ..
            } => {
                let parameters = socket.metadata().clone();
                let what: (&str, &FetchDirection) = (&name.value, direction);
                let mut cursors = self.cursors.lock().await;
                cursors
                    .fetch(client, &parameters, what, (socket, simple))
                    .await?
            }
            Statement::Copy { .. } => {
                let parameters = socket.metadata().clone();
                copy::run(client, &parameters, &statement.ast, socket).await?
            }
            other => match (command::no_operation(other), plan) {
                (Some(word), _) => Tag::new(word),
                (None, Some(plan)) => {
                    let rows = client.start(&statement.sql, Work::Plan(Box::new(plan)));
                    statement.tag(counted(rows.await?).await?)
                }
                (None, None) => return Err(ServeError::unsupported(&statement.sql).into()),
            },
        };
        Ok(tag)
    }

    /// Runs a statement of a simple query.
    pub(super) async fn simple<C>(&self, socket: &mut C, ast: Statement) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let client = self.client()?;
        refuse_in_failed_transaction(socket, &ast)?;
        let tag = if matches!(&ast, Statement::Query(query) if only_reads(&query.body)) {
            policy::check(&ast)?;
            let sql = ast.to_string();
            let rows = client.start(&sql, Work::Query(Box::new(ast))).await?;
            send(socket, rows).await?
        } else {
            let statement = Prepared::new(client, socket.metadata(), ast).await?;
            let executes = matches!(statement.ast, Statement::Execute { .. });
            match &statement.plan {
                Some(plan) if answers(plan) || executes => {
                    let work = statement.work(plan.clone());
                    let rows = client.start(&statement.sql, work).await?;
                    send(socket, rows).await?
                }
                plan => {
                    let plan = plan.clone();
                    self.command(socket, &statement, plan, true).await?
                }
            }
        };
        socket
            .feed(PgWireBackendMessage::CommandComplete(tag.into()))
            .await?;
        Ok(())
    }

    /// Runs a portal, or goes on with it.
    pub(super) async fn execute<C>(
        &self,
        socket: &mut C,
        portal: &Portal<Arc<Prepared>>,
        most: usize,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let client = self.client()?;
        let statement = &portal.statement.statement;
        refuse_in_failed_transaction(socket, &statement.ast)?;
        let state = portal.state();
        let mut state = state.lock().await;
        if let PortalExecutionState::Initial = *state {
            let plan = statement.bound(portal)?;
            let Some(plan) = plan.filter(answers) else {
                let plan = statement.bound(portal)?;
                let tag = self.command(socket, statement, plan, false).await?;
                *state = PortalExecutionState::Finished;
                socket
                    .feed(PgWireBackendMessage::CommandComplete(tag.into()))
                    .await?;
                return Ok(());
            };
            let rows = client.start(&statement.sql, statement.work(plan)).await?;
            let columns = fields(
                &rows.schema(),
                &portal.result_column_format,
                socket.metadata(),
            )?;
            let encoder = Arc::new(tokio::sync::Mutex::new(Encoder::new(rows, columns)));
            let mut portals = self.portals.lock();
            portals.retain(|_, portal| portal.strong_count() > 0);
            portals.insert(portal.name.clone(), Arc::downgrade(&encoder));
            // The portal owns the rows: whatever drops it stops the query. They are not read through it.
            let owner = futures::stream::poll_fn(move |_| {
                let _ = &encoder;
                std::task::Poll::Ready(None)
            });
            let owner = QueryResponse::new(Arc::new(vec![]), owner);
            *state = PortalExecutionState::Suspended(owner);
        }
        let encoder = match *state {
            PortalExecutionState::Suspended(_) => {
                let portals = self.portals.lock();
                portals.get(&portal.name).and_then(Weak::upgrade)
            }
            _ => None,
        };
        let (mut sent, mut more) = (0, false);
        if let Some(encoder) = encoder {
            let mut encoder = encoder.lock().await;
            let most = if most == 0 { usize::MAX } else { most };
            let outcome = encoder.send(socket, most).await;
            if !matches!(outcome, Ok((_, true))) {
                *state = PortalExecutionState::Finished;
            }
            (sent, more) = outcome?;
        }
        let message = match more {
            true => PgWireBackendMessage::PortalSuspended(PortalSuspended::new()),
            false => {
                let tag = Tag::new("SELECT").with_rows(sent);
                PgWireBackendMessage::CommandComplete(tag.into())
            }
        };
        socket.feed(message).await?;
        Ok(())
    }

    /// The columns that a statement answers, also those of a cursor.
    pub(super) async fn columns(
        &self,
        statement: &Prepared,
        plan: Option<&datafusion::logical_expr::LogicalPlan>,
        format: &Format,
        parameters: &command::Parameters,
    ) -> PgWireResult<Vec<FieldInfo>> {
        if let Statement::Fetch { name, .. } = &statement.ast {
            return self.cursors.lock().await.columns(&name.value, parameters);
        }
        Ok(statement.columns(plan, format)?.unwrap_or_default())
    }
}

/// Sends all rows with their description, as a simple query is answered.
async fn send<C>(socket: &mut C, rows: Rows) -> PgWireResult<Tag>
where
    C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let fields = fields(&rows.schema(), &Format::UnifiedText, socket.metadata())?;
    let mut encoder = Encoder::new(rows, fields);
    socket.feed(describe(encoder.fields())).await?;
    let (sent, _) = encoder.send(socket, usize::MAX).await?;
    Ok(Tag::new("SELECT").with_rows(sent))
}

/// Whether a query answers rows and changes nothing, as far as its text tells.
fn only_reads(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => select.into.is_none(),
        SetExpr::Query(query) => only_reads(&query.body),
        SetExpr::SetOperation { left, right, .. } => only_reads(left) && only_reads(right),
        SetExpr::Values(_) | SetExpr::Table(_) => true,
        _ => false,
    }
}

/// After an error in a transaction, only its end is heard.
fn refuse_in_failed_transaction(
    client: &impl ClientInfo,
    statement: &Statement,
) -> PgWireResult<()> {
    let ends = matches!(
        statement,
        Statement::Commit { .. } | Statement::Rollback { .. }
    );
    if client.transaction_status() == TransactionStatus::Error && !ends {
        return Err(ServeError::new(
            state::IN_FAILED_SQL_TRANSACTION,
            "current transaction is aborted, commands ignored until end of transaction block",
        )
        .into());
    }
    Ok(())
}

/// Runs a command to its end, and reads how many rows it changed.
async fn counted(mut rows: Rows) -> Result<Option<usize>, ServeError> {
    let mut count = None;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        if let Some(column) = batch.column_by_name("count")
            && let Some(counts) = column.as_primitive_opt::<UInt64Type>()
            && !counts.is_empty()
        {
            count = Some(count.unwrap_or(0) + counts.value(0) as usize);
        }
    }
    Ok(count)
}
