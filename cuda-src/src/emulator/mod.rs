//! The emulator: CUDA C++ kernels on the CPU, every lane a coroutine.

mod abi;
mod collective;
mod compile;
mod error;
mod lane;
mod launch;
mod module;
mod stack;

pub use compile::{CompileOptions, Emulator, EmulatorOptions, Sanitizer};
pub use error::{EmulatorError, Result, WaitingGroup, WaitingReport};
pub use launch::{LaunchConfig, LaunchReport, MAX_SHARED_BYTES, Resident, Schedule};
pub use module::{Kernel, Module};
