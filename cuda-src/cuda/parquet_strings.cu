// Strings of parquet pages that are no codes: entries of dictionaries, and the strings in their place.
//
// `parquet_index_strings` finds the strings of dictionaries, before `parquet_decode` finds those of pages. Once the host
// has summed up the bytes of pages, `parquet_place_strings` writes where each row's string ends and copies its bytes;
// `parquet_shift_ends` adds what the chunks before have, when all are there.
// Launch: any grid of 128-thread blocks with PARQUET_SHARED bytes of shared memory, a block for each page at best;
// `parquet_shift_ends` any grid.
// Bytes moved: the strings once each way, 8 bytes a value of entries, 8 a row of ends; 16 more a row for the shift.
#include "simt.cuh"
#include "primitives.cuh"
#include "parquet.cuh"
#include "parquet_runs.cuh"
#include "parquet_strings.cuh"

WL_KERNEL(parquet_index_strings, ParquetArgs, args) {
  WL_SHARED(PageShared, shared);
  for (u64 number = blockIdx.x; number < args.page_count; number += gridDim.x) {
    const ParquetPage& page = args.pages[number];
    if (page.encoding != ENCODING_NO_DATA) continue;
    const ParquetChunk& chunk = args.chunks[page.chunk];
    if (chunk.kind != KIND_BYTES || args.results[number].error != 0) continue;
    u64* entries = (u64*)page.dense;
    const u32 values = chunk.dictionary_values;
    const bool read = chunk.type_bytes != 0
                          ? index_fixed_values(page.body_bytes, values, chunk.type_bytes, 0, entries)
                          : index_plain_strings(page.body, page.body_bytes, values, 0, entries, shared);
    if (!read && threadIdx.x == 0) args.results[number].error = PAGE_DICTIONARY;
    __syncthreads();
  }
}

struct PlaceShared {
  BlockScratch<u64> scratch;
  // Of the rows that are looked at together: where their strings go, …
  u64 to[WL_BLOCK_THREADS];
  // … where they come from, …
  u32 from[WL_BLOCK_THREADS];
  // … and their bytes. Of NULLs none, and `no_value` in place of where they come from.
  u64 bytes[WL_BLOCK_THREADS];
  u32 error, high;
};

static const u32 no_value = 0xffffffffu;

// Copies the strings of the rows that are looked at together, a warp each; `utf8`: they have to be that.
WL_DEVICE void place_strings(const u8* base, u8* out, u32 rows, bool utf8, PlaceShared& shared) {
  for (u32 i = warp_id(); i < rows; i += block_warps()) {
    const u64 bytes = shared.bytes[i];
    if (bytes == 0) continue;
    const u8* from = base + shared.from[i];
    if (copy_string(out + shared.to[i], from, bytes) == 0) continue;
    const bool good = !utf8 || is_text(from, bytes);
    if (lane_id() == 0) {
      shared.high = 1;
      if (!good) shared.error = PAGE_VALUES;
    }
  }
}

// The same of strings that begin as the one before, which is `last`: one warp, one after the other. `own`: the entries of what
// each has of its own.
WL_DEVICE void place_changes(const u8* body, const u64* own, u8* out, u32 rows, bool utf8, u32& value, const u8*& last,
                             PlaceShared& shared) {
  for (u32 i = 0; i < rows; ++i) {
    if (shared.from[i] == no_value) continue;
    u8* to = out + shared.to[i];
    const u32 common = shared.from[i];
    const u64 entry = own[value++];
    u32 high = copy_string(to, last, common);
    high |= copy_string(to + common, body + (u32)entry, entry >> 32);
    // The next string is copied from this one.
    __syncwarp();
    if (high != 0) {
      const bool good = !utf8 || is_text(to, shared.bytes[i]);
      if (lane_id() == 0) {
        shared.high = 1;
        if (!good) shared.error = PAGE_VALUES;
      }
    }
    last = to;
  }
}

WL_KERNEL(parquet_place_strings, ParquetPlaceArgs, args) {
  WL_SHARED(PlaceShared, shared);
  for (u64 number = blockIdx.x; number < args.page_count; number += gridDim.x) {
    const ParquetPlace& place = args.places[number];
    if (place.out == 0) continue;
    const ParquetPage& page = args.pages[number];
    const ParquetChunk& chunk = args.chunks[page.chunk];
    const u64* entries = (const u64*)page.dense;
    const u32 values = page.rows - args.results[number].nulls;
    const bool changes = page.encoding == ENCODING_DELTA_BYTES;
    const u8* base = page.encoding == ENCODING_DICTIONARY ? chunk.dictionary : page.body;
    const u32 words = (page.rows + 31) / 32;
    u64* ends = (u64*)chunk.data + page.first_row + 1;
    u64 done = place.begin;
    u32 value = 0;
    const u8* last = base;
    if (threadIdx.x == 0) {
      shared.error = 0;
      shared.high = 0;
    }
    for (u32 first = 0; first < page.rows; first += blockDim.x) {
      const u32 row = first + threadIdx.x;
      u64 bytes = 0;
      u32 from = no_value;
      if (row < page.rows) {
        u32 at = row;
        bool valid = true;
        if (values != page.rows) {
          const u32 word = page.words[row / 32];
          valid = (word >> row % 32 & 1) != 0;
          at = page.words[words + row / 32] + (u32)__popc(word & ((1u << row % 32) - 1));
        }
        if (valid) {
          bytes = string_length(page, entries, values, at);
          from = (u32)entries[at];
        }
      }
      u64 total;
      const u64 before = block_scan_exclusive_sum(bytes, shared.scratch, total);
      if (row < page.rows) ends[row] = done + before + bytes;
      shared.to[threadIdx.x] = done + before;
      shared.from[threadIdx.x] = from;
      shared.bytes[threadIdx.x] = bytes;
      __syncthreads();
      const u32 rows = page.rows - first < blockDim.x ? page.rows - first : blockDim.x;
      const bool utf8 = chunk.utf8 != 0;
      if (!changes) place_strings(base, place.out, rows, utf8, shared);
      else if (warp_id() == 0) {
        place_changes(page.body, entries + values, place.out, rows, utf8, value, last, shared);
      }
      done += total;
      __syncthreads();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      ParquetResult& result = args.results[number];
      result.least = shared.high;
      result.error = shared.error;
    }
    __syncthreads();
  }
}

WL_KERNEL(parquet_shift_ends, ParquetShiftArgs, args) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows; row += stride) {
    args.ends[args.first_row + 1 + row] += args.before;
  }
}
