//! Indexes and probes.

pub(in crate::codegen) mod entries;
pub(in crate::codegen) mod index;
pub(in crate::codegen) mod look_up;
pub(in crate::codegen) mod matches;
pub(in crate::codegen) mod probe;
