// The strings of a tile's rows searched by all threads of its block, for constants that begin anywhere (LIKE '%a%b%').
//
// Threads that search a string each (`text_find`) read 16 bytes at 32 places: a dozen cache lines an access, and the next
// access waits for them. Strings of neighbouring rows lie one behind the other, so the block reads from the first byte to
// the last, whoever they belong to:
//   1. Scan. A warp reads 2 KiB at a time, 16 bytes a lane in four independent accesses. An aligned word of four bytes lies
//      in every place where a constant of seven bytes can be, and holds one of four of its parts: four comparisons a word,
//      with no look at the neighbour's bytes. Of shorter constants a word holds a part at least, which a mask tells. Pieces
//      of 16 bytes with such a word are put into a queue.
//   2. Check. A thread takes a piece from the queue, compares all of the constant, finds the row by binary search among
//      the beginnings of strings, and looks for the parts behind it. The least end of all parts is the row's.
// Hits are few and far between: in a loop over the row's bytes they would keep whole warps waiting for one lane.
//
// Launch: every thread of a block of THREADS threads, ROWS neighbouring rows each. Bytes moved: the strings once, the offsets
// once; 150 million strings of 49 bytes are 8.5 GB, 1.9 ms at 4.5 TB/s. The scan takes 27 instructions for 16
// bytes, 36 for constants of less than seven bytes (NVRTC 13 for sm_90), and three barriers a tile.
//
// Strings that have the constant near their beginning, and tiles with few rows left, are searched one a thread: less is read.
#pragma once
#include "strings.cuh"

// Constants to be found one behind the other; none is empty but a single one may be.
template <u32 PARTS>
struct TextParts {
  const u64* words[PARTS];
  u64 bytes[PARTS];
};

// The byte after the last part, each as early as it can be, or -1.
template <u32 PARTS>
WL_DEVICE i64 text_after(const Text& t, i64 from, const TextParts<PARTS>& parts) {
  WL_UNROLL
  for (u32 i = 0; i < PARTS; ++i) from = text_after(t, from, parts.words[i], parts.bytes[i]);
  return from;
}

// The parts' end in a string, as the block has found it.
WL_DEVICE i64 text_found(const Text& t, u32 end) { return end == ~0u || t.b == t.e ? -1 : (i64)(t.b + end); }

// What the threads of a block know of a tile of ROWS rows.
template <u32 ROWS>
struct TextTile {
  // Where strings begin, counted from the first one's begin.
  u32 begins[ROWS];
  // Where the parts end in each, counted from its begin; all ones: they are not there.
  u32 ends[ROWS];
  // Pieces to be looked at, as many bytes behind the first piece; `queued` of them or more.
  u32 queue[ROWS];
  u32 queued;
};

// What a thread knows of tiles before.
struct TextPace {
  // So many tiles are left to be searched row by row.
  u32 apart;
  // A thread alone would have found the parts soon in its first row of the last tile.
  u32 soon;
};

// Tiles that are searched row by row before the block tries again.
enum : u32 { WL_TEXT_APART = 31 };

// Bytes that a lane reads at a time, and pieces of them that it has under way.
enum : u32 { WL_TEXT_PIECE = 16, WL_TEXT_PIECES = 4 };

// For each place 0..3 of an aligned word at which a constant may begin, the word that tells most of it: this one or the next.
struct TextWords {
  u32 words[4], masks[4];
};

// At least one byte.
WL_DEVICE TextWords text_words(const u64* constant, u64 length) {
  const u64 head = __ldg(constant);
  TextWords of;
  WL_UNROLL
  for (u32 place = 0; place < 4; ++place) {
    const u32 room = 4 - place;
    const u32 here = length < room ? (u32)length : room;
    const u32 behind = length - here < 4 ? (u32)length - here : 4;
    const bool next = behind > here;
    const u32 mask = ~0u >> (32 - 8 * (next ? behind : here));
    of.masks[place] = next ? mask : mask << (8 * place);
    of.words[place] = (next ? (u32)(head >> (8 * room)) : (u32)head << (8 * place)) & of.masks[place];
  }
  return of;
}

