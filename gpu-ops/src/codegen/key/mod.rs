//! Keys as packed codes, and columns of tables that serve as keys or results as they are.

pub(in crate::codegen) mod bounds;
pub(in crate::codegen) mod codes;
pub(in crate::codegen) mod zero_copy;
