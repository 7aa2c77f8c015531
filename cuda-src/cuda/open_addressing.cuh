// Open addressing: the one engine behind the hash tables of groups, joins, DISTINCT sets and numbered keys.
//
// `probe_slots` goes from slot to slot until one settles the key or its patience ends. The rest is policy:
//
//   order  which slots a key may lie in: `slot`, the one at hand, and `next()` (LinearOrder, ScatteredOrder, NeighbourOrder);
//   table  what a slot holds: `visit(slot)` says whether the key is there, is there from now on, or could not be;
//   load   how a word is read that others may write: in device memory, in a block's shared memory, or not at all while
//          the kernel runs (DeviceLoad, BlockLoad, PlainLoad);
//   UNROLL how many probes the compiler lays out one behind the other.
//
// A table is one of three kinds. Keys that fit a word lie in the slot and claim it themselves (`claim_word`). Wider ones, and
// slots with more than a key, are claimed by a word of state, written, and published (`claim_and_publish`). Tables that an
// earlier kernel finished are only read (`FinishedKeys`, `FinishedWideKeys`).
#pragma once
#include "simt.cuh"
#include "primitives.cuh"

// A free slot of a table whose free slots are not 0; also the first word of rows without key.
static const u64 WL_EMPTY_KEY = 0xFFFFFFFFFFFFFFFFull;
static const u64 WL_NO_SLOT = 0xFFFFFFFFFFFFFFFFull;

// What a slot is to the key that visits it.
enum SlotState : u32 {
  // Another key's: the next one is visited.
  SLOT_OTHER,
  // The key's, from before or (`inserted`) from now on.
  SLOT_MINE,
  // Free, and nothing was to be inserted: the key is not in the table.
  SLOT_FREE,
};

// The slot of the key that `table` visits slots for; `none` when it is not there, or has no place in the first slot and
// `more` behind it. `inserted` becomes true when it is there from now on.
template <u32 UNROLL, class Order, class Table, class Count, class Index>
WL_DEVICE Index probe_slots(Order order, const Table& table, Count more, Index none, bool& inserted) {
  WL_UNROLL_BY(UNROLL)
  for (Count probe = 0; probe <= more; ++probe) {
    const SlotState state = table.visit(order.slot, inserted);
    if (state == SLOT_MINE) return order.slot;
    if (state == SLOT_FREE) return none;
    order.next();
  }
  return none;
}
// The same for those who do not ask.
template <u32 UNROLL, class Order, class Table, class Count, class Index>
WL_DEVICE Index probe_slots(Order order, const Table& table, Count more, Index none) {
  bool inserted = false;
  return probe_slots<UNROLL>(order, table, more, none, inserted);
}

// ---- orders ---------------------------------------------------------------------------------------------

// Slot after slot, in a table of `mask + 1` slots.
template <class Index>
struct LinearOrder {
  Index slot, mask;
  WL_METHOD void next() { slot = (slot + 1) & mask; }
};

WL_DEVICE LinearOrder<u64> linear_order(u64 hash, u64 mask) { return {hash & mask, mask}; }
WL_DEVICE LinearOrder<u32> linear_order(u32 hash, u32 mask) { return {hash & mask, mask}; }

// Slots as far apart as the key says, an odd number: all of a table whose slots are a power of two. Where a table is filled to three
// quarters, the slots that are taken do not run together, and the lanes of a warp wait less for the one that looks longest. For shared memory, where neighbours are no nearer than others.
struct ScatteredOrder {
  u32 slot, step, mask;
  WL_METHOD void next() { slot = (slot + step) & mask; }
};

WL_DEVICE ScatteredOrder scattered_order(u32 hash, u32 mask) { return {hash & mask, hash * 0x9e3779b1u >> 15 | 1u, mask}; }

// Neighbours of the first slot, in whatever order: those of a few probes lie in one sector.
struct NeighbourOrder {
  u32 first, mask, slot, probe;
  WL_METHOD void next() { slot = (first ^ ++probe) & mask; }
};

WL_DEVICE NeighbourOrder neighbour_order(u32 hash, u32 mask) { return {hash, mask, hash & mask, 0}; }

// ---- loads ----------------------------------------------------------------------------------------------

struct DeviceLoad {
  template <class T>
  static WL_METHOD T word(const T* p) {
    return load_relaxed(p);
  }
  // What was published, and to publish it.
  template <class T>
  static WL_METHOD T acquire(const T* p) {
    return load_acquire(p);
  }
  template <class T>
  static WL_METHOD void release(T* p, T v) {
    store_release(p, v);
  }
};
struct BlockLoad {
  template <class T>
  static WL_METHOD T word(const T* p) {
    return *(const volatile T*)p;
  }
  static WL_METHOD u64 acquire(const u64* p) { return load_acquire_block(p); }
  static WL_METHOD void release(u64* p, u64 v) { store_release_block(p, v); }
};
struct PlainLoad {
  template <class T>
  static WL_METHOD T word(const T* p) {
    return *p;
  }
};

// ---- slots ----------------------------------------------------------------------------------------------

