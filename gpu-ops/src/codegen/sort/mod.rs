//! Orders: packed key words, and the gather of rows.

pub(in crate::codegen) mod kernels;
