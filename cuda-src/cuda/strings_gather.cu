// Strings of chosen rows of an offsets + bytes column, one after the other.
//
// `string_lengths` writes the length of each chosen string; the host sums them up; `copy_strings` copies.
// Launch: any grid of 256-thread blocks; grid-stride, one row a thread for the lengths, 2^`lanes_log2` lanes a string
// for the copy.
// Bytes moved a row: its number (4 or 8), a sector (32 bytes) of offsets at random for each kernel, 4 of length, 8 of
// offset, and the string twice, in words of 8 bytes: 10^7 strings of 25 bytes about 1.7 GB, 0.4 ms at 4.2 TB/s.
#include "simt.cuh"
#include "primitives.cuh"
#include "join.cuh"

WL_DEVICE u64 chosen_row(const GatherStringsArgs& args, u64 i) {
  return args.id_width == 8 ? ((const u64*)args.ids)[i] : ((const u32*)args.ids)[i];
}

// Null rows and rows beyond the number of rows have length 0.
WL_KERNEL(string_lengths, GatherStringsArgs, args) {
  const u64 rows = bounded_rows(args.count, args.most);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.most; i += (u64)gridDim.x * blockDim.x) {
    u32 length = 0;
    if (i < rows && (args.valid == 0 || args.valid[i] != 0)) {
      const u64 row = chosen_row(args, i);
      length = (u32)(args.offsets[row + 1] - args.offsets[row]);
    }
    args.lengths[i] = length;
  }
}

// Eight bytes from any address, by aligned loads of the words that hold them.
WL_DEVICE u64 load_unaligned(const u8* p) {
  const u32 shift = (u32)((u64)p & 7) * 8;
  const u64* words = (const u64*)((u64)p & ~7ull);
  if (shift == 0) return words[0];
  return words[0] >> shift | words[1] << (64 - shift);
}

// Each lane writes aligned words of the output; the words at both ends of a string, which others share, by bytes.
WL_KERNEL(copy_strings, GatherStringsArgs, args) {
  const u32 lanes = 1u << args.lanes_log2;
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u64 strings = ((u64)gridDim.x * blockDim.x) >> args.lanes_log2;
  for (u64 i = thread >> args.lanes_log2; i < args.most; i += strings) {
    const u64 begin = args.out_offsets[i], end = args.out_offsets[i + 1];
    if (begin == end) continue;
    const u8* source = args.data + args.offsets[chosen_row(args, i)];
    for (u64 word = begin / 8 + (thread & (lanes - 1)); word * 8 < end; word += lanes) {
      const u64 low = word * 8 < begin ? begin : word * 8;
      const u64 high = word * 8 + 8 > end ? end : word * 8 + 8;
      const u8* from = source + (low - begin);
      if (high - low == 8) {
        ((u64*)args.out)[word] = load_unaligned(from);
      } else {
        for (u64 b = 0; b < high - low; ++b) args.out[low + b] = from[b];
      }
    }
  }
}
