//! The tables of a folder of data files: one for each file, and one for each sub-folder of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use datafusion::common::TableReference;
use datafusion::execution::options::ArrowReadOptions;
use datafusion::prelude::{CsvReadOptions, JsonReadOptions, ParquetReadOptions, SessionContext};
use warpline_tpch::{QueryEngine, TpchError};

use crate::error::{Error, Result};

/// Formats of data files, by the extensions of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    Csv,
    /// Objects, one a line.
    Json,
    Arrow,
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
/// jsonl (an object a line) or arrow; the session under test and its reference get the same tables. Returns their names, in order.
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
        }
    }
    Ok(tables.into_keys().collect())
}

fn tables_of(folder: &Path) -> Result<BTreeMap<String, Found>> {
    // Absolute paths name the same files wherever the engine reads them.
    let absolute = folder
        .canonicalize()
        .map_err(|error| TpchError::io("open folder", folder, error))?;
    let mut tables: BTreeMap<String, Found> = BTreeMap::new();
    for path in entries(&absolute)? {
        let (file, stem) = if path.is_dir() {
            let first = entries(&path)?
                .into_iter()
                .find(|p| Format::of(p).is_some());
            (first, path.file_name())
        } else {
            (Some(path.clone()), path.file_stem())
        };
        let format = file.as_deref().and_then(Format::of);
        let name = stem.and_then(|stem| stem.to_str()).map(str::to_string);
        let (Some(file), Some(format), Some(name)) = (file, format, name) else {
            continue;
        };
        let extension = file.extension().unwrap_or_default().to_string_lossy();
        let found = Found {
            path,
            format,
            extension: format!(".{extension}"),
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
            "folder {} has no tables: it must hold NAME.parquet, NAME.csv, NAME.json or NAME.arrow, or folders NAME of such files",
            folder.display()
        )));
    }
    Ok(tables)
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
                ("d", Format::Json, ".ndjson")
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
