// Tiles of rows that lie in segments: each tile has rows of one segment alone; `segment_plan` (`partition_segments.cu`) numbers
// them.
#pragma once
#include "simt.cuh"

// The rows of a block: part of one segment.
struct TileRows {
  u32 begin;
  u32 rows;
  u32 segment;
  u32 padding;
};

// The rows of tile blockIdx.x, of `tile` rows at most; none where there are fewer tiles. Segment s has the rows from begins[s]
// to before ends[s] and the tiles from tiles[s] to before tiles[s + 1]. The threads of a block call together, no fewer than
// there are segments.
WL_DEVICE TileRows find_tile(const u32* begins, const u32* ends, const u32* tiles, u32 segments, u32 tile, TileRows& shared) {
  if (threadIdx.x == 0) shared.rows = 0;
  __syncthreads();
  const u32 segment = threadIdx.x;
  if (segment < segments) {
    const u32 first = tiles[segment];
    if (first <= blockIdx.x && blockIdx.x < tiles[segment + 1]) {
      const u32 begin = begins[segment] + (blockIdx.x - first) * tile, left = ends[segment] - begin;
      shared.begin = begin;
      shared.segment = segment;
      shared.rows = left < tile ? left : tile;
    }
  }
  __syncthreads();
  return shared;
}
