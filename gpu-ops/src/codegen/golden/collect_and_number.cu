// rows of result 0: Scan(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  u64 first;
  const u16* c0;
  u32* r2c0;
  u128* r2k0;
  u64* control;
  const u64* c7;
  const u32* c3;
  u64 cap2;
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
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[10], shared.reserve, spot);
    u64 c7[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c7 + row, c7);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v3 = (i64)((u64)c7[k] + (u64)(i64)args.lit1);
        const i32 v4 = (i32)((u32)c3[k]);
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u32)v4;
          args.r2k0[at] = ((u128)(0ull) << 64 | (u128)(((u64)v3 - 9226941453170788605ull)));
        }
      }
    }
    __syncwarp();
  }
}

// groups result 0: Rows(2), 512 threads, 4096 rows a tile, 24000 bytes shared
#define WL_BLOCK_THREADS 512
#define WL_ROWS 8
#include "simt.cuh"
#include "primitives.cuh"
#include "pipeline.cuh"
#include "join.cuh"
#include "group.cuh"
#include "strings.cuh"
#include "stop.cuh"

struct Args {
  u128* r2k0;
  const u32* r2ids;
  u8* r0state;
  u64 cap0;
  u64* control;
  u64 rows;
  u32* r2c0;
};
static_assert(sizeof(Args) == 56, "host and device disagree on the arguments");

struct Shared {
  alignas(16) u8 states[24000];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  u8* const states = args.r0state;
  const u64 cap = args.cap0;
  const u64 groups = args.control[14];
  if (blockIdx.x == 0 && threadIdx.x == 0) store_relaxed(&args.control[0], groups);
  u64* const p0 = (u64*)(shared.states + 0);
  u32* const p1 = (u32*)(shared.states + 16000);
  block_zero<1500>((u128*)shared.states);
  __syncthreads();
  const u64 rows = min_u64(args.control[10], args.rows);
  const u64 tiles = (rows + 4095) / 4096;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 4096 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 255u : (1u << (u32)(rows - row)) - 1u;
    u32 group_of[WL_ROWS] = {}; if (live != 0) load_vec_stream<u32, WL_ROWS>(args.r2ids + row, group_of);
    u32 c0[WL_ROWS] = {};
    load_live(args.r2c0 + row, live, c0);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = (i32)((u32)c0[k]);
        const u64 group = group_of[k];
        if (alive) {
          if (group < 2000) {
          block_add_u64((p0 + (u32)group), (u64)(v0));
          atomicAdd((p1 + (u32)group), (u32)(1));
          continue; }
          if (group >= cap) continue;
          u8* const at = states + group * 16;
          atomicAdd((u64*)(at + 0), (u64)(v0));
          atomicAdd((u32*)(at + 8), (u32)(1));
        }
      }
    }
    __syncwarp();
  }
  __syncthreads();
  for (u32 g = threadIdx.x; g < 2000; g += 512) {
    if (g >= min_u64(groups, cap)) break;
    u8* const at = states + (u64)g * 16;
    if (*((p0 + g)) != 0) { atomicAdd((u64*)(at + 0), (u64)(*((p0 + g)))); }
    if (*((p1 + g)) != 0) { atomicAdd((u32*)(at + 8), (u32)(*((p1 + g)))); }
  }
}

// rows result 1: Rows(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u8* r0state;
  const u128* r2groupkeys;
  u64 rows;
  u64* control;
  u64* r1c0;
  u32* r1c1;
  u16* r1c2;
  u64 cap1;
};
static_assert(sizeof(Args) == 64, "host and device disagree on the arguments");

struct Shared {
  alignas(16) ReserveScratch reserve;
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  const u64 rows = min_u64(args.control[0], args.rows);
  const u64 tiles = (rows + 255) / 256;
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    i64 c0[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = (((u64)args.r2groupkeys[row + k] >> 0) & 18446744073709551615ull);
      c0[k] = (i64)(code + 9226941453170788605ull);
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      const bool valid = true;
      c1[k] = valid ? (i32)((i64)*((u64*)(at + 0))) : (i32)0;
    }
    i32 c2[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      c2[k] = (i32)*((u32*)(at + 8));
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = c0[k];
        const i32 v1 = c1[k];
        const i32 v2 = c2[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u64)((u64)v0 - 9226941453170788605ull);
          args.r1c1[at] = (u32)v1;
          args.r1c2[at] = (u16)v2;
        }
      }
    }
    __syncwarp();
  }
}

