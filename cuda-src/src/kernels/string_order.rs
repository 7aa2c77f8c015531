//! The kernels that order different strings: source text and argument struct.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of the kernels of `string_order.cu`, each of which says what it uses.
    #[derive(Default)]
    pub struct StringOrderArgs {
        /// Where each string of the column begins, and the end of the last.
        pub offsets: DevicePtr as "const u64*",
        /// Their bytes, padded as those of every column.
        pub data: DevicePtr as "const u8*",
        /// The row of each string.
        pub rows: DevicePtr as "const u32*",
        /// The string of each item; null: the item's own number.
        pub items: DevicePtr as "const u32*",
        /// The places in the order that items have between them, ascending; null: all.
        pub places: DevicePtr as "const u32*",
        /// The group of each item; null: there is one.
        pub groups: DevicePtr as "const u64*",
        /// The next bytes of each item, the first highest.
        pub heads: DevicePtr as "u64*",
        /// How many of these the string has, at most 8.
        pub rests: DevicePtr as "u64*",
        /// The items in order.
        pub sorted: DevicePtr as "const u32*",
        /// The string at each place.
        pub order: DevicePtr as "u32*",
        /// Marks, later their sums: one more than items.
        pub tied: DevicePtr as "u32*",
        /// Likewise.
        pub begins: DevicePtr as "u32*",
        /// `items` of the next round, …
        pub next_items: DevicePtr as "u32*",
        /// … its `places` …
        pub next_places: DevicePtr as "u32*",
        /// … and `groups`.
        pub next_groups: DevicePtr as "u64*",
        /// The place of each string.
        pub ranks: DevicePtr as "u32*",
        /// The row at each place.
        pub ordered: DevicePtr as "u32*",
        /// Items, or strings.
        pub count: u64,
        /// Bytes that were looked at before.
        pub skip: u64,
    }
}

/// Bytes of a string that a round of the sort looks at.
pub const STRING_HEAD_BYTES: u64 = 8;

/// Complete source of the module.
pub fn string_order() -> String {
    format!(
        "#define WL_STRING_HEAD {STRING_HEAD_BYTES}\n#include \"simt.cuh\"\n{}{}",
        StringOrderArgs::CUDA,
        include_str!("../../cuda/string_order.cu")
    )
}
