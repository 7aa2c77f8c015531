// What generated kernels of joins, DISTINCT sets and materialisation call: bitmaps, look-ups in
// finished indexes, and pairs of a many-to-many join.
//
// An index is finished by an earlier kernel before any of these look-ups read it, so they use plain loads.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "open_addressing.cuh"
#include "pipeline.cuh"
#include "reserve.cuh"

// In place of an entry of an index: the row has none.
static const u32 WL_NO_ENTRY = 0xFFFFFFFFu;

// ---- bitmaps ----------------------------------------------------------------------------------------

// The number of key `code` among those that occur, or WL_NO_SLOT when it does not. Word i of `ranks` holds one bit for
// each of the keys [32 i, 32 i + 32) in its low half, and in its high half how many keys occur before them: one access says
// whether there is a key, and where its entries are.
WL_DEVICE u64 ranked_find(const u64* ranks, u64 code) {
  const u64 word = ranks[code >> 5];
  const u32 present = (u32)word, bit = 1u << (u32)(code & 31);
  return (present & bit) != 0 ? (word >> 32) + (u64)__popc(present & (bit - 1)) : WL_NO_SLOT;
}

// Looks a key up as ranked_find does, for places of 32 bits. `number` is the key's where there is one. Nothing is read unless the
// key is `possible`.
WL_DEVICE bool ranked_look_up(const u64* ranks, u32 code, bool possible, u32& number) {
  u64 word = 0;
  if (possible) word = ranks[code >> 5];
  const u32 present = (u32)word;
  number = (u32)(word >> 32) + (u32)__popc(present & ((1u << (code & 31)) - 1u));
  return (present >> (code & 31) & 1u) != 0;
}

// Bit `i` of a bitmap that nobody writes during this kernel.
WL_DEVICE bool wl_bit(const u32* bits, u64 i) { return ((bits[i >> 5] >> (i & 31)) & 1u) != 0; }

// 1 where bit `i` of a bitmap that nobody writes during this kernel is set, else 0; nothing is read unless it is `possible`. A
// look-up takes 10 instructions; one by wl_bit behind a condition takes 20.
WL_DEVICE u32 look_up_bit(const u32* bits, u32 i, bool possible) {
  u32 word = 0;
  if (possible) word = bits[i >> 5];
  return word >> (i & 31) & 1u;
}

// Sets bit `i` and returns whether it was set before. Setting a bit again costs a load and no atomic:
// marks of a skewed key would otherwise queue at one word.
WL_DEVICE bool wl_set_bit(u32* bits, u64 i) {
  const u32 bit = 1u << (i & 31);
  u32* word = bits + (i >> 5);
  if ((load_relaxed(word) & bit) != 0) return true;
  return (atomicOr(word, bit) & bit) != 0;
}

// Marks the entries of the rows in `mask`.
template <u32 ROWS>
WL_DEVICE void mark_entries(u32* marks, u32 mask, const u32 (&entry)[ROWS]) {
  if (mask == 0) return;
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k)
    if ((mask >> k & 1) != 0) wl_set_bit(marks, entry[k]);
}

// Bits that one thread sets one after the other, with one atomic for a run of bits in the same word: rows of a table
// stored in the order of a key have several. Begin with `BitRun run = {}`; call bit_run_flush at the end.
struct BitRun {
  u32 word;
  u32 mask;
  // Has any bit been set already, by this thread or another?
  bool twice;
};
WL_DEVICE void bit_run_flush(BitRun& run, u32* bits) {
  if (run.mask == 0) return;
  // Keys that a set holds already need no atomic.
  u32 seen = load_relaxed(bits + run.word);
  if ((seen & run.mask) != run.mask) seen = atomicOr(bits + run.word, run.mask);
  run.twice = run.twice || (seen & run.mask) != 0;
  run.mask = 0;
}
WL_DEVICE void bit_run_set(BitRun& run, u32* bits, u32 i) {
  const u32 bit = 1u << (i & 31);
  if (run.word != i >> 5) {
    bit_run_flush(run, bits);
    run.word = i >> 5;
  }
  run.twice = run.twice || (run.mask & bit) != 0;
  run.mask |= bit;
}

// ---- look-ups in finished hash indexes --------------------------------------------------------------

// Slot of a key of one word in a table of `mask + 1` slots, or WL_NO_SLOT when it is absent.
// WL_EMPTY_KEY (no key) is in no table. Expected probes at half load: 1.5 for a hit, 2.5 for a miss.
WL_DEVICE u64 hash_find(const u64* keys, u64 mask, u64 key) {
  const FinishedKeys table = {keys, key};
  return probe_slots<1>(linear_order(hash64(key), mask), table, mask, WL_NO_SLOT);
}

// The same for keys of WORDS words; `states` as find_or_insert_wide leaves them, `keys` slot after slot.
template <u32 WORDS>
WL_DEVICE u64 hash_find_wide(const u64* keys, const u32* states, u64 mask, const u64 (&key)[WORDS]) {
  const FinishedWideKeys<WORDS> table = {keys, states, key};
  return probe_slots<1>(linear_order(hash_words<WORDS>(key), mask), table, mask, WL_NO_SLOT);
}

// ---- look-ups in sorted indexes ---------------------------------------------------------------------

