//! Join indexes: tables and ranges of entries from the key words of materialised rows.
//!
//! The key of row i is `words[0][i], words[1][i], …`; a row whose first word is `u64::MAX` has no key (NULL)
//! and is left out. Tables have a power of two of slots, at least twice as many as keys ([`slots_for`]), and
//! are cleared here. A key that finds no slot sets `*overflow` to 1: build again with more slots.

use warpline_cuda::kernels::{self, HashIndexArgs, MOST_KEY_WORDS};

use super::{BLOCK, RowCount, check_numbered, exclusive_sum, fill, grid, launch, scratch};
use crate::device::{DevicePtr, Kernel, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::runtime::Runtime;

/// Most probes of an insertion. At half load the longest run of 10^9 keys is about 130 slots; a table
/// this crowded has far too few slots.
const MOST_PROBES: u64 = 4096;

/// An open-addressing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashTable {
    /// A power of two.
    pub slots: u64,
    /// `slots * key_words` words, slot after slot (`u64*`).
    pub keys: DevicePtr,
    /// `slots` words of 32 bits; null for keys of one word.
    pub states: DevicePtr,
}

/// Slots of a table for `keys` keys: a power of two, at most half full, at least 32.
pub fn slots_for(keys: u64) -> u64 {
    keys.saturating_mul(2)
        .clamp(32, 1 << 62)
        .next_power_of_two()
}

/// Enter keys that are assumed to be unique: `entry[slot]` (`u32*`, by slot) becomes the row of the slot's key.
/// `*duplicate` (`u64*`) is set to 1 when a key occurs twice; one of its rows is entered.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^32 - 2 rows, [`GpuError::Internal`] for a table of the wrong shape,
/// [`GpuError::Device`] from the driver.
///
/// # Safety
/// Every word array has `rows.most()` words; the table is as [`HashTable`] says; `entry` has a word a slot;
/// `duplicate` and `overflow` are words.
#[allow(clippy::too_many_arguments)]
pub unsafe fn insert_unique(
    runtime: &Runtime,
    stream: &Stream,
    words: &[DevicePtr],
    rows: RowCount,
    table: HashTable,
    entry: DevicePtr,
    duplicate: DevicePtr,
    overflow: DevicePtr,
) -> Result<()> {
    let mut args = arguments(words, rows, table, overflow)?;
    args.entry = entry;
    args.duplicate = duplicate;
    // SAFETY: the caller vouches for every address.
    unsafe {
        clear(runtime, stream, words.len(), table)?;
        over_rows(runtime, stream, "insert_unique", words.len(), &args)
    }
}

/// Enter the set of keys.
///
/// # Errors
/// As [`insert_unique`].
///
/// # Safety
/// As [`insert_unique`].
pub unsafe fn insert_set(
    runtime: &Runtime,
    stream: &Stream,
    words: &[DevicePtr],
    rows: RowCount,
    table: HashTable,
    overflow: DevicePtr,
) -> Result<()> {
    let args = arguments(words, rows, table, overflow)?;
    // SAFETY: the caller vouches for every address.
    unsafe {
        clear(runtime, stream, words.len(), table)?;
        over_rows(runtime, stream, "insert_set", words.len(), &args)
    }
}

/// Enter keys that may have duplicates: the rows of slot s become `entries[offsets[s] .. offsets[s + 1]]`, in no
/// particular order. `offsets` (`u32*`, aligned to 16 bytes) has one word more than slots, `entries` (`u32*`) one a row.
///
/// Any skew is fine: rows of one key share atomics a warp at a time.
///
/// # Errors
/// As [`insert_unique`]; [`GpuError::OutOfDeviceMemory`] for 8 bytes a row of scratch.
///
/// # Safety
/// As [`insert_unique`], with `offsets` and `entries` of the sizes above.
#[allow(clippy::too_many_arguments)]
pub unsafe fn build_ranges(
    runtime: &Runtime,
    stream: &Stream,
    words: &[DevicePtr],
    rows: RowCount,
    table: HashTable,
    offsets: DevicePtr,
    entries: DevicePtr,
    overflow: DevicePtr,
) -> Result<()> {
    check_numbered("a join index with slots", table.slots)?;
    let mut args = arguments(words, rows, table, overflow)?;
    let slots = scratch(runtime, stream, rows.most(), 4, "slots of join rows")?;
    let places = scratch(runtime, stream, rows.most(), 4, "places of join rows")?;
    args.offsets = offsets;
    args.entry = entries;
    args.slot_of_row = slots.ptr();
    args.place_of_row = places.ptr();
    // SAFETY: the caller vouches for the addresses; the scratch has a word a row, and the pool reuses it only
    // behind these launches.
    unsafe {
        clear(runtime, stream, words.len(), table)?;
        fill(runtime, stream, offsets, 0, table.slots * 4)?;
        over_rows(runtime, stream, "count_slots", words.len(), &args)?;
        exclusive_sum(
            runtime,
            stream,
            offsets,
            offsets,
            RowCount::Known(table.slots),
            false,
        )?;
        over_rows(runtime, stream, "scatter_entries", words.len(), &args)
    }
}

