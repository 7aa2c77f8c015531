//! Keys as packed codes, and columns that are keys or results as they are.

pub(in crate::codegen) mod codes;
pub(in crate::codegen) mod zero_copy;
