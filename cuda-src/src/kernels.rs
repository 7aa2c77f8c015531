//! The hand-written kernels: their source text and argument structs.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of `count_groups` and `emit_groups` (`group_compact.cu`).
    pub struct GroupCompactArgs {
        /// Header words, then `slots` states of `state_words` words.
        pub table: DevicePtr as "u64*",
        /// `slots` keys of `key_words` words; null for tables indexed by the group number.
        pub keys: DevicePtr as "const u64*",
        /// Slot states of tables with wide keys; null otherwise.
        pub states: DevicePtr as "const u32*",
        /// Output rows of `key_words + state_words` words; unused by `count_groups`.
        pub rows: DevicePtr as "u64*",
        /// Slots of the table.
        pub slots: u64,
        /// Words of a key; 1 (the group number) when `keys` is null.
        pub key_words: u64,
        /// Words of a state.
        pub state_words: u64,
    }
}

/// Source of `count_groups` and `emit_groups`, to be preceded by [`GroupCompactArgs::CUDA`].
const GROUP_COMPACT: &str = include_str!("../cuda/group_compact.cu");

/// Complete source of the module with `count_groups` and `emit_groups`.
pub fn group_compact() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{GROUP_COMPACT}",
        GroupCompactArgs::CUDA
    )
}

/// Every hand-written module by name, for checks that all of them compile.
pub fn all() -> Vec<(&'static str, String)> {
    vec![("group_compact", group_compact())]
}
