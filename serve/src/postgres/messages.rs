//! The messages of simple and extended queries, as `pgwire` hands them to a connection.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion_postgres::pgwire::api::portal::{Format, Portal};
use datafusion_postgres::pgwire::api::query::{
    ExtendedQueryHandler, SimpleQueryHandler, send_ready_for_query,
};
use datafusion_postgres::pgwire::api::results::{
    DescribePortalResponse, DescribeStatementResponse, FieldInfo, Response,
};
use datafusion_postgres::pgwire::api::stmt::{QueryParser, StoredStatement};
use datafusion_postgres::pgwire::api::store::{Entry, PortalStore};
use datafusion_postgres::pgwire::api::{
    ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState, Type,
};
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::PgWireBackendMessage;
use datafusion_postgres::pgwire::messages::data::NoData;
use datafusion_postgres::pgwire::messages::extendedquery::{
    Describe, Execute, Sync as EndOfBatch, TARGET_TYPE_BYTE_PORTAL,
};
use datafusion_postgres::pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};
use datafusion_postgres::pgwire::messages::simplequery::Query;
use futures::{Sink, SinkExt};

use super::rows::describe;
use super::session::Handler;
use super::statement::Prepared;
use crate::error::{ServeError, state};

#[async_trait]
impl SimpleQueryHandler for Handler {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.client()?;
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        client.set_state(PgWireConnectionState::QueryInProgress);
        let statements = self.common.parser.parse(&query.query)?;
        if statements.is_empty() {
            client
                .feed(PgWireBackendMessage::EmptyQueryResponse(
                    EmptyQueryResponse::new(),
                ))
                .await?;
        }
        // Each runs to its end before the next is planned, which may read what it made.
        for statement in statements {
            self.simple(client, statement).await?;
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        let status = client.transaction_status();
        send_ready_for_query(client, status).await
    }

    async fn do_query<C>(&self, _: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        // `on_query` does all.
        Err(ServeError::unsupported(query).into())
    }
}

#[async_trait]
impl ExtendedQueryHandler for Handler {
    type Statement = Arc<Prepared>;
    type QueryParser = Self;

    fn query_parser(&self) -> Arc<Self> {
        Arc::new(self.clone())
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.client()?;
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        client.set_state(PgWireConnectionState::QueryInProgress);
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        let most = usize::try_from(message.max_rows).unwrap_or(0);
        match client.portal_store().get_portal(name) {
            Some(Entry::Value(portal)) => self.execute(client, &portal, most).await?,
            Some(Entry::Empty) => {
                client
                    .feed(PgWireBackendMessage::EmptyQueryResponse(
                        EmptyQueryResponse::new(),
                    ))
                    .await?;
            }
            None => {
                return Err(ServeError::new(
                    state::INVALID_CURSOR_NAME,
                    format!("portal \"{name}\" does not exist"),
                )
                .into());
            }
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        Ok(())
    }

    async fn on_sync<C>(&self, client: &mut C, _: EndOfBatch) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let status = client.transaction_status();
        // Portals live as long as their transaction, which ends here if none was begun.
        match status {
            TransactionStatus::Idle => client.portal_store().clear_portals(),
            _ => client.portal_store().rm_portal(DEFAULT_NAME),
        }
        send_ready_for_query(client, status).await
    }

    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.client()?;
        // A cursor is a portal to its client.
        if message.target_type == TARGET_TYPE_BYTE_PORTAL
            && let Some(name) = message.name.as_deref()
            && client.portal_store().get_portal(name).is_none()
        {
            let columns = self.cursors.lock().await.columns(name, client.metadata())?;
            let message = match columns.is_empty() {
                true => PgWireBackendMessage::NoData(NoData::new()),
                false => describe(&columns),
            };
            client.feed(message).await?;
            return Ok(());
        }
        self._on_describe(client, message).await
    }

    async fn do_describe_statement<C>(
        &self,
        client: &mut C,
        target: &StoredStatement<Self::Statement>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement = &target.statement;
        let count = target.parameter_types.len().max(statement.parameters.len());
        let types = (0..count).map(|at| {
            let given = target.parameter_types.get(at).cloned().flatten();
            // What may be anything is taken as text, as PostgreSQL does.
            given
                .or_else(|| statement.parameters.get(at).cloned())
                .filter(|given| *given != Type::UNKNOWN)
                .unwrap_or(Type::TEXT)
        });
        let types = types.collect();
        let columns = self
            .columns(statement, None, &Format::UnifiedText, client.metadata())
            .await?;
        Ok(DescribeStatementResponse::new(types, columns))
    }

    async fn do_describe_portal<C>(
        &self,
        client: &mut C,
        target: &Portal<Self::Statement>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement = &target.statement.statement;
        let plan = statement.bound(target)?;
        let format = &target.result_column_format;
        let columns = self
            .columns(statement, plan.as_ref(), format, client.metadata())
            .await?;
        Ok(DescribePortalResponse::new(columns))
    }

    async fn do_query<C>(
        &self,
        _: &mut C,
        portal: &Portal<Self::Statement>,
        _: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        // `on_execute` does all.
        Err(ServeError::unsupported(&portal.statement.statement.sql).into())
    }
}

#[async_trait]
impl QueryParser for Handler {
    type Statement = Arc<Prepared>;

    async fn parse_sql<C>(
        &self,
        client: &C,
        sql: &str,
        _: &[Option<Type>],
    ) -> PgWireResult<Option<Self::Statement>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let own = self.client()?;
        let mut statements = self.common.parser.parse(sql)?;
        if statements.len() > 1 {
            return Err(ServeError::new(
                state::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            )
            .into());
        }
        let Some(statement) = statements.pop() else {
            return Ok(None);
        };
        let prepared = Prepared::new(own, client.metadata(), statement).await?;
        Ok(Some(Arc::new(prepared)))
    }

    fn get_parameter_types(&self, statement: &Self::Statement) -> PgWireResult<Vec<Type>> {
        Ok(statement.parameters.clone())
    }

    fn get_result_schema(
        &self,
        statement: &Self::Statement,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        let format = format.unwrap_or(&Format::UnifiedText);
        Ok(statement.columns(None, format)?.unwrap_or_default())
    }
}
