//! Kernel shapes: how blocks and warps go over the rows of a pipeline.

pub(in crate::codegen) mod kernel;
pub(in crate::codegen) mod levels;
pub(in crate::codegen) mod partition;
pub(in crate::codegen) mod sinks;
pub(in crate::codegen) mod tile;
pub(in crate::codegen) mod tree;
