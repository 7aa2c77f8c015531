//! The hand-written kernels: their source text and argument structs.

use crate::DevicePtr;
use crate::kernel_args;

mod arrow_columns;
mod calibrate;
mod column_facts;
mod column_texts;
mod copy_runs;
mod parquet;
mod partition;
mod partition_unstable;
mod string_order;
mod synthetic;
mod window;
mod write_combine;

pub use arrow_columns::{ArrowColumnArgs, arrow_columns};
pub use calibrate::{CalibrateArgs, calibrate};
pub use column_facts::{ColumnFactsArgs, column_facts};
pub use column_texts::{ColumnTextArgs, column_texts};
pub use copy_runs::{COPY_RUN_WORDS, COPY_RUNS_THREADS, CopyRunsArgs, copy_runs};
pub use parquet::{
    PARQUET_KIND_BIT, PARQUET_KIND_BYTES, PARQUET_KIND_CODE, PARQUET_KIND_F32, PARQUET_KIND_F64,
    PARQUET_KIND_FIXED, PARQUET_KIND_I32, PARQUET_KIND_I64, PARQUET_KIND_INT96,
    PARQUET_KIND_PRESENCE, PARQUET_KIND_U32, PARQUET_LEVELS_PREFIXED, PARQUET_LZ4_RAW,
    PARQUET_NO_DATA, PARQUET_SHARED_BYTES, PARQUET_SNAPPY, PARQUET_TAG_BYTES, PARQUET_THREADS,
    ParquetArgs, ParquetChunk, ParquetNarrowArgs, ParquetPage, ParquetPlace, ParquetPlaceArgs,
    ParquetRemapArgs, ParquetResult, ParquetShiftArgs, ParquetSpan, ParquetValidityArgs,
    parquet_decode, parquet_decompress, parquet_finish, parquet_strings,
};
pub use partition::{
    COLUMN_VALUES, MOST_PARTITION_COLUMNS, MoveColumnArgs, PARTITION_HISTOGRAM_DIGITS,
    PARTITION_HISTOGRAM_SHARED_BYTES, PARTITION_HISTOGRAM_THREADS, PartitionHistogramArgs,
    PartitionOffsetsArgs, PartitionPassArgs, PartitionShape, RUN_SHARED_BYTES, RUN_TILE,
    RunStartsArgs, columns, partition_histogram, run_lengths, unsigned,
};
pub use partition_unstable::{
    CURSOR_STEP, Hashing, PartitionEndsArgs, PartitionLargestArgs, PartitionTileArgs,
    SEGMENT_PLAN_THREADS, SEGMENT_SHARED_BYTES, SEGMENT_THREADS, SEGMENT_TILE, SegmentDigitsArgs,
    SegmentPlanArgs, TileShape, partition_segments,
};
pub use string_order::{STRING_HEAD_BYTES, StringOrderArgs, string_order};
pub use synthetic::{
    SyntheticColumnArgs, SyntheticGroupsArgs, SyntheticJoinArgs, SyntheticNumbers,
    SyntheticSketchArgs, SyntheticStatesArgs, SyntheticSumArgs, synthetic,
};
pub use window::{
    FRAME_CHILDREN, FirstArgs, FrameArgs, MOMENTS_BYTES, Numbering, RUNNING_PIECE,
    RUNNING_SHARED_BYTES, RUNNING_TILE, RunningArgs, RunningCombine, RunningValue, WindowArgs,
    window, window_extremes, window_first, window_moments, window_running,
};
pub use write_combine::{WRITE_COMBINE_THREADS, WriteCombineArgs, WriteCombineShape};

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

    /// Arguments of `count_groups` (`group_count.cu`).
    pub struct CountGroupsArgs {
        /// The first slot's key, or the word that tells whether it is taken.
        pub words: DevicePtr as "const u8*",
        /// Bytes from slot to slot.
        pub stride: u64,
        /// Slots.
        pub slots: u64,
        /// What is added to.
        pub count: DevicePtr as "u64*",
        /// Bytes of a word: 4 or 8.
        pub width: u32,
        /// Unused.
        pub padding: u32,
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
        /// Keys of the table, slot after slot; of ranked indexes the words of ranks.
        pub keys: DevicePtr as "u64*",
        /// Slot states of tables with wide keys; null otherwise.
        pub states: DevicePtr as "u32*",
        /// Unique: the entry of each slot. Ranges: the entries, slot after slot.
        pub entry: DevicePtr as "u32*",
        /// Counts by slot, then offsets; one more than slots.
        pub offsets: DevicePtr as "u32*",
        /// Scratch: the slot of each row; of ranked indexes a count a word of ranks; unused by dense ones.
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
    /// Arguments of `sort_small` and `sort_first` (`sort_small.cu`).
    pub struct SmallSortArgs {
        /// Key words, major word first, one array each.
        pub words: [DevicePtr; 16] as "const u64*",
        /// Used bits of each word, from bit 0.
        pub bits: [u32; 16],
        /// The row numbers in order.
        pub order: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows; of `sort_small` at most [`SORT_SMALL_ROWS`].
        pub most: u64,
        /// Number of words.
        pub key_words: u32,
        /// `sort_first`: rows that each block looks for, at most [`MOST_FIRST_ROWS`].
        pub first: u32,
        /// `sort_first`: the numbers of the rows to go over, all ones for none; null for all rows.
        pub from: DevicePtr as "const u32*",
    }

    /// Arguments of `sort_keys` and `number_rows` (`sort_keys.cu`).
    pub struct SortKeysArgs {
        /// The key word of each row; unused by `number_rows`.
        pub word: DevicePtr as "const u64*",
        /// Row numbers in the order so far; null for the order of the rows.
        pub order: DevicePtr as "const u32*",
        /// Keys of 4 bytes, or the numbers of the rows.
        pub out: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
    }

    /// Arguments of `range_numbers` (`range_numbers.cu`).
    pub struct RangeNumbersArgs {
        /// Key words, major word first, one array each.
        pub words: [DevicePtr; 16] as "const u64*",
        /// Used bits of each word, from bit 0.
        pub bits: [u32; 16],
        /// Keys in ascending order, all different: the words of one after those of the other.
        pub splitters: DevicePtr as "const u64*",
        /// The number of each row's range.
        pub out: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// Number of words.
        pub key_words: u32,
        /// Number of splitters.
        pub ranges: u32,
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
    /// Arguments of the kernels of `phj.cu`.
    pub struct PhjArgs {
        /// Keys of the build side by partition.
        pub build_keys: DevicePtr as "const void*",
        /// Row numbers of the build side; null: places are numbers.
        pub build_numbers: DevicePtr as "const u32*",
        /// First build row of each partition.
        pub build_begins: DevicePtr as "const u32*",
        /// The row behind the last of each.
        pub build_ends: DevicePtr as "const u32*",
        /// Keys of the probe side by partition.
        pub probe_keys: DevicePtr as "const void*",
        /// Row numbers of the probe side; null: places are numbers.
        pub probe_numbers: DevicePtr as "const u32*",
        /// First probe row of each partition.
        pub probe_begins: DevicePtr as "const u32*",
        /// The row behind the last of each.
        pub probe_ends: DevicePtr as "const u32*",
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
        /// Set to 1 when two build rows have equal keys though they are said to be unique; null when nobody asks.
        pub duplicate: DevicePtr as "u64*",
        /// Bitmap over build row numbers: rows with a match; null when nobody asks.
        pub marks: DevicePtr as "u32*",
        /// Build row numbers of the pairs.
        pub entries: DevicePtr as "u32*",
        /// Probe row numbers of the pairs.
        pub rows: DevicePtr as "u32*",
        /// Number of pairs, zeroed.
        pub pairs: DevicePtr as "u64*",
        /// Where the host writes the number of a query that is stopped (`stop.cuh`); null: nowhere.
        pub stop_word: DevicePtr as "const u64*",
        /// Number of the query.
        pub stop_number: u64,
        /// Room for pairs.
        pub capacity: u64,
        /// Number of partitions.
        pub partitions: u64,
        /// Probe rows of a task.
        pub probe_chunk: u32,
        /// What is written: [`PAIR_MATCHED`], [`PAIR_UNMATCHED`], [`PAIR_ENTRIES`].
        pub kind: u32,
        /// Bits of the key that the partition is; unused unless the table is an array.
        pub shift: u32,
        /// Fills up the struct.
        pub padding: u32,
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
        /// Set to 1 when two build rows have equal keys though they are said to be unique; null when nobody asks.
        pub duplicate: DevicePtr as "u64*",
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
pub const SORT_SMALL_SHARED_BYTES: usize = SORT_SMALL_ROWS as usize * 12 + 32 * 4;

/// Most rows that `sort_first` looks for: half of what a block of 1024 threads keeps back for a round.
pub const MOST_FIRST_ROWS: u64 = 512;
/// Complete source of the module with `sort_small`, whose blocks have up to 1024 threads.
pub fn sort_small() -> String {
    format!(
        "#define WL_BLOCK_THREADS 1024\n#include \"simt.cuh\"\n{}{}",
        SmallSortArgs::CUDA,
        include_str!("../cuda/sort_small.cu")
    )
}

/// Complete source of the module with `sort_keys` and `number_rows`.
pub fn sort_keys() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        SortKeysArgs::CUDA,
        include_str!("../cuda/sort_keys.cu")
    )
}

/// Complete source of the module with `range_numbers`.
pub fn range_numbers() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        RangeNumbersArgs::CUDA,
        include_str!("../cuda/range_numbers.cu")
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

/// Past this many probes a hash table of groups or of DISTINCT values counts as too full and is made larger.
pub const GROUP_PROBES: u32 = 128;

/// Complete source of the module with `count_groups`.
pub fn group_count() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        CountGroupsArgs::CUDA,
        include_str!("../cuda/group_count.cu")
    )
}

