//! Warpline's physical planner: what runs on the GPU, as which pipelines.
//!
//! [`GpuPlacement`] is the last rule of DataFusion's physical optimiser. It finds the largest subtrees of
//! a plan that the device runs, puts a `GpuFragmentExec` in their place and wraps the plan into a
//! [`PlacementReportExec`], which tells EXPLAIN why the rest stays on the CPU. Before that, [`WindowFilters`] rewrites what a
//! physical plan would hide, [`Durations`] what compares with intervals, [`Decorrelation`] makes joins of subqueries that have no plan otherwise, and
//! [`StructNulls`] lets fields be NULL where their struct is ([`logical_rules`]).
//!
//! A subtree becomes relational algebra ([`rel`]) with the expressions of the device ([`translate`]).
//! Once its tables are resident, their [`stats`] decide on the order of joins, and [`lower`] cuts the
//! relation into a graph of pipelines. [`FragmentPlanner`] holds all that for the executor, and decides
//! with [`choose`] which data structures stand behind groups and joins. [`metrics::collect`] sums up
//! what a finished plan did; [`WarplineConfig`] holds the settings under `warpline.`.

pub mod age;
pub mod aggregate_orders;
mod applied;
pub mod choose;
pub mod config;
pub mod cpu_memory;
pub mod decorrelate;
pub mod dependencies;
pub mod durations;
pub mod error;
pub mod filter_pushdown;
pub mod float_limits;
pub mod fragment;
pub mod guards;
pub mod interval_product;
pub mod kept_conditions;
pub mod logical_rules;
pub mod lower;
pub mod metrics;
pub mod minutes;
pub mod multisets;
pub mod order;
pub mod ordered_set;
pub mod placement;
pub mod reason;
pub mod regexp_split;
pub mod rel;
pub mod size;
pub mod statements;
pub mod stats;
pub mod structs;
pub mod subquery_nulls;
pub mod translate;
pub mod window_filter;

pub use aggregate_orders::AggregateOrders;
pub use choose::CostedPolicy;
pub use config::{GroupSetting, JoinSetting, Setting, ShardPlan, Shards, WarplineConfig};
pub use decorrelate::Decorrelation;
pub use durations::Durations;
pub use error::PlannerError;
pub use fragment::FragmentPlanner;
pub use metrics::FragmentTotals;
pub use minutes::Minutes;
pub use multisets::Multisets;
pub use placement::{CpuOperator, GpuPlacement, PlacementReportExec, is_report};
pub use reason::Reason;
pub use size::ByteSize;
pub use structs::StructNulls;
pub use subquery_nulls::SubqueryNulls;
pub use warpline_gpu::algorithm::{GroupAlgorithm, JoinAlgorithm, PipelineShape};
pub use window_filter::WindowFilters;

#[cfg(test)]
mod golden;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
