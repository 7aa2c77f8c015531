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
  const u64* c2;
  const u32* c3;
  const u8* n1;
  const u8* c1;
  u32* r0c0;
  u8* r0c1;
  u8* r0n1;
  u64* r0k0;
  u64* control;
  u64 cap0;
};
static_assert(sizeof(Args) == 96, "host and device disagree on the arguments");

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
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[0], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const i32 v1 = (i32)((u32)c3[k]);
        const bool v2 = ((n1 >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c1[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0c0[at] = (u32)v1;
          args.r0c1[at] = v2 ? (u8)v3 : (u8)0;
          args.r0n1[at] = (u8)(v2);
          args.r0k0[at] = (u64)v0;
        }
      }
    }
    __syncwarp();
  }
}

// rows result 1: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u8* n1;
  const u8* c1;
  const u64* r0keys;
  u64 slots0;
  const u32* r0offsets;
  const u32* c3;
  u32* r0c0;
  u16* r1c0;
  u64* control;
  const u16* c0;
  u64 cap1;
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
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (++unasked == WL_STOP_TILES) { unasked = 0; if (query_stopped_block(watch)) break; }
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    u32 first0[WL_ROWS] = {}; u32 length0[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n1 >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c1[k]);
        const bool possible = alive && v0;
        const u64 place = possible ? hash_find(args.r0keys, args.slots0 - 1, (u64)v1) : WL_NO_SLOT;
        const bool found = place != WL_NO_SLOT;
        if (found) {
          const u32* const range = args.r0offsets + place; const u32 first = range[0], length = range[1] - first;
          h0 |= (u32)(length != 0) << k;
          first0[k] = first; length0[k] = length;
        }
      }
    }
    live &= h0;
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 any0 = 0;
    if ((live & h0) != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & h0) >> k & 1) {
      for (u32 j = 0; j < length0[k]; ++j) {
        if ((j + 1) % WL_STOP_ENTRIES == 0 && query_stopped(watch)) break;
        const u32 entry = first0[k] + j;
        const bool alive = true;
        u32 c8[WL_ROWS]; c8[k] = args.r0c0[entry];
        const i32 v2 = (i32)((u32)c3[k]);
        const i32 v3 = (i32)((u32)c8[k]);
        const bool v4 = v2 < v3;
        if (!(v4)) continue;
        (void)alive; any0 |= 1u << k; e0[k] = entry;
        break;
      }
    }
    h0 = any0;
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v5 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u16)v5;
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
  u64 rows;
  const u64* stopword;
  u64 stopnumber;
  u64 first;
  const u64* c2;
  const u64* r0keys;
  u64 slots0;
  const u32* r0offsets;
  u16* r2c0;
  u32* r2start;
  u32* r2len;
  u64* control;
  const u16* c0;
  u64 cap2;
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
        const u64 place = possible ? hash_find(args.r0keys, args.slots0 - 1, (u64)v0) : WL_NO_SLOT;
        const bool found = place != WL_NO_SLOT;
        if (found) {
          const u32* const range = args.r0offsets + place; const u32 first = range[0], length = range[1] - first;
          h0 |= (u32)(length != 0) << k;
          first0[k] = first; length0[k] = length;
        }
      }
    }
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[10], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v1 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u16)v1;
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
  u64 rows;
  const u64* stopword;
  u64 stopnumber;
  u16* r3c0;
  u32* r3c1;
  u8* r3c2;
  u8* r3n2;
  u16* r2c0;
  u32* r0c0;
  u8* r0c1;
  u8* r0n1;
  u64 cap3;
};
static_assert(sizeof(Args) == 128, "host and device disagree on the arguments");

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
    const u32 pm = ranged_pairs(args.r2pairs, min_u64(args.control[10], args.cap2), args.r2start, (const u32*)0, row, live, parent_row, pe);
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
    u8 c2[WL_ROWS] = {};
    u32 n2 = 0;
    if ((live & pm) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & pm) >> k & 1) {
        c2[k] = args.r0c1[pe[k]]; n2 |= (u32)(args.r0n1[pe[k]] != 0) << k;
      }
    }
    if (live != 0 && row < args.cap3) {
      u16 w0[WL_ROWS] = {};
      u32 w1[WL_ROWS] = {};
      u8 w2[WL_ROWS] = {};
      u8 w3[WL_ROWS] = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i32 v1 = (i32)((u32)c1[k]);
        const bool v2 = ((n2 >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c2[k]);
        if (alive) {
          w0[k] = (u16)v0;
          w1[k] = (u32)v1;
          w2[k] = v2 ? (u8)v3 : (u8)0;
          w3[k] = (u8)(v2);
        }
      }
      store_vec(args.r3c0 + row, w0);
      store_vec(args.r3c1 + row, w1);
      store_vec(args.r3c2 + row, w2);
      store_vec(args.r3n2 + row, w3);
    }
    __syncwarp();
  }
}

