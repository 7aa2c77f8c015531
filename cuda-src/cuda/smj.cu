// Join of two sorted sides by Merge Path (Green, McColl and Bader 2012; A3, D4).
//
// Both sides are walked together, build rows before equal probe rows, and the walk is cut into tiles of SMJ_TILE rows
// whatever the keys are: `smj_split` finds the cuts by binary search, a thread a cut. In a tile lie the probe rows and every
// build row behind which they come, but for one before: the last build row not greater than a probe row ends its
// run of matches (the upper bound), and where builds are unique it is all of it. With duplicates a second search finds the
// run's beginning, beyond the tile if need be. Runs are written a warp together; long ones are left to `smj_long`,
// which shares them between all blocks.
//
// Launch: `smj_split` and `smj_long` any grid, `smj_join` one block a tile.
// Bytes moved: keys of both sides once, 8 a pair and 4 a pair for each side with row numbers: 2^27 rows of 4-byte keys
// on both sides with one match each 2.1 GB, 0.51 ms at 4.2 TB/s. Measured on an H200: 1.1 ms, of 3 % matches 0.8, not
// known to be unique 1.4, 8-byte keys 1.3; 2^26 rows on both sides with 2^24 keys, 290 million pairs, 1.65.
#include "pairs.cuh"

static const u32 SMJ_ITEMS = 8;
static const u32 SMJ_ROUND = WL_BLOCK_THREADS * SMJ_ITEMS;
static const u32 SMJ_NONE = 0xFFFFFFFFu;
// Longer runs are left to smj_long, in pieces of this length.
static const u32 SMJ_LONG = 4096;

struct SmjShared {
  // The build rows of the tile, the one before them first.
  PairKey keys[SMJ_TILE + 1];
  ReserveScratch reserve;
  u32 run_begin;
};

