//! How a layout or an expression that kernels do not run is refused.

use crate::error::{GpuError, Result};

pub(in crate::codegen) fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(GpuError::Unsupported(what.into()))
}

/// `Err` for an operation on strings that would work on codes of dictionaries.
pub(in crate::codegen) fn needs_codes<T>(what: impl Into<String>) -> Result<T> {
    Err(GpuError::NeedsCodes(what.into()))
}
