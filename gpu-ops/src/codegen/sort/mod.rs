//! Sorts: packed key words of every row, the gather of rows in order, and windows over them.

mod bounds;
pub(in crate::codegen) mod kernels;
pub(in crate::codegen) mod source;
pub(in crate::codegen) mod window;
