//! The CUDA headers that kernels include, as text.

/// The contract between a kernel and the machine it runs on.
pub const SIMT_HEADER: &str = include_str!("../cuda/simt.cuh");

/// Reductions and scans of warps and blocks, hashing, wide atomics.
pub const PRIMITIVES_HEADER: &str = include_str!("../cuda/primitives.cuh");

/// Digits and hashes of packed keys that radix partitions and their readers share.
pub(crate) const RADIX_HEADER: &str = include_str!("../cuda/radix.cuh");

/// What generated pipeline kernels call: SQL arithmetic, calendar fields, group tables.
pub const PIPELINE_HEADER: &str = include_str!("../cuda/pipeline.cuh");

/// What group-bys over rows that were written down call: numbers of groups, runs, tables of partitions.
pub(crate) const GROUP_HEADER: &str = include_str!("../cuda/group.cuh");

/// What generated kernels of joins call: bitmaps, look-ups, pairs, places in an output.
pub const JOIN_HEADER: &str = include_str!("../cuda/join.cuh");

/// Functions on strings that lie as bytes: search, comparison, patterns, packing.
pub const STRINGS_HEADER: &str = include_str!("../cuda/strings.cuh");

/// Functions of doubles.
pub(crate) const MATH_HEADER: &str = include_str!("../cuda/math.cuh");

/// The GPU's half of [`SIMT_HEADER`], which the emulator's compiler never reads.
pub(crate) const GPU_HEADER: &str = "simt_gpu.cuh";

/// Every header a kernel may include on the GPU, as (name in `#include "..."`, text): hand these to NVRTC as
/// in-memory includes.
pub fn headers() -> &'static [(&'static str, &'static str)] {
    &[
        ("simt.cuh", SIMT_HEADER),
        (GPU_HEADER, include_str!("../cuda/simt_gpu.cuh")),
        ("primitives.cuh", PRIMITIVES_HEADER),
        (
            "open_addressing.cuh",
            include_str!("../cuda/open_addressing.cuh"),
        ),
        ("reserve.cuh", include_str!("../cuda/reserve.cuh")),
        ("radix.cuh", RADIX_HEADER),
        ("segments.cuh", include_str!("../cuda/segments.cuh")),
        ("group.cuh", GROUP_HEADER),
        ("pipeline.cuh", PIPELINE_HEADER),
        ("join.cuh", JOIN_HEADER),
        ("parquet.cuh", include_str!("../cuda/parquet.cuh")),
        ("parquet_runs.cuh", include_str!("../cuda/parquet_runs.cuh")),
        (
            "parquet_strings.cuh",
            include_str!("../cuda/parquet_strings.cuh"),
        ),
        ("strings.cuh", STRINGS_HEADER),
        ("text_search.cuh", include_str!("../cuda/text_search.cuh")),
        ("math.cuh", MATH_HEADER),
        ("calendar.cuh", include_str!("../cuda/calendar.cuh")),
        ("stop.cuh", include_str!("../cuda/stop.cuh")),
        ("tree.cuh", include_str!("../cuda/tree.cuh")),
        ("tree_share.cuh", include_str!("../cuda/tree_share.cuh")),
        ("pairs.cuh", include_str!("../cuda/pairs.cuh")),
    ]
}

/// What the emulator includes besides [`headers`].
pub(crate) fn emulator_headers() -> &'static [(&'static str, &'static str)] {
    &[
        (
            "simt_emulator.cuh",
            include_str!("../cuda/simt_emulator.cuh"),
        ),
        (
            "simt_emulator_math.cuh",
            include_str!("../cuda/simt_emulator_math.cuh"),
        ),
    ]
}
