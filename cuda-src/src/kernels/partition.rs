//! Radix partitions and what moves columns by row number: source text and argument structs.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of `partition_pass` (`partition.cu`).
    pub struct PartitionPassArgs {
        /// Keys in the order so far.
        pub keys_in: DevicePtr as "const void*",
        /// Keys in the new order; null when nobody wants them.
        pub keys_out: DevicePtr as "void*",
        /// Payload columns in the order so far; null (4 bytes wide only) for the numbers of the rows.
        pub from: [DevicePtr; 8] as "const void*",
        /// Payload columns in the new order.
        pub to: [DevicePtr; 8] as "void*",
        /// Counts of the 256 digits.
        pub histogram: DevicePtr as "const u32*",
        /// 256 zeroed words a tile, of 4 or 8 bytes.
        pub states: DevicePtr as "void*",
        /// A zeroed word.
        pub ticket: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// Bits below the digit.
        pub shift: u32,
        /// Mask of the digit after the shift, at most 255.
        pub mask: u32,
    }

    /// Arguments of `partition_histogram` (`partition_histogram.cu`).
    pub struct PartitionHistogramArgs {
        /// The keys.
        pub keys: DevicePtr as "const void*",
        /// Counts, 256 a digit; what was there is added to.
        pub histogram: DevicePtr as "u32*",
        /// Number of keys on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most keys.
        pub most: u64,
        /// Bits below each digit.
        pub shifts: [u32; 8],
        /// Mask of each digit after its shift, at most 255.
        pub masks: [u32; 8],
        /// Number of digits.
        pub digits: u32,
        /// Fills up the struct.
        pub padding: u32,
    }

    /// Arguments of `partition_offsets` (`partition_histogram.cu`).
    pub struct PartitionOffsetsArgs {
        /// Partitioned keys.
        pub keys: DevicePtr as "const void*",
        /// First place of every partition, one more than partitions.
        pub offsets: DevicePtr as "u32*",
        /// Number of keys on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most keys.
        pub most: u64,
        /// Number of partitions.
        pub partitions: u64,
        /// Bits below the digit.
        pub shift: u32,
        /// Mask of the digit after the shift.
        pub mask: u32,
    }

    /// Arguments of `gather_column` and `scatter_column` (`columns.cu`).
    pub struct MoveColumnArgs {
        /// Values to read.
        pub values: DevicePtr as "const void*",
        /// Row numbers: of values to read (gather) or to write (scatter).
        pub map: DevicePtr as "const u32*",
        /// Values to write.
        pub out: DevicePtr as "void*",
        /// Number of entries of `map` on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most entries of `map`.
        pub most: u64,
    }

    /// Arguments of `run_starts` (`run_lengths.cu`).
    pub struct RunStartsArgs {
        /// Sorted keys.
        pub keys: DevicePtr as "const void*",
        /// First row of every run, then the number of rows.
        pub starts: DevicePtr as "u32*",
        /// Becomes the number of runs.
        pub runs: DevicePtr as "u64*",
        /// One zeroed word a tile of [`RUN_TILE`] keys.
        pub states: DevicePtr as "u64*",
        /// A zeroed word.
        pub ticket: DevicePtr as "u32*",
        /// Number of keys on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most keys.
        pub most: u64,
    }
}

/// Keys that a block of `run_starts` takes at a time.
pub const RUN_TILE: u64 = 4096;
/// Dynamic shared memory of a block of `run_starts`, in bytes.
pub const RUN_SHARED_BYTES: usize = 32 * 4 + 16;
/// Values that a thread of `gather_column` has in flight.
pub const COLUMN_VALUES: u64 = 8;

/// Most payload columns of a `partition_pass`.
pub const MOST_PARTITION_COLUMNS: usize = 8;
/// Threads of a block of `partition_pass` of which two fit on a multiprocessor; one has twice as many.
const PARTITION_THREADS: u32 = 384;
/// Threads of a block of `partition_histogram` and `partition_offsets`.
pub const PARTITION_HISTOGRAM_THREADS: u32 = 1024;
/// Most digits of a `partition_histogram`.
pub const PARTITION_HISTOGRAM_DIGITS: usize = 8;
/// Dynamic shared memory of a block of `partition_histogram`, in bytes.
pub const PARTITION_HISTOGRAM_SHARED_BYTES: usize = PARTITION_HISTOGRAM_DIGITS * 256 * 4;

