// Group-bys over rows that were written down: numbers of groups by a hash table, groups of sorted runs, and tables
// of a partition's groups in shared memory.
//
// Packed keys are unsigned numbers of 4, 8 or 16 bytes with at least one bit to spare, so that a key plus one is
// never 0.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "open_addressing.cuh"
#include "pipeline.cuh"
#include "radix.cuh"
#include "reserve.cuh"

static const u32 WL_NO_NUMBER = 0xFFFFFFFFu;

// A hash table that numbers keys.
template <class Key>
struct NumberTable {
  // Of each slot, all 0 at first.
  u32* states;
  Key* keys;
  u32* numbers;
  // Slots less one.
  u64 mask;
  // Numbers given away.
  u64* count;
  // The key of each number, as far as there is room for `room` of them.
  Key* dense;
  u64 room;
};

// A key of a NumberTable; a new one gets the next number, and the state of that number, STRIDE bytes, is cleared.
template <u32 STRIDE, class Key>
struct NumberedKey {
  const NumberTable<Key>& table;
  Key key;
  u8* states;
  u32& number;
  WL_METHOD SlotState visit(u64 slot, bool& inserted) const {
    return claim_and_publish<DeviceLoad>(
        table.states + slot, SLOT_BUSY, SLOT_READY, inserted,
        [&]() {
          const u64 next = atomicAdd(table.count, (u64)1);
          number = (u32)next;
          table.keys[slot] = key;
          table.numbers[slot] = number;
          if (next >= table.room) return;
          table.dense[next] = key;
          u32* const state = (u32*)(states + next * STRIDE);
          for (u32 word = 0; word < STRIDE / 4; ++word) store_relaxed(state + word, 0u);
        },
        [&](u32) {
          if (table.keys[slot] != key) return false;
          number = table.numbers[slot];
          return true;
        });
  }
};

// The number of a key: 0, 1, 2 ... in the order of arrival; WL_NO_NUMBER after `limit` probes: the table is too full.
// A row whose key is known reads the state, the key and the number of a slot. With STRIDE, `states` has so many bytes a number.
template <u32 STRIDE, class Key>
WL_DEVICE u32 number_key(const NumberTable<Key>& table, Key key, u32 limit, u8* states) {
  u32 number = WL_NO_NUMBER;
  // Rows of a partition have hashes alike in their low bits: a product spreads what is left over all.
  const u64 hash = radix_hash(key) * 0x9e3779b97f4a7c15ull >> 20;
  probe_slots<1>(linear_order(hash, table.mask), NumberedKey<STRIDE, Key>{table, key, states, number}, limit - 1, WL_NO_SLOT);
  return number;
}

// The state of a key's group in device memory, where each number has STRIDE bytes, a multiple of 4, which are cleared when
// somebody asks for the first time; null when there is none for it:
// `*overflow` is set where the table is too full, and the host sees from their number that there are more groups than states.
// A function of its own: few rows come here, from many places of an unrolled kernel.
template <u32 STRIDE, class Key>
WL_OUTLINED u8* numbered_state(NumberTable<Key> table, Key key, u32 limit, u8* states, u64* overflow) {
  const u32 number = number_key<STRIDE, Key>(table, key, limit, states);
  if (number == WL_NO_NUMBER) {
    store_relaxed(overflow, (u64)1);
    return 0;
  }
  return number < table.room ? states + (u64)number * STRIDE : (u8*)0;
}

// ---- runs of sorted keys ----------------------------------------------------------------------------------

// Which run holds `row`: the last of `runs` starts that is not above it. starts[0] is 0.
WL_DEVICE u32 run_of(const u32* starts, u64 runs, u64 row) {
  u64 low = 0, high = runs;
  while (high - low > 1) {
    const u64 middle = low + (high - low) / 2;
    if (__ldg(starts + middle) <= row) low = middle;
    else high = middle;
  }
  return (u32)low;
}

