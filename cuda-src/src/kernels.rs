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

kernel_args! {
    /// Arguments of `exclusive_sum_u64` and `exclusive_sum_u32` (`scan.cu`).
    pub struct ScanArgs {
        /// Counts, 8-byte aligned.
        pub counts: DevicePtr as "const u32*",
        /// One sum more than counts: `u64*` (16-byte aligned) or `u32*`; with `u32*` it may be `counts` itself.
        pub out: DevicePtr as "void*",
        /// One zeroed word a tile of [`SCAN_TILE`] counts; null for a single block.
        pub states: DevicePtr as "u64*",
        /// A zeroed word; unused without `states`.
        pub ticket: DevicePtr as "u32*",
        /// Number of counts on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most counts.
        pub most: u64,
    }

    /// Arguments of the kernels that finish join indexes (`hash_index.cu`).
    pub struct HashIndexArgs {
        /// Key words, one array each; the first [`MOST_KEY_WORDS`] at most are used.
        pub words: [DevicePtr; 16] as "const u64*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// Slots less one; for dense indexes the number of slots.
        pub mask: u64,
        /// Keys of the table, slot after slot.
        pub keys: DevicePtr as "u64*",
        /// Slot states of tables with wide keys; null otherwise.
        pub states: DevicePtr as "u32*",
        /// Unique: the entry of each slot. Ranges: the entries, slot after slot.
        pub entry: DevicePtr as "u32*",
        /// Counts by slot, then offsets; one more than slots.
        pub offsets: DevicePtr as "u32*",
        /// Scratch: the slot of each row; unused by dense indexes.
        pub slot_of_row: DevicePtr as "u32*",
        /// Scratch: the place of each row among those of its slot.
        pub place_of_row: DevicePtr as "u32*",
        /// Set to 1 when a key of a unique index occurs twice.
        pub duplicate: DevicePtr as "u64*",
        /// Set to 1 when a key found no slot within `limit` probes.
        pub overflow: DevicePtr as "u64*",
        /// Most probes.
        pub limit: u32,
        /// Fills up the struct.
        pub padding: u32,
    }
}

/// Most words of a packed key of a join index.
pub const MOST_KEY_WORDS: usize = 16;
/// Counts that a block of `scan.cu` takes at a time.
pub const SCAN_TILE: u64 = 4096;
/// Dynamic shared memory of a block of `scan.cu`, in bytes.
pub const SCAN_SHARED_BYTES: usize = 32 * 8 + 16;

/// Complete source of the module with `exclusive_sum_u64` and `exclusive_sum_u32`.
pub fn scan() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        ScanArgs::CUDA,
        include_str!("../cuda/scan.cu")
    )
}

/// Complete source of the module that finishes join indexes whose keys have `key_words` words
/// (1 to [`MOST_KEY_WORDS`]).
pub fn hash_index(key_words: usize) -> String {
    format!(
        "#define WL_KEY_WORDS {key_words}\n#include \"simt.cuh\"\n{}{}",
        HashIndexArgs::CUDA,
        include_str!("../cuda/hash_index.cu")
    )
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
    vec![
        ("group_compact", group_compact()),
        ("scan", scan()),
        ("hash_index_1", hash_index(1)),
        ("hash_index_2", hash_index(2)),
        ("hash_index_5", hash_index(5)),
    ]
}
