//! The errors of this crate; each names the cause and the remedy.

use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;

/// Result with a [`TpchError`].
pub type Result<T, E = TpchError> = std::result::Result<T, E>;

/// What can go wrong while data is made or read, or a benchmark is set up.
#[derive(Debug, thiserror::Error)]
pub enum TpchError {
    /// The scale factor is not a number in the supported range.
    #[error(
        "'{given}' is not a usable scale factor: give a number from {min} to {max}, for example 1 or 0.01"
    )]
    Scale {
        /// What was given.
        given: String,
        /// Smallest scale for which each table has rows.
        min: f64,
        /// Largest scale the specification defines.
        max: f64,
    },
    /// A list of query numbers cannot be read.
    #[error("'{given}' does not name queries: give numbers from 1 to 22, for example 1,6 or 3-5")]
    Query {
        /// The part that is wrong.
        given: String,
    },
    /// A name is not that of an output format.
    #[error("'{given}' is not an output format: give one of parquet, csv, tbl")]
    Format {
        /// What was given.
        given: String,
    },
    /// A name is not that of a kind of bindings.
    #[error("'{given}' is no kind of bindings: give skewed or normal")]
    Bindings {
        /// What was given.
        given: String,
    },
    /// A seed is not a number in the supported range.
    #[error("'{given}' is not a seed: give a whole number from 1 to {max}")]
    Seed {
        /// What was given.
        given: String,
        /// The largest seed.
        max: i64,
    },
    /// A seed draws a date that does not exist.
    #[error(
        "seed {seed} gives query {query} the date {date}, which no calendar has (JCC-H draws one for some seeds): give \
         another --seed, or leave the query out with --query"
    )]
    NoSuchDate {
        /// The seed.
        seed: i64,
        /// Number of the query.
        query: u8,
        /// What was drawn.
        date: String,
    },
    /// A file is not a report that can be compared with.
    #[error("{} is no report of a benchmark: {reason}; give a file that --format json wrote", path.display())]
    NoReport {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The data directory does not exist or is a file.
    #[error(
        "data directory {} {problem}: give a directory that has <table>.parquet or <table>/*.parquet for each table, \
         or make one with `warpline tpch generate` or `warpline jcch generate`",
        path.display()
    )]
    DataDirectory {
        /// The directory.
        path: PathBuf,
        /// "does not exist" or "is not a directory".
        problem: &'static str,
    },
    /// A table that the queries need has no files.
    #[error(
        "data directory {} has no table '{table}': expected {table}.parquet or {table}/*.parquet there; \
         make the data with `warpline tpch generate` or `warpline jcch generate`, or choose queries that do not read it",
        path.display()
    )]
    MissingTable {
        /// The directory.
        path: PathBuf,
        /// The table's name.
        table: &'static str,
    },
    /// The files of a table do not have the columns of TPC-H.
    #[error(
        "{} is not TPC-H's table '{table}': {problem}; make the data with `warpline tpch generate` or `warpline jcch generate`",
        path.display()
    )]
    TableSchema {
        /// The file or directory of the table.
        path: PathBuf,
        /// The table's name.
        table: &'static str,
        /// The first column that is missing or has another type.
        problem: String,
    },
    /// The output directory has something in it.
    #[error(
        "output directory {} is not empty (it has '{entry}'): give a new or empty directory, or remove what is there first",
        path.display()
    )]
    OutputNotEmpty {
        /// The directory.
        path: PathBuf,
        /// One of its entries.
        entry: String,
    },
    /// A file operation failed.
    #[error("cannot {action} {}: {source}; check the path, its permissions and the free space", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A parquet file could not be written.
    #[error("cannot write parquet file {}: {source}; check the free space and permissions", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The writer's reason.
        source: ParquetError,
    },
    /// Arrow refused an operation on the data.
    #[error("{0}")]
    Arrow(#[from] ArrowError),
    /// DataFusion refused an operation; its message names the remedy.
    #[error("{}", one_line(.0))]
    DataFusion(#[from] Box<DataFusionError>),
    /// A worker thread could not be started or died.
    #[error("a generator thread failed: {0}; try again with a smaller scale or fewer threads")]
    Worker(String),
    /// The user asked to stop.
    #[error("cancelled; what had been written was removed, so run the command again to start over")]
    Cancelled,
}

impl TpchError {
    /// Wraps a failed file operation; `action` is a verb such as "create".
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }
}

impl From<DataFusionError> for TpchError {
    fn from(error: DataFusionError) -> Self {
        Self::DataFusion(Box::new(error))
    }
}

/// DataFusion's message on one line, without backtrace and without the names of rules around it.
pub fn one_line(error: &DataFusionError) -> String {
    let text = match error {
        // A rule's name is one word and tells a user nothing.
        DataFusionError::Context(context, inner) if !context.trim().contains(' ') => {
            return one_line(inner);
        }
        DataFusionError::Context(context, inner) => {
            format!("{}: {}", context.trim(), one_line(inner))
        }
        DataFusionError::External(inner) => match inner.downcast_ref::<DataFusionError>() {
            Some(inner) => return one_line(inner),
            None => inner.to_string(),
        },
        other => other.strip_backtrace(),
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let joined = lines.collect::<Vec<_>>().join("; ");
    // The sentence of a line goes on.
    joined.replace(".; ", "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_datafusion_fit_on_a_line() {
        let inner = DataFusionError::External("first.\nsecond".into());
        let inner = DataFusionError::Context("some_rule".to_string(), Box::new(inner));
        let error = DataFusionError::Context("while planning".to_string(), Box::new(inner));
        assert_eq!(one_line(&error), "while planning: first; second");
    }
}
