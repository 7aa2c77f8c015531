//! The first rows of each partition of an order.

pub use warpline_cuda::kernels::Numbering;
use warpline_cuda::kernels::{self, FirstArgs, MOST_SORT_WORDS};

use super::{RowCount, check_numbered, exclusive_sum, launch, one_each, scratch};
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// Rows in an order, of which the first of each partition are asked for.
#[derive(Debug, Clone, Copy)]
pub struct OrderedKeys<'a> {
    /// Key words (`u64*`, one a row each), the major one first; all of their bits count.
    pub words: &'a [DevicePtr],
    /// The bits of each that tell partitions: those that count most.
    pub partition: &'a [u64],
    /// `u32*`: rows in ascending order of their keys.
    pub order: DevicePtr,
    /// How many.
    pub rows: RowCount,
}

/// The first part of `out` (`u32*`, one a row) becomes the rows whose number is at most `most`, in their order; `*kept` (`u64*`)
/// how many they are.
///
/// Up to four kernels and two sums: see `window_first.cu`.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^32 - 2 rows or 16 words, [`GpuError::OutOfDeviceMemory`] for 4 or 12 bytes a row of scratch,
/// [`GpuError::Device`] from the driver.
///
/// # Safety
/// Words, order and `out` have `keys.rows.most()` elements; `kept` is a word, and none overlaps another.
pub unsafe fn first_of_partitions(
    runtime: &Runtime,
    stream: &Stream,
    keys: &OrderedKeys<'_>,
    (numbering, most): (Numbering, u64),
    (out, kept): (DevicePtr, DevicePtr),
) -> Result<()> {
    let rows = keys.rows;
    check_numbered("a window of rows", rows.most())?;
    if keys.words.len() > MOST_SORT_WORDS || keys.words.len() != keys.partition.len() {
        return Err(GpuError::Unsupported(format!(
            "partitions by keys of {} words (at most {MOST_SORT_WORDS} are supported)",
            keys.words.len()
        )));
    }
    let sums = |what| scratch(runtime, stream, rows.most() + 1, 4, what);
    let peers = match numbering {
        Numbering::Rank | Numbering::DenseRank => {
            Some((sums("peers of an order")?, sums("starts of peers")?))
        }
        _ => None,
    };
    let marks = sums("first rows of an order")?;
    let mut args = FirstArgs {
        words: [DevicePtr::NULL; MOST_SORT_WORDS],
        partition: [0; MOST_SORT_WORDS],
        order: keys.order,
        peers: DevicePtr::NULL,
        starts: DevicePtr::NULL,
        marks: marks.ptr(),
        out,
        kept,
        count: rows.count(),
        most: rows.most(),
        first: most,
        key_words: keys.words.len() as u32,
        dense: u32::from(numbering == Numbering::DenseRank),
    };
    for (w, (word, partition)) in keys.words.iter().zip(keys.partition).enumerate() {
        args.words[w] = *word;
        args.partition[w] = *partition;
    }
    let config = one_each(runtime, rows.most().max(1));
    let run = |name: &'static str, args: &FirstArgs| -> Result<()> {
        let kernel = runtime.builtin(name, 0, kernels::window_first)?;
        // SAFETY: the caller vouches for all but the scratch, which has a word more than rows and is reused only behind these
        // launches.
        unsafe { launch(runtime, stream, &kernel, config, args) }
    };
    // SAFETY: as above; sums take the place of marks.
    unsafe {
        if let Some((peers, starts)) = &peers {
            let to = FirstArgs {
                marks: peers.ptr(),
                ..args
            };
            run("first_peers", &to)?;
            exclusive_sum(runtime, stream, peers.ptr(), peers.ptr(), rows, false)?;
            (args.peers, args.starts) = (peers.ptr(), starts.ptr());
            run("first_starts", &args)?;
        }
        run("first_marks", &args)?;
        exclusive_sum(runtime, stream, marks.ptr(), marks.ptr(), rows, false)?;
    }
    run("first_rows", &args)
}
