// Snappy and LZ4 pages of parquet files: a warp a page.
//
// Tags of Snappy, which stand for five bytes on average where strings repeat, are found and copied by a lane each, tags of LZ4 one
// after the other by all lanes, and long literals by words. Every read and write is checked against the page, so that damaged
// bytes yield an error for the page and nothing else.
// Launch: any grid of 128-thread blocks with sizeof(Tags) bytes of shared memory, a warp for each page at best.
// Bytes moved: the compressed bytes once, the others written once and read where matches refer to them, mostly from L1 and L2. A
// warp decompresses 47 MB/s of addresses on an H100, and 4,500 pages of 1 MiB together 112 GB/s.
#include "simt.cuh"
#include "parquet.cuh"
#include "primitives.cuh"

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

// A piece of a snappy stream.
struct SnappyTag {
  // Where the literal's bytes are, and the next tag, counted from the stream's begin.
  u32 from, next;
  // Bytes of output; 0: malformed.
  u32 bytes;
  // How far back a match is; 0: a literal.
  u32 offset;
};

// The tag at byte `at` of the stream, if one begins there.
WL_DEVICE SnappyTag snappy_tag(const u8* in, u32 in_bytes, u32 at) {
  const u64 bits = read_u64(in + at);
  const u32 kind = (u32)bits & 3, left = in_bytes - at;
  SnappyTag tag = {};
  if (kind == 0) {
    u64 literal = (bits >> 2 & 63) + 1;
    u32 used = 1;
    if (literal > 60) {
      const u32 extra = (u32)literal - 60;
      literal = (bits >> 8 & ((1ull << extra * 8) - 1)) + 1;
      used += extra;
    }
    if (used > left || literal > left - used) return tag;
    tag.from = at + used;
    tag.bytes = (u32)literal;
    tag.next = at + used + (u32)literal;
  } else {
    const u32 used = kind == 1 ? 2 : kind == 2 ? 3 : 5;
    const u32 offset = kind == 1   ? ((u32)bits & 0xe0) << 3 | ((u32)(bits >> 8) & 255)
                       : kind == 2 ? (u32)(bits >> 8) & 0xffff
                                   : (u32)(bits >> 8);
    if (used > left || offset == 0) return tag;
    tag.offset = offset;
    tag.bytes = kind == 1 ? 4 + ((u32)bits >> 2 & 7) : 1 + ((u32)bits >> 2 & 63);
    tag.next = at + used;
  }
  return tag;
}

// Copies a tag's bytes, by one lane: eight at a time, as far as they are not repeats of each other.
WL_DEVICE void copy_tag(u8* to, const u8* from, u32 bytes, u32 offset) {
  if (offset - 1 < 7) {
    const u64 word = read_u64(from);
    u32 k = 0;
    WL_NO_UNROLL
    for (u32 i = 0; i < bytes; ++i) {
      to[i] = (u8)(word >> 8 * k);
      k = k + 1 == offset ? 0 : k + 1;
    }
    return;
  }
  WL_NO_UNROLL
  for (u32 i = 0; i < bytes; i += 8) {
    const u64 word = read_u64(from + i);
    const u32 some = bytes - i < 8 ? bytes - i : 8;
    WL_UNROLL
    for (u32 b = 0; b < 8; ++b)
      if (b < some) to[i + b] = (u8)(word >> 8 * b);
  }
}

