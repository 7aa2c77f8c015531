// Numbers of groups: each row's packed key becomes the number of its group (HGB and the dictionary of SGB-DE, Wu et al., SIGMOD 2025).
//
// WL_KEY (defined in front of this file) is the type of a key: u32, u64 or u128. Launch: any grid of 256-thread blocks; grid-stride, one row a
// thread. Bytes moved: the key and the number of each row; the state, key and number of a slot, a sector of 32 bytes
// each where the table does not fit the L2 cache: 2^28 rows of 4-byte keys over few groups take 2 GiB, 0.5 ms at 4.2 TB/s.
#include "simt.cuh"
#include "primitives.cuh"
#include "group.cuh"

typedef WL_KEY Key;

WL_KERNEL(number_groups, NumberGroupsArgs, args) {
  const NumberTable<Key> table = {args.states, (Key*)args.table, args.numbers, args.mask, args.groups, (Key*)args.dense,
                                  args.room};
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
    const u32 number = number_key<0, Key>(table, ((const Key*)args.keys)[row], args.limit, 0);
    if (number == WL_NO_NUMBER) store_relaxed(args.overflow, (u64)1);
    args.out[row] = number;
  }
}
