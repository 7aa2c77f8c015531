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
  const u64* c2;
  const u8* c5;
  const u64* c7;
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
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    u64 c7[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c7 + row, c7);
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[0], shared.reserve, spot);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const i64 v1 = (i64)((u64)c7[k] + (u64)(i64)args.lit0);
        const i32 v2 = (i32)c5[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap0) {
          args.r0k0[at] = (u64)v0 | ((u64)v2 << 40);
          args.r0k1[at] = ((u64)v1 - 9226941453170788605ull);
        }
      }
    }
    __syncwarp();
  }
}

// groups result 1: Scan(0), 256 threads, 256 rows a tile, 0 bytes shared
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
  u8* r1state;
  u64 rows;
  u64* control;
  u64 first;
  const u64* c2;
  const u8* c5;
  const u64* c7;
  const u64* r0keys;
  u64 slots0;
  const u32* r0states;
  const u32* c3;
  u64 slots1;
  u64* r1keys;
  u32* r1states;
};
static_assert(sizeof(Args) == 120, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  u8* const states = args.r1state;
  const u64 rows = args.rows;
  const u64 tiles = (rows + 255) / 256;
  u64 overflowed = 0;
  for (u64 tile = args.first / 256 + blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    if (overflowed != 0) live = 0; overflowed = load_relaxed(&args.control[6]);
    u64 c2[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c2 + row, c2);
    u8 c5[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c5 + row, c5);
    u64 c7[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u64, WL_ROWS>(args.c7 + row, c7);
    u32 h0 = 0; u32 e0[WL_ROWS] = {}; (void)e0;
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = (i64)((u64)c2[k]);
        const i64 v1 = (i64)((u64)c7[k] + (u64)(i64)args.lit0);
        const i32 v2 = (i32)c5[k];
        const bool possible = alive && true;
        const u64 packed[2] = {(u64)v0 | ((u64)v2 << 40), ((u64)v1 - 9226941453170788605ull)};
        const u64 place = possible ? hash_find_wide<2>(args.r0keys, args.r0states, args.slots0 - 1, packed) : WL_NO_SLOT;
        const bool found = place != WL_NO_SLOT;
        h0 |= (u32)found << k;
      }
    }
    live &= h0;
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v3 = (i64)((u64)c2[k]);
        const i64 v4 = (i64)((u64)c7[k] + (u64)(i64)args.lit0);
        const i32 v5 = (i32)c5[k];
        const i32 v6 = (i32)((u32)c3[k]);
        if (alive) {
          const u64 packed[2] = {(u64)v3 | ((u64)v5 << 40), ((u64)v4 - 9226941453170788605ull)};
          const u64 slot = find_or_insert_wide<2>(args.r1states, args.r1keys, args.slots1 - 1, packed, 128);
          u8* const at = slot == WL_NO_SLOT ? (u8*)0 : states + slot * 8;
          if (at == 0) { store_relaxed(&args.control[6], (u64)1); continue; }
          atomicAdd((u64*)(at + 0), (u64)(v6));
        }
      }
    }
    __syncwarp();
  }
}

// rows result 2: Slots(1), 256 threads, 256 rows a tile, 144 bytes shared
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
  const u8* r1state;
  const u64* r1keys;
  const u32* r1states;
  u64 rows;
  u64* r2c0;
  u64* r2c1;
  u8* r2c2;
  u32* r2c3;
  u64* control;
  u64 cap2;
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
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    if (live != 0) { u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)(args.r1states[row + k] == 2) << k; live &= occupied; }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[10], shared.reserve, spot);
    i64 c0[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = ((args.r1keys[(row + k) * 2 + 0] >> 0) & 1099511627775ull);
      c0[k] = (i64)(code + 0ull);
    }
    i64 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = ((args.r1keys[(row + k) * 2 + 1] >> 0) & 18446744073709551615ull);
      c1[k] = (i64)(code + 9226941453170788605ull);
    }
    i32 c2[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = ((args.r1keys[(row + k) * 2 + 0] >> 40) & 3ull);
      c2[k] = (i32)(code + 0ull);
    }
    i32 c3[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r1state + (row + k) * 8;
      const bool valid = true;
      c3[k] = valid ? (i32)((i64)*((u64*)(at + 0))) : (i32)0;
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i64 v0 = c0[k];
        const i64 v1 = c1[k];
        const i32 v2 = c2[k];
        const i32 v3 = c3[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap2) {
          args.r2c0[at] = (u64)v0;
          args.r2c1[at] = (u64)((u64)v1 - 9226941453170788605ull);
          args.r2c2[at] = (u8)v2;
          args.r2c3[at] = (u32)v3;
        }
      }
    }
    __syncwarp();
  }
}

