//! The errors of micro-benchmarks.

use datafusion::error::DataFusionError;
use warpline_gpu::GpuError;
use warpline_tpch::{TpchError, one_line};

/// Result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in a micro-benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A benchmark that does not exist, a wrong result, or a report that cannot be read or written.
    #[error("{0}")]
    Bench(String),
    /// The device failed.
    #[error("{0}")]
    Gpu(#[from] GpuError),
    /// DataFusion refused a query or a setting.
    #[error("{}", one_line(.0))]
    DataFusion(#[from] Box<DataFusionError>),
    /// Data cannot be made, or a file cannot be written.
    #[error("{0}")]
    Tpch(#[from] TpchError),
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Self::DataFusion(Box::new(error))
    }
}
