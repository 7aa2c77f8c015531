//! The kernels that decode parquet pages: source text and argument structs.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// A page: where its bytes are, what they are, and which rows of the column it has.
    pub struct ParquetPage {
        /// Its bytes as they are in the file.
        pub source: DevicePtr as "const u8*",
        /// Its bytes without compression: `source`, or room for them.
        pub body: DevicePtr as "u8*",
        /// Room for values that are expanded: 4 bytes each of codes and booleans, 8 of deltas and strings, 16 of strings by
        /// common bytes.
        pub dense: DevicePtr as "u32*",
        /// Room for two words for each 32 rows; unused unless values have definition levels.
        pub words: DevicePtr as "u32*",
        /// Its first row in the column.
        pub first_row: u64,
        /// Bytes of `source`.
        pub source_bytes: u32,
        /// Bytes of `body`.
        pub body_bytes: u32,
        /// Bytes in front that are never compressed.
        pub prefix: u32,
        /// How the others are compressed: [`PARQUET_SNAPPY`], [`PARQUET_LZ4_RAW`] or 0.
        pub codec: u32,
        /// Its rows.
        pub rows: u32,
        /// The number of its chunk.
        pub chunk: u32,
        /// The format's number of the encoding; [`PARQUET_NO_DATA`] of a dictionary.
        pub encoding: u32,
        /// Bytes of definition levels, or [`PARQUET_LEVELS_PREFIXED`].
        pub levels: u32,
    }

    /// A chunk of a column.
    pub struct ParquetChunk {
        /// The values of its dictionary, one after the other; null of codes.
        pub dictionary: DevicePtr as "const u8*",
        /// The column's codes, or where its strings end.
        pub data: DevicePtr as "u8*",
        /// The column's validity, zeroed; null where no row is NULL.
        pub validity: DevicePtr as "u32*",
        /// Of codes: a zeroed bit for each string of the dictionary, set if a row has it. Of strings as they are: 8 bytes for
        /// each of the dictionary.
        pub used: DevicePtr as "u32*",
        /// Codes are values less this.
        pub base: i64,
        /// Values of the dictionary.
        pub dictionary_values: u32,
        /// The number of the dictionary's page; no page's if there is none.
        pub dictionary_page: u32,
        /// The kind of values, a `PARQUET_KIND`.
        pub kind: u32,
        /// Bytes of a value in the file; 0 of bits, and of strings that say how many they have.
        pub type_bytes: u32,
        /// Bytes of a code; 0 of bits.
        pub width: u32,
        /// The definition level of a value, smaller ones are of NULLs; 0: values have none.
        pub levels: u32,
        /// 1: strings are of characters, and checked to be UTF-8.
        pub utf8: u32,
        /// The least definition level of a row that is there: that of a value, or of the struct around it that is asked for.
        pub present: u32,
    }

    /// What became of a page.
    pub struct ParquetResult {
        /// The least value, …
        pub least: i64,
        /// … and the greatest; in wrong order when there is none. Of strings as they are: their bytes.
        pub greatest: i64,
        /// Rows without a value.
        pub nulls: u32,
        /// 0, or what is wrong.
        pub error: u32,
    }

    /// Arguments of `parquet_decompress` and `parquet_decode`.
    pub struct ParquetArgs {
        /// Pages of all chunks.
        pub pages: DevicePtr as "const ParquetPage*",
        /// Their chunks; unused by `parquet_decompress`.
        pub chunks: DevicePtr as "const ParquetChunk*",
        /// A result for each page, zeroed.
        pub results: DevicePtr as "ParquetResult*",
        /// Number of pages.
        pub page_count: u64,
    }

    /// Where the strings of a page go.
    pub struct ParquetPlace {
        /// Room for those of its chunk; null where the page has none to be placed.
        pub out: DevicePtr as "u8*",
        /// Bytes that the pages before have there.
        pub begin: u64,
    }

    /// Arguments of `parquet_place_strings`.
    pub struct ParquetPlaceArgs {
        /// As `parquet_decode` has left them.
        pub pages: DevicePtr as "const ParquetPage*",
        /// Their chunks.
        pub chunks: DevicePtr as "const ParquetChunk*",
        /// As `parquet_decode` has written them; `least` tells of bytes of 128 and more then.
        pub results: DevicePtr as "ParquetResult*",
        /// By page.
        pub places: DevicePtr as "const ParquetPlace*",
        /// Number of pages.
        pub page_count: u64,
    }

    /// Arguments of `parquet_shift_ends`.
    pub struct ParquetShiftArgs {
        /// Where the strings of the column end, behind a first 0.
        pub ends: DevicePtr as "u64*",
        /// First row.
        pub first_row: u64,
        /// Rows.
        pub rows: u64,
        /// Bytes of the strings before.
        pub before: u64,
    }

    /// Rows of a column whose codes are of one dictionary.
    pub struct ParquetSpan {
        /// The first row.
        pub first: u64,
        /// The row behind the last one.
        pub end: u64,
        /// Where the codes of the column for those of the dictionary begin.
        pub remap: u64,
    }

    /// Arguments of `parquet_remap`.
    pub struct ParquetRemapArgs {
        /// Codes in the dictionaries of chunks, by row of the column.
        pub codes: DevicePtr as "const u32*",
        /// The column's code of each of a chunk's, one chunk behind the other.
        pub remap: DevicePtr as "const u32*",
        /// The chunks by their rows; other rows are left alone.
        pub spans: DevicePtr as "const ParquetSpan*",
        /// The column's codes.
        pub out: DevicePtr as "u8*",
        /// The column's validity; null where no row is NULL.
        pub validity: DevicePtr as "const u32*",
        /// Rows of the column.
        pub rows: u64,
        /// Number of chunks.
        pub span_count: u32,
        /// Bytes of a code of the column.
        pub width: u32,
    }

    /// Arguments of `parquet_narrow`.
    pub struct ParquetNarrowArgs {
        /// Codes as they were decoded.
        pub codes: DevicePtr as "const u8*",
        /// The column's codes.
        pub out: DevicePtr as "u8*",
        /// The column's validity; null where no row is NULL.
        pub validity: DevicePtr as "const u32*",
        /// Rows.
        pub rows: u64,
        /// Added to codes, modulo 2^64.
        pub shift: u64,
        /// Bytes of a code as decoded: 1, 2, 4 or 8.
        pub from_width: u32,
        /// Bytes of a code of the column.
        pub width: u32,
    }

    /// Arguments of `parquet_validity`.
    pub struct ParquetValidityArgs {
        /// A bit a row; null: all are set.
        pub bits: DevicePtr as "const u8*",
        /// The column's validity.
        pub validity: DevicePtr as "u32*",
        /// First row.
        pub first_row: u64,
        /// Rows.
        pub rows: u64,
    }
}

