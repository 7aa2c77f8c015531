//! Queries whose columns and results are larger than device memory, which is made tiny for it.

mod scans;
mod tpch;