// The numbers of the runs that a thread's live rows belong to, from `row` on; equal keys follow each other.
template <class Key, int ROWS>
WL_DEVICE void run_numbers(const u32* starts, u64 runs, const Key* keys, u64 row, u32 live, u32 (&number)[ROWS]) {
  if (live == 0) return;
  Key key[ROWS];
  load_vec_stream<Key, ROWS>(keys + row, key);
  u32 run = run_of(starts, runs, row);
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) {
    if (k > 0 && (live >> k & 1) != 0 && key[k] != key[k - (k > 0)]) ++run;
    number[k] = run;
  }
}

// Are the runs that the lanes of a warp have open all of one group? `leader` is the first lane with one. A key with
// millions of rows would have them queue at its state: a warp adds to it once. All 32 lanes call.
WL_DEVICE bool warp_is_one_run(bool open, u64 run, u32& leader) {
  const u32 opened = __ballot_sync(WL_FULL_MASK, open);
  leader = opened != 0 ? (u32)__ffs((int)opened) - 1 : 0u;
  const u64 first = __shfl_sync(WL_FULL_MASK, run, (int)leader);
  return opened != 0 && __ballot_sync(WL_FULL_MASK, open && run == first) == opened;
}

// ---- rows in the order of their key, a tile a block ----------------------------------------------------------

// What the warps of a block tell each other of the rows of a tile.
template <class Key>
struct RunScratch {
  // Of each warp the keys of its first and its last live row, and its runs; none: no live row.
  Key first[WL_BLOCK_THREADS / WL_WARP], last[WL_BLOCK_THREADS / WL_WARP];
  u32 runs[WL_BLOCK_THREADS / WL_WARP];
  // The number among all groups of the tile's second run.
  u64 base;
};

