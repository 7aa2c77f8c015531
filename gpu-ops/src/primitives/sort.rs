//! The order of rows by packed key words.

use warpline_cuda::kernels::{
    self, MOST_SORT_WORDS, SORT_HISTOGRAM_SHARED_BYTES, SORT_SMALL_ROWS, SORT_SMALL_SHARED_BYTES,
    SORT_TILE, SmallSortArgs, SortHistogramArgs, SortPassArgs, sort_pass_shared_bytes,
};

use super::{BLOCK, RowCount, check_numbered, fill, grid, launch, scratch};
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// Bits of a digit, and values of it.
const DIGIT_BITS: u32 = 8;
const DIGITS: u64 = 256;
/// Tile words of several passes up to this size are cleared at once.
const CLEARED_AT_ONCE: u64 = 64 << 20;

/// One reading and writing of all rows by 8 bits of a key word.
struct Pass {
    word: DevicePtr,
    bits: u32,
    shift: u32,
    first_of_word: bool,
    last_of_word: bool,
}

/// `order` (`u32*`, one a row) becomes the row numbers in ascending order of their keys, rows of equal keys in the order
/// of their numbers.
///
/// The key of row i is `words[0][i], words[1][i], …` (`u64*`, major word first), compared as unsigned integers in
/// their lowest `bits[w]` bits; the bits above are ignored. Up to 2048 rows take one kernel, more take one pass per started
/// 8 bits; packing keys densely pays. Costs: see `radix_sort.cu`.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^32 - 2 rows or 16 words, [`GpuError::OutOfDeviceMemory`] for up to 24 bytes
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

/// # Safety
/// As [`sort_rows`].
unsafe fn sort_few(
    runtime: &Runtime,
    stream: &Stream,
    keys: &[(DevicePtr, u32)],
    rows: RowCount,
    order: DevicePtr,
) -> Result<()> {
    let mut args = SmallSortArgs {
        words: [DevicePtr::NULL; MOST_SORT_WORDS],
        bits: [0; MOST_SORT_WORDS],
        order,
        count: rows.count(),
        most: rows.most(),
        key_words: keys.len() as u32,
        padding: 0,
    };
    for (w, (word, bits)) in keys.iter().enumerate() {
        args.words[w] = *word;
        args.bits[w] = *bits;
    }
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
    let args = SortPassArgs {
        rows_out: order,
        ..blank(rows)
    };
    let kernel = runtime.builtin("number_rows", 0, kernels::radix_sort)?;
    let config = LaunchConfig {
        grid: grid(runtime, rows.most(), u64::from(BLOCK)),
        block: BLOCK,
        shared_bytes: 0,
    };
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
    let tiles = most.div_ceil(SORT_TILE);
    let passes = passes(keys);
    let count = passes.len() as u64;

    // A histogram and a ticket a pass, then the words of the tiles, for all passes or for one.
    let tile_bytes = tiles * DIGITS * 8;
    let head = count * DIGITS * 4 + (count * 4).next_multiple_of(256);
    let at_once = tile_bytes * count <= CLEARED_AT_ONCE;
    let states = if at_once {
        tile_bytes * count
    } else {
        tile_bytes
    };
    let control = scratch(runtime, head + states, 1, "digits of a sort")?;
    let cleared = if at_once { head + states } else { head };
    let tickets = control.ptr().offset(count * DIGITS * 4);
    let states = control.ptr().offset(head);

    let wide = keys.iter().any(|(_, bits)| *bits > 32);
    let several = keys.iter().any(|(_, bits)| *bits > DIGIT_BITS);
    let key_bytes = if wide { 8 } else { 4 };
    let key_buffers = if several { 2 } else { 0 };
    let sorted_keys = scratch(runtime, most * key_buffers, key_bytes, "keys of a sort")?;
    let other = scratch(
        runtime,
        if count > 1 { most } else { 0 },
        4,
        "row numbers of a sort",
    )?;
    let key_buffer = |pass: usize| sorted_keys.ptr().offset(pass as u64 % 2 * most * key_bytes);
    // The last pass writes to `order`, the one before it to the other array, and so on.
    let row_buffer = |pass: usize| {
        if (passes.len() - 1 - pass).is_multiple_of(2) {
            order
        } else {
            other.ptr()
        }
    };

    // SAFETY: the scratch is sized as the kernels' structs say, and the pool reuses it only behind these
    // launches; for the rest the caller vouches.
    unsafe {
        fill(runtime, stream, control.ptr(), 0, cleared)?;
        histograms(runtime, stream, keys, rows, control.ptr())?;
        for (number, pass) in passes.iter().enumerate() {
            let of_pass = |bytes: u64| bytes * number as u64;
            let states = if at_once {
                states.offset(of_pass(tile_bytes))
            } else {
                fill(runtime, stream, states, 0, tile_bytes)?;
                states
            };
            let args = SortPassArgs {
                word: pass.word,
                keys_in: if pass.first_of_word {
                    DevicePtr::NULL
                } else {
                    key_buffer(number - 1)
                },
                rows_in: if number == 0 {
                    DevicePtr::NULL
                } else {
                    row_buffer(number - 1)
                },
                keys_out: if pass.last_of_word {
                    DevicePtr::NULL
                } else {
                    key_buffer(number)
                },
                rows_out: row_buffer(number),
                histogram: control.ptr().offset(of_pass(DIGITS * 4)),
                states,
                ticket: tickets.offset(of_pass(4)),
                shift: pass.shift,
                mask: (1 << (pass.bits - pass.shift).min(DIGIT_BITS)) - 1,
                ..blank(rows)
            };
            let narrow = pass.bits <= 32;
            let name = if narrow {
                "sort_pass_u32"
            } else {
                "sort_pass_u64"
            };
            let kernel = runtime.builtin(name, 0, kernels::radix_sort)?;
            let config = LaunchConfig {
                grid: u32::try_from(tiles).unwrap_or(u32::MAX),
                block: BLOCK,
                shared_bytes: sort_pass_shared_bytes(if narrow { 4 } else { 8 }),
            };
            launch(runtime, stream, &kernel, config, &args)?;
        }
    }
    Ok(())
}

