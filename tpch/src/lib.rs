//! TPC-H and JCC-H: the data, the 22 queries, the comparison of answers, the runner and its report.
//!
//! The crate drives an engine through the small trait [`QueryEngine`] and knows none. The dependency is inverted on
//! purpose: the `warpline` program has a `tpch` subcommand, so the engine's crate depends on this one, and Cargo allows
//! no cycle. Whoever implements the trait gets the whole benchmark, verification included.
//!
//! - [`queries`]: the text of the queries, and TPC-H's with the specification's validation parameters.
//! - [`jcch`]: the same schema and queries with skewed data, and parameters that ask for it.
//! - [`tables`], [`generate`] and [`files`]: schemas, and data made in memory or written as parquet, CSV or `.tbl`.
//! - [`data`]: tables read from parquet files that exist already.
//! - [`verify`]: compares two answers row by row and value by value.
//! - [`runner`] and [`report`]: cold and hot runs of each query, as a table for people or JSON for tools.
//! - [`compare`] and [`environment`]: a report beside an earlier one, and what each ran on.

mod benchmark;
pub mod compare;
pub mod data;
mod engine;
pub mod environment;
mod error;
pub mod files;
pub mod generate;
pub mod jcch;
mod progress;
pub mod queries;
pub mod report;
pub mod runner;
mod scale;
pub mod tables;
mod task;
pub mod verify;

pub use benchmark::Benchmark;
pub use engine::{DeviceWork, MemoryLadder, QueryEngine, QueryMetrics, QueryRun, WorkBalance};
pub use error::{Result, TpchError, one_line};
pub use scale::Scale;
pub use task::{QueryName, Subject, Task};

#[cfg(test)]
mod tests;
