//! Portions: some rows of a step, where they lie, and the loop that runs steps over them.

pub(super) mod chunks;
pub(super) mod files;
pub(super) mod loops;
pub(super) mod partitions;
pub(super) mod spread;
pub(super) mod strides;
