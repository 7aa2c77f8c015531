// What a sort needs besides `partition.cu`: narrow keys in the order so far, and the numbers of the rows.
//
// Launch: any grid of 256-thread blocks.
// Bytes moved: `sort_keys` 8 read (and 4 of the order, if there is one) and 4 written a row; 2^27 rows without an order
// 1.6 GB, 0.38 ms at 4.2 TB/s. With an order words are read at random.
#include "simt.cuh"
#include "primitives.cuh"

// keys[i] = the lowest 32 bits of the word of row order[i]; of row i without an order.
WL_KERNEL(sort_keys, SortKeysArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += (u64)gridDim.x * blockDim.x) {
    args.out[i] = (u32)args.word[args.order == 0 ? i : (u64)args.order[i]];
  }
}

// out[i] = i.
WL_KERNEL(number_rows, SortKeysArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += (u64)gridDim.x * blockDim.x) {
    args.out[i] = (u32)i;
  }
}
