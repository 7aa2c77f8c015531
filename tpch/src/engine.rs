//! The trait through which the benchmark drives an engine.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use serde::Serialize;

/// An engine that the benchmark can load, run and check.
#[async_trait]
pub trait QueryEngine: Send + Sync {
    /// The device that answers, in words: `NVIDIA H200 (cuda:0)`, `emulator`, `cpu`.
    fn device(&self) -> String;

    /// Bytes per second, read plus written, of a plain copy on the device, measured when the engine was opened.
    /// `None` when no device takes part.
    fn copy_bandwidth(&self) -> Option<f64>;

    /// The session under test; tables are registered here.
    fn session(&self) -> &SessionContext;

    /// The oracle: plain DataFusion. It may share its catalog with [`Self::session`].
    fn reference(&self) -> &SessionContext;

    /// A table of these batches as the engine likes it best.
    ///
    /// # Errors
    /// When a batch has other columns than `schema`.
    fn table_in_memory(
        &self,
        schema: SchemaRef,
        partitions: Vec<Vec<RecordBatch>>,
    ) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        Ok(Arc::new(MemTable::try_new(schema, partitions)?))
    }

    /// Runs one query from SQL text to the last Arrow batch on the host.
    ///
    /// # Errors
    /// Whatever planning or executing the query reports.
    async fn run(&self, sql: &str) -> Result<QueryRun, DataFusionError>;
}

/// An answer and what it cost.
#[derive(Debug, Clone)]
pub struct QueryRun {
    /// Schema of the answer, also when there are no batches.
    pub schema: SchemaRef,
    /// The answer, in order.
    pub batches: Vec<RecordBatch>,
    /// Where the time went.
    pub metrics: QueryMetrics,
}

impl QueryRun {
    /// Number of rows in the answer.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// The parts of one run, as far as the engine knows them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryMetrics {
    /// Milliseconds spent to make columns resident on the device; 0 when they were already.
    pub load_ms: f64,
    /// Columns that were made resident for it; 0 when all were already.
    pub columns_loaded: u64,
    /// Columns that were resident but for the rows of files that were added since, and got these.
    pub columns_grown: u64,
    /// Column chunks of parquet files that the device decoded.
    pub parquet_chunks_device: u64,
    /// Column chunks of parquet files that the CPU decoded because the device could not, where the device was asked to.
    pub parquet_chunks_cpu: u64,
    /// Milliseconds from SQL text to the physical plan.
    pub plan_ms: f64,
    /// Whether the plan was one of an earlier query.
    pub plan_cached: bool,
    /// Milliseconds spent to generate and compile kernels; 0 when they came from the cache.
    pub compile_ms: f64,
    /// Milliseconds the device spent in kernels.
    pub kernel_ms: f64,
    /// Number of kernels launched.
    pub kernels: u64,
    /// Bytes the device had to read for the query; `None` when no part of it ran there.
    pub bytes: Option<u64>,
    /// Bytes of columns that crossed the link because device memory did not hold them.
    pub streamed_bytes: u64,
    /// Bytes of results that lay in host memory because device memory did not hold them.
    pub spilled_bytes: u64,
    /// Device memory that the query held at its height, in bytes; `None` when no part of it ran there.
    pub peak_device_bytes: Option<u64>,
    /// Parts of the query beside which the CPU's plan ran, since columns were to be loaded or kernels compiled.
    pub races: u64,
    /// Those of them that the CPU's plan answered.
    pub cpu_answers: u64,
    /// What was done for want of device memory.
    pub ladder: MemoryLadder,
    /// One line for each part of the plan that stayed on the CPU although a device is in use.
    pub fallbacks: Vec<String>,
    /// What each device did, where several shared the query.
    pub devices: Vec<DeviceWork>,
    /// How evenly work was spread; `None` unless the engine was asked to count and a pipeline did.
    pub balance: Option<WorkBalance>,
}

/// What one of several devices did of a query that they shared.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeviceWork {
    /// `cuda:0`, `emulator:1`.
    pub device: String,
    /// Parts of the plan that were placed on it.
    pub fragments: u64,
    /// Kernels launched.
    pub kernels: u64,
    /// Milliseconds spent in them.
    pub kernel_ms: f64,
    /// Bytes that it had to read.
    pub bytes: u64,
    /// Parts that its CPU answered, with the reasons among the query's fallbacks.
    pub fallbacks: u64,
}

/// How often which way was taken when device memory was short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryLadder {
    /// Allocations that waited for other queries to return memory.
    pub memory_waits: u64,
    /// Times that columns or indexes kept for later queries were let go of.
    pub evictions: u64,
    /// Runs that were repeated after everything kept had gone and other queries had ended.
    pub repeats: u64,
    /// Runs that were repeated as a variant that needs less device memory.
    pub out_of_core: u64,
    /// Parts of queries that the CPU answered after all.
    pub cpu_fallbacks: u64,
}

impl MemoryLadder {
    /// These and those.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            memory_waits: self.memory_waits + other.memory_waits,
            evictions: self.evictions + other.evictions,
            repeats: self.repeats + other.repeats,
            out_of_core: self.out_of_core + other.out_of_core,
            cpu_fallbacks: self.cpu_fallbacks + other.cpu_fallbacks,
        }
    }
}

/// How evenly the lanes and warps of pipelines worked (Themis, PVLDB 2024, section 8.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WorkBalance {
    /// Pipelines that counted.
    pub pipelines: usize,
    /// Intra-warp idle ratio: idle lanes of a warp iteration over 32, between 0 and 1.
    pub iir: f64,
    /// Inter-warp load imbalance factor: busy cycles of the busiest warp over the mean, of each pipeline, weighted by
    /// its cycles; 1 is even.
    pub ilif: f64,
}
