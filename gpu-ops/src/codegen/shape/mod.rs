//! Kernel shapes: how blocks and warps go over the rows of a pipeline.
//!
//! | | |
//! |---|---|
//! | `kernel` | the shape of a pipeline, and its kernel put together |
//! | `tile` | a block takes tiles of rows: every input yields at most one output |
//! | `refill` | the same, but warps gather the rows that are left on the way |
//! | `tree`, `levels` | persistent warps with queues: an input can yield many outputs |
//! | `partition` | a block takes partitions, and groups each in shared memory |
//! | `sinks` | which operator writes the sink, in every shape |

pub(in crate::codegen) mod kernel;
pub(in crate::codegen) mod levels;
pub(in crate::codegen) mod partition;
pub(in crate::codegen) mod refill;
pub(in crate::codegen) mod sinks;
pub(in crate::codegen) mod tile;
pub(in crate::codegen) mod tree;
