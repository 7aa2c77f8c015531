// Snappy and LZ4 pages of parquet files: a warp a page.
//
// All lanes read the tags; literals and matches are copied by 32 lanes side by side, literals by words. Every read and
// write is checked against the page, so that damaged bytes yield an error for the page and nothing else.
// Launch: any grid of 128-thread blocks, a warp for each page at best.
// Bytes moved: the compressed bytes once, the others written once and read where matches refer to them, mostly from L2. A
// tag costs one dependent read of some 30 cycles and for a match another of 200: pages side by side hide both.
#include "simt.cuh"
#include "parquet.cuh"

// Copies bytes that do not overlap, by words where they are many.
WL_DEVICE void copy_literal(u8* to, const u8* from, u32 bytes) {
  if (bytes < 64) {
    for (u32 i = lane_id(); i < bytes; i += WL_WARP) to[i] = from[i];
    return;
  }
  const u32 head = (4 - ((u32)(u64)to & 3)) & 3;
  if (lane_id() < head) to[lane_id()] = from[lane_id()];
  const u32 words = (bytes - head) / 4;
  u32* out = (u32*)(to + head);
  WL_UNROLL_4
  for (u32 i = lane_id(); i < words; i += WL_WARP) out[i] = read_u32(from + head + i * 4);
  const u32 done = head + words * 4;
  if (done + lane_id() < bytes) to[done + lane_id()] = from[done + lane_id()];
}

// Copies what was written `offset` bytes before; the two may overlap, and the bytes between repeat then.
WL_DEVICE void copy_match(u8* to, u32 offset, u32 bytes) {
  // What other lanes have written is read.
  __syncwarp();
  const u8* from = to - offset;
  if (offset >= bytes) {
    for (u32 i = lane_id(); i < bytes; i += WL_WARP) to[i] = from[i];
  } else {
    for (u32 i = lane_id(); i < bytes; i += WL_WARP) to[i] = from[i % offset];
  }
}

// The raw format of google/snappy: a length, then literals and matches.
WL_DEVICE u32 snappy(const u8* in, u32 in_bytes, u8* out, u32 out_bytes) {
  u32 at = 0, done = 0;
  u64 length = 0;
  for (u32 shift = 0;; shift += 7) {
    if (at >= in_bytes || shift > 28) return PAGE_COMPRESSION;
    const u8 byte = in[at++];
    length |= (u64)(byte & 127) << shift;
    if (byte < 128) break;
  }
  if (length != out_bytes) return PAGE_COMPRESSION;
  while (at < in_bytes) {
    const u64 tag = read_u64(in + at);
    const u32 kind = (u32)tag & 3;
    u32 used, bytes, offset = 0;
    if (kind == 0) {
      u64 literal = (tag >> 2 & 63) + 1;
      used = 1;
      if (literal > 60) {
        const u32 extra = (u32)literal - 60;
        literal = (tag >> 8 & ((1ull << extra * 8) - 1)) + 1;
        used += extra;
      }
      if (used > in_bytes - at || literal > in_bytes - at - used) return PAGE_COMPRESSION;
      bytes = (u32)literal;
    } else {
      used = kind == 1 ? 2 : kind == 2 ? 3 : 5;
      if (used > in_bytes - at) return PAGE_COMPRESSION;
      bytes = kind == 1 ? 4 + ((u32)tag >> 2 & 7) : 1 + ((u32)tag >> 2 & 63);
      offset = kind == 1   ? ((u32)tag & 0xe0) << 3 | ((u32)(tag >> 8) & 255)
               : kind == 2 ? (u32)(tag >> 8) & 0xffff
                           : (u32)(tag >> 8);
      if (offset == 0 || offset > done) return PAGE_COMPRESSION;
    }
    if (bytes > out_bytes - done) return PAGE_COMPRESSION;
    at += used;
    if (kind == 0) {
      copy_literal(out + done, in + at, bytes);
      at += bytes;
    } else {
      copy_match(out + done, offset, bytes);
    }
    done += bytes;
  }
  return done == out_bytes ? 0 : PAGE_COMPRESSION;
}

// Adds bytes to a length of LZ4 that is not complete: false where the stream ends.
WL_DEVICE bool lz4_length(const u8* in, u32 in_bytes, u32& at, u64& length) {
  for (;;) {
    if (at >= in_bytes) return false;
    const u8 byte = in[at++];
    length += byte;
    if (byte < 255) return true;
  }
}

// The block format of LZ4: literals and matches by turns, literals at the end.
WL_DEVICE u32 lz4(const u8* in, u32 in_bytes, u8* out, u32 out_bytes) {
  u32 at = 0, done = 0;
  while (at < in_bytes) {
    const u32 token = in[at++];
    u64 literal = token >> 4;
    if (literal == 15 && !lz4_length(in, in_bytes, at, literal)) return PAGE_COMPRESSION;
    if (literal > in_bytes - at || literal > out_bytes - done) return PAGE_COMPRESSION;
    copy_literal(out + done, in + at, (u32)literal);
    at += (u32)literal;
    done += (u32)literal;
    if (at == in_bytes) break;
    if (in_bytes - at < 2) return PAGE_COMPRESSION;
    const u32 offset = (u32)in[at] | (u32)in[at + 1] << 8;
    at += 2;
    u64 match = token & 15;
    if (match == 15 && !lz4_length(in, in_bytes, at, match)) return PAGE_COMPRESSION;
    match += 4;
    if (offset == 0 || offset > done || match > out_bytes - done) return PAGE_COMPRESSION;
    copy_match(out + done, offset, (u32)match);
    done += (u32)match;
  }
  return done == out_bytes ? 0 : PAGE_COMPRESSION;
}

WL_KERNEL(parquet_decompress, ParquetArgs, args) {
  const u64 warps = (u64)gridDim.x * block_warps();
  for (u64 number = (u64)blockIdx.x * block_warps() + warp_id(); number < args.page_count; number += warps) {
    const ParquetPage& page = args.pages[number];
    if (page.codec == CODEC_NONE) continue;
    u32 error = 0;
    if (page.prefix > page.source_bytes || page.prefix > page.body_bytes) {
      error = PAGE_TRUNCATED;
    } else {
      // Levels of pages of version 2 are not compressed.
      copy_literal(page.body, page.source, page.prefix);
      const u8* in = page.source + page.prefix;
      u8* out = page.body + page.prefix;
      const u32 in_bytes = page.source_bytes - page.prefix, out_bytes = page.body_bytes - page.prefix;
      if (out_bytes > 0 || in_bytes > 0) {
        error = page.codec == CODEC_SNAPPY ? snappy(in, in_bytes, out, out_bytes) : lz4(in, in_bytes, out, out_bytes);
      }
    }
    if (lane_id() == 0) args.results[number].error = error;
    __syncwarp();
  }
}
