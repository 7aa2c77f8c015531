// How many slots of a hash table of groups are taken, for the size of the next run's table.
//
// Launch: any grid of 256-thread blocks; grid-stride, one slot a thread, an addition a warp. Bytes moved: a sector of 32 bytes a
// slot of as many bytes or more: 2^25 slots of 32 bytes, 1 GiB, 0.26 ms at 4.2 TB/s.
#include "simt.cuh"
#include "primitives.cuh"

// The key of a slot, and the word that tells of one whose key lies apart, is 0 where the slot is free.
WL_KERNEL(count_groups, CountGroupsArgs, args) {
  u64 taken = 0;
  for (u64 slot = (u64)blockIdx.x * blockDim.x + threadIdx.x; slot < args.slots; slot += (u64)gridDim.x * blockDim.x) {
    const u8* const at = args.words + slot * args.stride;
    const u64 word = args.width == 4 ? (u64) * (const u32*)at : *(const u64*)at;
    taken += (u64)(word != 0);
  }
  taken = warp_sum(taken);
  if (lane_id() == 0 && taken != 0) atomicAdd(args.count, taken);
}
