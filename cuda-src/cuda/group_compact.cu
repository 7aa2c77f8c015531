// Groups of a sparse aggregation table as dense rows.
//
// Two kernels over the same slots: `count_groups` adds up the occupied ones, so that the host can
// allocate exactly; `emit_groups` writes each occupied slot's key words and state words as one row.
// Launch: any grid of 256-thread blocks; grid-stride over slots, one slot a thread.
// Bytes moved: the keys (or the counting word of every state) twice, the occupied states once read
// and once written. Rows come out in no particular order.
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"

WL_DEVICE bool occupied(const GroupCompactArgs& args, u64 slot) {
  if (args.states != 0) return args.states[slot] == 2;
  if (args.keys != 0) return args.keys[slot] != WL_EMPTY_KEY;
  return args.table[WL_HEADER_WORDS + slot * args.state_words] != 0;
}

WL_KERNEL(count_groups, GroupCompactArgs, args) {
  u32 mine = 0;
  for (u64 slot = (u64)blockIdx.x * blockDim.x + threadIdx.x; slot < args.slots;
       slot += (u64)gridDim.x * blockDim.x) {
    mine += occupied(args, slot) ? 1 : 0;
  }
  const u32 total = warp_sum(mine);
  if (lane_id() == 0 && total != 0) atomicAdd(args.table + WL_HEADER_GROUPS, (u64)total);
}

WL_KERNEL(emit_groups, GroupCompactArgs, args) {
  const u64 row_words = args.key_words + args.state_words;
  const u64 threads = (u64)gridDim.x * blockDim.x;
  // Every lane takes part in every round: positions are handed out a warp at a time.
  const u64 rounds = (args.slots + threads - 1) / threads;
  for (u64 round = 0; round < rounds; ++round) {
    const u64 slot = round * threads + (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const bool mine = slot < args.slots && occupied(args, slot);
    const u32 ballot = __ballot_sync(WL_FULL_MASK, mine);
    u64 base = 0;
    if (lane_id() == 0 && ballot != 0) {
      base = atomicAdd(args.table + WL_HEADER_EMITTED, (u64)__popc(ballot));
    }
    base = __shfl_sync(WL_FULL_MASK, base, 0);
    if (!mine) continue;
    u64* row = args.rows + (base + __popc(ballot & ((1u << lane_id()) - 1u))) * row_words;
    if (args.keys == 0) {
      row[0] = slot;
    } else {
      for (u64 w = 0; w < args.key_words; ++w) row[w] = args.keys[slot * args.key_words + w];
    }
    const u64* state = args.table + WL_HEADER_WORDS + slot * args.state_words;
    for (u64 w = 0; w < args.state_words; ++w) row[args.key_words + w] = state[w];
  }
}
