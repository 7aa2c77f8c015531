// The dictionary of a column of strings that lie as bytes: how many differ, one row of each, and codes by rank.
//
// `text_registers` estimates how many strings differ. `text_slots` enters every row into a table by its string: a slot holds a
// row and the high half of the hash, so that strings are compared only where they are very likely equal; each row keeps its
// slot. `text_number` numbers the slots in use and notes their rows, whose strings the host sorts. `text_codes` writes the rank
// of each row's string.
// Launch: any grid of 256-thread blocks, a row or a slot a thread.
// Bytes moved: the strings and their ends (8 bytes a row) once for registers, and for slots once more and, where a row meets
// its like, the like's, mostly from L2; 8 bytes of a slot and 4 of its number a row, at random; a code a row.
#include "simt.cuh"
#include "primitives.cuh"
#include "strings.cuh"

WL_DEVICE bool text_valid(const ColumnTextArgs& args, u64 row) {
  return args.validity == 0 || (args.validity[row / 32] >> row % 32 & 1) != 0;
}

WL_DEVICE Text text_of_row(const ColumnTextArgs& args, u64 row) {
  return text_at(args.data, args.offsets[row], args.offsets[row + 1]);
}

// The finaliser of SplitMix64.
WL_DEVICE u64 text_mix(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// With a seed that files cannot know, so that no file makes a table slow.
WL_DEVICE u64 text_hash(const ColumnTextArgs& args, const Text& t) {
  u64 hash = text_mix(args.seed ^ (t.e - t.b));
  for (u64 at = t.b; at < t.e; at += 8) hash = text_mix(hash ^ text_word(t, at));
  return hash;
}

WL_DEVICE bool same_text(const Text& a, const Text& b) {
  if (a.e - a.b != b.e - b.b) return false;
  for (u64 at = 0; at < a.e - a.b; at += 8)
    if (text_word(a, a.b + at) != text_word(b, b.b + at)) return false;
  return true;
}

WL_DEVICE u64 text_begin() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
WL_DEVICE u64 text_stride() { return (u64)gridDim.x * blockDim.x; }

// counts: the registers of HyperLogLog, 2^precision words, zeroed.
WL_KERNEL(text_registers, ColumnTextArgs, args) {
  for (u64 row = text_begin(); row < args.rows; row += text_stride()) {
    if (!text_valid(args, row)) continue;
    const u64 hash = text_hash(args, text_of_row(args, row));
    const u32 rank = (u32)__clzll((i64)(hash << args.precision | 1ull << (args.precision - 1))) + 1;
    u32* place = args.counts + (hash >> (64 - args.precision));
    if (load_relaxed(place) < rank) atomicMax(place, rank);
  }
}

// slots: zeroed; codes: a slot a row; counts[1]: rows that found no slot.
WL_KERNEL(text_slots, ColumnTextArgs, args) {
  const u64 most = args.slot_mask < 1023 ? args.slot_mask : 1023;
  for (u64 row = text_begin(); row < args.rows; row += text_stride()) {
    if (!text_valid(args, row)) {
      args.codes[row] = 0;
      continue;
    }
    const Text text = text_of_row(args, row);
    const u64 hash = text_hash(args, text);
    const u64 entry = hash >> 32 << 32 | (row + 1);
    u64 slot = hash & args.slot_mask, tries = 0;
    for (; tries <= most; ++tries) {
      u64 there = load_relaxed(args.slots + slot);
      if (there == 0) there = atomicCAS(args.slots + slot, (u64)0, entry);
      if (there == 0) break;
      if (there >> 32 == hash >> 32 && same_text(text, text_of_row(args, (u32)there - 1))) break;
      slot = (slot + 1) & args.slot_mask;
    }
    if (tries > most) atomicAdd(args.counts + 1, 1u);
    args.codes[row] = (u32)slot;
  }
}

// numbers: of each slot in use; picked: the row of each number; counts[0]: how many.
WL_KERNEL(text_number, ColumnTextArgs, args) {
  const u64 slots = args.slot_mask + 1;
  for (u64 first = (u64)blockIdx.x * blockDim.x; first < slots; first += text_stride()) {
    const u64 slot = first + threadIdx.x;
    const u64 there = slot < slots ? args.slots[slot] : 0;
    const u32 used = __ballot_sync(WL_FULL_MASK, there != 0);
    u32 number = 0;
    if (lane_id() == 0 && used != 0) number = atomicAdd(args.counts, (u32)__popc(used));
    number = __shfl_sync(WL_FULL_MASK, number, 0) + (u32)__popc(used & ((1u << lane_id()) - 1));
    if (there == 0) continue;
    args.numbers[slot] = number;
    args.picked[number] = (u32)there - 1;
  }
}

// out: the rank of each row's string in `width` bytes, 0 for NULL.
WL_KERNEL(text_codes, ColumnTextArgs, args) {
  for (u64 row = text_begin(); row < args.rows; row += text_stride()) {
    const u32 code = text_valid(args, row) ? args.ranks[args.numbers[args.codes[row]]] : 0;
    if (args.width == 1) args.out[row] = (u8)code;
    else if (args.width == 2) ((u16*)args.out)[row] = (u16)code;
    else ((u32*)args.out)[row] = code;
  }
}
