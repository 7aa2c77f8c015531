//! A query whose rows stay on the device, read back from there.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use futures::FutureExt;
use warpline::WarplineSession;

/// The rows in the types of the query's plan: on the device strings are no views, and dictionaries may be wider.
///
/// # Errors
/// What planning, the run and the device report.
pub(super) async fn run(session: &WarplineSession, sql: &str) -> Result<(SchemaRef, RecordBatch)> {
    let external = |error: warpline::Error| DataFusionError::External(Box::new(error));
    let query = session.prepare(sql).await.map_err(external)?;
    let query = query.ok_or_else(|| DataFusionError::Internal(format!("no query: {sql}")))?;
    let state = session.context().state();
    let logical = state.create_logical_plan(sql).boxed();
    let rows = session.rows_on_device(query.plan(), query.task(), Some(logical));
    let left = rows.await?.batch.download()?;
    let schema = query.schema();
    let columns = left.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(left.num_rows()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    query.finish();
    Ok((schema, batch))
}
