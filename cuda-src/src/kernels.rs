//! The hand-written kernels: their source text and argument structs.

use crate::DevicePtr;
use crate::kernel_args;

mod partition;

pub use partition::{
    COLUMN_VALUES, MOST_PARTITION_COLUMNS, MoveColumnArgs, PARTITION_HISTOGRAM_DIGITS,
    PARTITION_HISTOGRAM_SHARED_BYTES, PARTITION_HISTOGRAM_THREADS, PARTITION_THREADS,
    PartitionHistogramArgs, PartitionOffsetsArgs, PartitionPassArgs, PartitionShape,
    RUN_SHARED_BYTES, RUN_TILE, RunStartsArgs, columns, partition_histogram, run_lengths,
};

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

    /// Arguments of `number_groups` (`group_number.cu`).
    pub struct NumberGroupsArgs {
        /// The packed key of every row.
        pub keys: DevicePtr as "const void*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// Slot states, zeroed.
        pub states: DevicePtr as "u32*",
        /// Slot keys.
        pub table: DevicePtr as "void*",
        /// Slot numbers.
        pub numbers: DevicePtr as "u32*",
        /// Slots less one.
        pub mask: u64,
        /// Number of groups; 0 at first.
        pub groups: DevicePtr as "u64*",
        /// The key of every group.
        pub dense: DevicePtr as "void*",
        /// Groups for which there is room in `dense`.
        pub room: u64,
        /// The number of every row's group.
        pub out: DevicePtr as "u32*",
        /// Set to 1 when a key found no slot within `limit` probes.
        pub overflow: DevicePtr as "u64*",
        /// Most probes.
        pub limit: u32,
        /// Fills up the struct.
        pub padding: u32,
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

kernel_args! {
    /// Arguments of `sort_small` (`sort_small.cu`).
    pub struct SmallSortArgs {
        /// Key words, major word first, one array each.
        pub words: [DevicePtr; 16] as "const u64*",
        /// Used bits of each word, from bit 0.
        pub bits: [u32; 16],
        /// The row numbers in order.
        pub order: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows, at most [`SORT_SMALL_ROWS`].
        pub most: u64,
        /// Number of words.
        pub key_words: u32,
        /// Fills up the struct.
        pub padding: u32,
    }

    /// Arguments of `sort_histogram` (`radix_sort.cu`).
    pub struct SortHistogramArgs {
        /// The key word of each row.
        pub word: DevicePtr as "const u64*",
        /// Zeroed counts: 256 for each 8 bits, least significant first.
        pub histogram: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// Used bits of the word.
        pub bits: u32,
        /// Fills up the struct.
        pub padding: u32,
    }

    /// Arguments of `sort_pass_u32`, `sort_pass_u64` and `number_rows` (`radix_sort.cu`).
    pub struct SortPassArgs {
        /// The key word of each row, read by row number when there are no `keys_in`.
        pub word: DevicePtr as "const u64*",
        /// Keys in the order so far; null in the first pass of a word.
        pub keys_in: DevicePtr as "const void*",
        /// Row numbers in the order so far; null for the order of the rows.
        pub rows_in: DevicePtr as "const u32*",
        /// Keys in the new order; null in the last pass of a word.
        pub keys_out: DevicePtr as "void*",
        /// Row numbers in the new order.
        pub rows_out: DevicePtr as "u32*",
        /// Counts of the 256 digits.
        pub histogram: DevicePtr as "const u32*",
        /// 256 zeroed words a tile of [`SORT_TILE`] rows.
        pub states: DevicePtr as "u64*",
        /// A zeroed word.
        pub ticket: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// Bits below the digit.
        pub shift: u32,
        /// Mask of the digit after the shift.
        pub mask: u32,
    }

    /// Arguments of `string_lengths` and `copy_strings` (`strings_gather.cu`).
    pub struct GatherStringsArgs {
        /// Offsets of the column, one more than rows.
        pub offsets: DevicePtr as "const u64*",
        /// Bytes of the column; readable up to a multiple of 8 bytes.
        pub data: DevicePtr as "const u8*",
        /// Numbers of the chosen rows.
        pub ids: DevicePtr as "const void*",
        /// A byte a chosen row, 0 for NULL; null when there are none.
        pub valid: DevicePtr as "const u8*",
        /// Lengths by chosen row; unused by `copy_strings`.
        pub lengths: DevicePtr as "u32*",
        /// Offsets of the output; unused by `string_lengths`.
        pub out_offsets: DevicePtr as "const u64*",
        /// Bytes of the output; unused by `string_lengths`.
        pub out: DevicePtr as "u8*",
        /// Number of chosen rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most chosen rows.
        pub most: u64,
        /// Bytes of a row number, 4 or 8.
        pub id_width: u32,
        /// Binary logarithm of the lanes that copy one string, at most 5.
        pub lanes_log2: u32,
    }
}

kernel_args! {
    /// Arguments of `phj_tasks`, `phj_join` and `phj_rest` (`phj.cu`).
    pub struct PhjArgs {
        /// Keys of the build side by partition.
        pub build_keys: DevicePtr as "const void*",
        /// Row numbers of the build side; null: places are numbers.
        pub build_numbers: DevicePtr as "const u32*",
        /// First build row of each partition, and the end of the last.
        pub build_offsets: DevicePtr as "const u32*",
        /// Keys of the probe side by partition.
        pub probe_keys: DevicePtr as "const void*",
        /// Row numbers of the probe side; null: places are numbers.
        pub probe_numbers: DevicePtr as "const u32*",
        /// First probe row of each partition, and the end of the last.
        pub probe_offsets: DevicePtr as "const u32*",
        /// Tasks of each partition beyond its first; `phj_tasks` writes them.
        pub extra: DevicePtr as "u32*",
        /// Exclusive sums of `extra`, one more than partitions.
        pub first_extra: DevicePtr as "const u64*",
        /// A zeroed word: extra tasks taken.
        pub ticket: DevicePtr as "u64*",
        /// Number of partitions with several build chunks (zeroed), then those; unused without `matched`.
        pub oversize: DevicePtr as "u32*",
        /// Zeroed bitmap over probe places: rows of such partitions with a match; null when nobody asks.
        pub matched: DevicePtr as "u32*",
        /// Bitmap over build row numbers: rows with a match; null when nobody asks.
        pub marks: DevicePtr as "u32*",
        /// Build row numbers of the pairs.
        pub entries: DevicePtr as "u32*",
        /// Probe row numbers of the pairs.
        pub rows: DevicePtr as "u32*",
        /// Number of pairs, zeroed.
        pub pairs: DevicePtr as "u64*",
        /// Room for pairs.
        pub capacity: u64,
        /// Number of partitions.
        pub partitions: u64,
        /// Probe rows of a task.
        pub probe_chunk: u32,
        /// What is written: [`PAIR_MATCHED`], [`PAIR_UNMATCHED`], [`PAIR_ENTRIES`].
        pub kind: u32,
    }

    /// Arguments of `smj_split`, `smj_join` and `smj_long` (`smj.cu`).
    pub struct SmjArgs {
        /// Sorted keys of the build side.
        pub build_keys: DevicePtr as "const void*",
        /// Row numbers of the build side; null: places are numbers.
        pub build_numbers: DevicePtr as "const u32*",
        /// Number of build rows on the device; null when it is `build_most`.
        pub build_count: DevicePtr as "const u64*",
        /// Sorted keys of the probe side.
        pub probe_keys: DevicePtr as "const void*",
        /// Row numbers of the probe side; null: places are numbers.
        pub probe_numbers: DevicePtr as "const u32*",
        /// Number of probe rows on the device; null when it is `probe_most`.
        pub probe_count: DevicePtr as "const u64*",
        /// Build rows before each tile, one more than tiles; `smj_split` writes them.
        pub cuts: DevicePtr as "u32*",
        /// Pieces of long runs, [`SMJ_PIECE_BYTES`] each.
        pub pieces: DevicePtr as "void*",
        /// A zeroed word: pieces there are.
        pub piece_count: DevicePtr as "u64*",
        /// Bitmap over build row numbers: rows with a match; null when nobody asks.
        pub marks: DevicePtr as "u32*",
        /// Build row numbers of the pairs.
        pub entries: DevicePtr as "u32*",
        /// Probe row numbers of the pairs.
        pub rows: DevicePtr as "u32*",
        /// Number of pairs, zeroed.
        pub pairs: DevicePtr as "u64*",
        /// Room for pairs.
        pub capacity: u64,
        /// Most build rows.
        pub build_most: u64,
        /// Most probe rows.
        pub probe_most: u64,
        /// Tiles of the walk.
        pub tiles: u64,
        /// Room for pieces.
        pub most_pieces: u64,
        /// What is written, as for `phj_join`.
        pub kind: u32,
        /// Fills up the struct.
        pub padding: u32,
    }
}

/// Rows with a match are written.
pub const PAIR_MATCHED: u32 = 1;
/// Rows without a match are written, once, without build row.
pub const PAIR_UNMATCHED: u32 = 2;
/// Rows with a match are written once for each, with its build row; otherwise once without.
pub const PAIR_ENTRIES: u32 = 4;

/// Most words of the keys of a sort.
pub const MOST_SORT_WORDS: usize = 16;
/// Most rows of `sort_small`.
pub const SORT_SMALL_ROWS: u64 = 2048;
/// Dynamic shared memory of `sort_small`, in bytes.
pub const SORT_SMALL_SHARED_BYTES: usize = SORT_SMALL_ROWS as usize * 12;
/// Rows of a block of `sort_pass_*`.
pub const SORT_TILE: u64 = 4096;
/// Dynamic shared memory of a block of `sort_histogram`, in bytes.
pub const SORT_HISTOGRAM_SHARED_BYTES: usize = 8 * 256 * 4;
/// Dynamic shared memory of a block of `sort_pass_*` with keys of `key_bytes` bytes, in bytes.
pub const fn sort_pass_shared_bytes(key_bytes: usize) -> usize {
    8 * 256 * 4 + 2 * 256 * 4 + 32 * 4 + 16 + SORT_TILE as usize * key_bytes
}

/// Complete source of the module with `sort_small`, whose blocks have up to 1024 threads.
pub fn sort_small() -> String {
    format!(
        "#define WL_BLOCK_THREADS 1024\n#include \"simt.cuh\"\n{}{}",
        SmallSortArgs::CUDA,
        include_str!("../cuda/sort_small.cu")
    )
}

/// Complete source of the module with `sort_histogram`, `sort_pass_u32`, `sort_pass_u64` and `number_rows`.
pub fn radix_sort() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}{}",
        SortHistogramArgs::CUDA,
        SortPassArgs::CUDA,
        include_str!("../cuda/radix_sort.cu")
    )
}

