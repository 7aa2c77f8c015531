//! Kernels of windows: where rows lie in partitions of an order, and running values within them.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// Arguments of `window_starts` and `window_numbers` (`window.cu`).
    pub struct WindowArgs {
        /// Partitions that begin before each row, one word more than rows.
        pub partitions: DevicePtr as "const u32*",
        /// Groups of peers that begin before each row, one word more than rows.
        pub peers: DevicePtr as "const u32*",
        /// First row of each partition, then the number of rows.
        pub partition_starts: DevicePtr as "u32*",
        /// First row of each group of peers, then the number of rows.
        pub peer_starts: DevicePtr as "u32*",
        /// Row numbers; this and what follows may be null.
        pub position: DevicePtr as "u32*",
        /// First row of the row's partition.
        pub partition_start: DevicePtr as "u32*",
        /// The row behind it.
        pub partition_end: DevicePtr as "u32*",
        /// First row of the row's peers.
        pub peer_start: DevicePtr as "u32*",
        /// The row behind them.
        pub peer_end: DevicePtr as "u32*",
        /// Groups of peers of the partition up to the row's, at least 1.
        pub dense_rank: DevicePtr as "u32*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
    }

    /// Arguments of `first_peers`, `first_starts`, `first_marks` and `first_rows` (`window_first.cu`).
    pub struct FirstArgs {
        /// Key words, major word first, one array each.
        pub words: [DevicePtr; 16] as "const u64*",
        /// The bits of each word that tell partitions.
        pub partition: [u64; 16],
        /// Rows in ascending order of their keys.
        pub order: DevicePtr as "const u32*",
        /// Groups of peers that begin before each place, one more than places; null: rows are not numbered by them.
        pub peers: DevicePtr as "const u32*",
        /// The first place of each group of peers; null where `peers` is.
        pub starts: DevicePtr as "u32*",
        /// A mark a place, or the marks before each place, one more than places.
        pub marks: DevicePtr as "u32*",
        /// The rows that are kept.
        pub out: DevicePtr as "u32*",
        /// How many they are.
        pub kept: DevicePtr as "u64*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
        /// The last number that is kept.
        pub first: u64,
        /// Number of words.
        pub key_words: u32,
        /// Groups of peers are numbered, not their first rows.
        pub dense: u32,
    }

    /// Arguments of `running_tiles`, `running_carries` and `running_scan` (`window_running.cu`).
    pub struct RunningArgs {
        /// Values, which become what they come to from the first of their partition on.
        pub values: DevicePtr as "void*",
        /// Partitions that begin before each row, one word more than rows.
        pub partitions: DevicePtr as "const u32*",
        /// 32 bytes a tile of [`RUNNING_TILE`] rows.
        pub tiles: DevicePtr as "void*",
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows.
        pub most: u64,
    }

    /// Arguments of `extreme_nodes` and `extreme_frames` (`window_extremes.cu`), `moment_nodes` and `moment_frames`
    /// (`window_moments.cu`).
    pub struct FrameArgs {
        /// Values, which become those of their frames.
        pub values: DevicePtr as "void*",
        /// The values, then the nodes of each level above them: of [`FRAME_CHILDREN`] nodes each.
        pub nodes: DevicePtr as "void*",
        /// Of each row, the row that its frame begins at, but for `start_plus`.
        pub start: DevicePtr as "const u32*",
        /// The row behind its frame, but for `end_plus`.
        pub end: DevicePtr as "const u32*",
        /// First row of its partition.
        pub partition_start: DevicePtr as "const u32*",
        /// The row behind it.
        pub partition_end: DevicePtr as "const u32*",
        /// Rows to add.
        pub start_plus: i64,
        /// Rows to add.
        pub end_plus: i64,
        /// The level to make; 0 is a copy of the values.
        pub level: u64,
        /// Number of rows on the device; null when it is `most`.
        pub count: DevicePtr as "const u64*",
        /// Most rows; the levels have room for so many.
        pub most: u64,
    }
}

/// By what the rows of a partition are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numbering {
    /// `row_number()`.
    Row,
    /// `rank()`.
    Rank,
    /// `dense_rank()`.
    DenseRank,
}

/// Children of a node of the trees of `window_frames.cuh`.
pub const FRAME_CHILDREN: u64 = 16;
/// Bytes of a node of `window_moments.cu`.
pub const MOMENTS_BYTES: u64 = 24;

/// Rows that a block of `window_running.cu` takes at a time.
pub const RUNNING_TILE: u64 = 2048;
/// Bytes of a tile's piece.
pub const RUNNING_PIECE: u64 = 32;
/// Dynamic shared memory of a block of `window_running.cu`, in bytes.
pub const RUNNING_SHARED_BYTES: usize = 256 * RUNNING_PIECE as usize;

/// What running values are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunningValue {
    /// 64 bits, stored as what they are above the least number.
    I64,
    /// 128 bits.
    I128,
    /// Floats.
    F64,
}

/// How running values are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunningCombine {
    /// Added; integers modulo 2^n.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

impl RunningValue {
    /// Bytes of a value.
    pub fn width(self) -> u32 {
        match self {
            Self::I64 | Self::F64 => 8,
            Self::I128 => 16,
        }
    }
}

/// Complete source of the module that finds the first rows of each partition of an order.
pub fn window_first() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        FirstArgs::CUDA,
        include_str!("../../cuda/window_first.cu")
    )
}

/// Complete source of the module that numbers rows of an order.
pub fn window() -> String {
    format!(
        "#include \"simt.cuh\"\n{}{}",
        WindowArgs::CUDA,
        include_str!("../../cuda/window.cu")
    )
}

/// Complete source of the module that scans values within partitions.
pub fn window_running(value: RunningValue, combine: RunningCombine) -> String {
    let text = include_str!("../../cuda/window_running.cu");
    of_values(value, combine, RunningArgs::CUDA, text)
}

/// Complete source of the module that finds least or greatest values of frames.
pub fn window_extremes(value: RunningValue, combine: RunningCombine) -> String {
    let text = concat!(
        include_str!("../../cuda/window_frames.cuh"),
        include_str!("../../cuda/window_extremes.cu")
    );
    of_values(value, combine, FrameArgs::CUDA, text)
}

/// Complete source of the module that sums squared differences from the mean over frames.
pub fn window_moments() -> String {
    format!(
        "#include \"simt.cuh\"\n#include \"pipeline.cuh\"\n{}{}{}",
        FrameArgs::CUDA,
        include_str!("../../cuda/window_frames.cuh"),
        include_str!("../../cuda/window_moments.cu")
    )
}

fn of_values(value: RunningValue, combine: RunningCombine, args: &str, text: &str) -> String {
    let value = match value {
        RunningValue::I64 => "i64",
        RunningValue::I128 => "i128",
        RunningValue::F64 => "f64",
    };
    let combine = combine as u32;
    format!(
        "#define WL_VALUE {value}\n#define WL_COMBINE {combine}\n#include \"simt.cuh\"\n{args}{}{text}",
        include_str!("../../cuda/window_values.cuh"),
    )
}
