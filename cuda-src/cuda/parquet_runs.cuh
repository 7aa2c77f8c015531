// The hybrid of run-length encoding and bit-packing of parquet, and its deltas, by all threads of a block.
//
// One thread reads the headers of some runs, each of which says where the next one is; then all threads read values.
// What is called once for many values is no part of its callers, and loops over headers are not unrolled: the compiler takes half
// the time.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "parquet.cuh"

// Runs whose headers are read at a time.
static const u32 PAGE_RUNS = 64;
// Most miniblocks of a block of deltas.
static const u32 PAGE_MINIBLOCKS = 64;

struct PageShared {
  BlockScratch<u32> scratch;
  BlockScratch<u64> wide_scratch;
  // The first value of each run, and the end of the last.
  u32 starts[PAGE_RUNS + 1];
  // A run's value, or the offset of its packed bits in the section.
  u32 where[PAGE_RUNS];
  // Bit i: run i is packed.
  u32 packed[PAGE_RUNS / 32];
  u32 runs;
  // Bytes of the section that were read.
  u32 at;
  u32 error;
  u32 first, count;
  i64 least, greatest;
  u64 value, delta;
  u32 block, miniblocks;
  u8 widths[PAGE_MINIBLOCKS];
  // Where each miniblock of the block begins.
  u32 offsets[PAGE_MINIBLOCKS];
  // What is looked at of a section of strings.
  u32 window[1024];
};