// Numbers the runs of equal keys among the live rows of a tile, whose rows lie in the order of the threads: number[k] is
// that of the thread's row k, if that is live. Returns how many there are; keys[n] is the key of run n, of the first WINDOW runs. Runs
// within the tile, all but the first and the last one, get numbers of their own from *count on, unless `count` is null. Every
// thread of the block comes, with live rows or without; what it returns may be used at once, scratch.base behind the next
// barrier. Calls are a barrier apart, and another one from where `keys` are read.
template <u32 WINDOW, class Key, int ROWS>
WL_DEVICE u32 block_number_runs(const Key (&key)[ROWS], u32 live, RunScratch<Key>& scratch, Key* keys, u64* count,
                                u32 (&number)[ROWS]) {
  const u32 warps = WL_BLOCK_THREADS / WL_WARP;
  // A bit for each row that begins a run, as far as the thread can tell.
  u32 begins = 0;
  Key first = 0, last = 0;
  if (live == (1u << ROWS) - 1u) {
    // Nearly always, where nothing has been filtered.
    begins = 1;
    WL_UNROLL
    for (u32 k = 1; k < ROWS; ++k) begins |= (u32)(key[k] != key[k - 1]) << k;
    first = key[0];
    last = key[ROWS - 1];
  } else {
    WL_UNROLL
    for (u32 k = 0; k < ROWS; ++k) {
      const bool alive = (live >> k & 1) != 0;
      if (begins == 0) first = key[k];
      begins |= (u32)(alive && (begins == 0 || key[k] != last)) << k;
      if (alive) last = key[k];
    }
  }
  // A thread's first run may be the last one of the live rows before it.
  const u32 votes = __ballot_sync(WL_FULL_MASK, live != 0);
  const u32 before = votes & ((1u << lane_id()) - 1u);
  const Key previous = __shfl_sync(WL_FULL_MASK, last, before != 0 ? 31 - __clz((int)before) : 0);
  const bool joined = live != 0 && before != 0 && previous == first;
  const u32 begun = (u32)__popc(begins) - (joined ? 1u : 0u);
  const u32 earlier = warp_scan_exclusive_sum(begun);
  const u32 in_warp = __shfl_sync(WL_FULL_MASK, earlier + begun, WL_WARP - 1);
  const Key warp_first = __shfl_sync(WL_FULL_MASK, first, votes != 0 ? __ffs((int)votes) - 1 : 0);
  const Key warp_last = __shfl_sync(WL_FULL_MASK, last, votes != 0 ? 31 - __clz((int)votes) : 0);
  if (lane_id() == 0) {
    scratch.first[warp_id()] = warp_first;
    scratch.last[warp_id()] = warp_last;
    scratch.runs[warp_id()] = in_warp;
  }
  __syncthreads();
  // The same for warps, a lane each.
  const u32 warp = lane_id() < warps ? lane_id() : 0;
  const u32 of_warp = lane_id() < warps ? scratch.runs[warp] : 0;
  const u32 occupied = __ballot_sync(WL_FULL_MASK, of_warp != 0);
  const u32 earlier_warps = occupied & ((1u << lane_id()) - 1u);
  const Key end = scratch.last[earlier_warps != 0 ? 31 - __clz((int)earlier_warps) : 0];
  const bool warp_joins = of_warp != 0 && earlier_warps != 0 && scratch.first[warp] == end;
  const u32 of_own = of_warp - (warp_joins ? 1u : 0u);
  const u32 up_to = warp_scan_exclusive_sum(of_own);
  const u32 runs = __shfl_sync(WL_FULL_MASK, up_to + of_own, WL_WARP - 1);
  const bool warp_joined = (__ballot_sync(WL_FULL_MASK, warp_joins) >> warp_id() & 1u) != 0;
  const u32 start = __shfl_sync(WL_FULL_MASK, up_to, (int)warp_id()) - (warp_joined ? 1u : 0u);
  // One less than the number of the thread's first run.
  u32 n = start + earlier - (joined ? 1u : 0u) - 1u;
  // The first row that begins a run may go on with one that began before.
  const bool goes_on = joined || (before == 0 && warp_joined);
  const u32 fresh = goes_on ? begins & (begins - 1u) : begins;
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) {
    n += begins >> k & 1u;
    if ((fresh >> k & 1u) != 0 && (WINDOW >= WL_BLOCK_THREADS * ROWS || n < WINDOW)) keys[n] = key[k];
    number[k] = n;
  }
  if (threadIdx.x == 0) {
    const u32 inner = runs > 2 ? (runs - 1 < WINDOW ? runs - 1 : WINDOW) - 1 : 0u;
    scratch.base = inner == 0 || count == 0 ? 0 : atomicAdd(count, (u64)inner);
  }
  return runs;
}

// ---- a block's tables in shared memory ------------------------------------------------------------------

// Clears WORDS words; the caller meets the block afterwards.
template <u32 WORDS, class T>
WL_DEVICE void block_zero(T* words) {
  for (u32 i = threadIdx.x; i < WORDS; i += WL_BLOCK_THREADS) words[i] = 0;
}

// The slot of a key in a block's table of `slots` slots (a power of two), inserted when absent; WL_NO_NUMBER when the
// table is full. Slots hold keys plus one, 0 when free. `used`: hash bits by which the block's rows are alike.
template <class Key>
WL_DEVICE u32 block_slot(Key* table, u32 slots, Key key, u32 used) {
  const WordTable<BlockLoad, Key> words = {table, 0, (Key)(key + 1)};
  return probe_slots<4>(scattered_order((u32)(radix_hash(key) >> used), slots - 1), words, slots - 1, WL_NO_NUMBER);
}
WL_DEVICE u32 block_slot(u128* table, u32 slots, u128 key, u32 used) {
  const TwoWordTable words = {table, (u64)key, (u64)(key >> 64) + 1};
  return probe_slots<1>(scattered_order((u32)(radix_hash(key) >> used), slots - 1), words, slots - 1, WL_NO_NUMBER);
}