/// How the kernels of partitions move the rows of a tile.
pub(super) const MOVING: &str = include_str!("../../cuda/partition_columns.cuh");

/// Digits of a pass.
const DIGITS: usize = 256;
/// Shared memory that the blocks of `partition_pass` on a multiprocessor may have (228 KiB of which the system keeps
/// 1 KiB a block).
const SHARED_BYTES: usize = 226 << 10;

/// What one compiled `partition_pass` is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionShape<'a> {
    /// Bytes of a key: 4, 8 or 16.
    pub key_width: u32,
    /// Digits are those of the hash.
    pub hashed: bool,
    /// 2^30 rows or more.
    pub wide_states: bool,
    /// Bytes of each payload column (1, 2, 4, 8, 16), at most [`MOST_PARTITION_COLUMNS`].
    pub widths: &'a [u32],
}

impl PartitionShape<'_> {
    /// The number of this shape among all shapes.
    pub fn variant(&self) -> usize {
        let head = self.key_width.trailing_zeros() as usize
            | usize::from(self.hashed) << 3
            | usize::from(self.wide_states) << 4;
        self.widths
            .iter()
            .enumerate()
            .fold(head, |variant, (column, width)| {
                variant | (width.trailing_zeros() as usize + 1) << (5 + 3 * column)
            })
    }

    /// Threads of a block, and blocks of a multiprocessor. Several rounds of narrow columns do best in one large tile: the
    /// more rows of a digit lie side by side, the fewer sectors are written in part (2^27 rows of 12 bytes on an H200:
    /// 1.25 ms, 1.35 with two tiles of half the size). Wide columns have long runs anyway.
    fn blocks(&self) -> (u32, u32) {
        let (places, room) = self.staged();
        match places.last() {
            Some((1.., _)) if self.key_width + room as u32 <= 8 => (2 * PARTITION_THREADS, 1),
            _ => (PARTITION_THREADS, 2),
        }
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.blocks().0
    }

    /// Rows of a thread: as many as shared memory has room for and 80 registers hold without spilling much, which costs
    /// more than larger tiles gain (2^27 rows of 8 bytes on an H200: 0.89 ms with 22 rows, 1.15 with 24).
    fn items(&self) -> usize {
        let (threads, blocks) = self.blocks();
        let widest = self.widths.iter().copied().max().unwrap_or(0);
        let most = match (self.key_width, widest, blocks) {
            (4, ..=4, 2) => 22 - 2 * usize::from(self.hashed),
            (4, ..) => 18 - 2 * usize::from(self.hashed),
            (8, ..) => 14,
            _ => 8,
        };
        let row = self.key_width as usize + self.staged().1;
        let room = SHARED_BYTES / blocks as usize - Self::head_bytes(threads) - 16;
        most.min(room / (threads as usize * row) / 2 * 2)
    }

    /// Rows of a block.
    pub fn tile(&self) -> u64 {
        u64::from(self.threads()) * self.items() as u64
    }

    /// Shared memory of everything but the rows.
    const fn head_bytes(threads: u32) -> usize {
        (threads as usize / 32) * DIGITS * 2 + DIGITS * 4 + 32 * 4 + 16
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> usize {
        let tile = self.tile() as usize;
        let threads = self.threads();
        let lanes = (threads as usize / 32) * DIGITS * 4;
        let keys = (tile * self.key_width as usize).max(lanes);
        (Self::head_bytes(threads) + keys + tile * self.staged().1 + 8).next_multiple_of(16)
    }

    /// Round and offset of every column, and the bytes a row that the widest round stages. Columns share a
    /// round while they take no more than 4 bytes or than the widest column.
    pub(super) fn staged(&self) -> (Vec<(usize, usize)>, usize) {
        let room = self.widths.iter().copied().max().unwrap_or(0).max(4) as usize;
        let mut places = Vec::new();
        let (mut round, mut offset) = (0, 0);
        for width in self.widths {
            let width = *width as usize;
            // Wide columns behind narrow ones must not lie across their alignment; tiles are multiples of 32 rows,
            // so any offset is aligned.
            if offset + width > room {
                round += 1;
                offset = 0;
            }
            places.push((round, offset));
            offset += width;
        }
        (places, if self.widths.is_empty() { 0 } else { room })
    }

    /// Threads, rows and columns as the kernels of partitions have them.
    pub(super) fn layout(&self) -> String {
        let (threads, blocks) = self.blocks();
        let (places, staged) = self.staged();
        let rounds = places.last().map_or(1, |(round, _)| round + 1);
        let columns: String = places
            .iter()
            .zip(self.widths)
            .enumerate()
            .map(|(number, ((round, offset), width))| {
                format!(" X({number}, {}, {round}, {offset})", unsigned(*width))
            })
            .collect();
        format!(
            "#define WL_BLOCK_THREADS {threads}\n#define WL_MIN_BLOCKS {blocks}\n\
             #define WL_KEY {}\n#define WL_ITEMS {}\n\
             #define WL_COLUMNS(X){columns}\n#define WL_STAGED {staged}\n#define WL_ROUNDS {rounds}\n",
            unsigned(self.key_width),
            self.items(),
        )
    }

    /// Complete source of the module with `partition_pass`.
    pub fn source(&self) -> String {
        format!(
            "{}#define WL_HASHED {}\n#define WL_STATE {}\n{MOVING}{}{}",
            self.layout(),
            self.hashed,
            if self.wide_states { "u64" } else { "u32" },
            PartitionPassArgs::CUDA,
            include_str!("../../cuda/partition.cu")
        )
    }
}

