// What generated kernels of joins, DISTINCT sets and materialisation call: bitmaps, look-ups in
// finished indexes, pairs of a many-to-many join, and places in an output that grows.
//
// An index is finished by an earlier kernel before any of these look-ups read it, so they use plain loads.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "open_addressing.cuh"
#include "pipeline.cuh"

// In place of an entry of an index: the row has none.
static const u32 WL_NO_ENTRY = 0xFFFFFFFFu;

// ---- bitmaps ----------------------------------------------------------------------------------------

// Bit `i` of a bitmap that nobody writes during this kernel.
WL_DEVICE bool wl_bit(const u32* bits, u64 i) { return ((bits[i >> 5] >> (i & 31)) & 1u) != 0; }

// Sets bit `i` and returns whether it was set before. Setting a bit again costs a load and no atomic:
// marks of a skewed key would otherwise queue at one word.
WL_DEVICE bool wl_set_bit(u32* bits, u64 i) {
  const u32 bit = 1u << (i & 31);
  u32* word = bits + (i >> 5);
  if ((load_relaxed(word) & bit) != 0) return true;
  return (atomicOr(word, bit) & bit) != 0;
}

// Bits that one thread sets one after the other, with one atomic for a run of bits in the same word: rows of a table
// stored in the order of a key have several. Begin with `BitRun run = {}`; call bit_run_flush at the end.
struct BitRun {
  u64 word;
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
WL_DEVICE void bit_run_set(BitRun& run, u32* bits, u64 i) {
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

// ---- places in an output that grows -------------------------------------------------------------------

// Shared memory of block_reserve.
struct ReserveScratch {
  BlockScratch<u32> scan;
  u64 base;
};

// Reserves `mine` places (the block's sum below 2^32) at the end of an output of `*counter` rows and returns
// the thread's first: one atomic a block. Places follow the order of the threads. Every thread of the
// block calls it; the scratch serves the next call at once.
WL_DEVICE u64 block_reserve(u32 mine, u64* counter, ReserveScratch& scratch) {
  u32 total;
  const u32 before = block_scan_exclusive_sum(mine, scratch.scan, total);
  if (threadIdx.x == 0) scratch.base = total == 0 ? 0 : atomicAdd(counter, (u64)total);
  __syncthreads();
  // The next call writes `base` behind the barriers of its scan.
  return scratch.base + before;
}

// Reserves a place for each set bit of `live`, the rows of this thread, and returns where the warp's places begin:
// row k goes to the answer + place[k]. Places of row k of neighbouring lanes are neighbours, so that the stores of
// a warp fill whole sectors however many rows a thread has. Called and scratch used as block_reserve.
template <u32 ROWS>
WL_DEVICE u64 block_reserve_rows(u32 live, u64* counter, ReserveScratch& scratch, u32 (&place)[ROWS]) {
  const u32 lower = (1u << lane_id()) - 1u;
  u32 rows = 0;
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) {
    const u32 votes = __ballot_sync(WL_FULL_MASK, (live >> k & 1u) != 0);
    place[k] = rows + (u32)__popc(votes & lower);
    rows += (u32)__popc(votes);
  }
  // Lane 0 reserves for its warp.
  const u64 first = block_reserve(lane_id() == 0 ? rows : 0, counter, scratch);
  return __shfl_sync(WL_FULL_MASK, first, 0);
}

// The same as block_reserve for a warp whose 32 lanes call together.
WL_DEVICE u64 warp_reserve(u32 mine, u64* counter) {
  const u32 before = warp_scan_exclusive_sum(mine);
  u64 base = 0;
  if (lane_id() == WL_WARP - 1 && before + mine != 0) base = atomicAdd(counter, (u64)(before + mine));
  return __shfl_sync(WL_FULL_MASK, base, WL_WARP - 1) + before;
}
