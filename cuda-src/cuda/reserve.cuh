// Places in an output that grows: one atomic a block or a warp, for the rows of all its threads.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"

// Shared memory of block_reserve.
struct ReserveScratch {
  BlockScratch<u32> scan;
  u64 base;
};

// Reserves `mine` places (the block's sum below 2^32) at the end of an output of `*counter` rows and returns
// the thread's first: one atomic a block. Places follow the order of the threads. Every thread of the
// block calls it; the scratch serves the next call at once.
WL_DEVICE u64 block_reserve(u32 mine, u64* counter, ReserveScratch& scratch) {
  u32 total;
  const u32 before = block_scan_exclusive_sum(mine, scratch.scan, total);
  if (threadIdx.x == 0) scratch.base = total == 0 ? 0 : atomicAdd(counter, (u64)total);
  __syncthreads();
  // The next call writes `base` behind the barriers of its scan.
  return scratch.base + before;
}

// Reserves a place for each set bit of `live`, the rows of this thread, and returns where the warp's places begin:
// row k goes to the answer + place[k]. Places of row k of neighbouring lanes are neighbours, so that the stores of
// a warp fill whole sectors however many rows a thread has. Called and scratch used as block_reserve.
template <u32 ROWS>
WL_DEVICE u64 block_reserve_rows(u32 live, u64* counter, ReserveScratch& scratch, u32 (&place)[ROWS]) {
  const u32 lower = (1u << lane_id()) - 1u;
  u32 rows = 0;
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) {
    const u32 votes = __ballot_sync(WL_FULL_MASK, (live >> k & 1u) != 0);
    place[k] = rows + (u32)__popc(votes & lower);
    rows += (u32)__popc(votes);
  }
  // Lane 0 reserves for its warp.
  const u64 first = block_reserve(lane_id() == 0 ? rows : 0, counter, scratch);
  return __shfl_sync(WL_FULL_MASK, first, 0);
}

// The same as block_reserve for a warp whose 32 lanes call together.
WL_DEVICE u64 warp_reserve(u32 mine, u64* counter) {
  const u32 before = warp_scan_exclusive_sum(mine);
  u64 base = 0;
  if (lane_id() == WL_WARP - 1 && before + mine != 0) base = atomicAdd(counter, (u64)(before + mine));
  return __shfl_sync(WL_FULL_MASK, base, WL_WARP - 1) + before;
}
