// Group-bys over rows that were written down: numbers of groups by a hash table, groups of sorted runs, and tables
// of a partition's groups in shared memory.
//
// Packed keys are unsigned numbers of 4, 8 or 16 bytes with at least one bit to spare, so that a key plus one is
// never 0.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "open_addressing.cuh"
#include "radix.cuh"

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

// A key of a NumberTable; a new one gets the next number.
template <class Key>
struct NumberedKey {
  const NumberTable<Key>& table;
  Key key;
  u32& number;
  WL_METHOD SlotState visit(u64 slot, bool& inserted) const {
    return claim_and_publish(
        table.states + slot, SLOT_BUSY, SLOT_READY, inserted,
        [&]() {
          const u64 next = atomicAdd(table.count, (u64)1);
          number = (u32)next;
          table.keys[slot] = key;
          table.numbers[slot] = number;
          if (next < table.room) table.dense[next] = key;
        },
        [&](u32) {
          if (table.keys[slot] != key) return false;
          number = table.numbers[slot];
          return true;
        });
  }
};

// The number of a key: 0, 1, 2 ... in the order of arrival; WL_NO_NUMBER after `limit` probes: the table is too full.
// A row whose key is known reads the state, the key and the number of a slot.
template <class Key>
WL_DEVICE u32 number_key(const NumberTable<Key>& table, Key key, u32 limit) {
  u32 number = WL_NO_NUMBER;
  // Rows of a partition have hashes alike in their low bits: a product spreads what is left over all.
  const u64 hash = radix_hash(key) * 0x9e3779b97f4a7c15ull >> 20;
  probe_slots<1>(linear_order(hash, table.mask), NumberedKey<Key>{table, key, number}, limit - 1, WL_NO_SLOT);
  return number;
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
template <class Key>
WL_DEVICE u32 block_slot(Key* table, u32 slots, Key key, u32 used) {
  const WordTable<BlockLoad, Key> words = {table, 0, (Key)(key + 1)};
  return probe_slots<4>(linear_order((u32)(radix_hash(key) >> used), slots - 1), words, slots - 1, WL_NO_NUMBER);
}
WL_DEVICE u32 block_slot(u128* table, u32 slots, u128 key, u32 used) {
  const TwoWordTable words = {table, (u64)key, (u64)(key >> 64) + 1};
  return probe_slots<1>(linear_order((u32)(radix_hash(key) >> used), slots - 1), words, slots - 1, WL_NO_NUMBER);
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
