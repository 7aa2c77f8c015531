//! Why a part of a plan stays on the CPU, in words for the user.

use std::fmt;

use datafusion::error::DataFusionError;

/// A short clause such as `joins run on the CPU`, for EXPLAIN and for errors under `require_gpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    text: String,
    rank: Rank,
}

/// How close a reason is to the root cause, closest first: reports list reasons in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The device does not run the operator.
    Incapable,
    /// The device could, but the CPU is estimated to be faster.
    Chosen,
    /// Another operator, elsewhere in the plan, stays on the CPU.
    Consequence,
}

impl Reason {
    /// A reason from its text: the device does not run it.
    pub fn new(text: impl Into<String>) -> Self {
        Self::ranked(Rank::Incapable, text)
    }

    /// A reason from its text.
    pub fn ranked(rank: Rank, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            rank,
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How close it is to the root cause.
    pub fn rank(&self) -> Rank {
        self.rank
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// DataFusion could not describe its own plan: leave it to DataFusion.
impl From<DataFusionError> for Reason {
    fn from(error: DataFusionError) -> Self {
        Self::new(format!(
            "the plan could not be analysed ({})",
            error.strip_backtrace()
        ))
    }
}

/// `Err` with a reason.
pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, Reason> {
    Err(Reason::new(text))
}
