//! Warpline's front door: sessions that answer SQL through DataFusion and, where there is one, a GPU.
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
//! - [`WarplineSession`]: a DataFusion `SessionContext` whose plans run on a device, and a plain one beside it.
//! - [`WarplineExt`]: adds the same to somebody else's `SessionStateBuilder`.
//! - [`mod@bench`]: micro-benchmarks of the device.
//! - [`page`]: reports as pages with tables and charts.
//! - [`DeviceChoice`]: which device; with none, DataFusion answers on the CPU.

pub mod bench;
mod chart;
mod device;
mod environment;
mod error;
mod extension;
mod guard;
mod memory;
pub mod page;
mod plan_cache;
mod query;
mod session;

pub use device::{Device, DeviceChoice, device_reports};
pub use environment::environment;
pub use error::{Error, Result};
pub use extension::WarplineExt;
pub use memory::DeviceMemory;
pub use plan_cache::PlanCacheStats;
pub use query::PreparedQuery;
pub use session::{WarplineSession, WarplineSessionBuilder};
pub use warpline_planner::ByteSize;
pub use warpline_tpch::{MemoryLadder, QueryMetrics, QueryRun};
