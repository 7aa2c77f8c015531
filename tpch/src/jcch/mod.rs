//! JCC-H: TPC-H's schema and queries with correlations and extreme skew; data and query parameters of its generator.
//!
//! Source: Boncz, Anadiotis, Kläbe, "JCC-H: Adding Join Crossing Correlations with Skew to TPC-H", TPCTC 2017, and the
//! program that came with it; where the two differ, the program decides. The rows are those of its serial run, byte for
//! byte, although they are made in parallel: each column is a function of the row's key and of a position in a stream of
//! pseudo-random numbers, and both are known in closed form for every row, also in the middle of an oversized order.
//!
//! What is skewed: five orders have 300,000 lines per scale each, a quarter of all orders belong to five customers, half
//! of them fall on a 28 May, five parts and five suppliers take a third of the lines of all other orders, and 20 parts
//! have every supplier.
//!
//! Like that program's text output, every format holds `o_totalprice` as a signed 32-bit number of cents: the totals of
//! the five oversized orders wrap around.

mod columns;
mod keys;
mod lines;
mod orders;
mod parameters;
mod parts;
mod people;
mod stream;

pub(crate) use columns::batches;
pub(crate) use keys::Keys;
pub(crate) use lines::Lines;
pub(crate) use orders::Orders;
pub use parameters::{Binding, Bindings, Seed};
pub(crate) use parts::{PartSupps, parts};
pub(crate) use people::{customers, share, suppliers};

#[cfg(test)]
mod tests;
