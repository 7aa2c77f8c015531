//! The loaded columns of a table, as queries use them.

use std::sync::Arc;

use crate::column::Column;
use crate::parquet::ChunkCounts;

/// Columns of one table, ready for kernels.
#[derive(Debug, Clone, Default)]
pub struct LoadedTable {
    /// Rows of every column.
    pub rows: usize,
    /// The requested columns, in the order of the request.
    pub columns: Vec<Arc<Column>>,
    /// Milliseconds spent reading, encoding and uploading, waiting for another session's load
    /// included; 0 when all columns were resident.
    pub load_ms: f64,
    /// Bytes copied to the device for this request.
    pub bytes_uploaded: usize,
    /// How many of the requested columns were not resident, and were read whole.
    pub columns_loaded: usize,
    /// How many were resident without the rows of files that were added since; those rows alone were read.
    pub columns_grown: usize,
    /// Column chunks of parquet files that were decoded for this request, by who did it.
    pub chunks: ChunkCounts,
}
