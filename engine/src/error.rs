//! The errors of the facade; each names the cause and the remedy.

use datafusion::error::DataFusionError;
use warpline_gpu::GpuError;
use warpline_planner::PlannerError;
use warpline_tpch::{TpchError, one_line};

/// Result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a session is opened or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text does not name a device.
    #[error("'{given}' is not a device: give {expected}")]
    DeviceName {
        /// What was given.
        given: String,
        /// What it may be, or what is wrong with it.
        expected: String,
    },
    /// The device that was asked for cannot be used; the message says why and what to install.
    #[error("{0}")]
    Device(String),
    /// A GPU was required and none is in use.
    #[error(
        "a GPU is required, but device '{device}' means that the CPU answers: run `warpline devices` to see what was \
         found, or drop --require-gpu"
    )]
    NoGpu {
        /// The device setting.
        device: String,
    },
    /// A value that a setting cannot have.
    #[error("{0}")]
    Value(#[from] PlannerError),
    /// A setting is not of the form KEY=VALUE.
    #[error("'{given}' is not a setting: give KEY=VALUE, for example warpline.min_rows=0")]
    Setting {
        /// What was given.
        given: String,
    },
    /// The shell has no such backslash command.
    #[error("'\\{given}' is not a command of the shell: \\? lists them")]
    ShellCommand {
        /// What was given, without the backslash.
        given: String,
    },
    /// A script that is run without a shell has a backslash command.
    #[error("'\\{given}' is a command of the shell: leave it out of scripts to profile")]
    OutsideShell {
        /// What was given, without the backslash.
        given: String,
    },
    /// A table that is to be unpinned is not pinned.
    #[error("table '{given}' is not pinned: pinned are {}", if pinned.is_empty() { "none" } else { pinned.as_str() })]
    NotPinned {
        /// The table, as it was given.
        given: String,
        /// The tables that are.
        pinned: String,
    },
    /// A device is to be measured, and the session has none.
    #[error(
        "there is no device to measure: `warpline devices` shows why, --device names one (in the emulator every kernel runs, \
         and times mean nothing)"
    )]
    NothingToMeasure,
    /// A table is to be pinned, and the session has no device.
    #[error(
        "tables are pinned in device memory, and device '{device}' has none, since the CPU answers: `warpline devices` shows \
         what was found, SET warpline.device takes another one"
    )]
    NothingToPinIn {
        /// The device setting.
        device: String,
    },
    /// An answer has no form in the format that was asked for.
    #[error(
        "the answer cannot be printed as {format}: {cause}; choose another format with --format or \\pset format"
    )]
    Format {
        /// The format.
        format: String,
        /// Why not.
        cause: String,
    },
    /// There is nothing to profile.
    #[error("the file has no statement: its last one is profiled, after the others have run")]
    NoQuery,
    /// The terminal cannot be read.
    #[error("cannot read the terminal: {0}; give statements with -c or -f, or pipe them in")]
    Terminal(String),
    /// DataFusion refused a statement or setting.
    #[error("{}", describe(.0))]
    DataFusion(#[from] Box<DataFusionError>),
    /// A panic below the session; the session remains usable.
    #[error(
        "the query ended in a panic: {0}; please report this with the query, and with the file if it reads one"
    )]
    Panicked(String),
    /// A server cannot start.
    #[error("{0}")]
    Serve(String),
    /// The workers of a cluster cannot be used.
    #[error("{0}")]
    Cluster(String),
    /// A micro-benchmark that does not exist, or whose result is wrong.
    #[error("{0}")]
    Bench(String),
    /// The device failed in a micro-benchmark.
    #[error("{0}")]
    Gpu(#[from] warpline_gpu::GpuError),
    /// The benchmark failed outside a query.
    #[error("{0}")]
    Tpch(#[from] TpchError),
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Self::DataFusion(Box::new(error))
    }
}

/// DataFusion's message on one line, with a remedy where the message itself has none.
pub(crate) fn describe(error: &DataFusionError) -> String {
    let message = one_line(error);
    let unknown_setting = message.contains("Config value") && message.contains("not found on");
    let unknown_prefix = message.contains("find config namespace");
    let remedy = if unknown_setting || unknown_prefix {
        "; SHOW ALL lists the settings"
    } else if message.contains("ParserError") || message.contains("TokenizerError") {
        "; check the statement's syntax there"
    } else if names_missing_file(&message) {
        "; there is no such table, nor a file of that name with an ending that says what it is: .parquet, .csv, .json or \
         .arrow (CREATE EXTERNAL TABLE reads files of any name)"
    } else if (message.contains("table '") && message.contains("not found"))
        || message.contains("No table named")
    {
        "; SHOW TABLES lists the tables, CREATE EXTERNAL TABLE adds one from a file"
    } else if message.contains("Unable to find factory for") {
        "; the formats are PARQUET, CSV, JSON and ARROW"
    } else if message.contains("External table") && message.contains("already exists") {
        "; CREATE OR REPLACE EXTERNAL TABLE takes its place, DROP TABLE removes it"
    } else if message.contains("No field named") && !message.contains("Valid fields") {
        "; the statement reads no table with such a column"
    } else {
        ""
    };
    format!("{message}{remedy}")
}

/// Whether a message about a missing table means a file: `'a/b.parquet'` in place of a table's name.
fn names_missing_file(message: &str) -> bool {
    let name = message.split_once("table 'datafusion.public.");
    name.and_then(|(_, rest)| rest.split_once('\''))
        .is_some_and(|(name, rest)| rest.starts_with(" not found") && name.contains(['.', '/']))
}

impl Error {
    /// A text that `error` refuses as a device.
    pub fn device_name(given: &str, error: &GpuError) -> Self {
        Self::DeviceName {
            given: given.to_string(),
            expected: match error {
                GpuError::InvalidSetting { expected, .. } => expected.clone(),
                other => other.to_string(),
            },
        }
    }
}
