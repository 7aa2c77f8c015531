//! Warpline's public API: sessions that answer SQL through DataFusion and, if there is one, a GPU.
//!
//! ```no_run
//! # async fn example() -> Result<(), warpline::Error> {
//! use warpline::WarplineSession;
//!
//! let session = WarplineSession::builder().open().await?;
//! let run = session.query("SELECT 1 + 1 AS two").await?;
//! assert_eq!(run.rows(), 1);
//! # Ok(()) }
//! ```
//!
//! In your own DataFusion session, which keeps its tables, functions, rules and settings:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use datafusion::prelude::SessionContext;
//! use warpline::{Device, DeviceChoice, WarplineExt};
//!
//! let device = Device::open(DeviceChoice::Auto, None)?;
//! let context = SessionContext::new().with_warpline(&device);
//! context.register_parquet("trips", "trips.parquet", Default::default()).await?;
//! context.sql("SELECT city, sum(km) FROM trips GROUP BY city").await?.show().await?;
//! # Ok(()) }
//! ```
//!
//! A program that embeds Warpline must use the same minor version of `datafusion` ([`datafusion::DATAFUSION_VERSION`]
//! is the one this was built with), since plans and rows are shared.
//!
//! - [`WarplineSession`]: a DataFusion `SessionContext` whose plans run on a device, and a plain one beside it.
//! - [`WarplineExt`]: adds the same to somebody else's `SessionStateBuilder` or `SessionContext`; [`WarplineRule`] and
//!   [`WarplineConfig`] are for those who assemble sessions themselves.
//! - [`WarplineCodec`]: plans as bytes, for engines that send them to other machines.
//! - [`Device`]: opened once and shared by sessions; [`Device::pin`] keeps tables in its memory.
//! - [`metrics_of`]: what an executed plan did on the device, and why it left something to the CPU.
//! - [`WarplineSession::rows_on_device`]: rows that stay on the device, in Arrow's layout, for other libraries there.
//! - [`profile()`]: what host and device did when, for a timeline.
//! - [`serve_compiler_if_asked`]: called first in `main`, lets kernels be compiled by copies of the program, many at once.
//! - [`WarplineSession::delta_table`]: tables of Delta Lake.
//! - [`run_program`]: the `warpline` program as a function, for hosts that are programs of another kind; [`leave`] ends it at once.
//! - `DeviceEngine` and [`mod@serve`]: servers for clients of PostgreSQL and Flight SQL.
//! - `Cluster` and `Worker`: queries that several machines answer together.
//! - [`DeviceChoice`]: which device, or which devices; with none, DataFusion answers on the CPU.
//! - [`architecture`]: how all of Warpline is built, for those who change it.

#[doc = include_str!("architecture.md")]
pub mod architecture {}

// The command line names this crate as other programs do.
extern crate self as warpline;

mod cli;
#[cfg(feature = "serve")]
mod client_settings;
#[cfg(feature = "cluster")]
mod cluster;
mod codec;
mod create_table;
#[cfg(feature = "delta")]
mod delta;
mod device;
#[cfg(feature = "cluster")]
mod devices;
mod environment;
mod error;
mod extension;
pub mod fetch_first;
mod fragments;
mod guard;
mod guarded;
mod lossy;
mod memory;
mod memory_table;
mod metrics;
mod on_device;
mod pin;
mod plan_cache;
mod profile;
mod program;
mod query;
mod rule;
#[cfg(feature = "serve")]
mod serving;
mod session;
mod statement;
mod stores;

#[cfg(feature = "cluster")]
pub use cluster::{Cluster, ClusterOptions, Worker, WorkerOptions};
pub use codec::WarplineCodec;
#[cfg(feature = "delta")]
pub use delta::DeltaOptions;
pub use device::{Device, DeviceChoice, device_reports};
pub use environment::environment;
pub use error::{Error, Result};
pub use extension::WarplineExt;
pub use memory::{DeviceMemory, DeviceState, ResidentColumn};
pub use memory_table::MemoryTable;
pub use metrics::metrics_of;
pub use on_device::RowsOnDevice;
pub use pin::PinnedTable;
pub use plan_cache::PlanCacheStats;
pub use profile::{Profile, RunTimes, profile};
pub use program::{leave, run_program, status_of};
pub use query::PreparedQuery;
pub use rule::WarplineRule;
#[cfg(feature = "serve")]
pub use serving::{DeviceEngine, store_folder};
pub use session::{WarplineSession, WarplineSessionBuilder};
pub use statement::is_own_statement;
pub use warpline_gpu::device::compiler::{
    serve_if_asked as serve_compiler_if_asked, serve_process as serve_compiler,
    start_by as start_compilers_by,
};
pub use warpline_gpu::device_batch::DeviceBatch;
pub use warpline_planner::{
    ByteSize, CpuOperator, PlacementReportExec, WarplineConfig, statements, statements::order_keys,
};
/// Servers of the PostgreSQL protocol and Flight SQL over `DeviceEngine`.
#[cfg(feature = "serve")]
pub use warpline_serve as serve;
pub use warpline_tpch::{DeviceWork, MemoryLadder, QueryMetrics, QueryRun};
