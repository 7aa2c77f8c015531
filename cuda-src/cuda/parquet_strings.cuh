// Strings of parquet pages: where each begins, and copies of them to their place, checked as UTF-8 where they are text.
//
// Of a page each value has an entry of 64 bits: where its bytes begin, counted from the page's, and in the high half how
// many they are. Of DELTA_BYTE_ARRAY the low half is how many it has in common with the value before.
#pragma once
#include "simt.cuh"
#include "primitives.cuh"
#include "parquet.cuh"
#include "parquet_runs.cuh"

// Words of a section that are looked at together.
static const u32 STRING_WINDOW = 1024;

// Entries of PLAIN strings, which follow each other with their length in front; false when they are malformed. A thread goes
// from length to length in shared memory, where that takes some 30 cycles a string and not the 300 of memory. `skipped`: bytes
// of the page before the section.
WL_DEVICE bool index_plain_strings(const u8* section, u32 bytes, u32 count, u32 skipped, u64* entries, PageShared& shared) {
  // Others may still look at what is written here.
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.at = 0;
    shared.first = 0;
    shared.error = 0;
  }
  __syncthreads();
  while (shared.first < count) {
    const u8* begin = section + shared.at;
    const u32 before = (u32)(u64)begin & 3;
    const u32* words = (const u32*)(begin - before);
    const u32 there = bytes - shared.at + before;
    for (u32 i = threadIdx.x; i < STRING_WINDOW && i * 4 < there; i += blockDim.x) shared.window[i] = words[i];
    __syncthreads();
    if (threadIdx.x == 0) {
      u32 at = shared.at, number = shared.first;
      const u32 begin_at = at;
      // A length may lie across two words.
      while (number < count && before + at - begin_at + 8 <= STRING_WINDOW * 4) {
        if (bytes - at < 4) {
          shared.error = PAGE_VALUES;
          break;
        }
        const u32 place = before + at - begin_at;
        const u32 shift = place % 4 * 8;
        // The word behind the last byte is not in the window, and no bit of it counts.
        const u32 next = (place / 4 + 1) * 4 < there ? shared.window[place / 4 + 1] : 0;
        const u32 length = __funnelshift_r(shared.window[place / 4], next, shift);
        if (length > bytes - at - 4) {
          shared.error = PAGE_VALUES;
          break;
        }
        at += 4;
        entries[number++] = (u64)(skipped + at) | (u64)length << 32;
        at += length;
      }
      shared.at = at;
      shared.first = number;
    }
    __syncthreads();
    if (shared.error != 0) return false;
  }
  __syncthreads();
  return true;
}

// Entries of values of `size` bytes each, which follow each other; false when there are too few.
WL_DEVICE bool index_fixed_values(u32 bytes, u32 count, u32 size, u32 skipped, u64* entries) {
  if ((u64)count * size > bytes) return false;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) entries[i] = (u64)(skipped + i * size) | (u64)size << 32;
  __syncthreads();
  return true;
}

// Entries of strings whose lengths are known: the high halves of `entries`, as 64-bit numbers. Their bytes begin at `begin` of
// the page and end before `end`.
WL_DEVICE bool index_lengths(u64* entries, u32 count, u32 begin, u32 end, PageShared& shared) {
  u64 done = begin;
  for (u32 first = 0; first < count; first += blockDim.x) {
    const u32 number = first + threadIdx.x;
    const u64 length = number < count ? entries[number] : 0;
    // Sums of 64 bits do not overflow with lengths of at most 2^32.
    const bool sane = length <= end;
    u64 total;
    const u64 before = block_scan_exclusive_sum(sane ? length : 0, shared.wide_scratch, total);
    if (number < count) entries[number] = (done + before) | length << 32;
    done += total;
    if (__syncthreads_or(!sane) != 0 || done > end) return false;
  }
  return true;
}

