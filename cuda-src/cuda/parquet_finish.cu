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

// Codes of the chunks' dictionaries to those of the column; NULL is 0. Launch: any grid.
WL_KERNEL(parquet_remap, ParquetRemapArgs, args) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows; row += stride) {
    const bool valid = args.validity == 0 || (args.validity[(args.first_row + row) / 32] >> (args.first_row + row) % 32 & 1) != 0;
    const u64 code = valid ? args.codes[args.first_row + row] : 0;
    put_code(args.out, args.first_row + row, args.width, valid ? args.remap[code] : 0);
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
