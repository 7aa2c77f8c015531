//! A query on several devices without an exchange: each runs the same part of the plan over its share of one table.
//!
//! Tables that are small beside it are read whole by every device, those that are joined by the key that tells the shares apart in
//! the same ranges of it (a partition-wise join). What the devices yield, mostly groups, meets on the host, where the operators
//! above go on; many are taken to the first device, which runs those.
//!
//! ```text
//! plan ──► cuts     which part of the plan, over which table
//!            │ chain   is the union over the shares of a table what the whole yields? What may be cut beside it?
//!            │ price   bytes that are dealt out, against rows that meet; learned: how many those were
//!          deal     a plan a device, placed there, below one node
//!            │ exec    that node
//! ```

mod chain;
mod cuts;
mod deal;
mod exec;
mod learned;
mod price;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;

pub(super) use deal::Deal;
pub(super) use exec::ShardsExec;
