//! `DECLARE`, `FETCH` and `CLOSE`: a query that is read in pieces by name.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    CloseCursor, Declare, DeclareType, FetchDirection, Statement, Value, ValueWithSpan,
};
use datafusion_postgres::pgwire::api::portal::Format;
use datafusion_postgres::pgwire::api::results::{FieldInfo, Tag};
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::PgWireBackendMessage;
use futures::Sink;

use super::command::Parameters;
use super::rows::{Encoder, describe};
use super::statement::{Prepared, fields};
use crate::client::Client;
use crate::error::{Result, ServeError, state};

/// Most cursors of a connection.
const MOST: usize = 1000;

/// A connection's cursors, by name.
#[derive(Default)]
pub(super) struct Cursors(HashMap<String, Cursor>);

struct Cursor {
    query: Prepared,
    plan: LogicalPlan,
    format: Format,
    /// Whether it outlives its transaction.
    hold: bool,
    encoder: Option<Encoder>,
    ended: bool,
}

impl Cursors {
    pub(super) async fn declare(
        &mut self,
        client: &Arc<Client>,
        parameters: &Parameters,
        declares: &[Declare],
    ) -> Result<Tag> {
        for declare in declares {
            let (Some(DeclareType::Cursor), Some(name), Some(query)) = (
                &declare.declare_type,
                declare.names.first(),
                &declare.for_query,
            ) else {
                return Err(ServeError::unsupported(&declare.to_string()));
            };
            if self.0.contains_key(&name.value) {
                return Err(ServeError::new(
                    state::DUPLICATE_CURSOR,
                    format!("cursor \"{}\" already exists", name.value),
                ));
            }
            if self.0.len() >= MOST {
                return Err(ServeError::new(
                    state::INSUFFICIENT_RESOURCES,
                    format!("the connection has {MOST} cursors already"),
                ));
            }
            let query = Prepared::new(client, parameters, Statement::Query(query.clone())).await?;
            let Some(plan) = query.plan.clone() else {
                return Err(ServeError::unsupported(&declare.to_string()));
            };
            let format = match declare.binary {
                Some(true) => Format::UnifiedBinary,
                _ => Format::UnifiedText,
            };
            let cursor = Cursor {
                query,
                plan,
                format,
                hold: declare.hold == Some(true),
                encoder: None,
                ended: false,
            };
            self.0.insert(name.value.clone(), cursor);
        }
        Ok(Tag::new("DECLARE CURSOR"))
    }

    fn find(&mut self, name: &str) -> Result<&mut Cursor> {
        self.0.get_mut(name).ok_or_else(|| {
            ServeError::new(
                state::INVALID_CURSOR_NAME,
                format!("cursor \"{name}\" does not exist"),
            )
        })
    }

    /// The columns of a cursor.
    pub(super) fn columns(
        &mut self,
        name: &str,
        parameters: &Parameters,
    ) -> PgWireResult<Vec<FieldInfo>> {
        let cursor = self.find(name)?;
        fields(cursor.plan.schema().as_arrow(), &cursor.format, parameters)
    }

    /// Sends the next rows of a cursor, with their description if the protocol wants it here.
    pub(super) async fn fetch<C>(
        &mut self,
        client: &Arc<Client>,
        parameters: &Parameters,
        (name, direction): (&str, &FetchDirection),
        (socket, described): (&mut C, bool),
    ) -> PgWireResult<Tag>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let most = most(direction)?;
        let cursor = self.find(name)?;
        if cursor.encoder.is_none() && !cursor.ended {
            let work = cursor.query.work(cursor.plan.clone());
            let rows = client.start(&cursor.query.sql, work).await?;
            let columns = fields(&rows.schema(), &cursor.format, parameters)?;
            cursor.encoder = Some(Encoder::new(rows, columns));
        }
        if described {
            let columns = fields(cursor.plan.schema().as_arrow(), &cursor.format, parameters)?;
            use futures::SinkExt;
            socket.feed(describe(&columns)).await?;
        }
        let mut sent = 0;
        if let Some(encoder) = &mut cursor.encoder {
            let outcome = encoder.send(socket, most).await;
            if !matches!(outcome, Ok((_, true))) {
                cursor.encoder = None;
                cursor.ended = true;
            }
            (sent, _) = outcome?;
        }
        Ok(Tag::new("FETCH").with_rows(sent))
    }

    pub(super) fn close(&mut self, cursor: &CloseCursor) -> Result<Tag> {
        match cursor {
            CloseCursor::All => self.0.clear(),
            CloseCursor::Specific { name } => {
                self.find(&name.value)?;
                self.0.remove(&name.value);
            }
        }
        Ok(Tag::new("CLOSE CURSOR"))
    }

    /// A transaction is over.
    pub(super) fn end_transaction(&mut self) {
        self.0.retain(|_, cursor| cursor.hold);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// How many rows to fetch.
fn most(direction: &FetchDirection) -> Result<usize> {
    let number = |value: &ValueWithSpan| match &value.value {
        Value::Number(number, _) => number.to_string().parse::<usize>().ok(),
        _ => None,
    };
    match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Some(1),
        FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => {
            number(limit)
        }
        FetchDirection::All | FetchDirection::ForwardAll => Some(usize::MAX),
        _ => None,
    }
    .ok_or_else(|| ServeError::unsupported("a cursor that goes anywhere but forward"))
}