/// The passes over keys, least significant first.
fn passes(keys: &[(DevicePtr, u32)]) -> Vec<Pass> {
    let of_word = |(word, bits): &(DevicePtr, u32)| {
        let (word, bits) = (*word, *bits);
        (0..bits)
            .step_by(DIGIT_BITS as usize)
            .map(move |shift| Pass {
                word,
                bits,
                shift,
                first_of_word: shift == 0,
                last_of_word: shift + DIGIT_BITS >= bits,
            })
    };
    keys.iter().rev().flat_map(of_word).collect()
}

/// Count the digits of every pass: 256 counts (`u32`) a pass from `histograms` on.
///
/// # Safety
/// As [`sort_rows`]; `histograms` are zeroed and as many as passes.
unsafe fn histograms(
    runtime: &Runtime,
    stream: &Stream,
    keys: &[(DevicePtr, u32)],
    rows: RowCount,
    histograms: DevicePtr,
) -> Result<()> {
    let kernel = runtime.builtin("sort_histogram", 0, kernels::radix_sort)?;
    let config = LaunchConfig {
        grid: grid(runtime, rows.most(), u64::from(BLOCK) * 4),
        block: BLOCK,
        shared_bytes: SORT_HISTOGRAM_SHARED_BYTES,
    };
    let mut histogram = histograms;
    for (word, bits) in keys.iter().rev() {
        let args = SortHistogramArgs {
            word: *word,
            histogram,
            count: rows.count(),
            most: rows.most(),
            bits: *bits,
            padding: 0,
        };
        // SAFETY: passed on to the caller.
        unsafe { launch(runtime, stream, &kernel, config, &args)? };
        histogram = histogram.offset(u64::from(bits.div_ceil(DIGIT_BITS)) * DIGITS * 4);
    }
    Ok(())
}

fn blank(rows: RowCount) -> SortPassArgs {
    SortPassArgs {
        word: DevicePtr::NULL,
        keys_in: DevicePtr::NULL,
        rows_in: DevicePtr::NULL,
        keys_out: DevicePtr::NULL,
        rows_out: DevicePtr::NULL,
        histogram: DevicePtr::NULL,
        states: DevicePtr::NULL,
        ticket: DevicePtr::NULL,
        count: rows.count(),
        most: rows.most(),
        shift: 0,
        mask: 0,
    }
}
