// How a tile of a radix partition moves, once each row has its place in the order of digits: through shared memory, column by
// column, so that rows of one digit are written side by side. `partition.cu` and `partition_unstable.cu` say who finds the
// places, and what compiles this.
#include "simt.cuh"
#include "primitives.cuh"
#include "radix.cuh"

static const u32 DIGITS = 256;
static const u32 ITEMS = WL_ITEMS;
static const u32 TILE = WL_BLOCK_THREADS * WL_ITEMS;

// The rows of one column into shared memory, in the order of digits.
template <class T>
WL_DEVICE void stage_column(const void* column, u64 begin, u32 first, u32 tile_rows, const u32 (&places)[ITEMS], T* staged) {
  const T* in = (const T*)column + begin;
  T values[ITEMS];
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    const u32 at = first + k * WL_WARP;
    if (at < tile_rows) values[k] = column == 0 ? (T)(begin + at) : in[at];
  }
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    if (first + k * WL_WARP < tile_rows) staged[places[k]] = values[k];
  }
}

// The rows of a tile, `begin` the first: item k of this thread, `first` its first, goes to `places[k]`, where its key stands in
// `shared.keys` already. What added to a place gives the place in the output is `output_start` of the digit;
// `write_key(target, key)` writes the key. `shift` and `mask` are the caller's own: read from `args` once more they
// make tiles of 22 and 18 items a thread spill. The threads of a block call together.
template <class Args, class Shared, class WriteKey>
WL_DEVICE void move_rows(const Args& args, Shared& shared, const u32* output_start, u64 begin, u32 first, u32 tile_rows, u32 shift,
                         u32 mask, const u32 (&places)[ITEMS], const WriteKey& write_key) {
#define WL_STAGE(number, Type, round, offset) \
  if (round == now) stage_column<Type>(args.from[number], begin, first, tile_rows, places, (Type*)((u8*)shared.staged + offset * TILE));
#define WL_WRITE(number, Type, round, offset) \
  if (round == now) ((Type*)args.to[number])[target] = ((const Type*)((const u8*)shared.staged + offset * TILE))[at];
  WL_UNROLL
  for (u32 now = 0; now < WL_ROUNDS; ++now) {
    WL_COLUMNS(WL_STAGE)
    __syncthreads();
    // By 4: no slower than all at once, and a third of the time to compile.
    WL_UNROLL_4
    for (u32 k = 0; k < ITEMS; ++k) {
      const u32 at = threadIdx.x + k * WL_BLOCK_THREADS;
      if (at >= tile_rows) continue;
      const WL_KEY key = shared.keys[at];
      const u32 target = output_start[radix_digit<WL_HASHED>(key, shift, mask)] + at;
      if (now == 0) write_key(target, key);
      WL_COLUMNS(WL_WRITE)
    }
    if (now + 1 < WL_ROUNDS) __syncthreads();
  }
}
