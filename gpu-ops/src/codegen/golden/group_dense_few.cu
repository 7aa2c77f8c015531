// groups result 0: Scan(0), 256 threads, 256 rows a tile, 288 bytes shared
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
  const u8* n1;
  const u8* c1;
  const u32* c3;
  const u8* n6;
  const f64* c6;
};
static_assert(sizeof(Args) == 80, "host and device disagree on the arguments");

struct Shared {
  alignas(16) u8 states[288];
};

WL_KERNEL(pipeline, Args, args) {
  WL_SHARED(Shared, shared);
  u32 fault = 0;
  u8* const states = args.r0state;
  u32* const p0 = (u32*)(shared.states + 0);
  u64* const p1 = (u64*)(shared.states + 48);
  u32* const p2 = (u32*)(shared.states + 144);
  u64* const p3 = (u64*)(shared.states + 192);
  block_zero<18>((u128*)shared.states);
  __syncthreads();
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
    u32 n1 = 0; if (live != 0) n1 = load_bits<WL_ROWS>(args.n1, row);
    u8 c1[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u8, WL_ROWS>(args.c1 + row, c1);
    u32 c3[WL_ROWS] = {};
    if (live != 0) load_vec_stream<u32, WL_ROWS>(args.c3 + row, c3);
    u32 n6 = 0; if (live != 0) n6 = load_bits<WL_ROWS>(args.n6, row);
    f64 c6[WL_ROWS] = {};
    if (live != 0) load_vec_stream<f64, WL_ROWS>(args.c6 + row, c6);
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v3 = ((n1 >> k) & 1) != 0;
        const i32 v4 = (i32)((u32)c1[k]);
        const i32 v5 = (i32)((u32)c3[k]);
        const bool v6 = ((n6 >> k) & 1) != 0;
        const f64 v7 = c6[k];
        const bool v8 = alive && v6;
        const u64 key9 = min_key((i64)grouped_min_order(v7));
        const u64 group = (v3 ? ((u64)v4 + 1u) : (u64)0);
        if (alive) {
          store_once_block((p0 + (u32)group), (u32)1u);
          block_add_u64((p1 + (u32)group), (u64)(v5));
          if (v8) { store_once_block((p2 + (u32)group), (u32)1u); }
          if (v8) { raise_block((p3 + (u32)group), (u64)key9); }
        }
      }
    }
    __syncwarp();
  }
  __syncthreads();
  for (u32 g = threadIdx.x; g < 11; g += 256) {
    u8* const at = states + (u64)g * 32;
    if (*((p0 + g)) != 0) { store_once((u32*)(at + 16), (u32)*((p0 + g))); }
    if (*((p1 + g)) != 0) { atomicAdd((u64*)(at + 0), (u64)(*((p1 + g)))); }
    if (*((p2 + g)) != 0) { store_once((u32*)(at + 20), (u32)*((p2 + g))); }
    if (*((p3 + g)) != 0) { raise((u64*)(at + 8), (u64)*((p3 + g))); }
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
  u8* r1c0;
  u8* r1n0;
  u32* r1c1;
  f64* r1c2;
  u8* r1n2;
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
    u32 n0 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      u64 code = (row + k);
      if (code != 0) { n0 |= 1u << k; code -= 1; }
      c0[k] = (i32)(code + 0ull);
    }
    i32 c1[WL_ROWS] = {};
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      const bool valid = true;
      c1[k] = valid ? (i32)((i64)*((u64*)(at + 0))) : (i32)0;
    }
    f64 c2[WL_ROWS] = {};
    u32 n2 = 0;
    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {
      const u8* const at = args.r0state + (row + k) * 32;
      const bool valid = *((u32*)(at + 20)) != 0;
      n2 |= (u32)valid << k;
      c2[k] = valid ? f64_of_order(value_of_min(*((u64*)(at + 8)))) : 0.0;
    }
    if (live != 0) {
      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {
        const bool alive = ((live >> k) & 1) != 0;
        const bool v0 = ((n0 >> k) & 1) != 0;
        const i32 v1 = c0[k];
        const i32 v2 = c1[k];
        const bool v3 = ((n2 >> k) & 1) != 0;
        const f64 v4 = c2[k];
        const u64 at = first + spot[k]; if (alive && at < args.cap1) {
          args.r1c0[at] = v0 ? (u8)v1 : (u8)0;
          args.r1n0[at] = (u8)(v0);
          args.r1c1[at] = (u32)v2;
          args.r1c2[at] = v3 ? (f64)v4 : (f64)0;
          args.r1n2[at] = (u8)(v3);
        }
      }
    }
    __syncwarp();
  }
}

