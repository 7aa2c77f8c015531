//! Sort permutations by packed key words.

use warpline_cuda::kernels::{
    self, MOST_FIRST_ROWS, MOST_SORT_WORDS, RangeNumbersArgs, SORT_SMALL_ROWS,
    SORT_SMALL_SHARED_BYTES, SmallSortArgs, SortKeysArgs,
};

use super::columns::gather;
use super::partition::{KeyOrder, Keys, order_by_keys};
use super::{BLOCK, RowCount, check_numbered, grid, launch, one_each, scratch};
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// `order` (`u32*`, one a row) becomes the row numbers in ascending order of their keys, rows of equal keys in the order
/// of their numbers.
///
/// The key of row i is `words[0][i], words[1][i], …` (`u64*`, major word first), compared as unsigned integers in
/// their lowest `bits[w]` bits; the bits above are ignored. Up to 2048 rows take one kernel, more take a radix partition
/// per word, least significant first, of one pass per started 8 bits; packing keys densely pays, 32 bits and less most.
/// Costs: see `partition.cu`.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^32 - 2 rows or 16 words, [`GpuError::OutOfDeviceMemory`] for up to 28 bytes
/// a row of scratch, [`GpuError::Device`] from the driver.
///
/// # Safety
/// Every word array and `order` have `rows.most()` elements.
pub unsafe fn sort_rows(
    runtime: &Runtime,
    stream: &Stream,
    words: &[DevicePtr],
    bits: &[u32],
    rows: RowCount,
    order: DevicePtr,
) -> Result<()> {
    check_numbered("a sort with rows", rows.most())?;
    if words.len() != bits.len() || bits.iter().any(|b| *b > 64) {
        return Err(GpuError::Internal(format!(
            "a sort by {} words of {bits:?} bits",
            words.len()
        )));
    }
    let keys: Vec<(DevicePtr, u32)> = words
        .iter()
        .copied()
        .zip(bits.iter().copied())
        .filter(|(_, bits)| *bits > 0)
        .collect();
    if rows.most() == 0 {
        return Ok(());
    }
    // SAFETY: passed on to the caller.
    unsafe {
        if keys.is_empty() {
            number_rows(runtime, stream, rows, order)
        } else if rows.most() <= SORT_SMALL_ROWS && keys.len() <= MOST_SORT_WORDS {
            sort_few(runtime, stream, &keys, rows, order)
        } else {
            sort_many(runtime, stream, &keys, rows, order)
        }
    }
}

/// The first `first` places of `order` become what [`sort_rows`] leaves there; what is behind them means nothing. A few rows of
/// many are found without sorting the others, in at most three kernels up to a hundred rows and seven up to 512: see `sort_first` of
/// `sort_small.cu`.
///
/// # Errors
/// As [`sort_rows`]; 4 bytes of scratch for each row that is wanted and 2048 rows.
///
/// # Safety
/// As [`sort_rows`].
pub unsafe fn sort_first_rows(
    runtime: &Runtime,
    stream: &Stream,
    words: &[DevicePtr],
    bits: &[u32],
    rows: RowCount,
    first: u64,
    order: DevicePtr,
) -> Result<()> {
    let used = bits.iter().filter(|bits| **bits > 0).count();
    let few = rows.most() <= SORT_SMALL_ROWS || first >= rows.most();
    if few || !finds_first(first) || used == 0 || used > MOST_SORT_WORDS {
        // SAFETY: passed on to the caller.
        return unsafe { sort_rows(runtime, stream, words, bits, rows, order) };
    }
    check_numbered("a sort with rows", rows.most())?;
    let keys = words.iter().copied().zip(bits.iter().copied());
    let keys: Vec<(DevicePtr, u32)> = keys.filter(|(_, bits)| *bits > 0).collect();
    let mut args = few_rows(&keys, rows, order);
    args.first = first as u32;
    let kernel = runtime.builtin("sort_first", 0, kernels::sort_small)?;
    let most_blocks = 2 * u64::from(runtime.device().info().multiprocessors);
    // What a launch reads stays until the next one is queued.
    let mut _from = None;
    loop {
        let blocks = args.most.div_ceil(SORT_SMALL_ROWS).clamp(1, most_blocks);
        let found = blocks * first;
        let to = match blocks {
            1 => None,
            _ => Some(scratch(runtime, stream, found, 4, "first rows of a sort")?),
        };
        args.order = to.as_ref().map_or(order, |to| to.ptr());
        let config = LaunchConfig {
            grid: blocks as u32,
            block: FIRST_BLOCK,
            shared_bytes: SORT_SMALL_SHARED_BYTES,
        };
        // SAFETY: the caller vouches for words and order, which has room for the first rows; every block writes its places of
        // the scratch, which the pool reuses only behind these launches.
        unsafe { launch(runtime, stream, &kernel, config, &args)? };
        let Some(to) = to else {
            return Ok(());
        };
        args.from = to.ptr();
        args.count = DevicePtr::NULL;
        args.most = found;
        _from = Some(to);
    }
}

