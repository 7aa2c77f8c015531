//! Warpline's physical planner: what runs on the GPU, as which pipelines.
//!
//! [`GpuPlacement`] is the last rule of DataFusion's physical optimiser. It finds the subtrees of a
//! plan that the device runs ([`fragment`]), translates their expressions ([`translate`]), puts a
//! `GpuFragmentExec` in their place and wraps the plan into a [`PlacementReportExec`], which tells
//! EXPLAIN why the rest stays on the CPU. [`CostedPolicy`] decides where grouped aggregation states
//! live once the columns are resident; [`metrics::collect`] sums up what a finished plan did;
//! [`WarplineConfig`] holds the settings under `warpline.`.

pub mod choose;
pub mod config;
pub mod error;
pub mod fragment;
pub mod lower;
pub mod metrics;
pub mod placement;
pub mod policy;
pub mod reason;
pub mod rel;
pub mod stats;
pub mod translate;

pub use choose::CostedPolicy;
pub use config::{GroupBy, JoinAlgorithm, PipelineShape, WarplineConfig};
pub use error::PlannerError;
pub use metrics::FragmentTotals;
pub use placement::{CpuOperator, GpuPlacement, PlacementReportExec};
pub use policy::FragmentPlanner;
pub use reason::Reason;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
