//! The kernels that measure a device: source text and argument struct.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of the kernels that measure a device (`calibrate.cu`).
    pub struct CalibrateArgs {
        /// `mask + 1` values of the kernel's width; `calibrate_read`: 16 bytes an access.
        pub data: DevicePtr as "void*",
        /// 256 words that what was seen is added to.
        pub sums: DevicePtr as "u64*",
        /// Number of accesses.
        pub accesses: u64,
        /// Places less one: a power of two less one.
        pub mask: u32,
        /// Makes other places.
        pub seed: u32,
    }
}

const CALIBRATE: &str = include_str!("../../cuda/calibrate.cu");

/// Complete source of the module that measures a device.
pub fn calibrate() -> String {
    format!("#include \"simt.cuh\"\n{}{CALIBRATE}", CalibrateArgs::CUDA)
}
