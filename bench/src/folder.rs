//! The tables of a folder of data files, local or in an object store: one for each file, and one for each sub-folder of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::DataFusionError;
use datafusion::execution::options::ArrowReadOptions;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::path::Path as StorePath;
use datafusion::prelude::{CsvReadOptions, JsonReadOptions, ParquetReadOptions, SessionContext};
use warpline_tpch::{QueryEngine, TpchError};

use crate::error::{Error, Result};

/// What `STORED AS` names tables of Delta Lake.
const DELTA_TABLE: &str = "DELTATABLE";
/// The folder of their log.
const DELTA_LOG: &str = "_delta_log";

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
    fn of(extension: &str) -> Option<Self> {
        Some(match extension {
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
    /// That of a folder ends with a slash.
    location: String,
    format: Format,
    /// The extension of its files, with the dot.
    extension: String,
}

/// What lies in a folder.
struct Entry {
    /// Its location; that of a folder ends with a slash.
    location: String,
    name: String,
    /// Of a folder: the names of the files in it, in order.
    files: Option<Vec<String>>,
    /// Does it have a log of Delta Lake?
    has_log: bool,
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
    register_all(session, tables_of(folder)?).await
}

/// Registers the tables of a folder in an object store of the session, as [`register`] does.
///
/// # Errors
/// [`Error::DataFusion`] when the store cannot be listed or a file is damaged; [`Error::Bench`] when there are no such files, or two
/// tables of a name.
pub async fn register_at(
    session: &SessionContext,
    folder: &ListingTableUrl,
) -> Result<Vec<String>> {
    let store = session.runtime_env().object_store(folder)?;
    let root = folder.object_store();
    let entries = stored(store.as_ref(), root.as_str(), folder.prefix())
        .await
        .map_err(|error| DataFusionError::from(error).context(format!("listing {folder}")))?;
    register_all(session, tables_in(entries, folder.as_str())?).await
}

async fn register_all(
    session: &SessionContext,
    tables: BTreeMap<String, Found>,
) -> Result<Vec<String>> {
    for (name, found) in &tables {
        let table = TableReference::bare(name.as_str());
        let location = found.location.clone();
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
    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_string());
    let mut all = Vec::new();
    for path in entries(&absolute)? {
        let Some(own) = name(&path) else {
            continue;
        };
        let mut location = path.to_string_lossy().into_owned();
        let mut files = None;
        if path.is_dir() {
            // What DataFusion takes for a folder of files.
            location.push('/');
            files = Some(entries(&path)?.iter().filter_map(name).collect());
        }
        all.push(Entry {
            location,
            name: own,
            files,
            has_log: path.join(DELTA_LOG).is_dir(),
        });
    }
    tables_in(all, &folder.display().to_string())
}

/// The tables of a folder that has these entries.
fn tables_in(entries: Vec<Entry>, folder: &str) -> Result<BTreeMap<String, Found>> {
    let mut tables: BTreeMap<String, Found> = BTreeMap::new();
    for entry in entries {
        let (found, name) = match &entry.files {
            Some(_) if entry.has_log => (Some((Format::Delta, String::new())), &*entry.name),
            Some(files) => (files.iter().find_map(|file| known(file)), &*entry.name),
            None => (
                known(&entry.name),
                entry.name.rsplit_once('.').map_or("", |(stem, _)| stem),
            ),
        };
        let Some((format, extension)) = found else {
            continue;
        };
        let found = Found {
            location: entry.location,
            format,
            extension,
        };
        if let Some(other) = tables.get(name) {
            return Err(Error::Bench(format!(
                "{} and {} are both table '{name}': rename or remove one",
                other.location, found.location
            )));
        }
        tables.insert(name.to_string(), found);
    }
    if tables.is_empty() {
        return Err(Error::Bench(format!(
            "folder {folder} has no tables: it must hold NAME.parquet, NAME.csv, NAME.json or NAME.arrow, or folders NAME of such files or \
             with a _delta_log"
        )));
    }
    Ok(tables)
}

/// The format of a file, and the extension of its name with the dot.
fn known(file: &str) -> Option<(Format, String)> {
    let (stem, extension) = file.rsplit_once('.')?;
    let format = Format::of(extension).filter(|_| !stem.is_empty())?;
    Some((format, format!(".{extension}")))
}

/// What lies in a folder, in the order of names; hidden entries do not count.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = |error| TpchError::io("read folder", folder, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let entry = entry.map_err(read)?;
        if !is_hidden(&entry.file_name().to_string_lossy()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// What lies at a prefix of a store, in the order of names; hidden entries do not count.
async fn stored(
    store: &dyn ObjectStore,
    root: &str,
    prefix: &StorePath,
) -> datafusion::object_store::Result<Vec<Entry>> {
    let location = |path: &StorePath| format!("{root}{path}");
    let name = |path: &StorePath| {
        let name = path.filename().filter(|name| !is_hidden(name));
        name.map(str::to_string)
    };
    let listed = store.list_with_delimiter(Some(prefix)).await?;
    let mut entries = Vec::new();
    for folder in listed.common_prefixes {
        let Some(own) = name(&folder) else {
            continue;
        };
        let inside = store.list_with_delimiter(Some(&folder)).await?;
        let mut files: Vec<String> = inside
            .objects
            .iter()
            .filter_map(|meta| name(&meta.location))
            .collect();
        files.sort();
        let is_log = |path: &StorePath| path.filename() == Some(DELTA_LOG);
        entries.push(Entry {
            location: location(&folder) + "/",
            name: own,
            files: Some(files),
            has_log: inside.common_prefixes.iter().any(is_log),
        });
    }
    for file in listed.objects {
        entries.extend(name(&file.location).map(|name| Entry {
            location: location(&file.location),
            name,
            files: None,
            has_log: false,
        }));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use datafusion::object_store::local::LocalFileSystem;

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
        let store = LocalFileSystem::new_with_prefix(folder.path()).expect("a store");
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime");
        let entries = runtime.block_on(stored(&store, "s3://bucket/", &StorePath::default()));
        let stored = tables_in(entries.expect("a list"), "s3://bucket/").expect("tables");
        let stored: Vec<_> = stored.values().map(|t| (&*t.location, t.format)).collect();
        assert_eq!(
            stored,
            [
                ("s3://bucket/A.parquet", Format::Parquet),
                ("s3://bucket/b.csv", Format::Csv),
                ("s3://bucket/d/", Format::Json),
                ("s3://bucket/e/", Format::Delta)
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