/// A page compressed by Snappy.
pub const PARQUET_SNAPPY: u32 = 1;
/// A page compressed by LZ4, without a frame.
pub const PARQUET_LZ4_RAW: u32 = 2;
/// A page whose values are no rows.
pub const PARQUET_NO_DATA: u32 = 255;
/// Definition levels with their length in front.
pub const PARQUET_LEVELS_PREFIXED: u32 = u32::MAX;
/// Values of four bytes with a sign.
pub const PARQUET_KIND_I32: u32 = 0;
/// Values of four bytes without a sign.
pub const PARQUET_KIND_U32: u32 = 1;
/// Values of eight bytes.
pub const PARQUET_KIND_I64: u32 = 2;
/// Floats of four bytes, by their bits.
pub const PARQUET_KIND_F32: u32 = 3;
/// Floats of eight bytes, by their bits.
pub const PARQUET_KIND_F64: u32 = 4;
/// Big-endian numbers of up to 16 bytes.
pub const PARQUET_KIND_FIXED: u32 = 5;
/// Numbers of strings in a dictionary.
pub const PARQUET_KIND_CODE: u32 = 6;
/// Single bits.
pub const PARQUET_KIND_BIT: u32 = 7;
/// Strings as they are.
pub const PARQUET_KIND_BYTES: u32 = 8;
/// Nanoseconds of a day, and the day.
pub const PARQUET_KIND_INT96: u32 = 9;
/// No values: a bit a row that tells whether a struct around them is there.
pub const PARQUET_KIND_PRESENCE: u32 = 10;
/// Threads of a block of the kernels over pages.
pub const PARQUET_THREADS: u32 = 128;
/// Dynamic shared memory of the kernels over pages, in bytes: more than their structs.
pub const PARQUET_SHARED_BYTES: usize = 8192;
/// Bytes of shared memory that a block of `parquet_decompress` takes: 32 tags of 16 bytes a warp.
pub const PARQUET_TAG_BYTES: usize = 32 * 16 * (PARQUET_THREADS / 32) as usize;

fn structs() -> String {
    [
        ParquetPage::CUDA,
        ParquetChunk::CUDA,
        ParquetResult::CUDA,
        ParquetArgs::CUDA,
        ParquetPlace::CUDA,
        ParquetPlaceArgs::CUDA,
        ParquetShiftArgs::CUDA,
        ParquetNarrowArgs::CUDA,
        ParquetSpan::CUDA,
        ParquetRemapArgs::CUDA,
        ParquetValidityArgs::CUDA,
    ]
    .concat()
}

/// Complete source of the module with `parquet_decompress`.
pub fn parquet_decompress() -> String {
    format!(
        "#define WL_BLOCK_THREADS {PARQUET_THREADS}\n#include \"simt.cuh\"\n{}{}\
         static_assert(sizeof(Tags) <= {PARQUET_TAG_BYTES}, \"the launch gives too little shared memory\");\n",
        structs(),
        include_str!("../../cuda/parquet_decompress.cu")
    )
}

/// Complete source of the module with `parquet_narrow`, `parquet_remap` and `parquet_validity`.
pub fn parquet_finish() -> String {
    format!(
        "#define WL_BLOCK_THREADS {PARQUET_THREADS}\n#include \"simt.cuh\"\n{}{}",
        structs(),
        include_str!("../../cuda/parquet_finish.cu")
    )
}

/// Complete source of `parquet_decode`.
pub fn parquet_decode() -> String {
    format!(
        "#define WL_BLOCK_THREADS {PARQUET_THREADS}\n#include \"simt.cuh\"\n{}{}\
         static_assert(sizeof(PageShared) <= {PARQUET_SHARED_BYTES}, \"the launch gives too little shared memory\");\n",
        structs(),
        include_str!("../../cuda/parquet_decode.cu")
    )
}

/// Complete source of the module with `parquet_index_strings`, `parquet_place_strings` and `parquet_shift_ends`.
pub fn parquet_strings() -> String {
    format!(
        "#define WL_BLOCK_THREADS {PARQUET_THREADS}\n#include \"simt.cuh\"\n{}{}\
         static_assert(sizeof(PageShared) <= {PARQUET_SHARED_BYTES} && sizeof(PlaceShared) <= {PARQUET_SHARED_BYTES}, \
         \"the launch gives too little shared memory\");\n",
        structs(),
        include_str!("../../cuda/parquet_strings.cu")
    )
}
