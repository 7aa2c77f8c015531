//! What the others speak about: ranges, values, scopes, pipelines, layouts of results, and the finished program.

pub(in crate::codegen) mod accumulator;
pub(in crate::codegen) mod aggregates;
pub(in crate::codegen) mod arguments;
pub(in crate::codegen) mod context;
pub(in crate::codegen) mod key;
pub(in crate::codegen) mod layout;
pub(in crate::codegen) mod pipeline;
pub(in crate::codegen) mod program;
pub(in crate::codegen) mod range;
pub(in crate::codegen) mod refusal;
pub(in crate::codegen) mod results;
pub(in crate::codegen) mod scope;
pub(in crate::codegen) mod slot;
pub(in crate::codegen) mod state;
pub(in crate::codegen) mod value;
