//! Errors of statements with their SQLSTATE, and of the start of a server.

use std::fmt;
use std::path::PathBuf;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::object_store;
use datafusion::sql::sqlparser::parser::ParserError;

/// Result with a [`ServeError`].
pub type Result<T, E = ServeError> = std::result::Result<T, E>;

/// SQLSTATE codes, by PostgreSQL's names.
pub(crate) mod state {
    pub(crate) const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub(crate) const CONNECTION_FAILURE: &str = "08006";
    pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
    pub(crate) const DATA_EXCEPTION: &str = "22000";
    pub(crate) const NUMERIC_VALUE_OUT_OF_RANGE: &str = "22003";
    pub(crate) const DIVISION_BY_ZERO: &str = "22012";
    pub(crate) const INVALID_PARAMETER_VALUE: &str = "22023";
    pub(crate) const INVALID_TEXT_REPRESENTATION: &str = "22P02";
    pub(crate) const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
    pub(crate) const INVALID_AUTHORIZATION: &str = "28000";
    pub(crate) const INVALID_PASSWORD: &str = "28P01";
    pub(crate) const INVALID_CURSOR_NAME: &str = "34000";
    pub(crate) const INSUFFICIENT_PRIVILEGE: &str = "42501";
    pub(crate) const SYNTAX_ERROR: &str = "42601";
    pub(crate) const DUPLICATE_COLUMN: &str = "42701";
    pub(crate) const AMBIGUOUS_COLUMN: &str = "42702";
    pub(crate) const UNDEFINED_COLUMN: &str = "42703";
    pub(crate) const UNDEFINED_OBJECT: &str = "42704";
    pub(crate) const DATATYPE_MISMATCH: &str = "42804";
    pub(crate) const UNDEFINED_FUNCTION: &str = "42883";
    pub(crate) const UNDEFINED_TABLE: &str = "42P01";
    pub(crate) const DUPLICATE_CURSOR: &str = "42P03";
    pub(crate) const DUPLICATE_TABLE: &str = "42P07";
    pub(crate) const INSUFFICIENT_RESOURCES: &str = "53000";
    pub(crate) const OUT_OF_MEMORY: &str = "53200";
    pub(crate) const TOO_MANY_CONNECTIONS: &str = "53300";
    pub(crate) const LIMIT_EXCEEDED: &str = "54000";
    pub(crate) const QUERY_CANCELED: &str = "57014";
    pub(crate) const ADMIN_SHUTDOWN: &str = "57P01";
    pub(crate) const IO_ERROR: &str = "58030";
    pub(crate) const UNDEFINED_FILE: &str = "58P01";
    pub(crate) const INTERNAL_ERROR: &str = "XX000";
}

/// Why a statement failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeError {
    /// PostgreSQL's code of five characters.
    pub code: &'static str,
    /// What happened.
    pub message: String,
    /// The connection ends with it.
    pub fatal: bool,
}

impl ServeError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fatal: false,
        }
    }

    pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            fatal: true,
            ..Self::new(code, message)
        }
    }

    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(
            state::FEATURE_NOT_SUPPORTED,
            format!("{what} is not supported"),
        )
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(state::INSUFFICIENT_PRIVILEGE, message)
    }

    /// The error that represents a panic.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::new(
            state::INTERNAL_ERROR,
            format!("the query ended in a panic: {}", text.unwrap_or("?")),
        )
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServeError {}

impl From<DataFusionError> for ServeError {
    fn from(error: DataFusionError) -> Self {
        let message = one_line(&error.strip_backtrace());
        Self::new(code_of(&error, &message), message)
    }
}