/// Complete source of the module that numbers the groups of keys of `key_bytes` bytes (4, 8 or 16).
pub fn group_number(key_bytes: u32) -> String {
    format!(
        "#define WL_KEY {}\n#include \"simt.cuh\"\n{}{}",
        unsigned(key_bytes),
        NumberGroupsArgs::CUDA,
        include_str!("../cuda/group_number.cu")
    )
}

/// How `phj.cu` is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PhjShape {
    /// Bytes of a key: 4, 8 or 16.
    pub key_bytes: u32,
    /// No two build rows have equal keys, or which of them is found does not matter.
    pub unique: bool,
    /// The build side has row numbers.
    pub numbers: bool,
    /// Build rows that partitions have on average, at most: 2048, 4096 or (keys of up to 8 bytes) 8192.
    pub rows: u32,
    /// Slots of an array that the key without its lowest bits is the index of, a multiple of 8 up to 2^15; 0 for
    /// a hash table.
    pub array: u32,
    /// Keys of the build side and of the probe side come as their hashes, which takes keys of up to 8 bytes and no array.
    pub hashed: [bool; 2],
}

impl PhjShape {
    /// Threads of a block: 8 build rows each, and one more so that a partition somewhat above the average is still one chunk.
    pub const fn threads(self) -> u32 {
        self.rows / 8
    }

