//! Errors of planning; each names the cause and the remedy.

use datafusion::error::DataFusionError;

/// Why a query was not planned.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PlannerError {
    /// `warpline.require_gpu` is set and part of the query would run on the CPU.
    #[error(
        "warpline.require_gpu is set, but the query cannot run on the device alone: {reasons}; \
         SET warpline.require_gpu = false to let the CPU do its part"
    )]
    Fallback {
        /// Every operator left on the CPU with its reason.
        reasons: String,
    },
    /// `warpline.require_gpu` is set and the session has no device.
    #[error(
        "warpline.require_gpu is set, but the session has no device; open it with a usable device \
         (`warpline devices` lists them) or SET warpline.require_gpu = false"
    )]
    NoDevice,
    /// The text is not a size.
    #[error("'{given}' is not a size: give bytes with a unit, for example 16GiB or 512MB")]
    Size {
        /// What was given.
        given: String,
    },
    /// A setting got a value it cannot have.
    #[error("'{value}' is not a value of {setting}; valid values: {valid}")]
    Setting {
        /// The setting's full name.
        setting: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be set to.
        valid: String,
    },
}

impl From<PlannerError> for DataFusionError {
    fn from(error: PlannerError) -> Self {
        match error {
            PlannerError::Setting { .. } | PlannerError::Size { .. } => {
                Self::Configuration(error.to_string())
            }
            _ => Self::Plan(error.to_string()),
        }
    }
}
