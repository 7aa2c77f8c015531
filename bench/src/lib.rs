//! Micro-benchmarks of the device, a user's own data, and all reports as charts and pages.
//!
//! - [`micro`]: sweeps of one parameter of a kernel, a join, a group-by; `warpline bench` runs them.
//! - [`hits`]: a table like that of ClickBench.
//! - [`folder`]: the tables of a folder of data files, for a user's own queries.
//! - [`page`]: reports of micro-benchmarks and of TPC-H as pages of HTML.
//! - `chart`: the drawings in them, as SVG.
//!
//! The crate drives an engine through [`warpline_tpch::QueryEngine`] and knows none: the `warpline` program depends on it.

mod chart;
mod error;
pub mod folder;
pub mod hits;
pub mod micro;
pub mod page;

pub use error::{Error, Result};
