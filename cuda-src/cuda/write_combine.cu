// Radix partition of rows of 16 bytes, a key and a value of 8 bytes each in columns, that writes straight to where the
// partitions lie: to host memory across the link, where only full and aligned lines of 128 bytes reach its bandwidth.
// Ways of gathering rows before they are written (Lutz et al., "Triton Join", SIGMOD 2022, section 4):
//   WL_SLOTS 0: none, every row is written by itself ("standard");
//   WL_SLOTS n: n rows of each partition in shared memory, which all warps of a block fill and the warp that finds them full
//   writes ("shared"): the first slot that is not there is the lock;
//   WL_BEHIND m: a warp writes them behind each other into m rows of the block's in device memory first ("hierarchical"),
//   so that writes across the link stay long where partitions are many and their slots few.
// Rows of a partition are written from its front, whole buffers at a time, so that every write is as aligned as the front;
// what is left in the buffers in the end goes to its back.
//
// Launch: any grid of blocks of whole warps; as many as are resident read the least past each other.
// Bytes moved: 16 a row across the link each way; 2^27 rows: 2.1 GB, 39 ms at 55 GB/s in both directions at once. With
// WL_BEHIND 32 a row more in device memory or its cache.
#include "simt.cuh"
#include "primitives.cuh"

static const u32 FANOUT = WL_FANOUT;
static const u32 SLOTS = WL_SLOTS;
static const u32 BEHIND = WL_BEHIND;

struct WriteCombineShared {
  u64 keys[FANOUT * (SLOTS == 0 ? 1 : SLOTS)];
  u64 values[FANOUT * (SLOTS == 0 ? 1 : SLOTS)];
  // Slots that were asked for.
  u32 taken[FANOUT];
  // Slots that have been written.
  u32 written[FANOUT];
  // Rows in the buffer behind.
  u32 behind[FANOUT];
};

WL_DEVICE void put(const WriteCombineArgs& args, u64 at, u64 key, u64 value) {
  args.keys_out[at] = key;
  args.values_out[at] = value;
}

WL_DEVICE u64* behind_of(const WriteCombineArgs& args, u32 partition) {
  return args.behind + ((u64)blockIdx.x * FANOUT + partition) * BEHIND * 2;
}

// A place for `rows` rows at the front of a partition, for the whole warp.
WL_DEVICE u64 claim(const WriteCombineArgs& args, u32 partition, u32 rows) {
  u64 at = 0;
  if (lane_id() == 0) at = atomicAdd(args.front + partition, (u64)rows);
  return __shfl_sync(WL_FULL_MASK, at, 0);
}

// The slots of a partition are full, and this warp has the lock.
WL_DEVICE void flush(const WriteCombineArgs& args, WriteCombineShared& shared, u32 partition) {
  // Other warps may have taken their slots and not have written them yet.
  while (atomicAdd(&shared.written[partition], 0u) < SLOTS) spin_pause(20);
  __threadfence_block();
  __syncwarp();
  const u64* keys = shared.keys + partition * SLOTS;
  const u64* values = shared.values + partition * SLOTS;
  if (BEHIND == 0) {
    const u64 at = claim(args, partition, SLOTS);
    for (u32 i = lane_id(); i < SLOTS; i += WL_WARP) put(args, at + i, keys[i], values[i]);
  } else {
    u64* behind = behind_of(args, partition);
    u32 held = shared.behind[partition];
    for (u32 i = lane_id(); i < SLOTS; i += WL_WARP) {
      behind[held + i] = keys[i];
      behind[BEHIND + held + i] = values[i];
    }
    held += SLOTS;
    __threadfence_block();
    __syncwarp();
    if (held == BEHIND) {
      const u64 at = claim(args, partition, BEHIND);
      for (u32 i = lane_id(); i < BEHIND; i += WL_WARP) put(args, at + i, behind[i], behind[BEHIND + i]);
      held = 0;
      __syncwarp();
    }
    if (lane_id() == 0) shared.behind[partition] = held;
  }
  __threadfence_block();
  __syncwarp();
  if (lane_id() == 0) {
    atomicExch(&shared.written[partition], 0u);
    __threadfence_block();
    // From here on others take slots again.
    atomicExch(&shared.taken[partition], 0u);
  }
  __syncwarp();
}

WL_KERNEL(write_combine, WriteCombineArgs, args) {
  WL_SHARED(WriteCombineShared, shared);
  for (u32 p = threadIdx.x; p < FANOUT; p += blockDim.x) {
    shared.taken[p] = 0;
    shared.written[p] = 0;
    shared.behind[p] = 0;
  }
  __syncthreads();
  const u64 stride = (u64)gridDim.x * blockDim.x;
  const u64 first = (u64)blockIdx.x * blockDim.x + warp_id() * WL_WARP;
  for (u64 base = first; base < args.rows; base += stride) {
    const u64 row = base + lane_id();
    bool waiting = row < args.rows;
    const u64 key = waiting ? args.keys_in[row] : 0;
    const u64 value = waiting ? args.values_in[row] : 0;
    const u32 partition = (u32)key & (FANOUT - 1);
    if (SLOTS == 0) {
      if (waiting) put(args, atomicAdd(args.front + partition, (u64)1), key, value);
      continue;
    }
    for (;;) {
      u32 slot = SLOTS + 1;
      if (waiting) slot = atomicAdd(&shared.taken[partition], 1u);
      if (slot < SLOTS) {
        shared.keys[partition * SLOTS + slot] = key;
        shared.values[partition * SLOTS + slot] = value;
        __threadfence_block();
        atomicAdd(&shared.written[partition], 1u);
        waiting = false;
      }
      u32 locks = __ballot_sync(WL_FULL_MASK, slot == SLOTS);
      const bool flushes = locks != 0;
      while (locks != 0) {
        const int holder = __ffs((int)locks) - 1;
        locks &= locks - 1;
        flush(args, shared, __shfl_sync(WL_FULL_MASK, partition, holder));
      }
      if (__ballot_sync(WL_FULL_MASK, waiting) == 0) break;
      if (!flushes) spin_pause(20);
    }
  }
  if (SLOTS == 0) return;
  __syncthreads();
  for (u32 p = warp_id(); p < FANOUT; p += block_warps()) {
    const u32 held = shared.behind[p];
    const u32 rows = shared.written[p];
    const u32 all = held + rows;
    u64 at = 0;
    if (lane_id() == 0) at = atomicAdd(args.back + p, (u64)0 - all) - all;
    at = __shfl_sync(WL_FULL_MASK, at, 0);
    for (u32 i = lane_id(); i < rows; i += WL_WARP) {
      put(args, at + i, shared.keys[p * SLOTS + i], shared.values[p * SLOTS + i]);
    }
    if (BEHIND == 0) continue;
    const u64* behind = behind_of(args, p);
    for (u32 i = lane_id(); i < held; i += WL_WARP) put(args, at + rows + i, behind[i], behind[BEHIND + i]);
  }
}
