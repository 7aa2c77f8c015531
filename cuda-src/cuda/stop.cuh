// How a kernel learns that its query was stopped: a word in page-locked host memory, which the host sets to the query's
// number while the kernel runs. So no copy has to find its way past the kernel, and nothing is to be reset: numbers are
// given once.
//
// A look crosses the link, 1 to 2 us and 32 bytes: loops look once in many rounds. Who leaves a loop early leaves
// a result that nobody reads, for the host takes nothing from a query that was stopped.
#pragma once
#include "simt.cuh"

// Rounds of a warp's loop between two looks: with all warps of an H200, some million looks a second.
#define WL_STOP_VISITS 1024
// Tiles of a block's loop between two looks.
#define WL_STOP_TILES 16
// Entries that a row is compared with between two looks, a power of two.
#define WL_STOP_ENTRIES 4096

// Was the query `number` stopped? `word` may be null: nobody stops it.
WL_DEVICE bool query_stopped(const u64* word, u64 number) { return word != 0 && load_system(word) == number; }

// The same answer for all 32 lanes of a warp.
WL_DEVICE bool query_stopped_warp(const u64* word, u64 number) {
  const u32 mine = lane_id() == 0 && query_stopped(word, number) ? 1u : 0u;
  return __shfl_sync(WL_FULL_MASK, mine, 0) != 0;
}

// The same answer for all threads of a block, which all call.
WL_DEVICE bool query_stopped_block(const u64* word, u64 number) {
  return __syncthreads_or(threadIdx.x == 0 && query_stopped(word, number)) != 0;
}
