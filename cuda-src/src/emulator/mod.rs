//! The emulator: CUDA C++ kernels on the CPU, every lane a coroutine.

mod abi;
mod collective;
mod compile;
mod config;
mod disk;
mod error;
mod lane;
mod launch;
mod module;
mod report;
mod stack;

pub use compile::{CompileOptions, Emulator, EmulatorOptions, Sanitizer};
pub use config::{LaunchConfig, LaunchReport, MAX_SHARED_BYTES, Resident, Schedule};
pub use error::{EmulatorError, Result, WaitingGroup, WaitingReport};
pub use module::{Kernel, Module};
