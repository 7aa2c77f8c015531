//! Writes tables as parquet, CSV or dbgen's `.tbl` files: in parallel, in bounded memory, and atomically.
//!
//! The result is `DIR/<table>/part-NNN.<format>`. Files are made in a hidden directory inside `DIR` and moved when all
//! of them are complete, so a reader never sees half a table.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::datatypes::DataType;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::error::{Result, TpchError};
use crate::generate::{Part, for_each_part, list_parts};
use crate::progress::RowProgress;
use crate::tables::{Dataset, Table, TextFormat};

/// Most rows of one file: lineitem files of about 600 MB, so that planning a scan does not have to look
/// at hundreds of them.
const MOST_ROWS_PER_FILE: u64 = 12_000_000;

/// Tables of many rows have this many files at least, so that they are written and read in parallel …
const PARALLEL_FILES: u64 = 16;

/// … as long as a file gets this many rows.
const LEAST_ROWS_PER_FILE: u64 = 2_000_000;

/// Rows of a parquet row group: what a reader decodes as one piece of work.
const ROWS_PER_ROW_GROUP: usize = 1 << 20;

/// Rows that are generated and encoded at a time.
const BATCH_ROWS: usize = 8192;

/// The format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Parquet, Snappy-compressed.
    Parquet,
    /// CSV with a header line.
    Csv,
    /// dbgen's pipe-separated text.
    Tbl,
}

impl FileFormat {
    /// The file name extension, which is also the name of the format.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Tbl => "tbl",
        }
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension())
    }
}

