//! The kernels that make dictionaries of strings that lie as bytes: source text and argument struct.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of the kernels of `column_texts.cu`, each of which says what it uses.
    pub struct ColumnTextArgs {
        /// Where each string begins, and the end of the last.
        pub offsets: DevicePtr as "const u64*",
        /// Their bytes, padded as those of every column.
        pub data: DevicePtr as "const u8*",
        /// A bit a row, 0 for NULL; null without NULLs.
        pub validity: DevicePtr as "const u32*",
        /// A power of two of slots.
        pub slots: DevicePtr as "u64*",
        /// Registers, or counters.
        pub counts: DevicePtr as "u32*",
        /// The slot of each row.
        pub codes: DevicePtr as "u32*",
        /// The number of each slot.
        pub numbers: DevicePtr as "u32*",
        /// A row of each number.
        pub picked: DevicePtr as "u32*",
        /// The rank of each number.
        pub ranks: DevicePtr as "const u32*",
        /// The rank of each row.
        pub out: DevicePtr as "u8*",
        /// Rows, fewer than 2^32 - 1.
        pub rows: u64,
        /// Slots less one.
        pub slot_mask: u64,
        /// Decides about hashes.
        pub seed: u64,
        /// Bytes of a rank: 1, 2 or 4.
        pub width: u32,
        /// Bits of a hash that choose a register.
        pub precision: u32,
    }
}

/// Complete source of the module.
pub fn column_texts() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        ColumnTextArgs::CUDA,
        include_str!("../../cuda/column_texts.cu")
    )
}
