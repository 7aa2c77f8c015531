//! Windows over ordered rows: in which partition and among which peers each row lies, and running values.

use warpline_cuda::kernels::{
    self, FRAME_CHILDREN, FrameArgs, MOMENTS_BYTES, RUNNING_PIECE, RUNNING_SHARED_BYTES,
    RUNNING_TILE, RunningArgs, WindowArgs,
};
pub use warpline_cuda::kernels::{RunningCombine, RunningValue};

use super::{BLOCK, RowCount, check_numbered, grid, launch, one_each, scratch};
use crate::device::{DevicePtr, Kernel, LaunchConfig, Stream};
use crate::error::Result;
use crate::runtime::Runtime;

/// Where the numbers of rows go, `u32*` each; null: not asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowNumbers {
    /// The row's number, from 0.
    pub position: DevicePtr,
    /// First row of the row's partition.
    pub partition_start: DevicePtr,
    /// The row behind the partition.
    pub partition_end: DevicePtr,
    /// First row of the row's peers.
    pub peer_start: DevicePtr,
    /// The row behind the peers.
    pub peer_end: DevicePtr,
    /// Groups of peers of the partition up to the row's.
    pub dense_rank: DevicePtr,
}

/// Number rows by the partitions and peers that begin before each (exclusive sums of marks, one word more than rows). Two kernels:
/// see `window.cu`.
///
/// # Errors
/// [`crate::GpuError::Unsupported`] beyond 2^32 - 2 rows, [`crate::GpuError::OutOfDeviceMemory`] for 8 bytes a row of scratch,
/// [`crate::GpuError::Device`] from the driver.
///
/// # Safety
/// `partitions` and `peers` have one word more than `rows.most()`, the first row begins both, and each of `numbers` that is not
/// null has a word a row.
pub unsafe fn number_windows(
    runtime: &Runtime,
    stream: &Stream,
    partitions: DevicePtr,
    peers: DevicePtr,
    numbers: WindowNumbers,
    rows: RowCount,
) -> Result<()> {
    check_numbered("a window of rows", rows.most())?;
    let starts = scratch(
        runtime,
        stream,
        (rows.most() + 1) * 2,
        4,
        "partitions of a window",
    )?;
    let args = WindowArgs {
        partitions,
        peers,
        partition_starts: starts.ptr(),
        peer_starts: starts.ptr().offset((rows.most() + 1) * 4),
        position: numbers.position,
        partition_start: numbers.partition_start,
        partition_end: numbers.partition_end,
        peer_start: numbers.peer_start,
        peer_end: numbers.peer_end,
        dense_rank: numbers.dense_rank,
        count: rows.count(),
        most: rows.most(),
    };
    let config = one_each(runtime, rows.most() + 1);
    for name in ["window_starts", "window_numbers"] {
        let kernel = runtime.builtin(name, 0, kernels::window)?;
        // SAFETY: the caller vouches for all but the scratch, which is reused only behind these launches.
        unsafe { launch(runtime, stream, &kernel, config, &args)? };
    }
    Ok(())
}

/// Turn `values` into what they come to from the first row of their partition on. Three kernels: see `window_running.cu`.
/// Results of 64-bit integers are stored as what they are above the least number.
///
/// # Errors
/// [`crate::GpuError::OutOfDeviceMemory`] for 32 bytes a 2048 rows of scratch, [`crate::GpuError::Device`] from the driver.
///
/// # Safety
/// There are `rows.most()` values, aligned to their width, and one word more of `partitions`: the sums of marks before each row.
pub unsafe fn running(
    runtime: &Runtime,
    stream: &Stream,
    (value, combine): (RunningValue, RunningCombine),
    values: DevicePtr,
    partitions: DevicePtr,
    rows: RowCount,
) -> Result<()> {
    let tiles = rows.most().div_ceil(RUNNING_TILE).max(1);
    let pieces = scratch(
        runtime,
        stream,
        tiles,
        RUNNING_PIECE,
        "tiles of running values",
    )?;
    let args = RunningArgs {
        values,
        partitions,
        tiles: pieces.ptr(),
        count: rows.count(),
        most: rows.most(),
    };
    for (name, blocks) in [
        ("running_tiles", grid(runtime, tiles, 1)),
        ("running_carries", 1),
        ("running_scan", grid(runtime, tiles, 1)),
    ] {
        let kernel = kernel_over(runtime, name, (value, combine), kernels::window_running)?;
        let config = LaunchConfig {
            grid: blocks,
            block: BLOCK,
            shared_bytes: RUNNING_SHARED_BYTES,
        };
        // SAFETY: as above.
        unsafe { launch(runtime, stream, &kernel, config, &args)? };
    }
    Ok(())
}

/// The frame of each row: from a row to before another, within its partition. `u32*` each, a word a row.
#[derive(Debug, Clone, Copy)]
pub struct Frames {
    /// The first row of the frame is this many rows behind the row that is named here.
    pub start: DevicePtr,
    /// Rows, before it where negative.
    pub start_plus: i64,
    /// The row behind the frame, likewise.
    pub end: DevicePtr,
    /// Rows, before it where negative.
    pub end_plus: i64,
    /// First row of the row's partition.
    pub partition_start: DevicePtr,
    /// The row behind it.
    pub partition_end: DevicePtr,
}

