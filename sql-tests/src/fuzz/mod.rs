//! Random tables and queries, compared with plain DataFusion.
//!
//! A number determines a [`case`]: some tables, settings that force choices of the planner, and queries. Each query runs on plain
//! DataFusion and on a session with a device; the answers must be equal as [`warpline_tpch::verify`] compares them. Some queries
//! run in another form that has the same answer as well ([`metamorphic`]), and of each case one query with its aggregations cut
//! ([`crate::cut`]) and one whose rows stay on the device. Queries are trees ([`query`]), so that what fails can be made
//! small ([`shrink`]): fewer rows, a shorter query, no settings; and is written as a sqllogictest file ([`report`]).
//!
//! Where the optimizer's rules are asked for, plans without one of them are run in place of the device's.
//!
//! An answer that the CPU gave because the device met an internal error is a finding like another answer, a panic or a hang.
//! What is none: a query that plain DataFusion refuses or takes long for, one for which it contradicts itself, errors of values
//! (overflow, division by zero) where a case draws expressions that may end in one, and a want of memory under a small budget.

pub mod case;
mod draw;
pub mod metamorphic;
mod on_device;
pub mod oracle;
pub mod query;
pub mod render;
pub mod report;
mod rules;
mod run;
pub mod shrink;
pub mod table;
pub mod value;

pub use run::{Arguments, run, run_cases};