impl From<ArrowError> for ServeError {
    fn from(error: ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

impl From<ParserError> for ServeError {
    fn from(error: ParserError) -> Self {
        Self::new(state::SYNTAX_ERROR, one_line(&error.to_string()))
    }
}

fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

fn code_of(error: &DataFusionError, message: &str) -> &'static str {
    match error.find_root() {
        DataFusionError::SQL(..) => state::SYNTAX_ERROR,
        DataFusionError::NotImplemented(_) => state::FEATURE_NOT_SUPPORTED,
        DataFusionError::ResourcesExhausted(_) => state::OUT_OF_MEMORY,
        DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
            SchemaError::AmbiguousReference { .. } => state::AMBIGUOUS_COLUMN,
            SchemaError::DuplicateQualifiedField { .. }
            | SchemaError::DuplicateUnqualifiedField { .. } => state::DUPLICATE_COLUMN,
            SchemaError::FieldNotFound { .. } => state::UNDEFINED_COLUMN,
        },
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::DivideByZero => state::DIVISION_BY_ZERO,
            ArrowError::ArithmeticOverflow(_) => state::NUMERIC_VALUE_OUT_OF_RANGE,
            ArrowError::CastError(_) | ArrowError::ParseError(_) => {
                state::INVALID_TEXT_REPRESENTATION
            }
            ArrowError::NotYetImplemented(_) => state::FEATURE_NOT_SUPPORTED,
            ArrowError::MemoryError(_) => state::OUT_OF_MEMORY,
            _ => state::DATA_EXCEPTION,
        },
        DataFusionError::ObjectStore(store) => match store.as_ref() {
            object_store::Error::PermissionDenied { .. } => state::INSUFFICIENT_PRIVILEGE,
            object_store::Error::NotFound { .. } => state::UNDEFINED_FILE,
            _ => state::IO_ERROR,
        },
        DataFusionError::IoError(_) | DataFusionError::ParquetError(_) => state::IO_ERROR,
        DataFusionError::Plan(_) | DataFusionError::Configuration(_) => planned(message),
        DataFusionError::Execution(_) | DataFusionError::External(_) => {
            if message.contains("time_limit") {
                state::QUERY_CANCELED
            } else if message.contains("already exists") {
                state::DUPLICATE_TABLE
            } else if message.contains("doesn't exist") || message.contains("does not exist") {
                state::UNDEFINED_TABLE
            } else if message.contains("out of memory") || message.contains("memory is short") {
                state::OUT_OF_MEMORY
            } else {
                state::DATA_EXCEPTION
            }
        }
        _ => state::INTERNAL_ERROR,
    }
}

/// The code of a message of the planner, which has none.
fn planned(message: &str) -> &'static str {
    let has = |part: &str| message.contains(part);
    if has("Invalid function") || has("No function matches") || has("failed to match any signature")
    {
        state::UNDEFINED_FUNCTION
    } else if has("table '") && has("not found") || has("No table named") {
        state::UNDEFINED_TABLE
    } else if has("already exists") {
        state::DUPLICATE_TABLE
    } else if has("Cannot infer common") || has("Cannot coerce") || has("type mismatch") {
        state::DATATYPE_MISMATCH
    } else if has("Placeholder") || has("parameter") {
        state::INVALID_PARAMETER_VALUE
    } else if has("Config value") || has("config namespace") {
        state::UNDEFINED_OBJECT
    } else {
        state::SYNTAX_ERROR
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address was given.
    #[error("there is nothing to serve: give --postgres ADDRESS, --flight ADDRESS or both")]
    Nothing,
    /// An address beyond loopback without users or TLS.
    #[error(
        "{address} is reachable from other machines, and {missing}; give {remedy}, listen on 127.0.0.1, or say --insecure"
    )]
    Unsafe {
        /// The address.
        address: std::net::SocketAddr,
        /// What is missing.
        missing: &'static str,
        /// The arguments that add it.
        remedy: &'static str,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
    /// A file cannot be read, or what it says is wrong.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The threads of queries cannot be started.
    #[error("cannot start threads: {0}; raise the limit on threads or memory")]
    Threads(std::io::Error),
    /// The certificate and key cannot be used.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// A table of a folder cannot be registered.
    #[error("{0}")]
    Data(#[from] Box<DataFusionError>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_codes_of_postgresql() {
        let code = |error: DataFusionError| ServeError::from(error).code;
        assert_eq!(
            code(DataFusionError::from(ArrowError::DivideByZero)),
            "22012"
        );
        assert_eq!(
            code(DataFusionError::Plan("table 'a.b.c' not found".into())),
            "42P01"
        );
        assert_eq!(
            code(DataFusionError::NotImplemented("x".into()).context("y")),
            "0A000"
        );
    }
}
