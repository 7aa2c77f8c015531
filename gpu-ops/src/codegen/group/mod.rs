//! Aggregations: accumulators, where group states live, what a row does to them, and how results come from them.

pub(in crate::codegen) mod calls;
pub(in crate::codegen) mod distinct;
pub(in crate::codegen) mod finish;
pub(in crate::codegen) mod partition;
pub(in crate::codegen) mod placement;
pub(in crate::codegen) mod sizes;
pub(in crate::codegen) mod states;
pub(in crate::codegen) mod update;
