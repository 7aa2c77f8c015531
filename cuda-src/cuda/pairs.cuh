// What the joins of partitioned and of sorted sides share: keys of 4, 8 or 16 bytes, and writing lists of pairs.
//
// A pair is a build row and a probe row, each by number, in two arrays. What a join writes is told by `kind`:
// rows with a match, rows without (their build row is WL_NO_ENTRY), and whether a row comes once for each of its
// matches with that build row, or once with WL_NO_ENTRY.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "join.cuh"

static const u32 PAIR_MATCHED = 1;
static const u32 PAIR_UNMATCHED = 2;
static const u32 PAIR_ENTRIES = 4;

// A key of 16 bytes, least significant half first.
struct alignas(16) WideKey {
  u64 low, high;
};

#if PAIR_KEY_BYTES == 4
typedef u32 PairKey;
#elif PAIR_KEY_BYTES == 8
typedef u64 PairKey;
#else
typedef WideKey PairKey;
#endif

template <class Key>
WL_DEVICE bool key_equal(Key a, Key b) {
  return a == b;
}
WL_DEVICE bool key_equal(WideKey a, WideKey b) { return a.low == b.low && a.high == b.high; }

// Is it all ones? A build row with that has no key: it matches nothing.
template <class Key>
WL_DEVICE bool key_none(Key a) {
  return a == (Key)~(Key)0;
}
WL_DEVICE bool key_none(WideKey a) { return (a.low & a.high) == ~0ull; }

template <class Key>
WL_DEVICE bool key_less(Key a, Key b) {
  return a < b;
}
WL_DEVICE bool key_less(WideKey a, WideKey b) { return a.high < b.high || (a.high == b.high && a.low < b.low); }

// Where some pairs go: a place in the list, and how many fit from there on.
struct PairSpan {
  u32* entries;
  u32* rows;
  u32 room;
};

WL_DEVICE PairSpan pair_span(u32* entries, u32* rows, u64 capacity, u64 first) {
  const u64 room = first < capacity ? capacity - first : 0;
  return {entries + first, rows + first, room < 0xFFFFFFFFu ? (u32)room : 0xFFFFFFFFu};
}

// One pair; where there is no room nothing.
WL_DEVICE void write_pair(const PairSpan& out, u32 at, u32 entry, u32 row) {
  if (at < out.room) {
    out.entries[at] = entry;
    out.rows[at] = row;
  }
}

// Number of a place of a side: as `numbers` has it, the place itself without.
WL_DEVICE u32 number_of(const u32* numbers, u32 place) { return numbers == 0 ? place : numbers[place]; }

// The lane that item `j` of a warp belongs to: the last whose `before`, an exclusive sum over the lanes, is at most j.
// All 32 lanes call; `before` of lane 0 is 0.
WL_DEVICE u32 lane_of_item(u32 before, u32 j) {
  u32 lane = 0;
  WL_UNROLL
  for (u32 step = WL_WARP / 2; step > 0; step /= 2) {
    const u32 at = __shfl_sync(WL_FULL_MASK, before, (int)(lane + step));
    if (at <= j) lane += step;
  }
  return lane;
}