/// Does [`sort_first_rows`] find so many rows without sorting all?
pub fn finds_first(first: u64) -> bool {
    (1..=MOST_FIRST_ROWS).contains(&first)
}

/// Rows with keys of several words, and the keys that divide them into ranges.
#[derive(Debug, Clone, Copy)]
pub struct RangeKeys<'a> {
    /// As [`sort_rows`] has them, at most [`MOST_SORT_WORDS`].
    pub words: &'a [DevicePtr],
    /// The bits of each that count.
    pub bits: &'a [u32],
    /// How many.
    pub rows: RowCount,
    /// `u64*`: the words of the keys that divide, ascending.
    pub splitters: DevicePtr,
    /// How many of those.
    pub count: u32,
}

/// `ranges[i]` (`u32*`) = which range between splitters the key of row i falls into: 2 s for keys between splitters s - 1 and
/// s, 2 s + 1 for those equal to splitter s.
///
/// One reading of the words: see `range_numbers.cu`.
///
/// # Errors
/// [`GpuError::Internal`] for other words, [`GpuError::Device`] from the driver.
///
/// # Safety
/// Every word array and `ranges` have `rows.most()` elements, `splitters` has as many as said.
pub unsafe fn number_ranges(
    runtime: &Runtime,
    stream: &Stream,
    keys: &RangeKeys<'_>,
    ranges: DevicePtr,
) -> Result<()> {
    let RangeKeys {
        words,
        bits,
        rows,
        splitters,
        count,
    } = *keys;
    if words.len() != bits.len() || words.len() > MOST_SORT_WORDS {
        return Err(GpuError::Internal(format!(
            "ranges of keys of {} words of {bits:?} bits",
            words.len()
        )));
    }
    if rows.most() == 0 {
        return Ok(());
    }
    let mut args = RangeNumbersArgs {
        words: [DevicePtr::NULL; MOST_SORT_WORDS],
        bits: [0; MOST_SORT_WORDS],
        splitters,
        out: ranges,
        count: rows.count(),
        most: rows.most(),
        key_words: words.len() as u32,
        ranges: count,
    };
    for (w, (word, bits)) in words.iter().zip(bits).enumerate() {
        args.words[w] = *word;
        args.bits[w] = *bits;
    }
    let kernel = runtime.builtin("range_numbers", 0, kernels::range_numbers)?;
    let config = one_each(runtime, rows.most());
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, &args) }
}

/// Threads of a block that looks for first rows: a round of them and the rows kept back fit its shared memory.
const FIRST_BLOCK: u32 = 1024;

/// Arguments of a sort of `rows` rows in shared memory.
fn few_rows(keys: &[(DevicePtr, u32)], rows: RowCount, order: DevicePtr) -> SmallSortArgs {
    let mut args = SmallSortArgs {
        words: [DevicePtr::NULL; MOST_SORT_WORDS],
        bits: [0; MOST_SORT_WORDS],
        order,
        count: rows.count(),
        most: rows.most(),
        key_words: keys.len() as u32,
        first: 0,
        from: DevicePtr::NULL,
    };
    for (w, (word, bits)) in keys.iter().enumerate() {
        args.words[w] = *word;
        args.bits[w] = *bits;
    }
    args
}

