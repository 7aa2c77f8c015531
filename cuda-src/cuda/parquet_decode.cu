// Values of parquet pages to the narrow codes of their column: a block a page.
//
// A page is levels, then values of the rows that are not NULL. Levels become a bitmap and, where there are NULLs, the number
// of values before each word of it. Codes of dictionaries, deltas and runs are expanded to a scratch array, since each
// depends on those before it; other encodings are read where they lie. Then every row takes its value, less the column's
// base, to its place; strings that are no codes get entries, and are copied later, when their places are known
// (`parquet_strings.cu`). The least and greatest value of the page are reported: whether they have room in a code is for the
// host to see.
// Launch: any grid of 128-thread blocks with DECODE_SHARED bytes of shared memory, a block for each page at best.
// Bytes moved: the page once, 4 or 8 bytes a value of scratch each way (L2 mostly), a code and a bit a row.
#include "simt.cuh"
#include "primitives.cuh"
#include "parquet.cuh"
#include "parquet_runs.cuh"
#include "parquet_strings.cuh"

// The bitmap of the page's rows from its levels, in `words`, and behind it the values before each word. Answers the number
// of values, or more than there are rows when the levels are malformed; without NULLs nothing is written.
WL_OUTLINED u32 expand_levels(const u8* levels, u32 bytes, const ParquetPage& page, const ParquetChunk& chunk,
                              PageShared& shared) {
  const u32 malformed = 0xffffffffu;
  const u32 width = 32 - (u32)__clz((int)chunk.levels), present = chunk.present;
  if (threadIdx.x == 0) {
    shared.at = 0;
    shared.error = 0;
    read_runs(levels, bytes, width, 0, page.rows, shared);
    shared.first = shared.runs == 1 && shared.packed[0] == 0 && shared.where[0] >= present && shared.starts[1] == page.rows;
  }
  __syncthreads();
  if (shared.error != 0) return malformed;
  if (shared.first != 0) return page.rows;
  const u32 words = (page.rows + 31) / 32;
  for (u32 word = threadIdx.x; word < words; word += blockDim.x) page.words[word] = 0;
  __syncthreads();
  for (u32 first = 0; first < page.rows;) {
    // The first runs are known.
    const u32 end = shared.starts[shared.runs];
    for (u32 word = first / 32 + threadIdx.x; word < (end + 31) / 32; word += blockDim.x) {
      const u32 low = word * 32 < first ? first : word * 32;
      const u32 high = word * 32 + 32 < end ? word * 32 + 32 : end;
      u32 bits = 0;
      WL_NO_UNROLL
      for (u32 row = low; row < high; ++row)
        bits |= (u32)(run_value(levels, width, row, shared) >= present) << (row - word * 32);
      page.words[word] |= bits;
    }
    first = end;
    __syncthreads();
    if (first < page.rows) {
      if (threadIdx.x == 0) read_runs(levels, bytes, width, first, page.rows, shared);
      __syncthreads();
      if (shared.error != 0) return malformed;
    }
  }
  u32 values = 0;
  for (u32 first = 0; first < words; first += blockDim.x) {
    const u32 word = first + threadIdx.x;
    const u32 ones = word < words ? (u32)__popc(page.words[word]) : 0;
    u32 total;
    const u32 before = block_scan_exclusive_sum(ones, shared.scratch, total);
    if (word < words) page.words[words + word] = values + before;
    values += total;
  }
  __syncthreads();
  return values;
}

// The big-endian number of `bytes` (at most 16) bytes; false when it takes more than 64 bits.
WL_DEVICE bool read_fixed(const u8* p, u32 bytes, u32 stride, i64& value) {
  i64 high = p[0] >= 128 ? -1 : 0;
  const i64 sign = high;
  bool narrow = true;
  WL_NO_UNROLL
  for (u32 i = 0; i < bytes; ++i) {
    // What leaves at the top must be the sign.
    if (i >= 8) narrow = narrow && (high >> 56) == sign;
    high = (i64)((u64)high << 8 | p[(u64)i * stride]);
  }
  value = high;
  return narrow && (bytes <= 8 || (high < 0) == (sign < 0));
}

