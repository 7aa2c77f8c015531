// How a kernel learns that its query was stopped: a word in page-locked host memory, which the host sets to the query's
// number while the kernel runs. So no copy has to find its way past the kernel, and nothing is to be reset: numbers are
// given once.
//
// A look crosses the link and all looks of the device queue there, half a microsecond each (measured on an H200: a look a
// task made a join of 1.2 ms one of 50). So a warp looks every 34 ms at most, warps at different times, and a kernel that
// takes less never looks. Who leaves a loop early leaves a result that nobody reads, for the host takes nothing from a query
// that was stopped.
#pragma once
#include "simt.cuh"

#if WL_EMULATED
// A look costs nothing, and lanes are slow: less between two of them.
#define WL_STOP_CYCLES 1ull
#define WL_STOP_TILES 2
#define WL_STOP_VISITS 128
#define WL_STOP_ENTRIES 256
#else
// Cycles between two looks of a warp, a power of two.
#define WL_STOP_CYCLES (1ull << 26)
// Tiles of a block's loop between two looks at the clock.
#define WL_STOP_TILES 64
// Rounds of a warp's loop between two looks at the clock.
#define WL_STOP_VISITS 1024
// Entries that a row is compared with between two looks at the clock, a power of two.
#define WL_STOP_ENTRIES 4096
#endif

// In the place of the next look: the query was stopped.
#define WL_STOPPED 0xffffffffffffffffull

// When to look whether the query `number` was stopped. `word` may be null: nobody stops it.
struct StopWatch {
  const u64* word;
  u64 number;
  // The cycle of the next look.
  u64 next;
};

// From now on. Warps differ in when they begin, so that their looks do not come all at once.
WL_DEVICE StopWatch stop_watch(const u64* word, u64 number) {
  const u64 warp = (u64)blockIdx.x * (WL_BLOCK_THREADS / WL_WARP) + warp_id();
  return {word, number, cycle_count() + WL_STOP_CYCLES + (warp * 0x9e3779b1ull & (WL_STOP_CYCLES - 1))};
}

// Was the query stopped, as far as it is time to look?
WL_DEVICE bool query_stopped(StopWatch& watch) {
  if (watch.word == 0) return false;
  // Once it was stopped it stays so: the thread's other rows do not wait for another look.
  if (watch.next == WL_STOPPED) return true;
  const u64 now = cycle_count();
  if (now < watch.next) return false;
  const bool stopped = load_system(watch.word) == watch.number;
  watch.next = stopped ? WL_STOPPED : now + WL_STOP_CYCLES;
  return stopped;
}

// The same answer for all 32 lanes of a warp.
WL_DEVICE bool query_stopped_warp(StopWatch& watch) {
  const u32 mine = lane_id() == 0 && query_stopped(watch) ? 1u : 0u;
  return __shfl_sync(WL_FULL_MASK, mine, 0) != 0;
}

// The same answer for all threads of a block, which all call.
WL_DEVICE bool query_stopped_block(StopWatch& watch) {
  return __syncthreads_or(threadIdx.x == 0 && query_stopped(watch)) != 0;
}
