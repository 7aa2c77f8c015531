// Running sums, least and greatest values within partitions of ordered rows: segmented inclusive scans, in place.
//
// Compiled behind `window_values.cuh`, per value and combination.
// A partition begins where the sums of its marks step (`window.cu`). Three kernels, each over tiles of 2048 rows:
// `running_tiles` reduces each tile from its last beginning on, `running_carries` gives each tile what comes in from before,
// `running_scan` scans the tiles with that.
// Launch: any grid of 256-thread blocks; `running_carries` one block.
// Bytes moved: values twice read and once written, 4 for marks twice: 32 a row of 8 bytes, 56 of 16.
#include "simt.cuh"
#include "primitives.cuh"

static const u32 RUNNING_ITEMS = 8;
static const u32 RUNNING_TILE = WL_BLOCK_THREADS * RUNNING_ITEMS;

// What some rows in a row come to: the value from their last beginning on, and whether they have one.
struct Piece {
  Value value;
  u64 begins;
};

// `a` comes before `b`.
WL_DEVICE Piece join(const Piece& a, const Piece& b) {
  Piece both;
  both.value = b.begins != 0 ? b.value : combine(a.value, b.value);
  both.begins = a.begins | b.begins;
  return both;
}

struct RunningShared {
  Piece pieces[WL_BLOCK_THREADS];
};

// What comes before this thread's piece within the block, from `before` on; the block's whole piece goes to `all`.
WL_DEVICE Piece block_before(const Piece& own, const Piece& before, RunningShared& shared, Piece& all) {
  const u32 t = threadIdx.x;
  shared.pieces[t] = t == 0 ? join(before, own) : own;
  __syncthreads();
  WL_NO_UNROLL
  for (u32 distance = 1; distance < WL_BLOCK_THREADS; distance *= 2) {
    Piece mine = shared.pieces[t];
    if (t >= distance) mine = join(shared.pieces[t - distance], mine);
    __syncthreads();
    shared.pieces[t] = mine;
    __syncthreads();
  }
  const Piece left = t == 0 ? before : shared.pieces[t - 1];
  all = shared.pieces[WL_BLOCK_THREADS - 1];
  __syncthreads();
  return left;
}

// The rows of a thread in a tile: their values and which of them begin a partition.
struct Items {
  Value values[RUNNING_ITEMS];
  u32 begins;
  u32 count;
};

WL_DEVICE Items load_items(const RunningArgs& args, u64 tile, u64 rows) {
  Items items;
  const u64 first = tile * RUNNING_TILE + threadIdx.x * RUNNING_ITEMS;
  items.count = first >= rows ? 0u : rows - first < RUNNING_ITEMS ? (u32)(rows - first) : RUNNING_ITEMS;
  items.begins = 0;
  u32 sum = items.count > 0 ? args.partitions[first] : 0u;
  WL_UNROLL
  for (u32 i = 0; i < RUNNING_ITEMS; ++i) {
    if (i < items.count) {
      const u32 next = args.partitions[first + i + 1];
      items.begins |= (u32)(next != sum) << i;
      sum = next;
      items.values[i] = ((const Value*)args.values)[first + i];
    }
  }
  return items;
}

WL_DEVICE Piece neutral() {
  Piece piece;
  piece.value = running_neutral();
  piece.begins = 0;
  return piece;
}

WL_DEVICE Piece piece_of(const RunningArgs& args, const Items& items) {
  Piece piece = neutral();
  WL_UNROLL
  for (u32 i = 0; i < RUNNING_ITEMS; ++i) {
    if (i < items.count) {
      const bool begins = (items.begins >> i & 1u) != 0;
      piece.value = begins ? items.values[i] : combine(piece.value, items.values[i]);
      piece.begins |= (u64)begins;
    }
  }
  return piece;
}

WL_KERNEL(running_tiles, RunningArgs, args) {
  WL_SHARED(RunningShared, shared);
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 tiles = (rows + RUNNING_TILE - 1) / RUNNING_TILE;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Items items = load_items(args, tile, rows);
    Piece all;
    block_before(piece_of(args, items), neutral(), shared, all);
    if (threadIdx.x == 0) ((Piece*)args.tiles)[tile] = all;
  }
}

WL_KERNEL(running_carries, RunningArgs, args) {
  WL_SHARED(RunningShared, shared);
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 tiles = (rows + RUNNING_TILE - 1) / RUNNING_TILE;
  Piece carry = neutral();
  for (u64 first = 0; first < tiles; first += WL_BLOCK_THREADS) {
    const u64 tile = first + threadIdx.x;
    const Piece own = tile < tiles ? ((const Piece*)args.tiles)[tile] : neutral();
    Piece all;
    const Piece before = block_before(own, carry, shared, all);
    if (tile < tiles) ((Piece*)args.tiles)[tile] = before;
    carry = all;
  }
}

WL_KERNEL(running_scan, RunningArgs, args) {
  WL_SHARED(RunningShared, shared);
  const u64 rows = bounded_rows(args.count, args.most);
  const u64 tiles = (rows + RUNNING_TILE - 1) / RUNNING_TILE;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Items items = load_items(args, tile, rows);
    Piece all;
    Value value = block_before(piece_of(args, items), ((const Piece*)args.tiles)[tile], shared, all).value;
    const u64 first = tile * RUNNING_TILE + threadIdx.x * RUNNING_ITEMS;
    WL_UNROLL
    for (u32 i = 0; i < RUNNING_ITEMS; ++i) {
      if (i < items.count) {
        const bool begins = (items.begins >> i & 1u) != 0;
        value = begins ? items.values[i] : combine(value, items.values[i]);
        ((Value*)args.values)[first + i] = running_stored(value);
      }
    }
  }
}
