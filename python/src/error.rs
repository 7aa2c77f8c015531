//! `warpline.Error`: what Rust reports, with the exception of a Python function as its cause where there is one.

use std::fmt;

use datafusion::error::DataFusionError;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    warpline,
    Error,
    PyException,
    "What went wrong: the message names the cause, and what to do about it."
);

/// An exception of Python code that a query called: a function or a stream of rows.
#[derive(Debug)]
pub(crate) struct PythonFailure {
    /// What failed, for the message.
    what: String,
    cause: PyErr,
}

impl PythonFailure {
    /// `what` failed with an exception.
    pub(crate) fn new(what: String, cause: PyErr) -> Self {
        Self { what, cause }
    }
}

impl fmt::Display for PythonFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.what, self.cause)
    }
}

impl std::error::Error for PythonFailure {}

impl From<PythonFailure> for DataFusionError {
    fn from(failure: PythonFailure) -> Self {
        Self::External(Box::new(failure))
    }
}

/// An error of this package's own.
pub(crate) fn refused(message: impl fmt::Display) -> PyErr {
    Error::new_err(message.to_string())
}

/// An error of the engine as an exception.
pub(crate) fn raised(py: Python<'_>, error: &warpline::Error) -> PyErr {
    let exception = Error::new_err(error.to_string());
    if let warpline::Error::DataFusion(inner) = error
        && let DataFusionError::External(root) = inner.find_root()
        && let Some(failure) = root.downcast_ref::<PythonFailure>()
    {
        exception.set_cause(py, Some(failure.cause.clone_ref(py)));
    }
    exception
}

/// An error of DataFusion as an exception.
pub(crate) fn raised_by_plan(py: Python<'_>, error: DataFusionError) -> PyErr {
    raised(py, &warpline::Error::from(error))
}
