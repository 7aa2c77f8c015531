// Facts about a finished column of narrow codes: its order, its distinct values, its smallest hashes, a sample.
//
// They are those that the host computes of a column that it encodes, bit for bit. Floats count by their bits.
// Launch: any grid of 256-thread blocks, best as many as the device holds.
// Bytes moved: the codes once a kernel; a bit a possible value, or 64 KiB of registers, or 64 KiB of hashes, by atomics
// that look first.
#include "simt.cuh"
#include "primitives.cuh"

WL_DEVICE u64 code_at(const ColumnFactsArgs& args, u64 row) {
  if (args.width == 0) return ((const u32*)args.data)[row / 32] >> row % 32 & 1;
  if (args.width == 1) return ((const u8*)args.data)[row];
  if (args.width == 2) return ((const u16*)args.data)[row];
  if (args.width == 4) return ((const u32*)args.data)[row];
  return ((const u64*)args.data)[row];
}

WL_DEVICE bool valid_at(const ColumnFactsArgs& args, u64 row) {
  return args.validity == 0 || (args.validity[row / 32] >> row % 32 & 1) != 0;
}

// The finaliser of SplitMix64, as the host's.
WL_DEVICE u64 facts_mix(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// As the host hashes values whose high half is their sign.
WL_DEVICE u64 facts_hash(u64 value) { return facts_mix(value ^ facts_mix(0)); }

WL_DEVICE u64 facts_begin() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
WL_DEVICE u64 facts_stride() { return (u64)gridDim.x * blockDim.x; }

// out[0]: bit 0, a code is less than the one before; bit 1, a code is equal to the one before.
WL_KERNEL(column_order, ColumnFactsArgs, args) {
  u32 found = 0;
  for (u64 row = facts_begin() + 1; row < args.rows; row += facts_stride()) {
    const u64 before = code_at(args, row - 1), code = code_at(args, row);
    found |= code < before ? 1u : code == before ? 2u : 0u;
  }
  found = warp_or(found);
  u32* out = (u32*)args.out;
  if (lane_id() == 0 && (load_relaxed(out) | found) != load_relaxed(out)) atomicOr(out, found);
}

// out: a bit for each possible value from `least` on, zeroed.
WL_KERNEL(column_values, ColumnFactsArgs, args) {
  u32* out = (u32*)args.out;
  for (u64 row = facts_begin(); row < args.rows; row += facts_stride()) {
    if (!valid_at(args, row)) continue;
    const u64 place = code_at(args, row) + args.base - args.least;
    // A value out of its range, which the caller finds out: nothing is written.
    if (place > args.span) continue;
    const u32 bit = 1u << place % 32;
    if ((load_relaxed(out + place / 32) & bit) == 0) atomicOr(out + place / 32, bit);
  }
}

// Words of a bitmap that fits into shared memory.
static const u32 FEW_WORDS = 2048;

struct FewValues {
  u32 words[FEW_WORDS];
};

// The same for a bitmap of at most FEW_WORDS words, which each block has for itself first: in memory all threads would meet at a
// few words, at the speed of the part of L2 that has them.
WL_KERNEL(column_few_values, ColumnFactsArgs, args) {
  WL_SHARED(FewValues, shared);
  const u32 words = (u32)(args.span / 32 + 1);
  for (u32 word = threadIdx.x; word < words; word += blockDim.x) shared.words[word] = 0;
  __syncthreads();
  for (u64 row = facts_begin(); row < args.rows; row += facts_stride()) {
    if (!valid_at(args, row)) continue;
    const u64 place = code_at(args, row) + args.base - args.least;
    if (place > args.span) continue;
    const u32 bit = 1u << place % 32;
    if ((shared.words[place / 32] & bit) == 0) atomicOr(shared.words + place / 32, bit);
  }
  __syncthreads();
  u32* out = (u32*)args.out;
  for (u32 word = threadIdx.x; word < words; word += blockDim.x) {
    const u32 bits = shared.words[word];
    if ((load_relaxed(out + word) & bits) != bits) atomicOr(out + word, bits);
  }
}

// out[0] (u64): the bits set in `data`, `rows` words of 32 bits.
WL_KERNEL(column_bits, ColumnFactsArgs, args) {
  u64 bits = 0;
  for (u64 word = facts_begin(); word < args.rows; word += facts_stride()) bits += (u64)__popc(((const u32*)args.data)[word]);
  bits = warp_sum(bits);
  if (lane_id() == 0 && bits != 0) atomicAdd((u64*)args.out, bits);
}

// out: the registers of HyperLogLog, 2^precision words, zeroed.
WL_KERNEL(column_registers, ColumnFactsArgs, args) {
  u32* out = (u32*)args.out;
  const u32 precision = args.precision;
  for (u64 row = facts_begin(); row < args.rows; row += facts_stride()) {
    if (!valid_at(args, row)) continue;
    const u64 hash = facts_hash(code_at(args, row) + args.base);
    const u32 rank = (u32)__clzll((i64)(hash << precision | 1ull << (precision - 1))) + 1;
    u32* place = out + (hash >> (64 - precision));
    if (load_relaxed(place) < rank) atomicMax(place, rank);
  }
}

// Enters a hash into a set of `span + 1` slots, 0 where free, if it is at most `bound`; behind the set (u64) is counted what
// found no slot.
WL_DEVICE void keep_hash(const ColumnFactsArgs& args, u64 hash) {
  u64* slots = (u64*)args.out;
  if (hash == 0 || hash > args.bound) return;
  u64 slot = facts_mix(hash) & args.span;
  u64 tries = 0;
  for (; tries <= args.span; ++tries) {
    u64 there = load_relaxed(slots + slot);
    if (there == 0) there = atomicCAS(slots + slot, (u64)0, hash);
    if (there == 0 || there == hash) break;
    slot = (slot + 1) & args.span;
  }
  if (tries > args.span) atomicAdd(slots + args.span + 1, (u64)1);
}

// out: the set of the hashes of all values up to `bound`.
WL_KERNEL(column_hashes, ColumnFactsArgs, args) {
  for (u64 row = facts_begin(); row < args.rows; row += facts_stride()) {
    if (valid_at(args, row)) keep_hash(args, facts_hash(code_at(args, row) + args.base));
  }
}

// The same of the values whose bits are set in `data`, `rows` words of 32 bits for the values from `least` on.
WL_KERNEL(column_bitmap_hashes, ColumnFactsArgs, args) {
  for (u64 word = facts_begin(); word < args.rows; word += facts_stride()) {
    u32 bits = ((const u32*)args.data)[word];
    for (; bits != 0; bits &= bits - 1) {
      keep_hash(args, facts_hash(args.least + word * 32 + (u32)(__ffs((i32)bits) - 1)));
    }
  }
}

// out: bytes of `data`, one string behind the other. `picked` has the place of each of `span` strings in `data`, then its place
// in `out`, and where the last one ends. A warp a string.
WL_KERNEL(column_sample_bytes, ColumnFactsArgs, args) {
  const u64* places = args.picked + args.span;
  const u64 warps = facts_stride() / 32;
  for (u64 i = facts_begin() / 32; i < args.span; i += warps) {
    const u8* from = (const u8*)args.data + args.picked[i];
    u8* to = (u8*)args.out + places[i];
    const u64 length = places[i + 1] - places[i];
    for (u64 byte = lane_id(); byte < length; byte += 32) to[byte] = from[byte];
  }
}

// out: the codes (u64) of the rows that `picked` names, and behind them (u64) whether each is not NULL.
WL_KERNEL(column_sample, ColumnFactsArgs, args) {
  u64* out = (u64*)args.out;
  for (u64 i = facts_begin(); i < args.span; i += facts_stride()) {
    const u64 row = args.picked[i];
    out[i] = code_at(args, row);
    out[args.span + i] = valid_at(args, row) ? 1 : 0;
  }
}
