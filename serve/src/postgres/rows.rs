//! Batches as rows of the protocol, a piece at a time.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion_postgres::arrow_pg::datatypes::encode_recordbatch;
use datafusion_postgres::pgwire::api::results::FieldInfo;
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::PgWireBackendMessage;
use datafusion_postgres::pgwire::messages::data::{DataRow, FieldDescription, RowDescription};
use futures::{Sink, SinkExt};

use crate::query::Rows;

/// Rows that are sent without a look at the clock and at whether the query was cancelled.
const PIECE: usize = 128;

/// A query's rows in the form that the client asked for.
pub(super) struct Encoder {
    rows: Rows,
    fields: Arc<Vec<FieldInfo>>,
    batch: Option<Box<dyn Iterator<Item = PgWireResult<DataRow>> + Send + Sync>>,
}

impl Encoder {
    pub(super) fn new(rows: Rows, fields: Vec<FieldInfo>) -> Self {
        Self {
            rows,
            fields: Arc::new(fields),
            batch: None,
        }
    }

    pub(super) fn fields(&self) -> &[FieldInfo] {
        &self.fields
    }

    /// At most `most` rows, as many as are at hand, but one at least; empty after the last.
    pub(super) async fn piece(&mut self, most: usize) -> PgWireResult<Vec<DataRow>> {
        loop {
            if let Some(batch) = &mut self.batch {
                let rows = batch
                    .take(most.min(PIECE))
                    .collect::<PgWireResult<Vec<_>>>()?;
                if !rows.is_empty() {
                    return Ok(rows);
                }
                self.batch = None;
            }
            match self.rows.next().await {
                None => return Ok(vec![]),
                Some(batch) => self.batch = Some(self.encode(batch?)),
            }
        }
    }

    fn encode(
        &self,
        batch: RecordBatch,
    ) -> Box<dyn Iterator<Item = PgWireResult<DataRow>> + Send + Sync> {
        encode_recordbatch(Arc::clone(&self.fields), batch)
    }

    /// Sends at most `most` rows, and says how many, and whether there may be more.
    pub(super) async fn send<C>(
        &mut self,
        client: &mut C,
        most: usize,
    ) -> PgWireResult<(usize, bool)>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.rows.resume().await?;
        let mut sent = 0;
        while sent < most {
            let piece = self.piece(most - sent).await?;
            if piece.is_empty() {
                return Ok((sent, false));
            }
            sent += piece.len();
            let messages = piece.into_iter().map(PgWireBackendMessage::DataRow);
            self.feed(client, messages).await?;
        }
        self.rows.park();
        Ok((sent, true))
    }

    /// Sends messages, unless the client takes too long for it or the query was cancelled.
    pub(super) async fn feed<C>(
        &mut self,
        client: &mut C,
        messages: impl Iterator<Item = PgWireBackendMessage> + Send,
    ) -> PgWireResult<()>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let feed = async {
            for message in messages {
                client.feed(message).await?;
            }
            Ok(())
        };
        self.rows.send(feed).await?
    }
}

/// The columns as the protocol describes them.
pub(super) fn describe(fields: &[FieldInfo]) -> PgWireBackendMessage {
    let fields: Vec<FieldDescription> = fields.iter().map(Into::into).collect();
    PgWireBackendMessage::RowDescription(RowDescription::new(fields))
}
