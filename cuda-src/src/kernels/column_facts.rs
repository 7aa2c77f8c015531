//! The kernels that find out facts about finished columns: source text and argument struct.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of the kernels of `column_facts.cu`, each of which says what it uses.
    pub struct ColumnFactsArgs {
        /// Codes.
        pub data: DevicePtr as "const void*",
        /// A bit a row, 0 for NULL; null without NULLs.
        pub validity: DevicePtr as "const u32*",
        /// What is found.
        pub out: DevicePtr as "void*",
        /// Rows of the sample.
        pub picked: DevicePtr as "const u64*",
        /// Rows.
        pub rows: u64,
        /// Added to codes.
        pub base: u64,
        /// The least possible value.
        pub least: u64,
        /// The greatest less the least, slots less one, or rows of the sample.
        pub span: u64,
        /// Greatest hash that is kept.
        pub bound: u64,
        /// Bytes of a code: 1, 2, 4 or 8; 0 of bits.
        pub width: u32,
        /// Bits of a hash that choose a register.
        pub precision: u32,
    }
}

/// Complete source of the module.
pub fn column_facts() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        ColumnFactsArgs::CUDA,
        include_str!("../../cuda/column_facts.cu")
    )
}