/// Complete source of the module with `string_lengths` and `copy_strings`.
pub fn strings_gather() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        GatherStringsArgs::CUDA,
        include_str!("../cuda/strings_gather.cu")
    )
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

/// Complete source of the module that numbers the groups of keys of `key_bytes` bytes (4, 8 or 16).
pub fn group_number(key_bytes: u32) -> String {
    format!(
        "#define WL_KEY_BYTES {key_bytes}\n#include \"simt.cuh\"\n{}{}",
        NumberGroupsArgs::CUDA,
        include_str!("../cuda/group_number.cu")
    )
}

/// How `phj.cu` is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhjShape {
    /// Bytes of a key: 4, 8 or 16.
    pub key_bytes: u32,
    /// No two build rows have equal keys, or which of them is found does not matter.
    pub unique: bool,
    /// The build side has row numbers.
    pub numbers: bool,
}

impl PhjShape {
    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        512
    }

    /// Slots of the table in shared memory, twice as many as rows usually are.
    const fn slots(self) -> u32 {
        match self.key_bytes {
            4 => 8192,
            _ => 4096,
        }
    }

    /// Build rows that the table has room for.
    pub const fn rows(self) -> u32 {
        self.slots() / 16 * 9
    }

    /// Dynamic shared memory of `phj_join`, in bytes.
    pub const fn shared_bytes(self) -> usize {
        let rows = self.rows() as usize;
        let numbers = if self.numbers { 4 * rows } else { 0 };
        let runs = if self.unique { 0 } else { 6 * rows + 4 };
        self.slots() as usize * 4
            + rows * self.key_bytes as usize
            + numbers
            + rows.div_ceil(32) * 4
            + runs
            + 256
    }
}

