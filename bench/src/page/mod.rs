//! Reports as pages of HTML with tables and charts: one file each, without scripts and without anything from the network.
//!
//! They follow the width of the screen and its light or dark colours, and print on A4.

mod bench;
mod choices;
mod html;
mod tpch;

pub use bench::bench;
pub use choices::choices;
pub use tpch::tpch;

#[cfg(test)]
mod tests;