// The build rows that lie before walk step `at`: as many as are not greater than the probe rows before it.
WL_DEVICE u64 smj_cut(const PairKey* build, u64 build_rows, const PairKey* probe, u64 probe_rows, u64 at) {
  u64 low = at > probe_rows ? at - probe_rows : 0;
  u64 high = at < build_rows ? at : build_rows;
  while (low < high) {
    const u64 middle = low + (high - low) / 2;
    // build[middle] comes first when it is not greater.
    if (!key_less(probe[at - 1 - middle], build[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The cuts of the tiles, one more than tiles.
WL_KERNEL(smj_split, SmjArgs, args) {
  const u64 build_rows = bounded_rows(args.build_count, args.build_most);
  const u64 probe_rows = bounded_rows(args.probe_count, args.probe_most);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i <= args.tiles; i += (u64)gridDim.x * blockDim.x) {
    u64 at = i * SMJ_TILE;
    if (at > build_rows + probe_rows) at = build_rows + probe_rows;
    args.cuts[i] = (u32)smj_cut((const PairKey*)args.build_keys, build_rows, (const PairKey*)args.probe_keys, probe_rows, at);
  }
}

// Of keys[low .. high] in order, the first place whose key is greater than `key` (or, `equal`, not less), `high` if none.
WL_DEVICE u32 smj_bound(const PairKey* keys, u32 low, u32 high, PairKey key, bool equal) {
  while (low < high) {
    const u32 middle = low + (high - low) / 2;
    const bool before = equal ? key_less(keys[middle], key) : !key_less(key, keys[middle]);
    if (before) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The first of the build rows 0 .. high whose key is not less than `key`; 32 lanes look together.
WL_DEVICE u32 smj_run_begin(const PairKey* keys, u32 high, PairKey key) {
  u64 low = 0, end = high;
  while (low < end) {
    const u64 step = (end - low + WL_WARP - 1) / WL_WARP;
    const u64 at = low + lane_id() * step;
    const u32 before = (u32)__popc(__ballot_sync(WL_FULL_MASK, at < end && key_less(keys[at], key)));
    if (before == 0) break;
    const u64 last = low + (u64)(before - 1) * step;
    if (last + step < end) end = last + step;
    low = last + 1;
  }
  return (u32)low;
}

// A piece of a long run, for smj_long: `length` build rows from `begin` on with probe row `row`, written from `to` on.
struct SmjPiece {
  u64 to;
  u32 begin, length, row, padding;
};

// A pair of a row with build place `place`.
WL_DEVICE void smj_pair(const SmjArgs& args, const PairSpan& out, u32 to, u32 place, u32 row) {
  const u32 entry = number_of(args.build_numbers, place);
  write_pair(out, to, entry, row);
  if (args.marks != 0) wl_set_bit(args.marks, entry);
}

// Leaves a run to smj_long, as far as there is room for its pairs.
WL_DEVICE void smj_put_off(const SmjArgs& args, u32 begin, u32 length, u32 row) {
  u64 to = atomicAdd(args.pairs, (u64)length);
  SmjPiece* pieces = (SmjPiece*)args.pieces;
  while (length > 0 && to < args.capacity) {
    const u32 part = length < SMJ_LONG ? length : SMJ_LONG;
    const u64 piece = atomicAdd(args.piece_count, (u64)1);
    if (piece < args.most_pieces) pieces[piece] = {to, begin, part, row, 0};
    to += part;
    begin += part;
    length -= part;
  }
}

// Writes the pairs of the rows of a warp: of a lane its row `row` with the build rows begin .. begin + length, `before`
// of the lanes before it, from `to` on. SMJ_NONE as begin: a row without match, length 1.
WL_DEVICE void smj_expand(const SmjArgs& args, const PairSpan& out, u32 to, u32 before, u32 total, u32 begin, u32 row) {
  for (u32 item = 0; item < total; item += WL_WARP) {
    const u32 j = item + lane_id();
    const u32 lane = lane_of_item(before, j);
    const u32 start = __shfl_sync(WL_FULL_MASK, before, (int)lane);
    const u32 its_begin = __shfl_sync(WL_FULL_MASK, begin, (int)lane);
    const u32 its_row = __shfl_sync(WL_FULL_MASK, row, (int)lane);
    if (j >= total) continue;
    if (its_begin == SMJ_NONE) write_pair(out, to + j, WL_NO_ENTRY, its_row);
    else smj_pair(args, out, to + j, its_begin + (j - start), its_row);
  }
}

// Marks the build rows of the runs of a warp's rows.
WL_DEVICE void smj_mark(const SmjArgs& args, u32 begin, u32 length) {
  for (u32 lane = 0; lane < WL_WARP; ++lane) {
    const u32 its_begin = __shfl_sync(WL_FULL_MASK, begin, (int)lane);
    const u32 its_length = __shfl_sync(WL_FULL_MASK, length, (int)lane);
    for (u32 i = lane_id(); i < its_length; i += WL_WARP) {
      wl_set_bit(args.marks, number_of(args.build_numbers, its_begin + i));
    }
  }
}

WL_KERNEL(smj_join, SmjArgs, args) {
  WL_SHARED(SmjShared, shared);
  const PairKey* build = (const PairKey*)args.build_keys;
  const PairKey* probe = (const PairKey*)args.probe_keys;
  const u64 all = bounded_rows(args.build_count, args.build_most) + bounded_rows(args.probe_count, args.probe_most);
  const u64 tile_begin = (u64)blockIdx.x * SMJ_TILE;
  if (tile_begin >= all) return;
  const u64 tile_end = all - tile_begin < SMJ_TILE ? all : tile_begin + SMJ_TILE;
  const u32 build_begin = args.cuts[blockIdx.x], build_end = args.cuts[blockIdx.x + 1];
  const u32 probe_begin = (u32)(tile_begin - build_begin), probe_end = (u32)(tile_end - build_end);
#if SMJ_UNIQUE
  const bool look = args.duplicate != 0;
#else
  const bool look = false;
#endif
  if (probe_begin == probe_end && !look) return;
  // The build row that keys[0] is of.
  const u32 origin = build_begin == 0 ? 0 : build_begin - 1;
  const u32 rows = build_end - origin;
  for (u32 i = threadIdx.x; i < rows; i += WL_BLOCK_THREADS) shared.keys[i] = build[(u64)origin + i];
#if !SMJ_UNIQUE
  // The beginning of the run that reaches into the tile, when a row of the tile asks for it.
  if (warp_id() == 0) {
    u32 begin = origin;
    if (origin > 0) {
      const PairKey key = build[origin];
      if (key_equal(probe[probe_begin], key) && key_equal(build[origin - 1], key)) begin = smj_run_begin(build, origin, key);
    }
    if (lane_id() == 0) shared.run_begin = begin;
  }
#endif
  __syncthreads();
  if (look) {
    // Every two neighbours lie in one tile together.
    bool twice = false;
    for (u32 i = threadIdx.x + 1; i < rows; i += WL_BLOCK_THREADS) {
      twice = twice || (key_equal(shared.keys[i - 1], shared.keys[i]) && !key_none(shared.keys[i]));
    }
    if (twice) store_relaxed(args.duplicate, (u64)1);
  }
  for (u64 base = probe_begin; base < probe_end; base += SMJ_ROUND) {
    const u64 warp_first = base + warp_id() * WL_WARP * SMJ_ITEMS;
    const u64 at = warp_first + lane_id();
    PairKey key[SMJ_ITEMS];
    WL_UNROLL
    for (u32 k = 0; k < SMJ_ITEMS; ++k) {
      if (at + k * WL_WARP < probe_end) key[k] = probe[at + k * WL_WARP];
    }
    // Bounds of every 32nd row, between which those of the rows lie.
    const u64 edge = warp_first + lane_id() * WL_WARP;
    u32 edge_upper = rows, edge_lower = rows;
    if (lane_id() <= SMJ_ITEMS && edge < probe_end) {
      const PairKey edge_key = probe[edge];
      edge_upper = smj_bound(shared.keys, 0, rows, edge_key, false);
#if !SMJ_UNIQUE
      edge_lower = smj_bound(shared.keys, 0, edge_upper, edge_key, true);
#endif
    }
    __syncwarp();
    u32 live = 0;
    // The first build place of a row's run, and the run's length.
    u32 begin[SMJ_ITEMS], length[SMJ_ITEMS];
    WL_UNROLL
    for (u32 k = 0; k < SMJ_ITEMS; ++k) {
      const u32 low = __shfl_sync(WL_FULL_MASK, edge_upper, (int)k);
      const u32 high = __shfl_sync(WL_FULL_MASK, edge_upper, (int)k + 1);
      const u32 lower = SMJ_UNIQUE ? 0 : __shfl_sync(WL_FULL_MASK, edge_lower, (int)k);
      begin[k] = SMJ_NONE;
      length[k] = 1;
      if (at + k * WL_WARP >= probe_end) continue;
      const u32 upper = smj_bound(shared.keys, low, high, key[k], false);
      const bool hit = upper > 0 && key_equal(shared.keys[upper - 1], key[k]) && !key_none(key[k]);
      if (hit) {
        begin[k] = origin + upper - 1;
#if !SMJ_UNIQUE
        if (upper == 1) begin[k] = shared.run_begin;
        else if (key_equal(shared.keys[upper - 2], key[k])) {
          const u32 first = smj_bound(shared.keys, lower, upper - 1, key[k], true);
          begin[k] = first == 0 ? shared.run_begin : origin + first;
        }
        length[k] = origin + upper - begin[k];
#endif
      }
      if ((args.kind & (hit ? PAIR_MATCHED : PAIR_UNMATCHED)) != 0) live |= 1u << k;
    }
    __syncwarp();
    const bool entries = (args.kind & PAIR_ENTRIES) != 0;
    if (args.marks != 0 && !entries) {
      WL_UNROLL
      for (u32 k = 0; k < SMJ_ITEMS; ++k) {
        const u64 row = at + k * WL_WARP;
        // The first row of a key in the tile marks for the others.
        const bool first = row < probe_end && begin[k] != SMJ_NONE &&
                           (row == probe_begin || !key_equal(probe[row - 1], key[k]));
        __syncwarp();
        smj_mark(args, begin[k], first ? length[k] : 0);
      }
    }
    bool several = false;
#if !SMJ_UNIQUE
    WL_UNROLL
    for (u32 k = 0; k < SMJ_ITEMS; ++k) several = several || length[k] > 1;
    // Runs of one row, as most are in many joins, need no sharing out.
    several = entries && __syncthreads_or(several);
#endif
    if (!several) {
      u32 pairs = 0;
      WL_UNROLL
      for (u32 k = 0; k < SMJ_ITEMS; ++k) pairs += (u32)__popc(__ballot_sync(WL_FULL_MASK, (live >> k & 1u) != 0));
      const PairSpan out = pair_span(args.entries, args.rows, args.capacity, block_reserve_warps(pairs, args.pairs, shared.reserve));
      u32 place = 0;
      WL_UNROLL
      for (u32 k = 0; k < SMJ_ITEMS; ++k) {
        const u32 votes = __ballot_sync(WL_FULL_MASK, (live >> k & 1u) != 0);
        if ((live >> k & 1u) != 0) {
          const u32 row = number_of(args.probe_numbers, (u32)at + k * WL_WARP);
          const u32 to = place + (u32)__popc(votes & ((1u << lane_id()) - 1u));
          if (entries && begin[k] != SMJ_NONE) smj_pair(args, out, to, begin[k], row);
          else write_pair(out, to, WL_NO_ENTRY, row);
        }
        place += (u32)__popc(votes);
      }
      continue;
    }
    u32 before[SMJ_ITEMS];
    u32 pairs = 0;
    WL_UNROLL
    for (u32 k = 0; k < SMJ_ITEMS; ++k) {
      if ((live >> k & 1u) != 0 && length[k] > SMJ_LONG) {
        smj_put_off(args, begin[k], length[k], number_of(args.probe_numbers, (u32)at + k * WL_WARP));
        live &= ~(1u << k);
      }
      __syncwarp();
      length[k] = (live >> k & 1u) != 0 ? length[k] : 0;
      before[k] = warp_scan_exclusive_sum(length[k]);
      pairs += __shfl_sync(WL_FULL_MASK, before[k] + length[k], WL_WARP - 1);
    }
    const PairSpan out = pair_span(args.entries, args.rows, args.capacity, block_reserve_warps(pairs, args.pairs, shared.reserve));
    u32 place = 0;
    WL_UNROLL
    for (u32 k = 0; k < SMJ_ITEMS; ++k) {
      const u32 total = __shfl_sync(WL_FULL_MASK, before[k] + length[k], WL_WARP - 1);
      const u32 row = (live >> k & 1u) != 0 ? number_of(args.probe_numbers, (u32)at + k * WL_WARP) : 0;
      __syncwarp();
      smj_expand(args, out, place, before[k], total, begin[k], row);
      place += total;
    }
  }
}

// The long runs, piece by piece.
WL_KERNEL(smj_long, SmjArgs, args) {
  const SmjPiece* pieces = (const SmjPiece*)args.pieces;
  const u64 count = *args.piece_count < args.most_pieces ? *args.piece_count : args.most_pieces;
  for (u64 i = blockIdx.x; i < count; i += gridDim.x) {
    const SmjPiece piece = pieces[i];
    const PairSpan out = pair_span(args.entries, args.rows, args.capacity, piece.to);
    for (u32 j = threadIdx.x; j < piece.length; j += blockDim.x) smj_pair(args, out, j, piece.begin + j, piece.row);
  }
}
