//! Expressions over strings: looked up by dictionary code, or computed over bytes.

pub(in crate::codegen) mod bytes;
#[cfg(test)]
mod bytes_tests;
pub(in crate::codegen) mod combination;
mod entries;
pub(in crate::codegen) mod evaluated;
pub(in crate::codegen) mod lookup;
#[cfg(test)]
mod lookup_tests;
pub(in crate::codegen) mod packed;
pub(in crate::codegen) mod plan;
pub(in crate::codegen) mod sought;