// Of the entries from `from` to `count` the first one that is not below `key`, or with `past` the first above it. words[w] is
// word w of the entries' keys, ascending by all of them, the major word first. A step reads a word, or more where those are
// equal; the first steps of all rows meet in the caches.
template <u32 WORDS>
WL_DEVICE u32 sorted_bound(const u64* const (&words)[WORDS], u32 from, u32 count, const u64 (&key)[WORDS], bool past) {
  u32 low = from, high = count;
  while (low < high) {
    const u32 at = low + (high - low) / 2;
    bool before = past;
    for (u32 w = 0; w < WORDS; ++w) {
      const u64 there = words[w][at];
      if (there == key[w]) continue;
      before = there < key[w];
      break;
    }
    if (before) low = at + 1;
    else high = at;
  }
  return low;
}

// Places of entries that follow each other.
struct SortedRange {
  u32 first;
  u32 length;
};

// The entries from `low` to `high`, both among them, of `count` sorted ones; none where `high` is below `low`.
template <u32 WORDS>
WL_DEVICE SortedRange sorted_find(const u64* const (&words)[WORDS], u32 count, const u64 (&low)[WORDS],
                                  const u64 (&high)[WORDS]) {
  const u32 first = sorted_bound<WORDS>(words, 0, count, low, false);
  return {first, sorted_bound<WORDS>(words, first, count, high, true) - first};
}

// ---- inserting, and whether it was new --------------------------------------------------------------

// Slot of a key, inserted when absent; `inserted` says whether this call did it. As find_or_insert and
// find_or_insert_wide otherwise: `states` is unused (may be null) for one word, WL_NO_SLOT after
// `limit` probes.
template <u32 WORDS>
WL_DEVICE u64 find_or_insert_new(u64* keys, u32* states, u64 mask, const u64 (&key)[WORDS], u32 limit,
                                 bool& inserted) {
  inserted = false;
  const LinearOrder<u64> order = linear_order(hash_words<WORDS>(key), mask);
  if constexpr (WORDS == 1) {
    const WordTable<DeviceLoad, u64> table = {keys, WL_EMPTY_KEY, key[0]};
    return probe_slots<4>(order, table, limit - 1, WL_NO_SLOT, inserted);
  } else {
    const WideTable<WORDS> table = {states, keys, key};
    return probe_slots<1>(order, table, limit - 1, WL_NO_SLOT, inserted);
  }
}

// Adds a key to a set and returns whether it was new. After `limit` probes without a place `overflow`
// becomes true (it is never made false) and the answer is false.
template <u32 WORDS>
WL_DEVICE bool insert_new(u32* states, u64* keys, u64 mask, const u64 (&key)[WORDS], u32 limit, bool& overflow) {
  bool inserted;
  if (find_or_insert_new<WORDS>(keys, states, mask, key, limit, inserted) == WL_NO_SLOT) overflow = true;
  return inserted;
}

// ---- pairs of a many-to-many join ----------------------------------------------------------------

// Of the rows `low` .. `high` - 1 the one that pair `i` belongs to; pairs[low] <= i < pairs[high].
WL_DEVICE u64 pair_parent_between(const u64* pairs, u64 low, u64 high, u64 i) {
  while (high - low > 1) {
    const u64 middle = low + (high - low) / 2;
    if (pairs[middle] <= i) low = middle;
    else high = middle;
  }
  return low;
}

// The row p of `rows` with pairs[p] <= i < pairs[p + 1]. `pairs` is the exclusive sum of the rows' numbers
// of matches, `rows` + 1 words; i < pairs[rows]. Rows without pairs are never the answer.
WL_DEVICE u64 pair_parent(const u64* pairs, u64 rows, u64 i) { return pair_parent_between(pairs, 0, rows, i); }

// The same, when an earlier pair's row is known (`hint`, pairs[hint] <= i): looks at the next rows first,
// in growing steps, so that a thread that goes through consecutive pairs reads about one word a row.
WL_DEVICE u64 pair_parent_from(const u64* pairs, u64 rows, u64 i, u64 hint) {
  u64 low = hint, high = hint + 1;
  for (u64 step = 1; high < rows && pairs[high] <= i; step *= 2) {
    low = high;
    high = rows - high > step ? high + step : rows;
  }
  return pair_parent_between(pairs, low, high, i);
}

// The rows and entries of a thread's pairs that have been listed one behind the other, from `rows` and `entries` on; the mask
// of those with an entry.
template <u32 ROWS>
WL_DEVICE u32 listed_pairs(const u32* rows, const u32* entries, u32 live, u32 (&row)[ROWS], u32 (&entry)[ROWS]) {
  if (live == 0) return 0;
  load_vec_stream<u32, ROWS>(rows, row);
  load_vec_stream<u32, ROWS>(entries, entry);
  u32 found = 0;
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) found |= (u32)((live >> k & 1) && entry[k] != WL_NO_ENTRY) << k;
  return found;
}

// The same for pairs of ranges: pair i is of the row p of `rows` with sums[p] <= i < sums[p + 1], and its entry is number
// i - sums[p] of those from starts[p] on, of a list or (null) the entries themselves. `pair` is the thread's first.
template <u32 ROWS>
WL_DEVICE u32 ranged_pairs(const u64* sums, u64 rows, const u32* starts, const u32* list, u64 pair, u32 live,
                           u32 (&row)[ROWS], u32 (&entry)[ROWS]) {
  u32 found = 0;
  if (live == 0) return found;
  // The rows of a thread are the first so many of its share.
  u64 parent = pair_parent(sums, rows, pair);
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) {
    if ((live >> k & 1) == 0) continue;
    if (k > 0) parent = pair_parent_from(sums, rows, pair + k, parent);
    const u32 first = starts[parent];
    row[k] = (u32)parent;
    if (first == WL_NO_ENTRY) continue;
    const u64 at = first + (pair + k - sums[parent]);
    entry[k] = list == 0 ? (u32)at : list[at];
    found |= 1u << k;
  }
  return found;
}