// One bit for each of a lane's pieces in which the constant may begin, or less than four bytes before. WHOLE: no mask leaves
// out a byte.
template <bool WHOLE>
WL_DEVICE u32 text_hits(const u32 (&pieces)[WL_TEXT_PIECES][4], const TextWords& of) {
  u32 hits = 0;
  WL_UNROLL
  for (u32 j = 0; j < WL_TEXT_PIECES; ++j) {
    bool has = false;
    WL_UNROLL
    for (u32 i = 0; i < 4; ++i) {
      WL_UNROLL
      for (u32 place = 0; place < 4; ++place)
        has |= ((pieces[j][i] ^ of.words[place]) & (WHOLE ? ~0u : of.masks[place])) == 0;
    }
    hits |= (u32)has << j;
  }
  return hits;
}

// Queue the pieces of [from, to) in which a constant of so many bytes may begin.
template <u32 THREADS, u32 ROWS>
WL_DEVICE void text_scan(const u8* data, u64 from, u64 to, const u64* constant, u64 length, TextTile<ROWS>& tile) {
  const TextWords of = text_words(constant, length);
  const u32 step = WL_WARP * WL_TEXT_PIECE;
  const u8* const first = data + (from & ~(u64)(WL_TEXT_PIECE - 1));
  const u32 bytes = (u32)(to - (from & ~(u64)(WL_TEXT_PIECE - 1)));
  WL_NO_UNROLL
  for (u32 at = warp_id() * WL_TEXT_PIECES * step + lane_id() * WL_TEXT_PIECE; at < bytes;
       at += THREADS / WL_WARP * WL_TEXT_PIECES * step) {
    u32 pieces[WL_TEXT_PIECES][4] = {};
    u32 within = 0;
    WL_UNROLL
    for (u32 j = 0; j < WL_TEXT_PIECES; ++j) {
      if (at + j * step < bytes) load_vec<u32, 4>((const u32*)(first + at + j * step), pieces[j]);
      within |= (u32)(at + j * step < bytes) << j;
    }
    u32 hits = within & (length >= 7 ? text_hits<true>(pieces, of) : text_hits<false>(pieces, of));
    for (; hits != 0; hits &= hits - 1) {
      const u32 place = atomicAdd(&tile.queued, 1u);
      if (place < ROWS) tile.queue[place] = at + ((u32)__ffs((int)hits) - 1) * step;
    }
  }
}

// The last of `rows` rows that begins at or before `at`: no empty one, where a string holds that byte.
template <u32 ROWS>
WL_DEVICE u32 text_row_at(const TextTile<ROWS>& tile, u32 rows, u32 at) {
  u32 low = 0, high = rows;
  while (high - low > 1) {
    const u32 middle = (low + high) >> 1;
    if (tile.begins[middle] <= at) low = middle;
    else high = middle;
  }
  return low;
}

