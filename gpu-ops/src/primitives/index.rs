//! Join indexes: tables and ranges of entries from the key words of materialised rows.
//!
//! The key of row i is `words[0][i], words[1][i], …`; a row whose first word is `u64::MAX` has no key (NULL)
//! and is left out. Tables have a power of two of slots, at least twice as many as keys ([`slots_for`]), and
//! are cleared here. A key that finds no slot sets `*overflow` to 1: build again with more slots.

use warpline_cuda::kernels::{self, HashIndexArgs, MOST_KEY_WORDS};

use super::columns::gather;
use super::sort::sort_rows;
use super::{RowCount, check_numbered, exclusive_sum, fill, launch, one_each, scratch};
use crate::device::{DevicePtr, Kernel, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;
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

/// Rows that are entered into a table by their keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyedRows<'a> {
    /// The words of the keys (`u64*`, one a row each), the major one first.
    pub words: &'a [DevicePtr],
    /// How many.
    pub rows: RowCount,
    /// Where they go.
    pub table: HashTable,
    /// `u64*`: becomes 1 when the table is too full.
    pub overflow: DevicePtr,
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
pub unsafe fn insert_unique(
    runtime: &Runtime,
    stream: &Stream,
    rows: &KeyedRows<'_>,
    entry: DevicePtr,
    duplicate: DevicePtr,
) -> Result<()> {
    let mut args = arguments(rows)?;
    args.entry = entry;
    args.duplicate = duplicate;
    // SAFETY: the caller vouches for every address.
    unsafe {
        clear(runtime, stream, rows)?;
        over_rows(runtime, stream, "insert_unique", rows.words.len(), &args)
    }
}

/// Enter the set of keys.
///
/// # Errors
/// As [`insert_unique`].
///
/// # Safety
/// As [`insert_unique`].
pub unsafe fn insert_set(runtime: &Runtime, stream: &Stream, rows: &KeyedRows<'_>) -> Result<()> {
    let args = arguments(rows)?;
    // SAFETY: the caller vouches for every address.
    unsafe {
        clear(runtime, stream, rows)?;
        over_rows(runtime, stream, "insert_set", rows.words.len(), &args)
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
pub unsafe fn build_ranges(
    runtime: &Runtime,
    stream: &Stream,
    rows: &KeyedRows<'_>,
    offsets: DevicePtr,
    entries: DevicePtr,
) -> Result<()> {
    let (table, most) = (rows.table, rows.rows.most());
    check_numbered("a join index with slots", table.slots)?;
    let mut args = arguments(rows)?;
    let slots = scratch(runtime, stream, most, 4, "slots of join rows")?;
    let places = scratch(runtime, stream, most, 4, "places of join rows")?;
    args.offsets = offsets;
    args.entry = entries;
    args.slot_of_row = slots.ptr();
    args.place_of_row = places.ptr();
    // SAFETY: the caller vouches for the addresses; the scratch has a word a row, and the pool reuses it only
    // behind these launches.
    unsafe {
        clear(runtime, stream, rows)?;
        fill(runtime, stream, offsets, 0, table.slots * 4)?;
        over_rows(runtime, stream, "count_slots", rows.words.len(), &args)?;
        exclusive_sum(
            runtime,
            stream,
            offsets,
            offsets,
            RowCount::Known(table.slots),
            false,
        )?;
        over_rows(runtime, stream, "scatter_entries", rows.words.len(), &args)
    }
}

/// As [`build_ranges`] where the one key word is the slot: row i belongs to slot `word[i]` of `domain`, or to none
/// when `word[i] >= domain`. Without `entries` rows are in the order of their words, and offsets are all there is to find.
///
/// # Errors
/// As [`build_ranges`]; 4 bytes a row of scratch for entries.
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
    entries: Option<DevicePtr>,
) -> Result<()> {
    check_numbered("a join index with keys", domain)?;
    check_numbered("a join index with rows", rows.most())?;
    let places = places(runtime, stream, rows, entries)?;
    let mut args = blank(rows);
    args.words[0] = word;
    args.mask = domain;
    args.offsets = offsets;
    if let (Some(entries), Some(places)) = (entries, &places) {
        args.entry = entries;
        args.place_of_row = places.ptr();
    }
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
        match entries {
            Some(_) => over_rows(runtime, stream, "scatter_dense", 1, &args),
            None => Ok(()),
        }
    }
}

/// Scratch for the place of each row among those of its key, where there are entries to write.
fn places(
    runtime: &Runtime,
    stream: &Stream,
    rows: RowCount,
    entries: Option<DevicePtr>,
) -> Result<Option<DeviceBuffer>> {
    let places = |_| scratch(runtime, stream, rows.most(), 4, "places of join rows");
    entries.map(places).transpose()
}

/// As [`build_dense_ranges`] where few of the possible keys occur: `ranks` (`u64*`, [`rank_words`] of them) numbers those
/// that do, and `offsets` goes by that number. See `ranked_find` of `join.cuh`.
///
/// # Errors
/// As [`build_ranges`]; 4 bytes a row and a word of ranks of scratch.
///
/// # Safety
/// `word` has `rows.most()` words, `ranks` [`rank_words`] of `domain`, `offsets` one more than there can be keys, the lesser of
/// `rows.most()` and `domain`, `entries` one a row.
pub unsafe fn build_ranked_ranges(
    runtime: &Runtime,
    stream: &Stream,
    word: DevicePtr,
    rows: RowCount,
    ranked: RankedRanges,
) -> Result<()> {
    check_numbered("a join index with rows", rows.most())?;
    let words = rank_words(ranked.domain);
    let keys = rows.most().min(ranked.domain);
    let places = places(runtime, stream, rows, ranked.entries)?;
    let counts = scratch(runtime, stream, words + 1, 4, "keys of words of ranks")?;
    let mut args = blank(rows);
    args.words[0] = word;
    args.mask = ranked.domain;
    args.keys = ranked.ranks;
    args.offsets = ranked.offsets;
    if let (Some(entries), Some(places)) = (ranked.entries, &places) {
        args.entry = entries;
        args.place_of_row = places.ptr();
    }
    args.slot_of_row = counts.ptr();
    let over_words = HashIndexArgs {
        count: DevicePtr::NULL,
        most: words,
        ..args
    };
    // SAFETY: as in `build_ranges`.
    unsafe {
        fill(runtime, stream, ranked.ranks, 0, words * 8)?;
        fill(runtime, stream, ranked.offsets, 0, keys * 4)?;
        over_rows(runtime, stream, "mark_ranks", 1, &args)?;
        over_rows(runtime, stream, "count_ranks", 1, &over_words)?;
        let all = RowCount::Known(words);
        exclusive_sum(runtime, stream, counts.ptr(), counts.ptr(), all, false)?;
        over_rows(runtime, stream, "complete_ranks", 1, &over_words)?;
        over_rows(runtime, stream, "count_ranked", 1, &args)?;
        let all = RowCount::Known(keys);
        exclusive_sum(runtime, stream, ranked.offsets, ranked.offsets, all, false)?;
        match ranked.entries {
            Some(_) => over_rows(runtime, stream, "scatter_ranked", 1, &args),
            None => Ok(()),
        }
    }
}

/// The words of keys (`u64*`, one a row each), the major one first, and how many of the lowest bits of each count.
#[derive(Debug, Clone, Copy)]
pub struct WordKeys<'a> {
    /// Where they are.
    pub words: &'a [DevicePtr],
    /// By word.
    pub bits: &'a [u32],
}

