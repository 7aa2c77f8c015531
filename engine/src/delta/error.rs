//! Errors of tables' logs, with the table.

use datafusion::error::DataFusionError;
use deltalake_core::DeltaTableError;

/// An error of the table's log, with the table.
pub(super) fn failed(location: &str, error: DeltaTableError) -> DataFusionError {
    DataFusionError::from(error).context(format!("Delta table {location}"))
}
