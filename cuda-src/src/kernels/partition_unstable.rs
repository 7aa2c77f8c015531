//! Radix partitions in any order: source text and argument structs.

use super::partition::{MOVING, PartitionShape, unsigned};
use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of `partition_tile` (`partition_unstable.cu`).
    pub struct PartitionTileArgs {
        /// Keys, segment by segment.
        pub keys_in: DevicePtr as "const void*",
        /// Keys in the new order.
        pub keys_out: DevicePtr as "void*",
        /// Payload columns; null (4 bytes wide only) for the numbers of the rows.
        pub from: [DevicePtr; 8] as "const void*",
        /// Payload columns in the new order.
        pub to: [DevicePtr; 8] as "void*",
        /// The first row of every segment; null when all rows are one segment.
        pub segments: DevicePtr as "const u32*",
        /// The row behind the last of every segment.
        pub segment_ends: DevicePtr as "const u32*",
        /// The first tile of every segment, and the number of tiles.
        pub tiles: DevicePtr as "const u32*",
        /// The first place of every partition: of every digit of every segment; unused with `room`.
        pub first_places: DevicePtr as "const u32*",
        /// A zeroed word a partition; with one segment only every eighth is used.
        pub cursors: DevicePtr as "u32*",
        /// Set to 1 when a partition found no room; unused without `room`.
        pub overflow: DevicePtr as "u64*",
        /// Number of rows on the device; null when it is `most`. Used with one segment.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// Segments, at most 256.
        pub segment_count: u32,
        /// Bits below the digit.
        pub shift: u32,
        /// Mask of the digit after the shift, at most 255.
        pub mask: u32,
        /// Places of each partition; 0 when partitions lie side by side.
        pub room: u32,
    }

    /// Arguments of `segment_digits` (`partition_segments.cu`).
    pub struct SegmentDigitsArgs {
        /// Keys, segment by segment.
        pub keys: DevicePtr as "const void*",
        /// The first row of every segment, and the number of rows.
        pub segments: DevicePtr as "const u32*",
        /// The first tile of [`SEGMENT_TILE`] rows of every segment, and the number of tiles.
        pub tiles: DevicePtr as "const u32*",
        /// Counts, one a digit of every segment; what was there is added to.
        pub counts: DevicePtr as "u32*",
        /// Segments, at most 256.
        pub segment_count: u32,
        /// Bits below the digit.
        pub shift: u32,
        /// Mask of the digit after the shift, at most 255.
        pub mask: u32,
        /// Fills up the struct.
        pub padding: u32,
    }

    /// Arguments of `segment_plan` (`partition_segments.cu`).
    pub struct SegmentPlanArgs {
        /// Rows of each digit, a word every `step`.
        pub counts: DevicePtr as "const u32*",
        /// Becomes the first place of each digit's rows and, without `room`, the number of rows.
        pub segments: DevicePtr as "u32*",
        /// Becomes the place behind each digit's rows; null with partitions side by side.
        pub segment_ends: DevicePtr as "u32*",
        /// Becomes the first tile of `tile` rows of each digit, and the number of tiles.
        pub tiles: DevicePtr as "u32*",
        /// The same for tiles of [`SEGMENT_TILE`] rows.
        pub counted_tiles: DevicePtr as "u32*",
        /// Not 0: some digit found no room, so that there are no rows to go on with; unused without `room`.
        pub overflow: DevicePtr as "const u64*",
        /// Digits, at most 256.
        pub digits: u32,
        /// Rows of a tile of the pass to come.
        pub tile: u32,
        /// Words from count to count.
        pub step: u32,
        /// Places of each digit; 0 when digits lie side by side.
        pub room: u32,
    }

    /// Arguments of `partition_ends` (`partition_segments.cu`).
    pub struct PartitionEndsArgs {
        /// Rows of each partition, a word every `step`.
        pub cursors: DevicePtr as "const u32*",
        /// Becomes the first place of each partition.
        pub begins: DevicePtr as "u32*",
        /// Becomes the place behind the last row of each.
        pub ends: DevicePtr as "u32*",
        /// Not 0: some partition found no room, so that all of them are empty.
        pub overflow: DevicePtr as "const u64*",
        /// Number of partitions.
        pub partitions: u64,
        /// Words from count to count.
        pub step: u32,
        /// Places of each partition.
        pub room: u32,
    }

    /// Arguments of `partition_largest` (`partition_segments.cu`).
    pub struct PartitionLargestArgs {
        /// The first place of each partition, and the number of rows.
        pub offsets: DevicePtr as "const u32*",
        /// The most rows that a partition has, and that `neighbours` of them from a multiple of it on have; raised.
        pub largest: DevicePtr as "u32*",
        /// Number of partitions.
        pub partitions: u64,
        /// A power of two, at most `partitions`.
        pub neighbours: u64,
    }
}

