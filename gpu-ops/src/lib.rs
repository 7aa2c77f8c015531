//! Warpline's devices, memory, columns and GPU operators.

pub mod codegen;
pub mod column;
pub mod device;
pub mod error;
pub mod exec;
pub mod expr;
pub mod memory;
pub mod pipeline;
pub mod runtime;
pub mod tables;

pub use error::{GpuError, Result};