// Entries of the page's values, which begin at `section`; what is wrong with them. `Page` and `Chunk` are the structs of the
// kernel's arguments.
template <class Page, class Chunk>
WL_OUTLINED u32 index_strings(const Page& page, const Chunk& chunk, const u8* section, u32 bytes, u32 values, PageShared& shared) {
  u64* entries = (u64*)page.dense;
  const u32 skipped = (u32)(section - page.body);
  const u32 end = skipped + bytes;
  if (values == 0) return 0;
  if (page.encoding == ENCODING_PLAIN && chunk.type_bytes != 0) {
    return index_fixed_values(bytes, values, chunk.type_bytes, skipped, entries) ? 0 : PAGE_TRUNCATED;
  }
  if (page.encoding == ENCODING_PLAIN) {
    return index_plain_strings(section, bytes, values, skipped, entries, shared) ? 0 : PAGE_VALUES;
  }
  if (page.encoding == ENCODING_DICTIONARY) {
    if (bytes < 1) return PAGE_TRUNCATED;
    const u32 width = section[0];
    if (width > 32) return PAGE_VALUES;
    const u64* strings = (const u64*)chunk.used;
    bool inside = true;
    const bool read = for_each_run_value(section + 1, bytes - 1, width, values, shared, [&](u32 number, u32 code) {
      if (code < chunk.dictionary_values) entries[number] = strings[code];
      else inside = false;
    });
    const bool outside = __syncthreads_or(!inside) != 0;
    if (!read) return PAGE_VALUES;
    return outside ? PAGE_DICTIONARY : 0;
  }
  u32 used = 0;
  if (!expand_deltas(section, bytes, values, entries, used, shared)) return PAGE_VALUES;
  if (page.encoding == ENCODING_DELTA_LENGTH) {
    return index_lengths(entries, values, skipped + used, end, shared) ? 0 : PAGE_VALUES;
  }
  // The bytes that a value has in common with the one before, then those of its own.
  u64* own = entries + values;
  u32 more = 0;
  if (!expand_deltas(section + used, bytes - used, values, own, more, shared)) return PAGE_VALUES;
  if (!index_lengths(own, values, skipped + used + more, end, shared)) return PAGE_VALUES;
  bool sane = true;
  for (u32 number = threadIdx.x; number < values; number += blockDim.x) {
    const u64 common = entries[number];
    const u64 before = number == 0 ? 0 : (entries[number - 1] & 0xffffffffu) + (own[number - 1] >> 32);
    // Values of a page are shorter than 2^32 bytes together with all before them, or the page is refused.
    sane = sane && common <= 0x3fffffffu && common <= before;
  }
  return __syncthreads_or(!sane) != 0 ? PAGE_VALUES : 0;
}

// The bytes of the value with this number.
template <class Page>
WL_DEVICE u64 string_length(const Page& page, const u64* entries, u32 values, u32 number) {
  if (page.encoding != ENCODING_DELTA_BYTES) return entries[number] >> 32;
  return (entries[number] & 0xffffffffu) + (entries[values + number] >> 32);
}

// Is the byte at `i` of a string one that UTF-8 has there? Only for bytes of 128 and more, all of which are asked about.
WL_DEVICE bool is_utf8(const u8* s, u64 length, u64 i) {
  const u8 byte = s[i];
  if (byte >= 0xc0) {
    if (byte < 0xc2 || byte > 0xf4) return false;
    const u32 more = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    if (length - i <= more) return false;
    const u8 next = s[i + 1];
    const u8 low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    const u8 high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    if (next < low || next > high) return false;
    for (u32 k = 2; k <= more; ++k)
      if ((s[i + k] & 0xc0) != 0x80) return false;
    return true;
  }
  // It goes on with what one of the three bytes before has begun.
  for (u32 k = 1; k <= 3 && k <= i; ++k) {
    const u8 before = s[i - k];
    if ((before & 0xc0) == 0x80) continue;
    const u32 more = before < 0xc0 ? 0 : before < 0xe0 ? 1 : before < 0xf0 ? 2 : 3;
    return more >= k;
  }
  return false;
}

// Copies a string by the lanes of a warp; answers 0 without bytes of 128 and more.
WL_DEVICE u32 copy_string(u8* to, const u8* from, u64 bytes) {
  u32 high = 0;
  if (bytes < 64) {
    for (u32 i = lane_id(); i < (u32)bytes; i += WL_WARP) {
      const u8 byte = from[i];
      to[i] = byte;
      high |= byte;
    }
    return warp_or(high & 0x80u);
  }
  const u32 head = (4 - ((u32)(u64)to & 3)) & 3;
  if (lane_id() < head) {
    high |= from[lane_id()];
    to[lane_id()] = from[lane_id()];
  }
  const u64 words = (bytes - head) / 4;
  u32* out = (u32*)(to + head);
  WL_UNROLL_4
  for (u64 i = lane_id(); i < words; i += WL_WARP) {
    const u32 word = read_u32(from + head + i * 4);
    out[i] = word;
    high |= word;
  }
  const u64 done = head + words * 4;
  if (done + lane_id() < bytes) {
    high |= from[done + lane_id()];
    to[done + lane_id()] = from[done + lane_id()];
  }
  return warp_or(high & 0x80808080u);
}

// Are the bytes UTF-8? By the lanes of a warp.
WL_DEVICE bool is_text(const u8* s, u64 length) {
  u32 bad = 0;
  for (u64 i = lane_id(); i < length; i += WL_WARP)
    if (s[i] >= 0x80 && !is_utf8(s, length, i)) bad = 1;
  return warp_or(bad) == 0;
}
