//! Why a part of a plan stays on the CPU, in words for the user.

use std::fmt;

use datafusion::error::DataFusionError;

/// A short clause such as `joins run on the CPU`; shown by EXPLAIN and by `require_gpu` errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// A reason from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// DataFusion could not describe its own plan: leave it to DataFusion.
impl From<DataFusionError> for Reason {
    fn from(error: DataFusionError) -> Self {
        Self(format!(
            "the plan could not be analysed ({})",
            error.strip_backtrace()
        ))
    }
}

/// `Err` with a reason.
pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, Reason> {
    Err(Reason::new(text))
}
