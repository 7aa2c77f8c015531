// Stable order of few rows by packed key words, and the first rows of many: a bitonic network in shared memory, ties
// decided by the further words, then by the row number.
#include "simt.cuh"
#include "primitives.cuh"
#include "join.cuh"

static const u32 SORT_SMALL_ROWS = 2048;
// In place of a row number: padding, after all rows.
static const u32 SORT_PADDING = 0xFFFFFFFFu;

struct SmallSortShared {
  u64 keys[SORT_SMALL_ROWS];
  u32 rows[SORT_SMALL_ROWS];
  BlockScratch<u32> scratch;
};

// Does row a come before row b, where their first words are equal? Ties of all words go to the smaller row number, which makes
// it stable.
WL_DEVICE bool tied_before(const SmallSortArgs& args, u32 a, u32 b) {
  for (u32 w = 1; w < args.key_words; ++w) {
    const u64 left = args.words[w][a] & low_bits(args.bits[w]);
    const u64 right = args.words[w][b] & low_bits(args.bits[w]);
    if (left != right) return left < right;
  }
  return a < b;
}

// Does item i come before item j?
WL_DEVICE bool comes_before(const SmallSortArgs& args, const SmallSortShared& shared, u32 i, u32 j) {
  if (shared.keys[i] != shared.keys[j]) return shared.keys[i] < shared.keys[j];
  const u32 a = shared.rows[i], b = shared.rows[j];
  return a != SORT_PADDING && b != SORT_PADDING ? tied_before(args, a, b) : a < b;
}

// Sort the first `padded` items, a power of two; all threads of the block come.
WL_DEVICE void sort_block(const SmallSortArgs& args, SmallSortShared& shared, u32 padded) {
  for (u32 size = 2; size <= padded; size *= 2) {
    for (u32 stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (u32 pair = threadIdx.x; pair < padded / 2; pair += blockDim.x) {
        const u32 i = 2 * pair - (pair & (stride - 1)), j = i + stride;
        const bool ascending = (i & size) == 0;
        if (ascending ? comes_before(args, shared, j, i) : comes_before(args, shared, i, j)) {
          const u64 key = shared.keys[i];
          const u32 row = shared.rows[i];
          shared.keys[i] = shared.keys[j];
          shared.rows[i] = shared.rows[j];
          shared.keys[j] = key;
          shared.rows[j] = row;
        }
      }
    }
  }
  __syncthreads();
}

// Launch: one block of 32 to 1024 threads, half as many as rows (rounded up to a power of two) serve best.
// Bytes moved: 8 a row and word, 4 a row; the time is that of log2(rows)^2 / 2 barriers, about 5 us for 2048 rows.
WL_KERNEL(sort_small, SmallSortArgs, args) {
  WL_SHARED(SmallSortShared, shared);
  const u32 rows = (u32)bounded_rows(args.count, args.most);
  u32 padded = 2;
  while (padded < rows) padded *= 2;
  for (u32 i = threadIdx.x; i < padded; i += blockDim.x) {
    shared.keys[i] = i < rows ? args.words[0][i] & low_bits(args.bits[0]) : ~0ull;
    shared.rows[i] = i < rows ? i : SORT_PADDING;
  }
  sort_block(args, shared, padded);
  for (u32 i = threadIdx.x; i < rows; i += blockDim.x) args.order[i] = shared.rows[i];
}

// The first `first` rows of those that a block goes over, in order, to places [first blockIdx, first (blockIdx + 1)) of
// `order`; padding behind them where there are fewer. Over the blocks' rows (`from`) once more, until one block is left.
//
// Rows that come after the last one wanted so far are passed over, as all but the first do where keys are equal; the others gather
// in shared memory, which is sorted when there is no room for another round.
// Launch: blocks of 1024 threads, as many as there are pieces of 2048 rows, at most some for each multiprocessor;
// `first` is at most 512. Bytes moved: 8 a row (and 4 where `from` is given), further words only in ties: 2^27 rows
// 0.26 ms at 4.2 TB/s.
WL_KERNEL(sort_first, SmallSortArgs, args) {
  WL_SHARED(SmallSortShared, shared);
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 round = (u64)gridDim.x * blockDim.x;
  u32 held = 0;
  bool full = false;
  u64 last = 0;
  u32 last_row = 0;
  for (u64 base = (u64)blockIdx.x * blockDim.x; base < rows; base += round) {
    const u64 i = base + threadIdx.x;
    const u32 row = i >= rows ? SORT_PADDING : args.from != 0 ? args.from[i] : (u32)i;
    const u64 key = row == SORT_PADDING ? ~0ull : args.words[0][row] & low_bits(args.bits[0]);
    const bool before = !full || key < last || (key == last && tied_before(args, row, last_row));
    const bool wanted = row != SORT_PADDING && before;
    u32 more;
    const u32 place = held + block_scan_exclusive_sum((u32)wanted, shared.scratch, more);
    held += more;
    if (wanted) {
      shared.keys[place] = key;
      shared.rows[place] = row;
    }
    if (held + blockDim.x <= SORT_SMALL_ROWS) continue;
    for (u32 k = held + threadIdx.x; k < SORT_SMALL_ROWS; k += blockDim.x) {
      shared.keys[k] = ~0ull;
      shared.rows[k] = SORT_PADDING;
    }
    sort_block(args, shared, SORT_SMALL_ROWS);
    if (held > args.first) held = args.first;
    full = held == args.first;
    last = shared.keys[held - 1];
    last_row = shared.rows[held - 1];
    __syncthreads();
  }
  u32 padded = 2;
  while (padded < held) padded *= 2;
  for (u32 k = held + threadIdx.x; k < padded; k += blockDim.x) {
    shared.keys[k] = ~0ull;
    shared.rows[k] = SORT_PADDING;
  }
  sort_block(args, shared, padded);
  u32* const out = args.order + (u64)blockIdx.x * args.first;
  for (u32 k = threadIdx.x; k < args.first; k += blockDim.x) out[k] = k < held ? shared.rows[k] : SORT_PADDING;
}