impl FromStr for FileFormat {
    type Err = TpchError;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "parquet" => Ok(Self::Parquet),
            "csv" => Ok(Self::Csv),
            "tbl" => Ok(Self::Tbl),
            _ => Err(TpchError::Format {
                given: text.to_string(),
            }),
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Rows of all tables.
    pub rows: u64,
    /// Files of all tables.
    pub files: usize,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Writes `tables`, of TPC-H where only a scale is given, to `directory`, which must be empty or not exist, on `threads` threads.
///
/// Setting `cancel` stops the work soon; what was written so far is removed, as it is after an error.
///
/// # Errors
/// [`TpchError::OutputNotEmpty`], [`TpchError::Io`], [`TpchError::Parquet`], [`TpchError::Cancelled`].
pub fn write_tables(
    tables: &[Table],
    dataset: impl Into<Dataset>,
    format: FileFormat,
    directory: &Path,
    threads: usize,
    cancel: &AtomicBool,
) -> Result<Written> {
    let dataset = dataset.into();
    fs::create_dir_all(directory)
        .map_err(|error| TpchError::io("create directory", directory, error))?;
    refuse_entries(directory)?;
    let staging = Staging::new(directory)?;
    for table in tables {
        let path = staging.path.join(table.name());
        fs::create_dir(&path).map_err(|error| TpchError::io("create directory", &path, error))?;
    }

    let parts = list_parts(tables, |table| {
        if table.is_fixed() {
            return 1;
        }
        let rows = dataset.expected_rows(table);
        let parallel = rows.div_ceil(LEAST_ROWS_PER_FILE).min(PARALLEL_FILES);
        let files = rows.div_ceil(MOST_ROWS_PER_FILE).max(parallel).max(1);
        usize::try_from(files).unwrap_or(usize::MAX)
    });
    let progress = RowProgress::start(
        "Writing",
        tables
            .iter()
            .map(|&table| dataset.expected_rows(table))
            .sum(),
    );
    let (rows, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    for_each_part(&parts, threads, cancel, |_, part| {
        let digits = part.of.to_string().len().max(3);
        let name = format!("part-{:0digits$}.{}", part.number - 1, format.extension());
        let path = staging.path.join(part.table.name()).join(name);
        let on_rows = |rows| {
            progress.add(rows);
            !cancel.load(Ordering::Relaxed)
        };
        let written = match format {
            FileFormat::Parquet => write_parquet(part, dataset, &path, &on_rows),
            FileFormat::Csv => write_text(part, dataset, TextFormat::Csv, &path, &on_rows),
            FileFormat::Tbl => write_text(part, dataset, TextFormat::Tbl, &path, &on_rows),
        }?;
        rows.fetch_add(written, Ordering::Relaxed);
        let size = fs::metadata(&path)
            .map_err(|error| TpchError::io("read the size of", &path, error))?
            .len();
        bytes.fetch_add(size, Ordering::Relaxed);
        Ok(())
    })?;

    for table in tables {
        let (from, to) = (
            staging.path.join(table.name()),
            directory.join(table.name()),
        );
        fs::rename(&from, &to)
            .map_err(|error| TpchError::io("move the finished table to", &to, error))?;
    }
    Ok(Written {
        rows: rows.into_inner(),
        files: parts.len(),
        bytes: bytes.into_inner(),
    })
}

/// Fails when the directory has any entry: nothing of the user's is overwritten, and old and new files never mix.
fn refuse_entries(directory: &Path) -> Result<()> {
    let mut entries = fs::read_dir(directory)
        .map_err(|error| TpchError::io("list directory", directory, error))?;
    match entries.next() {
        None => Ok(()),
        Some(Err(error)) => Err(TpchError::io("list directory", directory, error)),
        Some(Ok(entry)) => Err(TpchError::OutputNotEmpty {
            path: directory.to_path_buf(),
            entry: entry.file_name().to_string_lossy().into_owned(),
        }),
    }
}

/// The hidden directory in which files grow; removed with what is left in it.
struct Staging {
    path: PathBuf,
}

impl Staging {
    /// It lies inside the target, hence on the same file system, where a rename is atomic.
    fn new(directory: &Path) -> Result<Self> {
        let path = directory.join(format!(".generating-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| TpchError::io("create directory", &path, error))?;
        Ok(Self { path })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn create(path: &Path) -> Result<File> {
    File::create_new(path).map_err(|error| TpchError::io("create", path, error))
}

fn write_text(
    part: Part,
    dataset: Dataset,
    format: TextFormat,
    path: &Path,
    on_rows: &dyn Fn(u64) -> bool,
) -> Result<u64> {
    let mut file = BufWriter::with_capacity(1 << 20, create(path)?);
    let written = dataset
        .write_text(part.table, format, part.number, part.of, &mut file, on_rows)
        .and_then(|rows| file.flush().map(|()| rows));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => TpchError::Cancelled,
        _ => TpchError::io("write", path, error),
    })
}

fn write_parquet(
    part: Part,
    dataset: Dataset,
    path: &Path,
    on_rows: &dyn Fn(u64) -> bool,
) -> Result<u64> {
    let failed = |source| TpchError::Parquet {
        path: path.to_path_buf(),
        source,
    };
    let file = BufWriter::with_capacity(1 << 20, create(path)?);
    let properties = parquet_properties(part.table);
    let mut writer =
        ArrowWriter::try_new(file, part.table.schema(), Some(properties)).map_err(failed)?;
    let mut rows = 0;
    for batch in dataset.batches(part.table, part.number, part.of, BATCH_ROWS) {
        let batch = batch?;
        writer.write(&batch).map_err(failed)?;
        rows += batch.num_rows() as u64;
        if !on_rows(batch.num_rows() as u64) {
            return Err(TpchError::Cancelled);
        }
    }
    writer.close().map_err(failed)?;
    Ok(rows)
}

/// Encodings that suit the values: a dictionary only where values repeat, differences for ascending keys.
///
/// A dictionary attempt on comments, prices or random keys costs a hash per value and is given up in the end.
fn parquet_properties(table: Table) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(ROWS_PER_ROW_GROUP))
        .set_created_by(concat!("warpline ", env!("CARGO_PKG_VERSION")).to_string());
    for field in table.schema().fields() {
        // No query can skip row groups by text, whose statistics cost a third of the encoding.
        if field.data_type() == &DataType::Utf8View {
            let column = ColumnPath::from(field.name().as_str());
            properties = properties.set_column_statistics_enabled(column, EnabledStatistics::None);
        }
    }
    for column in repeating_columns(table) {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(*column), true);
    }
    for column in ascending_columns(table) {
        properties = properties
            .set_column_encoding(ColumnPath::from(*column), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// Columns with at most a few thousand distinct values at any scale.
fn repeating_columns(table: Table) -> &'static [&'static str] {
    match table {
        Table::Nation => &["n_regionkey"],
        Table::Region => &[],
        Table::Part => &["p_mfgr", "p_brand", "p_type", "p_size", "p_container"],
        Table::Supplier => &["s_nationkey"],
        Table::Partsupp => &["ps_availqty"],
        Table::Customer => &["c_nationkey", "c_mktsegment"],
        Table::Orders => &[
            "o_orderstatus",
            "o_orderdate",
            "o_orderpriority",
            "o_shippriority",
        ],
        Table::Lineitem => &[
            "l_linenumber",
            "l_quantity",
            "l_discount",
            "l_tax",
            "l_returnflag",
            "l_linestatus",
            "l_shipdate",
            "l_commitdate",
            "l_receiptdate",
            "l_shipinstruct",
            "l_shipmode",
        ],
    }
}

/// Integer keys in the order in which rows are generated.
fn ascending_columns(table: Table) -> &'static [&'static str] {
    match table {
        Table::Nation => &["n_nationkey"],
        Table::Region => &["r_regionkey"],
        Table::Part => &["p_partkey"],
        Table::Supplier => &["s_suppkey"],
        Table::Partsupp => &["ps_partkey"],
        Table::Customer => &["c_custkey"],
        Table::Orders => &["o_orderkey"],
        Table::Lineitem => &["l_orderkey"],
    }
}
