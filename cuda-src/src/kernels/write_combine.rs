//! The kernel that partitions rows straight to host memory: source text and argument struct.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of `write_combine` (`write_combine.cu`).
    pub struct WriteCombineArgs {
        /// The keys.
        pub keys_in: DevicePtr as "const u64*",
        /// The values.
        pub values_in: DevicePtr as "const u64*",
        /// Keys by partition.
        pub keys_out: DevicePtr as "u64*",
        /// Values by partition.
        pub values_out: DevicePtr as "u64*",
        /// By partition: its first place, a multiple of 16; moves on.
        pub front: DevicePtr as "u64*",
        /// By partition: the place behind its last; moves back.
        pub back: DevicePtr as "u64*",
        /// By block and partition: twice as many words as rows are gathered in device memory; null when none are.
        pub behind: DevicePtr as "u64*",
        /// Number of rows.
        pub rows: u64,
    }
}

const WRITE_COMBINE: &str = include_str!("../../cuda/write_combine.cu");

/// What one compiled `write_combine` is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteCombineShape {
    /// Partitions, a power of two.
    pub fanout: u32,
    /// Rows of a partition that are gathered in shared memory, a power of two; 0: none.
    pub slots: u32,
    /// Rows of a partition that are gathered in device memory behind those, a multiple of `slots`; 0: none.
    pub behind: u32,
}

impl WriteCombineShape {
    /// Complete source of the kernel.
    pub fn source(self) -> String {
        let Self {
            fanout,
            slots,
            behind,
        } = self;
        format!(
            "#define WL_BLOCK_THREADS {WRITE_COMBINE_THREADS}\n#define WL_FANOUT {fanout}\n#define WL_SLOTS {slots}\n\
             #define WL_BEHIND {behind}\n#include \"simt.cuh\"\n{}{WRITE_COMBINE}",
            WriteCombineArgs::CUDA
        )
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(self) -> usize {
        self.fanout as usize * (self.slots.max(1) as usize * 16 + 12)
    }

    /// Different for different kernels.
    pub fn variant(self) -> usize {
        (self.fanout as usize) << 32 | (self.slots as usize) << 16 | self.behind as usize
    }
}

/// Threads of a block of `write_combine`.
pub const WRITE_COMBINE_THREADS: u32 = 512;
