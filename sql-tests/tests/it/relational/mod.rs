//! Joins, groups, orders, sets and subqueries on the device against plain DataFusion, edge by edge.
//!
//! Each test runs many queries over the same tables and reports all that differ. Kernels are cached between queries
//! and runs, so what counts is the number of different pipelines.

mod aggregates;
mod balance;
mod binary;
mod borrowed;
mod clustered;
mod constants;
mod correlated;
mod edges;
mod facts;
mod fanout;
mod first_rows;
mod forced;
mod grouping_sets;
mod groups;
mod jcch;
mod joins;
mod known;
mod lane_refill;
mod late_columns;
mod limits;
mod lists;
mod moments;
mod nearest;
mod nested;
mod order;
mod partitions;
mod phases;
mod ranges;
mod scans;
mod sets;
mod strings;
mod structs;
mod subqueries;
mod tables;
pub(crate) mod tpch;
mod unnest;
mod windows;
