// One pass of a stable radix partition: rows (a key and payload columns) move into up to 256 partitions.
//
// "Onesweep" (Adinets and Merrill 2022): each tile ranks its rows by digit once, publishes how many it has of
// each, finds the rows before it by look-back over earlier tiles, and writes every column through shared
// memory, so that rows of one digit lie side by side in it and are written coalesced. Tiles are taken by ticket:
// a tile only waits for tiles that have begun.
// The look-back reads WL_WINDOW earlier tiles at a time, because its length is what latency times tiles in flight
// make of it, and a step costs a round trip to L2.
//
// Equal digits of a warp are found by an atomic OR into a word of shared memory a digit, which beats votes by bit
// (0.86 against 0.94 ms for 2^27 rows of 8 bytes) except where all 32 digits are equal, which is looked for first.
//
// Compiled per shape: WL_KEY (u32, u64, u128), WL_HASHED (digits of the hash), WL_STATE (u32 below 2^30 rows, else
// u64), WL_ITEMS rows a thread, WL_COLUMNS(X) one X(number, type, round, offset) a payload column. Columns of a round
// are staged together, each from `offset` bytes a row on, WL_STAGED bytes a row at most; WL_ROUNDS rounds.
//
// Launch: one block of WL_BLOCK_THREADS (256 or more) a tile of WL_ITEMS * WL_BLOCK_THREADS rows; two blocks fit on a
// multiprocessor, or one of twice the threads. What bounds it is shared memory: some 14 accesses a row, half of them at
// random banks. Registers spilled cost a quarter: WL_ITEMS is the most that needs none.
// Bytes moved: every column read once and written once, plus 1 KiB of counts a tile. 2^27 rows of (u32, u32): 2.15 GB,
// 0.51 ms at 4.2 TB/s (measured on an H200: 0.89); (u32, u32, u32): 3.2 GB, 0.77 ms (1.25); with four 1.0 ms (1.54).

#ifndef WL_WINDOW
#define WL_WINDOW 8
#endif

static const u32 WARPS = WL_BLOCK_THREADS / WL_WARP;

// A tile's word for a digit: nothing yet (0), its count, or the first place behind its rows of the digit.
static const WL_STATE STATE_COUNT = (WL_STATE)1 << (sizeof(WL_STATE) * 8 - 2);
static const WL_STATE STATE_PLACE = (WL_STATE)2 << (sizeof(WL_STATE) * 8 - 2);
static const WL_STATE STATE_VALUE = STATE_COUNT - 1;

struct PartitionShared {
  // Rows of a digit in the warp so far; then the place in the tile of the warp's first.
  u16 warp_counts[WARPS][DIGITS];
  // What added to a place in the tile gives the place in the output.
  u32 output_start[DIGITS];
  BlockScratch<u32> scratch;
  u32 tile;
  u32 padding[3];
  union {
    // Lanes of the warp with a digit; all zero between two items.
    u32 lanes[WARPS][DIGITS];
    // The tile in the order of its digits.
    WL_KEY keys[TILE];
  };
  u64 staged[TILE * WL_STAGED / 8 + 1];
};

// Rows of a digit before this tile, which is not the first.
WL_DEVICE u32 look_back(const WL_STATE* states, u64 tile) {
  u32 before = 0;
  u64 look = tile;
  for (;;) {
    WL_STATE seen[WL_WINDOW];
    WL_UNROLL
    for (u32 w = 0; w < WL_WINDOW; ++w) seen[w] = w < look ? load_relaxed(states + (look - 1 - w) * DIGITS) : 0;
    u32 used = 0;
    bool waiting = false;
    WL_UNROLL
    for (u32 w = 0; w < WL_WINDOW; ++w) {
      waiting = waiting || seen[w] == 0;
      if (waiting) continue;
      before += (u32)(seen[w] & STATE_VALUE);
      ++used;
      if ((seen[w] & STATE_PLACE) != 0) return before;
    }
    look -= used;
    if (used == 0) spin_pause(20);
  }
}

