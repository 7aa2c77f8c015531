//! Indexes and probes.

pub(in crate::codegen) mod look_up;
