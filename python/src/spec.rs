//! A query as it was asked for: how it is planned, and how it sends its rows.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::ParamValues;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::datasource::{ViewTable, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use warpline::{PreparedQuery, RowsOnDevice, WarplineSession, statements};

use crate::link::{Link, Open};
use crate::reader::Item;
use crate::scope::Variables;

/// How long rows wait for it to be known whether they are the last ones.
const LOOK_AHEAD: Duration = Duration::from_millis(5);

/// What is to be run.
#[derive(Clone)]
pub(crate) enum Text {
    /// As it stands.
    Sql,
    /// With values for its parameters.
    Bound(ParamValues),
    /// A plan, whatever the text says.
    Plan(LogicalPlan),
}

/// A query as it was asked for.
pub(crate) struct Spec {
    pub(crate) link: Arc<Link>,
    pub(crate) sql: String,
    pub(crate) text: Text,
    pub(crate) variables: Variables,
}

/// How much of its rows a query could send.
enum Sent {
    /// All, but for the last ones where these are known to be.
    All(Option<RecordBatch>),
    /// Nobody reads the others.
    Some,
}

/// What whoever has planned a query wants of it.
pub(crate) enum Wanted {
    /// Its rows.
    Rows,
    /// Its rows, left on the device.
    OnDevice(oneshot::Sender<Result<RowsOnDevice, warpline::Error>>),
}

impl Spec {
    /// The logical plan of this text instead, with the same values and tables.
    pub(crate) async fn logical_of(
        &self,
        session: &WarplineSession,
        sql: &str,
    ) -> Result<LogicalPlan, DataFusionError> {
        match &self.text {
            Text::Sql => statements::plan_text(&session.context().state(), sql).await,
            Text::Bound(values) => {
                let plan = statements::plan_text(&session.context().state(), sql).await?;
                plan.with_param_values(values.clone())
            }
            Text::Plan(plan) => Ok(plan.clone()),
        }
    }

    async fn plan<'a>(
        &self,
        session: &'a WarplineSession,
    ) -> Result<PreparedQuery<'a>, warpline::Error> {
        if let Text::Sql = self.text
            && let Some(query) = session.prepare(&self.sql).await?
        {
            return Ok(query);
        }
        let logical = self.logical_of(session, &self.sql);
        let logical = session.guard(&self.sql, logical).await?;
        session.prepare_plan(&self.sql, logical).await
    }

    /// Plans, waits until somebody wants the rows, and sends them.
    pub(crate) async fn produce(
        &self,
        open: &Open,
        ready: oneshot::Sender<Result<SchemaRef, warpline::Error>>,
        wanted: oneshot::Receiver<Wanted>,
        rows: &mpsc::Sender<Item>,
    ) {
        let session = &open.session;
        let query = match self.plan(session).await {
            Ok(query) => query,
            Err(error) => {
                // Who does not wait any more does not want to know.
                let _ = ready.send(Err(error));
                return;
            }
        };
        let schema = query.schema();
        if ready.send(Ok(Arc::clone(&schema))).is_err() {
            return;
        }
        match wanted.await {
            Ok(Wanted::Rows) => {}
            Ok(Wanted::OnDevice(left)) => {
                let _ = left.send(self.left_on_device(session, query).await);
                return;
            }
            Err(_) => return,
        }
        let sent = async {
            let mut stream = query.stream()?;
            let mut ahead = None;
            loop {
                let next = match ahead.take() {
                    Some(next) => next,
                    None => stream.next().await,
                };
                let Some(batch) = next.transpose()? else {
                    return Ok(Sent::All(None));
                };
                if batch.num_rows() == 0 {
                    continue;
                }
                let batch = of_schema(batch, &schema);
                // Who reads one row of a short answer has then read all of it.
                ahead = timeout(LOOK_AHEAD, stream.next()).await.ok();
                if let Some(None) = ahead {
                    return Ok(Sent::All(Some(batch)));
                }
                if rows.send(Item::Batch(batch)).await.is_err() {
                    return Ok(Sent::Some);
                }
            }
        };
        let end = match session.guard(&self.sql, sent).await {
            Ok(Sent::All(last)) => Item::End(last, Box::new(query.finish())),
            Ok(Sent::Some) => return,
            Err(error) => Item::Failed(Box::new(error)),
        };
        let _ = rows.send(end).await;
    }

    /// Runs the query and leaves its rows on the device.
    async fn left_on_device(
        &self,
        session: &WarplineSession,
        query: PreparedQuery<'_>,
    ) -> Result<RowsOnDevice, warpline::Error> {
        let logical = self.logical_of(session, &self.sql).boxed();
        let rows = session.rows_on_device(query.plan(), query.task(), Some(logical));
        let mut rows = session.guard(&self.sql, rows).await?;
        rows.metrics.plan_ms = query.finish().plan_ms;
        Ok(rows)
    }

    /// Writes the rows to one file.
    pub(crate) async fn write(
        &self,
        session: &WarplineSession,
        path: &str,
        format: &str,
    ) -> Result<u64, DataFusionError> {
        let logical = self.logical_of(session, &self.sql).await?;
        let frame = session.context().execute_logical_plan(logical).await?;
        let options = DataFrameWriteOptions::new().with_single_file_output(true);
        let told = match format {
            "csv" => frame.write_csv(path, options, None).await?,
            "json" => frame.write_json(path, options, None).await?,
            _ => frame.write_parquet(path, options, None).await?,
        };
        let counts = told.iter().filter_map(|batch| batch.columns().first());
        Ok(counts
            .filter_map(|counts| counts.as_primitive_opt::<UInt64Type>())
            .flat_map(|counts| counts.values().iter().copied())
            .sum())
    }

    /// The query as a table of others: what a plain table's query reads, else a view.
    pub(crate) async fn table(
        &self,
        session: &WarplineSession,
    ) -> Result<Arc<dyn TableProvider>, warpline::Error> {
        let logical = self.logical_of(session, &self.sql);
        let logical = session.guard(&self.sql, logical).await?;
        if let LogicalPlan::TableScan(scan) = &logical
            && scan.projection.is_none()
            && scan.filters.is_empty()
            && scan.fetch.is_none()
            && let Ok(provider) = source_as_provider(&scan.source)
        {
            return Ok(provider);
        }
        let definition = match self.text {
            Text::Sql => Some(self.sql.clone()),
            _ => None,
        };
        Ok(Arc::new(ViewTable::new(logical, definition)))
    }
}

/// The batch with the schema of its plan, which may tell more of its columns.
fn of_schema(batch: RecordBatch, schema: &SchemaRef) -> RecordBatch {
    if batch.schema_ref() == schema {
        return batch;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).unwrap_or(batch)
}