// A value that lies at `p`, its bytes `stride` apart.
WL_DEVICE bool read_value(const u8* p, u32 kind, u32 bytes, u32 stride, i64& value) {
  if (kind == KIND_FIXED) return read_fixed(p, bytes, stride, value);
  if (kind == KIND_INT96) {
    // Modulo 2^64, as the parquet crate's reader has it.
    const u64 days = (u64)(i64)(i32)read_u32(p + 8) - 2440588;
    value = (i64)(days * 86400000000000ull + read_u64(p));
    return true;
  }
  u64 bits = 0;
  if (stride != 1) {
    for (u32 i = 0; i < bytes; ++i) bits |= (u64)p[(u64)i * stride] << 8 * i;
  } else {
    bits = bytes == 4 ? read_u32(p) : read_u64(p);
  }
  value = kind == KIND_I32 ? (i64)(i32)(u32)bits : (i64)bits;
  return true;
}

// Sets the bits of the page's rows in the column's validity.
WL_OUTLINED void put_validity(const ParquetPage& page, const ParquetChunk& chunk, u32 values) {
  const u64 begin = page.first_row / 32, end = (page.first_row + page.rows + 31) / 32;
  const u32 shift = (u32)(page.first_row % 32), words = (page.rows + 31) / 32;
  for (u64 word = begin + threadIdx.x; word < end; word += blockDim.x) {
    const u32 at = (u32)(word - begin);
    u32 low = 0xffffffffu, high = 0xffffffffu;
    if (values != page.rows) {
      low = at > 0 ? page.words[at - 1] : 0;
      high = at < words ? page.words[at] : 0;
    }
    u32 bits = __funnelshift_l(low, high, shift);
    if (at == 0) bits &= 0xffffffffu << shift;
    const u64 left = page.first_row + page.rows - word * 32;
    if (left < 32) bits &= (1u << left) - 1;
    if (bits != 0) atomicOr(chunk.validity + word, bits);
  }
}

// A bit for each of the page's rows: is the struct there?
WL_OUTLINED void put_presence(const ParquetPage& page, const ParquetChunk& chunk, u32 values, PageShared& shared) {
  for (u32 row = threadIdx.x; row < page.rows; row += blockDim.x) {
    const bool there = values == page.rows || (page.words[row / 32] >> row % 32 & 1) != 0;
    put_code(chunk.data, page.first_row + row, chunk.width, (u64)there - (u64)chunk.base);
  }
  if (threadIdx.x == 0 && page.rows > 0) {
    shared.least = values == page.rows ? 1 : 0;
    shared.greatest = values > 0 ? 1 : 0;
  }
}