/// Complete source of the module with `partition_histogram` and `partition_offsets` for keys of a width (4, 8 or 16
/// bytes).
pub fn partition_histogram(key_width: u32, hashed: bool) -> String {
    format!(
        "#define WL_BLOCK_THREADS {PARTITION_HISTOGRAM_THREADS}\n#define WL_KEY {}\n#define WL_HASHED {hashed}\n\
         #include \"simt.cuh\"\n{}{}{}",
        unsigned(key_width),
        PartitionHistogramArgs::CUDA,
        PartitionOffsetsArgs::CUDA,
        include_str!("../../cuda/partition_histogram.cu")
    )
}

/// Complete source of the module with `gather_column` and `scatter_column` for values of a width (1, 2, 4, 8 or 16
/// bytes).
pub fn columns(width: u32) -> String {
    format!(
        "#define WL_VALUE {}\n#include \"simt.cuh\"\n{}{}",
        unsigned(width),
        MoveColumnArgs::CUDA,
        include_str!("../../cuda/columns.cu")
    )
}

/// Complete source of the module with `run_starts` for keys of a width (4, 8 or 16 bytes).
pub fn run_lengths(key_width: u32) -> String {
    format!(
        "#define WL_KEY {}\n#include \"simt.cuh\"\n{}{}",
        unsigned(key_width),
        RunStartsArgs::CUDA,
        include_str!("../../cuda/run_lengths.cu")
    )
}

/// The unsigned integer of so many bytes (1, 2, 4, 8 or 16): keys and codes of columns.
pub fn unsigned(width: u32) -> &'static str {
    match width {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        _ => "u128",
    }
}

/// Modules of this file by name, for checks that all of them compile.
pub(super) fn all() -> Vec<(&'static str, String)> {
    let shape = PartitionShape {
        key_width: 4,
        hashed: false,
        wide_states: false,
        widths: &[4],
    };
    let wide = PartitionShape {
        key_width: 16,
        hashed: true,
        wide_states: true,
        widths: &[16, 8, 4, 4, 2, 1, 1, 1],
    };
    vec![
        ("partition_4", shape.source()),
        ("partition_16", wide.source()),
        ("partition_histogram_4", partition_histogram(4, false)),
        ("partition_histogram_16", partition_histogram(16, true)),
        ("columns_1", columns(1)),
        ("columns_16", columns(16)),
        ("run_lengths_4", run_lengths(4)),
        ("run_lengths_16", run_lengths(16)),
    ]
}
