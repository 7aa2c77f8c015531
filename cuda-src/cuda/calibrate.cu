// What one access costs: random reads, writes and atomics over memory of a given size, atomics in shared memory,
// updates of registers. Timed by the host, which divides by the number of accesses.
//
// Launch: any grid of blocks of 256 threads that the device holds at once; threads go over the accesses in strides,
// eight at a time, so that eight are in flight. Places come from a hash of the access' number: no address is
// read. Bytes moved: a sector of 32 bytes an access beyond the caches; 2^26 accesses take 0.5 ms then at 4.2 TB/s, and
// up to eight times as long where sectors are too far apart for the memory's pages and translations.
#include "simt.cuh"
#include "primitives.cuh"

static const u32 IN_FLIGHT = 8;

// The finaliser of MurmurHash3 for 32 bits.
WL_DEVICE u32 place_hash(u32 x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// Calls visit(numbers, places) for every eight accesses of this thread.
template <class Visit>
WL_DEVICE void for_each_access(const CalibrateArgs& args, const Visit& visit) {
  const u64 threads = (u64)gridDim.x * blockDim.x;
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  for (u64 first = 0; first < args.accesses; first += threads * IN_FLIGHT) {
    WL_UNROLL
    for (u32 k = 0; k < IN_FLIGHT; ++k) {
      const u64 i = first + k * threads + thread;
      if (i < args.accesses) visit((u32)i, place_hash((u32)i + args.seed) & args.mask);
    }
  }
}

// Adds up what every lane saw, so that no read is left out: 256 words, of which each warp adds to one.
WL_DEVICE void keep(const CalibrateArgs& args, u64 sum) {
  sum = warp_sum(sum);
  const u32 warp = blockIdx.x * block_warps() + warp_id();
  if (lane_id() == 0) atomicAdd(args.sums + (warp & 255), sum);
}

// Sequential reads of 16 bytes, 64 bytes a thread in flight: `accesses` times 16 bytes.
WL_KERNEL(calibrate_read, CalibrateArgs, args) {
  const u64 threads = (u64)gridDim.x * blockDim.x;
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  u64 sum = 0;
  for (u64 first = 0; first < args.accesses; first += threads * 4) {
    u64 words[4][2];
    WL_UNROLL
    for (u32 k = 0; k < 4; ++k) {
      const u64 i = first + k * threads + thread;
      words[k][0] = words[k][1] = 0;
      if (i < args.accesses) load_vec_stream((const u64*)args.data + 2 * i, words[k]);
    }
    WL_UNROLL
    for (u32 k = 0; k < 4; ++k) sum += words[k][0] + words[k][1];
  }
  keep(args, sum);
}

template <class T>
WL_DEVICE u64 gathered(const CalibrateArgs& args) {
  const T* const data = (const T*)args.data;
  u64 sum = 0;
  for_each_access(args, [&](u32, u32 place) { sum += data[place]; });
  return sum;
}
WL_KERNEL(calibrate_gather4, CalibrateArgs, args) { keep(args, gathered<u32>(args)); }
WL_KERNEL(calibrate_gather8, CalibrateArgs, args) { keep(args, gathered<u64>(args)); }
WL_KERNEL(calibrate_gather16, CalibrateArgs, args) {
  u64 sum = 0;
  for_each_access(args, [&](u32, u32 place) {
    u64 words[2];
    load_vec((const u64*)args.data + 2 * (u64)place, words);
    sum += words[0] + words[1];
  });
  keep(args, sum);
}

template <class T>
WL_DEVICE void scattered(const CalibrateArgs& args) {
  T* const data = (T*)args.data;
  for_each_access(args, [&](u32 i, u32 place) { data[place] = (T)i + 1; });
}
WL_KERNEL(calibrate_scatter4, CalibrateArgs, args) { scattered<u32>(args); }
WL_KERNEL(calibrate_scatter8, CalibrateArgs, args) { scattered<u64>(args); }
WL_KERNEL(calibrate_scatter16, CalibrateArgs, args) {
  for_each_access(args, [&](u32 i, u32 place) {
    const u64 words[2] = {(u64)i + 1, (u64)i + 1};
    store_vec((u64*)args.data + 2 * (u64)place, words);
  });
}

// Keys of 32 bits in no order, none twice: `accesses` of them.
WL_KERNEL(calibrate_keys, CalibrateArgs, args) {
  u32* const keys = (u32*)args.data;
  for_each_access(args, [&](u32 i, u32) { keys[i] = place_hash(i + args.seed); });
}

// Additions of 1 to counters of 32 bits in device memory.
WL_KERNEL(calibrate_atomics, CalibrateArgs, args) {
  u32* const counters = (u32*)args.data;
  for_each_access(args, [&](u32, u32 place) { atomicAdd(counters + place, 1u); });
}

// Entering keys of 64 bits into slots that are 0, without a second look where a slot is taken.
WL_KERNEL(calibrate_inserts, CalibrateArgs, args) {
  u64* const slots = (u64*)args.data;
  u64 taken = 0;
  for_each_access(args, [&](u32 i, u32 place) {
    taken += atomicCAS(slots + place, (u64)0, (u64)i + 1) != 0;
  });
  keep(args, taken);
}

// Additions of 1 to counters of T in the block's shared memory: `mask + 1` of them.
template <class T>
WL_DEVICE void shared_counters(const CalibrateArgs& args, T* counters) {
  for (u32 i = threadIdx.x; i <= args.mask; i += blockDim.x) counters[i] = 0;
  __syncthreads();
  for_each_access(args, [&](u32, u32 place) { atomicAdd(counters + place, (T)1); });
  __syncthreads();
  u64 sum = 0;
  for (u32 i = threadIdx.x; i <= args.mask; i += blockDim.x) sum += counters[i];
  keep(args, sum);
}
struct SharedCounters {
  u64 words[1];
};
WL_KERNEL(calibrate_shared4, CalibrateArgs, args) {
  WL_SHARED(SharedCounters, shared);
  shared_counters<u32>(args, (u32*)shared.words);
}
WL_KERNEL(calibrate_shared8, CalibrateArgs, args) {
  WL_SHARED(SharedCounters, shared);
  shared_counters<u64>(args, shared.words);
}

// Eight 64-bit sums in registers, of which every access adds to one: eight updates an access.
WL_KERNEL(calibrate_registers, CalibrateArgs, args) {
  u64 sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for_each_access(args, [&](u32, u32 place) {
    WL_UNROLL
    for (u32 k = 0; k < 8; ++k) sums[k] += (place & 7) == k ? place : 0;
  });
  u64 sum = 0;
  WL_UNROLL
  for (u32 k = 0; k < 8; ++k) sum += sums[k];
  keep(args, sum);
}