// index result 4: Scan(0), 256 threads, 256 rows a tile, 0 bytes shared
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
  u64* r4k0;
  u64* control;
  u64 cap4;
};
static_assert(sizeof(Args) == 48, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (row == args.first && threadIdx.x == 0) args.control[20] = rows;
    if (live != 0 && row < args.cap4) {
      u64 w0[WL_ROWS] = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        if (alive) {
          w0[k] = (u64)v0;
        }
      }
      store_vec(args.r4k0 + row, w0);
    }
    __syncwarp();
  }
}

// matches result 5: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u64* c2;
  const u32* r4offsets;
  u16* r5c0;
  u32* r5start;
  u32* r5len;
  u64* control;
  const u16* c0;
  u64 cap5;
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
        const bool v1 = v0 >= (i64)(i32)args.lit0 && v0 <= (i64)(i32)args.lit1;
        const bool possible = alive && v1;
        const u32 place = (u32)((u64)v0);
        const bool found = possible;
        if (found) {
          const u32* const range = args.r4offsets + place; const u32 first = range[0], length = range[1] - first;
          h0 |= (u32)(length != 0) << k;
          first0[k] = first; length0[k] = length;
        }
      }
    }
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[25], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v2 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap5) {
          args.r5c0[at] = (u16)v2;
          args.r5start[at] = first0[k];
          args.r5len[at] = length0[k];
        }
      }
    }
    __syncwarp();
  }
}

// rows result 6: Pairs(5), 256 threads, 256 rows a tile, 0 bytes shared, in place
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
  u64 cap5;
  const u64* r5pairs;
  const u32* r5start;
  u64 rows;
  const u64* stopword;
  u64 stopnumber;
  u16* r6c0;
  u32* r6c1;
  u16* r5c0;
  u32* r4c0;
  u64 cap6;
};
static_assert(sizeof(Args) == 96, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = args.r5pairs[min_u64(args.control[25], args.cap5)];
  const u64 tiles = (rows + 255) / 256;
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (++unasked == WL_STOP_TILES) { unasked = 0; if (query_stopped_block(watch)) break; }
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 parent_row[WL_ROWS] = {}; u32 pe[WL_ROWS] = {};
    const u32 pm = ranged_pairs(args.r5pairs, min_u64(args.control[25], args.cap5), args.r5start, (const u32*)0, row, live, parent_row, pe);
    if (row == 0 && threadIdx.x == 0) args.control[30] = rows;
    u16 c0[WL_ROWS] = {};
    if ((live & live) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & live) >> k & 1) {
        c0[k] = args.r5c0[parent_row[k]];
      }
    }
    u32 c1[WL_ROWS] = {};
    if ((live & pm) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & pm) >> k & 1) {
        c1[k] = args.r4c0[pe[k]];
      }
    }
    if (live != 0 && row < args.cap6) {
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
      store_vec(args.r6c0 + row, w0);
      store_vec(args.r6c1 + row, w1);
    }
    __syncwarp();
  }
}

