//! Error context: adds file names to errors of readers, and turns panics into errors of the query.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use datafusion::arrow::error::ArrowError;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use futures::FutureExt;
use warpline_planner::statements;

use crate::error::Error;
use crate::plan_cache::listed_files;

/// Runs the work of a statement. A panic, such as that of a reader over a damaged file, becomes an error; errors of
/// readers get the names of the files that the statement reads, where they name none.
///
/// # Errors
/// Those of the work.
pub(crate) async fn guarded<T>(
    context: &SessionContext,
    sql: &str,
    work: impl Future<Output = Result<T, DataFusionError>>,
) -> Result<T, DataFusionError> {
    let error = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Err(error)) => error,
        Ok(done) => return done,
        Err(panic) => panicked(panic.as_ref()),
    };
    let Some(doing) = doing_with_files(&error) else {
        return Err(error);
    };
    let message = error.to_string();
    let of_parquet = matches!(error.find_root(), DataFusionError::ParquetError(_));
    let files = files_of(context, sql, of_parquet).await;
    let named = |file: &String| message.contains(last_part(file));
    if files.is_empty() || files.iter().any(named) {
        return Err(error);
    }
    Err(error.context(format!("{doing} {}", files.join(", "))))
}

/// The error that represents a panic.
fn panicked(panic: &(dyn Any + Send)) -> DataFusionError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let error = Error::Panicked(text.unwrap_or("no message").to_string());
    DataFusionError::External(Box::new(error))
}

/// What was done with files when the error occurred, as far as it tells: a value that cannot be converted may come
/// from a file or from an expression over it. None when files are not involved.
fn doing_with_files(error: &DataFusionError) -> Option<&'static str> {
    match error.find_root() {
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::DivideByZero | ArrowError::ArithmeticOverflow(_) => None,
            ArrowError::CastError(_)
            | ArrowError::ComputeError(_)
            | ArrowError::InvalidArgumentError(_) => Some("in a query of"),
            _ => Some("reading"),
        },
        DataFusionError::ParquetError(_)
        | DataFusionError::ObjectStore(_)
        | DataFusionError::IoError(_) => Some("reading"),
        DataFusionError::External(inner) => inner.downcast_ref::<Error>().map(|_| "reading"),
        _ => None,
    }
}

/// The locations that a statement reads: those it names, or those of its tables. `of_parquet`: the error is one of parquet files, the
/// first of which that cannot be opened stands for its table.
async fn files_of(context: &SessionContext, sql: &str, of_parquet: bool) -> Vec<String> {
    let state = context.state();
    match statements::parsed(&state, sql) {
        Ok(Statement::CreateExternalTable(create)) => create.locations,
        Ok(statement) => files_of_tables(context, &state, &statement, of_parquet).await,
        Err(_) => vec![],
    }
}

async fn files_of_tables(
    context: &SessionContext,
    state: &SessionState,
    statement: &Statement,
    of_parquet: bool,
) -> Vec<String> {
    let mut files = Vec::new();
    for table in state
        .resolve_table_references(statement)
        .unwrap_or_default()
    {
        let name = table.table().to_string();
        let Ok(provider) = context.table_provider(table).await else {
            // A file in place of a table, which cannot even be opened. Other names, such as a subquery's, read no file by
            // themselves.
            if name.contains(['.', '/']) {
                files.push(name);
            }
            continue;
        };
        if let Some(listing) = provider.downcast_ref::<ListingTable>() {
            let broken = match of_parquet {
                true => unreadable(state, listing).await,
                false => None,
            };
            match broken {
                Some(file) => files.push(file),
                None => files.extend(listing.table_paths().iter().map(ToString::to_string)),
            }
        }
    }
    files
}

/// The first file of a table whose parquet metadata cannot be read.
async fn unreadable(state: &SessionState, listing: &ListingTable) -> Option<String> {
    for location in listing.table_paths() {
        let store = state.runtime_env().object_store(location).ok()?;
        for file in listed_files(state, listing, location).await.ok()? {
            let metadata = DFParquetMetadata::new(store.as_ref(), &file);
            if metadata.fetch_metadata().await.is_err() {
                return Some(file.location.to_string());
            }
        }
    }
    None
}

/// The last part of a location, by which messages name it however they write the rest.
fn last_part(location: &str) -> &str {
    let parts = location.rsplit('/');
    parts
        .map(str::trim)
        .find(|part| !part.is_empty())
        .unwrap_or(location)
}
