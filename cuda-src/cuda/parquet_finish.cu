// What columns go through once all of their pages are decoded: other codes, and bits of rows that the host has decoded.
//
// Apart from the decoding of pages because the two are compiled side by side.
// Launch: any grid of 128-thread blocks; grid-stride, a row a thread.
#include "simt.cuh"
#include "parquet.cuh"

// Codes of another base and width, once the range of the column is known; NULL is 0. Launch: any grid. Bytes moved: both codes.
WL_KERNEL(parquet_narrow, ParquetNarrowArgs, args) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows; row += stride) {
    const bool valid = args.validity == 0 || (args.validity[row / 32] >> row % 32 & 1) != 0;
    u64 code = 0;
    if (valid) {
      if (args.from_width == 1) code = args.codes[row];
      else if (args.from_width == 2) code = ((const u16*)args.codes)[row];
      else if (args.from_width == 4) code = ((const u32*)args.codes)[row];
      else code = ((const u64*)args.codes)[row];
      code += args.shift;
    }
    put_code(args.out, row, args.width, code);
  }
}

// Rows that a block takes at a time: it looks for their chunk once.
static const u32 REMAP_TILE = 16 * WL_BLOCK_THREADS;

// Codes of the chunks' dictionaries to those of the column; NULL is 0. Launch: any grid. Bytes moved: both codes, and a bit a row.
WL_KERNEL(parquet_remap, ParquetRemapArgs, args) {
  if (args.span_count == 0) return;
  const u64 tiles = (args.rows + REMAP_TILE - 1) / REMAP_TILE;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 begin = tile * REMAP_TILE;
    // The last chunk that does not begin behind the tile's first row, or the first one.
    u32 low = 1, high = args.span_count;
    while (low < high) {
      const u32 middle = low + (high - low) / 2;
      if (args.spans[middle].first <= begin) low = middle + 1;
      else high = middle;
    }
    u32 at = low - 1;
    ParquetSpan span = args.spans[at];
    const u64 end = begin + REMAP_TILE < args.rows ? begin + REMAP_TILE : args.rows;
    for (u64 row = begin + threadIdx.x; row < end; row += blockDim.x) {
      while (row >= span.end && at + 1 < args.span_count) span = args.spans[++at];
      if (row < span.first || row >= span.end) continue;
      const bool valid = args.validity == 0 || (args.validity[row / 32] >> row % 32 & 1) != 0;
      const u64 code = valid ? args.codes[row] : 0;
      put_code(args.out, row, args.width, valid ? args.remap[span.remap + code] : 0);
    }
  }
}

// Sets bits of a bitmap from row `first_row` on to those of another, or to one. Launch: any grid.
WL_KERNEL(parquet_validity, ParquetValidityArgs, args) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows; row += stride) {
    if (args.bits != 0 && (args.bits[row / 8] >> row % 8 & 1) == 0) continue;
    const u64 at = args.first_row + row;
    atomicOr(args.validity + at / 32, 1u << at % 32);
  }
}
