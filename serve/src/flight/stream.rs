//! Batches on their way to a client, and statements that answer a number.

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::sql::sqlparser::ast;
use futures::stream::{self, Stream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tonic::Status;

use super::session::Session;
use super::statement::{Statement, to_wire};
use crate::error::{Result, ServeError, state};
use crate::query::Rows;
use crate::settings;

/// Batches that wait to be read.
const AHEAD: usize = 2;

/// What a client reads.
pub(super) type Answer = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// Runs a statement, and streams its rows.
pub(super) async fn answer(
    session: &Arc<Session>,
    handle: &str,
    statement: &Arc<Statement>,
) -> Result<Answer, Status> {
    let schema = Arc::clone(&statement.schema);
    if statement.plan.is_none() {
        update(session, handle, statement).await?;
        return Ok(encode(schema, stream::empty()));
    }
    let mut works = statement.works()?.into_iter();
    // The first is begun here, so that what is wrong with it is the answer to the call.
    let Some(first) = works.next() else {
        return Ok(encode(schema, stream::empty()));
    };
    let rows = session.client.start(&statement.sql, first).await?;
    session.runs(handle, rows.entry());
    let (send, receive) = mpsc::channel(AHEAD);
    let (session, statement) = (Arc::clone(session), Arc::clone(statement));
    let handle = handle.to_string();
    // A task of its own: a client that stops to read is noticed, and what its query holds is given back.
    tokio::spawn(async move {
        let mut rows = rows;
        loop {
            if !pump(&mut rows, &statement.schema, &send).await {
                return;
            }
            let Some(work) = works.next() else { return };
            match session.client.start(&statement.sql, work).await {
                Ok(next) => {
                    session.runs(&handle, next.entry());
                    rows = next;
                }
                Err(error) => {
                    let _ = send.send(Err(error)).await;
                    return;
                }
            }
        }
    });
    let batches = stream::unfold(receive, |mut receive| async {
        Some((receive.recv().await?, receive))
    });
    Ok(encode(schema, batches))
}

/// Sends the rows of a query; false if there is an end to it.
async fn pump(
    rows: &mut Rows,
    schema: &SchemaRef,
    send: &mpsc::Sender<Result<RecordBatch>>,
) -> bool {
    loop {
        let batch = tokio::select! {
            batch = rows.next() => batch,
            () = send.closed() => return false,
        };
        let batch = match batch {
            None => return true,
            Some(batch) => batch.and_then(|batch| to_wire(&batch, schema)),
        };
        let failed = batch.is_err();
        match rows.send(send.send(batch)).await {
            Ok(Ok(())) if !failed => {}
            Ok(_) => return false,
            Err(error) => {
                // If anybody reads on, after all.
                let _ = send.try_send(Err(error));
                return false;
            }
        }
    }
}

fn encode(
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> Answer {
    let batches = batches.map_err(|error| FlightError::Tonic(Box::new(error.into())));
    let encoded = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .build(batches);
    encoded.map_err(Status::from).boxed()
}

/// A batch that is at hand, for catalogs.
pub(super) fn whole(batch: RecordBatch) -> Answer {
    encode(batch.schema(), stream::iter([Ok(batch)]))
}

/// Runs a statement to its end, and returns how many rows it changed.
pub(super) async fn update(
    session: &Arc<Session>,
    handle: &str,
    statement: &Arc<Statement>,
) -> Result<i64, Status> {
    if let ast::Statement::Set(set) = &statement.ast {
        settings::set(&session.client, set).await?;
        return Ok(0);
    }
    let mut count = 0;
    for work in statement.works()? {
        let mut rows = session.client.start(&statement.sql, work).await?;
        session.runs(handle, rows.entry());
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if let Some(column) = batch.column_by_name("count")
                && let Some(counts) = column.as_primitive_opt::<UInt64Type>()
                && counts.len() == 1
            {
                count += counts.value(0);
            }
        }
    }
    i64::try_from(count)
        .map_err(|_| ServeError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "too many rows").into())
}