// Look at the places of the piece at byte `base`, and at three before, for rows whose strings are [from, to).
template <u32 ROWS, u32 PARTS>
WL_DEVICE void text_check(const u8* data, u64 base, u64 from, u64 to, u32 rows, const TextParts<PARTS>& parts,
                          TextTile<ROWS>& tile) {
  const u64 length = parts.bytes[0];
  const u32 mask = length < 4 ? ~0u >> (32 - 8 * (u32)length) : ~0u;
  const u32 head = (u32)__ldg(parts.words[0]) & mask;
  const Text all = text_at(data, from, to);
  u64 pair[2];
  load_vec<u64, 2>((const u64*)(data + base), pair);
  const u64 behind = base + 16 < to ? text_load(all, base + 16) : 0;
  // Bit 8 stands for byte `base`.
  u32 hits = text_heads(pair[0], pair[1], mask, head) << 8 | text_heads(pair[1], behind, mask, head) << 16;
  if (base > from) hits |= text_heads(text_load(all, base - 8), pair[0], mask, head) & 0xe0;
  while (hits != 0) {
    const u32 bit = (u32)__ffs((int)hits) - 1;
    hits &= hits - 1;
    // Bytes before the first string, and what begins there, are another tile's.
    if (base + bit < from + 8) continue;
    const u64 at = base + bit - 8;
    if (at + length > to) return;
    const u32 row = text_row_at(tile, rows, (u32)(at - from));
    const u64 begin = from + tile.begins[row];
    const u64 end = row + 1 < rows ? from + tile.begins[row + 1] : to;
    if (at + length > end) continue;
    if (length > 4 && !text_equals(text_at(data, at, at + length), parts.words[0], length)) continue;
    i64 after = (i64)(at + length);
    const Text t = text_at(data, begin, end);
    WL_UNROLL
    for (u32 i = 1; i < PARTS; ++i) after = text_after(t, after, parts.words[i], parts.bytes[i]);
    if (after >= 0) atomicMin(&tile.ends[row], (u32)((u64)after - begin));
    // Later places of the row lead to no lesser end.
    const u64 passed = end + 8 - base;
    hits = passed < 32 ? hits & (~0u << (u32)passed) : 0;
  }
}

// Where the parts end in the strings of rows [first, first + THREADS * ROWS), of which there are some before `rows`: into
// `tile.ends`, by all threads of the block. False: nothing was done, and rows that want to know search their own string.
template <u32 THREADS, u32 ROWS, u32 PARTS>
WL_DEVICE bool block_text_after(const u8* data, const u64* offsets, u64 first, u64 rows, u32 live,
                                const TextParts<PARTS>& parts, TextTile<THREADS * ROWS>& tile, TextPace& pace) {
  if (parts.bytes[0] == 0) return false;
  if (pace.apart != 0) {
    --pace.apart;
    return false;
  }
  const u32 count = rows - first < THREADS * ROWS ? (u32)(rows - first) : THREADS * ROWS;
  const u64 from = __ldg(offsets + first), to = __ldg(offsets + first + count);
  // Nobody but this thread reads its places of the last tile any more.
  WL_UNROLL
  for (u32 k = 0; k < ROWS; ++k) {
    const u32 row = threadIdx.x * ROWS + k;
    tile.begins[row] = row < count ? (u32)(__ldg(offsets + first + row) - from) : 0;
    tile.ends[row] = ~0u;
  }
  if (threadIdx.x == 0) tile.queued = 0;
  // Offsets of the block's next tile, which it begins by waiting for.
  const u64 next = first + (u64)gridDim.x * THREADS * ROWS + threadIdx.x * ROWS;
  if (next < rows) prefetch(offsets + next);
  // Where few rows are left, their own bytes are the fewer. Places in a tile have 32 bits.
  const u32 wanted = (u32)__syncthreads_count(live != 0);
  if (wanted < THREADS / 4 || to - from >= 1ull << 31) return false;
  text_scan<THREADS>(data, from, to, parts.words[0], parts.bytes[0], tile);
  __syncthreads();
  const u32 queued = tile.queued;
  const bool done = queued <= THREADS * ROWS;
  const u32 row = threadIdx.x * ROWS;
  const u32 bytes = row + 1 < count ? tile.begins[row + 1] - tile.begins[row] : 0;
  if (done) {
    const u64 base = from & ~(u64)(WL_TEXT_PIECE - 1);
    for (u32 i = threadIdx.x; i < queued; i += THREADS)
      text_check(data, base + tile.queue[i], from, to, count, parts, tile);
  }
  // Behind this barrier a thread reads nothing but its own places, which it may clear for the next tile.
  const u32 soon = (u32)__syncthreads_count(pace.soon != 0);
  // A thread alone is taken to read a quarter as fast, and stops at the end of the parts.
  pace.soon = (u32)(row + 1 < count && tile.ends[row] != ~0u && 4 * (u64)tile.ends[row] <= (u64)bytes + 64);
  if (!done || soon > THREADS / 2) {
    pace.apart = WL_TEXT_APART;
    pace.soon = 0;
  }
  return done;
}
