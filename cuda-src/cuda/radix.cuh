// Digits of packed keys: what radix partitions, partitioned joins and partitioned group-bys split by.
//
// A key is one unsigned number of 4, 8 or 16 bytes. Partitions go by bits of the key itself, or by bits of
// `radix_hash`; whoever builds a table inside a partition takes other bits of the same hash.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"

// The hash of a key; 32 good bits for keys of 4 bytes, 64 for wider ones. For 8 and 16 bytes it is
// `hash_words` of the words of the key, the low one first.
WL_DEVICE u64 radix_hash(u32 key) { return hash32(key); }
WL_DEVICE u64 radix_hash(u64 key) { return hash64(key); }
WL_DEVICE u64 radix_hash(u128 key) { return hash64(hash64((u64)key) ^ (u64)(key >> 64)); }

// The digit of a key: the bits of `mask` after a shift, of the key or of its hash.
template <bool HASHED, class Key>
WL_DEVICE u32 radix_digit(Key key, u32 shift, u32 mask) {
  if (HASHED) return (u32)(radix_hash(key) >> shift) & mask;
  return (u32)(key >> shift) & mask;
}