/// Rows of a block of `segment_digits`.
pub const SEGMENT_TILE: u64 = 8192;
/// Threads of a block of `segment_digits` (`segment_plan` takes the first 256 alone).
pub const SEGMENT_THREADS: u32 = 512;
/// Threads of the block of `segment_plan`.
pub const SEGMENT_PLAN_THREADS: u32 = 256;
/// Dynamic shared memory of a block of the kernels of `partition_segments.cu`, in bytes.
pub const SEGMENT_SHARED_BYTES: usize = 256 * 4 + 32 * 4 + 32;
/// Words between the cursors of one segment.
pub const CURSOR_STEP: u64 = 8;

/// When a `partition_tile` hashes keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hashing {
    /// Digits are those of the keys as they come.
    None,
    /// Digits are those of the keys' hashes, computed at every look.
    EachLook,
    /// Keys are hashed as they are loaded, and written as hashes (4 and 8 bytes).
    In,
    /// Keys come as hashes and are written as keys (4 and 8 bytes).
    Out,
}

/// What one compiled `partition_tile` is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileShape<'a> {
    /// Bytes of a key: 4, 8 or 16.
    pub key_width: u32,
    /// When keys are hashed.
    pub hashing: Hashing,
    /// Bytes of each payload column (1, 2, 4, 8, 16), at most
    /// [`MOST_PARTITION_COLUMNS`](super::MOST_PARTITION_COLUMNS).
    pub widths: &'a [u32],
}

impl TileShape<'_> {
    /// Threads, rows a thread and staging are those of the stable pass over digits of keys: what bounds both is shared memory.
    fn stable(&self) -> PartitionShape<'_> {
        PartitionShape {
            key_width: self.key_width,
            hashed: false,
            wide_states: false,
            widths: self.widths,
        }
    }

    /// The number of this shape among all shapes.
    pub fn variant(&self) -> usize {
        self.stable().variant() << 2 | self.hashing as usize
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.stable().threads()
    }

    /// Rows of a block.
    pub fn tile(&self) -> u64 {
        self.stable().tile()
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> usize {
        let head = 2 * 256 * 4 + 32 * 4 + 16;
        let row = self.key_width as usize + self.stable().staged().1;
        (head + self.tile() as usize * row + 8 + 16).next_multiple_of(16)
    }

    /// Complete source of the module with `partition_tile`.
    pub fn source(&self) -> String {
        let flag = |hashing| u8::from(self.hashing == hashing);
        format!(
            "{}#define WL_HASHED {}\n#define WL_HASH_IN {}\n#define WL_HASH_OUT {}\n{MOVING}{}{}",
            self.stable().layout(),
            self.hashing == Hashing::EachLook,
            flag(Hashing::In),
            flag(Hashing::Out),
            PartitionTileArgs::CUDA,
            include_str!("../../cuda/partition_unstable.cu")
        )
    }
}

/// Complete source of the module with `segment_digits`, `segment_plan`, `partition_ends` and `partition_largest` for keys of
/// a width (4, 8 or 16 bytes).
pub fn partition_segments(key_width: u32, hashed: bool) -> String {
    format!(
        "#define WL_BLOCK_THREADS {SEGMENT_THREADS}\n#define WL_KEY {}\n#define WL_HASHED {hashed}\n\
         #define SEGMENT_TILE {SEGMENT_TILE}u\n#include \"simt.cuh\"\n{}{}{}{}{}",
        unsigned(key_width),
        SegmentDigitsArgs::CUDA,
        SegmentPlanArgs::CUDA,
        PartitionEndsArgs::CUDA,
        PartitionLargestArgs::CUDA,
        include_str!("../../cuda/partition_segments.cu")
    )
}

/// Modules of this file by name, for checks that all of them compile.
pub(super) fn all() -> Vec<(&'static str, String)> {
    let shape = |key_width, hashing, widths| TileShape {
        key_width,
        hashing,
        widths,
    };
    vec![
        ("partition_tile_4", shape(4, Hashing::In, &[4]).source()),
        (
            "partition_tile_4_columns",
            shape(4, Hashing::None, &[4, 4]).source(),
        ),
        (
            "partition_tile_8",
            shape(8, Hashing::Out, &[8, 4, 1]).source(),
        ),
        (
            "partition_tile_16",
            shape(16, Hashing::EachLook, &[16, 8, 4, 4, 2, 1, 1, 1]).source(),
        ),
        ("partition_segments_4", partition_segments(4, false)),
        ("partition_segments_16", partition_segments(16, true)),
    ]
}
