//! Group-bys of collected rows: in core, and in partitions of equal hash bits.

pub(super) mod collected;
pub(super) mod partitioned;