// The slot of a key (plus one) in a block's table of `slots` slots (a power of two) in front of a larger one; WL_NO_NUMBER
// when the few places where it could be are taken: first come, first served, so that frequent keys have one. A table may
// have fewer slots than probes.
template <class T>
WL_DEVICE u32 front_slot(T* table, u32 slots, T mine) {
  const WordTable<BlockLoad, T> words = {table, 0, mine};
  return probe_slots<4>(neighbour_order((u32)(radix_hash(mine) >> 4), slots - 1), words, 3u, WL_NO_NUMBER);
}

// The key of an occupied slot of such a table.
WL_DEVICE u32 block_key(const u32* table, u32 slot) { return table[slot] - 1; }
WL_DEVICE u64 block_key(const u64* table, u32 slot) { return table[slot] - 1; }
WL_DEVICE u128 block_key(const u128* table, u32 slot) { return table[slot] - ((u128)1 << 64); }

// Numbers for the groups of a block's table of SLOTS slots, behind those of other blocks: `write(slot, number)` for each.
// Every thread of the block calls it.
template <u32 SLOTS, class Key, class Write>
WL_DEVICE void block_number_groups(const Key* table, u64* count, ReserveScratch& scratch, const Write& write) {
  // A share of the slots a warp.
  const u32 share = SLOTS / (WL_BLOCK_THREADS / WL_WARP), start = warp_id() * share + lane_id();
  u32 held = 0;
  for (u32 s = 0; s < share; s += WL_WARP) held += (u32)__popc(__ballot_sync(WL_FULL_MASK, table[start + s] != 0));
  u64 place = block_reserve_warps(held, count, scratch);
  for (u32 s = 0; s < share; s += WL_WARP) {
    const u32 slot = start + s;
    const u32 votes = __ballot_sync(WL_FULL_MASK, table[slot] != 0);
    const u64 number = place + (u32)__popc(votes & ((1u << lane_id()) - 1u));
    place += (u32)__popc(votes);
    if (table[slot] != 0) write(slot, number);
  }
}

// ---- partitions, a block each (PGB of Wu et al., SIGMOD 2025) ----------------------------------------------

// A piece of a partition has at least this many rows.
static const u64 WL_LEAST_PIECE = 1 << 14;
// Partitions of this many times the mean are cut.
static const u64 WL_CUT_ABOVE = 4;

// The pieces that a block takes, one after the other. Partitions of at most `most` rows are tasks of their own (`whole`):
// no other block has their groups. Larger ones are cut where windows of `most` rows end, each window a task.
struct PartitionPieces {
  const u32* offsets;
  u64 partitions, total, most;
  // The task at hand, its next partition, the end of its partitions, and its rows.
  u64 task, part, last, low, high;
  // The piece at hand: rows begin .. end - 1.
  u64 begin, end;
  bool whole;

  // Goes on to the next piece, if there is one. All threads of a block call it.
  WL_METHOD bool next() {
    while (true) {
      while (part < last) {
        const u64 from = offsets[part], to = offsets[part + 1];
        ++part;
        if (from >= high) break;
        if (whole != (to - from <= most)) continue;
        begin = max_u64(from, low);
        end = min_u64(to, high);
        if (begin < end) return true;
      }
      task += gridDim.x;
      if (task >= partitions + (total + most - 1) / most) return false;
      whole = task < partitions;
      low = whole ? 0 : (task - partitions) * most;
      high = whole ? total : min_u64(total, low + most);
      part = whole ? task : (u64)run_of(offsets, partitions, low);
      last = whole ? task + 1 : partitions;
    }
  }
};

// Before the first piece of `total` rows in so many partitions: `offsets` has the first row of each, and `total`.
WL_DEVICE PartitionPieces partition_pieces(const u32* offsets, u64 partitions, u64 total) {
  PartitionPieces pieces = {};
  pieces.offsets = offsets;
  pieces.partitions = partitions;
  pieces.total = total;
  pieces.most = max_u64(WL_LEAST_PIECE, WL_CUT_ABOVE * (total / partitions + 1));
  pieces.task = (u64)blockIdx.x - gridDim.x;
  return pieces;
}
