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
  u8* r0c0;
  u8* r0n0;
  u8* r0c1;
  f64* r0c2;
  u8* r0n2;
  u16* r0c3;
  u64* control;
  const u8* n1;
  const u8* c1;
  const u8* c5;
  const u8* n6;
  const f64* c6;
  u64 cap0;
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
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v3 = ((n1 >> k) & 1) != 0;
        const i32 v4 = (i32)((u32)c1[k]);
        const i32 v5 = (i32)c5[k];
        const bool v6 = ((n6 >> k) & 1) != 0;
        const f64 v7 = c6[k];
        const i32 v8 = (i32)((u32)c0[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0c0[at] = v3 ? (u8)v4 : (u8)0;
          args.r0n0[at] = (u8)(v3);
          args.r0c1[at] = (u8)v5;
          args.r0c2[at] = v6 ? (f64)v7 : (f64)0;
          args.r0n2[at] = (u8)(v6);
          args.r0c3[at] = (u16)v8;
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
  u8* r0c0;
  u8* r0n0;
  u8* r0c1;
  f64* r0c2;
  u8* r0n2;
  u64* r1k0;
  u64* r1k1;
  u64* control;
  u64 rows;
};
static_assert(sizeof(Args) == 72, "host and device disagree on the arguments");

WL_KERNEL(sort_keys, Args, args) {
  const u64 rows = min_u64(args.control[0], args.rows);
  for (u64 row = (u64)blockIdx.x * 256 + threadIdx.x; row < rows; row += (u64)gridDim.x * 256) {
    const bool valid0 = args.r0n0[row] != 0;
    const bool valid3 = args.r0n2[row] != 0;
    args.r1k0[row] = ((u64)(valid0) << 7) | ((valid0 ? (15ull - (u64)args.r0c0[row]) : 0ull) << 3) | ((u64)args.r0c1[row] << 1) | (u64)(!valid3);
    args.r1k1[row] = (valid3 ? ((u64)total_order(args.r0c2[row]) ^ 0x8000000000000000ull) : 0ull);
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
  u8* r0c0;
  u8* r1c0;
  u8* r0n0;
  u8* r1n0;
  u8* r0c1;
  u8* r1c1;
  f64* r0c2;
  f64* r1c2;
  u8* r0n2;
  u8* r1n2;
  u16* r0c3;
  u16* r1c3;
};
static_assert(sizeof(Args) == 136, "host and device disagree on the arguments");

WL_KERNEL(sort_gather, Args, args) {
  const u64 all = min_u64(args.control[0], args.rows);
  const u64 rows = min_u64(all > args.skip ? all - args.skip : 0ull, args.fetch);
  if (blockIdx.x == 0 && threadIdx.x == 0) args.control[5] = rows;
  for (u64 row = (u64)blockIdx.x * 256 + threadIdx.x; row < rows; row += (u64)gridDim.x * 256) {
    const u64 from = args.r1order[args.skip + row];
    args.r1c0[row] = args.r0c0[from];
    args.r1n0[row] = args.r0n0[from];
    args.r1c1[row] = args.r0c1[from];
    args.r1c2[row] = args.r0c2[from];
    args.r1n2[row] = args.r0n2[from];
    args.r1c3[row] = args.r0c3[from];
  }
}

