// groups result 0: Scan(0), 256 threads, 256 rows a tile, 128 bytes shared
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
  f64 lit1;
  u8* r0state;
  u64 rows;
  u64 first;
  const u16* c0;
  const u8* n6;
  const f64* c6;
  const u32* c3;
};
static_assert(sizeof(Args) == 72, "host and device disagree on the arguments");

struct Shared {
  alignas(16) u8 warp_states[128];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  u8* const states = args.r0state;
  i64 s0[1] = {};
  i32 s1[1] = {};
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
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0) { u32 pass = 0;
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v3 = ((n6 >> k) & 1) != 0;
        const f64 v4 = c6[k];
        const f64 v5 = args.lit1;
        const bool v6 = comparison_order(v4) < comparison_order(v5);
        const bool v7 = v3 && v6;
        pass |= (u32)(v7) << k;
      }
      live &= pass;
    }
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const i32 v8 = (i32)((u32)c3[k]);
        const i64 v9 = (i64)v8 * (i64)v8;
        s0[0] = (i64)((u64)s0[0] + (alive ? (u64)v9 : 0ull));
        s1[0] += alive ? (i32)1 : (i32)0;
      }
    }
    __syncwarp();
  }
  WL_UNROLL for (u32 g = 0; g < 1; ++g) {
    u8* const mine = shared.warp_states + ((u64)warp_id() * 1 + g) * 16;
    { const auto t = (u64)warp_sum((u64)(i64)s0[g]); u64* const to = (u64*)(mine + 0); if (lane_id() == 0) { *to = t; } }
    { const auto t = (u32)warp_sum((u64)(i64)s1[g]); u32* const to = (u32*)(mine + 8); if (lane_id() == 0) { *to = t; } }
  }
  __syncthreads();
  for (u32 g = threadIdx.x; g < 1; g += 256) {
    u8* const at = states + (u64)g * 16;
    { u64 t = 0; for (u32 w = 0; w < 8; ++w) t += *((u64*)(shared.warp_states + ((u64)w * 1 + g) * 16 + 0));
      if (t != 0) atomicAdd((u64*)(at + 0), (u64)(t)); }
    { u32 t = 0; for (u32 w = 0; w < 8; ++w) t += *((u32*)(shared.warp_states + ((u64)w * 1 + g) * 16 + 8));
      if (t != 0) atomicAdd((u32*)(at + 8), (u32)(t)); }
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
  u64* r1c0;
  u8* r1n0;
  u16* r1c1;
  u64* control;
  u64 cap1;
};
static_assert(sizeof(Args) == 56, "host and device disagree on the arguments");

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
    if (live != 0) { u32 occupied = 0; WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) occupied |= (u32)(true) << k; live &= occupied; }
    u32 spot[WL_ROWS]; const u64 first = block_reserve_rows<WL_ROWS>(live, &args.control[5], shared.reserve, spot);
    i64 c0[WL_ROWS] = {};
    u32 n0 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      const bool valid = *((u32*)(at + 8)) != 0;
      n0 |= (u32)valid << k;
      c0[k] = valid ? (i64)((i64)*((u64*)(at + 0))) : (i64)0;
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 16;
      c1[k] = (i32)*((u32*)(at + 8));
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n0 >> k) & 1) != 0;
        const i64 v1 = c0[k];
        const i32 v2 = c1[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = v0 ? (u64)v1 : (u64)0;
          args.r1n0[at] = (u8)(v0);
          args.r1c1[at] = (u16)v2;
        }
      }
    }
    __syncwarp();
  }
}

