// The first rows of each partition of an order, by row_number(), rank() or dense_rank(): a window over which only those are
// asked for is never made for the others.
//
// The order is a permutation of rows whose key words ascend along it; the first bits of a key are its partition's. A row is among
// the first by number if the one so many places before it is of another partition. By rank its peers may follow the last such
// row; where its partition begins is found by binary search then, and by dense rank always.
//
// Launch: any grid of 256-thread blocks, a place a thread.
// Bytes moved: `first_marks` reads 4 of the order and, at random, the key words of two rows, of log2(rows) more where it searches,
// and writes 4; `first_rows` reads 12 in order and writes 4 for each row that is kept.
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

// The first place of the partition of `place`, which `known` belongs to as well.
WL_DEVICE u64 first_of_partition(const FirstArgs& args, u64 place, u64 known) {
  u64 low = 0, high = known;
  while (low < high) {
    const u64 at = low + (high - low) / 2;
    if (first_same(args, at, place, true)) high = at;
    else low = at + 1;
  }
  return low;
}

// marks[i] = place i begins a group of peers.
WL_KERNEL(first_peers, FirstArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 i = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; i < rows; i += step)
    args.marks[i] = (u32)(i == 0 || !first_same(args, i, i - 1, false));
}

// marks[i] = the row at place i is kept.
WL_KERNEL(first_marks, FirstArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most), first = args.first;
  const u64 step = (u64)gridDim.x * WL_BLOCK_THREADS;
  for (u64 i = (u64)blockIdx.x * WL_BLOCK_THREADS + threadIdx.x; i < rows; i += step) {
    bool keep;
    if (args.peers != 0) {
      keep = (u64)(args.peers[i + 1] - args.peers[first_of_partition(args, i, i)]) <= first;
    } else {
      keep = i < first || !first_same(args, i, i - first, true);
      // Rows between peers are peers.
      if (!keep && args.ranks != 0 && first > 0 && first_same(args, i, i - 1, false))
        keep = first_same(args, i, first_of_partition(args, i, i - first) + first - 1, false);
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