/// Dynamic shared memory of a block of `phj_rest`, in bytes.
pub const PHJ_REST_SHARED_BYTES: usize = 256;

/// Complete source of the module with `phj_tasks`, `phj_join` and `phj_rest`.
pub fn phj(shape: PhjShape) -> String {
    format!(
        "#define WL_BLOCK_THREADS {}\n#define PAIR_KEY_BYTES {}\n#define PHJ_SLOTS {}u\n#define PHJ_ROWS {}u\n\
         #define PHJ_UNIQUE {}\n#define PHJ_NUMBERS {}\n#include \"simt.cuh\"\n{}{}",
        shape.threads(),
        shape.key_bytes,
        shape.slots(),
        shape.rows(),
        u8::from(shape.unique),
        u8::from(shape.numbers),
        PhjArgs::CUDA,
        include_str!("../cuda/phj.cu")
    )
}

/// Rows of both sides that a block of `smj_join` takes.
pub const SMJ_TILE: u64 = 3840;
/// Bytes of a piece of a long run.
pub const SMJ_PIECE_BYTES: u64 = 24;
/// Build rows of a piece of a long run.
pub const SMJ_LONG: u64 = 4096;

/// Dynamic shared memory of `smj_join` with keys of `key_bytes` bytes, in bytes.
pub const fn smj_shared_bytes(key_bytes: u32) -> usize {
    (SMJ_TILE as usize + 1) * key_bytes as usize + 256
}