// A number in base 128 from the section; false where it ends or the number takes more than 64 bits.
WL_OUTLINED bool read_varint(const u8* section, u32 bytes, u32& at, u64& value) {
  value = 0;
  WL_NO_UNROLL
  for (u32 shift = 0; shift < 64; shift += 7) {
    if (at >= bytes) return false;
    const u8 byte = section[at++];
    value |= (u64)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

WL_DEVICE i64 unzigzag(u64 value) { return (i64)(value >> 1 ^ (0 - (value & 1))); }

// Reads headers of runs of values of `width` bits (at most 32) until so many runs or all `count` values are known; by one
// thread. The runs that follow begin with value `first`, at byte `shared.at` of the section.
WL_OUTLINED void read_runs(const u8* section, u32 bytes, u32 width, u32 first, u32 count, PageShared& shared) {
  u32 at = shared.at, runs = 0;
  shared.packed[0] = 0;
  shared.packed[1] = 0;
  while (runs < PAGE_RUNS && first < count) {
    u64 header;
    if (!read_varint(section, bytes, at, header)) {
      shared.error = PAGE_VALUES;
      break;
    }
    if (header >> 32 != 0) {
      shared.error = PAGE_VALUES;
      break;
    }
    u64 values;
    shared.starts[runs] = first;
    if (header & 1) {
      values = (header >> 1) * 8;
      const u64 used = values < count - first ? values : count - first;
      // The last run may end with the last value that counts.
      const u64 whole = (header >> 1) * width, needed = (used * width + 7) / 8;
      if (needed > bytes - at) {
        shared.error = PAGE_VALUES;
        break;
      }
      shared.where[runs] = at;
      shared.packed[runs / 32] |= 1u << runs % 32;
      at += (u32)(whole < bytes - at ? whole : bytes - at);
    } else {
      values = header >> 1;
      const u32 size = (width + 7) / 8;
      if (size > bytes - at) {
        shared.error = PAGE_VALUES;
        break;
      }
      u32 value = 0;
      WL_NO_UNROLL
      for (u32 i = 0; i < size; ++i) value |= (u32)section[at + i] << 8 * i;
      if (width < 32 && value >> width != 0) {
        shared.error = PAGE_VALUES;
        break;
      }
      shared.where[runs] = value;
      at += size;
    }
    // An empty run would go on for ever.
    if (values == 0) {
      shared.error = PAGE_VALUES;
      break;
    }
    first += (u32)(values < count - first ? values : count - first);
    ++runs;
  }
  shared.starts[runs] = first;
  shared.runs = runs;
  shared.at = at;
}

// The value with this number, which one of the known runs has.
WL_DEVICE u32 run_value(const u8* section, u32 width, u32 number, const PageShared& shared) {
  u32 low = 0, high = shared.runs;
  WL_NO_UNROLL
  while (high - low > 1) {
    const u32 middle = (low + high) / 2;
    if (shared.starts[middle] <= number) low = middle;
    else high = middle;
  }
  if ((shared.packed[low / 32] >> low % 32 & 1) == 0) return shared.where[low];
  return read_bits(section + shared.where[low], (u64)(number - shared.starts[low]) * width, width);
}

// Calls visit(number, value) for each of `count` values, in any order; false when they are malformed.
template <class Visit>
WL_DEVICE bool for_each_run_value(const u8* section, u32 bytes, u32 width, u32 count, PageShared& shared, Visit visit) {
  // Others may still look at what is written here.
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.at = 0;
    shared.error = 0;
    shared.starts[0] = 0;
    shared.runs = 0;
  }
  __syncthreads();
  for (u32 first = 0; first < count;) {
    if (threadIdx.x == 0) read_runs(section, bytes, width, first, count, shared);
    __syncthreads();
    const bool failed = shared.error != 0;
    const u32 end = shared.starts[shared.runs];
    if (!failed) {
      for (u32 number = first + threadIdx.x; number < end; number += blockDim.x) {
        visit(number, run_value(section, width, number, shared));
      }
    }
    first = end;
    // The table of runs is written again.
    __syncthreads();
    if (failed) return false;
  }
  return true;
}

// Reads the header of a block of deltas: its least delta, and the widths of its miniblocks; by one thread. Miniblocks
// behind the last value have no bytes.
WL_OUTLINED void read_delta_block(const u8* section, u32 bytes, u32 left, PageShared& shared) {
  u32 at = shared.at;
  u64 least;
  const u32 size = shared.block / shared.miniblocks;
  if (!read_varint(section, bytes, at, least) || shared.miniblocks > bytes - at) {
    shared.error = PAGE_VALUES;
    return;
  }
  shared.delta = (u64)unzigzag(least);
  const u32 widths = at;
  at += shared.miniblocks;
  WL_NO_UNROLL
  for (u32 i = 0; i < shared.miniblocks; ++i) {
    // Widths of miniblocks without values may be anything.
    const bool used = (u64)i * size < left;
    const u32 width = used ? section[widths + i] : 0;
    shared.widths[i] = (u8)width;
    shared.offsets[i] = at;
    if (width > 64 || (u64)width * size / 8 > bytes - at) {
      shared.error = PAGE_VALUES;
      return;
    }
    at += width * size / 8;
  }
  shared.at = at;
}

// Writes the `count` values of DELTA_BINARY_PACKED bytes modulo 2^64 to `out`; false when they are malformed. `used` gets
// the bytes that they take.
WL_OUTLINED bool expand_deltas(const u8* section, u32 bytes, u32 count, u64* out, u32& used, PageShared& shared) {
  // Others may still look at what is written here.
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 at = 0;
    u64 block = 0, miniblocks = 0, total = 0, first = 0;
    const bool read = read_varint(section, bytes, at, block) && read_varint(section, bytes, at, miniblocks) &&
                      read_varint(section, bytes, at, total) && read_varint(section, bytes, at, first);
    const bool sane = read && block > 0 && block % 128 == 0 && block <= 1u << 20 && miniblocks > 0 &&
                      miniblocks <= PAGE_MINIBLOCKS && block % miniblocks == 0 && block / miniblocks % 32 == 0;
    shared.error = sane && total == count ? 0 : PAGE_VALUES;
    shared.at = at;
    shared.block = (u32)block;
    shared.miniblocks = (u32)miniblocks;
    shared.value = (u64)unzigzag(first);
  }
  __syncthreads();
  const bool malformed = shared.error != 0;
  // The first block may be malformed before others have looked.
  __syncthreads();
  if (malformed) return false;
  if (count > 0 && threadIdx.x == 0) out[0] = shared.value;
  for (u32 first = 1; first < count;) {
    if (threadIdx.x == 0) read_delta_block(section, bytes, count - first, shared);
    __syncthreads();
    const bool failed = shared.error != 0;
    if (failed) return false;
    const u32 in_block = count - first < shared.block ? count - first : shared.block;
    const u32 size = shared.block / shared.miniblocks;
    for (u32 done = 0; done < in_block; done += blockDim.x) {
      const u32 number = done + threadIdx.x;
      u64 delta = 0;
      if (number < in_block) {
        const u32 miniblock = number / size, width = shared.widths[miniblock];
        delta = shared.delta +
                read_wide_bits(section + shared.offsets[miniblock], (u64)(number % size) * width, width);
      }
      const u64 before = shared.value;
      u64 total;
      const u64 sum = block_scan_exclusive_sum(delta, shared.wide_scratch, total);
      if (number < in_block) out[first + number] = before + sum + delta;
      __syncthreads();
      if (threadIdx.x == 0) shared.value = before + total;
      __syncthreads();
    }
    first += in_block;
  }
  __syncthreads();
  used = shared.at;
  return true;
}
