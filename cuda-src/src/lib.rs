//! Warpline's CUDA C++ and the emulator that runs it on the CPU.

mod args;
pub mod emulator;
mod headers;
pub mod kernels;

pub use args::{__private, DevicePtr, KernelArgs, KernelField};
pub use headers::{PIPELINE_HEADER, PRIMITIVES_HEADER, SIMT_HEADER, headers};
