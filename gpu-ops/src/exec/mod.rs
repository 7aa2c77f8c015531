//! Running fragments: the DataFusion node, loading, launching and finishing.
//!
//! [`GpuFragmentExec`] is the node in the physical plan; `run` makes columns resident, generates,
//! compiles and launches the kernel; `groups` brings aggregation states to the host;
//! `finish` turns them into Arrow arrays of the plan's types.

mod control;
mod decode;
mod display;
mod execute;
mod finish;
mod fragment;
mod groups;
mod places;
mod prepared;
mod report;
mod run;
mod run_graph;
mod storage;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod text;

pub use fragment::GpuFragmentExec;
pub use report::{FragmentOptions, FragmentReport};