WL_KERNEL(partition_pass, PartitionPassArgs, args) {
  WL_SHARED(PartitionShared, shared);
  const u64 rows = bounded_rows(args.count, args.most);
  if (threadIdx.x == 0) shared.tile = atomicAdd(args.ticket, 1u);
  u16* counts = shared.warp_counts[warp_id()];
  u32* lanes = shared.lanes[warp_id()];
  WL_UNROLL
  for (u32 i = lane_id(); i < DIGITS; i += WL_WARP) {
    counts[i] = 0;
    lanes[i] = 0;
  }
  __syncthreads();
  const u64 tile = shared.tile;
  const u64 begin = tile * TILE;
  if (begin >= rows) return;
  const u32 tile_rows = rows - begin < TILE ? (u32)(rows - begin) : TILE;
  const u32 shift = args.shift, mask = args.mask;

  // Items of a lane are 32 apart, so that loads of a warp are contiguous and its order is that of the rows.
  const u32 first = warp_id() * WL_WARP * ITEMS + lane_id();
  const WL_KEY* keys_in = (const WL_KEY*)args.keys_in + begin;
  WL_KEY keys[ITEMS];
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    const u32 at = first + k * WL_WARP;
    if (at < tile_rows) keys[k] = keys_in[at];
  }

  // The digit of each item, and its place among the warp's items of the digit. What lies behind the last row counts
  // as rows of the last digit: they come last in the tile.
  u32 places[ITEMS];
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    const u32 digit = first + k * WL_WARP < tile_rows ? radix_digit<WL_HASHED>(keys[k], shift, mask) : mask;
    u32 same = WL_FULL_MASK;
    if (!__all_sync(WL_FULL_MASK, digit == __shfl_sync(WL_FULL_MASK, digit, 0))) {
      atomicOr(lanes + digit, 1u << lane_id());
      __syncwarp();
      same = lanes[digit];
      __syncwarp();
      lanes[digit] = 0;
    }
    const u32 before = (u32)__popc(same & ((1u << lane_id()) - 1u));
    const u32 count = counts[digit];
    __syncwarp();
    if (before == 0) counts[digit] = (u16)(count + (u32)__popc(same));
    __syncwarp();
    places[k] = digit << 16 | (count + before);
  }
  __syncthreads();

  // From here the first 256 threads stand for the digits of their numbers.
  const u32 digit = threadIdx.x;
  const bool for_digit = digit < DIGITS;
  WL_STATE* states = (WL_STATE*)args.states + digit;
  u32 of_warp[WARPS];
  u32 total = 0;
  if (for_digit) {
    WL_UNROLL
    for (u32 w = 0; w < WARPS; ++w) {
      of_warp[w] = shared.warp_counts[w][digit];
      total += of_warp[w];
    }
  }
  const u32 published = total - (digit == mask ? TILE - tile_rows : 0);
  if (for_digit && tile != 0) store_relaxed(states + tile * DIGITS, STATE_COUNT | published);
  u32 sum;
  const u32 tile_start = block_scan_exclusive_sum(total, shared.scratch, sum);
  u32 before = 0;
  // All rows of smaller digits come before the first tile.
  if (tile == 0) before = block_scan_exclusive_sum(for_digit ? args.histogram[digit] : 0, shared.scratch, sum);
  if (for_digit) {
    if (tile == 0) store_relaxed(states, STATE_PLACE | (before + published));
    u32 running = tile_start;
    WL_UNROLL
    for (u32 w = 0; w < WARPS; ++w) {
      shared.warp_counts[w][digit] = (u16)running;
      running += of_warp[w];
    }
  }
  __syncthreads();
  if (for_digit) {
    if (tile != 0) {
      before = look_back(states, tile);
      store_relaxed(states + tile * DIGITS, STATE_PLACE | (before + published));
    }
    shared.output_start[digit] = before - tile_start;
  }
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    places[k] = (places[k] & 0xffffu) + counts[places[k] >> 16];
    if (first + k * WL_WARP < tile_rows) shared.keys[places[k]] = keys[k];
  }

  move_rows(args, shared, shared.output_start, begin, first, tile_rows, shift, mask, places, [&](u32 target, WL_KEY key) {
    if (args.keys_out != 0) ((WL_KEY*)args.keys_out)[target] = key;
  });
}
