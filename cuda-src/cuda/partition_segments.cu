// What a radix partition in any order counts before, between and after its passes; see `partition_unstable.cu`.
//
// Compiled per WL_KEY (u32, u64, u128) and WL_HASHED (digits of the hash).
#include "simt.cuh"
#include "primitives.cuh"
#include "radix.cuh"
#include "segments.cuh"

static const u32 DIGITS = 256;
// Keys of a thread.
static const u32 ITEMS = SEGMENT_TILE / WL_BLOCK_THREADS;

struct SegmentDigitsShared {
  u32 counts[DIGITS];
  TileRows tile;
};

// counts[segment * digits + digit] += keys of the segment with the digit.
WL_KERNEL(segment_digits, SegmentDigitsArgs, args) {
  WL_SHARED(SegmentDigitsShared, shared);
  if (threadIdx.x < DIGITS) shared.counts[threadIdx.x] = 0;
  // Segments lie side by side: each ends where the next begins.
  const TileRows tile =
      find_tile(args.segments, args.segments + 1, args.tiles, args.segment_count, SEGMENT_TILE, shared.tile);
  const u32 rows = tile.rows;
  if (rows == 0) return;
  const WL_KEY* in = (const WL_KEY*)args.keys + tile.begin;
  WL_KEY keys[ITEMS];
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    const u32 at = threadIdx.x + k * WL_BLOCK_THREADS;
    if (at < rows) keys[k] = in[at];
  }
  WL_UNROLL
  for (u32 k = 0; k < ITEMS; ++k) {
    if (threadIdx.x + k * WL_BLOCK_THREADS < rows) {
      atomicAdd(shared.counts + radix_digit<WL_HASHED>(keys[k], args.shift, args.mask), 1u);
    }
  }
  __syncthreads();
  if (threadIdx.x <= args.mask && shared.counts[threadIdx.x] != 0) {
    atomicAdd(args.counts + tile.segment * (args.mask + 1) + threadIdx.x, shared.counts[threadIdx.x]);
  }
}

struct SegmentPlanShared {
  BlockScratch<u32> scratch;
};

// The partitions of one digit as segments: first places, and the first tile of each, for tiles of two sizes. One block.
WL_KERNEL(segment_plan, SegmentPlanArgs, args) {
  WL_SHARED(SegmentPlanShared, shared);
  const u32 digit = threadIdx.x;
  const bool apart = args.room != 0, lost = apart && *args.overflow != 0;
  const u32 rows = digit < args.digits && !lost ? args.counts[digit * args.step] : 0;
  u32 all, all_tiles, all_counted;
  const u32 begin = block_scan_exclusive_sum(rows, shared.scratch, all);
  const u32 tile = block_scan_exclusive_sum((rows + args.tile - 1) / args.tile, shared.scratch, all_tiles);
  const u32 counted = block_scan_exclusive_sum((rows + SEGMENT_TILE - 1) / SEGMENT_TILE, shared.scratch, all_counted);
  if (digit < args.digits) {
    args.segments[digit] = apart ? digit * args.room : begin;
    if (apart) args.segment_ends[digit] = digit * args.room + rows;
    args.tiles[digit] = tile;
    args.counted_tiles[digit] = counted;
  }
  if (digit == 0) {
    if (!apart) args.segments[args.digits] = all;
    args.tiles[args.digits] = all_tiles;
    args.counted_tiles[args.digits] = all_counted;
  }
}

// Where partitions begin and end that have room of their own. Any grid; 12 bytes a partition.
WL_KERNEL(partition_ends, PartitionEndsArgs, args) {
  const bool lost = *args.overflow != 0;
  for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < args.partitions; p += (u64)gridDim.x * blockDim.x) {
    const u32 begin = (u32)p * args.room;
    args.begins[p] = begin;
    args.ends[p] = begin + (lost ? 0 : args.cursors[p * args.step]);
  }
}

WL_DEVICE void raise(u32* largest, u32 rows) {
  if (rows > load_relaxed(largest)) atomicMax(largest, rows);
}

// The most rows of a partition, and of a run of neighbours. Any grid; 4 bytes a partition.
WL_KERNEL(partition_largest, PartitionLargestArgs, args) {
  for (u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x; p < args.partitions; p += (u64)gridDim.x * blockDim.x) {
    const u32 begin = args.offsets[p];
    raise(args.largest, args.offsets[p + 1] - begin);
    if ((p & (args.neighbours - 1)) == 0) raise(args.largest + 1, args.offsets[p + args.neighbours] - begin);
  }
}
