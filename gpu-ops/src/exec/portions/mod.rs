//! Portions: some rows of a step, where they lie, and the loop that runs steps over them.
//!
//! `strategy` names the ways in which a step's rows come, `choose` picks one. `strides` of a table come from host memory, `partitions`
//! and `files` write rows down in `chunks` on the device, in host memory or in files, and bring them back (`partitioned`). `each` is
//! the loop over portions, of which the next come while one is at work; `loops` are the steps that run once for each.

pub(super) mod choose;
pub(super) mod chunks;
pub(super) mod each;
pub(super) mod files;
pub(super) mod loops;
pub(super) mod partitioned;
pub(super) mod partitions;
pub(super) mod strategy;
pub(super) mod strides;
