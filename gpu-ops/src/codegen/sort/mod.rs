//! Orders: packed key words, and the gather of rows.

pub(in crate::codegen) mod kernels;
pub(in crate::codegen) mod window;
