//! Joins of two materialised sides: in core, stride by stride, and in partitions of equal hash bits.

pub(super) mod pairs;
pub(super) mod partitioned;
pub(super) mod sides;
pub(super) mod spill;
pub(super) mod split;