// Decodes a page; the answer is what is wrong with it.
WL_DEVICE u32 decode_page(const ParquetPage& page, const ParquetChunk& chunk, PageShared& shared, u32& nulls) {
  const u8* section = page.body;
  u32 bytes = page.body_bytes;
  u32 values = page.rows;
  if (chunk.levels != 0) {
    u32 level_bytes = page.levels;
    if (level_bytes == LEVELS_PREFIXED) {
      if (bytes < 4) return PAGE_TRUNCATED;
      level_bytes = read_u32(section);
      section += 4;
      bytes -= 4;
    }
    if (level_bytes > bytes) return PAGE_TRUNCATED;
    values = expand_levels(section, level_bytes, page, chunk, shared);
    if (values > page.rows) return PAGE_LEVELS;
    section += level_bytes;
    bytes -= level_bytes;
    if (chunk.kind != KIND_PRESENCE) nulls = page.rows - values;
    if (nulls > 0 && chunk.validity == 0) return PAGE_NULLS;
  }
  if (chunk.kind == KIND_PRESENCE) {
    put_presence(page, chunk, values, shared);
    return 0;
  }
  if (chunk.kind == KIND_BYTES) {
    const u32 error = index_strings(page, chunk, section, bytes, values, shared);
    if (error != 0) return error;
    if (chunk.validity != 0) put_validity(page, chunk, values);
    // The greatest value of the page is how many bytes its strings have.
    const u64* entries = (const u64*)page.dense;
    u64 all = 0;
    for (u32 number = threadIdx.x; number < values; number += blockDim.x) {
      all += string_length(page, entries, values, number);
    }
    all = warp_sum(all);
    if (threadIdx.x == 0) shared.greatest = 0;
    __syncthreads();
    if (lane_id() == 0) atomicAdd((u64*)&shared.greatest, all);
    return 0;
  }
  u32* codes = page.dense;
  u64* wide = (u64*)page.dense;
  u32 stride = 1, step = chunk.type_bytes;
  const u8* plain = section;
  if (page.encoding == ENCODING_DICTIONARY) {
    if (values > 0) {
      if (bytes < 1) return PAGE_TRUNCATED;
      const u32 width = section[0];
      if (width > 32) return PAGE_VALUES;
      const u32 most = chunk.dictionary_values;
      bool inside = true;
      const bool read = for_each_run_value(section + 1, bytes - 1, width, values, shared, [&](u32 number, u32 code) {
        inside = inside && code < most;
        codes[number] = code;
      });
      const bool outside = __syncthreads_or(!inside) != 0;
      if (!read) return PAGE_VALUES;
      if (outside) return PAGE_DICTIONARY;
    }
    plain = chunk.dictionary;
  } else if (page.encoding == ENCODING_DELTA) {
    u32 used;
    if (!expand_deltas(section, bytes, values, wide, used, shared)) return PAGE_VALUES;
    __syncthreads();
  } else if (page.encoding == ENCODING_RLE) {
    // Booleans of pages of version 2, with their length in front.
    if (bytes < 4) return PAGE_TRUNCATED;
    const u32 length = read_u32(section);
    if (length > bytes - 4) return PAGE_TRUNCATED;
    if (!for_each_run_value(section + 4, length, 1, values, shared,
                            [&](u32 number, u32 value) { codes[number] = value; }))
      return PAGE_VALUES;
  } else if (chunk.kind == KIND_BIT) {
    if ((values + 7) / 8 > bytes) return PAGE_TRUNCATED;
  } else {
    if ((u64)values * chunk.type_bytes > bytes) return PAGE_TRUNCATED;
    if (page.encoding == ENCODING_SPLIT) {
      stride = values;
      step = 1;
    }
  }
  const u32 words = (page.rows + 31) / 32;
  i64 least = 0x7fffffffffffffffll, greatest = -least - 1;
  bool narrow = true;
  for (u32 row = threadIdx.x; row < page.rows; row += blockDim.x) {
    u32 number = row;
    bool valid = true;
    if (values != page.rows) {
      const u32 word = page.words[row / 32];
      valid = (word >> row % 32 & 1) != 0;
      number = page.words[words + row / 32] + (u32)__popc(word & ((1u << row % 32) - 1));
    }
    u64 code = 0;
    if (valid) {
      i64 value;
      if (page.encoding == ENCODING_DELTA) {
        value = chunk.kind == KIND_I32 ? (i64)(i32)(u32)wide[number] : (i64)wide[number];
        if (chunk.kind == KIND_U32) value = (i64)(u32)wide[number];
      } else if (page.encoding == ENCODING_RLE) {
        value = codes[number];
      } else if (chunk.kind == KIND_CODE) {
        value = codes[number];
        const u32 bit = 1u << codes[number] % 32;
        u32* used = chunk.used + codes[number] / 32;
        if ((load_relaxed(used) & bit) == 0) atomicOr(used, bit);
      } else if (chunk.kind == KIND_BIT) {
        value = plain[number / 8] >> number % 8 & 1;
      } else {
        if (page.encoding == ENCODING_DICTIONARY) number = codes[number];
        narrow = read_value(plain + (u64)number * step, chunk.kind, chunk.type_bytes, stride, value) && narrow;
      }
      least = value < least ? value : least;
      greatest = greatest < value ? value : greatest;
      code = (u64)value - (u64)chunk.base;
    }
    put_code(chunk.data, page.first_row + row, chunk.width, code);
  }
  if (__syncthreads_or(!narrow) != 0) return PAGE_WIDE;
  if (chunk.validity != 0) put_validity(page, chunk, values);
  least = warp_min(least);
  greatest = warp_max(greatest);
  if (lane_id() == 0) {
    atomicMin(&shared.least, least);
    atomicMax(&shared.greatest, greatest);
  }
  return 0;
}

WL_KERNEL(parquet_decode, ParquetArgs, args) {
  WL_SHARED(PageShared, shared);
  for (u64 number = blockIdx.x; number < args.page_count; number += gridDim.x) {
    const ParquetPage& page = args.pages[number];
    if (page.encoding == ENCODING_NO_DATA) continue;
    const ParquetChunk& chunk = args.chunks[page.chunk];
    u32 error = args.results[number].error;
    // What a page of a damaged dictionary means is not known.
    if (chunk.dictionary_page < args.page_count && args.results[chunk.dictionary_page].error != 0) error = PAGE_DICTIONARY;
    if (threadIdx.x == 0) {
      shared.least = 0x7fffffffffffffffll;
      shared.greatest = -shared.least - 1;
    }
    __syncthreads();
    u32 nulls = 0;
    if (error == 0) error = decode_page(page, chunk, shared, nulls);
    __syncthreads();
    if (threadIdx.x == 0) {
      ParquetResult& result = args.results[number];
      result.least = shared.least;
      result.greatest = shared.greatest;
      result.nulls = nulls;
      result.error = error;
    }
    __syncthreads();
  }
}
