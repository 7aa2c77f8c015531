// rows result 0: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u16* c0;
  u16* r0c0;
  f64* r0c1;
  u8* r0n1;
  u64* control;
  const u8* n6;
  const f64* c6;
  u64 cap0;
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
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    if (live != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const i32 v1 = (i32)args.lit0;
        const bool v2 = v0 < v1;
        pass |= (u32)(v2) << k;
      }
      live &= pass;
    }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[0], shared.reserve, spot);
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v3 = (i32)(row + k);
        const bool v4 = ((n6 >> k) & 1) != 0;
        const f64 v5 = c6[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0c0[at] = (u16)v3;
          args.r0c1[at] = v4 ? (f64)v5 : (f64)0;
          args.r0n1[at] = (u8)(v4);
        }
      }
    }
    __syncwarp();
  }
}

// keys of sort keys: Rows(0), 256 threads, 256 rows a tile, 0 bytes shared
#define WL_BLOCK_THREADS 256
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"

struct Args {
  f64* r0c1;
  u8* r0n1;
  u64* r1k0;
  u64* r1k1;
  u64* control;
  u64 rows;
};
static_assert(sizeof(Args) == 48, "host and device disagree on the arguments");

WL_KERNEL(sort_keys, Args, args) {
  const u64 rows = min_u64(args.control[0], args.rows);
  for (u64 row = (u64)blockIdx.x * 256 + threadIdx.x; row < rows; row += (u64)gridDim.x * 256) {
    const bool valid0 = args.r0n1[row] != 0;
    args.r1k0[row] = (u64)(!valid0);
    args.r1k1[row] = (valid0 ? (18446744073709551615ull - ((u64)total_order(args.r0c1[row]) ^ 0x8000000000000000ull)) : 0ull);
  }
}

// gather sort gather: Rows(0), 256 threads, 256 rows a tile, 0 bytes shared
#define WL_BLOCK_THREADS 256
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"

struct Args {
  u64* control;
  u64 skip;
  u64 fetch;
  u64 rows;
  const u32* r1order;
  u16* r0c0;
  u16* r1c0;
};
static_assert(sizeof(Args) == 56, "host and device disagree on the arguments");

WL_KERNEL(sort_gather, Args, args) {
  const u64 all = min_u64(args.control[0], args.rows);
  const u64 rows = min_u64(all > args.skip ? all - args.skip : 0ull, args.fetch);
  if (blockIdx.x == 0 && threadIdx.x == 0) args.control[5] = rows;
  for (u64 row = (u64)blockIdx.x * 256 + threadIdx.x; row < rows; row += (u64)gridDim.x * 256) {
    const u64 from = args.r1order[args.skip + row];
    args.r1c0[row] = args.r0c0[from];
  }
}

// rows result 2: Picked { scan: Some(0), by: 1 }, 256 threads, 256 rows a tile, 0 bytes shared, in place
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
  u64* control;
  u16* r1c0;
  u16* r2c0;
  u16* r2c1;
  u8* r2n1;
  u8* r2c2;
  f64* r2c3;
  u8* r2n3;
  const u16* c0;
  const u8* n4;
  const u8* c5;
  const u8* n6;
  const f64* c6;
  u64 cap2;
};
static_assert(sizeof(Args) == 120, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  const u64 rows = min_u64(args.control[5], args.rows);
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 place = tile * 256 + threadIdx.x;
    u32 live = place < rows ? 1u : 0u;
    const u64 row = live != 0 ? 0ull + (u64)args.r1c0[place] : 0;
    if (place == 0 && threadIdx.x == 0) args.control[10] = rows;
    u16 c0[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u16, WL_ROWS>(args.c0 + row, c0);
    u32 n4 = 0; if (live != 0) n4 = load_bits<WL_ROWS>(args.n4, row);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0 && place < args.cap2) {
      u16 w0[WL_ROWS] = {};
      u16 w1[WL_ROWS] = {};
      u8 w2[WL_ROWS] = {};
      u8 w3[WL_ROWS] = {};
      f64 w4[WL_ROWS] = {};
      u8 w5[WL_ROWS] = {};
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const bool v1 = ((n4 >> k) & 1) != 0;
        const i32 v2 = (i32)(row + k);
        const i32 v3 = (i32)c5[k];
        const bool v4 = ((n6 >> k) & 1) != 0;
        const f64 v5 = c6[k];
        if (alive) {
          w0[k] = (u16)v0;
          w1[k] = v1 ? (u16)v2 : (u16)0;
          w2[k] = (u8)(v1);
          w3[k] = (u8)v3;
          w4[k] = v4 ? (f64)v5 : (f64)0;
          w5[k] = (u8)(v4);
        }
      }
      store_vec(args.r2c0 + place, w0);
      store_vec(args.r2c1 + place, w1);
      store_vec(args.r2n1 + place, w2);
      store_vec(args.r2c2 + place, w3);
      store_vec(args.r2c3 + place, w4);
      store_vec(args.r2n3 + place, w5);
    }
    __syncwarp();
  }
}

