// Where runs of equal keys begin: starts[0 .. runs] and the number of rows behind them, in one pass with look-back.
//
// Compiled per WL_KEY (u32, u64, u128).
// Launch: any grid of 256-thread blocks; blocks take tiles of 4096 keys by ticket.
// Bytes moved: every key once, 4 written a run, 8 a tile. 2^27 keys of 4 bytes in few runs: 0.13 ms at 4.2 TB/s.
#include "simt.cuh"
#include "primitives.cuh"

static const u32 RUN_ROUNDS = 16;
static const u32 RUN_TILE = WL_BLOCK_THREADS * RUN_ROUNDS;

struct RunShared {
  BlockScratch<u32> scratch;
  u64 before;
  u32 tile;
};

WL_KERNEL(run_starts, RunStartsArgs, args) {
  WL_SHARED(RunShared, shared);
  const u64 rows = bounded_rows(args.count, args.most);
  const WL_KEY* keys = (const WL_KEY*)args.keys;
  // No keys have a tile as well: it writes the number of runs.
  const u64 tiles = rows == 0 ? 1 : (rows + RUN_TILE - 1) / RUN_TILE;
  while (true) {
    if (threadIdx.x == 0) shared.tile = atomicAdd(args.ticket, 1u);
    __syncthreads();
    const u64 tile = shared.tile;
    if (tile >= tiles) return;
    const u64 first = tile * RUN_TILE + warp_id() * (RUN_ROUNDS * WL_WARP) + lane_id();
    WL_KEY own[RUN_ROUNDS];
    WL_KEY left[RUN_ROUNDS];
    WL_UNROLL
    for (u32 r = 0; r < RUN_ROUNDS; ++r) {
      const u64 at = first + r * WL_WARP;
      if (at < rows) own[r] = keys[at];
      // The line was just loaded: this comes from L1.
      if (at < rows && at > 0) left[r] = keys[at - 1];
    }
    // Starts of the warp in each round.
    u32 votes[RUN_ROUNDS];
    u32 of_warp = 0;
    WL_UNROLL
    for (u32 r = 0; r < RUN_ROUNDS; ++r) {
      const u64 at = first + r * WL_WARP;
      votes[r] = __ballot_sync(WL_FULL_MASK, at < rows && (at == 0 || own[r] != left[r]));
      of_warp += (u32)__popc(votes[r]);
    }
    u32 total;
    u32 before_warp = block_scan_exclusive_sum(lane_id() == 0 ? of_warp : 0u, shared.scratch, total);
    before_warp = __shfl_sync(WL_FULL_MASK, before_warp, 0);
    if (warp_id() == 0) {
      const u64 before = tile_look_back(args.states, tile, total);
      if (lane_id() == 0) shared.before = before;
    }
    __syncthreads();
    u64 place = shared.before + before_warp;
    WL_UNROLL
    for (u32 r = 0; r < RUN_ROUNDS; ++r) {
      if ((votes[r] >> lane_id() & 1u) != 0) {
        args.starts[place + (u32)__popc(votes[r] & ((1u << lane_id()) - 1u))] = (u32)(first + r * WL_WARP);
      }
      place += (u32)__popc(votes[r]);
    }
    if (tile + 1 == tiles && threadIdx.x == 0) {
      const u64 runs = shared.before + total;
      args.starts[runs] = (u32)rows;
      *args.runs = runs;
    }
    // Nobody may still read `tile` or `before` when the next round writes them.
    __syncthreads();
  }
}
