// Radix partition in any order: rows of equal digits end side by side, in whatever order.
//
// What joins need: half the work of the stable `partition.cu`, because a row's rank among its digit's is one atomic in shared
// memory, and a tile reserves its places by one atomic a digit in place of a look-back. Splitting goes from the most
// significant digit on, so that a later pass never has to keep the order of an earlier one (Sioulas et al., ICDE 2019,
// reserve by atomics as well; the tile in shared memory, written out coalesced, is that of `partition.cu`).
//
// One pass takes up to 8 bits of one segment (all rows) or of each of up to 256 segments (the partitions of the pass before):
//   `segment_digits`   how many keys of each segment have each digit;
//   `segment_plan`     from the counts of one segment: where its partitions begin and which tiles they have, as segments;
//   `partition_tile`   the pass itself, for which the first places of all partitions are known by then;
//   `partition_largest` how many rows the largest partitions have.
//
// Who knows the last from a time before needs no counts: each partition gets room for as many rows as the largest has, its
// cursor counts what came, and `partition_ends` says where each begins and ends. A partition that finds no room after all
// ends the pass, and there are no rows then.
//
// Compiled per shape: WL_KEY, WL_HASHED (digits of the key's hash, at every look), WL_HASH_IN (keys are hashed once as they
// are loaded), WL_HASH_OUT (keys that travelled as hashes are turned back as they are written), WL_ITEMS rows a thread,
// WL_COLUMNS, WL_STAGED and WL_ROUNDS as for `partition.cu`.
//
// Launch: `partition_tile` and `segment_digits` one block a tile (and one more a segment, whose last tile is seldom full);
// `segment_plan` one block of 256. Bytes moved: every column read once and written once. 2^27 rows of (u32, u32): 2.15 GB,
// 0.51 ms at 4.2 TB/s (measured on an H200: 0.71, hashed on the way in 0.78; the stable pass takes 0.88 and 0.94); with
// another column 1.09 (1.22). `segment_digits` and the counts before the first pass read every key: 0.14 ms each.

#include "segments.cuh"

// Words between the cursors of one segment, so that no two share a sector.
static const u32 CURSOR_STEP = 8;

// The rows of tile blockIdx.x: of its segment, or of all rows. The threads of a block call together.
WL_DEVICE TileRows rows_of_tile(const PartitionTileArgs& args, TileRows& shared) {
  if (args.segments == 0) {
    const u64 rows = bounded_rows(args.count, args.most), begin = (u64)blockIdx.x * TILE;
    if (begin >= rows) return {0, 0, 0, 0};
    return {(u32)begin, rows - begin < TILE ? (u32)(rows - begin) : TILE, 0, 0};
  }
  return find_tile(args.segments, args.segment_ends, args.tiles, args.segment_count, TILE, shared);
}

struct TileShared {
  // Rows of a digit so far; then what added to a place in the tile gives the place in the output.
  u32 counts[DIGITS];
  // The place in the tile of the digit's first row.
  u32 starts[DIGITS];
  BlockScratch<u32> scratch;
  TileRows tile;
  // The tile in the order of its digits.
  WL_KEY keys[TILE];
  u64 staged[TILE * WL_STAGED / 8 + 1];
};

// Keys as they travel from the first pass over digits of hashes to the last: as their hashes.
template <class Key>
WL_DEVICE Key hashed(Key key) {
  if constexpr (sizeof(Key) <= 8) return (Key)radix_hash(key);
  else return key;
}
template <class Key>
WL_DEVICE Key unhashed(Key key) {
  if constexpr (sizeof(Key) <= 8) return radix_key(key);
  else return key;
}

WL_KERNEL(partition_tile, PartitionTileArgs, args) {
  WL_SHARED(TileShared, shared);
  for (u32 i = threadIdx.x; i < DIGITS; i += WL_BLOCK_THREADS) shared.counts[i] = 0;
  __syncthreads();
  const TileRows tile = rows_of_tile(args, shared.tile);
  const u32 tile_rows = tile.rows;
  if (tile_rows == 0) return;
  const u32 shift = args.shift, mask = args.mask;

  // Items of a lane are 32 apart, so that loads of a warp are contiguous.
  const u32 first = warp_id() * WL_WARP * ITEMS + lane_id();
  const WL_KEY* keys_in = (const WL_KEY*)args.keys_in + tile.begin;
  WL_KEY keys[ITEMS];
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    const u32 at = first + k * WL_WARP;
    keys[k] = at < tile_rows ? keys_in[at] : 0;
  }
  if (WL_HASH_IN) {
    WL_UNROLL
    for (u32 k = 0; k < ITEMS; ++k) keys[k] = hashed(keys[k]);
  }

  // The digit of each item, and its rank among the tile's items of the digit. A digit that all lanes have is counted once.
  u32 places[ITEMS];
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    const bool live = first + k * WL_WARP < tile_rows;
    const u32 digit = radix_digit<WL_HASHED>(keys[k], shift, mask);
    const u32 other = __shfl_sync(WL_FULL_MASK, digit, 0);
    u32 rank = 0;
    if (__all_sync(WL_FULL_MASK, live && digit == other)) {
      if (lane_id() == 0) rank = atomicAdd(shared.counts + digit, (u32)WL_WARP);
      rank = __shfl_sync(WL_FULL_MASK, rank, 0) + lane_id();
    } else if (live) {
      rank = atomicAdd(shared.counts + digit, 1u);
    }
    __syncwarp();
    places[k] = digit << 16 | rank;
  }
  __syncthreads();

  // The first 256 threads stand for the digits of their numbers.
  const u32 digit = threadIdx.x;
  const bool for_digit = digit < DIGITS;
  const u32 total = for_digit ? shared.counts[digit] : 0;
  u32 reserved = 0;
  bool full = false;
  if (total != 0) {
    const u32 partition = tile.segment * (mask + 1) + digit;
    const u32 place = atomicAdd(args.cursors + partition * (args.segments == 0 ? CURSOR_STEP : 1), total);
    full = args.room != 0 && (u64)place + total > args.room;
    reserved = place + (args.room != 0 ? partition * args.room : args.first_places[partition]);
  }
  u32 sum;
  const u32 start = block_scan_exclusive_sum(total, shared.scratch, sum);
  if (for_digit) {
    shared.starts[digit] = start;
    shared.counts[digit] = reserved - start;
  }
  if (__syncthreads_or(full)) {
    if (threadIdx.x == 0) store_relaxed(args.overflow, (u64)1);
    return;
  }
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    places[k] = (places[k] & 0xffffu) + shared.starts[places[k] >> 16];
    if (first + k * WL_WARP < tile_rows) shared.keys[places[k]] = keys[k];
  }

  move_rows(args, shared, shared.counts, tile.begin, first, tile_rows, shift, mask, places, [&](u32 target, WL_KEY key) {
    ((WL_KEY*)args.keys_out)[target] = WL_HASH_OUT ? unhashed(key) : key;
  });
}
