// Copies many runs of bytes in one launch: partitions that lie in pieces, in device memory or, across the link, in host memory.
//
// A copy engine needs microseconds for each copy, in which the link carries more than 100 KB; here only the bytes count. A
// block takes a piece of a run at a time, and pieces begin at lines of the source, so that whole lines of 128 bytes cross the
// link (Min et al., "EMOGI", VLDB 2020: aligned reads of whole lines reach the bandwidth of the copy engine).
//
// Launch: any grid. Every thread has COPY_ITEMS loads of up to 16 bytes under way: 64 KiB a block of 512 threads, so that
// across the link a few blocks are enough, and leave the device to kernels beside them.
// Bytes moved: every byte once each way; 1 GB 18 ms at 55 GB/s, in device memory 0.5 ms at 4.2 TB/s.
#include "simt.cuh"
#include "primitives.cuh"

static const u32 COPY_ITEMS = 8;
static const u64 COPY_LINE = 128;

// What `copy_runs` finds of a run, in words: its source, its target, its bytes, and its first piece.
static const u32 RUN_WORDS = 4;

// Copies `bytes` bytes between addresses that are alike in their lowest bits, up to WORDS words of 4 bytes.
template <u32 WORDS>
WL_DEVICE void copy_words(const u8* from, u8* to, u64 bytes) {
  const u32 width = WORDS * 4;
  u64 head = (width - (u32)((u64)from % width)) % width;
  if (head > bytes) head = bytes;
  for (u64 i = threadIdx.x; i < head; i += blockDim.x) to[i] = from[i];
  from += head;
  to += head;
  bytes -= head;
  // Lanes take words from the begin of a line on.
  const u64 lead = (u64)from % COPY_LINE / width;
  const u64 words = lead + bytes / width;
  for (u64 base = 0; base < words; base += (u64)blockDim.x * COPY_ITEMS) {
    u32 word[COPY_ITEMS][WORDS];
    WL_UNROLL
    for (u32 k = 0; k < COPY_ITEMS; ++k) {
      const u64 i = base + k * blockDim.x + threadIdx.x;
      if (i >= lead && i < words) load_vec_stream((const u32*)(from + (i - lead) * width), word[k]);
    }
    WL_UNROLL
    for (u32 k = 0; k < COPY_ITEMS; ++k) {
      const u64 i = base + k * blockDim.x + threadIdx.x;
      if (i >= lead && i < words) store_vec((u32*)(to + (i - lead) * width), word[k]);
    }
  }
  const u64 rest = bytes / width * width;
  for (u64 i = rest + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

WL_KERNEL(copy_runs, CopyRunsArgs, args) {
  for (u64 piece = blockIdx.x; piece < args.pieces; piece += gridDim.x) {
    // The last run that begins with this piece or an earlier one.
    u64 low = 0, high = args.runs;
    while (high - low > 1) {
      const u64 middle = low + (high - low) / 2;
      if (args.table[middle * RUN_WORDS + 3] <= piece) low = middle;
      else high = middle;
    }
    const u64* run = args.table + low * RUN_WORDS;
    const u64 lead = run[0] % COPY_LINE;
    const u64 number = piece - run[3];
    const u64 begin = number == 0 ? 0 : number * args.piece_bytes - lead;
    const u64 next = (number + 1) * args.piece_bytes - lead;
    const u64 end = next < run[2] ? next : run[2];
    const u8* from = (const u8*)run[0] + begin;
    u8* to = (u8*)run[1] + begin;
    const u64 apart = run[0] ^ run[1];
    if (apart % 16 == 0) copy_words<4>(from, to, end - begin);
    else if (apart % 8 == 0) copy_words<2>(from, to, end - begin);
    else if (apart % 4 == 0) copy_words<1>(from, to, end - begin);
    else for (u64 i = threadIdx.x; i < end - begin; i += blockDim.x) to[i] = from[i];
  }
}
