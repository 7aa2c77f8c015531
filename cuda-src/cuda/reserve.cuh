// Places in an output that grows: one atomic a block or a warp, for the rows of all its threads.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"

// Shared memory of block_reserve and block_reserve_warps.
struct ReserveScratch {
  // What each warp reserves, then what those before it do.
  u32 warps[WL_WARP];
  u64 base;
};

// Reserves `rows` places a warp (the block's sum below 2^32; lane 0's number counts) at the end of an output of `*counter`
// rows and returns where the warp's begin: one atomic a block. Places follow the order of the warps. Every thread of the block
// calls it; the scratch serves the next call at once. One thread adds up in a loop: a tree of shuffles is no faster for eight
// warps (TPC-H takes as long), and NVRTC takes 7 % longer over kernels that keep rows.
WL_DEVICE u64 block_reserve_warps(u32 rows, u64* counter, ReserveScratch& scratch) {
  if (lane_id() == 0) scratch.warps[warp_id()] = rows;
  __syncthreads();
  if (threadIdx.x == 0) {
    const u32 warps = block_warps();
    u32 before = 0;
    WL_NO_UNROLL
    for (u32 warp = 0; warp < warps; ++warp) {
      const u32 of_warp = scratch.warps[warp];
      scratch.warps[warp] = before;
      before += of_warp;
    }
    scratch.base = before == 0 ? 0 : atomicAdd(counter, (u64)before);
  }
  __syncthreads();
  const u64 first = scratch.base + scratch.warps[warp_id()];
  // The next call's lane 0 writes what the others read here; `base` is written behind a barrier.
  __syncwarp();
  return first;
}

// Reserves `mine` places a thread, and returns where the thread's begin; they follow the order of the threads. Else as
// block_reserve_warps.
WL_DEVICE u64 block_reserve(u32 mine, u64* counter, ReserveScratch& scratch) {
  const u32 before = warp_scan_exclusive_sum(mine);
  const u32 rows = __shfl_sync(WL_FULL_MASK, before + mine, WL_WARP - 1);
  return block_reserve_warps(rows, counter, scratch) + before;
}

// Reserves a place for each set bit of `live`, the rows of this thread, and returns where the warp's places begin:
// row k goes to the answer + place[k]. Places of row k of neighbouring lanes are neighbours, so that the stores of
// a warp fill whole sectors however many rows a thread has. Called, and its scratch used, as block_reserve_warps.
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
  return block_reserve_warps(rows, counter, scratch);
}

// The same as block_reserve for a warp whose 32 lanes call together.
WL_DEVICE u64 warp_reserve(u32 mine, u64* counter) {
  const u32 before = warp_scan_exclusive_sum(mine);
  u64 base = 0;
  if (lane_id() == WL_WARP - 1 && before + mine != 0) base = atomicAdd(counter, (u64)(before + mine));
  return __shfl_sync(WL_FULL_MASK, base, WL_WARP - 1) + before;
}

// Reserves `rows` places for a warp whose 32 lanes call together with the same number.
WL_DEVICE u64 warp_reserve_rows(u32 rows, u64* counter) {
  u64 base = 0;
  if (lane_id() == 0 && rows != 0) base = atomicAdd(counter, (u64)rows);
  return __shfl_sync(WL_FULL_MASK, base, 0);
}

// Tiles [from, tiles) for each block in turn, several neighbouring ones at a time where there are many.
struct TileChunks {
  u64 from;
  // Tiles that follow each other.
  u32 chunk;
  // Of these, so many are left with the one at hand.
  u32 left;
  WL_METHOD u64 first() const { return from + (u64)blockIdx.x * chunk; }
  WL_METHOD u64 next(u64 tile) {
    if (--left != 0) return tile + 1;
    left = chunk;
    return tile + 1 + (u64)(gridDim.x - 1) * chunk;
  }
};

// At most 16 tiles at a time, and as few as leave a block eight turns.
WL_DEVICE TileChunks tile_chunks(u64 from, u64 tiles) {
  const u64 turns = tiles > from ? (tiles - from) / (8ull * gridDim.x) : 0;
  const u32 chunk = turns == 0 ? 1u : turns < 16 ? (u32)turns : 16u;
  return TileChunks{from, chunk, chunk};
}
