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

// The key of a hash: for keys of 4 and 8 bytes hashes are one to one.
WL_DEVICE u32 radix_key(u32 hash) {
  hash ^= hash >> 16;
  hash *= 0x7ed1b41du;
  hash ^= hash >> 13 ^ hash >> 26;
  hash *= 0xa5cb9243u;
  return hash ^ hash >> 16;
}
WL_DEVICE u64 radix_key(u64 hash) {
  hash ^= hash >> 33;
  hash *= 0x9cb4b2f8129337dbull;
  hash ^= hash >> 33;
  hash *= 0x4f74430c22a54005ull;
  return hash ^ hash >> 33;
}

// The digit of a key: the bits of `mask` after a shift, of the key or of its hash.
template <bool HASHED, class Key>
WL_DEVICE u32 radix_digit(Key key, u32 shift, u32 mask) {
  if (HASHED) return (u32)(radix_hash(key) >> shift) & mask;
  return (u32)(key >> shift) & mask;
}
