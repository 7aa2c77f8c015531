//! Sorts: packed key words of every row, and the gather of rows in order.

pub(in crate::codegen) mod kernels;
pub(in crate::codegen) mod window;
