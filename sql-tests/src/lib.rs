//! The harness of the SQL tests: fixed answers in sqllogictest files, and differential tests against DataFusion.
//!
//! A [`Fixture`] holds tables and runs SQL twice, on a device and on plain DataFusion, and compares:
//!
//! ```no_run
//! use std::sync::Arc;
//! use arrow::array::Int64Array;
//! use warpline_sql_tests::Fixture;
//!
//! let fixture = Fixture::device()
//!     .table("t", [("a", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as _)]);
//! fixture.check("SELECT a + 1 AS b FROM t WHERE a IS NOT NULL");
//! ```
//!
//! [`slt`] runs sqllogictest files. [`comparison`] compares files of statements with plain DataFusion: [`datafusion_files`] those of
//! DataFusion itself, with [`datafusion_data`] for what they read, [`suite`] those of other engines. [`mod@fuzz`] draws tables and
//! queries at random. The tests themselves are in `tests/it`, one binary, as each links DataFusion.

pub mod comparison;
pub mod cut;
pub mod datafusion_data;
pub mod datafusion_files;
mod fixture;
pub mod fuzz;
mod random;
pub mod slt;
pub mod suite;

pub use fixture::{Expected, Fixture, every, exhaustive, test_device};
pub use random::Random;
