// What the kernels over parquet pages share: errors, kinds of values, unaligned reads.
//
// Pages lie anywhere in buffers that are readable from the multiple of 4 bytes before to 16 bytes behind their pages.
#pragma once
#include "simt.cuh"

// What is wrong with a page; the host knows these numbers.
static const u32 PAGE_TRUNCATED = 1;     // its bytes end too early
static const u32 PAGE_COMPRESSION = 2;   // its compressed bytes are no such stream
static const u32 PAGE_LEVELS = 3;        // its definition levels are malformed
static const u32 PAGE_VALUES = 4;        // its values are malformed
static const u32 PAGE_DICTIONARY = 5;    // a code is not in the dictionary
static const u32 PAGE_WIDE = 6;          // a value takes more than 64 bits
static const u32 PAGE_NULLS = 7;         // a NULL where there is no room for any

static const u32 CODEC_NONE = 0;
static const u32 CODEC_SNAPPY = 1;
static const u32 CODEC_LZ4_RAW = 2;

// Encodings by the numbers of the format; PLAIN_DICTIONARY comes as RLE_DICTIONARY, and pages of dictionaries as a
// number of ours.
static const u32 ENCODING_PLAIN = 0;
static const u32 ENCODING_RLE = 3;
static const u32 ENCODING_DELTA = 5;
static const u32 ENCODING_DELTA_LENGTH = 6;
static const u32 ENCODING_DELTA_BYTES = 7;
static const u32 ENCODING_DICTIONARY = 8;
static const u32 ENCODING_SPLIT = 9;
static const u32 ENCODING_NO_DATA = 255;

// Kinds of values.
static const u32 KIND_I32 = 0;
static const u32 KIND_U32 = 1;
static const u32 KIND_I64 = 2;
static const u32 KIND_F32 = 3;
static const u32 KIND_F64 = 4;
static const u32 KIND_FIXED = 5;   // big-endian two's complement of `type_bytes` bytes
static const u32 KIND_CODE = 6;    // the number of a string in the chunk's dictionary
static const u32 KIND_BIT = 7;
static const u32 KIND_BYTES = 8;  // strings as they are
static const u32 KIND_INT96 = 9;  // nanoseconds of a day, and the Julian day in four bytes behind them
static const u32 KIND_PRESENCE = 10;  // no values: is a struct around them there?

// Levels whose length stands in front of them.
static const u32 LEVELS_PREFIXED = 0xffffffffu;

// Four bytes at any address.
WL_DEVICE u32 read_u32(const u8* p) {
  const u32 shift = ((u32)(u64)p & 3) * 8;
  const u32* words = (const u32*)(p - ((u64)p & 3));
  return __funnelshift_r(words[0], words[1], shift);
}

// Eight bytes at any address.
WL_DEVICE u64 read_u64(const u8* p) {
  const u32 shift = ((u32)(u64)p & 3) * 8;
  const u32* words = (const u32*)(p - ((u64)p & 3));
  const u32 middle = words[1];
  return (u64)__funnelshift_r(middle, words[2], shift) << 32 | __funnelshift_r(words[0], middle, shift);
}

// `width` (at most 32) bits from bit `at` behind p.
WL_DEVICE u32 read_bits(const u8* p, u64 at, u32 width) {
  const u64 bits = read_u64(p + at / 8) >> (at & 7);
  return (u32)(bits & ((1ull << width) - 1));
}

// The same of at most 64 bits.
WL_DEVICE u64 read_wide_bits(const u8* p, u64 at, u32 width) {
  if (width == 0) return 0;
  const u32 shift = (u32)(at & 7);
  u64 bits = read_u64(p + at / 8) >> shift;
  if (shift + width > 64) bits |= (u64)p[at / 8 + 8] << (64 - shift);
  return width >= 64 ? bits : bits & ((1ull << width) - 1);
}

// Writes a code of `width` bytes; 0: a bit of a zeroed bitmap.
WL_DEVICE void put_code(u8* data, u64 row, u32 width, u64 code) {
  if (width == 0) {
    if (code != 0) atomicOr((u32*)data + row / 32, 1u << row % 32);
  } else if (width == 1) data[row] = (u8)code;
  else if (width == 2) ((u16*)data)[row] = (u16)code;
  else if (width == 4) ((u32*)data)[row] = (u32)code;
  else ((u64*)data)[row] = code;
}
