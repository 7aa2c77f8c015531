// Group-bys over rows that were written down: numbers of groups by a hash table, groups of sorted runs, and tables
// of a partition's groups in shared memory.
//
// Packed keys are unsigned numbers of 4, 8 or 16 bytes with at least one bit to spare, so that a key plus one is
// never 0.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "radix.cuh"

static const u32 WL_NO_NUMBER = 0xFFFFFFFFu;

// A hash table that numbers keys.
template <class Key>
struct NumberTable {
  // Of each slot: 0 free, 1 being written, 2 readable; all 0 at first.
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

// The number of a key: 0, 1, 2 ... in the order of arrival; WL_NO_NUMBER after `limit` probes: the table is too full.
// A row whose key is known reads the state, the key and the number of a slot.
template <class Key>
WL_DEVICE u32 number_key(const NumberTable<Key>& table, Key key, u32 limit) {
  // Rows of a partition have hashes alike in their low bits: a product spreads what is left over all.
  u64 slot = (radix_hash(key) * 0x9e3779b97f4a7c15ull >> 20) & table.mask;
  WL_NO_UNROLL
  for (u32 probe = 0; probe < limit; ++probe) {
    u32 state = load_acquire(table.states + slot);
    if (state == 0) {
      state = atomicCAS(table.states + slot, 0u, 1u);
      if (state == 0) {
        const u64 number = atomicAdd(table.count, (u64)1);
        table.keys[slot] = key;
        table.numbers[slot] = (u32)number;
        if (number < table.room) table.dense[number] = key;
        store_release(table.states + slot, 2u);
        return (u32)number;
      }
    }
    while (state != 2) {
      spin_pause(20);
      state = load_acquire(table.states + slot);
    }
    if (table.keys[slot] == key) return table.numbers[slot];
    slot = (slot + 1) & table.mask;
  }
  return WL_NO_NUMBER;
}

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

// The slot of a key in a block's table of `slots` slots (a power of two), inserted when absent; WL_NO_NUMBER when the
// table is full. Slots hold keys plus one, 0 when free. `used`: hash bits by which the block's rows are alike.
WL_DEVICE u32 block_slot(u32* table, u32 slots, u32 key, u32 used) {
  const u32 mine = key + 1;
  u32 slot = (u32)(radix_hash(key) >> used) & (slots - 1);
  for (u32 probe = 0; probe < slots; ++probe) {
    u32 seen = *(volatile u32*)(table + slot);
    if (seen == 0) seen = atomicCAS(table + slot, 0u, mine);
    if (seen == 0 || seen == mine) return slot;
    slot = (slot + 1) & (slots - 1);
  }
  return WL_NO_NUMBER;
}
WL_DEVICE u32 block_slot(u64* table, u32 slots, u64 key, u32 used) {
  const u64 mine = key + 1;
  u32 slot = (u32)(radix_hash(key) >> used) & (slots - 1);
  for (u32 probe = 0; probe < slots; ++probe) {
    u64 seen = *(volatile u64*)(table + slot);
    if (seen == 0) seen = atomicCAS(table + slot, (u64)0, mine);
    if (seen == 0 || seen == mine) return slot;
    slot = (slot + 1) & (slots - 1);
  }
  return WL_NO_NUMBER;
}
// Keys of 16 bytes are claimed by their high word, which is below 2^63, and published with their low one: a slot's
// high word is 0 when free, 2^63 while it is written, else the key's plus one.
WL_DEVICE u32 block_slot(u128* table, u32 slots, u128 key, u32 used) {
  const u64 busy = 1ull << 63;
  const u64 low = (u64)key, high = (u64)(key >> 64) + 1;
  u32 slot = (u32)(radix_hash(key) >> used) & (slots - 1);
  for (u32 probe = 0; probe < slots; ++probe) {
    u64* const words = (u64*)(table + slot);
    u64 seen = load_acquire(words + 1);
    if (seen == 0) {
      seen = atomicCAS(words + 1, (u64)0, busy);
      if (seen == 0) {
        words[0] = low;
        store_release(words + 1, high);
        return slot;
      }
    }
    while (seen == busy) {
      spin_pause(20);
      seen = load_acquire(words + 1);
    }
    if (seen == high && words[0] == low) return slot;
    slot = (slot + 1) & (slots - 1);
  }
  return WL_NO_NUMBER;
}

// The slot of a key (plus one) in a block's table of `slots` slots (a power of two) in front of a larger one; WL_NO_NUMBER
// when the few places where it could be are taken: first come, first served, so that frequent keys have one.
template <class T>
WL_DEVICE u32 front_slot(T* table, u32 slots, T mine) {
  const u32 first = (u32)(radix_hash(mine) >> 4);
  WL_UNROLL
  for (u32 probe = 0; probe < 4; ++probe) {
    // Neighbours, in whatever order; a table may have fewer slots than probes.
    const u32 slot = (first ^ probe) & (slots - 1);
    T seen = *(volatile T*)(table + slot);
    if (seen == 0) seen = atomicCAS(table + slot, (T)0, mine);
    if (seen == 0 || seen == mine) return slot;
  }
  return WL_NO_NUMBER;
}

// The key of an occupied slot of such a table.
WL_DEVICE u32 block_key(const u32* table, u32 slot) { return table[slot] - 1; }
WL_DEVICE u64 block_key(const u64* table, u32 slot) { return table[slot] - 1; }
WL_DEVICE u128 block_key(const u128* table, u32 slot) { return table[slot] - ((u128)1 << 64); }
