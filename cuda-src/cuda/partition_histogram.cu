// How many keys have each value of up to 8 digits, and where the partitions of partitioned keys begin.
//
// Compiled per WL_KEY (u32, u64, u128) and WL_HASHED (digits of the hash). Adding one to a counter in shared memory
// costs the same for 32 equal counters as for different ones: the hardware adds them up first.
//
// Launch: any grid of blocks of WL_BLOCK_THREADS; `partition_histogram` best with all the threads that the device holds.
// Bytes moved: `partition_histogram` every key once; 2^27 keys of 4 bytes: 0.54 GB, 0.13 ms at 4.2 TB/s (measured on an
// H200: 0.14 ms with one digit, 0.17 with two, 0.30 with four). `partition_offsets` log2(rows) keys a partition, most of
// them in L2.
#include "simt.cuh"
#include "primitives.cuh"
#include "radix.cuh"

// Loads that a thread has in flight, and keys of a load.
static const u32 LOADS = 4;
static const u32 LOADED = 16 / sizeof(WL_KEY);
static const u32 MOST_DIGITS = 8;

struct PartitionHistogramShared {
  u32 counts[MOST_DIGITS * 256];
};

WL_DEVICE void count_digits(const PartitionHistogramArgs& args, u32* counts, WL_KEY key) {
  WL_NO_UNROLL
  for (u32 d = 0; d < args.digits; ++d) {
    atomicAdd(counts + d * 256 + radix_digit<WL_HASHED>(key, args.shifts[d], args.masks[d]), 1u);
  }
}

// histogram[digit * 256 + value] += keys of that value.
WL_KERNEL(partition_histogram, PartitionHistogramArgs, args) {
  WL_SHARED(PartitionHistogramShared, shared);
  const u64 rows = bounded_rows(args.count, args.most);
  const u32 words = args.digits * 256;
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) shared.counts[i] = 0;
  __syncthreads();
  const WL_KEY* keys = (const WL_KEY*)args.keys;
  const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u64 stride = (u64)gridDim.x * blockDim.x;
  const u64 loads = (u64)keys % 16 == 0 ? rows / LOADED : 0;
  for (u64 base = first; base < loads; base += stride * LOADS) {
    WL_KEY loaded[LOADS][LOADED];
    WL_UNROLL
    for (u32 k = 0; k < LOADS; ++k) {
      if (base + k * stride < loads) load_vec_stream(keys + (base + k * stride) * LOADED, loaded[k]);
    }
    WL_UNROLL
    for (u32 k = 0; k < LOADS; ++k) {
      if (base + k * stride >= loads) continue;
      WL_UNROLL
      for (u32 i = 0; i < LOADED; ++i) count_digits(args, shared.counts, loaded[k][i]);
    }
  }
  // What is left behind the last load, or everything when the keys are not aligned.
  for (u64 i = loads * LOADED + first; i < rows; i += stride) count_digits(args, shared.counts, keys[i]);
  __syncthreads();
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) {
    if (shared.counts[i] != 0) atomicAdd(args.histogram + i, shared.counts[i]);
  }
}

// offsets[p] = the first of the partitioned keys whose digit is at least p, for all p from 0 to the number of
// partitions, by binary search.
WL_KERNEL(partition_offsets, PartitionOffsetsArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const WL_KEY* keys = (const WL_KEY*)args.keys;
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p <= args.partitions; p += stride) {
    u64 low = 0, high = p == args.partitions ? 0 : rows;
    while (low < high) {
      const u64 middle = low + (high - low) / 2;
      if (radix_digit<WL_HASHED>(keys[middle], args.shift, args.mask) < p) low = middle + 1;
      else high = middle;
    }
    args.offsets[p] = (u32)(p == args.partitions ? rows : low);
  }
}
