//! What every kernel is written with: arguments, shared memory, loads and stores of rows.

pub(in crate::codegen) mod loads;
pub(in crate::codegen) mod stores;
pub(in crate::codegen) mod writer;
