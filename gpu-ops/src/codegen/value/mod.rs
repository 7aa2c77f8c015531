//! Scalar expressions as C++ statements.

mod bits;
pub(in crate::codegen) mod calendar;
pub(in crate::codegen) mod cast;
mod civil;
pub(in crate::codegen) mod columns;
pub(in crate::codegen) mod filter;
pub(in crate::codegen) mod math;
pub(in crate::codegen) mod operators;
pub(in crate::codegen) mod scalar;
mod zone;
