//! A program made ready to run: kernels compiled, arguments bound, the memory that each result asks for.

pub(super) mod bind;
pub(super) mod blocks;
pub(super) mod builtins;
pub(super) mod compile;
pub(super) mod covering;
pub(super) mod estimate;
pub(super) mod hints;
pub(super) mod join_bits;
pub(super) mod kernel;
pub(super) mod lookups;
pub(super) mod part_sizes;
pub(super) mod places;
pub(super) mod prepared;
pub(super) mod replan;
pub(super) mod shapes;
pub(super) mod sorter;
pub(super) mod streamed;
