//! From a pipeline of the graph to statements: its source, its stages, its sink.
//!
//! | | |
//! |---|---|
//! | `sinks` | a whole pipeline |
//! | `sources`, `stages`, `thread_rows` | up to its sink, and how many rows a thread holds |
//! | `refill` | whether warps gather rows on the way |
//! | `settle`, `union` | the layouts of what is filled |
//! | `collected`, `collected_by_hash`, `written_rows` | an aggregation as two pipelines: rows written down, and grouped once they lie together |

pub(in crate::codegen) mod collected;
pub(in crate::codegen) mod collected_by_hash;
pub(in crate::codegen) mod refill;
pub(in crate::codegen) mod settle;
pub(in crate::codegen) mod sinks;
pub(in crate::codegen) mod sources;
pub(in crate::codegen) mod stages;
pub(in crate::codegen) mod thread_rows;
pub(in crate::codegen) mod union;
pub(in crate::codegen) mod written_rows;
