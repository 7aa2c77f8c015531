// Where each row of an order lies: in which partition and among which peers (rows equal by the whole order).
//
// A generated kernel has marked the rows that begin a partition, and those that begin peers; sums of the marks before each row
// (`scan.cu`) number both. `window_starts` turns numbers round: the first row of each. `window_numbers` then has everything that
// numbering functions and frames are made of.
//
// Launch: any grid of 256-thread blocks, a row a thread.
// Bytes moved: `window_starts` reads 8 a row and writes 4 a partition and 4 a group of peers; `window_numbers` reads 8 a row in
// order, at most 20 more where every row is a partition, and writes 4 a row and column that is asked for.
#include "simt.cuh"
#include "primitives.cuh"

// sums[i]: marks before row i, for i = 0 ..= rows. The last word of starts is the number of rows.
WL_DEVICE void window_start(const u32* sums, u32* starts, u64 row, u64 rows) {
  const u32 number = sums[row];
  if (row == rows) {
    starts[number] = (u32)rows;
  } else if (sums[row + 1] != number) {
    starts[number] = (u32)row;
  }
}

WL_KERNEL(window_starts, WindowArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 row = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; row <= rows; row += step) {
    window_start(args.partitions, args.partition_starts, row, rows);
    window_start(args.peers, args.peer_starts, row, rows);
  }
}

WL_KERNEL(window_numbers, WindowArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 row = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; row < rows; row += step) {
    const u32 partition = args.partitions[row + 1] - 1;
    const u32 peers = args.peers[row + 1] - 1;
    const u32 start = args.partition_starts[partition];
    if (args.position != 0) args.position[row] = (u32)row;
    if (args.partition_start != 0) args.partition_start[row] = start;
    if (args.partition_end != 0) args.partition_end[row] = args.partition_starts[partition + 1];
    if (args.peer_start != 0) args.peer_start[row] = args.peer_starts[peers];
    if (args.peer_end != 0) args.peer_end[row] = args.peer_starts[peers + 1];
    // Peers of the partition up to these: its first row begins some.
    if (args.dense_rank != 0) args.dense_rank[row] = peers + 1 - args.peers[start];
  }
}