// The raw format of google/snappy: a length, then literals and matches.
//
// Most tags stand for a few bytes, so a lane takes each. Of the next 64 bytes every one is read as if a tag began there; which of
// them do follows from the first in five rounds, in which steps from tag to tag double (pointer jumping). A match waits until
// what it repeats is there: the lanes that can copy do so, round by round.
WL_DEVICE u32 snappy(const u8* in, u32 in_bytes, u8* out, u32 out_bytes, SnappyTag* tags) {
  u32 at = 0, done = 0;
  u64 length = 0;
  for (u32 shift = 0;; shift += 7) {
    if (at >= in_bytes || shift > 28) return PAGE_COMPRESSION;
    const u8 byte = in[at++];
    length |= (u64)(byte & 127) << shift;
    if (byte < 128) break;
  }
  if (length != out_bytes) return PAGE_COMPRESSION;
  const u32 lane = lane_id(), below = (1u << lane) - 1;
  WL_NO_UNROLL
  while (at < in_bytes) {
    SnappyTag mine[2];
    u32 jump[2];
    WL_UNROLL
    for (u32 h = 0; h < 2; ++h) {
      const u32 place = lane + h * WL_WARP;
      mine[h] = {};
      if (place < in_bytes - at) mine[h] = snappy_tag(in, in_bytes, at + place);
      const u32 next = mine[h].next - at;
      jump[h] = mine[h].bytes != 0 && next < in_bytes - at && next < 2 * WL_WARP ? next : 2 * WL_WARP;
    }
    u32 begins[2] = {1, 0};
    WL_NO_UNROLL
    for (u32 round = 0; round < 5; ++round) {
      u32 reached[2] = {0, 0}, further[2];
      WL_UNROLL
      for (u32 h = 0; h < 2; ++h) {
        if ((begins[h] >> lane & 1) == 0) continue;
        if (jump[h] < WL_WARP) reached[0] |= 1u << jump[h];
        else if (jump[h] < 2 * WL_WARP) reached[1] |= 1u << (jump[h] - WL_WARP);
      }
      begins[0] |= warp_or(reached[0]);
      begins[1] |= warp_or(reached[1]);
      WL_UNROLL
      for (u32 h = 0; h < 2; ++h) {
        const u32 low = __shfl_sync(WL_FULL_MASK, jump[0], (int)(jump[h] & 31));
        const u32 high = __shfl_sync(WL_FULL_MASK, jump[1], (int)(jump[h] & 31));
        further[h] = jump[h] < WL_WARP ? low : jump[h] < 2 * WL_WARP ? high : 2 * WL_WARP;
      }
      jump[0] = further[0];
      jump[1] = further[1];
    }
    // Tags of two bytes at least: no more than lanes.
    const u32 first_half = (u32)__popc(begins[0]), count = first_half + (u32)__popc(begins[1]);
    __syncwarp();
    if (begins[0] >> lane & 1) tags[__popc(begins[0] & below)] = mine[0];
    if (begins[1] >> lane & 1) tags[first_half + (u32)__popc(begins[1] & below)] = mine[1];
    __syncwarp();
    SnappyTag tag = {};
    if (lane < count) tag = tags[lane];
    // A long literal is copied by all lanes; what is behind it has its turn later.
    const u32 longs = __ballot_sync(WL_FULL_MASK, tag.offset == 0 && tag.bytes > WL_WARP);
    const u32 use = longs != 0 ? (u32)__ffs((int)longs) - 1 : count;
    const u32 bytes = lane < use ? tag.bytes : 0;
    const u32 before = warp_scan_exclusive_sum(bytes);
    const u32 total = __shfl_sync(WL_FULL_MASK, before + bytes, WL_WARP - 1);
    const u32 place = done + before;
    const bool malformed = lane < count && (tag.bytes == 0 || (lane < use && tag.offset > place));
    if (__any_sync(WL_FULL_MASK, malformed) || total > out_bytes - done) return PAGE_COMPRESSION;
    // What a match repeats ends here.
    const u32 needed = tag.offset == 0 ? 0 : place - tag.offset + (bytes < tag.offset ? bytes : tag.offset);
    u32 pending = __ballot_sync(WL_FULL_MASK, lane < use);
    WL_NO_UNROLL
    while (pending != 0) {
      const u32 known = __shfl_sync(WL_FULL_MASK, place, __ffs((int)pending) - 1);
      const bool ready = (pending >> lane & 1) != 0 && needed <= known;
      if (ready) copy_tag(out + place, tag.offset == 0 ? in + tag.from : out + place - tag.offset, bytes, tag.offset);
      pending &= ~__ballot_sync(WL_FULL_MASK, ready);
      __syncwarp();
    }
    done += total;
    if (use < count) {
      const u32 literal = __shfl_sync(WL_FULL_MASK, tag.bytes, (int)use);
      const u32 from = __shfl_sync(WL_FULL_MASK, tag.from, (int)use);
      if (literal > out_bytes - done) return PAGE_COMPRESSION;
      copy_literal(out + done, in + from, literal);
      done += literal;
      at = from + literal;
    } else {
      at = __shfl_sync(WL_FULL_MASK, tag.next, (int)count - 1);
    }
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

// The tags that a warp copies.
struct Tags {
  SnappyTag tags[WL_BLOCK_THREADS / WL_WARP][WL_WARP];
};

WL_KERNEL(parquet_decompress, ParquetArgs, args) {
  WL_SHARED(Tags, shared);
  SnappyTag* const tags = shared.tags[warp_id()];
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
        error = page.codec == CODEC_SNAPPY ? snappy(in, in_bytes, out, out_bytes, tags) : lz4(in, in_bytes, out, out_bytes);
      }
    }
    if (lane_id() == 0) args.results[number].error = error;
    __syncwarp();
  }
}
