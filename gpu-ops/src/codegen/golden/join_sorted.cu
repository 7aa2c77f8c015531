// index result 0: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  u64 rows;
  u64 first;
  const u16* c0;
  const u64* c2;
  const u32* c3;
  u32* r0c0;
  u64* r0k0;
  u64* control;
  u64 cap0;
};
static_assert(sizeof(Args) == 72, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[0], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const i32 v1 = (i32)((u32)c0[k]);
        const i32 v2 = (i32)((u32)c3[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0c0[at] = (u32)v2;
          args.r0k0[at] = (((u64)v0) << 13 | (u64)v1);
        }
      }
    }
    __syncwarp();
  }
}

// index result 1: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  i64 lit0;
  u64 rows;
  u64 first;
  const u64* c7;
  const u8* c5;
  u8* r1c0;
  u64* r1k0;
  u64* control;
  u64 cap1;
};
static_assert(sizeof(Args) == 72, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u64 c7[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c7 + row, c7);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c7[k] + (u64)(i64)args.lit0);
        const i32 v1 = (i32)c5[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u8)v1;
          args.r1k0[at] = ((u64)v0 - 9226941453170788605ull);
        }
      }
    }
    __syncwarp();
  }
}

// matches result 2: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  i64 lit0;
  i64 lit1;
  u64 rows;
  const u64* stopword;
  u64 stopnumber;
  u64 first;
  const u16* c0;
  const u8* n1;
  const u8* c1;
  const u64* c2;
  u64* control;
  u64 cap0;
  const u64* r0s0;
  u16* r2c0;
  u32* r2start;
  u32* r2len;
  u64 cap2;
};
static_assert(sizeof(Args) == 136, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (++unasked == WL_STOP_TILES) { unasked = 0; if (query_stopped_block(watch)) break; }
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    u32 first0[WL_ROWS] = {}; u32 length0[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const bool v1 = ((n1 >> k) & 1) != 0;
        const i32 v2 = (i32)((u32)c1[k]);
        const i32 v3 = v2;
        const bool v4 = v3 <= (i32)(i32)args.lit1;
        const i32 v5 = (i32)((u32)c0[k]);
        const i32 v6 = v5;
        const bool v7 = v6 > (i32)(i32)args.lit0;
        const bool possible = alive && v1 && v4 && v7;
        const u64* const sorted[1] = {args.r0s0};
        const u64 low[1] = {(((u64)v0) << 13 | (v3 <= (i32)(i32)args.lit0 ? (u64)0 : (u64)v3))};
        const u64 high[1] = {(((u64)v0) << 13 | (v6 > (i32)(i32)args.lit1 ? 4999ull : ((u64)v6 - 1u)))};
        const SortedRange found = sorted_find<1>(sorted, possible ? (u32)min_u64(args.control[0], args.cap0) : 0u, low, high);
        h0 |= (u32)(found.length != 0) << k;
        first0[k] = found.first; length0[k] = found.length;
      }
    }
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[10], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v8 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u16)v8;
          args.r2start[at] = first0[k];
          args.r2len[at] = length0[k];
        }
      }
    }
    __syncwarp();
  }
}

// rows result 3: Pairs(2), 256 threads, 256 rows a tile, 0 bytes shared, in place
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  u64* control;
  u64 cap2;
  const u64* r2pairs;
  const u32* r2start;
  const u32* r0rows;
  u64 rows;
  const u64* stopword;
  u64 stopnumber;
  u16* r3c0;
  u32* r3c1;
  u16* r2c0;
  u32* r0c0;
  u64 cap3;
};
static_assert(sizeof(Args) == 104, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = args.r2pairs[min_u64(args.control[10], args.cap2)];
  const u64 tiles = (rows + 255) / 256;
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (++unasked == WL_STOP_TILES) { unasked = 0; if (query_stopped_block(watch)) break; }
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 parent_row[WL_ROWS] = {}; u32 pe[WL_ROWS] = {};
    const u32 pm = ranged_pairs(args.r2pairs, min_u64(args.control[10], args.cap2), args.r2start, args.r0rows, row, live, parent_row, pe);
    if (row == 0 && threadIdx.x == 0) args.control[15] = rows;
    u16 c0[WL_ROWS] = {};
    if ((live & live) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & live) >> k & 1) {
        c0[k] = args.r2c0[parent_row[k]];
      }
    }
    u32 c1[WL_ROWS] = {};
    if ((live & pm) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & pm) >> k & 1) {
        c1[k] = args.r0c0[pe[k]];
      }
    }
    if (live != 0 && row < args.cap3) {
      u16 w0[WL_ROWS] = {};
      u32 w1[WL_ROWS] = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i32 v1 = (i32)((u32)c1[k]);
        if (alive) {
          w0[k] = (u16)v0;
          w1[k] = (u32)v1;
        }
      }
      store_vec(args.r3c0 + row, w0);
      store_vec(args.r3c1 + row, w1);
    }
    __syncwarp();
  }
}

// rows result 4: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
#define WL_BLOCK_THREADS 256
#define WL_ROWS 1
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  i64 lit0;
  i64 lit1;
  u64 rows;
  const u64* stopword;
  u64 stopnumber;
  u64 first;
  const u16* c0;
  u64* control;
  u64 cap1;
  const u64* r1s0;
  const u32* r1rows;
  u32* r1marks;
  u16* r4c0;
  u64 cap4;
};
static_assert(sizeof(Args) == 112, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (++unasked == WL_STOP_TILES) { unasked = 0; if (query_stopped_block(watch)) break; }
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    u32 first0[WL_ROWS] = {}; u32 length0[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i64 v1 = (i64)v0;
        const bool v2 = v1 < (i64)args.lit1;
        const bool possible = alive && v2;
        const u64* const sorted[1] = {args.r1s0};
        const u64 low[1] = {(v1 < (i64)args.lit0 ? (u64)0 : (((u64)v1 - 9226941453170788605ull) + 1u))};
        const u64 high[1] = {18441578365889016063ull};
        const SortedRange found = sorted_find<1>(sorted, possible ? (u32)min_u64(args.control[5], args.cap1) : 0u, low, high);
        h0 |= (u32)(found.length != 0) << k;
        first0[k] = found.first; length0[k] = found.length;
      }
    }
    live &= h0;
    u32 any0 = 0;
    if ((live & h0) != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
      for (u32 j = 0; j < length0[k]; ++j) {
        if ((j + 1) % WL_STOP_ENTRIES == 0 && query_stopped(watch)) break;
        const u32 entry = args.r1rows[first0[k] + j];
        const bool alive = true;
        (void)alive; any0 |= 1u << k; e0[k] = entry;
        wl_set_bit(args.r1marks, entry);
      }
    }
    h0 = any0;
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[20], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap4) {
          args.r4c0[at] = (u16)v3;
        }
      }
    }
    __syncwarp();
  }
}

