//! Tables in shared memory of joins of partitions: which sizes there are, and which of them kernels are compiled with.
//!
//! A table of any size gives the same pairs: partitions larger than it are joined in pieces, and a table larger than they are
//! lets fewer blocks run side by side. Kernels with one take up to a second to compile, and how many rows there are is known
//! only when they are counted; so a join does not wait for the best size while kernels with another one are there.

use std::cmp::Reverse;

use warpline_cuda::kernels::{self, PhjPart, PhjShape};

use crate::device::Kernel;
use crate::error::Result;
use crate::runtime::{BuiltinStage, Runtime};

/// Average rows of a partition that tables in shared memory are made for.
pub(super) const TABLES: [u32; 3] = [2048, 4096, 8192];

/// What [`join_partitions`](super::join_partitions), or with `key_bits`
/// [`join_dense_partitions`](super::join_dense_partitions), is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionJoin {
    /// Bytes of a key.
    pub key_width: u32,
    /// No two build rows have equal keys; holds as well for semi and anti joins.
    pub unique: bool,
    /// The build side has row numbers.
    pub numbers: bool,
    /// As [`Side::hashed`](super::Side::hashed), the build side's first.
    pub hashed: [bool; 2],
    /// Build rows, about.
    pub build_rows: u64,
    /// Bits of the partitions.
    pub bits: u32,
    /// Most bits of build keys, for arrays.
    pub key_bits: Option<u32>,
}

impl PartitionJoin {
    /// The shape with the best table.
    fn shape(&self, runtime: &Runtime) -> PhjShape {
        let array = |key_bits| array_slots(key_bits, self.bits);
        let shape = PhjShape {
            key_bytes: self.key_width,
            unique: self.unique,
            numbers: self.numbers,
            rows: TABLES[0],
            array: self.key_bits.map_or(0, array),
            hashed: self.hashed,
        };
        best_table(runtime, shape, self.build_rows >> self.bits)
    }
}

/// Slots of the array of a partition of dense keys.
pub(super) fn array_slots(key_bits: u32, bits: u32) -> u32 {
    1 << key_bits.saturating_sub(bits).max(3)
}

/// The same shape with each of the tables that fit a block's shared memory, the smallest first; at least one.
fn tables(runtime: &Runtime, shape: PhjShape) -> impl Iterator<Item = PhjShape> {
    let room = runtime.device().info().shared_memory_per_block;
    TABLES
        .into_iter()
        .map(move |rows| PhjShape { rows, ..shape })
        .filter(move |shape| shape.rows == TABLES[0] || shape.shared_bytes() <= room)
}

/// The shape with tables for partitions of `average` build rows.
pub(super) fn best_table(runtime: &Runtime, shape: PhjShape, average: u64) -> PhjShape {
    // Tables somewhat fuller than meant are still better than twice as many chunks.
    tables(runtime, shape)
        .reduce(|smaller, shape| {
            if average > u64::from(smaller.rows) / 32 * 33 {
                shape
            } else {
                smaller
            }
        })
        .unwrap_or(shape)
}

/// The shape with the table that can be launched first: the best one unless only `phj_join` with another is compiled by now, or
/// none is and others began earlier. The other kernels are seldom needed.
pub(super) fn table_at_hand(runtime: &Runtime, best: PhjShape) -> PhjShape {
    let rank = |shape: &PhjShape| {
        let stage = phj_stage(runtime, *shape, "phj_join");
        // Where two are coming, what is not the best was asked for when rows were estimated, and is further.
        let first = (*shape == best) != (stage == BuiltinStage::Coming);
        // Of the others the nearest in size.
        (stage, first, Reverse(shape.rows.abs_diff(best.rows)))
    };
    tables(runtime, best).max_by_key(rank).unwrap_or(best)
}

/// How far a kernel with this shape is.
pub(super) fn phj_stage(runtime: &Runtime, shape: PhjShape, kernel: &'static str) -> BuiltinStage {
    runtime.builtin_stage(kernel, phj_variant(shape))
}

/// Do kernels with a table of another size serve first, so that those with the best one need not be begun yet?
pub fn another_table_serves(runtime: &Runtime, join: PartitionJoin) -> bool {
    let best = join.shape(runtime);
    table_at_hand(runtime, best) != best
}

/// The number of a shape among all shapes.
fn phj_variant(shape: PhjShape) -> usize {
    usize::from(shape.unique)
        | usize::from(shape.numbers) << 1
        | (shape.key_bytes as usize) << 2
        | (shape.rows as usize) << 8
        | (shape.array as usize) << 24
        | usize::from(shape.hashed[0]) << 40
        | usize::from(shape.hashed[1]) << 41
}

/// A kernel with this shape. The emulator has one module for all: its compiler takes longer over headers than over kernels.
pub(super) fn phj_kernel(
    runtime: &Runtime,
    shape: PhjShape,
    kernel: &'static str,
) -> Result<Kernel> {
    let part = match runtime.device().info().emulated {
        true => PhjPart::All,
        false => PhjPart::of(kernel),
    };
    let source = || kernels::phj(shape, part);
    runtime.builtin(kernel, phj_variant(shape), source)
}

/// Compile the module with a kernel that a join of partitions needs ahead of its use: of each of [`PhjPart::APART`] one, side by side.
///
/// # Errors
/// [`GpuError::Compile`](crate::GpuError::Compile), [`GpuError::Device`](crate::GpuError::Device).
pub fn compile_partition_join(
    runtime: &Runtime,
    join: PartitionJoin,
    kernel: &'static str,
) -> Result<()> {
    phj_kernel(runtime, join.shape(runtime), kernel).map(drop)
}