/// # Safety
/// As [`sort_rows`].
unsafe fn sort_few(
    runtime: &Runtime,
    stream: &Stream,
    keys: &[(DevicePtr, u32)],
    rows: RowCount,
    order: DevicePtr,
) -> Result<()> {
    let args = few_rows(keys, rows, order);
    let kernel = runtime.builtin("sort_small", 0, kernels::sort_small)?;
    let config = LaunchConfig {
        grid: 1,
        block: (rows.most().next_power_of_two() / 2).clamp(32, 1024) as u32,
        shared_bytes: SORT_SMALL_SHARED_BYTES,
    };
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, &args) }
}

/// # Safety
/// As [`sort_rows`].
unsafe fn number_rows(
    runtime: &Runtime,
    stream: &Stream,
    rows: RowCount,
    order: DevicePtr,
) -> Result<()> {
    let args = SortKeysArgs {
        word: DevicePtr::NULL,
        order: DevicePtr::NULL,
        out: order,
        count: rows.count(),
        most: rows.most(),
    };
    let kernel = runtime.builtin("number_rows", 0, kernels::sort_keys)?;
    let config = one_each(runtime, rows.most());
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, &args) }
}

/// # Safety
/// As [`sort_rows`].
unsafe fn sort_many(
    runtime: &Runtime,
    stream: &Stream,
    keys: &[(DevicePtr, u32)],
    rows: RowCount,
    order: DevicePtr,
) -> Result<()> {
    let most = rows.most();
    let several = u64::from(keys.len() > 1);
    let other = scratch(runtime, stream, most * several, 4, "row numbers of a sort")?;
    // The last word writes `order`, the one before it the other array, and so on.
    let order_after = |word: usize| {
        if word.is_multiple_of(2) {
            order
        } else {
            other.ptr()
        }
    };
    let mut from = None;
    for (number, (word, bits)) in keys.iter().enumerate().rev() {
        let narrow = *bits <= 32;
        let width = if narrow { 4 } else { 8 };
        let word_keys = Keys { ptr: *word, width };
        let to = order_after(number);
        let of = |keys: Keys, destroy: bool| KeyOrder {
            keys,
            destroy,
            bits: *bits,
            rows,
            from,
        };
        // SAFETY: the scratch has room for every row; for the rest the caller vouches.
        unsafe {
            if !narrow && from.is_none() {
                order_by_keys(runtime, stream, &of(word_keys, false), to)?;
            } else {
                let copied = scratch(runtime, stream, most, u64::from(width), "keys of a sort")?;
                match from {
                    Some(order) if !narrow => {
                        gather(runtime, stream, *word, order, copied.ptr(), width, rows)?;
                    }
                    _ => narrow_keys(runtime, stream, *word, from, copied.ptr(), rows)?,
                }
                let copied = Keys {
                    ptr: copied.ptr(),
                    width,
                };
                order_by_keys(runtime, stream, &of(copied, true), to)?;
            }
        }
        from = Some(to);
    }
    Ok(())
}

/// `keys` (`u32*`) = the lowest 32 bits of the words (`u64*`), in the order so far.
///
/// # Safety
/// As [`sort_rows`]; there is room for a key a row.
unsafe fn narrow_keys(
    runtime: &Runtime,
    stream: &Stream,
    word: DevicePtr,
    order: Option<DevicePtr>,
    keys: DevicePtr,
    rows: RowCount,
) -> Result<()> {
    let args = SortKeysArgs {
        word,
        order: order.unwrap_or(DevicePtr::NULL),
        out: keys,
        count: rows.count(),
        most: rows.most(),
    };
    let kernel = runtime.builtin("sort_keys", 0, kernels::sort_keys)?;
    let config = LaunchConfig {
        grid: grid(runtime, rows.most(), u64::from(BLOCK) * 4),
        block: BLOCK,
        shared_bytes: 0,
    };
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, &args) }
}
