// groups result 0: Scan(0), 256 threads, 256 rows a tile, 0 bytes shared
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
  u8* r0state;
  u64 rows;
  u64 first;
  const u16* c0;
  const u32* c3;
  const u8* n6;
  const f64* c6;
};
static_assert(sizeof(Args) == 64, "host and device disagree on the arguments");

WL_KERNEL(pipeline, Args, args) {
  u32 fault = 0;
  u8* const states = args.r0state;
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
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v3 = (i32)((u32)c3[k]);
        const bool v4 = ((n6 >> k) & 1) != 0;
        const f64 v5 = c6[k];
        const bool v6 = alive && v4;
        const u64 key7 = min_key((i64)grouped_min_order(v5));
        const u64 group = (u64)v3;
        if (alive) {
          u8* const at = states + group * 32;
          atomicAdd((u64*)(at + 0), (u64)(v3));
          atomicAdd((u32*)(at + 16), (u32)(1));
          if (v6) { store_once((u32*)(at + 20), (u32)1u); }
          if (v6) { raise((u64*)(at + 8), (u64)key7); }
        }
      }
    }
    __syncwarp();
  }
}

// rows result 1: Slots(0), 256 threads, 256 rows a tile, 144 bytes shared
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
  u64 rows;
  u32* r1c0;
  u32* r1c1;
  u16* r1c2;
  f64* r1c3;
  u8* r1n3;
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
  for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const u64 row = tile * 256 + threadIdx.x * WL_ROWS;
    u32 live = row >= rows ? 0u : rows - row >= WL_ROWS ? 1u : (1u << (u32)(rows - row)) - 1u;
    if (live != 0) { u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)(*((u32*)((args.r0state + (row + k) * 32) + 16)) != 0) << k; live &= occupied; }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    i32 c0[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = (row + k);
      c0[k] = (i32)(code + 0ull);
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      const bool valid = true;
      c1[k] = valid ? (i32)((i64)*((u64*)(at + 0))) : (i32)0;
    }
    i32 c2[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      c2[k] = (i32)*((u32*)(at + 16));
    }
    f64 c3[WL_ROWS] = {};
    u32 n3 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      const bool valid = *((u32*)(at + 20)) != 0;
      n3 |= (u32)valid << k;
      c3[k] = valid ? f64_of_order(value_of_min(*((u64*)(at + 8)))) : 0.0;
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v0 = c0[k];
        const i32 v1 = c1[k];
        const i32 v2 = c2[k];
        const bool v3 = ((n3 >> k) & 1) != 0;
        const f64 v4 = c3[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = (u32)v0;
          args.r1c1[at] = (u32)v1;
          args.r1c2[at] = (u16)v2;
          args.r1c3[at] = v3 ? (f64)v4 : (f64)0;
          args.r1n3[at] = (u8)(v3);
        }
      }
    }
    __syncwarp();
  }
}

