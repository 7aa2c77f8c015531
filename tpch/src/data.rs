//! Tables read from parquet files that exist already.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::datasource::TableProvider;
use datafusion::prelude::ParquetReadOptions;

use crate::benchmark::Benchmark;
use crate::engine::QueryEngine;
use crate::error::{Result, TpchError};
use crate::tables::Table;

/// Registers `directory/<table>.parquet` or `directory/<table>/*.parquet` as each of `tables`, with the session under
/// test and with its reference. Only file footers are read here.
///
/// # Errors
/// [`TpchError::DataDirectory`] when there is no such directory, [`TpchError::MissingTable`] when a table has no files,
/// [`TpchError::TableSchema`] when its columns are not those of TPC-H, [`TpchError::DataFusion`] when a file is damaged.
pub async fn register(engine: &dyn QueryEngine, directory: &Path, tables: &[Table]) -> Result<()> {
    let problem = if !directory.exists() {
        Some("does not exist")
    } else if !directory.is_dir() {
        Some("is not a directory")
    } else {
        None
    };
    if let Some(problem) = problem {
        return Err(TpchError::DataDirectory {
            path: directory.to_path_buf(),
            problem,
        });
    }
    // All paths are found before the first table is registered, so that a missing one is reported at once.
    let mut found = Vec::with_capacity(tables.len());
    for &table in tables {
        let path = locate(directory, table).ok_or_else(|| TpchError::MissingTable {
            path: directory.to_path_buf(),
            table: table.name(),
        })?;
        found.push((table, path));
    }
    for (table, path) in found {
        let provider = open(engine, table, &path).await?;
        check_schema(table, &path, &provider.schema())?;
        // The reference may share the catalog of the session, and then has the table already.
        if !engine.reference().table_exist(table.name())? {
            engine.reference().register_table(table.name(), provider)?;
        }
    }
    Ok(())
}

/// The scale factor that the registered tables show, from the row counts in the file footers; `None` when only tables
/// of fixed size are there.
///
/// # Errors
/// [`TpchError::DataFusion`] when a table cannot be counted.
pub async fn measured_scale(
    engine: &dyn QueryEngine,
    benchmark: Benchmark,
    tables: &[Table],
) -> Result<Option<f64>> {
    let largest = tables
        .iter()
        .rev()
        .find_map(|&table| Some((table, benchmark.rows_at_one(table)?)));
    let Some((table, rows_at_one)) = largest else {
        return Ok(None);
    };
    let rows = engine.reference().table(table.name()).await?.count();
    Ok(Some(rows.await? as f64 / rows_at_one))
}

/// The file or directory that holds a table's parquet files.
fn locate(directory: &Path, table: Table) -> Option<PathBuf> {
    let file = directory.join(format!("{}.parquet", table.name()));
    if file.is_file() {
        return Some(file);
    }
    let folder = directory.join(table.name());
    let has_parquet = std::fs::read_dir(&folder).ok()?.flatten().any(|entry| {
        let path = entry.path();
        path.is_file()
            && path
                .extension()
                .is_some_and(|extension| extension == "parquet")
    });
    has_parquet.then_some(folder)
}

/// Registers the files with the session under test and returns the provider, which the reference shares.
async fn open(
    engine: &dyn QueryEngine,
    table: Table,
    path: &Path,
) -> Result<Arc<dyn TableProvider>> {
    // An absolute path with a slash at the end of a directory is what DataFusion takes for a folder of files.
    let absolute = path
        .canonicalize()
        .map_err(|error| TpchError::io("resolve", path, error))?;
    let mut location = absolute.to_string_lossy().into_owned();
    if absolute.is_dir() {
        location.push('/');
    }
    let session = engine.session();
    session
        .register_parquet(table.name(), location, ParquetReadOptions::default())
        .await?;
    Ok(session.table_provider(table.name()).await?)
}

/// Checks that each column of TPC-H is there with a type of the right family; other columns are let be.
fn check_schema(table: Table, path: &Path, schema: &Schema) -> Result<()> {
    for expected in table.schema().fields() {
        let problem = match schema.field_with_name(expected.name()) {
            Err(_) => format!("column '{}' is missing", expected.name()),
            Ok(found) if same_family(expected.data_type(), found.data_type()) => continue,
            Ok(found) => format!(
                "column '{}' has type {}, where {} belongs",
                expected.name(),
                found.data_type(),
                expected.data_type()
            ),
        };
        return Err(TpchError::TableSchema {
            path: path.to_path_buf(),
            table: table.name(),
            problem,
        });
    }
    Ok(())
}

/// Other generators choose other widths; the queries work with any type of the same family.
fn same_family(expected: &DataType, found: &DataType) -> bool {
    match (expected, found) {
        (_, DataType::Dictionary(_, values)) => same_family(expected, values),
        (DataType::Utf8View, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => true,
        (DataType::Int64 | DataType::Int32, found) => found.is_integer(),
        (DataType::Decimal128(_, _), found) => found.is_decimal() || found.is_floating(),
        (DataType::Date32, DataType::Date32 | DataType::Date64) => true,
        _ => false,
    }
}