// A slot whose content is one word: a look where it is taken, an atomic where it is free.
template <class Load, class T>
WL_DEVICE SlotState claim_word(T* place, T free, T key, bool& inserted) {
  T seen = Load::word(place);
  if (seen == free) {
    seen = atomicCAS(place, free, key);
    inserted = seen == free;
  }
  return seen == free || seen == key ? SLOT_MINE : SLOT_OTHER;
}

// A slot of more than a word. `state` is 0 when it is free and `busy` while the lane that claimed it writes; that lane
// publishes it as `ready` when it has, and others wait for that. `same(state)` compares what was published.
template <class Load, class Word, class Write, class Same>
WL_DEVICE SlotState claim_and_publish(Word* state, Word busy, Word ready, bool& inserted, const Write& write,
                                      const Same& same) {
  Word seen = Load::acquire(state);
  if (seen == 0) {
    seen = atomicCAS(state, (Word)0, busy);
    if (seen == 0) {
      write();
      Load::release(state, ready);
      inserted = true;
      return SLOT_MINE;
    }
  }
  while (seen == busy) {
    spin_pause(20);
    seen = Load::acquire(state);
  }
  return same(seen) ? SLOT_MINE : SLOT_OTHER;
}

// States of slots with a word of their own.
static const u32 SLOT_BUSY = 1;
static const u32 SLOT_READY = 2;

// ---- tables ---------------------------------------------------------------------------------------------

// Words side by side, `free` where there is none.
template <class Load, class T>
struct WordTable {
  T* words;
  T free, key;
  WL_METHOD SlotState visit(u64 slot, bool& inserted) const { return claim_word<Load>(words + slot, free, key, inserted); }
  WL_METHOD SlotState visit(u32 slot, bool& inserted) const { return claim_word<Load>(words + slot, free, key, inserted); }
};

// Slots of STRIDE bytes with the key at byte KEY, 0 where there is none.
template <u32 STRIDE, u32 KEY, class T>
struct RecordTable {
  u8* records;
  T key;
  WL_METHOD SlotState visit(u64 slot, bool& inserted) const {
    return claim_word<DeviceLoad>((T*)(records + slot * STRIDE + KEY), (T)0, key, inserted);
  }
};

// Keys of WORDS words slot after slot, beside a word of state a slot.
template <u32 WORDS>
struct WideTable {
  u32* states;
  u64* keys;
  const u64 (&key)[WORDS];
  WL_METHOD SlotState visit(u64 slot, bool& inserted) const {
    u64* const words = keys + slot * WORDS;
    return claim_and_publish<DeviceLoad>(
        states + slot, SLOT_BUSY, SLOT_READY, inserted,
        [&]() {
          for (u32 w = 0; w < WORDS; ++w) words[w] = key[w];
        },
        [&](u32) {
          for (u32 w = 0; w < WORDS; ++w) {
            if (load_relaxed(words + w) != key[w]) return false;
          }
          return true;
        });
  }
};

// Keys of 16 bytes in a block's shared memory. Their high word is below 2^63: it is their state as well, 0 when the slot is free,
// 2^63 while it is written, else the key's plus one.
struct TwoWordTable {
  u128* slots;
  u64 low, high;
  WL_METHOD SlotState visit(u32 slot, bool& inserted) const {
    u64* const words = (u64*)(slots + slot);
    return claim_and_publish<BlockLoad>(
        words + 1, (u64)1 << 63, high, inserted, [&]() { words[0] = low; },
        [&](u64 seen) {
          if (seen != high) return false;
          return words[0] == low;
        });
  }
};

// A finished table of keys of one word.
struct FinishedKeys {
  const u64* keys;
  u64 key;
  WL_METHOD SlotState visit(u64 slot, bool&) const {
    const u64 seen = PlainLoad::word(keys + slot);
    if (seen == WL_EMPTY_KEY) return SLOT_FREE;
    return seen == key ? SLOT_MINE : SLOT_OTHER;
  }
};

// A finished WideTable.
template <u32 WORDS>
struct FinishedWideKeys {
  const u64* keys;
  const u32* states;
  const u64 (&key)[WORDS];
  WL_METHOD SlotState visit(u64 slot, bool&) const {
    if (PlainLoad::word(states + slot) == 0) return SLOT_FREE;
    WL_UNROLL
    for (u32 w = 0; w < WORDS; ++w) {
      if (PlainLoad::word(keys + slot * WORDS + w) != key[w]) return SLOT_OTHER;
    }
    return SLOT_MINE;
  }
};

// ---- hashes ---------------------------------------------------------------------------------------------

// The hash of a packed key; for one word it is hash64.
template <u32 WORDS>
WL_DEVICE u64 hash_words(const u64 (&key)[WORDS]) {
  u64 hash = 0;
  WL_UNROLL
  for (u32 w = 0; w < WORDS; ++w) hash = hash64(hash ^ key[w]);
  return hash;
}

// The hash of a key in a slot.
WL_DEVICE u64 hash_of_key(u64 key) { return hash64(key); }
WL_DEVICE u64 hash_of_key(u32 key) { return hash32(key); }