/// Complete source of the module with `smj_split`, `smj_join` and `smj_long` for keys of `key_bytes` bytes (4, 8, 16).
pub fn smj(key_bytes: u32, unique: bool) -> String {
    format!(
        "#define PAIR_KEY_BYTES {key_bytes}\n#define SMJ_TILE {SMJ_TILE}u\n#define SMJ_UNIQUE {}\n\
         #include \"simt.cuh\"\n{}{}",
        u8::from(unique),
        SmjArgs::CUDA,
        include_str!("../cuda/smj.cu")
    )
}

const fn phj_shape(key_bytes: u32, unique: bool, numbers: bool) -> PhjShape {
    PhjShape {
        key_bytes,
        unique,
        numbers,
    }
}

/// Every hand-written module by name, for checks that all of them compile.
pub fn all() -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("scan", scan()),
        ("group_number_4", group_number(4)),
        ("group_number_8", group_number(8)),
        ("group_number_16", group_number(16)),
        ("hash_index_1", hash_index(1)),
        ("hash_index_2", hash_index(2)),
        ("hash_index_5", hash_index(5)),
        ("sort_small", sort_small()),
        ("radix_sort", radix_sort()),
        ("strings_gather", strings_gather()),
        ("phj_4_unique", phj(phj_shape(4, true, false))),
        ("phj_4", phj(phj_shape(4, false, true))),
        ("phj_8", phj(phj_shape(8, false, false))),
        ("phj_16", phj(phj_shape(16, false, true))),
        ("smj_4_unique", smj(4, true)),
        ("smj_8", smj(8, false)),
        ("smj_16", smj(16, false)),
    ];
    all.extend(partition::all());
    all
}