/// A sorted index: `entries` (`u32*`) becomes the rows in the order of their keys, `sorted[w]` (`u64*`) word w of each row's key
/// in that order, all bits of it. See `sorted_find` of `join.cuh`. A row without a key must have more in the bits that count
/// than any key.
///
/// A sort, and a gathering of each word.
///
/// # Errors
/// As [`sort_rows`].
///
/// # Safety
/// Words, sorted words and entries have `rows.most()` elements, and there are as many sorted words as words.
pub unsafe fn build_sorted(
    runtime: &Runtime,
    stream: &Stream,
    keys: WordKeys<'_>,
    rows: RowCount,
    (sorted, entries): (&[DevicePtr], DevicePtr),
) -> Result<()> {
    // SAFETY: passed on to the caller; every entry is the number of a row.
    unsafe {
        sort_rows(runtime, stream, keys.words, keys.bits, rows, entries)?;
        for (word, to) in keys.words.iter().zip(sorted) {
            gather(runtime, stream, *word, entries, *to, 8, rows)?;
        }
    }
    Ok(())
}

/// What [`build_ranked_ranges`] fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankedRanges {
    /// Number of possible keys.
    pub domain: u64,
    /// `u64*`, [`rank_words`] of the domain.
    pub ranks: DevicePtr,
    /// `u32*`: where the entries of each key begin, by its number.
    pub offsets: DevicePtr,
    /// `u32*`: the rows, key after key; `None` where they are in the order of their words.
    pub entries: Option<DevicePtr>,
}

/// Words of ranks for so many possible keys.
pub fn rank_words(domain: u64) -> u64 {
    domain.div_ceil(32)
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

fn arguments(of: &KeyedRows<'_>) -> Result<HashIndexArgs> {
    let KeyedRows {
        words,
        rows,
        table,
        overflow,
    } = *of;
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
unsafe fn clear(runtime: &Runtime, stream: &Stream, rows: &KeyedRows<'_>) -> Result<()> {
    let table = rows.table;
    // SAFETY: the caller vouches for the table.
    unsafe {
        if rows.words.len() == 1 {
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
    let config = one_each(runtime, args.most);
    // SAFETY: passed on to the caller.
    unsafe { launch(runtime, stream, &kernel, config, args) }
}
