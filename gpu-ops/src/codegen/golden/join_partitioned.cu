// index result 0: Scan(0), 256 threads, 256 rows a tile, 0 bytes shared
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
  const u8* n1;
  const u8* c1;
  u8* r0c1;
  u8* r0n1;
  u64* control;
  u64 cap0;
};
static_assert(sizeof(Args) == 64, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    if (row == args.first && threadIdx.x == 0) args.control[0] = rows;
    if (live != 0 && row < args.cap0) {
      u8 w0[WL_ROWS] = {};
      u8 w1[WL_ROWS] = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v2 = ((n1 >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c1[k]);
        if (alive) {
          w0[k] = v2 ? (u8)v3 : (u8)0;
          w1[k] = (u8)(v2);
        }
      }
      store_vec(args.r0c1 + row, w0);
      store_vec(args.r0n1 + row, w1);
    }
    __syncwarp();
  }
}

// matches result 1: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  i64 lit2;
  u64 rows;
  u64 first;
  const u64* c7;
  u16* r1c0;
  u64* r1k0;
  u64* control;
  const u16* c0;
  u64 cap1;
};
static_assert(sizeof(Args) == 88, "host and device disagree on the arguments");

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
    u32 h0 = 0; u64 j0[WL_ROWS] = {};
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c7[k] + (u64)(i64)args.lit0);
        const bool v1 = v0 >= (i64)(i32)args.lit1 && v0 <= (i64)args.lit2;
        const bool possible = alive && v1;
        h0 |= (u32)possible << k;
        j0[k] = possible ? (u64)((u64)v0) : ~(u64)1;
      }
    }
    live &= h0;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v2 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u16)v2;
          args.r1k0[at] = j0[k];
        }
      }
    }
    __syncwarp();
  }
}

// rows result 2: Pairs(1), 256 threads, 256 rows a tile, 0 bytes shared, in place
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
  const u32* r1pairrow;
  const u32* r1pairentry;
  u64 rows;
  u64* control;
  u64 pairs1;
  const u64* stopword;
  u64 stopnumber;
  u16* r2c0;
  u32* r2c1;
  u8* r2c2;
  u8* r2n2;
  u16* r1c0;
  u32* r0c0;
  u8* r0c1;
  u8* r0n1;
  u64 cap2;
};
static_assert(sizeof(Args) == 128, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = min_u64(args.control[9], args.pairs1);
  const u64 tiles = (rows + 255) / 256;
  u32 unasked = 0; StopWatch watch = stop_watch(args.stopword, args.stopnumber);
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (++unasked == WL_STOP_TILES) { unasked = 0; if (query_stopped_block(watch)) break; }
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 parent_row[WL_ROWS] = {}; u32 pe[WL_ROWS] = {};
    const u32 pm = listed_pairs(args.r1pairrow + row, args.r1pairentry + row, live, parent_row, pe);
    if (row == 0 && threadIdx.x == 0) args.control[10] = rows;
    u16 c0[WL_ROWS] = {};
    if ((live & live) != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & live) >> k & 1) {
        c0[k] = args.r1c0[parent_row[k]];
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
    if (live != 0 && row < args.cap2) {
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
      store_vec(args.r2c0 + row, w0);
      store_vec(args.r2c1 + row, w1);
      store_vec(args.r2c2 + row, w2);
      store_vec(args.r2n2 + row, w3);
    }
    __syncwarp();
  }
}