/// As [`build_ranges`] where the one key word is the slot: row i belongs to slot `word[i]` of `domain`, or to none
/// when `word[i] >= domain`.
///
/// # Errors
/// As [`build_ranges`]; 4 bytes a row of scratch.
///
/// # Safety
/// `word` has `rows.most()` words, `offsets` `domain + 1`, `entries` one a row.
pub unsafe fn build_dense_ranges(
    runtime: &Runtime,
    stream: &Stream,
    word: DevicePtr,
    rows: RowCount,
    domain: u64,
    offsets: DevicePtr,
    entries: DevicePtr,
) -> Result<()> {
    check_numbered("a join index with keys", domain)?;
    check_numbered("a join index with rows", rows.most())?;
    let places = scratch(runtime, stream, rows.most(), 4, "places of join rows")?;
    let mut args = blank(rows);
    args.words[0] = word;
    args.mask = domain;
    args.offsets = offsets;
    args.entry = entries;
    args.place_of_row = places.ptr();
    // SAFETY: as in `build_ranges`.
    unsafe {
        fill(runtime, stream, offsets, 0, domain * 4)?;
        over_rows(runtime, stream, "count_dense", 1, &args)?;
        exclusive_sum(
            runtime,
            stream,
            offsets,
            offsets,
            RowCount::Known(domain),
            false,
        )?;
        over_rows(runtime, stream, "scatter_dense", 1, &args)
    }
}

fn blank(rows: RowCount) -> HashIndexArgs {
    HashIndexArgs {
        words: [DevicePtr::NULL; MOST_KEY_WORDS],
        count: rows.count(),
        most: rows.most(),
        mask: 0,
        keys: DevicePtr::NULL,
        states: DevicePtr::NULL,
        entry: DevicePtr::NULL,
        offsets: DevicePtr::NULL,
        slot_of_row: DevicePtr::NULL,
        place_of_row: DevicePtr::NULL,
        duplicate: DevicePtr::NULL,
        overflow: DevicePtr::NULL,
        limit: 0,
        padding: 0,
    }
}

fn arguments(
    words: &[DevicePtr],
    rows: RowCount,
    table: HashTable,
    overflow: DevicePtr,
) -> Result<HashIndexArgs> {
    check_numbered("a join index with rows", rows.most())?;
    if words.is_empty() || words.len() > MOST_KEY_WORDS {
        return Err(GpuError::Unsupported(format!(
            "join keys of {} words (1 to {MOST_KEY_WORDS} are supported)",
            words.len()
        )));
    }
    if !table.slots.is_power_of_two() || (words.len() > 1) == table.states.is_null() {
        return Err(GpuError::Internal(format!(
            "a join index of {} slots, key words {}, slot states {:?}",
            table.slots,
            words.len(),
            table.states
        )));
    }
    let mut args = blank(rows);
    args.words[..words.len()].copy_from_slice(words);
    args.mask = table.slots - 1;
    args.keys = table.keys;
    args.states = table.states;
    args.overflow = overflow;
    args.limit = table.slots.min(MOST_PROBES) as u32;
    Ok(args)
}

/// Empty every slot. Wide keys need none: their states say which slots hold one.
///
/// # Safety
/// The table is live and as [`HashTable`] says.
unsafe fn clear(
    runtime: &Runtime,
    stream: &Stream,
    key_words: usize,
    table: HashTable,
) -> Result<()> {
    // SAFETY: the caller vouches for the table.
    unsafe {
        if key_words == 1 {
            fill(runtime, stream, table.keys, 0xFF, table.slots * 8)
        } else {
            fill(runtime, stream, table.states, 0, table.slots * 4)
        }
    }
}

/// Launch a kernel of `hash_index.cu`, one row a thread.
///
/// # Safety
/// As [`launch`].
unsafe fn over_rows(
    runtime: &Runtime,
    stream: &Stream,
    name: &'static str,
    key_words: usize,
    args: &HashIndexArgs,
) -> Result<()> {
    if args.most == 0 {
        return Ok(());
    }
    let kernel: Kernel = runtime.builtin(name, key_words, || kernels::hash_index(key_words))?;
    let config = LaunchConfig {
        grid: grid(runtime, args.most, u64::from(BLOCK)),
        block: BLOCK,
        shared_bytes: 0,
    };
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, args) }
}
