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
  i64 lit0;
  u64 rows;
  u64 first;
  const u64* c7;
  const u32* c3;
  u32* r0c0;
  u64* r0k0;
  u64* r0k1;
  u64* control;
  u64 cap0;
};
static_assert(sizeof(Args) == 80, "host and device disagree on the arguments");

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
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[0], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c7[k] + (u64)(i64)args.lit0);
        const i32 v1 = (i32)((u32)c3[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0c0[at] = (u32)v1;
          args.r0k0[at] = 0ull;
          args.r0k1[at] = ((u64)v0 - 9226941453170788605ull);
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
  u64 rows;
  u64 first;
  const u64* c2;
  const u8* c5;
  u8* r1c0;
  u64* r1k0;
  u64* control;
  u64 cap1;
};
static_assert(sizeof(Args) == 64, "host and device disagree on the arguments");

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
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const i32 v1 = (i32)c5[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u8)v1;
          args.r1k0[at] = (u64)v0;
        }
      }
    }
    __syncwarp();
  }
}

// rows result 2: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u64* r0keys;
  u64 slots0;
  const u32* r0states;
  const u32* r0entry;
  u16* r2c0;
  u32* r2c1;
  u8* r2n1;
  u64* control;
  const u16* c0;
  u32* r0c0;
  u64 cap2;
};
static_assert(sizeof(Args) == 120, "host and device disagree on the arguments");

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
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c7[k] + (u64)(i64)args.lit0);
        const bool possible = alive && true;
        const u64 packed[2] = {0ull, ((u64)v0 - 9226941453170788605ull)};
        const u64 place = possible ? hash_find_wide<2>(args.r0keys, args.r0states, args.slots0 - 1, packed) : WL_NO_SLOT;
        const bool found = place != WL_NO_SLOT;
        h0 |= (u32)found << k;
        if (found) e0[k] = args.r0entry[place];
      }
    }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[10], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 c8[WL_ROWS] = {};
    u32 n8 = 0;
    if ((live & h0) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
        c8[k] = args.r0c0[e0[k]]; n8 |= 1u << k;
      }
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c0[k]);
        const bool v2 = ((n8 >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c8[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u16)v1;
          args.r2c1[at] = v2 ? (u32)v3 : (u32)0;
          args.r2n1[at] = (u8)(v2);
        }
      }
    }
    __syncwarp();
  }
}

// matches result 3: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u64* stopword;
  u64 stopnumber;
  u64 first;
  const u64* c2;
  const u64* r1keys;
  u64 slots1;
  const u32* r1offsets;
  u16* r3c0;
  u32* r3start;
  u32* r3len;
  u64* control;
  const u16* c0;
  u64 cap3;
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
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    u32 first0[WL_ROWS] = {}; u32 length0[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const bool possible = alive && true;
        const u64 place = possible ? hash_find(args.r1keys, args.slots1 - 1, (u64)v0) : WL_NO_SLOT;
        const bool found = place != WL_NO_SLOT;
        if (found) {
          const u32* const range = args.r1offsets + place; const u32 first = range[0], length = range[1] - first;
          h0 |= (u32)(length != 0) << k;
          first0[k] = first; length0[k] = length;
        }
      }
    }
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[15], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap3) {
          args.r3c0[at] = (u16)v1;
          args.r3start[at] = first0[k];
          args.r3len[at] = length0[k];
        }
      }
    }
    __syncwarp();
  }
}

// rows result 4: Pairs(3), 256 threads, 256 rows a tile, 0 bytes shared, in place
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
  u64 cap3;
  const u64* r3pairs;
  const u32* r3start;
  const u32* r1rows;
  u64 rows;
  const u64* stopword;
  u64 stopnumber;
  u16* r4c0;
  u8* r4c1;
  u16* r3c0;
  u8* r1c0;
  u64 cap4;
};
static_assert(sizeof(Args) == 104, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = args.r3pairs[min_u64(args.control[15], args.cap3)];
  const u64 tiles = (rows + 255) / 256;
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (++unasked == WL_STOP_TILES) { unasked = 0; if (query_stopped_block(watch)) break; }
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 parent_row[WL_ROWS] = {}; u32 pe[WL_ROWS] = {};
    const u32 pm = ranged_pairs(args.r3pairs, min_u64(args.control[15], args.cap3), args.r3start, args.r1rows, row, live, parent_row, pe);
    if (row == 0 && threadIdx.x == 0) args.control[20] = rows;
    u16 c0[WL_ROWS] = {};
    if ((live & live) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & live) >> k & 1) {
        c0[k] = args.r3c0[parent_row[k]];
      }
    }
    u8 c1[WL_ROWS] = {};
    if ((live & pm) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & pm) >> k & 1) {
        c1[k] = args.r1c0[pe[k]];
      }
    }
    if (live != 0 && row < args.cap4) {
      u16 w0[WL_ROWS] = {};
      u8 w1[WL_ROWS] = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i32 v1 = (i32)((u32)c1[k]);
        if (alive) {
          w0[k] = (u16)v0;
          w1[k] = (u8)v1;
        }
      }
      store_vec(args.r4c0 + row, w0);
      store_vec(args.r4c1 + row, w1);
    }
    __syncwarp();
  }
}

