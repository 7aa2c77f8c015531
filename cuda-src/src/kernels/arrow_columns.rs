//! The kernels that lay columns out as Arrow does: source text and argument struct.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of the kernels of `arrow_columns.cu`.
    #[derive(Default)]
    pub struct ArrowColumnArgs {
        /// `widen_codes`: unsigned codes, or signed values in 16 bytes; `pack_flags`: a byte a row.
        pub codes: DevicePtr as "const void*",
        /// `widen_codes`: the values; `pack_flags`: a bit a row, in words of 4 bytes.
        pub out: DevicePtr as "void*",
        /// `pack_flags` adds the number of bytes that are 0.
        pub zeros: DevicePtr as "u64*",
        /// Added to every code: the low half …
        pub base_low: u64,
        /// … and the high one.
        pub base_high: u64,
        /// Rows.
        pub rows: u64,
        /// Bytes of a code: 1, 2, 4, 8 or 16.
        pub width: u32,
        /// Bytes of a value: 1, 2, 4, 8, 16 or 32.
        pub out_width: u32,
    }
}

/// Complete source of the module.
pub fn arrow_columns() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        ArrowColumnArgs::CUDA,
        include_str!("../../cuda/arrow_columns.cu")
    )
}
