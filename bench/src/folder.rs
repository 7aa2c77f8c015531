//! The tables of a folder of data files: one for each file, and one for each sub-folder of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, TableReference};
use datafusion::execution::options::ArrowReadOptions;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::prelude::{CsvReadOptions, JsonReadOptions, ParquetReadOptions, SessionContext};
use warpline_tpch::{QueryEngine, TpchError};

use crate::error::{Error, Result};

/// What `STORED AS` names tables of Delta Lake.
const DELTA_TABLE: &str = "DELTATABLE";

/// Formats of data files, by the extensions of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    Csv,
    /// Objects, one a line.
    Json,
    Arrow,
    /// A folder with a log of Delta Lake.
    Delta,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "parquet" => Self::Parquet,
            "csv" => Self::Csv,
            "json" | "ndjson" | "jsonl" => Self::Json,
            "arrow" => Self::Arrow,
            _ => return None,
        })
    }
}

/// A table to be.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    path: PathBuf,
    format: Format,
    /// The extension of its files, with the dot.
    extension: String,
}

/// Registers `folder/NAME.EXT` and `folder/NAME/*.EXT` as tables `NAME`, where EXT is parquet, csv (with a header), json, ndjson,
/// jsonl (an object a line) or arrow, and `folder/NAME` with a `_delta_log` as a table of Delta Lake; the session under test and its
/// reference get the same tables. Returns their names, in order.
///
/// # Errors
/// [`TpchError::Io`] when the folder cannot be read; [`Error::Bench`] when it has no such files, or two tables of a name;
/// [`Error::DataFusion`] when a file is damaged.
pub async fn register(engine: &dyn QueryEngine, folder: &Path) -> Result<Vec<String>> {
    let (session, reference) = (engine.session(), engine.reference());
    let names = register_in(session, folder).await?;
    for name in &names {
        let table = TableReference::bare(name.as_str());
        // The reference may share the catalog of the session, and then has the table already.
        if !reference.table_exist(table.clone())? {
            reference.register_table(table.clone(), session.table_provider(table).await?)?;
        }
    }
    Ok(names)
}

/// Registers the tables of a folder in one session, as [`register`] does.
///
/// # Errors
/// Those of [`register`].
pub async fn register_in(session: &SessionContext, folder: &Path) -> Result<Vec<String>> {
    let tables = tables_of(folder)?;
    for (name, found) in &tables {
        let table = TableReference::bare(name.as_str());
        let mut location = found.path.to_string_lossy().into_owned();
        if found.path.is_dir() {
            // What DataFusion takes for a folder of files.
            location.push('/');
        }
        let extension = found.extension.as_str();
        match found.format {
            Format::Parquet => {
                let options = ParquetReadOptions {
                    file_extension: extension,
                    ..ParquetReadOptions::default()
                };
                session.register_parquet(table, location, options).await?;
            }
            Format::Csv => {
                let options = CsvReadOptions::new().file_extension(extension);
                session.register_csv(table, location, options).await?;
            }
            Format::Json => {
                let options = JsonReadOptions::default().file_extension(extension);
                session.register_json(table, location, options).await?;
            }
            Format::Arrow => {
                let options = ArrowReadOptions {
                    file_extension: extension,
                    ..ArrowReadOptions::default()
                };
                session.register_arrow(table, location, options).await?;
            }
            Format::Delta => {
                let found = delta_table(session, &table, location).await?;
                session.register_table(table, found)?;
            }
        }
    }
    Ok(tables.into_keys().collect())
}

/// A table of Delta Lake, by the session's own factory.
async fn delta_table(
    session: &SessionContext,
    table: &TableReference,
    location: String,
) -> Result<Arc<dyn TableProvider>> {
    let state = session.state();
    let Some(factory) = state.table_factories().get(DELTA_TABLE) else {
        return Err(Error::Bench(format!(
            "{location} is a Delta table, which this session cannot read: it was built without the feature `delta`"
        )));
    };
    let schema = Arc::new(DFSchema::empty());
    let command = CreateExternalTable::builder(table.clone(), location, DELTA_TABLE, schema);
    Ok(factory.create(&state, &command.build()).await?)
}

fn tables_of(folder: &Path) -> Result<BTreeMap<String, Found>> {
    // Absolute paths name the same files wherever the engine reads them.
    let absolute = folder
        .canonicalize()
        .map_err(|error| TpchError::io("open folder", folder, error))?;
    let mut tables: BTreeMap<String, Found> = BTreeMap::new();
    for path in entries(&absolute)? {
        let (found, stem) = if path.join("_delta_log").is_dir() {
            (Some((Format::Delta, String::new())), path.file_name())
        } else if path.is_dir() {
            let mut files = entries(&path)?.into_iter();
            (files.find_map(|file| known(&file)), path.file_name())
        } else {
            (known(&path), path.file_stem())
        };
        let name = stem.and_then(|stem| stem.to_str()).map(str::to_string);
        let (Some((format, extension)), Some(name)) = (found, name) else {
            continue;
        };
        let found = Found {
            path,
            format,
            extension,
        };
        if let Some(other) = tables.get(&name) {
            return Err(Error::Bench(format!(
                "{} and {} are both table '{name}': rename or remove one",
                other.path.display(),
                found.path.display()
            )));
        }
        tables.insert(name, found);
    }
    if tables.is_empty() {
        return Err(Error::Bench(format!(
            "folder {} has no tables: it must hold NAME.parquet, NAME.csv, NAME.json or NAME.arrow, or folders NAME of such files or with a \
             _delta_log",
            folder.display()
        )));
    }
    Ok(tables)
}

/// The format of a file, and the extension of its name with the dot.
fn known(file: &Path) -> Option<(Format, String)> {
    let extension = file.extension()?.to_string_lossy();
    Some((Format::of(file)?, format!(".{extension}")))
}

/// What lies in a folder, in the order of names; hidden entries do not count.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = |error| TpchError::io("read folder", folder, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let entry = entry.map_err(read)?;
        if !entry.file_name().to_string_lossy().starts_with(['.', '_']) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_and_folders_are_tables() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, "a\n1\n").expect("a file");
        };
        let error = tables_of(folder.path())
            .expect_err("nothing there")
            .to_string();
        assert!(error.contains("no tables"), "{error}");
        for name in [
            "b.csv",
            "notes.txt",
            "A.parquet",
            ".c.csv",
            "d/1.ndjson",
            "d/2.ndjson",
            "empty/x",
            "e/_delta_log/00000000000000000000.json",
            "e/part.parquet",
        ] {
            put(name);
        }
        let tables = tables_of(folder.path()).expect("tables");
        let found: Vec<_> = tables
            .iter()
            .map(|(name, found)| (name.as_str(), found.format, found.extension.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("A", Format::Parquet, ".parquet"),
                ("b", Format::Csv, ".csv"),
                ("d", Format::Json, ".ndjson"),
                ("e", Format::Delta, "")
            ]
        );
        put("d.arrow");
        let error = tables_of(folder.path())
            .expect_err("two of a name")
            .to_string();
        assert!(error.contains("table 'd'"), "{error}");
        let error = tables_of(&folder.path().join("none"))
            .expect_err("no folder")
            .to_string();
        assert!(error.contains("none"), "{error}");
    }
}