    /// Build rows that the table has room for.
    pub const fn chunk(self) -> u32 {
        // The largest table fits twice into a multiprocessor.
        self.rows / 16 * if self.rows > 4096 { 17 } else { 18 }
    }

    /// Slots of the table: not quite twice as many as rows in the largest.
    const fn slots(self) -> u32 {
        match (self.array, self.rows) {
            (0, 8192) => 14_336,
            (0, rows) => rows * 2,
            (slots, _) => slots,
        }
    }

    /// Dynamic shared memory of `phj_join` and `phj_extra`, in bytes.
    pub const fn shared_bytes(self) -> usize {
        let chunk = self.chunk() as usize;
        let table = match self.array {
            0 => self.slots() as usize * 4 + chunk * (2 + self.key_bytes as usize),
            slots => slots as usize * 2,
        };
        let runs = if self.unique { 0 } else { 6 * chunk };
        table + chunk.div_ceil(32) * 4 + runs + 256
    }

    /// Blocks a multiprocessor that registers are kept for.
    const fn min_blocks(self) -> u32 {
        let threads = match (self.key_bytes, self.unique) {
            (4, true) => 1536,
            (8, true) => 1280,
            (4 | 8, false) => 1024,
            _ => 768,
        };
        threads / self.threads()
    }
}

/// Kernels of `phj.cu` that are compiled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhjPart {
    /// Every one.
    All = 0,
    /// `phj_tasks` and `phj_join`.
    Join = 1,
    /// `phj_extra`.
    Extra = 2,
    /// `phj_distinct` and `phj_rest`.
    Rest = 3,
}

impl PhjPart {
    /// Those that together are every kernel, with one of each; the part that takes the compiler longest in front.
    pub const APART: [(Self, &str); 3] = [
        (Self::Extra, "phj_extra"),
        (Self::Join, "phj_join"),
        (Self::Rest, "phj_rest"),
    ];

    /// That of [`Self::APART`] which has a kernel.
    pub fn of(kernel: &str) -> Self {
        match kernel {
            "phj_tasks" | "phj_join" => Self::Join,
            "phj_extra" => Self::Extra,
            _ => Self::Rest,
        }
    }
}

