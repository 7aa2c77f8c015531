// The first rows of each partition of an order, by row_number(), rank() or dense_rank(): a window over which only those are
// asked for is never made for the others.
//
// The order is a permutation of rows whose key words ascend along it; the first bits of a key are its partition's. A row is among
// the first by number if the one so many places before it is of another partition. By rank the first of its peers decides for all of
// them, by dense rank the first of those so many groups of peers before.
//
// Launch: any grid of 256-thread blocks, a place a thread.
// Bytes moved: `first_peers` reads 4 of the order and, at random, the key words of a row and of the one before, which is at hand from a
// neighbour, and writes 4; `first_starts` reads 8 and writes 4 for each group of peers; `first_marks` reads 4 of the order and, at
// random, the key words of two rows, 8 more where peers are told, and writes 4; `first_rows` reads 12 in order and writes 4 for each
// row that is kept.
#include "simt.cuh"
#include "primitives.cuh"

// The keys of the rows at two places are equal, in the bits of the partition alone or in all.
WL_DEVICE bool first_same(const FirstArgs& args, u64 a, u64 b, bool partition) {
  const u32 row = args.order[a], other = args.order[b];
  for (u32 w = 0; w < args.key_words; ++w) {
    const u64 differ = args.words[w][row] ^ args.words[w][other];
    if ((partition ? differ & args.partition[w] : differ) != 0) return false;
  }
  return true;
}

// marks[i] = place i begins a group of peers.
WL_KERNEL(first_peers, FirstArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 i = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; i < rows; i += step)
    args.marks[i] = (u32)(i == 0 || !first_same(args, i, i - 1, false));
}

// starts[g] = the first place of group g of peers.
WL_KERNEL(first_starts, FirstArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 i = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; i < rows; i += step)
    if (args.peers[i + 1] != args.peers[i]) args.starts[args.peers[i]] = (u32)i;
}

// marks[i] = the row at place i is kept.
WL_KERNEL(first_marks, FirstArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most), first = args.first;
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 i = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; i < rows; i += step) {
    // What is numbered, which of them the row is, and where it and the one `first` before it begin.
    u64 number = i, at = i;
    if (args.peers != 0) {
      const u64 group = (u64)args.peers[i + 1] - 1;
      at = args.starts[group];
      number = args.dense != 0 ? group : at;
    }
    bool keep = number < first;
    if (!keep) {
      const u64 before = number - first;
      keep = !first_same(args, at, args.dense != 0 ? (u64)args.starts[before] : before, true);
    }
    args.marks[i] = (u32)keep;
  }
}

// sums[i]: kept places before place i, for i = 0 ..= rows.
WL_KERNEL(first_rows, FirstArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 i = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; i < rows; i += step)
    if (args.marks[i + 1] != args.marks[i]) args.out[args.marks[i]] = args.order[i];
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.kept = rows == 0 ? 0ull : (u64)args.marks[rows];
}