/// Turn `values` into the least or greatest value of each row's frame, or one of them where the frame is empty. A kernel that
/// copies them, one a level of the tree, one for the frames: see `window_extremes.cu`; their number is returned. Results of
/// 64-bit integers are stored as what they are above the least number.
///
/// # Errors
/// [`crate::GpuError::OutOfDeviceMemory`] for a copy of the values and a fifteenth more, [`crate::GpuError::Device`] from the
/// driver.
///
/// # Safety
/// There are `rows.most()` values, aligned to their width, and as many words of each of `frames`.
pub unsafe fn frame_extremes(
    runtime: &Runtime,
    stream: &Stream,
    (value, combine): (RunningValue, RunningCombine),
    values: DevicePtr,
    frames: Frames,
    rows: RowCount,
) -> Result<usize> {
    let kernel = |name| kernel_over(runtime, name, (value, combine), kernels::window_extremes);
    let width = u64::from(value.width());
    let tree = FrameTree {
        nodes: kernel("extreme_nodes")?,
        frames: kernel("extreme_frames")?,
        leaf: width,
        node: width,
        purpose: "extremes of frames",
    };
    // SAFETY: the caller's.
    unsafe { tree.run(runtime, stream, values, frames, rows) }
}

/// Turn `values` (Float64, as `known_value` of `pipeline.cuh` makes them) into the sum of squared differences from the mean of
/// each row's frame. As many kernels as [`frame_extremes`]: see `window_moments.cu`; their number is returned.
///
/// # Errors
/// [`crate::GpuError::OutOfDeviceMemory`] for a copy of the values and a fifth more, [`crate::GpuError::Device`] from the driver.
///
/// # Safety
/// As of [`frame_extremes`].
pub unsafe fn frame_squares(
    runtime: &Runtime,
    stream: &Stream,
    values: DevicePtr,
    frames: Frames,
    rows: RowCount,
) -> Result<usize> {
    let kernel = |name| runtime.builtin(name, 0, kernels::window_moments);
    let tree = FrameTree {
        nodes: kernel("moment_nodes")?,
        frames: kernel("moment_frames")?,
        leaf: 8,
        node: MOMENTS_BYTES,
        purpose: "moments of frames",
    };
    // SAFETY: the caller's.
    unsafe { tree.run(runtime, stream, values, frames, rows) }
}

/// A tree over rows, of which frames are read.
struct FrameTree {
    /// Makes a level.
    nodes: Kernel,
    /// Reads the frame of each row.
    frames: Kernel,
    /// Bytes of a row's value.
    leaf: u64,
    /// Bytes of a node above them.
    node: u64,
    purpose: &'static str,
}

impl FrameTree {
    /// Make its levels and read frames of it: as many kernels as it has levels, and one.
    ///
    /// # Safety
    /// As of [`frame_extremes`].
    unsafe fn run(
        &self,
        runtime: &Runtime,
        stream: &Stream,
        values: DevicePtr,
        frames: Frames,
        rows: RowCount,
    ) -> Result<usize> {
        let most = rows.most();
        if most == 0 {
            return Ok(0);
        }
        let mut sizes = vec![most];
        while let Some(last) = sizes.last().filter(|last| **last > 1) {
            sizes.push(last.div_ceil(FRAME_CHILDREN));
        }
        let bytes = most * self.leaf + sizes[1..].iter().sum::<u64>() * self.node;
        let words = bytes.div_ceil(self.leaf);
        let tree = scratch(runtime, stream, words, self.leaf, self.purpose)?;
        let mut args = FrameArgs {
            values,
            nodes: tree.ptr(),
            start: frames.start,
            end: frames.end,
            partition_start: frames.partition_start,
            partition_end: frames.partition_end,
            start_plus: frames.start_plus,
            end_plus: frames.end_plus,
            level: 0,
            count: rows.count(),
            most,
        };
        let levels = sizes.iter().enumerate();
        let steps = levels
            .map(|(level, size)| (&self.nodes, level as u64, *size))
            .chain([(&self.frames, 0, most)]);
        for (kernel, level, size) in steps {
            args.level = level;
            let config = one_each(runtime, size);
            // SAFETY: the caller vouches for all but the scratch, which is reused only behind these launches.
            unsafe { launch(runtime, stream, kernel, config, &args)? };
        }
        Ok(sizes.len() + 1)
    }
}

/// Compile what [`running`] needs ahead of its use.
///
/// # Errors
/// [`crate::GpuError::Compile`], [`crate::GpuError::Device`].
pub fn compile_running(runtime: &Runtime, of: (RunningValue, RunningCombine)) -> Result<()> {
    kernel_over(runtime, "running_tiles", of, kernels::window_running).map(drop)
}

/// Compile what [`frame_extremes`] needs ahead of its use.
///
/// # Errors
/// [`crate::GpuError::Compile`], [`crate::GpuError::Device`].
pub fn compile_extremes(runtime: &Runtime, of: (RunningValue, RunningCombine)) -> Result<()> {
    kernel_over(runtime, "extreme_nodes", of, kernels::window_extremes).map(drop)
}

/// A kernel of a module that is written for each kind of values and what combines them.
fn kernel_over(
    runtime: &Runtime,
    name: &'static str,
    (value, combine): (RunningValue, RunningCombine),
    source: fn(RunningValue, RunningCombine) -> String,
) -> Result<Kernel> {
    let variant = value as usize * 3 + combine as usize;
    runtime.builtin(name, variant, || source(value, combine))
}