/// Complete source of the module with a part of `phj.cu`.
pub fn phj(shape: PhjShape, part: PhjPart) -> String {
    let min_blocks = match shape.min_blocks() {
        0 | 1 => String::new(),
        blocks => format!("#define WL_MIN_BLOCKS {blocks}\n"),
    };
    format!(
        "#define WL_BLOCK_THREADS {}\n{min_blocks}#define PAIR_KEY_BYTES {}\n#define PHJ_SLOTS {}u\n\
         #define PHJ_ROWS {}u\n#define PHJ_UNIQUE {}\n#define PHJ_NUMBERS {}\n#define PHJ_ARRAY {}\n\
         #define PHJ_BUILD_HASHED {}\n#define PHJ_PROBE_HASHED {}\n#define PHJ_PART {}\n\
         #include \"simt.cuh\"\n{}{}",
        shape.threads(),
        shape.key_bytes,
        shape.slots(),
        shape.chunk(),
        u8::from(shape.unique),
        u8::from(shape.numbers),
        u8::from(shape.array > 0),
        u8::from(shape.hashed[0]),
        u8::from(shape.hashed[1]),
        part as u8,
        PhjArgs::CUDA,
        include_str!("../cuda/phj.cu")
    )
}

/// Dynamic shared memory of a block of `phj_rest`, in bytes.
pub const PHJ_REST_SHARED_BYTES: usize = 256;

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
        "#define WL_MIN_BLOCKS {}\n#define PAIR_KEY_BYTES {key_bytes}\n#define SMJ_TILE {SMJ_TILE}u\n\
         #define SMJ_UNIQUE {}\n#include \"simt.cuh\"\n{}{}",
        match (unique, key_bytes) {
            (true, 4) => 8,
            (true, 8) => 6,
            (false, 4) => 5,
            (false, 8) => 4,
            _ => 3,
        },
        u8::from(unique),
        SmjArgs::CUDA,
        include_str!("../cuda/smj.cu")
    )
}

const fn phj_shape(key_bytes: u32, unique: bool, numbers: bool, rows: u32, array: u32) -> PhjShape {
    PhjShape {
        key_bytes,
        unique,
        numbers,
        rows,
        array,
        hashed: [array == 0 && key_bytes <= 8; 2],
    }
}

/// Every hand-written module by name, for checks that all of them compile.
pub fn all() -> Vec<(&'static str, String)> {
    let whole_phj = |key_bytes, unique, numbers, rows, array| {
        let shape = phj_shape(key_bytes, unique, numbers, rows, array);
        phj(shape, PhjPart::All)
    };
    let shape = phj_shape(4, true, false, 2048, 0);
    let parts = PhjPart::APART.map(|(part, name)| (name, phj(shape, part)));
    let mut all = vec![
        ("calibrate", calibrate()),
        ("synthetic", synthetic()),
        ("scan", scan()),
        ("copy_runs", copy_runs()),
        ("arrow_columns", arrow_columns()),
        ("string_order", string_order()),
        ("parquet_decompress", parquet_decompress()),
        ("parquet_decode", parquet_decode()),
        ("parquet_finish", parquet_finish()),
        ("parquet_strings", parquet_strings()),
        ("column_facts", column_facts()),
        ("column_texts", column_texts()),
        ("window", window()),
        (
            "running_sum_i64",
            window_running(RunningValue::I64, RunningCombine::Sum),
        ),
        (
            "running_sum_i128",
            window_running(RunningValue::I128, RunningCombine::Sum),
        ),
        (
            "running_min_f64",
            window_running(RunningValue::F64, RunningCombine::Min),
        ),
        (
            "extremes_i64",
            window_extremes(RunningValue::I64, RunningCombine::Max),
        ),
        (
            "extremes_i128",
            window_extremes(RunningValue::I128, RunningCombine::Min),
        ),
        (
            "extremes_f64",
            window_extremes(RunningValue::F64, RunningCombine::Min),
        ),
        ("moments", window_moments()),
        ("group_count", group_count()),
        ("group_number_4", group_number(4)),
        ("group_number_8", group_number(8)),
        ("group_number_16", group_number(16)),
        ("hash_index_1", hash_index(1)),
        ("hash_index_2", hash_index(2)),
        ("hash_index_5", hash_index(5)),
        ("sort_small", sort_small()),
        ("sort_keys", sort_keys()),
        ("range_numbers", range_numbers()),
        ("window_first", window_first()),
        ("strings_gather", strings_gather()),
        ("phj_4_unique", whole_phj(4, true, false, 4096, 0)),
        ("phj_4_large", whole_phj(4, false, true, 8192, 0)),
        ("phj_8", whole_phj(8, false, false, 2048, 0)),
        ("phj_16", whole_phj(16, false, true, 4096, 0)),
        ("phj_4_array", whole_phj(4, true, true, 2048, 4096)),
        ("phj_8_array", whole_phj(8, false, false, 8192, 1 << 15)),
        ("smj_4_unique", smj(4, true)),
        ("smj_8", smj(8, false)),
        ("smj_16", smj(16, false)),
    ];
    all.extend(parts);
    all.extend(partition::all());
    all.extend(partition_unstable::all());
    all
}
